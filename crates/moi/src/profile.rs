//! Position-bias profiles: the effect of each prompt position on a generator, averaged over many requests, and the
//! resulting arrangement of passages.
//!
//! There are two kinds of profile for each number of passages `n`. They differ, because the likelihood of a
//! question under an order does not predict the likelihood of its answer:
//! - **answer**: log-likelihood of a reference answer with the supporting passage at position `j`, minus the mean over the
//!   positions, in nats. Measured on labelled questions. An arrangement needs this one.
//! - **question**: the shape of the position weights that MOI fits to log P(query | order) ([`shape`]): which
//!   positions weigh more, but not by how much. Fits of whole orders do not determine the strength of the bias, so
//!   a profile does not use it.
//!
//! By the rearrangement inequality, the sum of utility times weight is largest when both are sorted alike ([`arrange`]).
//! Sorting follows noise as readily as an effect, so [`Profile::propose`] sorts only after a test.
//!
//! # The test
//! `k` observations of `n` positions have means `m_j` with standard errors `e_j`, and
//! `F = sum (m_j - mean(m))^2 / sum e_j^2` (repeated-measures analysis of variance). Positions of one prompt are
//! correlated, so `F` is compared with the law for one degree of freedom, `t^2` with `k - 1`, for any `n`. This
//! lower bound of Geisser and Greenhouse (1958) is conservative for every covariance matrix: at these levels a
//! weighted mean of chi-squared variables has a lighter tail than one of them (Szekely and Bakirov, 2003). It needs
//! no covariances.
//! - A calibrated or built-in profile is tested once: `F` must exceed the squared 97.5 % point of Student's t (5 %, two-sided).
//! - A learnt profile is tested at every request, so a fixed level would be crossed sooner or later by chance. The Bayes
//!   factor of the t statistic under a unit-information prior is a test martingale; below 1/20, the probability that it
//!   *ever* exceeds 20 without an effect is at most 5 % (Ville; Hendriksen, de Heide and Grünwald, 2021).
//!
//! Testing the gain of the sorted order against its error would be wrong, because the order maximises that gain:
//! over ten flat positions and 30 observations it exceeds two standard errors in 45 % of the profiles.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use numeric::{descending, mean, real};

/// Shortest profile that is interpolated to other lengths. Fewer positions cannot show if the middle of a prompt
/// counts less than its ends.
const LEAST_INTERPOLATED: usize = 4;
/// Largest ratio, in either direction, of a context's length to the profile's. Relative positions keep their value only
/// between prompts of similar length.
const MOST_STRETCH: usize = 2;
/// Standard errors by which a later position must exceed an earlier one before the order departs from best first.
const STANDARD_ERRORS: f64 = 2.0;
/// Smallest Bayes factor at which a learnt profile counts.
const BAYES_FACTOR: f64 = 20.0;

/// The text whose likelihood a profile describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// The reference answer.
    Answer,
    /// The question.
    Question,
}

impl Subject {
    /// Least difference between the best and the worst position that justifies an arrangement: 0.05 nats (5 % of
    /// the answer's probability), or 0.25 in the mean shape, whose ends differ by 1 or more if all fits agree and
    /// by 0 if they favour each position equally often. With enough observations any bias of the fit is
    /// significant.
    const fn least_effect(self) -> f64 {
        match self {
            Self::Answer => 0.05,
            Self::Question => 0.25,
        }
    }
}

/// Source of a profile's observations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// `rerankd calibrate`, run by the operator.
    Calibrated,
    /// `rerankd calibrate`, run by this project, for a generator of the catalogue.
    BuiltIn,
    /// Fits of served requests, chosen by the callers.
    Learnt,
}

impl Origin {
    /// Its name as an adjective. Files of calibrated and learnt profiles have this name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calibrated => "calibrated",
            Self::BuiltIn => "built-in",
            Self::Learnt => "learnt",
        }
    }
}

/// Running mean and variance of one number per position (Welford).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    count: u64,
    means: Vec<f64>,
    /// Sum of squared deviations from the mean, by position.
    squares: Vec<f64>,
}

impl Profile {
    /// An empty profile for prompts of `positions` passages.
    #[must_use]
    pub fn new(positions: usize) -> Self {
        Self { count: 0, means: vec![0.0; positions], squares: vec![0.0; positions] }
    }

