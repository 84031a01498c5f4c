//! Position-bias profiles: what a position is worth to a generator, over many requests, and the arrangement it asks for.
//!
//! Two profiles are kept for each number of passages `N`, because they differ (the likelihood of a question under an order
//! does not foretell the likelihood of its answer):
//! - **answer**: the log-likelihood of a reference answer when the passage that holds it stands at position `j`, less its
//!   mean over the positions, in nats. From labelled questions. It is the one that an arrangement needs.
//! - **question**: the position weights that MOI fits to log P(query | order); they sum to one. From every fit whose
//!   direction the data settled.
//!
//! By the rearrangement inequality the sum of utility times weight is largest when both are sorted alike: [`arrange`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::numeric::{descending, real};

/// Whose likelihood a profile is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// The reference answer's.
    Answer,
    /// The question's.
    Question,
}

/// Running mean and spread of one number a position (Welford).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    count: u64,
    means: Vec<f64>,
    squares: Vec<f64>,
}

impl Profile {
    /// Nothing seen yet, for prompts of `positions` passages.
    #[must_use]
    pub fn new(positions: usize) -> Self {
        Self { count: 0, means: vec![0.0; positions], squares: vec![0.0; positions] }
    }

    /// Adds one observation, a number a position. What has another length or a number that is not finite is not taken.
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

    /// Takes in what another profile of the same length saw (Chan et al.).
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

    /// Requests or questions it rests on.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
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

    /// Whether the numbers can be what [`Profile::observe`] leaves behind, for what is read from a file.
    #[must_use]
    pub fn is_sound(&self, positions: usize) -> bool {
        let finite = |values: &[f64]| values.len() == positions && values.iter().all(|value| value.is_finite());
        self.count > 0
            && finite(&self.means)
            && finite(&self.squares)
            && self.squares.iter().all(|square| *square >= 0.0)
    }

    /// The means over another number of positions: linear between the relative places 0 (first) and 1 (last).
    #[must_use]
    pub fn stretched(&self, positions: usize) -> Vec<f64> {
        let last = self.means.len().saturating_sub(1);
        (0..positions)
            .map(|j| {
                if last == 0 || positions < 2 {
                    return self.means.first().copied().unwrap_or(0.0);
                }
                // In whole numbers, so that a profile stretched to its own length is itself.
                let (scaled, span) = (j * last, positions - 1);
                let (below, rest) = (scaled / span, real(scaled % span) / real(span));
                let above = (below + 1).min(last);
                self.means[below] * (1.0 - rest) + self.means[above] * rest
            })
            .collect()
    }
}

/// All profiles of one generator and template, by subject and number of passages.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Profiles {
    by_length: BTreeMap<(Subject, usize), Profile>,
}

impl Profiles {
    /// Adds one observation to the profile of its length; lengths below 2 say nothing and are not taken.
    pub fn observe(&mut self, subject: Subject, values: &[f64]) -> bool {
        let length = values.len();
        length > 1 && self.by_length.entry((subject, length)).or_insert_with(|| Profile::new(length)).observe(values)
    }

    /// Puts a profile in its place, with what was there.
    pub fn insert(&mut self, subject: Subject, profile: &Profile) {
        let length = profile.means.len();
        self.by_length.entry((subject, length)).or_insert_with(|| Profile::new(length)).merge(profile);
    }

    /// Takes in all of another.
    pub fn merge(&mut self, other: &Self) {
        for (subject, _, profile) in other.iter() {
            self.insert(subject, profile);
        }
    }

    /// All profiles, by subject and length.
    pub fn iter(&self) -> impl Iterator<Item = (Subject, usize, &Profile)> {
        self.by_length
            .iter()
            .filter(|(_, profile)| profile.count > 0)
            .map(|((subject, n), profile)| (*subject, *n, profile))
    }

    /// The profile of a subject for `n` passages, or failing that for the nearest number (of two as near, the larger), that
    /// rests on at least `least` observations.
    #[must_use]
    pub fn nearest(&self, subject: Subject, n: usize, least: u64) -> Option<(usize, &Profile)> {
        self.iter()
            .filter(|(whose, _, profile)| *whose == subject && profile.count >= least)
            .map(|(_, length, profile)| (length, profile))
            .min_by_key(|(length, _)| (length.abs_diff(n), std::cmp::Reverse(*length)))
    }
}

