//! Many lists under many metrics.

use rayon::prelude::*;

use super::compute::values;
use super::{Grading, Metric, Ranking};
use crate::metrics::resample::{Interval, Resampling, mean_interval};

/// A metric over all lists.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// [`Metric::aggregate`] of the lists on which it is defined.
    pub value: Option<f64>,
    /// Bootstrap interval of the mean.
    pub interval: Option<Interval>,
    /// Lists on which it is defined.
    pub lists: usize,
}

/// Metrics of lists.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// For each list its metrics, in their order; `None` where one is not defined.
    pub values: Vec<Vec<Option<f64>>>,
    /// One a metric.
    pub summary: Vec<Summary>,
}

/// Evaluates every metric on every list; intervals only where asked for.
#[must_use]
pub fn evaluate(metrics: &[Metric], rankings: &[Ranking], grading: Grading, resampling: Option<Resampling>) -> Table {
    let of = |ranking: &Ranking| values(metrics, ranking, grading);
    let values: Vec<Vec<Option<f64>>> = rankings.par_iter().map(of).collect();
    let summary = metrics.par_iter().enumerate().map(|(at, metric)| {
        let column: Vec<f64> = values.iter().filter_map(|row| row[at]).collect();
        summarise(*metric, &column, resampling)
    });
    Table { summary: summary.collect(), values }
}

/// One metric's values as one number.
#[must_use]
pub fn summarise(metric: Metric, values: &[f64], resampling: Option<Resampling>) -> Summary {
    let interval = resampling.filter(|_| metric.is_mean()).and_then(|how| mean_interval(values, how));
    Summary { value: metric.aggregate(values), interval, lists: values.len() }
}
