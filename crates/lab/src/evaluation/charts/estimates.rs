//! Charts of estimates with their intervals: lines over numbers, and columns with names.

use plotters::prelude::*;

use super::{Axes, GREY, SERIES, SIZE, bounds, failed, height, themed};
use numeric::real;

/// A named line of estimates.
pub(crate) struct Series {
    pub name: String,
    /// By ascending `x`.
    pub points: Vec<Estimate>,
}

/// An estimate over a number, with its interval.
pub(crate) struct Estimate {
    pub x: f64,
    pub y: f64,
    pub bounds: Option<(f64, f64)>,
}

/// A named column with its interval.
pub(crate) struct Column {
    pub name: String,
    pub value: f64,
    pub bounds: Option<(f64, f64)>,
}

fn ends(y: f64, bounds: Option<(f64, f64)>) -> [f64; 3] {
    bounds.map_or([y; 3], |(low, high)| [low, y, high])
}

/// Lines of estimates. Their intervals stand beside each other, so that each can be seen.
pub(crate) fn estimates(series: &[Series], axes: &Axes<'_>) -> anyhow::Result<String> {
    let all = || series.iter().flat_map(|one| &one.points);
    let (first, last) = all().fold((f64::MAX, f64::MIN), |(low, high), one| (low.min(one.x), high.max(one.x)));
    let (first, last) = if first <= last { (first, last) } else { (0.0, 1.0) };
    let width = (last - first).max(1e-6);
    let (low, high) = bounds(all().flat_map(|one| ends(one.y, one.bounds)));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        // Room for the legend beside the lines.
        let right = last + width * if series.len() > 1 { 0.5 } else { 0.06 };
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(first - width * 0.06..right, low..high)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GREY.mix(0.35))
            .x_label_formatter(&|x| if *x < last + width * 0.06 { number(*x) } else { String::new() })
            .x_desc(axes.x)
            .y_label_formatter(&|y| height(*y))
            .y_desc(axes.y)
            .draw()
            .map_err(failed)?;
        let middle = (real(series.len()) - 1.0) / 2.0;
        for (at, one) in series.iter().enumerate() {
            let colour = SERIES[at % SERIES.len()];
            let aside = (real(at) - middle) * width * 0.008;
            let points: Vec<(f64, f64)> = one.points.iter().map(|point| (point.x + aside, point.y)).collect();
            for point in &one.points {
                if let Some((from, to)) = point.bounds {
                    let bar = vec![(point.x + aside, from), (point.x + aside, to)];
                    chart.draw_series([PathElement::new(bar, colour.stroke_width(1))]).map_err(failed)?;
                }
            }
            chart
                .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))
                .map_err(failed)?
                .label(one.name.clone())
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], colour.stroke_width(3)));
            chart
                .draw_series(points.into_iter().map(|point| Circle::new(point, 3, colour.filled())))
                .map_err(failed)?;
        }
        if series.len() > 1 {
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperRight)
                .border_style(TRANSPARENT)
                .draw()
                .map_err(failed)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(themed(&svg, SIZE))
}

/// A number of an axis, without digits that it does not need.
pub(in crate::evaluation) fn number(x: f64) -> String {
    let text = format!("{x:.2}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}

/// Columns beside each other, each over its name.
pub(crate) fn columns(columns: &[Column], axes: &Axes<'_>) -> anyhow::Result<String> {
    let (low, high) = bounds(columns.iter().flat_map(|one| ends(one.value, one.bounds)));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(-0.5..real(columns.len().max(1)) - 0.5, low..high)
            .map_err(failed)?;
        let name = |x: &f64| {
            let is = |(at, _): &(usize, &Column)| (real(*at) - x).abs() < 1e-6;
            columns.iter().enumerate().find(is).map_or_else(String::new, |(_, one)| one.name.clone())
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GREY.mix(0.35))
            .x_labels(columns.len().clamp(2, 20) + 2)
            .x_label_formatter(&name)
            .x_desc(axes.x)
            .y_label_formatter(&|y| height(*y))
            .y_desc(axes.y)
            .draw()
            .map_err(failed)?;
        for (at, one) in columns.iter().enumerate() {
            let (middle, colour) = (real(at), SERIES[at % SERIES.len()]);
            let place = [(middle - 0.35, 0.0), (middle + 0.35, one.value)];
            chart.draw_series([Rectangle::new(place, colour.mix(0.85).filled())]).map_err(failed)?;
            if let Some((from, to)) = one.bounds {
                let bar = vec![(middle, from), (middle, to)];
                chart.draw_series([PathElement::new(bar, GREY.stroke_width(3))]).map_err(failed)?;
            }
        }
        root.present().map_err(failed)?;
    }
    Ok(themed(&svg, SIZE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_have_their_intervals_and_a_legend() {
        let axes = Axes { x: "passages", y: "DeltaSePer" };
        let series = |name: &str, bounds| {
            let at = |x: f64| Estimate { x, y: 0.1 * x, bounds };
            Series { name: name.into(), points: vec![at(1.0), at(2.0)] }
        };
        let svg = estimates(&[series("a<b", Some((0.0, 0.4))), series("other", None)], &axes).unwrap();
        assert!(svg.starts_with("<svg width=\"100%\"") && svg.contains("a&lt;b") && svg.contains("passages"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 4, "{svg}");
        // One series needs no legend, and a chart may be empty or stand over one number.
        let lone = Series { name: "alone".into(), points: vec![Estimate { x: 3.0, y: 0.0, bounds: None }] };
        assert!(!estimates(&[lone], &axes).unwrap().contains("alone"));
        assert!(estimates(&[], &axes).is_ok());
        assert_eq!([-0.001, 0.25, 10.0, -1.0].map(number), ["0", "0.25", "10", "-1"]);
    }

    #[test]
    fn every_column_has_its_name() {
        let column =
            |name: &str, value: f64| Column { name: name.into(), value, bounds: Some((value - 0.1, value + 0.1)) };
        let all: Vec<Column> = (0..8).map(|at| column(&format!("measure {at}"), 0.1 * f64::from(at) - 0.1)).collect();
        let svg = columns(&all, &Axes { x: "measure", y: "AUC" }).unwrap();
        assert!(all.iter().all(|one| svg.contains(&one.name)), "{svg}");
        assert!(columns(&[], &Axes { x: "", y: "" }).is_ok());
        assert!(columns(&all[..1], &Axes { x: "", y: "" }).unwrap().contains("measure 0"));
    }
}
