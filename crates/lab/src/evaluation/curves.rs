//! Curves over a number, as SVG inside a page: what [`super::charts`] draws over ranks, over any points.

use plotters::prelude::*;

use super::charts::{Axes, GREY, SERIES, SIZE, bounds, failed, number, themed};

/// Points of a curve that are still marked one by one.
const MARKED: usize = 40;

/// A named curve.
pub(crate) struct Plotted {
    pub name: String,
    /// Abscissa and ordinate, ascending.
    pub points: Vec<(f64, f64)>,
}

/// Curves over one axis. A curve without points keeps its place in the legend.
pub(crate) fn plot(curves: &[Plotted], axes: &Axes<'_>) -> anyhow::Result<String> {
    let all = || curves.iter().flat_map(|curve| curve.points.iter().copied());
    let (left, right) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, r), (x, _)| (l.min(x), r.max(x)));
    let (left, right) = if left <= right { (left, right) } else { (0.0, 1.0) };
    let width = if right > left { right - left } else { 1.0 };
    let (low, high) = bounds(all().map(|(_, y)| y));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        // Room for the legend beside the curves.
        let room = if curves.len() > 1 { 0.45 } else { 0.05 };
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(left - 0.03 * width..right + room * width, low..high)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GREY.mix(0.35))
            .x_labels(12)
            .x_label_formatter(&|x| if *x > right + 1e-6 { String::new() } else { number(*x) })
            .x_desc(axes.x)
            .y_desc(axes.y)
            .draw()
            .map_err(failed)?;
        for (number, curve) in curves.iter().enumerate() {
            let colour = SERIES[number % SERIES.len()];
            chart
                .draw_series(LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2)))
                .map_err(failed)?
                .label(curve.name.clone())
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], colour.stroke_width(3)));
            let marked = curve.points.iter().filter(|_| curve.points.len() <= MARKED);
            chart.draw_series(marked.map(|point| Circle::new(*point, 3, colour.filled()))).map_err(failed)?;
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
    Ok(themed(&svg, SIZE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_drawn_over_their_numbers() {
        let curve = |name: &str, points: &[(f64, f64)]| Plotted { name: name.into(), points: points.to_vec() };
        let axes = Axes { x: "alpha", y: "rho" };
        let few = [curve("F < T", &[(1.0, 0.5), (20.0, -0.25)]), curve("none", &[])];
        let svg = plot(&few, &axes).unwrap();
        assert!(svg.starts_with("<svg width=\"100%\" role=\"img\""), "{svg}");
        assert!(svg.contains("F &lt; T") && svg.contains("none") && svg.contains("alpha"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 2, "{svg}");
        // Many points are a line without marks, and a chart may be empty or one point.
        let many: Vec<(f64, f64)> = (0..100).map(|at| (f64::from(at), 1.0)).collect();
        assert!(!plot(&[curve("many", &many)], &axes).unwrap().contains("<circle"));
        assert!(plot(&[], &axes).is_ok() && plot(&[curve("one", &[(5.0, 0.0)])], &axes).is_ok());
    }

    #[test]
    fn numbers_of_an_axis_are_short() {
        assert_eq!([0.0, -0.001, 0.25, 0.5, 20.0, 100.0].map(number), ["0", "0", "0.25", "0.5", "20", "100"]);
    }
}
