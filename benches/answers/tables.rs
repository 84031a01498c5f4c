//! Means over questions, and paired differences to the first-stage order.

use std::path::Path;

use rag_metrics::resample::{Resampling, interval};

use super::measure::{MEASURES, SIZES, Values};
use super::report::Line;

const BASE: &str = "retriever";

/// The values of all questions of a file.
pub struct Tables {
    file: String,
    questions: Vec<Values>,
}

/// A mean with the paired difference to the first-stage order.
struct Figure {
    mean: f64,
    difference: f64,
    error: f64,
    low: f64,
    high: f64,
}

impl Tables {
    pub fn new(file: &Path) -> Self {
        let file = file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Self { file, questions: Vec::new() }
    }

    pub fn add(&mut self, values: &Values) {
        self.questions.push(values.clone());
    }

    /// Names of the orders, the retriever's first.
    fn orders(&self) -> Vec<String> {
        let mut names: Vec<String> = self.questions.iter().flatten().map(|((name, _), _)| name.clone()).collect();
        names.sort_by_key(|name| (name != BASE, name.clone()));
        names.dedup();
        names
    }

    fn figure(&self, order: &str, size: usize, measure: usize) -> Option<Figure> {
        let value = |values: &Values, name: &str| values.get(&(name.to_owned(), size)).map(|row| row[measure]);
        let pairs: Vec<(f64, f64)> = self
            .questions
            .iter()
            .filter_map(|values| Some((value(values, order)?, value(values, BASE)?)))
            .filter(|(own, base)| own.is_finite() && base.is_finite())
            .collect();
        if pairs.is_empty() {
            return None;
        }
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let differences: Vec<f64> = pairs.iter().map(|(own, base)| own - base).collect();
        let difference = mean(&differences);
        let variance = differences.iter().map(|one| (one - difference).powi(2)).sum::<f64>();
        let n = differences.len() as f64;
        let of = |indices: &[usize]| Some(mean(&indices.iter().map(|&at| differences[at]).collect::<Vec<_>>()));
        let ends = interval(differences.len(), Resampling::default(), &|| false, of);
        Some(Figure {
            mean: mean(&pairs.iter().map(|pair| pair.0).collect::<Vec<_>>()),
            difference,
            error: (variance / (n - 1.0).max(1.0) / n).sqrt(),
            low: ends.map_or(f64::NAN, |ends| ends.low),
            high: ends.map_or(f64::NAN, |ends| ends.high),
        })
    }

    pub fn print(&self) {
        for order in self.orders() {
            for (at, size) in SIZES.iter().enumerate() {
                for (measure, (name, unit)) in MEASURES.iter().enumerate() {
                    let Some(figure) = self.figure(&order, at, measure) else { continue };
                    let count = size.map_or_else(|| "all".to_owned(), |size| format!("first {size}"));
                    let what = format!("{}, {} questions: {name}, {order}, {count}", self.file, self.questions.len());
                    Line::new(&what, figure.mean, unit).print();
                    if order != BASE {
                        Line::new(&format!("{what}, over the retriever's"), figure.difference, unit)
                            .spread(figure.error)
                            .print();
                    }
                }
            }
        }
    }

    /// One table per measure: orders by size, each with the 95 % interval of the difference to the first-stage order.
    pub fn markdown(&self) -> String {
        let mut text = format!("### {}, {} questions\n\n", self.file, self.questions.len());
        for (measure, (name, _)) in MEASURES.iter().enumerate() {
            let head = |(at, size): (usize, &Option<usize>)| {
                let has = |values: &&Values| values.contains_key(&(BASE.to_owned(), at));
                let some = self.questions.iter().filter(has).count();
                let name = size.map_or_else(|| "all".to_owned(), |size| format!("first {size}"));
                if some < self.questions.len() { format!("{name}, {some} questions") } else { name }
            };
            let heads: Vec<String> = SIZES.iter().enumerate().map(head).collect();
            let mut rows = String::new();
            for order in self.orders() {
                let cells: Vec<String> = (0..SIZES.len())
                    .map(|at| match self.figure(&order, at, measure) {
                        None => "–".to_owned(),
                        Some(figure) if order == BASE => format!("{:.3}", figure.mean),
                        Some(Figure { mean, difference, low, high, .. }) => {
                            format!("{mean:.3} ({difference:+.3} [{low:+.3}, {high:+.3}])")
                        }
                    })
                    .collect();
                if cells.iter().any(|cell| cell != "–") {
                    rows.push_str(&format!("| {order} | {} |\n", cells.join(" | ")));
                }
            }
            if !rows.is_empty() {
                text.push_str(&format!(
                    "| {name} | {} |\n|---|{}\n{rows}\n",
                    heads.join(" | "),
                    "---|".repeat(SIZES.len())
                ));
            }
        }
        text
    }
}
