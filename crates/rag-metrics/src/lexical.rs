//! Lexical scores of an answer against reference answers: in [0, 1], the best over the references.
//!
//! Texts are normalised as in the SQuAD evaluation (Rajpurkar et al., 2016): lower case, without ASCII punctuation, without the
//! words a, an and the, with single spaces. [`accuracy`] does not normalise in this way, because a class label may be an
//! article ("A") or a sign.
//!
//! | measure | value |
//! |---|---|
//! | [`exact_match`] | 1 if the words are the same |
//! | [`token_f1`] | harmonic mean of precision and recall of the words, each occurrence counted once |
//! | [`rouge_l`] | F with beta = 1 over the longest common subsequence of words (Lin, 2004) |
//! | [`contains`] | 1 if the words of a reference are a contiguous part of the text |
//! | [`accuracy`] | 1 if text and label are the same, ignoring case and outer punctuation |
//!
//! BLEU, which takes all references together, is in [`super::bleu`].
//!
//! Without references every score is 0. If text or reference has no words, F1 and ROUGE-L are 1 if neither has any (as in
//! SQuAD 2.0), else 0. A reference without words is contained in no text.

use std::collections::HashMap;

use numeric::real;

/// The normalised words of a text.
#[must_use]
pub fn words(text: &str) -> Vec<String> {
    let plain: String = text.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    // A word may end at punctuation that is not ASCII.
    let mut kept = String::with_capacity(plain.len());
    let mut rest = plain.as_str();
    while let Some(first) = rest.chars().next() {
        let inside = first.is_alphanumeric();
        let end = rest.find(|c: char| c.is_alphanumeric() != inside).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        kept.push_str(if matches!(run, "a" | "an" | "the") { " " } else { run });
        rest = after;
    }
    kept.split_whitespace().map(str::to_owned).collect()
}

fn best(text: &str, references: &[String], score: impl Fn(&[String], &[String]) -> f64) -> f64 {
    let text = words(text);
    references.iter().map(|reference| score(&text, &words(reference))).fold(0.0, f64::max)
}

fn truth(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

fn harmonic(common: usize, left: &[String], right: &[String]) -> f64 {
    if left.is_empty() || right.is_empty() {
        return truth(left.is_empty() && right.is_empty());
    }
    2.0 * real(common) / real(left.len() + right.len())
}

/// 1 if the normalised words equal those of a reference.
#[must_use]
pub fn exact_match(text: &str, references: &[String]) -> f64 {
    best(text, references, |text, reference| truth(text == reference))
}

/// F1 over the normalised words.
#[must_use]
pub fn token_f1(text: &str, references: &[String]) -> f64 {
    best(text, references, |text, reference| {
        let mut left: HashMap<&str, usize> = HashMap::new();
        for word in reference {
            *left.entry(word).or_default() += 1;
        }
        let mut common = 0;
        for word in text {
            if let Some(count) = left.get_mut(word.as_str()).filter(|count| **count > 0) {
                *count -= 1;
                common += 1;
            }
        }
        harmonic(common, text, reference)
    })
}

/// ROUGE-L, F with beta = 1. Time grows with the product of the numbers of words.
#[must_use]
pub fn rouge_l(text: &str, references: &[String]) -> f64 {
    best(text, references, rouge_l_of)
}

/// [`rouge_l`] of normalised words. Symmetric.
#[must_use]
pub fn rouge_l_of(text: &[String], reference: &[String]) -> f64 {
    // One row of the table of longest common subsequences.
    let mut row = vec![0; reference.len() + 1];
    for word in text {
        let mut diagonal = 0;
        for (at, other) in reference.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = if word == other { diagonal + 1 } else { above.max(row[at]) };
            diagonal = above;
        }
    }
    harmonic(row[reference.len()], text, reference)
}

/// 1 if the words of a reference are a contiguous part of the text.
#[must_use]
pub fn contains(text: &str, references: &[String]) -> f64 {
    Sought::new(references).found_in(text)
}

/// References to search for in several texts, normalised once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sought(Vec<String>);

impl Sought {
    /// References without words are in no text.
    #[must_use]
    pub fn new(references: &[String]) -> Self {
        let words = references.iter().map(|reference| words(reference));
        Self(words.filter(|words| !words.is_empty()).map(|words| joined(&words)).collect())
    }

