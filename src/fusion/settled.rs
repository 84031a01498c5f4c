//! When the order of two passages counts as known.

use crate::numeric::sigmoid;

/// Below this probability two neighbours are nearly tied: within one nat. One of the first two places of every second list is, so
/// that settling them costs a fifth of a block a passage of twenty.
pub const TIE: f64 = 0.55;

/// Logit of "the better one is relevant and the other is not, rather than the reverse" for each nat between two values. By
/// logistic regression on the pairs of 94 labelled lists of three collections (docs/ranking.md).
const PER_NAT: f64 = 0.2;

/// Probability that a passage outranks another whose value is lower by `difference` nats.
#[must_use]
pub fn outranks(difference: f64) -> f64 {
    sigmoid(PER_NAT * difference)
}

/// Whether each of these values, in descending order, outranks the next with at least `probability`.
#[must_use]
pub fn first_places(values: &[f64], probability: f64) -> bool {
    values.windows(2).all(|pair| outranks(pair[0] - pair[1]) >= probability)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tie_is_within_a_nat() {
        assert!(first_places(&[1.01, 0.0], TIE) && !first_places(&[0.99, 0.0], TIE));
    }

    #[test]
    fn equal_values_are_never_settled() {
        assert!((outranks(0.0) - 0.5).abs() < 1e-15);
        assert!(!first_places(&[1.0, 1.0], 0.6) && first_places(&[40.0, 20.0, 1.0], 0.9) && first_places(&[1.0], 0.9));
        assert!(!first_places(&[40.0, 20.0, 19.9], 0.9));
    }
}
