//! The prompt that asks which question the passages answer (question generation; Sachan et al., 2022).
//!
//! ```text
//! [prompt prefix: chat template, instruction, examples] [passage]* [cue: end of the chat template, "Question:"] [query, scored]
//! ```
//!
//! The cue is a separate segment, except for its last token, whose logits score the query's first. Every query has
//! the same prefix up to there, so it can be cached. The caller's instruction and examples ([`PromptPrefix`])
//! replace the built-in instruction.

use std::sync::Arc;

use super::{Prompt, Task};
use crate::prompt::Language;
use crate::types::{EngineError, PromptPrefix};
use prefix_scheduler::plan::{Segment, Token};

const INSTRUCTION: &str = "Read the documents and write the question that they answer.\n\n";
const CUE: &str = "Question:";

/// Tokens of the prompt with the built-in prompt prefix that are neither passage nor query.
#[must_use]
pub fn overhead(language: &Language) -> usize {
    overhead_with(&PromptPrefix::default(), language)
}

/// [`overhead`] with the caller's prompt prefix.
pub(super) fn overhead_with(prefix: &PromptPrefix, language: &Language) -> usize {
    prefix_tokens(prefix, language) + cue(language).len()
}

/// Tokens of the first segment.
pub(crate) fn prefix_tokens(prefix: &PromptPrefix, language: &Language) -> usize {
    prefix.segment(language, INSTRUCTION, CUE).tokens.len()
}

fn cue(language: &Language) -> Vec<Token> {
    [language.closing(), &language.text(CUE)].concat()
}

impl PromptPrefix {
    /// The warning that a prompt prefix is too large for the generator's cache, if it is. `language` is the
    /// generator's, `largest` its scheduler's largest prompt prefix in tokens.
    pub(crate) fn not_kept(&self, language: &Language, largest: Option<usize>) -> Option<String> {
        let tokens = if self.is_built_in() { 0 } else { prefix_tokens(self, language) };
        let largest = largest.filter(|largest| tokens > *largest)?;
        Some(format!(
            "the instruction and examples take {tokens} tokens and are evaluated again for every request: an opening of at most \
             {largest} tokens is kept, an eighth of generator.context_tokens"
        ))
    }
}

/// The parts of the prompt for one query.
#[derive(Debug, Clone)]
pub struct QueryPrompt {
    /// Start of the chat template, instruction and examples.
    pub prefix: Segment,
    /// The cue, and the query's scored tokens.
    pub query: Segment,
}

impl QueryPrompt {
    /// The prompt for a tokenised query ([`Language::query`]), with the built-in prompt prefix.
    #[must_use]
    pub fn new(language: &Language, query: &[Token]) -> Self {
        Self::with_prefix(&PromptPrefix::default(), language, query)
    }

    fn with_prefix(prefix: &PromptPrefix, language: &Language, query: &[Token]) -> Self {
        let cue = cue(language);
        let tokens: Vec<Token> = cue.iter().chain(query).copied().collect();
        Self { prefix: prefix.segment(language, INSTRUCTION, CUE), query: Segment::scored(tokens, cue.len()) }
    }

    pub(super) fn of(task: &Task) -> Result<Self, EngineError> {
        Ok(Self::with_prefix(&task.request.prefix, task.language()?, &task.query))
    }

    /// The prompt with the passages of `order`. The query's own tokens are scored, and the passages if `joint`.
    pub(super) fn with(&self, task: &Task, order: &[usize], joint: bool) -> Prompt {
        let passage = |&index: &usize| {
            let tokens = Arc::clone(&task.passages[index]);
            if joint { Segment::scored(tokens, 0) } else { Segment::context(tokens) }
        };
        Prompt::scored(self.around(order.iter().map(passage)))
    }

    /// The segments of the prompt with these passages.
    pub fn around(&self, passages: impl Iterator<Item = Segment>) -> Vec<Segment> {
        std::iter::once(self.prefix.clone()).chain(passages).chain(self.cue_and_query()).collect()
    }

    fn cue_and_query(&self) -> [Segment; 2] {
        let tokens = &self.query.tokens;
        let from = self.query.scored_from.unwrap_or(0);
        let (cue, rest) = tokens.split_at(from.saturating_sub(1));
        [Segment::context(cue), Segment::scored(rest, from - cue.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prefix_scheduler::model::PromptFormat;
    use prefix_scheduler::model::Tokenizer;
    use prefix_scheduler::scripted::ByteTokenizer;

    #[test]
    fn only_the_query_is_scored() {
        let language = Language::new(Arc::new(ByteTokenizer::default()), PromptFormat::Plain);
        let query = language.query("who?");
        let task = Task {
            request: crate::types::RerankRequest::default(),
            language: Some(language),
            passages: vec![vec![1, 2, 3].into()],
            query,
            mixed_model: None,
        };
        let prompt = QueryPrompt::of(&task).unwrap().with(&task, &[0], false);
        let scored: Vec<usize> =
            prompt.segments.iter().map(|s| s.scored_from.map_or(0, |from| s.tokens.len() - from)).collect();
        assert_eq!(scored, vec![0, 0, 0, " who?".len()]);
        assert_eq!(ByteTokenizer::default().detokenize(&prompt.segments[3].tokens), ": who?", "the cue's last token");
        let joint = QueryPrompt::of(&task).unwrap().with(&task, &[0], true);
        assert_eq!(joint.segments[1].scored_from, Some(0));
    }

    #[test]
    fn the_callers_opening_is_the_first_segment_and_counts_as_overhead() {
        let language = Language::new(Arc::new(ByteTokenizer::default()), PromptFormat::Plain);
        let query = language.query("who?");
        let prefix = PromptPrefix { instruction: "Write a claim.".into(), ..PromptPrefix::default() };
        let request = crate::types::RerankRequest { prefix: prefix.clone(), ..Default::default() };
        let task =
            Task { request, language: Some(language), passages: vec![vec![1, 2].into()], query, mixed_model: None };
        let language = task.language().unwrap();
        let prompt = QueryPrompt::of(&task).unwrap().with(&task, &[0], false);
        let built_in = QueryPrompt::new(language, &task.query);
        assert_eq!(prompt.segments.len(), 4);
        assert_eq!(ByteTokenizer::default().detokenize(&prompt.segments[0].tokens), "Write a claim.\n\n");
        let tokens = |segments: &[Segment]| segments.iter().map(|segment| segment.tokens.to_vec()).collect::<Vec<_>>();
        assert_eq!(tokens(&prompt.segments[2..]), tokens(&built_in.cue_and_query()));
        let shorter = built_in.prefix.tokens.len() - prompt.segments[0].tokens.len();
        assert_eq!(overhead_with(&prefix, language) + shorter, overhead(language));
    }
}
