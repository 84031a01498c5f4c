//! Tables of many lists and many metrics, with their means.

use rayon::prelude::*;

use super::compute::{groups, values};
use super::{Grading, Metric, Ranking};
use crate::resample::{Interval, Resampling, mean_interval};
use numeric::Interrupt;

/// One metric over all lists.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// [`Metric::aggregate`] of the lists with a value.
    pub value: Option<f64>,
    /// Bootstrap interval of the mean.
    pub interval: Option<Interval>,
    /// Lists with a value.
    pub lists: usize,
}

/// Metrics of lists.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// One row per list, one value per metric; `None` if undefined.
    pub values: Vec<Vec<Option<f64>>>,
    /// One entry per metric.
    pub summary: Vec<Summary>,
}

/// Evaluates every metric on every list. Intervals are only drawn if `resampling` is set. After an interrupt the
/// table is incomplete.
#[must_use]
pub fn evaluate(
    metrics: &[Metric],
    rankings: &[Ranking],
    grading: Grading,
    resampling: Option<Resampling>,
    interrupt: Interrupt<'_>,
) -> Table {
    let groups = groups(metrics, grading);
    let of = |ranking: &Ranking| values(metrics, &groups, ranking, grading, interrupt);
    let values: Vec<Vec<Option<f64>>> = rankings.par_iter().map(of).collect();
    let summary = metrics.par_iter().enumerate().map(|(at, metric)| {
        let column: Vec<f64> = values.iter().filter_map(|row| row[at]).collect();
        let how = resampling.filter(|_| metric.is_mean());
        let interval = how.and_then(|how| mean_interval(&column, how, interrupt));
        Summary { value: metric.aggregate(&column), interval, lists: column.len() }
    });
    Table { summary: summary.collect(), values }
}
