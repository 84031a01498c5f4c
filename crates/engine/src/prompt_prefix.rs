//! The caller's text before the passages: an instruction that replaces the built-in one, and worked examples.
//!
//! Both are in the prompt prefix, the first segment, which all prompts of a request share. Like a built-in prefix
//! it is cached: a later request with the same texts does not evaluate it again.

use super::prompt::{Language, PassageTokens};
use crate::types::{Example, PromptPrefix};
use prefix_scheduler::plan::{Segment, Token};

impl PromptPrefix {
    /// The first segment of a prompt whose query follows `cue`. `built_in` ends in an empty line, as do the
    /// caller's instruction and each example.
    pub(super) fn segment(&self, language: &Language, built_in: &str, cue: &str) -> Segment {
        let prefix = match self.instruction.trim() {
            "" => language.prefix(built_in),
            own => language.prefix(&format!("{own}\n\n")),
        };
        if self.examples.is_empty() {
            return prefix;
        }
        let (cue, end) = (language.text(cue), language.text("\n\n"));
        let example = |example: &Example| -> Vec<Token> {
            let passage = PassageTokens::new(language.tokenizer.as_ref(), &example.title, &example.passage);
            [&passage.cut(usize::MAX).0[..], &cue, &language.query(&example.query), &end].concat()
        };
        let examples = self.examples.iter().flat_map(example);
        Segment::context(prefix.tokens.iter().copied().chain(examples).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use crate::methods::query_prompt;
    use std::sync::Arc;

    use super::*;
    use crate::types::{Limits, MOST_CHARACTERS, MOST_EXAMPLES};
    use prefix_scheduler::model::PromptFormat;
    use prefix_scheduler::model::Tokenizer;
    use prefix_scheduler::scripted::ByteTokenizer;

    const LIMITS: Limits = Limits { query_bytes: 10, ..Limits::WIDE };

    fn example(title: &str, passage: &str, query: &str) -> Example {
        Example { title: title.into(), passage: passage.into(), query: query.into() }
    }

    fn text(prefix: &PromptPrefix) -> String {
        let frame = Some(("<u>".to_owned(), "</u>".to_owned()));
        let language = Language::new(Arc::new(ByteTokenizer { frame }), PromptFormat::Chat);
        let segment = prefix.segment(&language, "Read.\n\n", "Question:");
        assert_eq!(segment.scored_from, None);
        ByteTokenizer::default().detokenize(&segment.tokens)
    }

    #[test]
    fn the_instruction_is_replaced_and_examples_are_written_as_the_prompt() {
        assert_eq!(text(&PromptPrefix::default()), "<u>Read.\n\n");
        let blank = PromptPrefix { instruction: " \n".into(), ..PromptPrefix::default() };
        assert!(blank.is_built_in());
        assert_eq!(text(&blank), "<u>Read.\n\n");
        let own = PromptPrefix { instruction: " Write a claim. ".into(), ..PromptPrefix::default() };
        assert!(!own.is_built_in());
        assert_eq!(text(&own), "<u>Write a claim.\n\n");
        let examples = vec![example("", " It rained. ", " weather? "), example("Mill", "It turns.", "what turns?")];
        let both = PromptPrefix { examples, ..own };
        let expected = "<u>Write a claim.\n\nDocument: It rained.\n\nQuestion: weather?\n\n\
                        Document: (Mill) It turns.\n\nQuestion: what turns?\n\n";
        assert_eq!(text(&both), expected);
        let kept = PromptPrefix { instruction: String::new(), ..both };
        assert!(text(&kept).starts_with("<u>Read.\n\nDocument: It rained.") && !kept.is_built_in());
    }

    #[test]
    fn an_opening_that_is_too_large_to_be_kept_is_told() {
        let language = Language::new(Arc::new(ByteTokenizer::default()), PromptFormat::Plain);
        let prefix = PromptPrefix { instruction: "x".repeat(98), ..PromptPrefix::default() };
        let tokens = query_prompt::prefix_tokens(&prefix, &language);
        assert_eq!(prefix.not_kept(&language, Some(tokens)), None);
        let warning = prefix.not_kept(&language, Some(tokens - 1)).unwrap();
        assert!(warning.contains(&format!("take {tokens} tokens")), "{warning}");
        assert_eq!(
            PromptPrefix::default().not_kept(&language, Some(1)),
            None,
            "the built-in opening is the server's own"
        );
    }

    #[test]
    fn bounds_name_the_field() {
        let of = |prefix: PromptPrefix| prefix.check(&LIMITS).unwrap_err().to_string();
        let long = |characters: usize| PromptPrefix { instruction: "ä".repeat(characters), ..PromptPrefix::default() };
        long(MOST_CHARACTERS).check(&LIMITS).unwrap();
        assert_eq!(of(long(MOST_CHARACTERS + 1)), "instruction: 4001 characters given, at most 4000 allowed");
        let with = |examples: Vec<Example>| PromptPrefix { examples, ..PromptPrefix::default() };
        let good = example("", "p", "q");
        with(vec![good.clone(); MOST_EXAMPLES]).check(&LIMITS).unwrap();
        assert_eq!(of(with(vec![good.clone(); MOST_EXAMPLES + 1])), "examples: 17 given, at most 16 allowed");
        assert_eq!(of(with(vec![good.clone(), example("t", " ", "q")])), "examples[1].passage: must not be empty");
        assert_eq!(of(with(vec![example("t", "p", "")])), "examples[0].query: must not be empty");
        assert!(of(with(vec![example("", "p", &"q".repeat(11))])).starts_with("examples[0].query: 11 bytes given"));
        let large = example("", &"p".repeat(30_000), "q");
        with(vec![large.clone()]).check(&LIMITS).unwrap();
        assert!(of(with(vec![large; 2])).starts_with("examples: 60002 bytes given in all, at most 60000"));
        PromptPrefix::default().check(&Limits { passage_bytes: 0, ..LIMITS }).unwrap();
    }
}
