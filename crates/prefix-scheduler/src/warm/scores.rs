//! Log-probabilities after a state's cells: eight bytes per token, little endian.

const BYTES: usize = size_of::<f64>();

/// Appends the log-probabilities of a state's tokens to its cells.
pub fn append(state: &mut Vec<u8>, scores: &[f64]) {
    state.extend(scores.iter().flat_map(|score| score.to_le_bytes()));
}

/// The cells of a state, and the log-probabilities of its `count` tokens. `None` for a state that is too short for
/// them, or values that are not finite.
#[must_use]
pub fn split(state: &[u8], count: usize) -> Option<(&[u8], Vec<f64>)> {
    let (cells, tail) = state.split_at_checked(state.len().checked_sub(count.checked_mul(BYTES)?)?)?;
    let (values, _) = tail.as_chunks::<BYTES>();
    let scores: Vec<f64> = values.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
    scores.iter().all(|score| score.is_finite()).then_some((cells, scores))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_come_back_and_what_is_no_score_does_not() {
        let mut state = vec![1, 2, 3];
        append(&mut state, &[-0.5, -1e-300]);
        assert_eq!(split(&state, 2), Some((&[1, 2, 3][..], vec![-0.5, -1e-300])));
        assert_eq!(split(&state, 0), Some((&state[..], vec![])));
        assert_eq!(split(&state, 3), None, "too short");
        assert_eq!(split(&state, usize::MAX), None);
        append(&mut state, &[f64::NAN]);
        assert_eq!(split(&state, 1), None);
    }
}
