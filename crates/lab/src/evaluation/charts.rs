//! Charts as SVG inside a page. Text and axes take the page's colour; the series' colours are legible on white and on black.

mod estimates;

pub(in crate::evaluation) use estimates::number;
pub(crate) use estimates::{Column, Estimate, Series, columns, estimates};

use anyhow::anyhow;
use plotters::data::float::pretty_print_float;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::summary::Mean;
use numeric::real;

pub(super) const SIZE: (u32, u32) = (720, 320);

/// The size of a chart whose legend has so many lines. plotters places them 15 below one another, past the lower end as well.
fn size_for(entries: usize) -> (u32, u32) {
    let lines = u32::try_from(entries).unwrap_or(u32::MAX).min(1_000);
    (SIZE.0, SIZE.1.max(90 + 15 * lines))
}
pub(super) const GREY: RGBColor = RGBColor(128, 128, 128);
pub(super) const SERIES: [RGBColor; 12] = [
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

/// A named line.
pub struct Curve {
    pub name: String,
    pub values: Vec<f64>,
}

/// A named point with an interval of its height.
pub(crate) struct Point {
    pub name: String,
    /// From 0 on.
    pub x: f64,
    pub y: f64,
    pub bounds: Option<(f64, f64)>,
}

/// A named value with an interval.
pub(crate) struct Interval {
    pub name: String,
    pub value: f64,
    pub bounds: Option<(f64, f64)>,
}

impl Interval {
    /// `None` where there is no value.
    pub fn of(name: impl Into<String>, mean: &Mean) -> Option<Self> {
        Some(Self { name: name.into(), value: mean.value?, bounds: mean.low.zip(mean.high) })
    }
}

/// Names of the axes.
pub(crate) struct Axes<'a> {
    pub x: &'a str,
    pub y: &'a str,
}

/// A number beside the vertical axis. Without this a sum that misses 0 by a rounding is -0.0.
pub(super) fn height(y: f64) -> String {
    let zero = y.abs() < 1e-9;
    pretty_print_float(if zero { 0.0 } else { y }, false)
}

/// Lines over ranks or positions, from 1.
pub(crate) fn lines(curves: &[Curve], axes: &Axes<'_>) -> anyhow::Result<String> {
    let all = || curves.iter().flat_map(|curve| curve.values.iter().copied());
    let longest = curves.iter().map(|curve| curve.values.len()).max().unwrap_or(1);
    let (low, high) = bounds(all());
    let (mut svg, size) = (String::new(), size_for(curves.len()));
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        // Room for the legend beside the lines.
        let right = (real(longest) + 0.5) * if curves.len() > 1 { 1.4 } else { 1.0 };
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(0.5..right, low..high)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GREY.mix(0.35))
            .x_labels(longest.clamp(2, 20) + 2)
            .x_label_formatter(&|x| {
                let whole = (x - x.round()).abs() < 1e-6 && *x < real(longest) + 0.5;
                if whole { format!("{x:.0}") } else { String::new() }
            })
            .x_desc(axes.x)
            .y_label_formatter(&|y| height(*y))
            .y_desc(axes.y)
            .draw()
            .map_err(failed)?;
        for (number, curve) in curves.iter().enumerate() {
            let colour = SERIES[number % SERIES.len()];
            let points: Vec<(f64, f64)> =
                curve.values.iter().enumerate().map(|(index, value)| (real(index + 1), *value)).collect();
            chart
                .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))
                .map_err(failed)?
                .label(curve.name.clone())
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], colour.stroke_width(3)));
            let mark = marked(number, colour);
            chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, mark))).map_err(failed)?;
        }
        if curves.len() > 1 {
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperRight)
                .border_style(TRANSPARENT)
                .draw()
                .map_err(failed)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(themed(&svg, size))
}

