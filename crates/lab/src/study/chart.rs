//! Charts as SVG inside a page. Text and axes take the page's colour; the colours of the series are legible on white and on black.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::data::float::pretty_print_float;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::StudyError;
use super::mean::{Mean, bracket};
use super::report::Table;
use numeric::real;

const SIZE: (u32, u32) = (720, 320);
const GREY: RGBColor = RGBColor(128, 128, 128);
const COLOURS: [RGBColor; 12] = [
    RGBColor(76, 120, 168),
    RGBColor(245, 133, 24),
    RGBColor(84, 162, 75),
    RGBColor(228, 87, 86),
    RGBColor(114, 183, 178),
    RGBColor(178, 121, 162),
    RGBColor(157, 117, 93),
    RGBColor(128, 128, 128),
    RGBColor(203, 153, 0),
    RGBColor(0, 137, 123),
    RGBColor(214, 39, 140),
    RGBColor(120, 94, 240),
];
/// Most points of a line that are marked individually, and most rows of a chart's table of numbers.
const MARKED: usize = 40;

/// A chart with its caption and its numbers.
#[derive(Debug, Clone)]
pub struct Chart {
    pub caption: String,
    pub svg: String,
    pub numbers: Table,
}

/// Caption and titles of the axes.
pub struct Axes<'a> {
    pub caption: String,
    pub x: &'a str,
    pub y: &'a str,
}

impl<'a> Axes<'a> {
    pub fn new(caption: impl Into<String>, x: &'a str, y: &'a str) -> Self {
        Self { caption: caption.into(), x, y }
    }
}

/// A point with the interval of its height.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    pub bounds: Option<(f64, f64)>,
}

impl Point {
    /// `None` if the mean has no value.
    pub fn of(x: f64, mean: &Mean) -> Option<Self> {
        Some(Self { x, y: mean.value?, bounds: mean.low.zip(mean.high) })
    }

    fn ends(&self) -> [f64; 3] {
        self.bounds.map_or([self.y; 3], |(low, high)| [low, self.y, high])
    }

    fn cell(&self) -> String {
        format!("{:.3}{}", self.y, bracket(self.bounds))
    }
}

/// A named line, or a named point.
#[derive(Debug, Clone)]
pub struct Series {
    pub name: String,
    /// By ascending `x`.
    pub points: Vec<Point>,
}

impl Series {
    /// Numbers over ranks or positions, from 1.
    pub fn ranked(name: impl Into<String>, values: &[f64]) -> Self {
        Self::over(name, values.iter().enumerate().map(|(at, y)| (real(at + 1), *y)))
    }

    /// Points without intervals.
    pub fn over(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let point = |(x, y)| Point { x, y, bounds: None };
        Self { name: name.into(), points: points.into_iter().map(point).collect() }
    }

    /// One point. `None` if the mean has no value.
    pub fn lone(name: impl Into<String>, x: f64, mean: &Mean) -> Option<Self> {
        Some(Self { name: name.into(), points: vec![Point::of(x, mean)?] })
    }
}

type Plane<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The labels of the horizontal axis: their number, and the text of each.
type Labels<'a> = (usize, &'a dyn Fn(&f64) -> String);

/// Axes and grid.
fn plane<'a>(
    root: &Area<'a>,
    (x, y): (Range<f64>, Range<f64>),
    axes: &Axes<'_>,
    (count, label): Labels<'_>,
) -> anyhow::Result<Plane<'a>> {
    let mut chart = ChartBuilder::on(root)
        .margin(8)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(x, y)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GREY.mix(0.35))
        .x_labels(count)
        .x_label_formatter(&label)
        .x_desc(axes.x)
        .y_label_formatter(&|y| height(*y))
        .y_desc(axes.y)
        .draw()
        .map_err(failed)?;
    Ok(chart)
}

/// An interval as a vertical bar.
fn bar(chart: &mut Plane<'_>, x: f64, point: &Point, style: ShapeStyle) -> anyhow::Result<()> {
    let Some((low, high)) = point.bounds else { return Ok(()) };
    chart.draw_series([PathElement::new(vec![(x, low), (x, high)], style)]).map_err(failed)?;
    Ok(())
}

fn legend(chart: &mut Plane<'_>) -> anyhow::Result<()> {
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperRight).border_style(TRANSPARENT).draw().map_err(failed)
}

