//! Table and plot of ranking quality against tokens evaluated.

use std::path::Path;

use plotters::prelude::*;

/// Result of one ranking variant on one file.
pub struct Row {
    pub file: String,
    pub questions: usize,
    pub name: String,
    pub auc: f64,
    pub mrr: f64,
    pub tokens: f64,
}

/// Writes `scoring.md` and `scoring.svg`.
pub fn write(folder: &Path, rows: &[Row]) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut text = String::from(
        "# What is found for how many tokens\n\nMade by `make bench-scoring`. Tokens a question, leading passages shared; AUC: share of (gold, other) pairs in \\\n\
         the right order; MRR: of the first gold passage; passages cut to 48 tokens.\n\n![AUC against tokens](scoring.svg)\n\n\
         | file | questions | what is scored | tokens | AUC | MRR |\n|---|---|---|---|---|---|\n",
    );
    for row in rows {
        text.push_str(&format!(
            "| {} | {} | {} | {:.0} | {:.3} | {:.3} |\n",
            row.file, row.questions, row.name, row.tokens, row.auc, row.mrr
        ));
    }
    std::fs::write(folder.join("scoring.md"), text.replace("\\\n", "\n"))?;
    let path = folder.join("scoring.svg");
    let root = SVGBackend::new(&path, (900, 520)).into_drawing_area();
    draw(&root, rows).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
    root.present()?;
    Ok(())
}

/// A colour that is readable on light and dark backgrounds.
const INK: RGBColor = RGBColor(128, 128, 128);
const COLOURS: [RGBColor; 2] = [RGBColor(31, 119, 180), RGBColor(214, 106, 16)];

fn draw<B: DrawingBackend>(
    root: &DrawingArea<B, plotters::coord::Shift>,
    rows: &[Row],
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>>
where
    B::ErrorType: 'static,
{
    let shown: Vec<&Row> = rows.iter().filter(|row| row.tokens > 0.0).collect();
    let mut chart = ChartBuilder::on(root)
        .margin(16)
        .caption("AUC of gold passages against tokens a question", ("sans-serif", 18).into_font().color(&INK))
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d((400.0..20_000.0_f64).log_scale(), 0.35..1.0_f64)?;
    chart
        .configure_mesh()
        .x_desc("tokens")
        .x_labels(4)
        .x_label_formatter(&|tokens| format!("{tokens:.0}"))
        .y_desc("AUC")
        .axis_style(INK)
        .bold_line_style(INK.mix(0.3))
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", 13).into_font().color(&INK))
        .draw()?;
    let mut files: Vec<&str> = shown.iter().map(|row| row.file.as_str()).collect();
    files.dedup();
    for (file, colour) in files.iter().zip(COLOURS) {
        let of: Vec<&&Row> = shown.iter().filter(|row| row.file == *file).collect();
        let points = of.iter().map(|row| Circle::new((row.tokens, row.auc), 5, colour.filled()));
        chart.draw_series(points)?.label(*file).legend(move |(x, y)| Circle::new((x + 8, y), 5, colour.filled()));
        // Labels of these variants would overlap; the table names them.
        let plain = |row: &&&&Row| {
            !["primacy", "paper", "joint", "depth 3", "depth 4", "depth 7"].iter().any(|word| row.name.contains(word))
        };
        let labels = of.iter().filter(plain).map(|row| {
            let short = row.name.replace(", direction by one-passage scores", "").replace("query likelihood", "QL");
            Text::new(short, (row.tokens * 1.03, row.auc + 0.004), ("sans-serif", 9).into_font().color(&colour))
        });
        chart.draw_series(labels)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .label_font(("sans-serif", 13).into_font().color(&INK))
        .border_style(TRANSPARENT)
        .draw()?;
    Ok(())
}