/// Bars between edges.
pub(crate) fn bars(edges: &[f64], counts: &[usize], axes: &Axes<'_>) -> anyhow::Result<String> {
    let (first, last) = (edges.first().copied().unwrap_or(0.0), edges.last().copied().unwrap_or(1.0));
    let tallest = counts.iter().max().copied().unwrap_or(0).max(1);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(first..last, 0.0..real(tallest) * 1.05)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GREY.mix(0.35))
            .x_desc(axes.x)
            .y_label_formatter(&|y| height(*y))
            .y_desc(axes.y)
            .draw()
            .map_err(failed)?;
        let bar = |(ends, count): (&[f64], &usize)| {
            Rectangle::new([(ends[0], 0.0), (ends[1], real(*count))], SERIES[0].mix(0.85).filled())
        };
        chart.draw_series(edges.windows(2).zip(counts).map(bar)).map_err(failed)?;
        root.present().map_err(failed)?;
    }
    Ok(themed(&svg, SIZE))
}

/// Points with their intervals over a logarithmic axis. What is below 1 stands at its left end, which is labelled 0.
pub(crate) fn scatter(points: &[Point], axes: &Axes<'_>) -> anyhow::Result<String> {
    let place = |point: &Point| point.x.max(1.0).log10();
    let widest = points.iter().map(place).fold(1.0, f64::max).ceil();
    let ends = |point: &Point| point.bounds.map_or([point.y; 3], |(low, high)| [low, point.y, high]);
    let (low, high) = bounds(points.iter().flat_map(ends));
    let (mut svg, size) = (String::new(), size_for(points.len()));
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        // Room for the legend beside the points.
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(-0.1..widest * 1.45, low..high)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GREY.mix(0.35))
            .x_labels(12)
            .x_label_formatter(&|x| match (x - x.round()).abs() < 1e-6 && *x < widest + 0.5 {
                true if x.abs() < 0.5 => "0".to_owned(),
                true => format!("{:.0}", 10.0_f64.powf(*x)),
                false => String::new(),
            })
            .x_desc(axes.x)
            .y_label_formatter(&|y| height(*y))
            .y_desc(axes.y)
            .draw()
            .map_err(failed)?;
        for (number, point) in points.iter().enumerate() {
            let colour = SERIES[number % SERIES.len()];
            let mark = marked(number, colour);
            if let Some((from, to)) = point.bounds {
                let bar = vec![(place(point), from), (place(point), to)];
                chart.draw_series([PathElement::new(bar, colour.stroke_width(2))]).map_err(failed)?;
            }
            chart
                .draw_series([Circle::new((place(point), point.y), 5, mark)])
                .map_err(failed)?
                .label(point.name.clone())
                .legend(move |(x, y)| Circle::new((x + 8, y), 5, mark));
        }
        if !points.is_empty() {
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperRight)
                .border_style(TRANSPARENT)
                .draw()
                .map_err(failed)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(themed(&svg, size))
}

