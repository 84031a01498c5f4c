//! The prompt that asks for the question which passages answer (question generation; Sachan et al., 2022).
//!
//! ```text
//! [opening: chat frame, instruction] [passage]* [cue: closing of the frame, "Question:"] [query, scored]
//! ```

use std::sync::Arc;

use super::{Prompt, Task};
use crate::engine::EngineError;
use crate::engine::prompt::Language;
use crate::plan::{Segment, Token};

const INSTRUCTION: &str = "Read the documents and write the question that they answer.\n\n";
const CUE: &str = "Question:";

/// Tokens of the prompt that are neither passage nor query.
pub(super) fn overhead(language: &Language) -> usize {
    language.opening(INSTRUCTION).tokens.len() + cue(language).len()
}

fn cue(language: &Language) -> Vec<Token> {
    [language.closing(), &language.text(CUE)].concat()
}

/// The parts of the prompt for one request.
pub(super) struct QueryPrompt {
    opening: Segment,
    query: Segment,
}

impl QueryPrompt {
    pub fn new(task: &Task) -> Result<Self, EngineError> {
        let language = task.language()?;
        let cue = cue(language);
        let tokens: Vec<Token> = cue.iter().chain(&task.query).copied().collect();
        Ok(Self { opening: language.opening(INSTRUCTION), query: Segment::scored(tokens, cue.len()) })
    }

    /// The prompt with the passages of `order`. The query's own tokens are scored, the passages where `joint`.
    pub fn with(&self, task: &Task, order: &[usize], joint: bool) -> Prompt {
        let passage = |&index: &usize| {
            let tokens = Arc::clone(&task.passages[index]);
            if joint { Segment::scored(tokens, 0) } else { Segment::context(tokens) }
        };
        let opening = std::iter::once(self.opening.clone());
        let segments = opening.chain(order.iter().map(passage)).chain(std::iter::once(self.query.clone()));
        Prompt { segments: segments.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::ByteTokenizer;

    #[test]
    fn only_the_query_is_scored() {
        let language = Language::new(Arc::new(ByteTokenizer::default()), false);
        let query = language.query("who?");
        let task = Task {
            request: crate::engine::rerank::RerankRequest::default(),
            language: Some(language),
            passages: vec![vec![1, 2, 3].into()],
            query,
        };
        let prompt = QueryPrompt::new(&task).unwrap().with(&task, &[0], false);
        let scored: Vec<usize> =
            prompt.segments.iter().map(|s| s.scored_from.map_or(0, |from| s.tokens.len() - from)).collect();
        assert_eq!(scored, vec![0, 0, " who?".len()]);
        let joint = QueryPrompt::new(&task).unwrap().with(&task, &[0], true);
        assert_eq!(joint.segments[1].scored_from, Some(0));
    }
}