/// The drawing as SVG for a page, tall enough for a legend of `entries` lines. plotters places them 15 apart, also past
/// the lower end.
fn drawn(entries: usize, draw: impl FnOnce(&Area<'_>) -> anyhow::Result<()>) -> Result<String, StudyError> {
    let lines = u32::try_from(entries).unwrap_or(u32::MAX).min(1_000);
    let (width, height) = (SIZE.0, SIZE.1.max(90 + 15 * lines));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        draw(&root)?;
        root.present().map_err(failed)?;
    }
    // Black becomes the text's colour, and the size follows the page.
    let fixed = format!("width=\"{width}\" height=\"{height}\" ");
    Ok(svg.replace("#000000", "currentColor").replacen(&fixed, "width=\"100%\" role=\"img\" ", 1))
}

/// Lines over numbers. Intervals of several lines are drawn side by side. A line without points keeps its place in the
/// legend.
pub fn lines(axes: Axes<'_>, series: &[Series]) -> Result<Chart, StudyError> {
    let all = || series.iter().flat_map(|one| &one.points);
    let (first, last) = all().fold((f64::MAX, f64::MIN), |(low, high), one| (low.min(one.x), high.max(one.x)));
    let (first, last) = if first <= last { (first, last) } else { (0.0, 1.0) };
    let width = if last > first { last - first } else { 1.0 };
    let whole = all().all(|point| is_whole(point.x));
    let label = |x: &f64| {
        let shown = *x < last + 0.06 * width && (!whole || is_whole(*x));
        if shown { number(*x) } else { String::new() }
    };
    let svg = drawn(series.len(), |root| {
        // Room for the legend to the right of the lines.
        let right = last + width * if series.len() > 1 { 0.45 } else { 0.06 };
        let size = (first - 0.06 * width..right, bounds(all().flat_map(Point::ends)));
        let mut chart = plane(root, size, &axes, (12, &label))?;
        let middle = (real(series.len()) - 1.0) / 2.0;
        for (at, one) in series.iter().enumerate() {
            let (colour, mark) = colours(at);
            let aside = (real(at) - middle) * width * 0.008;
            let place = |point: &Point| (if point.bounds.is_some() { point.x + aside } else { point.x }, point.y);
            for point in &one.points {
                bar(&mut chart, place(point).0, point, colour.stroke_width(1))?;
            }
            chart
                .draw_series(LineSeries::new(one.points.iter().map(place), colour.stroke_width(2)))
                .map_err(failed)?
                .label(one.name.clone())
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], colour.stroke_width(3)));
            let marked = one.points.iter().filter(|_| one.points.len() <= MARKED);
            chart.draw_series(marked.map(|point| Circle::new(place(point), 3, mark))).map_err(failed)?;
        }
        if series.len() > 1 { legend(&mut chart) } else { Ok(()) }
    })?;
    let mut places: Vec<f64> = all().map(|point| point.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    places.truncate(if places.len() > MARKED { 0 } else { MARKED });
    let row = |x: &f64| {
        let cell = |one: &Series| {
            let point = one.points.iter().find(|point| point.x.total_cmp(x).is_eq());
            point.map_or_else(String::new, Point::cell)
        };
        std::iter::once(number(*x)).chain(series.iter().map(cell)).collect()
    };
    let head = std::iter::once(axes.x.to_owned()).chain(series.iter().map(|one| one.name.clone()));
    let numbers = Table::new("", head, places.iter().map(row).collect());
    Ok(Chart { caption: axes.caption, svg, numbers })
}

/// The first point of each series over a logarithmic axis. Points below 1 are at its left end, which is labelled 0.
pub fn scatter(axes: Axes<'_>, series: &[Series]) -> Result<Chart, StudyError> {
    let points = || series.iter().filter_map(|one| Some((&one.name, one.points.first()?)));
    let place = |point: &Point| point.x.max(1.0).log10();
    let widest = points().map(|(_, point)| place(point)).fold(1.0, f64::max).ceil();
    let label = |x: &f64| match is_whole(*x) && *x < widest + 0.5 {
        true if x.abs() < 0.5 => "0".to_owned(),
        true => format!("{:.0}", 10.0_f64.powf(*x)),
        false => String::new(),
    };
    let svg = drawn(series.len(), |root| {
        let size = (-0.1..widest * 1.45, bounds(points().flat_map(|(_, point)| point.ends())));
        let mut chart = plane(root, size, &axes, (12, &label))?;
        for (at, (name, point)) in points().enumerate() {
            let (colour, mark) = colours(at);
            bar(&mut chart, place(point), point, colour.stroke_width(2))?;
            chart
                .draw_series([Circle::new((place(point), point.y), 5, mark)])
                .map_err(failed)?
                .label(name.clone())
                .legend(move |(x, y)| Circle::new((x + 8, y), 5, mark));
        }
        if series.is_empty() { Ok(()) } else { legend(&mut chart) }
    })?;
    let row = |(name, point): (&String, &Point)| vec![name.clone(), number(point.x), point.cell()];
    let numbers = Table::new("", ["name", axes.x, axes.y], points().map(row).collect());
    Ok(Chart { caption: axes.caption, svg, numbers })
}

