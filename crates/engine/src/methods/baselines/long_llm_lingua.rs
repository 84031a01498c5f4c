//! LongLLMLingua's r_k: how likely the question is after a single passage.
//!
//! As in the authors' program (`get_distance_longllmlingua`): the mean log-likelihood of the question and a fixed
//! sentence after the passage, highest first. Without the sentence, NaturalQuestions falls from 77.2 to 75.1
//! (LongLLMLingua, Table 3). MOI section 4.1 prints Σ P·log P instead, which scores impossible tokens best.

use std::sync::Arc;

use super::super::{Method, Pointwise, Prompt, PromptShape, Ranking, Scores, Task};
use crate::prompt::Language;
use crate::types::{EngineError, RerankRequest};
use numeric::mean;
use prefix_scheduler::plan::{Segment, Token};

/// The restrictive sentence (LongLLMLingua, section 4.1).
const SENTENCE: &str = " We can get the answer to this question in the given documents.";

/// Utility in nats per token. Raw concatenation without a chat template, as in the authors' program.
pub(super) struct LongLlmLingua;

/// The beginning-of-sequence token, so that the first passage token has a predecessor.
fn prefix(language: &Language) -> Vec<Token> {
    language.tokenizer.template("", true)
}

impl Method for LongLlmLingua {
    fn name(&self) -> &'static str {
        "long-llm-lingua"
    }

    fn has_frame(&self) -> bool {
        false
    }

    fn summary(&self) -> &'static str {
        "mean log P(query and a fixed sentence | passage), each passage alone (LongLLMLingua's r_k)"
    }

    fn prompts(&self, _: &RerankRequest, language: &Language) -> Option<PromptShape> {
        let overhead = prefix(language).len() + language.text(SENTENCE).len();
        Some(PromptShape { longest: 1, overhead })
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let language = task.language()?;
        let prefix = prefix(language);
        let has_beginning = !prefix.is_empty();
        let begin = Segment::context(prefix);
        let question = [task.query.clone(), language.text(SENTENCE)].concat();
        // A passage's last token scores the question's first. The rest of the passage is the same for every
        // question.
        let prompt = |passage: &Arc<[Token]>| {
            let (before, last) = passage.split_at(passage.len().saturating_sub(1));
            let rest = Segment::scored([last, &question].concat(), last.len());
            Prompt::scored(vec![begin.clone(), Segment::context(before), rest])
        };
        let prompts = task.passages.iter().map(prompt).collect();
        let none = Prompt::scored(vec![begin.clone(), Segment::scored(question.clone(), 0)]);
        let utility = |scores: &Scores, prompt: usize| mean(scores.last(prompt));
        // Without a token before it, the question's first token has no probability, and every question is unlikely
        // in an empty prompt: such a zero would be meaningless.
        let ranking = if has_beginning { Pointwise::against } else { Pointwise::shifted };
        Ok(ranking(none, task, prompts, 1.0, utility))
    }
}
