//! LongLLMLingua's r_k: how likely the question is after a passage, each passage alone.
//!
//! Three definitions are about. The authors' program (`get_distance_longllmlingua`) takes the mean negative log-likelihood of the
//! question and a fixed sentence after the passage, lowest first: the default here, as the mean log-likelihood, highest
//! first. The sentence matters: without it NaturalQuestions falls from 77.2 to 75.1 (LongLLMLingua, Table 3). MOI section 4.1
//! prints Σ P·log P, which is not monotone: an impossible token scores near 0, the maximum. It stays as a method of its own.

use std::sync::Arc;

use super::query_prompt::{QueryPrompt, overhead_with};
use super::{Method, Pointwise, Prompt, PromptShape, Ranking, Scores, Task};
use crate::EngineError;
use crate::prompt::Language;
use crate::rerank::RerankRequest;
use numeric::{mean, real};
use prefix_scheduler::plan::{Segment, Token};

/// The restrictive sentence (LongLLMLingua, section 4.1).
const SENTENCE: &str = " We can get the answer to this question in the given documents.";

/// Utility in nats a token. Raw concatenation without a chat frame, as in the authors' program.
pub(super) struct LongLlmLingua;

/// The beginning-of-sequence token, without which the first passage token would have no predecessor.
fn opening(language: &Language) -> Vec<Token> {
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
        let overhead = opening(language).len() + language.text(SENTENCE).len();
        Some(PromptShape { longest: 1, overhead })
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let language = task.language()?;
        let opening = opening(language);
        let has_beginning = !opening.is_empty();
        let begin = Segment::context(opening);
        let question = [task.query.clone(), language.text(SENTENCE)].concat();
        // A passage's last token scores the question's first. Apart from it, the passage is the same for every question.
        let prompt = |passage: &Arc<[Token]>| {
            let (before, last) = passage.split_at(passage.len().saturating_sub(1));
            let rest = Segment::scored([last, &question].concat(), last.len());
            Prompt::scored(vec![begin.clone(), Segment::context(before), rest])
        };
        let prompts = task.passages.iter().map(prompt).collect();
        let none = Prompt::scored(vec![begin.clone(), Segment::scored(question.clone(), 0)]);
        let utility = |scores: &Scores, prompt: usize| mean(scores.last(prompt));
        // Without a token before it, the question's first has no probability, and after nothing at all every question is unlikely:
        // that is no zero to be above or below of.
        let ranking = if has_beginning { Pointwise::against } else { Pointwise::shifted };
        Ok(ranking(none, task, prompts, 1.0, utility))
    }
}

/// The printed Σ P·log P over the query's tokens, with the prompt of question generation.
pub(super) struct ProbabilityWeighted;

/// Σ P·log P of log-probabilities.
fn weighted(log_probabilities: &[f64]) -> f64 {
    log_probabilities.iter().map(|log| log.exp() * log).sum()
}

impl Method for ProbabilityWeighted {
    fn name(&self) -> &'static str {
        "long-llm-lingua-p-log-p"
    }

    fn summary(&self) -> &'static str {
        "sum of P log P over the query's tokens, as MOI section 4.1 prints it: impossible tokens score best"
    }

    fn takes_opening(&self) -> bool {
        true
    }

    fn prompts(&self, request: &RerankRequest, language: &Language) -> Option<PromptShape> {
        Some(PromptShape { longest: 1, overhead: overhead_with(&request.opening, language) })
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let prompt = QueryPrompt::of(&task)?;
        let prompts = (0..task.passages.len()).map(|index| prompt.with(&task, &[index], false)).collect();
        let unit = real(task.query.len().max(1));
        Ok(Pointwise::boxed(task, prompts, unit, |scores, passage| weighted(scores.last(passage))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Letter (j), by the numbers of the design notes: tokens of probability .5 and .5 against .001 and .001.
    #[test]
    fn the_mean_prefers_the_likely_question_and_p_log_p_the_impossible_one() {
        let (likely, impossible) = ([0.5_f64.ln(); 2], [0.001_f64.ln(); 2]);
        assert!((mean(&likely) + 0.693).abs() < 1e-3 && (mean(&impossible) + 6.908).abs() < 1e-3);
        assert!((weighted(&likely) + 0.693).abs() < 1e-3 && (weighted(&impossible) + 0.0138).abs() < 1e-4);
        assert!(weighted(&impossible) > weighted(&likely));
    }
}