/// The first point of each series with its interval along the horizontal axis, one below the other, each with its name at the left.
/// The axis need not hold 0.
pub fn intervals(axes: Axes<'_>, series: &[Series]) -> Result<Chart, StudyError> {
    let points = || series.iter().filter_map(|one| Some((&one.name, one.points.first()?)));
    let all = || points().flat_map(|(_, point)| point.ends());
    let least = all().reduce(f64::min).unwrap_or(0.0);
    let span = (all().reduce(f64::max).unwrap_or(1.0) - least).max(1e-3);
    // Room for the names before the values.
    let (left, right) = (least - 0.6 * span, least + 1.05 * span);
    let svg = drawn(series.len(), |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(8)
            .build_cartesian_2d(left..right, real(series.len().max(1))..0.0)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GREY.mix(0.35))
            .y_labels(0)
            .x_labels(12)
            .x_label_formatter(&|x| if *x < least - 0.05 * span { String::new() } else { format!("{x:.3}") })
            .x_desc(axes.x)
            .draw()
            .map_err(failed)?;
        let style = TextStyle::from(("sans-serif", 13).into_font()).pos(Pos::new(HPos::Left, VPos::Center));
        for (at, (name, point)) in points().enumerate() {
            let ((colour, _), height) = (colours(at), real(at) + 0.5);
            if let Some((low, high)) = point.bounds {
                let bar = vec![(low, height), (high, height)];
                chart.draw_series([PathElement::new(bar, colour.stroke_width(3))]).map_err(failed)?;
            }
            chart.draw_series([Circle::new((point.y, height), 5, colour.filled())]).map_err(failed)?;
            chart.draw_series([Text::new(name.clone(), (left, height), style.clone())]).map_err(failed)?;
        }
        Ok(())
    })?;
    let row = |(name, point): (&String, &Point)| vec![name.clone(), point.cell()];
    let numbers = Table::new("", ["name", axes.x], points().map(row).collect());
    Ok(Chart { caption: axes.caption, svg, numbers })
}