/// Puts the best of `ranking` where `weights` is largest, the second best where it is second largest, and so on; of equal
/// weights the earlier position is taken first. One weight a passage.
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(rows: &[Vec<f64>]) -> Profile {
        let mut profile = Profile::new(rows[0].len());
        assert!(rows.iter().all(|row| profile.observe(row)));
        profile
    }

    #[test]
    fn by_hand() {
        let profile = of(&[vec![1.0, 0.0], vec![3.0, 4.0]]);
        assert_eq!(profile.means(), &[2.0, 2.0]);
        // Variances 2 and 8 over two observations.
        assert_eq!(profile.standard_errors().unwrap(), vec![1.0, 2.0]);
        assert_eq!(of(&[vec![0.0, 1.0]]).stretched(5), vec![0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(of(&[vec![5.0, 1.0, 7.0]]).stretched(2), vec![5.0, 7.0]);
        assert_eq!(of(&[vec![5.0, 1.0, 7.0]]).stretched(3), vec![5.0, 1.0, 7.0]);
        assert!(of(&[vec![5.0, 1.0]]).stretched(0).is_empty());
    }

    #[test]
    fn the_best_stands_where_the_weight_is_largest() {
        assert_eq!(arrange(&[4, 2, 9], &[0.1, 0.2, 0.7]), vec![9, 2, 4]);
        assert_eq!(arrange(&[4, 2, 9], &[0.5, 0.1, 0.4]), vec![4, 9, 2]);
        assert_eq!(arrange(&[4, 2, 9], &[1.0, 1.0, 1.0]), vec![4, 2, 9]);
        assert!(arrange(&[], &[]).is_empty());
    }

    #[test]
    fn what_cannot_be_is_not_taken() {
        let mut profiles = Profiles::default();
        assert!(!profiles.observe(Subject::Answer, &[1.0]));
        assert!(!profiles.observe(Subject::Answer, &[1.0, f64::NAN]));
        assert!(profiles.observe(Subject::Answer, &[1.0, -1.0]));
        assert!(
            profiles.nearest(Subject::Question, 2, 1).is_none() && profiles.nearest(Subject::Answer, 9, 2).is_none()
        );
        assert_eq!(profiles.nearest(Subject::Answer, 9, 1).unwrap().0, 2);
        assert!(!Profile::new(2).is_sound(2));
        let mut spoilt = of(&[vec![1.0, 2.0]]);
        assert!(spoilt.is_sound(2) && !spoilt.is_sound(3));
        spoilt.squares[1] = -1.0;
        assert!(!spoilt.is_sound(2));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Observing in two parts and merging is observing all.
        #[test]
        fn parts_merge(rows in proptest::collection::vec(proptest::collection::vec(-5.0_f64..5.0, 4), 2..20), at in 1_usize..19) {
            let at = at.min(rows.len() - 1);
            let (whole, mut left, right) = (of(&rows), of(&rows[..at]), of(&rows[at..]));
            left.merge(&right);
            prop_assert_eq!(left.count(), whole.count());
            let errors = left.standard_errors().unwrap();
            for (j, error) in whole.standard_errors().unwrap().into_iter().enumerate() {
                prop_assert!((left.means()[j] - whole.means()[j]).abs() < 1e-12);
                prop_assert!((errors[j] - error).abs() < 1e-9);
            }
        }

        /// No other arrangement has a larger sum of utility times weight.
        #[test]
        fn rearrangement_inequality(utilities in proptest::collection::vec(-5.0_f64..5.0, 4), weights in proptest::collection::vec(-1.0_f64..1.0, 4)) {
            let value = |order: &[usize]| order.iter().zip(&weights).map(|(p, w)| utilities[*p] * w).sum::<f64>();
            let best = value(&arrange(&descending(&utilities), &weights));
            for a in 0..4 { for b in 0..4 { for c in 0..4 { for d in 0..4 {
                let order = [a, b, c, d];
                if (0..4).all(|p| order.contains(&p)) { prop_assert!(value(&order) <= best + 1e-12); }
            }}}}
        }
    }
}
