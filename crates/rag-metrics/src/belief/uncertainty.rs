//! Two older measures of a generator's certainty, from the same sampled answers. They need no reference answers.
//!
//! **Perplexity** of an answer with `T` tokens is `exp(-(1/T) Σ_t log p_t)`, at least 1. The perplexity of a belief
//! is its mean over the `n` samples: SePer's Table 2 has perplexity among the baselines without a formula, and says
//! that all baselines are sampled as often and that "the final score comes from mean aggregation". Other papers use
//! the perplexity of one greedy answer. The logarithm of the mean is at least the predictive entropy by the mean
//! token, which is the mean of the logarithms; one unlikely answer changes perplexity much and predictive entropy
//! little.
//!
//! **Lexical similarity** is the mean of ROUGE-L over all pairs of samples (Fomicheva et al., 2020; the baseline of
//! that name in Kuhn et al., *Semantic Uncertainty*, 2023), in [0, 1]. The SePer paper does not have it. It is high
//! if the generator says the same thing in the same words.
//!
//! Standard errors are the jackknife's.

use super::{Estimate, Likelihood, Weighting};
use numeric::real;

/// A higher perplexity is undefined: a token would have less than e^-230 of the probability.
const MOST_PERPLEXITY: f64 = 1e100;

/// Mean perplexity of the answers, by their mean token. `None` for no answers, or if one of them is above 1e100.
#[must_use]
pub fn perplexity(responses: &[Likelihood]) -> Option<Estimate> {
    let values: Vec<f64> = responses.iter().map(|one| (-Weighting::Mean.log_likelihood(one)).exp()).collect();
    if values.is_empty() || values.iter().any(|value| value.is_nan() || *value > MOST_PERPLEXITY) {
        return None;
    }
    Some(super::estimate::weighted(&vec![1.0 / real(values.len()); values.len()], &values))
}

/// Mean similarity of all pairs. `sums` has, for each answer, the sum of its similarities to all others. `None` for
/// fewer than two answers. The standard error is absent for two: one answer has no pair.
#[must_use]
pub fn mean_pairwise(sums: &[f64]) -> Option<Estimate> {
    let n = sums.len();
    if n < 2 {
        return None;
    }
    let total: f64 = sums.iter().sum();
    let value = total / real(n * (n - 1));
    if n == 2 {
        return Some(Estimate::with_error(value, None, Vec::new()));
    }
    // Every pair is in two sums: pairs with the left-out answer are subtracted twice.
    let pairs = real((n - 1) * (n - 2));
    Some(Estimate::jackknifed(value, sums.iter().map(|sum| (total - 2.0 * sum) / pairs).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::belief::{Pairing, entropy};

    fn of(sum: f64, tokens: usize) -> Likelihood {
        Likelihood { sum, tokens }
    }

    #[test]
    fn perplexity_by_hand() {
        // Tokens of 1/2 each, and one of 1/4: (2 + 4) / 2.
        let responses = [of(3.0 * 0.5_f64.ln(), 3), of(0.25_f64.ln(), 1)];
        let estimate = perplexity(&responses).unwrap();
        assert!((estimate.value - 3.0).abs() < 1e-12);
        // Left out: 4 and 2, one from their mean 3 each.
        assert!((estimate.standard_error.unwrap() - 1.0).abs() < 1e-12);
        let certain = perplexity(&[of(0.0, 5)]).unwrap().measured();
        assert_eq!((certain.value.to_bits(), certain.standard_error), (1.0_f64.to_bits(), None));
    }

    #[test]
    fn a_perplexity_that_no_number_holds_is_absent() {
        assert_eq!(perplexity(&[]), None);
        assert_eq!(perplexity(&[of(-1.0, 1), of(-1e6, 1)]), None);
        assert!(perplexity(&[of(-1e6, 10_000)]).is_some(), "a long answer with 100 nats a token");
    }

    #[test]
    fn pairs_by_hand() {
        // Similarities 1 (answers 0 and 1), 1/2 (0 and 2) and 0 (1 and 2).
        let estimate = mean_pairwise(&[1.5, 1.0, 0.5]).unwrap();
        assert!((estimate.value - 0.5).abs() < 1e-12);
        // Left out: 0, 1/2 and 1, so (2/3)(1/4 + 0 + 1/4) is the variance.
        assert!((estimate.standard_error.unwrap() - (1.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!((mean_pairwise(&[]), mean_pairwise(&[0.0])), (None, None));
        let two = mean_pairwise(&[0.5, 0.5]).unwrap();
        assert_eq!((two.value.to_bits(), two.standard_error), (0.5_f64.to_bits(), None));
        assert_eq!(two.minus(&two, Pairing::Paired).standard_error, None);
        let same = mean_pairwise(&[3.0; 4]).unwrap().measured();
        assert_eq!((same.value.to_bits(), same.standard_error), (1.0_f64.to_bits(), Some(0.0)));
    }

    proptest! {
        #[test]
        fn perplexity_is_at_least_that_of_the_predictive_entropy(sums in proptest::collection::vec(-40.0..0.0_f64, 1..12)) {
            let responses: Vec<Likelihood> = sums.iter().map(|sum| of(*sum, 4)).collect();
            let value = perplexity(&responses).unwrap().value;
            let entropy = entropy::predictive(&responses, Weighting::Mean).value;
            prop_assert!(value >= 1.0 && value.ln() >= entropy - 1e-9, "{} {}", value.ln(), entropy);
            let equal = vec![responses[0]; responses.len()];
            let entropy = entropy::predictive(&equal, Weighting::Mean).value;
            prop_assert!((perplexity(&equal).unwrap().value.ln() - entropy).abs() < 1e-9);
        }
    }
}
