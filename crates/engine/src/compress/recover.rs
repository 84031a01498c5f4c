//! Subsequence recovery (LongLLMLingua, Algorithm 1): restores quotations from a compressed text to the words of
//! the original.
//!
//! From the left, take the longest run of words of the response that occurs in a compressed text. Replace it by the
//! shortest span of the original that holds the run's words in order, with at most ten words between neighbours. A
//! run without such a span is shortened to its longest beginning that has one. A run ends with its sentence or
//! line. Words are Unicode words, regardless of case; the text between them in the response stays. A run of one
//! word is not replaced. The authors' program also accepts spans that lack some of the words.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use rag_metrics::sentences::sentences;

/// Most words of the original between two neighbours in a run.
const GAP: usize = 10;

/// A text as words, each with its byte range and in lower case.
struct Words<'a> {
    text: &'a str,
    places: Vec<Range<usize>>,
    words: Vec<String>,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Self {
        let (places, words) =
            text.unicode_word_indices().map(|(at, word)| (at..at + word.len(), word.to_lowercase())).unzip();
        Self { text, places, words }
    }

    /// Length of the longest run that begins the given words.
    fn longest(&self, run: &[String]) -> usize {
        let shared = |start: usize| self.words[start..].iter().zip(run).take_while(|(own, word)| own == word).count();
        (0..self.words.len()).map(shared).max().unwrap_or(0)
    }

    /// The number of words in the longest beginning of `run` that a span holds in order, and the text of the
    /// shortest such span; the first if several are as short.
    fn span(&self, run: &[String]) -> Option<(usize, &'a str)> {
        let (first, rest) = run.split_first()?;
        // For each position of the current word, the start of the shortest span that ends there.
        let mut begins: Vec<Option<usize>> =
            self.words.iter().enumerate().map(|(at, word)| (word == first).then_some(at)).collect();
        let mut length = 1;
        for next in rest {
            let step = |at: usize| {
                let near = at.saturating_sub(GAP + 1)..at;
                if self.words[at] == *next { begins[near].iter().flatten().copied().max() } else { None }
            };
            let longer: Vec<Option<usize>> = (0..self.words.len()).map(step).collect();
            if longer.iter().all(Option::is_none) {
                break;
            }
            begins = longer;
            length += 1;
        }
        let spans = begins.iter().enumerate().filter_map(|(end, begin)| begin.map(|begin| (end - begin, begin, end)));
        let (_, begin, end) = spans.min()?;
        Some((length, self.text.get(self.places[begin].start..self.places[end].end)?))
    }
}

