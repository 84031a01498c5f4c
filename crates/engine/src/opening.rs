//! What a caller puts before the passages: an instruction in place of the built-in one, and worked examples.
//!
//! Both stand in the opening of a prompt, its first segment, which all prompts of a request share. The generator keeps it as
//! it keeps the built-in ones: a later request with the same texts does not evaluate it again.

use super::methods::query_prompt;
use super::prompt::{Language, PassageTokens};
use super::{EngineError, Limits};
use prefix_scheduler::plan::{Segment, Token};

/// Most characters of an instruction.
pub const MOST_CHARACTERS: usize = 4_000;

/// Most examples.
pub const MOST_EXAMPLES: usize = 16;

/// A calibration that was passed over.
pub(super) const NOT_CALIBRATED: &str = "this method's calibration was measured with the built-in prompt and is not applied \
                                         to a request with an instruction or examples";

/// A position profile of the question that was passed over.
pub(super) const NO_PROFILE: &str = "position profiles of the question were measured with the built-in prompt and are not \
                                     applied to a request with an instruction or examples: the context order is best first";

/// A passage and the query that it answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Example {
    /// Title of the passage, set before its text; may be empty.
    pub title: String,
    /// Text of the passage; not empty.
    pub passage: String,
    /// The query; not empty.
    pub query: String,
}

/// A caller's instruction and examples. The default is the built-in instruction without examples.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Opening {
    /// Replaces the built-in instruction; blank to keep it.
    pub instruction: String,
    /// Follow the instruction, each as a prompt of one passage with its query.
    pub examples: Vec<Example>,
}

impl Opening {
    /// Whether the caller set nothing.
    #[must_use]
    pub fn is_built_in(&self) -> bool {
        self.instruction.trim().is_empty() && self.examples.is_empty()
    }

