//! What an analysis found: a sentence, tables, charts and figures.

use crate::evaluation::summary::Mean;

/// What stands for a number that is not there.
const NONE: &str = "–";

/// The outcome of an analysis.
#[derive(Debug, Default)]
pub struct Report {
    /// One sentence; the page opens with it.
    pub verdict: String,
    pub tables: Vec<Table>,
    pub charts: Vec<Chart>,
    /// How it was measured and where it differs from the paper, a sentence an element.
    pub notes: Vec<String>,
    /// Every number by itself.
    pub figures: Vec<Figure>,
}

/// A table. The first cell of a row is its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub caption: String,
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// A chart of `evaluation::charts`.
#[derive(Debug, Clone)]
pub struct Chart {
    pub caption: String,
    pub svg: String,
}

/// A number.
#[derive(Debug)]
pub struct Figure {
    /// Such as `position 1, 5 passages`.
    pub name: String,
    pub unit: &'static str,
    pub mean: Mean,
}

impl Report {
    /// Adds a number, and returns it as a cell: the value and its interval.
    pub fn number(&mut self, name: impl Into<String>, unit: &'static str, mean: Mean) -> String {
        let cell = cell(&mean);
        self.figures.push(Figure { name: name.into(), unit, mean });
        cell
    }
}

/// A mean with its interval as a cell.
pub(crate) fn cell(mean: &Mean) -> String {
    match (mean.value, mean.low.zip(mean.high)) {
        (None, _) => NONE.to_owned(),
        (Some(value), None) => format!("{value:.3}"),
        (Some(value), Some((low, high))) => format!("{value:.3} [{low:.3}, {high:.3}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_says_what_there_is() {
        let mean = |value, low, high| Mean { value, low, high, questions: 3 };
        assert_eq!(cell(&mean(None, None, None)), "–");
        assert_eq!(cell(&mean(Some(0.5), None, None)), "0.500");
        assert_eq!(cell(&mean(Some(0.5), Some(0.25), Some(0.75))), "0.500 [0.250, 0.750]");
    }
}
