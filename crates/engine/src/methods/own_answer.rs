//! Methods that attribute the generator's own answer to passages.
//!
//! Two rounds. The first draws the greedy answer a from all passages in input order. The second scores log P(a | ·)
//! after the method's lists of passages ([`Attribution`]), and after none.
//!
//! **The drawn tokens are scored, not their text tokenised again.** A text has many tokenisations, and log P(a |
//! all) belongs to the drawn one. Another one may split the text differently, most likely after the cue, and would
//! be unlikely after every list for reasons unrelated to the passages.
//!
//! The attribution of a wrong answer is meaningless. Two signs are visible: there is no answer, or the passages do
//! not make it likelier. The result is then the input order with a warning.

use std::sync::Arc;

use super::{Budget, Prompt, PromptShape, Ranking, Scored, Scores, Task};
use crate::answers::{self, AnswerPrompts};
use crate::prompt::Language;
use crate::sampling::TextStop;
use crate::types::{EngineError, RerankRequest, SampleOptions};
use numeric::real;
use prefix_scheduler::call::Call;
use prefix_scheduler::plan::{Grow, Segment, Token};

/// Most tokens of the own answer. The prompt asks for a few words, and 32 tokens hold about twenty. Every token is
/// scored once per list of passages, and every prompt reserves room for all of them, which leaves less for
/// passages.
pub(super) const ANSWER_TOKENS: usize = 32;

const EMPTY: &str = "the generator's own answer is empty: nothing can be attributed, the given order is kept";
const NOT_LIKELIER: &str = "the generator's own answer is not likelier with the passages than without them: nothing can be \
                            attributed, the given order is kept";

/// How a method attributes the answer to the passages.
pub(super) trait Attribution: Send + 'static {
    /// True if a utility of 0 means no passage. Without an answer to attribute, all utilities are 0.
    const HAS_ZERO: bool = false;

    /// Lists of passage indices after which the answer is scored.
    fn contexts(&self) -> Vec<Vec<usize>>;

    /// The ranking.
    ///
    /// # Errors
    /// The fit failed, or the call stopped.
    fn rank(&self, answer: &OwnAnswer, call: &Call) -> Result<Scored, EngineError>;
}

/// Log-probabilities of the own answer, in nats, each the sum over its tokens.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OwnAnswer {
    /// Number of its tokens; at least 1.
    pub tokens: usize,
    /// Without passages.
    pub none: f64,
    /// After each list of [`Attribution::contexts`].
    pub contexts: Vec<f64>,
}

impl OwnAnswer {
    /// The ranking by these utilities. A score belongs to a mean token, as for the other sums.
    pub fn ranked(&self, utilities: Vec<f64>) -> Scored {
        Scored::by_utility(utilities, real(self.tokens))
    }
}

/// The longest prompt holds all passages and the answer, drawn or scored.
pub(super) fn shape(request: &RerankRequest, language: &Language) -> PromptShape {
    PromptShape { longest: request.passages.len(), overhead: answers::overhead(language) + ANSWER_TOKENS }
}

/// Begins a ranking by an attribution of the own answer.
pub(super) fn begin(task: &Task, attribution: impl Attribution) -> Result<Box<dyn Ranking>, EngineError> {
    let language = task.language()?;
    let options = SampleOptions { max_tokens: Some(ANSWER_TOKENS), ..SampleOptions::greedy() };
    let stop = options.text_stop(language);
    Ok(Box::new(ByOwnAnswer {
        prompts: AnswerPrompts::new(language, &task.query, task.passages.iter().cloned()),
        passages: task.passages.len(),
        grow: options.grow(&task.request.query, 0, &stop),
        stop,
        attribution,
        step: Step::Draw,
    }))
}

struct ByOwnAnswer<A> {
    prompts: AnswerPrompts,
    passages: usize,
    grow: Grow,
    stop: Arc<TextStop>,
    attribution: A,
    step: Step,
}

enum Step {
    /// The answer is not drawn yet.
    Draw,
    /// The answer, and its log-probability after all passages as reported by the draw.
    Score {
        answer: Arc<[Token]>,
        all: f64,
    },
    Done(Box<Scored>),
}

impl<A: Attribution> ByOwnAnswer<A> {
    fn drawing(&self) -> Vec<Segment> {
        self.prompts.prompt(&(0..self.passages).collect::<Vec<_>>())
    }