/// The response with its quotations from compressed texts restored to the original words. `texts` are pairs of an
/// original and its compressed text.
#[must_use]
pub fn recover(response: &str, texts: &[(&str, &str)]) -> String {
    let texts: Vec<(Words<'_>, Words<'_>)> =
        texts.iter().map(|(original, left)| (Words::new(original), Words::new(left))).collect();
    let said = Words::new(response);
    // A run ends with its sentence or line: otherwise the span would also replace the stop.
    let borders: Vec<usize> = sentences(response).into_iter().map(|border| border.start).collect();
    let end = |at: usize| {
        let border = borders.get(borders.partition_point(|border| *border < said.places[at].end));
        border.map_or(said.words.len(), |border| said.places.partition_point(|place| place.start < *border))
    };
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while at < said.words.len() {
        let rest = &said.words[at..end(at)];
        // The run with the longest part that has a span in its original: a longer run may have a shorter span.
        // Ties: the longest run, then the first text.
        let spans = texts.iter().filter_map(|(original, left)| {
            let run = left.longest(rest);
            let (length, span) = (run > 1).then(|| original.span(&rest[..run])).flatten()?;
            Some((length, run, span))
        });
        let best = spans.reduce(|best, one| if (one.0, one.1) > (best.0, best.1) { one } else { best });
        let span = best.map(|(length, _, span)| (length, span));
        if let Some((length, span)) = span.filter(|(length, _)| *length > 1) {
            out.push_str(&response[copied..said.places[at].start]);
            out.push_str(span);
            copied = said.places[at + length - 1].end;
            at += length;
        } else {
            at += 1;
        }
    }
    out.push_str(&response[copied..]);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ORIGINAL: &str = "The looms of Harrowgate were driven by water from the River Senn, led over a weir.";

    #[test]
    fn a_run_becomes_the_span_of_the_original() {
        let pair = [(ORIGINAL, "looms driven water River Senn")];
        assert_eq!(
            recover("The answer: Looms driven water.", &pair),
            "The answer: looms of Harrowgate were driven by water.",
            "the case is the original's, and the dot the response's"
        );
        assert_eq!(recover("the River Senn", &pair), "the River Senn");
        assert_eq!(recover("Senn alone", &pair), "Senn alone", "one word is no run");
        assert_eq!(recover("", &pair), "");
        assert_eq!(recover("nothing of it", &[]), "nothing of it");
    }

    /// The stop between two sentences that are both quotations was lost, and lines were joined.
    #[test]
    fn a_run_ends_with_its_sentence_and_its_line() {
        let pair = [("Rowe and Kell built the mill.", "Rowe Kell built mill")];
        assert_eq!(recover("It was Rowe. Kell built it.", &pair), "It was Rowe. Kell built it.");
        assert_eq!(recover("Rowe\nKell", &pair), "Rowe\nKell");
        assert_eq!(recover("Rowe, Kell", &pair), "Rowe and Kell");
    }

    /// Only the first text with the longest run was tried.
    #[test]
    fn a_text_without_a_span_leaves_the_run_to_the_next() {
        let far = format!("mill {} Senn", "word ".repeat(11).trim_end());
        assert_eq!(recover("mill Senn", &[(&far, "mill Senn"), ("mill at Senn", "mill Senn")]), "mill at Senn");
    }

    /// The first text has the longer run, but a span for only one word of it.
    #[test]
    fn a_longer_run_without_a_span_does_not_hide_a_shorter_one() {
        let far = format!("mill {} old Senn", "word ".repeat(11).trim_end());
        let texts: [(&str, &str); 2] = [(&far, "mill old Senn"), ("mill at old", "mill old")];
        assert_eq!(recover("mill old Senn", &texts), "mill at old Senn");
    }

    #[test]
    fn the_shortest_span_is_taken() {
        let original = "red one two three four mill, then the red old mill";
        assert_eq!(recover("a red mill", &[(original, "red mill")]), "a red old mill");
        assert_eq!(recover("red mill", &[("red mill and red mill", "red mill red mill")]), "red mill");
    }

    #[test]
    fn a_gap_of_more_than_ten_words_is_not_bridged() {
        let gap = |words: usize| format!("mill {} Senn", "word ".repeat(words).trim_end());
        assert_eq!(recover("mill Senn", &[(&gap(10), "mill Senn")]), gap(10));
        assert_eq!(recover("mill Senn", &[(&gap(11), "mill Senn")]), "mill Senn");
        // From the nearest sufficiently near position of the first word, not from the first.
        let twice = format!("mill {}", gap(4));
        assert_eq!(recover("mill Senn", &[(&twice, "mill Senn")]), gap(4));
    }

    #[test]
    fn a_run_over_a_gap_is_recovered_on_both_sides_of_it() {
        let original = format!("Alpha beta gamma{} delta and epsilon", " word".repeat(12));
        let recovered = |response: &str| recover(response, &[(&original, "Alpha gamma delta epsilon")]);
        assert_eq!(recovered("Alpha gamma delta"), "Alpha beta gamma delta");
        assert_eq!(recovered("Alpha gamma delta epsilon"), "Alpha beta gamma delta and epsilon");
        assert_eq!(recovered("gamma delta epsilon"), "gamma delta and epsilon", "the run begins before the gap");
    }

    #[test]
    fn each_run_comes_from_its_own_text() {
        let pairs = [("one big house", "one house"), ("two small red boats", "two boats")];
        assert_eq!(recover("one house, two boats!", &pairs), "one big house, two small red boats!");
    }

    #[test]
    fn words_without_spaces_between_them() {
        assert_eq!(
            recover("\u{6771}\u{6d77}", &[("\u{6771}\u{4eac}\u{6d77}", "\u{6771}\u{6d77}")]),
            "\u{6771}\u{4eac}\u{6d77}"
        );
    }

    proptest! {
        #[test]
        fn whatever_is_not_quoted_stays(response in "[a-c ,.é]{0,40}", original in "[a-c ,.é]{0,60}") {
            prop_assert_eq!(recover(&response, &[(original.as_str(), "")]), response.clone());
            // A text that was not compressed comes back unchanged except for white space, marks and case.
            let words = |text: &str| text.unicode_words().map(str::to_lowercase).collect::<Vec<_>>();
            let recovered = recover(&response, &[(original.as_str(), original.as_str())]);
            prop_assert_eq!(words(&recovered), words(&response));
        }
    }
}