    /// Adds one observation, one number per position. Returns false, and changes nothing, for another length or a number
    /// that is not finite.
    pub fn observe(&mut self, values: &[f64]) -> bool {
        if values.len() != self.means.len() || values.iter().any(|value| !value.is_finite()) {
            return false;
        }
        self.count += 1;
        for ((mean, square), value) in self.means.iter_mut().zip(&mut self.squares).zip(values) {
            let before = value - *mean;
            *mean += before / wide(self.count);
            *square += before * (value - *mean);
        }
        true
    }

    /// Adds the observations of another profile of the same length (Chan et al., 1983).
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 || other.means.len() != self.means.len() {
            return;
        }
        let (ours, theirs) = (wide(self.count), wide(other.count));
        let all = ours + theirs;
        for (j, (mean, square)) in self.means.iter_mut().zip(&mut self.squares).enumerate() {
            let apart = other.means[j] - *mean;
            *mean += apart * theirs / all;
            *square += other.squares[j] + apart * apart * ours * theirs / all;
        }
        self.count += other.count;
    }

    /// Number of observations: labelled questions, or fits.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Number of positions.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.means.len()
    }

    /// The mean of each position, first to last.
    #[must_use]
    pub fn means(&self) -> &[f64] {
        &self.means
    }

    /// Standard error of each mean; `None` for fewer than two observations.
    #[must_use]
    pub fn standard_errors(&self) -> Option<Vec<f64>> {
        let count = wide(self.count);
        (self.count > 1)
            .then(|| self.squares.iter().map(|square| (square / (count - 1.0) / count).max(0.0).sqrt()).collect())
    }

    /// True if [`Profile::observe`] could have produced these numbers. Checks data from a file.
    #[must_use]
    pub fn is_valid(&self, positions: usize) -> bool {
        let finite = |values: &[f64]| values.len() == positions && values.iter().all(|value| value.is_finite());
        self.count > 0
            && finite(&self.means)
            && finite(&self.squares)
            && self.squares.iter().all(|square| *square >= 0.0)
    }

    /// True if the profile applies to a context of `passages`: to its own length, and from four positions on to
    /// lengths within a factor of two.
    #[must_use]
    pub fn serves(&self, passages: usize) -> bool {
        let own = self.positions();
        let near = own <= passages * MOST_STRETCH && passages <= own * MOST_STRETCH;
        passages > 1 && (passages == own || (own >= LEAST_INTERPOLATED && near))
    }

    /// The means over another number of positions: linear between the relative positions 0 (first) and 1 (last).
    #[must_use]
    pub fn interpolated(&self, positions: usize) -> Vec<f64> {
        let last = self.means.len().saturating_sub(1);
        (0..positions)
            .map(|j| {
                if last == 0 || positions < 2 {
                    return self.means.first().copied().unwrap_or(0.0);
                }
                // Integer arithmetic, so that a profile interpolated to its own length is unchanged.
                let (scaled, span) = (j * last, positions - 1);
                let (below, rest) = (scaled / span, real(scaled % span) / real(span));
                let above = (below + 1).min(last);
                self.means[below] * (1.0 - rest) + self.means[above] * rest
            })
            .collect()
    }

    /// True if the positions differ by more than their errors explain, and by enough to matter (see the module
    /// documentation).
    #[must_use]
    pub fn has_effect(&self, subject: Subject, origin: Origin) -> bool {
        let Some(errors) = self.standard_errors() else { return false };
        let centre = mean(&self.means);
        let between: f64 = self.means.iter().map(|value| (value - centre).powi(2)).sum();
        let within: f64 = errors.iter().map(|error| error * error).sum();
        let largest = self.means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let smallest = self.means.iter().copied().fold(f64::INFINITY, f64::min);
        // Observations without spread are one question repeated. They give no estimate of the error.
        if within <= 0.0 || largest - smallest < subject.least_effect() {
            return false;
        }
        let f = between / within;
        let freedom = wide(self.count - 1);
        match origin {
            Origin::Calibrated | Origin::BuiltIn => {
                StudentsT::new(0.0, 1.0, freedom).is_ok_and(|law| f > law.inverse_cdf(0.975).powi(2))
            }
            Origin::Learnt => {
                let all = wide(self.count) + 1.0;
                let ratio = (1.0 + f / freedom) / (1.0 + f / freedom / all);
                0.5 * (wide(self.count) * ratio.ln() - all.ln()) >= BAYES_FACTOR.ln()
            }
        }
    }

    /// Arranges `ranking` (best first) by this profile. `None` if the positions do not differ beyond their error.
    /// Best first if they differ but no later position exceeds an earlier one by two standard errors: the profile
    /// confirms it.
    #[must_use]
    pub fn propose(&self, ranking: &[usize], subject: Subject, origin: Origin) -> Option<Vec<usize>> {
        if !self.has_effect(subject, origin) {
            return None;
        }
        let errors = self.standard_errors()?;
        // The error of a difference is at most the sum of both errors, whatever their correlation.
        let exceeds = |later: usize, earlier: usize| {
            self.means[later] - self.means[earlier] >= STANDARD_ERRORS * (errors[later] + errors[earlier])
        };
        let departs = (0..self.positions()).any(|later| (0..later).any(|earlier| exceeds(later, earlier)));
        Some(if departs { arrange(ranking, &self.interpolated(ranking.len())) } else { ranking.to_vec() })
    }
}