    /// The second round: the answer after no passage, and after each list of the method.
    fn scoring(&self, answer: &Arc<[Token]>) -> Vec<Prompt> {
        let prompt = |order: &[usize]| {
            let mut segments = self.prompts.prompt(order);
            segments.push(Segment::scored(Arc::clone(answer), 0));
            Prompt::scored(segments)
        };
        std::iter::once(prompt(&[])).chain(self.attribution.contexts().iter().map(|order| prompt(order))).collect()
    }

    /// Refuses a request whose second round cannot fit, before the first round runs: even an answer of one token
    /// needs all prompts of both rounds, and the longest answer counts until it is drawn.
    fn check_budget(&self, budget: &Budget) -> Result<(), EngineError> {
        let drawing: usize = self.drawing().iter().map(|segment| segment.tokens.len()).sum();
        let scoring = Budget::plan(&self.scoring(&Arc::from([0])));
        let needed = drawing + self.grow.evaluated() + scoring.cost().tokens;
        if !budget.suffices(needed, budget.spared(&scoring)) {
            return Err(EngineError::Budget { needed, allowed: budget.tokens });
        }
        Ok(())
    }

    /// The input order, every utility 0.
    fn kept(&self, warning: &str) -> Step {
        let scored = Scored::by_utility(vec![0.0; self.passages], 1.0);
        Step::Done(Box::new(Scored { warnings: vec![warning.to_owned()], has_zero: A::HAS_ZERO, ..scored }))
    }

    fn drawn(&self, scores: &Scores) -> Result<Step, EngineError> {
        let missing = || EngineError::Internal("the own answer was not drawn".into());
        let sample = scores.sample(0).ok_or_else(missing)?;
        // The token that ended the answer is not part of it: an end of turn or a stop string is no evidence about
        // the passages.
        let (text, tokens) = self.stop.text(sample);
        if text.is_empty() {
            return Ok(self.kept(EMPTY));
        }
        // A greedy draw reports log-probabilities at temperature 1, like scoring.
        let all = sample.log_probabilities[..tokens].iter().sum();
        Ok(Step::Score { answer: sample.tokens[..tokens].into(), all })
    }
}

impl<A: Attribution> Ranking for ByOwnAnswer<A> {
    fn next(&mut self, budget: &Budget, _: &Call) -> Result<Option<Vec<Prompt>>, EngineError> {
        match &self.step {
            Step::Draw => {
                self.check_budget(budget)?;
                Ok(Some(vec![Prompt::grown(self.drawing(), self.grow.clone())]))
            }
            Step::Score { answer, .. } => Ok(Some(self.scoring(answer))),
            Step::Done(_) => Ok(None),
        }
    }

    /// The answer is drawn from all passages in their order.
    fn shares(&self) -> usize {
        let together = |list: &Vec<usize>| list.iter().enumerate().take_while(|(place, index)| place == *index).count();
        match self.step {
            Step::Draw => self.attribution.contexts().iter().map(together).max().unwrap_or(0),
            Step::Score { .. } | Step::Done(_) => 0,
        }
    }

    fn fits(&self) -> bool {
        true
    }

    fn absorb(&mut self, scores: &Scores, call: &Call) -> Result<(), EngineError> {
        self.step = match &self.step {
            Step::Draw => self.drawn(scores)?,
            Step::Score { answer, all } => {
                // Only the answer is scored.
                let mut sums = (0..scores.len()).map(|prompt| scores.sum_from(prompt, 0));
                let none = sums.next().ok_or_else(|| EngineError::Internal("nothing was scored".into()))?;
                let own = OwnAnswer { tokens: answer.len(), none, contexts: sums.collect() };
                if *all > none {
                    Step::Done(Box::new(self.attribution.rank(&own, call)?))
                } else {
                    self.kept(NOT_LIKELIER)
                }
            }
            Step::Done(_) => return Err(EngineError::Internal("nothing was asked for".into())),
        };
        Ok(())
    }

    fn finish(&mut self, _: &Call) -> Result<Scored, EngineError> {
        match std::mem::replace(&mut self.step, Step::Draw) {
            Step::Done(scored) => Ok(*scored),
            _ => Err(EngineError::Internal("nothing was scored".into())),
        }
    }
}

#[cfg(test)]
mod tests;
