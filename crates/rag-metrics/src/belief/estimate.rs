//! Measures with their standard errors, and differences of measures.
//!
//! Notation: `θ` is a measure of `n` answers, `θ_(i)` the same measure without answer `i`, `θ̄` the mean of the
//! `θ_(i)`.
//!
//! - Delete-one jackknife (Efron and Stein, *The Jackknife Estimate of Variance*, 1981):
//!   `SE(θ)² = (n-1)/n Σ_i (θ_(i) - θ̄)²`.
//! - Difference of two independent sets of answers: `SE(a - b)² = SE(a)² + SE(b)²`.
//! - Difference of two paired sets, with answer `i` of both drawn with the same random numbers: answer `i` is left
//!   out of both sides together, so `SE(d)² = (n-1)/n Σ_i (d_(i) - d̄)²` with `d_(i) = a_(i) - b_(i)`. Answers that
//!   agree across contexts make it smaller than the independent formula, answers that oppose each other larger.
//!
//! A measure whose standard error has another source keeps that error in a paired difference: its deviations
//! `θ_(i) - θ̄` are scaled to it, so that the jackknife only supplies the correlation. If one side has no
//! deviations, there is no visible correlation and the independent formula applies.

use numeric::{mean, real};

/// A value and its standard error over the answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// The value.
    pub value: f64,
    /// Absent if the answers do not determine it, for example for a single answer.
    pub standard_error: Option<f64>,
}

/// Relation between answers `i` of two contexts: drawn independently, or with the same random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pairing {
    /// The answers of the two contexts are independent. The default, for answers of unknown origin.
    #[default]
    Independent,
    /// Answers with the same number share their random numbers.
    Paired,
}

/// A measure of a set of answers with its leave-one-out values, so that it can be subtracted from a measure of a
/// paired set.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// As in [`Measured`].
    pub standard_error: Option<f64>,
    /// The value without each answer, in the order of the answers.
    left_out: Vec<f64>,
}

impl Estimate {
    /// An estimate with the jackknife's standard error; absent for fewer than two answers.
    pub(super) fn jackknifed(value: f64, left_out: Vec<f64>) -> Self {
        let n = real(left_out.len());
        let standard_error = (left_out.len() > 1).then(|| spread(&left_out).1 * ((n - 1.0) / n).sqrt());
        Self { value, standard_error, left_out }
    }

    /// An estimate whose standard error has another source, or none.
    pub(super) fn with_error(value: f64, standard_error: Option<f64>, left_out: Vec<f64>) -> Self {
        Self { value, standard_error, left_out }
    }

    /// Only the value and its error.
    #[must_use]
    pub fn measured(&self) -> Measured {
        Measured { value: self.value, standard_error: self.standard_error }
    }

    /// `self - other`. The error is absent if either side has none. Sets of different size count as independent,
    /// regardless of `pairing`.
    #[must_use]
    pub fn minus(&self, other: &Self, pairing: Pairing) -> Measured {
        let paired = pairing == Pairing::Paired && self.left_out.len() == other.left_out.len();
        let errors = self.standard_error.zip(other.standard_error);
        let standard_error =
            errors.map(|(left, right)| match (scaled(&self.left_out, left), scaled(&other.left_out, right)) {
                (Some(left), Some(right)) if paired => {
                    norm(&left.iter().zip(&right).map(|(left, right)| left - right).collect::<Vec<_>>())
                }
                _ => left.hypot(right),
            });
        Measured { value: self.value - other.value, standard_error }
    }
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// The deviations from the mean and their norm; 0 if they are only rounding.
fn spread(values: &[f64]) -> (Vec<f64>, f64) {
    let centre = mean(values);
    let deviations: Vec<f64> = values.iter().map(|value| value - centre).collect();
    let norm = norm(&deviations);
    let rounding = 1e-12 * (1.0 + centre.abs());
    (deviations, if norm > rounding { norm } else { 0.0 })
}

/// The deviations scaled to the norm `error`; `None` if there are none.
fn scaled(left_out: &[f64], error: f64) -> Option<Vec<f64>> {
    let (deviations, norm) = spread(left_out);
    (norm > 0.0).then(|| deviations.iter().map(|deviation| deviation * error / norm).collect())
}

/// `Σ w_i · value_i`. If an answer is left out, the other weights are scaled to sum to 1.
pub(super) fn weighted(weights: &[f64], values: &[f64]) -> Estimate {
    let value: f64 = weights.iter().zip(values).map(|(weight, value)| weight * value).sum();
    // Each rest is summed separately. Subtraction from the whole would lose it if one answer has nearly all the
    // weight.
    let leave_out = |out: usize| {
        let others = || (0..weights.len()).filter(move |&i| i != out);
        let rest: f64 = others().map(|i| weights[i]).sum();
        if rest > 0.0 {
            others().map(|i| weights[i] * values[i]).sum::<f64>() / rest
        } else {
            others().map(|i| values[i]).sum::<f64>() / real(values.len().max(2) - 1)
        }
    };
    Estimate::jackknifed(value, (0..weights.len()).map(leave_out).collect())
}

#[cfg(test)]
mod tests;
