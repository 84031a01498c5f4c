//! How many tokens a request will take, before it is tokenised.
//!
//! The estimate is bytes times tokens per byte. Tokens per byte are learnt from earlier requests of the same [`Class`].

use std::collections::BTreeMap;
use std::sync::Arc;

use numeric::{count, real};
use parking_lot::Mutex;

/// Tokens per byte before anything is learnt: English text has about four bytes per token.
const PRIOR: f64 = 0.25;

/// Bytes per token for a text that is cut to a number of tokens.
pub const BYTES_PER_TOKEN: usize = 4;

/// Bounds on what one request may teach, in tokens per byte. A request that was answered from a cache takes almost
/// no tokens.
const TAUGHT: (f64, f64) = (0.01, 100.0);

/// Weight of a new request.
const WEIGHT: f64 = 0.125;

/// Tokens of plain text of this many bytes, before anything is learnt.
#[must_use]
pub fn tokens_of_text(bytes: usize) -> usize {
    count(real(bytes) * PRIOR)
}

/// Requests that share an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    /// Method or operation.
    pub name: &'static str,
    /// A bit for each option that changes the tokens per byte.
    pub options: u16,
    /// Number of texts, as a power of two.
    pub texts: u32,
}

/// Tokens per byte of a model's requests, by class. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Estimator(Arc<Mutex<BTreeMap<Class, f64>>>);

impl Estimator {
    /// Estimated tokens of a request of this many bytes. A class without requests uses the ratio of the nearest
    /// number of texts.
    #[must_use]
    pub fn tokens(&self, class: Class, bytes: usize) -> usize {
        let learnt = self.0.lock();
        let known = learnt.range(Class { texts: 0, ..class }..=Class { texts: u32::MAX, ..class });
        let nearest = known.min_by_key(|(other, _)| other.texts.abs_diff(class.texts));
        count(real(bytes) * nearest.map_or(PRIOR, |(_, ratio)| *ratio))
    }

    /// Learns from a request that took `tokens`.
    pub fn learn(&self, class: Class, bytes: usize, tokens: usize) {
        if bytes == 0 {
            return;
        }
        let ratio = (real(tokens) / real(bytes)).clamp(TAUGHT.0, TAUGHT.1);
        let mut learnt = self.0.lock();
        let mean = learnt.entry(class).or_insert(ratio);
        *mean += WEIGHT * (ratio - *mean);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLASS: Class = Class { name: "moi", options: 0, texts: 3 };

    #[test]
    fn an_estimate_follows_earlier_requests_of_its_class() {
        let estimator = Estimator::default();
        assert_eq!(estimator.tokens(CLASS, 400), 100, "a quarter of the bytes");
        estimator.learn(CLASS, 400, 200);
        assert_eq!(estimator.tokens(CLASS, 400), 200);
        estimator.learn(CLASS, 400, 600);
        assert_eq!(estimator.tokens(CLASS, 400), 250, "an eighth of the way from .5 to 1.5");
        let longer = Class { texts: 6, ..CLASS };
        assert_eq!(estimator.tokens(longer, 400), 250, "that of the nearest number of texts");
        estimator.learn(longer, 400, 800);
        assert_eq!((estimator.tokens(longer, 400), estimator.tokens(CLASS, 400)), (800, 250));
        assert_eq!(estimator.tokens(Class { options: 1, ..CLASS }, 400), 100, "other options are not concerned");
    }

    proptest! {
        /// One request in a hundred with no tokens, or any number, changes the estimate of the others by a bounded
        /// amount.
        #[test]
        fn a_strange_request_teaches_little(strange in any::<usize>()) {
            let estimator = Estimator::default();
            let tokens = || estimator.tokens(CLASS, 2_000);
            for _ in 0..50 {
                estimator.learn(CLASS, 2_000, 500);
            }
            estimator.learn(CLASS, 2_000, strange);
            prop_assert!((430..=25_500).contains(&tokens()), "{}", tokens());
            for _ in 0..40 {
                estimator.learn(CLASS, 2_000, 500);
            }
            prop_assert!((495..=625).contains(&tokens()), "{}", tokens());
        }
    }
}