/// All profiles of one generator, template and origin, by subject and number of passages.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Profiles {
    by_length: BTreeMap<(Subject, usize), Profile>,
}

impl Profiles {
    /// Adds one observation to the profile of its length. Returns false for fewer than two positions, or numbers that are
    /// not finite.
    pub fn observe(&mut self, subject: Subject, values: &[f64]) -> bool {
        let length = values.len();
        length > 1 && self.by_length.entry((subject, length)).or_insert_with(|| Profile::new(length)).observe(values)
    }

    /// Adds the observations of one profile.
    pub fn insert(&mut self, subject: Subject, profile: &Profile) {
        let length = profile.means.len();
        self.by_length.entry((subject, length)).or_insert_with(|| Profile::new(length)).merge(profile);
    }

    /// Adds all observations of another set of profiles.
    pub fn merge(&mut self, other: &Self) {
        for (subject, _, profile) in other.iter() {
            self.insert(subject, profile);
        }
    }

    /// All profiles with observations, by subject and length.
    pub fn iter(&self) -> impl Iterator<Item = (Subject, usize, &Profile)> {
        self.by_length
            .iter()
            .filter(|(_, profile)| profile.count > 0)
            .map(|((subject, n), profile)| (*subject, *n, profile))
    }

    /// True if there are no observations at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The profile of `subject` that applies to a context of `passages` ([`Profile::serves`]) and has at least
    /// `least` observations: the nearest length; of two equally near ones the longer.
    #[must_use]
    pub fn serving(&self, subject: Subject, passages: usize, least: u64) -> Option<&Profile> {
        self.iter()
            .filter(|(whose, _, profile)| *whose == subject && profile.count >= least && profile.serves(passages))
            .min_by_key(|(_, length, _)| (length.abs_diff(passages), std::cmp::Reverse(*length)))
            .map(|(_, _, profile)| profile)
    }
}

/// The shape of position weights: their differences from equal weights, scaled to length 1; zeros for equal weights.
#[must_use]
pub fn shape(weights: &[f64]) -> Vec<f64> {
    let centre = mean(weights);
    let length = weights.iter().map(|weight| (weight - centre).powi(2)).sum::<f64>().sqrt();
    weights.iter().map(|weight| if length > 1e-9 { (weight - centre) / length } else { 0.0 }).collect()
}

/// Puts the best of `ranking` at the largest of `weights`, the second best at the second largest, and so on. Equal
/// weights are filled from the front. One weight per passage.
#[must_use]
pub fn arrange(ranking: &[usize], weights: &[f64]) -> Vec<usize> {
    let mut arranged = ranking.to_vec();
    for (passage, position) in ranking.iter().zip(descending(&weights[..ranking.len()])) {
        arranged[position] = *passage;
    }
    arranged
}

#[expect(clippy::cast_precision_loss, reason = "counts of requests stay far below 2^52")]
const fn wide(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
