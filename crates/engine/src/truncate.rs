//! Truncation of passages to fit a context. All passages share one length cap, so the longest are truncated first.

use std::sync::Arc;

use super::prompt::{Language, PassageForm, PassageTokens};
use crate::types::{CutSide, EngineError, Passage};
use prefix_scheduler::call::Call;
use prefix_scheduler::plan::Token;

/// Tokenised and truncated passages, as used in prompts.
pub(super) struct FittedPassages {
    /// Tokens of each passage.
    pub tokens: Vec<Arc<[Token]>>,
    /// Number of tokens dropped from each passage.
    pub cut: Vec<usize>,
}

/// Limits that the passages must fit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fit {
    /// Number of tokens available for the passages of one prompt.
    pub available: usize,
    /// Number of passages in the longest prompt.
    pub longest: usize,
    /// Maximum number of tokens of a passage, set by the caller; `None` for no limit.
    pub passage_tokens: Option<usize>,
    /// True if passages may be truncated to fit `available`.
    pub truncate: bool,
    /// The side at which passages are truncated.
    pub side: CutSide,
}

/// Tokenises passages and truncates them to `fit`.
///
/// # Errors
/// The reason why `call` stopped, or [`EngineError::TooLong`] if the passages do not fit and truncation is off, or if their minimum lengths do not fit.
pub(super) fn fit_passages(
    language: &Language,
    passages: &[Passage],
    fit: Fit,
    call: &Call,
) -> Result<FittedPassages, EngineError> {
    fit_formed(PassageForm::Labelled, language, passages, fit, call)
}

/// [`fit_passages`] in a form.
pub(super) fn fit_formed(
    form: PassageForm,
    language: &Language,
    passages: &[Passage],
    fit: Fit,
    call: &Call,
) -> Result<FittedPassages, EngineError> {
    fit_tokens(&formed(form, language, passages, call)?, fit)
}

/// Tokenises passages.
///
/// # Errors
/// The reason why `call` stopped.
pub(super) fn tokenise(
    language: &Language,
    passages: &[Passage],
    call: &Call,
) -> Result<Vec<PassageTokens>, EngineError> {
    formed(PassageForm::Labelled, language, passages, call)
}

fn formed(
    form: PassageForm,
    language: &Language,
    passages: &[Passage],
    call: &Call,
) -> Result<Vec<PassageTokens>, EngineError> {
    let tokens = |passage: &Passage| {
        call.check()?;
        let tokenizer = language.tokenizer.as_ref();
        Ok::<_, EngineError>(PassageTokens::formed(form, tokenizer, &passage.title, &passage.text))
    };
    passages.iter().map(tokens).collect()
}

/// Truncates tokenised passages to `fit`.
///
/// # Errors
/// As [`fit_passages`], except for the call.
pub(super) fn fit_tokens(texts: &[PassageTokens], fit: Fit) -> Result<FittedPassages, EngineError> {
    // Each text keeps at least one token: with only labels and separators, all passages would be equal.
    let bounded: Vec<usize> = texts.iter().map(|text| text.len_within(fit.passage_tokens)).collect();
    let cap = if fit.truncate {
        let least: Vec<usize> = texts.iter().map(PassageTokens::least).collect();
        common_cap(&bounded, &least, fit.longest, fit.available).ok_or_else(|| EngineError::TooLong {
            field: "passages".into(),
            needed: largest(&least, fit.longest),
            available: fit.available,
        })?
    } else {
        refuse_long(&bounded, fit.longest, fit.available)?;
        usize::MAX
    };
    let (tokens, cut) = texts
        .iter()
        .zip(&bounded)
        .map(|(text, bound)| {
            let (tokens, dropped) = text.cut_at(cap.max(text.least()).min(*bound), fit.side);
            (tokens.into(), dropped)
        })
        .unzip();
    Ok(FittedPassages { tokens, cut })
}

/// Sum of the `most` largest lengths.
fn largest(lengths: &[usize], most: usize) -> usize {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable_by(|left, right| right.cmp(left));
    sorted.into_iter().take(most).fold(0, usize::saturating_add)
}

