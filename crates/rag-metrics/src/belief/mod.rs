//! Beliefs: measures of the answers that a generator gives when it is sampled several times.
//!
//! Sources: Dai et al., *SePer* (sections 3 and 4, Algorithm 1); for the entropies Farquhar et al., *Detecting
//! hallucinations in large language models using semantic entropy*. Notation: `n` responses `r_i` with
//! log-likelihoods `L_i` have weights `w_i = exp(L_i) / Σ exp(L_j)`; `E(x, y)` is the probability that `x` entails
//! `y`. All functions are pure: the caller supplies the verdicts of an entailment model.

pub mod cluster;
pub mod corrected;
pub mod entropy;
mod estimate;
pub mod seper;
pub mod uncertainty;

pub use estimate::{Estimate, Measured, Pairing};

use numeric::logspace::log_sum_exp;
use numeric::real;

/// Three-way verdict on an ordered pair of texts; the probabilities sum to 1. A two-way model has no contradiction: `neutral`
/// is then the probability of no entailment.
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
    /// The verdict on a text without words: it entails nothing and follows from nothing.
    pub const NEITHER: Self = Self { entailment: 0.0, neutral: 1.0, contradiction: 0.0 };

    /// True if entailment is strictly the likeliest.
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
    /// Neither direction is a contradiction, and at least one is an entailment. Needs a three-way model.
    Loose,
    /// Entailment has at least this probability in both directions (the paper's definition).
    Threshold(f64),
}

impl Rule {
    /// True if the texts mean the same.
    #[must_use]
    pub fn equivalent(self, forward: &Verdict, backward: &Verdict) -> bool {
        match self {
            Self::Strict => forward.entails() && backward.entails(),
            Self::Loose => {
                let contradicted = forward.contradicts() || backward.contradicts();
                !contradicted && (forward.entails() || backward.entails())
            }
            Self::Threshold(least) => forward.entailment >= least && backward.entailment >= least,
        }
    }
}

/// Log-likelihood of a sampled answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Likelihood {
    /// Sum of the log-probabilities of its tokens, in nats.
    pub sum: f64,
    /// Number of tokens; at least 1.
    pub tokens: usize,
}

/// Largest log-probability of a token above 0 that counts as rounding.
pub const ROUNDING: f64 = 1e-6;

impl Likelihood {
    /// A sum above 0 by rounding counts as 0.
    #[must_use]
    pub fn new(sum: f64, tokens: usize) -> Self {
        let rounded = sum > 0.0 && sum <= ROUNDING * real(tokens);
        Self { sum: if rounded { 0.0 } else { sum }, tokens }
    }
}

/// How responses are weighted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Weighting {
    /// By the mean log-probability of a token (the authors' code). The default: sums favour short answers.
    #[default]
    Mean,
    /// By the log-probability of the whole response (SePer, Eq. 7).
    Sum,
    /// All responses equally.
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
        assert!(!verdict(0.4, 0.4, 0.2).entails(), "a tie is no entailment");
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
}
