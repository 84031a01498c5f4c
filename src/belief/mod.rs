//! Beliefs: what a generator's sampled answers say it holds to be true, and how far that is from reference answers.
//!
//! Source: Dai et al., *SePer* (sections 3 and 4, Algorithm 1), and for the entropies Farquhar et al. In the notation used
//! here, `n` responses `r_i` with log-likelihoods `L_i` have weights `w_i = exp(L_i) / Σ exp(L_j)`; `E(x, y)` is the
//! probability that `x` entails `y`. Everything is pure: a caller brings the verdicts that are asked for.

pub mod cluster;
pub mod entropy;
pub mod seper;

use crate::numeric::logspace::log_sum_exp;
use crate::numeric::{mean, real};

/// Three-way verdict on an ordered pair of texts. A two-way model states `neutral` as the rest and no contradiction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// Probability that the premise entails the hypothesis.
    pub entailment: f64,
    /// Probability of neither.
    pub neutral: f64,
    /// Probability that they contradict each other.
    pub contradiction: f64,
}

impl Verdict {
    /// Whether entailment is the likeliest; of equals it is not.
    #[must_use]
    pub fn entails(&self) -> bool {
        self.entailment > self.neutral && self.entailment > self.contradiction
    }

    fn contradicts(&self) -> bool {
        self.contradiction > self.entailment && self.contradiction > self.neutral
    }
}

/// When two texts mean the same, from the verdicts of both directions.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Rule {
    /// Entailment is the likeliest verdict in both directions. The default.
    #[default]
    Strict,
    /// No direction says contradiction, and not both say neutral. Needs a three-way model.
    Loose,
    /// Entailment has at least this probability in both directions (the paper's definition).
    Threshold(f64),
}

impl Rule {
    /// Whether the texts mean the same.
    #[must_use]
    pub fn equivalent(self, there: &Verdict, back: &Verdict) -> bool {
        match self {
            Self::Strict => there.entails() && back.entails(),
            Self::Loose => {
                let contradicted = there.contradicts() || back.contradicts();
                !contradicted && (there.entails() || back.entails())
            }
            Self::Threshold(least) => there.entailment >= least && back.entailment >= least,
        }
    }
}

/// A sampled answer as the measures see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Likelihood {
    /// Sum of the log-probabilities of its tokens, in nats.
    pub sum: f64,
    /// Number of tokens; at least 1.
    pub tokens: usize,
}

/// How responses are weighed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Weighting {
    /// By the mean log-probability of a token (the authors' code). The default: sums favour short answers.
    #[default]
    Mean,
    /// By the log-probability of the whole response (SePer, Eq. 7).
    Sum,
    /// All alike.
    Frequency,
}

impl Weighting {
    /// `L_i` in nats.
    #[must_use]
    pub fn log_likelihood(self, response: &Likelihood) -> f64 {
        match self {
            Self::Mean => response.sum / real(response.tokens.max(1)),
            Self::Sum => response.sum,
            Self::Frequency => 0.0,
        }
    }

    /// The weights of the responses; they sum to 1. Empty for none.
    #[must_use]
    pub fn weights(self, responses: &[Likelihood]) -> Vec<f64> {
        let logs: Vec<f64> = responses.iter().map(|response| self.log_likelihood(response)).collect();
        let normaliser = log_sum_exp(&logs);
        logs.into_iter().map(|log| (log - normaliser).exp()).collect()
    }
}

/// A measure and its standard error by the delete-one jackknife; the error is absent for a single response.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// The value.
    pub value: f64,
    /// Standard error over the samples.
    pub standard_error: Option<f64>,
}

impl Measured {
    /// `with - without`; the samples are independent of each other.
    #[must_use]
    pub fn minus(&self, without: &Self) -> Self {
        let errors = self.standard_error.zip(without.standard_error);
        Self { value: self.value - without.value, standard_error: errors.map(|(one, other)| one.hypot(other)) }
    }
}

/// Standard error from the values that leave one response out.
fn jackknife(left_out: &[f64]) -> Option<f64> {
    let n = real(left_out.len());
    let centre = mean(left_out);
    let squares: f64 = left_out.iter().map(|value| (value - centre).powi(2)).sum();
    (left_out.len() > 1).then(|| ((n - 1.0) / n * squares).sqrt())
}

/// Σ w_i · value_i with its jackknife error.
fn weighted(weights: &[f64], values: &[f64]) -> Measured {
    let value: f64 = weights.iter().zip(values).map(|(w, k)| w * k).sum();
    // Summed anew for each: the difference to the whole would be lost where one response has nearly all the weight.
    let without = |out: usize| {
        let others = || (0..weights.len()).filter(move |&i| i != out);
        let rest: f64 = others().map(|i| weights[i]).sum();
        if rest > 0.0 {
            others().map(|i| weights[i] * values[i]).sum::<f64>() / rest
        } else {
            others().map(|i| values[i]).sum::<f64>() / real(values.len().max(2) - 1)
        }
    };
    let left_out: Vec<f64> = (0..weights.len()).map(without).collect();
    Measured { value, standard_error: jackknife(&left_out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn verdict(entailment: f64, neutral: f64, contradiction: f64) -> Verdict {
        Verdict { entailment, neutral, contradiction }
    }

    #[test]
    fn rules_by_hand() {
        let (yes, no, maybe) = (verdict(0.8, 0.1, 0.1), verdict(0.1, 0.1, 0.8), verdict(0.2, 0.6, 0.2));
        assert!(Rule::Strict.equivalent(&yes, &yes));
        assert!(!Rule::Strict.equivalent(&yes, &maybe) && Rule::Loose.equivalent(&yes, &maybe));
        assert!(!Rule::Loose.equivalent(&maybe, &maybe) && !Rule::Loose.equivalent(&yes, &no));
        assert!(Rule::Threshold(0.2).equivalent(&yes, &maybe) && !Rule::Threshold(0.21).equivalent(&yes, &maybe));
        assert!(!verdict(0.4, 0.4, 0.2).entails(), "of equals it is not");
    }

    #[test]
    fn weights_by_hand() {
        let of = |sum: f64, tokens: usize| Likelihood { sum, tokens };
        let responses = [of(-2.0, 2), of(-1.0, 1), of(-4.0, 2)];
        let mean = Weighting::Mean.weights(&responses);
        // L = -1, -1, -2.
        let e = (-1.0_f64).exp();
        assert!((mean[0] - 1.0 / (2.0 + e)).abs() < 1e-12 && (mean[2] - e / (2.0 + e)).abs() < 1e-12);
        assert_eq!(Weighting::Frequency.weights(&responses), vec![1.0 / 3.0; 3]);
        let far = [of(-2_000.0, 1), of(-2_001.0, 1)];
        assert!((Weighting::Sum.weights(&far)[0] - 1.0 / (1.0 + e)).abs() < 1e-12);
        assert!(Weighting::Mean.weights(&[]).is_empty());
    }

    #[test]
    fn jackknife_of_equal_weights_is_the_error_of_a_mean() {
        let measured = weighted(&[0.25; 4], &[1.0, 0.0, 0.0, 1.0]);
        assert!((measured.value - 0.5).abs() < 1e-12);
        // Sample variance 1/3 over 4.
        assert!((measured.standard_error.unwrap() - (1.0_f64 / 12.0).sqrt()).abs() < 1e-12);
        assert_eq!(weighted(&[1.0], &[0.3]).standard_error, None);
    }
}