/// Largest common cap at which the `most` longest of `lengths` sum to at most `available`. `None` if the minimum
/// lengths `least` do not fit. Passages shorter than the cap are not truncated.
fn common_cap(lengths: &[usize], least: &[usize], most: usize, available: usize) -> Option<usize> {
    let needed = |cap: usize| {
        let cut: Vec<usize> = lengths.iter().zip(least).map(|(&length, &least)| length.min(cap.max(least))).collect();
        largest(&cut, most)
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

/// Returns an error if the passages do not fit without truncation. The error names the first passage that is too long
/// by itself, if any.
fn refuse_long(lengths: &[usize], most: usize, available: usize) -> Result<(), EngineError> {
    if let Some((index, &needed)) = lengths.iter().enumerate().find(|(_, length)| **length > available) {
        return Err(EngineError::TooLong { field: format!("passages[{index}].text"), needed, available });
    }
    let needed = largest(lengths, most);
    if needed > available {
        return Err(EngineError::TooLong { field: "passages".into(), needed, available });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use prefix_scheduler::model::PromptFormat;
    use prefix_scheduler::scripted::ByteTokenizer;

    #[test]
    fn short_passages_stay_whole_and_long_ones_share_the_rest() {
        assert_eq!(common_cap(&[10, 100, 100], &[1, 1, 1], 3, 110), Some(50));
        assert_eq!(common_cap(&[10, 20, 30], &[1, 1, 1], 3, 60), Some(30));
        assert_eq!(common_cap(&[10, 100, 100], &[1, 1, 1], 1, 60), Some(60));
        assert_eq!(common_cap(&[10, 10], &[6, 6], 2, 11), None);
        assert_eq!(common_cap(&[10, 10], &[6, 6], 2, 12), Some(6));
    }

    #[test]
    fn a_bound_leaves_a_token_of_every_text() {
        let texts: Vec<PassageTokens> =
            ["first", "second"].map(|text| PassageTokens::new(&ByteTokenizer::default(), "a title", text)).into();
        for truncate in [true, false] {
            let fit = Fit { available: 1_000, longest: 2, passage_tokens: Some(1), truncate, side: CutSide::End };
            let fitted = fit_tokens(&texts, fit).unwrap();
            assert_eq!((fitted.tokens[0].len(), fitted.cut[0]), (texts[0].least(), texts[0].body_len() - 1));
        }
    }

    /// A token of the text is reserved after a long title, but was dropped if the others were cut further.
    #[test]
    fn the_room_of_a_prompt_leaves_a_token_of_every_text() {
        let title = "t".repeat(100);
        let texts = [(title.as_str(), "a".repeat(200)), ("", "b".repeat(300))];
        let texts = texts.map(|(title, text)| PassageTokens::new(&ByteTokenizer::default(), title, &text));
        let available = texts[0].least() + 90;
        let fit = Fit { available, longest: 2, passage_tokens: None, truncate: true, side: CutSide::End };
        let fitted = fit_tokens(&texts, fit).unwrap();
        let lengths: Vec<usize> = fitted.tokens.iter().map(|tokens| tokens.len()).collect();
        assert_eq!((lengths[0], fitted.cut[0]), (texts[0].least(), texts[0].body_len() - 1), "{lengths:?}");
        assert!(lengths.iter().sum::<usize>() <= available && lengths[1] > 80, "{lengths:?}");
    }

    /// Regression: the error reported the tokens of all passages, although only those in the longest prompt must
    /// fit.
    #[test]
    fn what_is_needed_counts_the_longest_prompt_only() {
        let language = Language::new(Arc::new(ByteTokenizer::default()), PromptFormat::Plain);
        let passage = Passage { text: "x".into(), ..Passage::default() };
        let least = PassageTokens::new(&ByteTokenizer::default(), "", "x").least();
        let fit = Fit { available: 3, longest: 2, passage_tokens: None, truncate: true, side: CutSide::End };
        let refused =
            fit_passages(&language, &[passage.clone(), passage.clone(), passage], fit, &Call::local()).err().unwrap();
        assert_eq!(refused, EngineError::TooLong { field: "passages".into(), needed: 2 * least, available: 3 });
    }
}