    /// As [`contains`].
    #[must_use]
    pub fn found_in(&self, text: &str) -> f64 {
        // The time of the search grows with the sum of the lengths, not with their product.
        let text = joined(&words(text));
        truth(self.0.iter().any(|reference| text.contains(reference)))
    }
}

/// Words between spaces, which no word contains.
fn joined(words: &[String]) -> String {
    format!(" {} ", words.join(" "))
}

/// 1 if the text is one of the labels, ignoring case, outer white space and outer punctuation.
#[must_use]
pub fn accuracy(text: &str, labels: &[String]) -> f64 {
    let bare = |text: &str| {
        let lower = text.trim().to_lowercase();
        let inner = lower.trim_matches(|c: char| c.is_ascii_punctuation() || c.is_whitespace());
        // A label may consist of punctuation only ("+").
        if inner.is_empty() { lower } else { inner.to_owned() }
    };
    let text = bare(text);
    truth(labels.iter().any(|label| bare(label) == text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(references: &[&str]) -> Vec<String> {
        references.iter().map(|&reference| reference.to_owned()).collect()
    }

    #[test]
    fn words_are_normalised_as_in_squad() {
        assert_eq!(words("The  Cat's an \"A\" student."), ["cats", "student"]);
        // An article next to a dash outside ASCII is still a word; one inside a word is not.
        assert_eq!(words("the–end theory"), ["–end", "theory"]);
        assert!(words(" the, A! ").is_empty());
    }

    #[test]
    fn hand_worked_scores() {
        assert_eq!(exact_match("The Eiffel Tower!", &of(&["tower", "eiffel tower"])).to_bits(), 1.0_f64.to_bits());
        // 2 common words of 3 and 4.
        assert!((token_f1("big red dog", &of(&["red dog runs fast"])) - 4.0 / 7.0).abs() < 1e-15);
        // A word twice in the text and once in the reference counts once.
        assert!((token_f1("red red", &of(&["red dog"])) - 0.5).abs() < 1e-15);
        // Longest common subsequence "police killed gunman", with the words in different order.
        assert!((rouge_l("police killed the gunman", &of(&["police then killed one gunman"])) - 0.75).abs() < 1e-15);
        assert!((rouge_l("gunman killed police", &of(&["police killed gunman"])) - 1.0 / 3.0).abs() < 1e-15);
        assert!(contains("It was Linda Davis, who sang", &of(&["linda davis"])) > 0.5);
        assert!(contains("a startling smart", &of(&["art"])) < 0.5);
        assert!(accuracy("(A).", &of(&["a"])) > 0.5 && accuracy("A B", &of(&["a"])) < 0.5);
        assert!(accuracy("+", &of(&["-", "+"])) > 0.5 && accuracy("+", &of(&["-"])) < 0.5);
    }

    #[test]
    fn nothing_is_like_nothing_only() {
        for measure in [token_f1, rouge_l] {
            assert!(measure("the", &of(&["a"])) > 0.5);
            assert!(measure("", &of(&["cat"])) < 0.5 && measure("cat", &of(&["the"])) < 0.5);
            assert!(measure("cat", &[]) < 0.5);
        }
        assert!(contains("the cat", &of(&["the"])) < 0.5);
    }

    proptest::proptest! {
        #[test]
        fn containment_is_that_of_consecutive_words(text in "[ab ]{0,12}", reference in "[ab ]{0,5}") {
            let (words, wanted) = (words(&text), words(&reference));
            let plain = !wanted.is_empty() && words.windows(wanted.len()).any(|window| window == wanted);
            proptest::prop_assert_eq!(contains(&text, &of(&[&reference])) > 0.5, plain);
        }
    }

    #[test]
    fn scores_are_bounded_and_exact_match_is_the_least() {
        let texts = ["", "the cat", "cat sat mat", "mat sat cat", "a cat sat on the mat", "CAT."];
        for text in texts {
            for reference in texts {
                let references = of(&[reference]);
                let (f1, rouge) = (token_f1(text, &references), rouge_l(text, &references));
                assert!((0.0..=1.0).contains(&f1) && (0.0..=1.0).contains(&rouge));
                assert!(rouge <= f1 + 1e-15, "{text:?} {reference:?}");
                assert!(exact_match(text, &references) <= rouge);
                assert!((f1 - token_f1(reference, &of(&[text]))).abs() < 1e-15);
            }
        }
    }
}
