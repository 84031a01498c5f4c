//! BLEU of one answer against its references (Papineni et al., 2002), in [0, 1].
//!
//! ```text
//! BLEU = BP · exp((1/N) Σ_{n=1..N} ln p_n)      N = min(4, c)
//! BP   = 1 if c ≥ r, else exp(1 − r/c)
//! ```
//!
//! `c` is the number of words of the answer, `r` the length of the reference that is nearest in length (of two the
//! shorter), `p_n` the share of the answer's n-grams that are in the references; an n-gram counts at most as often
//! as in the reference that has it most often. All references count together: there is no best one.
//!
//! - **Smoothing.** The measure is defined for a corpus; in one sentence a `p_n` is often 0. The k-th order without
//!   a match has `p_n = 1 / (2^k · (c − n + 1))` (method 3 of Chen and Cherry, 2014; `exp` in sacrebleu, its
//!   default). An answer without any common word scores 0.
//! - **Order.** Answers of fewer than four words have no 4-grams; `N` is then their number of words (`effective_order` in
//!   sacrebleu).
//! - **Words** come from [`lexical::words`], as for the other measures of answers. The value equals sacrebleu's
//!   `sentence_score` on texts normalised in this way, with `tokenize="none"`; its tokenizer `13a` would count
//!   case, punctuation and articles.
//! - **Texts without words.** An answer without words scores 1 if a reference has none either, otherwise 0, as for
//!   the other measures. For an answer with words such references are ignored; otherwise they would be the nearest
//!   in length to a short one.

use std::collections::HashMap;

use super::lexical;
use numeric::real;

/// Longest n-grams that count.
const ORDER: usize = 4;

type Counts<'a> = HashMap<&'a [String], usize>;

fn counts(words: &[String], order: usize) -> Counts<'_> {
    let mut counts = Counts::new();
    for gram in words.windows(order) {
        *counts.entry(gram).or_default() += 1;
    }
    counts
}

/// The text's n-grams that are in the references, each at most as often as in one of them.
fn common(text: &[String], references: &[Vec<String>], order: usize) -> usize {
    let mut most = Counts::new();
    for reference in references {
        for (gram, count) in counts(reference, order) {
            let kept = most.entry(gram).or_default();
            *kept = count.max(*kept);
        }
    }
    counts(text, order).iter().map(|(gram, count)| *count.min(most.get(gram).unwrap_or(&0))).sum()
}

/// BLEU of the text against all references, in [0, 1]. Time grows with the number of words.
#[must_use]
pub fn bleu(text: &str, references: &[String]) -> f64 {
    let text = lexical::words(text);
    let mut references: Vec<Vec<String>> = references.iter().map(|reference| lexical::words(reference)).collect();
    if text.is_empty() {
        return f64::from(u8::from(references.iter().any(Vec::is_empty)));
    }
    references.retain(|reference| !reference.is_empty());
    let lengths = references.iter().map(Vec::len);
    let Some(nearest) = lengths.min_by_key(|&length| (length.abs_diff(text.len()), length)) else { return 0.0 };
    let orders = ORDER.min(text.len());
    let (mut logs, mut smoothing) = (0.0, 1.0);
    for order in 1..=orders {
        let total = real(text.len() - order + 1);
        let precision = match common(&text, &references, order) {
            // Without a common word there is no common n-gram.
            0 if order == 1 => return 0.0,
            0 => {
                smoothing *= 2.0;
                1.0 / (smoothing * total)
            }
            common => real(common) / total,
        };
        logs += precision.ln();
    }
    let brevity = if text.len() < nearest { 1.0 - real(nearest) / real(text.len()) } else { 0.0 };
    (brevity + logs / real(orders)).exp()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(references: &[&str]) -> Vec<String> {
        references.iter().map(|&reference| reference.to_owned()).collect()
    }

    fn near(text: &str, references: &[&str], expected: f64) {
        let value = bleu(text, &of(references));
        assert!((value - expected).abs() < 1e-12, "{text:?} {references:?}: {value}, not {expected}");
    }

    #[test]
    fn hand_worked_scores() {
        near("The grey harbour, at dawn!", &["grey harbour at dawn"], 1.0);
        // Words 3 of 4, pairs 2 of 3, triples 1 of 2, no quadruple: 1/2 of 1.
        near("grey harbour at night", &["grey harbour at dawn"], (0.75 * (2.0 / 3.0) * 0.5 * 0.5_f64).powf(0.25));
        // Two orders without a match: 1/2 of 2 pairs, 1/4 of 1 triple. N is 3.
        near("dawn grey fog", &["grey dawn"], (2.0 / 3.0 * 0.25 * 0.25_f64).cbrt());
        // One word of four: BP is exp(1 - 4) and N is 1.
        near("dawn", &["grey harbour at dawn"], (-3.0_f64).exp());
        // A word counts as often as in the reference that has it most often: 2 of 3.
        near("fog fog fog", &["fog lifts", "fog on fog"], (2.0 / 3.0 * 0.25 * 0.25_f64).cbrt());
        near("rain", &["grey harbour at dawn"], 0.0);
    }

    #[test]
    fn the_nearest_reference_sets_the_length() {
        // Of 2 and 4 words both are one away from 3: the shorter one counts, so there is no penalty.
        near("grey dawn fog", &["grey dawn", "grey dawn fog bank"], 1.0);
        near("grey dawn fog", &["grey dawn fog bank"], (1.0 - 4.0 / 3.0_f64).exp());
    }

    #[test]
    fn texts_without_words() {
        near("", &["the"], 1.0);
        near("", &["dawn"], 0.0);
        near("dawn", &[], 0.0);
        near("dawn", &["the"], 0.0);
        // A reference without words is not the nearest one to a single word.
        near("dawn", &["the", "grey dawn"], (-1.0_f64).exp());
    }

    proptest! {
        #[test]
        fn scores_are_bounded_and_a_copy_is_whole(
            text in "[a-d ]{0,24}", references in proptest::collection::vec("[a-d ]{0,24}", 1..4)
        ) {
            let value = bleu(&text, &references);
            prop_assert!((0.0..=1.0).contains(&value), "{}", value);
            let mut turned = references.clone();
            turned.reverse();
            prop_assert!((bleu(&text, &turned) - value).abs() < 1e-12, "the order of the references does not count");
            let mut with_copy = references.clone();
            with_copy.push(text.clone());
            prop_assert!((bleu(&text, &with_copy) - 1.0).abs() < 1e-12);
            // Without a common word, and only then, nothing is scored.
            let shares = lexical::token_f1(&text, &references) > 0.0;
            prop_assert_eq!(value > 0.0, shares);
        }
    }
}
