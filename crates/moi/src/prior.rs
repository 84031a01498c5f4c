//! Position-bias profiles used as priors.
//!
//! The paper's objective does not distinguish a ranking from its reverse: for whole orders `(a - 1/N, u - ū)` and
//! `(t(a - 1/N), (u - ū)/t)` predict the same for every `t`, including negative ones. The method therefore needs a
//! prior with a direction; `super::direction` decides it.

use numeric::real;

/// The end of the prompt that the prior favours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Early positions weigh more.
    Primacy,
    /// Late positions weigh more.
    Recency,
}

/// Geometric profile over `positions` whose ends differ by a factor of 8; it sums to one.
#[must_use]
pub fn geometric(positions: usize, direction: Direction) -> Vec<f64> {
    if positions == 0 {
        return Vec::new();
    }
    let span = real(positions.saturating_sub(1).max(1));
    let mut profile: Vec<f64> = (0..positions).map(|j| 8.0_f64.powf(-real(j) / span)).collect();
    let total: f64 = profile.iter().sum();
    for weight in &mut profile {
        *weight /= total;
    }
    if direction == Direction::Recency {
        profile.reverse();
    }
    profile
}

/// The first `positions` of `weights`, scaled to sum to one; equal weights if those sum to 0. Unchanged if there are no more.
#[must_use]
pub fn first(weights: &[f64], positions: usize) -> Vec<f64> {
    if weights.len() <= positions {
        return weights.to_vec();
    }
    let total: f64 = weights[..positions].iter().sum();
    if total > 0.0 {
        weights[..positions].iter().map(|weight| weight / total).collect()
    } else {
        vec![1.0 / real(positions); positions]
    }
}

/// True if a profile favours neither end of whole orders: `|a0|² - 1/N` is zero.
#[must_use]
pub fn has_no_direction(profile: &[f64], passages: usize) -> bool {
    let squares: f64 = profile.iter().map(|weight| weight * weight).sum();
    passages > 1 && squares - 1.0 / real(passages) < 1e-9
}

/// True if a weight exceeds the one before it by more than the rounding of a fit with the monotone constraint.
#[must_use]
pub fn increases(profile: &[f64]) -> bool {
    profile.windows(2).any(|pair| pair[1] > pair[0] + 1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_differ_by_eight_and_the_sum_is_one() {
        let profile = geometric(4, Direction::Primacy);
        assert!((profile[0] / profile[3] - 8.0).abs() < 1e-12);
        assert!((profile.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((profile[0] - 0.533_333_333_333).abs() < 1e-9);
        let mirrored = geometric(4, Direction::Recency);
        assert!((mirrored[0] - profile[3]).abs() < 1e-15);
        assert_eq!(geometric(1, Direction::Recency), vec![1.0]);
    }

    #[test]
    fn shorter_prompts_take_the_first_weights() {
        assert_eq!(first(&[0.125, 0.375, 0.5], 2), vec![0.25, 0.75]);
        assert_eq!(first(&[0.1, 0.3, 0.6], 3), vec![0.1, 0.3, 0.6]);
        assert_eq!(first(&[0.0, 0.0, 1.0], 2), vec![0.5, 0.5]);
        assert_eq!(first(&[0.0, 1.0], 1), vec![1.0]);
    }

    #[test]
    fn a_uniform_profile_has_no_direction() {
        assert!(has_no_direction(&[0.25; 4], 4) && !has_no_direction(&[1.0], 1));
        assert!(!has_no_direction(&geometric(4, Direction::Primacy), 4));
    }
}
