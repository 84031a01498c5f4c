//! Where sentences end: UAX #29, but not after an abbreviation or an initial.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use super::{borders, is_function_word};

/// Abbreviations, in lower case, after which a sentence goes on.
const ABBREVIATIONS: &[&str] = &[
    "mr", "mrs", "ms", "dr", "prof", "st", "mt", "vs", "jr", "sr", "inc", "ltd", "co", "corp", "gen", "col", "capt",
    "lt", "rev", "hon", "fig", "vol", "approx", "ca", "cf", "al", "sgt", "gov", "sen", "bros",
];

/// Abbreviations after which a sentence goes on where a number follows ("No. 1", "Mar. 3"), because they are words, too.
const BEFORE_NUMBERS: &[&str] = &[
    "no", "nos", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sept", "oct", "nov", "dec", "pp", "art", "ch", "op",
];

/// Most characters in a row without a letter or a digit that are read as one text.
pub(super) const LONGEST_RUN: usize = 64;

/// The text cut behind each [`LONGEST_RUN`] characters in a row without a letter or a digit, with where each part begins. The
/// search for the end of a sentence looks ahead from every closing mark and space behind a full stop, to the next letter: without
/// the cuts its time grows with the square of their number.
pub(super) fn windows(text: &str) -> Vec<(usize, &str)> {
    let (mut windows, mut start, mut run) = (Vec::new(), 0, 0);
    for (at, character) in text.grapheme_indices(true) {
        if character.starts_with(char::is_alphanumeric) {
            run = 0;
        } else if run == LONGEST_RUN {
            windows.push((start, &text[start..at]));
            (start, run) = (at, 1);
        } else {
            run += 1;
        }
    }
    windows.push((start, &text[start..]));
    windows
}

/// The white space between the sentences of a text, as byte ranges. A line break ends a sentence, too.
#[must_use]
pub fn sentences(text: &str) -> Vec<Range<usize>> {
    let starts = windows(text)
        .into_iter()
        .flat_map(|(start, window)| window.split_sentence_bound_indices().map(move |(at, _)| start + at));
    let breaks = starts.skip(1).collect();
    let mut borders = borders(text, breaks);
    borders.retain(|border| {
        let new_line = text[border.clone()].contains(['\n', '\r']);
        new_line || !is_abbreviated(&text[..border.start], &text[border.end..])
    });
    borders
}

/// Whether the text before a border ends with an initial ("J."), short parts with dots ("U.S.", "Ph.D.") or one of
/// [`ABBREVIATIONS`].
fn is_abbreviated(before: &str, after: &str) -> bool {
    let Some(word) = before.strip_suffix('.') else { return false };
    let longest = 10;
    let is_part = |letter: &char| letter.is_alphabetic() || *letter == '.';
    let mut letters: Vec<char> = word.chars().rev().take(longest).take_while(is_part).collect();
    letters.reverse();
    let initial = letters.len() == 1 && letters[0].is_uppercase() && !ends_a_sentence(word, after);
    let word: String = letters.iter().collect();
    let parts = word.trim_end_matches('.');
    // The parts of a domain ("mill.org") are longer.
    let dotted = parts.contains('.') && parts.split('.').all(|part| (1..=2).contains(&part.chars().count()));
    let (lower, number) = (word.to_lowercase(), after.starts_with(|first: char| first.is_ascii_digit()));
    // "U.S.." is the end of a sentence that lost what stood between the two stops.
    let dotted = dotted && !word.ends_with('.');
    initial || dotted || ABBREVIATIONS.contains(&lower.as_str()) || number && BEFORE_NUMBERS.contains(&lower.as_str())
}

/// Characters before an initial in which a name is looked for. In a text without white space the way to its beginning would be
/// walked for every initial.
const NAME: usize = 64;

/// Whether a text that ends with a capital ends its sentence there ("vitamin C. It"): a function word follows, and no name stands
/// before ("George F. Will").
fn ends_a_sentence(word: &str, after: &str) -> bool {
    let capital = word.chars().next_back().map_or(0, char::len_utf8);
    let before = &word[..word.len() - capital];
    let from = before.char_indices().rev().take(NAME).last().map_or(before.len(), |(at, _)| at);
    let name = before[from..].split_whitespace().next_back();
    let next = after.trim_start_matches(|letter: char| !letter.is_alphanumeric());
    let end = next.find(|letter: char| !letter.is_alphabetic()).unwrap_or(next.len());
    // Another initial ("by S. A. Rowe") is no function word.
    let another = next[end..].starts_with('.');
    !another && is_function_word(&next[..end]) && !name.is_some_and(|name| name.starts_with(char::is_uppercase))
}
