//! Fitting passages into a context: the longest are cut first, all to one common length.

use super::EngineError;

/// The largest common cap under which the `most` longest of `lengths` sum to at most `available`; `None` when even the least
/// lengths do not fit. A passage below the cap stays whole.
pub(super) fn common_cap(lengths: &[usize], least: &[usize], most: usize, available: usize) -> Option<usize> {
    let needed = |cap: usize| {
        let mut cut: Vec<usize> =
            lengths.iter().zip(least).map(|(&length, &least)| length.min(cap.max(least))).collect();
        cut.sort_unstable_by(|left, right| right.cmp(left));
        cut.into_iter().take(most).fold(0_usize, usize::saturating_add)
    };
    let longest = lengths.iter().copied().max().unwrap_or(0);
    if needed(longest) <= available {
        return Some(longest);
    }
    if needed(0) > available {
        return None;
    }
    let (mut fits, mut too_long) = (0, longest);
    while too_long - fits > 1 {
        let middle = usize::midpoint(fits, too_long);
        if needed(middle) <= available { fits = middle } else { too_long = middle }
    }
    Some(fits)
}

/// Refuses what does not fit uncut, naming the passage that alone is too long, if one is.
pub(super) fn refuse_long(lengths: &[usize], most: usize, available: usize) -> Result<(), EngineError> {
    if let Some((index, &needed)) = lengths.iter().enumerate().find(|(_, length)| **length > available) {
        return Err(EngineError::TooLong { field: format!("passages[{index}].text"), needed, available });
    }
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable_by(|left, right| right.cmp(left));
    let needed = sorted.into_iter().take(most).sum();
    if needed > available {
        return Err(EngineError::TooLong { field: "passages".into(), needed, available });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_passages_stay_whole_and_long_ones_share_the_rest() {
        assert_eq!(common_cap(&[10, 100, 100], &[1, 1, 1], 3, 110), Some(50));
        assert_eq!(common_cap(&[10, 20, 30], &[1, 1, 1], 3, 60), Some(30));
        assert_eq!(common_cap(&[10, 100, 100], &[1, 1, 1], 1, 60), Some(60));
        assert_eq!(common_cap(&[10, 10], &[6, 6], 2, 11), None);
        assert_eq!(common_cap(&[10, 10], &[6, 6], 2, 12), Some(6));
    }
}
