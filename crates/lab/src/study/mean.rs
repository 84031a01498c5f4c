//! Numbers over questions, with their intervals.

use std::borrow::Borrow;

use serde::Serialize;

use numeric::mean;
use rag_metrics::never;
use rag_metrics::resample::{Compared, Interval, Statistics, format_p_value, mean_interval};

/// Shown for a missing number.
pub const NONE: &str = "–";

/// A mean over questions, or another number with an interval.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Mean {
    pub value: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub questions: usize,
}

impl Mean {
    pub fn new(value: Option<f64>, interval: Option<Interval>, questions: usize) -> Self {
        Self { value, low: interval.map(|one| one.low), high: interval.map(|one| one.high), questions }
    }

    /// The value with this many digits, and its interval.
    pub fn cell(&self, digits: usize) -> String {
        match (self.value, self.low.zip(self.high)) {
            (None, _) => NONE.to_owned(),
            (Some(value), None) => format!("{value:.digits$}"),
            (Some(value), Some((low, high))) => format!("{value:.digits$} [{low:.digits$}, {high:.digits$}]"),
        }
    }
}

/// The mean of the existing values.
pub fn mean_of(values: impl IntoIterator<Item: Borrow<Option<f64>>>, statistics: &Statistics) -> Mean {
    let values: Vec<f64> = values.into_iter().filter_map(|value| *value.borrow()).collect();
    let interval = statistics.intervals().and_then(|how| mean_interval(&values, how, &never));
    Mean::new((!values.is_empty()).then(|| mean(&values)), interval, values.len())
}

/// " [0.050, 0.110]", if there is an interval.
pub fn bracket(bounds: Option<(f64, f64)>) -> String {
    bounds.map(|(low, high)| format!(" [{low:.3}, {high:.3}]")).unwrap_or_default()
}

/// "p = 0.012", or "p < 1e-15".
pub fn plain_p(p: Option<f64>) -> String {
    let text = format_p_value(p);
    match (p, text.strip_prefix('<')) {
        (None, _) => "without a p-value".to_owned(),
        (_, Some(bound)) => format!("p < {bound}"),
        (_, None) => format!("p = {text}"),
    }
}

/// A number of one row minus another row's, on the questions that both have.
#[derive(Debug, Clone, Serialize)]
pub struct Gain {
    pub difference: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub p_value: Option<f64>,
    /// The p-value after Holm's adjustment over a family of tests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adjusted: Option<f64>,
    pub wins: usize,
    pub ties: usize,
    pub losses: usize,
}

impl Gain {
    pub fn new(compared: &Compared, adjusted: Option<f64>) -> Self {
        Self {
            difference: compared.difference,
            low: compared.interval.map(|interval| interval.low),
            high: compared.interval.map(|interval| interval.high),
            p_value: compared.p_value,
            adjusted,
            wins: compared.wins,
            ties: compared.ties,
            losses: compared.losses,
        }
    }

    /// The difference as a mean over the compared questions.
    pub const fn mean(&self) -> Mean {
        let questions = self.wins + self.ties + self.losses;
        Mean { value: Some(self.difference), low: self.low, high: self.high, questions }
    }

    /// "+0.081 [0.050, 0.110]".
    pub fn cell(&self) -> String {
        format!("{:+.3}{}", self.difference, self.interval())
    }

    /// Its interval in brackets, if there is one.
    pub fn interval(&self) -> String {
        bracket(self.low.zip(self.high))
    }

    /// True if the difference has the sign of `sign`, and its adjusted p-value is at most `level`.
    pub fn is_significant(&self, level: f64, sign: f64) -> bool {
        sign * self.difference > 0.0 && self.adjusted.is_some_and(|p| p <= level + 1e-12)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_says_what_there_is() {
        let mean = |value, low, high| Mean { value, low, high, questions: 3 };
        assert_eq!(mean(None, None, None).cell(3), NONE);
        assert_eq!(mean(Some(0.5), None, None).cell(3), "0.500");
        assert_eq!(mean(Some(0.5), Some(0.25), Some(0.75)).cell(3), "0.500 [0.250, 0.750]");
    }
}