/// Values with their intervals along the x axis, one below the other, each with its name at the left. The axis need not hold 0.
pub(crate) fn intervals(values: &[Interval], axes: &Axes<'_>) -> anyhow::Result<String> {
    let ends = |one: &Interval| one.bounds.map_or([one.value; 3], |(low, high)| [low, one.value, high]);
    let all = || values.iter().flat_map(ends);
    let least = all().reduce(f64::min).unwrap_or(0.0);
    let span = (all().reduce(f64::max).unwrap_or(1.0) - least).max(1e-3);
    // Room for the names before the values.
    let (left, right) = (least - 0.6 * span, least + 1.05 * span);
    let (mut svg, size) = (String::new(), size_for(values.len()));
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(8)
            .build_cartesian_2d(left..right, real(values.len().max(1))..0.0)
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
            .y_desc(axes.y)
            .draw()
            .map_err(failed)?;
        let style = TextStyle::from(("sans-serif", 13).into_font()).pos(Pos::new(HPos::Left, VPos::Center));
        for (number, one) in values.iter().enumerate() {
            let (colour, height) = (SERIES[number % SERIES.len()], real(number) + 0.5);
            if let Some((low, high)) = one.bounds {
                let bar = vec![(low, height), (high, height)];
                chart.draw_series([PathElement::new(bar, colour.stroke_width(3))]).map_err(failed)?;
            }
            chart.draw_series([Circle::new((one.value, height), 5, colour.filled())]).map_err(failed)?;
            chart.draw_series([Text::new(one.name.clone(), (left, height), style.clone())]).map_err(failed)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(themed(&svg, size))
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err takes")]
pub(super) fn failed<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> anyhow::Error {
    anyhow!("chart: {error}")
}

/// How the points of a series are filled: after the last colour the colours come again, as circles.
fn marked(number: usize, colour: RGBColor) -> ShapeStyle {
    if number < SERIES.len() { colour.filled() } else { colour.stroke_width(2) }
}

/// Least and greatest value including 0, with a margin.
pub(super) fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((0.0_f64, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let room = (high - low).max(1e-6) * 0.08;
    (if low < 0.0 { low - room } else { 0.0 }, high + room)
}

/// Black becomes the text's colour, and the size follows the page.
pub(super) fn themed(svg: &str, (width, height): (u32, u32)) -> String {
    let fixed = format!("width=\"{width}\" height=\"{height}\" ");
    svg.replace("#000000", "currentColor").replacen(&fixed, "width=\"100%\" role=\"img\" ", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_height_of_nothing_has_no_sign() {
        assert_eq!([-1e-17, 0.0, 0.15, -0.2].map(height), ["0", "0", "0.15", "-0.2"]);
    }

    #[test]
    fn charts_take_the_colours_of_the_page() {
        let curve = |name: &str, values: &[f64]| Curve { name: name.into(), values: values.to_vec() };
        let axes = Axes { x: "rank", y: "label" };
        let svg = lines(&[curve("<a> & b", &[0.5, 0.25]), curve("b", &[-0.1])], &axes).unwrap();
        assert!(svg.starts_with("<svg width=\"100%\" role=\"img\""), "{svg}");
        assert!(svg.contains("currentColor") && !svg.contains("#000000"));
        assert!(svg.contains("&lt;a&gt; &amp; b") && !svg.contains("<a>"));
        let svg = bars(&[-1.0, 0.0, 1.0], &[3, 0], &axes).unwrap();
        assert!(svg.contains("<rect") && svg.contains("rank"));
        let point = |name: &str, x: f64, bounds| Point { name: name.into(), x, y: 0.1, bounds };
        let svg = scatter(&[point("given", 0.0, None), point("a<b", 1_200.0, Some((-0.1, 0.3)))], &axes).unwrap();
        assert!(svg.contains("a&lt;b") && svg.contains("1000") && svg.contains("<circle"), "{svg}");
        let interval = |name: &str, value, bounds| Interval { name: name.into(), value, bounds };
        let svg = intervals(&[interval("a<b", -2.0, Some((-2.5, -1.5))), interval("c", -1.0, None)], &axes).unwrap();
        assert!(svg.contains("a&lt;b") && svg.contains("<circle") && svg.contains("-2.000"), "{svg}");
        // One value, or values that are all the same, have a chart, too.
        assert!(intervals(&[interval("a", 0.5, None)], &axes).is_ok() && intervals(&[], &axes).is_ok());
        // Of thirty methods the last names were below the chart.
        let many: Vec<Point> = (0..30).map(|number| point(&format!("m{number}"), 10.0, None)).collect();
        let svg = scatter(&many, &axes).unwrap();
        let tall = svg.split("viewBox=\"0 0 720 ").nth(1).unwrap().split('"').next().unwrap().parse::<f64>().unwrap();
        let lowest = svg
            .split("<text ")
            .skip(1)
            .map(|text| text.split(" y=\"").nth(1).unwrap().split('"').next().unwrap().parse::<f64>().unwrap());
        assert!(lowest.fold(0.0, f64::max) < tall && svg.contains("m29"), "{svg}");
        // A chart may be empty.
        assert!(lines(&[], &axes).is_ok() && bars(&[], &[], &axes).is_ok() && scatter(&[], &axes).is_ok());
    }
}