    /// The request's field that an error names.
    pub(super) const fn field(&self) -> &'static str {
        if self.examples.is_empty() { "instruction" } else { "examples" }
    }

    /// Bytes of its texts.
    pub(super) fn bytes(&self) -> usize {
        let example = |example: &Example| example.title.len() + example.passage.len() + example.query.len();
        self.examples.iter().map(example).fold(self.instruction.len(), usize::saturating_add)
    }

    /// Refuses what no server takes: too many characters or examples, and blank texts.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the field.
    pub fn check_texts(&self) -> Result<(), EngineError> {
        let characters = self.instruction.chars().count();
        if characters > MOST_CHARACTERS {
            let problem = format!("{characters} characters given, at most {MOST_CHARACTERS} allowed");
            return Err(EngineError::invalid("instruction", problem));
        }
        if self.examples.len() > MOST_EXAMPLES {
            let problem = format!("{} given, at most {MOST_EXAMPLES} allowed", self.examples.len());
            return Err(EngineError::invalid("examples", problem));
        }
        for (index, example) in self.examples.iter().enumerate() {
            for (field, text) in [("passage", &example.passage), ("query", &example.query)] {
                if text.trim().is_empty() {
                    return Err(EngineError::invalid(format!("examples[{index}].{field}"), "must not be empty"));
                }
            }
        }
        Ok(())
    }

    /// [`Opening::check_texts`], and within the limits of a server: the texts together are at most as long as a passage may
    /// be.
    pub(super) fn check(&self, limits: &Limits) -> Result<(), EngineError> {
        self.check_texts()?;
        for (index, example) in self.examples.iter().enumerate() {
            if example.query.len() > limits.query_bytes {
                let problem = format!("{} bytes given, at most {} allowed", example.query.len(), limits.query_bytes);
                return Err(EngineError::invalid(format!("examples[{index}].query"), problem));
            }
        }
        if !self.is_built_in() && self.bytes() > limits.passage_bytes {
            let problem = format!("{} bytes given in all, at most {} allowed", self.bytes(), limits.passage_bytes);
            return Err(EngineError::invalid(self.field(), problem));
        }
        Ok(())
    }

    /// The warning that an opening is too large to be kept in the generator's cache, if it is. `language` is that of the
    /// generator, `largest` its scheduler's largest opening in tokens.
    pub(super) fn not_kept(&self, language: &Language, largest: Option<usize>) -> Option<String> {
        let tokens = if self.is_built_in() { 0 } else { query_prompt::opening_tokens(self, language) };
        let largest = largest.filter(|largest| tokens > *largest)?;
        Some(format!(
            "the instruction and examples take {tokens} tokens and are evaluated again for every request: an opening of at most \
             {largest} tokens is kept, an eighth of generator.context_tokens"
        ))
    }

    /// The first segment of a prompt whose query stands after `cue`. `built_in` ends in an empty line, as the caller's
    /// instruction and each example do.
    pub(super) fn segment(&self, language: &Language, built_in: &str, cue: &str) -> Segment {
        let opening = match self.instruction.trim() {
            "" => language.opening(built_in),
            own => language.opening(&format!("{own}\n\n")),
        };
        if self.examples.is_empty() {
            return opening;
        }
        let (cue, end) = (language.text(cue), language.text("\n\n"));
        let example = |example: &Example| -> Vec<Token> {
            let passage = PassageTokens::new(language.tokenizer.as_ref(), &example.title, &example.passage);
            [&passage.cut(usize::MAX).0[..], &cue, &language.query(&example.query), &end].concat()
        };
        let examples = self.examples.iter().flat_map(example);
        Segment::context(opening.tokens.iter().copied().chain(examples).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::prompt::Frame;
    use prefix_scheduler::model::Tokenizer;
    use prefix_scheduler::scripted::ByteTokenizer;

    const LIMITS: Limits = Limits { query_bytes: 10, ..Limits::WIDE };

    fn example(title: &str, passage: &str, query: &str) -> Example {
        Example { title: title.into(), passage: passage.into(), query: query.into() }
    }

    fn text(opening: &Opening) -> String {
        let frame = Some(("<u>".to_owned(), "</u>".to_owned()));
        let language = Language::new(Arc::new(ByteTokenizer { frame }), Frame::Chat);
        let segment = opening.segment(&language, "Read.\n\n", "Question:");
        assert_eq!(segment.scored_from, None);
        ByteTokenizer::default().detokenize(&segment.tokens)
    }

    #[test]
    fn the_instruction_is_replaced_and_examples_are_written_as_the_prompt() {
        assert_eq!(text(&Opening::default()), "<u>Read.\n\n");
        let blank = Opening { instruction: " \n".into(), ..Opening::default() };
        assert!(blank.is_built_in());
        assert_eq!(text(&blank), "<u>Read.\n\n");
        let own = Opening { instruction: " Write a claim. ".into(), ..Opening::default() };
        assert!(!own.is_built_in());
        assert_eq!(text(&own), "<u>Write a claim.\n\n");
        let examples = vec![example("", " It rained. ", " weather? "), example("Mill", "It turns.", "what turns?")];
        let both = Opening { examples, ..own };
        let expected = "<u>Write a claim.\n\nDocument: It rained.\n\nQuestion: weather?\n\n\
                        Document: (Mill) It turns.\n\nQuestion: what turns?\n\n";
        assert_eq!(text(&both), expected);
        let kept = Opening { instruction: String::new(), ..both };
        assert!(text(&kept).starts_with("<u>Read.\n\nDocument: It rained.") && !kept.is_built_in());
    }

    #[test]
    fn an_opening_that_is_too_large_to_be_kept_is_told() {
        let language = Language::new(Arc::new(ByteTokenizer::default()), Frame::Plain);
        let opening = Opening { instruction: "x".repeat(98), ..Opening::default() };
        let tokens = query_prompt::opening_tokens(&opening, &language);
        assert_eq!(opening.not_kept(&language, Some(tokens)), None);
        let warning = opening.not_kept(&language, Some(tokens - 1)).unwrap();
        assert!(warning.contains(&format!("take {tokens} tokens")), "{warning}");
        assert_eq!(Opening::default().not_kept(&language, Some(1)), None, "the built-in opening is the server's own");
    }

    #[test]
    fn bounds_name_the_field() {
        let of = |opening: Opening| opening.check(&LIMITS).unwrap_err().to_string();
        let long = |characters: usize| Opening { instruction: "ä".repeat(characters), ..Opening::default() };
        long(MOST_CHARACTERS).check(&LIMITS).unwrap();
        assert_eq!(of(long(MOST_CHARACTERS + 1)), "instruction: 4001 characters given, at most 4000 allowed");
        let with = |examples: Vec<Example>| Opening { examples, ..Opening::default() };
        let good = example("", "p", "q");
        with(vec![good.clone(); MOST_EXAMPLES]).check(&LIMITS).unwrap();
        assert_eq!(of(with(vec![good.clone(); MOST_EXAMPLES + 1])), "examples: 17 given, at most 16 allowed");
        assert_eq!(of(with(vec![good.clone(), example("t", " ", "q")])), "examples[1].passage: must not be empty");
        assert_eq!(of(with(vec![example("t", "p", "")])), "examples[0].query: must not be empty");
        assert!(of(with(vec![example("", "p", &"q".repeat(11))])).starts_with("examples[0].query: 11 bytes given"));
        let large = example("", &"p".repeat(30_000), "q");
        with(vec![large.clone()]).check(&LIMITS).unwrap();
        assert!(of(with(vec![large; 2])).starts_with("examples: 60002 bytes given in all, at most 60000"));
        Opening::default().check(&Limits { passage_bytes: 0, ..LIMITS }).unwrap();
    }
}
