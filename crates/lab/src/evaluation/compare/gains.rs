//! Differences of two rows in a measure of rankings, on the same questions.

use rayon::prelude::*;

use super::row::Row;
use crate::study::mean::Gain;
use rag_metrics::multiple::holm_of;
use rag_metrics::resample::{Compared, Statistics};

/// A measure of rankings other than the verdict's, against the two rows that need no model.
#[derive(Debug, Clone)]
pub struct OtherGains {
    /// Its position in [`super::row::MEASURES`].
    pub measure: usize,
    pub over_given: Option<Gain>,
    pub over_bm25: Option<Gain>,
}

/// The second row minus the first in a measure of rankings, by its position in [`super::row::MEASURES`], on the
/// questions that both ranked.
pub(super) fn compare(first: &Row, second: &Row, measure: usize, statistics: &Statistics) -> Compared {
    let both = first.of(measure).iter().zip(second.of(measure)).filter_map(|(first, second)| first.zip(*second));
    let (first, second): (Vec<f64>, Vec<f64>) = both.unzip();
    statistics.compare(&first, &second)
}

/// The rows from `first` on minus the row `base`: one family of tests. Rows with another prompt format are not
/// tested here, but against the same methods as configured. `None` if no question was ranked by both: this is not a
/// difference of 0.
pub(super) fn over(
    rows: &[Row],
    base: usize,
    first: usize,
    measure: usize,
    statistics: &Statistics,
) -> Vec<Option<Gain>> {
    let compared: Vec<Compared> =
        rows[first..].par_iter().map(|row| compare(&rows[base], row, measure, statistics)).collect();
    let p_value = |one: &Compared, row: &Row| one.p_value.filter(|_| row.frame().is_none());
    let tested: Vec<Option<f64>> = compared.iter().zip(&rows[first..]).map(|(one, row)| p_value(one, row)).collect();
    let gains = compared.iter().zip(holm_of(&tested)).zip(tested);
    gains
        .map(|((one, adjusted), p_value)| {
            (one.wins + one.ties + one.losses > 0).then(|| Gain { p_value, ..Gain::new(one, adjusted) })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row that ranked nothing must not show +0.000, or be the best one.
    #[test]
    fn a_row_that_ranked_nothing_has_no_difference() {
        let row = |name: &str, values: &[Option<f64>]| Row { by_question: vec![values.to_vec()], ..Row::named(name) };
        let rows =
            [row("given", &[Some(0.5), Some(0.7)]), row("refused", &[None, None]), row("worse", &[Some(0.4), None])];
        let gains = over(&rows, 0, 1, 0, &Statistics::default());
        assert!(gains[0].is_none(), "{gains:?}");
        assert!((gains[1].as_ref().unwrap().difference + 0.1).abs() < 1e-12, "{gains:?}");
    }
}
