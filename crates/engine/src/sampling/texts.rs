//! Texts for the entailment model; each is stored once, even if many pairs hold it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::types::EngineError;
use prefix_scheduler::model::entailment::TextPair;

/// Most bytes of the distinct texts of one request. The question precedes each of them, so a small message could
/// expand to many times its size.
const MOST_BYTES: usize = 64 << 20;

/// Distinct texts, numbered, each after the question.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    question: Option<String>,
    numbers: HashMap<Arc<str>, usize>,
    texts: Vec<Arc<str>>,
    bytes: usize,
}

impl Texts {
    /// No texts yet. `question`, if any, will precede each of them.
    pub fn after(question: Option<&str>) -> Self {
        let question = question.map(|question| {
            let plain = question.trim();
            if plain.ends_with('?') { plain.to_owned() } else { format!("{plain}?") }
        });
        Self { question, ..Self::default() }
    }

    /// True if a question precedes each text.
    pub const fn have_question(&self) -> bool {
        self.question.is_some()
    }

    /// The number of a text. Texts that are equal after the question have the same number.
    pub fn number(&mut self, text: &str) -> Result<usize, EngineError> {
        let text: Arc<str> = match &self.question {
            Some(question) => format!("{question} {text}").trim_end().into(),
            None => text.into(),
        };
        if let Some(number) = self.numbers.get(&text) {
            return Ok(*number);
        }
        self.bytes += text.len();
        if self.bytes > MOST_BYTES {
            let problem = format!("the texts take more than {MOST_BYTES} bytes with the question before each");
            return Err(EngineError::invalid("question", problem));
        }
        let number = self.texts.len();
        self.numbers.insert(Arc::clone(&text), number);
        self.texts.push(text);
        Ok(number)
    }

    /// Premise and hypothesis by number.
    pub fn pair(&self, (premise, hypothesis): (usize, usize)) -> TextPair {
        let question = self.question.as_ref().map_or(0, String::len);
        TextPair {
            premise: Arc::clone(&self.texts[premise]),
            hypothesis: Arc::clone(&self.texts[hypothesis]),
            question,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_stored_once_after_the_question() {
        let mut texts = Texts::after(Some(" who "));
        let numbers: Vec<usize> = ["a", "b", "a", "a "].iter().map(|text| texts.number(text).unwrap()).collect();
        assert_eq!(numbers, [0, 1, 0, 0]);
        assert_eq!(&*texts.pair((1, 0)).premise, "who? b");
        assert_eq!(&*texts.pair((1, 0)).hypothesis, "who? a");
        assert_eq!(&texts.pair((1, 0)).premise[..texts.pair((1, 0)).question], "who?");
        assert_eq!(&*Texts::after(None).question.unwrap_or_default(), "");
    }

    /// A message of 16 MB with a long question and many short texts took 64 GB.
    #[test]
    fn a_long_question_before_many_texts_is_refused() {
        let mut texts = Texts::after(Some(&"q".repeat(16_384)));
        let refused = (0..10_000).find_map(|number: usize| texts.number(&number.to_string()).err()).unwrap();
        assert!(refused.to_string().starts_with("question: the texts take more than"), "{refused}");
        assert!(texts.texts.len() < 5_000);
    }
}