/// Bars between edges.
pub fn bars(axes: Axes<'_>, edges: &[f64], counts: &[usize]) -> Result<Chart, StudyError> {
    let (first, last) = (edges.first().copied().unwrap_or(0.0), edges.last().copied().unwrap_or(1.0));
    let tallest = counts.iter().max().copied().unwrap_or(0).max(1);
    let svg = drawn(0, |root| {
        let size = (first..last, 0.0..real(tallest) * 1.05);
        let mut chart = plane(root, size, &axes, (12, &|x| number(*x)))?;
        let bar = |(ends, count): (&[f64], &usize)| {
            Rectangle::new([(ends[0], 0.0), (ends[1], real(*count))], COLOURS[0].mix(0.85).filled())
        };
        chart.draw_series(edges.windows(2).zip(counts).map(bar)).map_err(failed)?;
        Ok(())
    })?;
    let row = |(ends, count): (&[f64], &usize)| vec![number(ends[0]), number(ends[1]), count.to_string()];
    let numbers = Table::new("", ["from", "to", axes.y], edges.windows(2).zip(counts).map(row).collect());
    Ok(Chart { caption: axes.caption, svg, numbers })
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err takes")]
fn failed<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> anyhow::Error {
    anyhow::anyhow!("chart: {error}")
}

/// The colour of a series and of its marks. After the last colour the colours repeat, with circles as marks.
fn colours(at: usize) -> (RGBColor, ShapeStyle) {
    let colour = COLOURS[at % COLOURS.len()];
    (colour, if at < COLOURS.len() { colour.filled() } else { colour.stroke_width(2) })
}

/// Least and greatest value including 0, with a margin.
fn bounds(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values.fold((0.0_f64, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let room = (high - low).max(1e-6) * 0.08;
    if low < 0.0 { low - room..high + room } else { 0.0..high + room }
}

fn is_whole(x: f64) -> bool {
    (x - x.round()).abs() < 1e-6
}

/// A number of the vertical axis. Without this, a sum that misses 0 by rounding would be -0.0.
fn height(y: f64) -> String {
    pretty_print_float(if y.abs() < 1e-9 { 0.0 } else { y }, false)
}

/// A number of the horizontal axis, without unneeded digits.
fn number(x: f64) -> String {
    let text = format!("{x:.2}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> Axes<'static> {
        Axes { caption: "caption".into(), x: "rank", y: "label" }
    }

    fn lone(name: &str, x: f64, y: f64, bounds: Option<(f64, f64)>) -> Series {
        Series { name: name.into(), points: vec![Point { x, y, bounds }] }
    }

    #[test]
    fn numbers_are_short_and_zero_has_no_sign() {
        assert_eq!([-1e-17, 0.0, 0.15, -0.2].map(height), ["0", "0", "0.15", "-0.2"]);
        assert_eq!([-0.001, 0.25, 10.0, -1.0, 100.0].map(number), ["0", "0.25", "10", "-1", "100"]);
    }

    #[test]
    fn charts_take_the_colours_of_the_page() {
        let chart = lines(axes(), &[Series::ranked("<a> & b", &[0.5, 0.25]), Series::ranked("b", &[-0.1])]).unwrap();
        let svg = &chart.svg;
        assert!(svg.starts_with("<svg width=\"100%\" role=\"img\""), "{svg}");
        assert!(svg.contains("currentColor") && !svg.contains("#000000"));
        assert!(svg.contains("&lt;a&gt; &amp; b") && !svg.contains("<a>"));
        assert_eq!(chart.numbers.rows, [["1", "0.500", "-0.100"], ["2", "0.250", ""]]);
        let chart = bars(axes(), &[-1.0, 0.0, 1.0], &[3, 0]).unwrap();
        assert!(chart.svg.contains("<rect") && chart.svg.contains("rank"));
        assert_eq!(chart.numbers.rows[0], ["-1", "0", "3"]);
    }

    #[test]
    fn named_points_stand_over_a_logarithmic_axis() {
        let points = [lone("given", 0.0, 0.1, None), lone("a<b", 1_200.0, 0.1, Some((-0.1, 0.3)))];
        let chart = scatter(axes(), &points).unwrap();
        let svg = &chart.svg;
        assert!(svg.contains("a&lt;b") && svg.contains("1000") && svg.contains("<circle"), "{svg}");
        assert_eq!(chart.numbers.rows[1], ["a<b", "1200", "0.100 [-0.100, 0.300]"]);
        // With thirty methods, the last names must not be below the chart.
        let many: Vec<Series> = (0..30).map(|number| lone(&format!("m{number}"), 10.0, 0.1, None)).collect();
        let svg = scatter(axes(), &many).unwrap().svg;
        let tall = svg.split("viewBox=\"0 0 720 ").nth(1).unwrap().split('"').next().unwrap().parse::<f64>().unwrap();
        let lowest = svg
            .split("<text ")
            .skip(1)
            .map(|text| text.split(" y=\"").nth(1).unwrap().split('"').next().unwrap().parse::<f64>().unwrap());
        assert!(lowest.fold(0.0, f64::max) < tall && svg.contains("m29"), "{svg}");
    }

    #[test]
    fn values_are_one_below_the_other() {
        let values = [lone("a<b", 0.0, -2.0, Some((-2.5, -1.5))), lone("c", 0.0, -1.0, None)];
        let svg = intervals(axes(), &values).unwrap().svg;
        assert!(svg.contains("a&lt;b") && svg.contains("<circle") && svg.contains("-2.000"), "{svg}");
        assert!(intervals(axes(), &values[1..]).is_ok());
    }

    #[test]
    fn lines_have_their_intervals_and_a_legend() {
        let series = |name: &str, bounds| {
            let at = |x: f64| Point { x, y: 0.1 * x, bounds };
            Series { name: name.into(), points: vec![at(1.0), at(2.0)] }
        };
        let svg = lines(axes(), &[series("a<b", Some((0.0, 0.4))), series("other", None)]).unwrap().svg;
        assert!(svg.contains("a&lt;b") && svg.contains("rank"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 4, "{svg}");
        // One series needs no legend, and many points are a line without marks and without a table.
        assert!(!lines(axes(), &[lone("alone", 3.0, 0.0, None)]).unwrap().svg.contains("alone"));
        let many = lines(axes(), &[Series::over("many", (0..100).map(|at| (f64::from(at), 1.0)))]).unwrap();
        assert!(!many.svg.contains("<circle") && many.numbers.rows.is_empty());
    }

    #[test]
    fn a_chart_may_be_empty() {
        assert!(lines(axes(), &[]).is_ok() && bars(axes(), &[], &[]).is_ok());
        assert!(scatter(axes(), &[]).is_ok() && intervals(axes(), &[]).is_ok());
        assert!(lines(axes(), &[Series::ranked("none", &[])]).is_ok());
    }
}
