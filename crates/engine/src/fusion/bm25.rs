//! BM25 within a list: a retriever's score for passages that have none (Robertson and Zaragoza, 2009).
//!
//! Document frequencies come from the list, unless the caller gives those of its collection. The list is small and
//! was retrieved for the query, so its frequencies are less informative.

use crate::types::Background;
use std::collections::{HashMap, HashSet};

use unicode_segmentation::UnicodeSegmentation;

use numeric::real;

/// Saturation of term frequency.
const K1: f64 = 1.5;
/// Share of length normalisation.
const B: f64 = 0.75;

/// Words in lower case, by the word boundaries of Unicode.
pub fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.unicode_words().map(str::to_lowercase)
}

/// BM25 of each passage; 0 if it holds no word of the query. A word counts as often as the query repeats it.
#[must_use]
pub fn scores(query: &str, passages: &[String], background: Option<&Background>) -> Vec<f64> {
    let wanted: Vec<String> = words(query).collect();
    let known: HashSet<&str> = wanted.iter().map(String::as_str).collect();
    let counts: Vec<(HashMap<String, usize>, usize)> = passages.iter().map(|passage| count(passage, &known)).collect();
    let length = real(counts.iter().map(|(_, length)| length).sum::<usize>()) / real(passages.len().max(1));
    let weight = |word: &str| {
        let (documents, holding) = match background {
            Some(background) => {
                let holding = background.frequencies.get(word).copied().unwrap_or(0);
                (as_real(background.documents), as_real(holding))
            }
            None => {
                let holding = counts.iter().filter(|(counts, _)| counts.contains_key(word)).count();
                (real(passages.len()), real(holding))
            }
        };
        (1.0 + (documents - holding + 0.5) / (holding + 0.5)).ln()
    };
    let weights: Vec<f64> = wanted.iter().map(|word| weight(word)).collect();
    let score = |(counts, own): &(HashMap<String, usize>, usize)| {
        let relative = if length > 0.0 { real(*own) / length } else { 1.0 };
        let term = |(word, weight): (&String, &f64)| {
            let frequency = real(counts.get(word).copied().unwrap_or(0));
            weight * frequency * (K1 + 1.0) / (frequency + K1 * (1.0 - B + B * relative))
        };
        wanted.iter().zip(&weights).map(term).sum()
    };
    counts.iter().map(score).collect()
}

/// How often a passage holds each wanted word, and its length in words.
fn count(passage: &str, wanted: &HashSet<&str>) -> (HashMap<String, usize>, usize) {
    let (mut counts, mut length) = (HashMap::new(), 0);
    for word in words(passage) {
        length += 1;
        if wanted.contains(word.as_str()) {
            *counts.entry(word).or_insert(0) += 1;
        }
    }
    (counts, length)
}

#[expect(clippy::cast_precision_loss, reason = "document counts are far below 2^52")]
const fn as_real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    /// Two passages of two words each; "mill" is in one: weight ln(1 + 1.5 / 1.5) = ln 2, saturation 1.
    #[test]
    fn by_hand() {
        let found = scores("Mill?", &texts(&["the MILL", "the weir"]), None);
        assert!((found[0] - 2.0_f64.ln()).abs() < 1e-12 && found[1] == 0.0, "{found:?}");
        // "the" is in both: ln(1 + 0.5 / 2.5).
        let found = scores("the", &texts(&["the mill", "the weir"]), None);
        assert!((found[0] - 1.2_f64.ln()).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn a_collection_knows_which_words_are_rare() {
        let passages = texts(&["the the the", "mill wheel race"]);
        let frequencies = HashMap::from([("the".to_owned(), 990), ("mill".to_owned(), 3)]);
        let found = scores("the mill", &passages, Some(&Background { documents: 1_000, frequencies }));
        assert!(found[1] > 10.0 * found[0], "{found:?}");
    }

    #[test]
    fn nothing_to_find_is_zero() {
        assert_eq!(scores("", &texts(&["a b"]), None), [0.0]);
        assert_eq!(scores("a", &texts(&["", "..."]), None), [0.0, 0.0]);
        assert_eq!(scores("a", &[], None), Vec::<f64>::new());
    }
}
