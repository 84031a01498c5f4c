//! The generator judges answers: does one match any of the references?
//!
//! The prompt is the one of MOI's evaluation (Appendix E, Figure 8), which comes from CRAG (Yang et al., 2024). It
//! asks for a JSON object with "True" or "False". Nothing is sampled: both words are scored after the beginning of
//! that object, and the judgement is the probability of "True" against "False".
//!
//! ```text
//! [prompt prefix: chat template, task] [question, ground truth] [prediction, end of the chat template, {"Accuracy": "] [True or False, scored]
//! ```
//!
//! - The paper asks GPT-4; here the generator judges its own answers. For another judge, use a server with another
//!   generator.
//! - The paper gives the layout of the fields, not their whole text: the ground truth is a JSON list of strings.
//! - The paper also separates wrong answers from "I don't know". Here both are not "True".
//! - An answer without text scores 0 and is not judged: the second rule of the prompt rejects it.

use std::collections::HashMap;

use crate::models::ServedGenerator;
use crate::prompt::Language;
use crate::sampling::Sampler;
use crate::types::{EngineError, Usage};
use numeric::sigmoid;
use prefix_scheduler::call::Call;
use prefix_scheduler::plan::{NodeId, Plan, Segment, Token};
use prefix_scheduler::scheduler::generator::{Event, Outcome};

const TASK: &str = "# Task:\n\
    You are given a Question, a model Prediction, and a list of Ground Truth answers, judge whether the model Prediction \
    matches any answer from the list of Ground Truth answers. Follow the instructions step by step to make a judgement.\n\
    1. If the model prediction matches any provided answers from the Ground Truth Answer list, \"Accuracy\" should be \
    \"True\"; otherwise, \"Accuracy\" should be \"False.\"\n\
    2. If the model prediction says that it couldn't answer the question or it doesn't have enough information, \
    \"Accuracy\" should always be \"False.\"\n\
    3. If the Ground Truth is \"invalid question,\" \"Accuracy\" is \"True\" only if the model prediction is exactly \
    \"invalid question.\"\n\
    # Output:\n\
    Respond with only a single JSON string with an \"Accuracy\" field which is \"True\" or \"False.\"\n\n";
const REPLY: &str = "{\"Accuracy\": \"";
const VERDICTS: [&str; 2] = ["True", "False"];

/// The prompts for the answers to one question.
pub(super) struct AnswerJudgement {
    language: Language,
    prefix: Segment,
    /// Question and ground truth.
    head: Segment,
    verdicts: [Segment; 2],
    /// Most tokens of an answer.
    answer_tokens: usize,
}

impl AnswerJudgement {
    /// The prompts for answers that were drawn with at most `answer_tokens` tokens.
    ///
    /// # Errors
    /// [`EngineError::TooLong`] if question and references leave no room for an answer.
    pub fn fitted(
        model: &ServedGenerator,
        question: &str,
        references: &[String],
        answer_tokens: usize,
    ) -> Result<Self, EngineError> {
        // Tokenised again after a space, a text may take a few tokens more. A longer text is cut at its end.
        let most = answer_tokens + answer_tokens / 8 + 4;
        let made = Self::new(&model.language, question, references, most);
        let (needed, available) = (made.longest(), model.context()?);
        if needed > available {
            let others = needed - made.head.tokens.len();
            let available = available.saturating_sub(others);
            return Err(EngineError::TooLong { field: "references".into(), needed: made.head.tokens.len(), available });
        }
        Ok(made)
    }

    fn new(language: &Language, question: &str, references: &[String], answer_tokens: usize) -> Self {
        let ground_truth = serde_json::json!(references).to_string();
        let question = [language.text("Question:"), language.query(question)].concat();
        let head = [question, language.text("\nGround-truth:"), language.query(&ground_truth), language.text("\n")];
        Self {
            language: language.clone(),
            prefix: language.prefix(TASK),
            head: Segment::context(head.concat()),
            verdicts: VERDICTS.map(|verdict| Segment::scored(language.text(verdict), 0)),
            answer_tokens,
        }
    }

    /// The prediction and the text after it, up to the verdict.
    fn prediction(&self, answer: &[Token]) -> Vec<Token> {
        let language = &self.language;
        let reply = language.text(REPLY);
        [&language.text("Prediction:")[..], answer, &language.text("\n"), language.closing(), &reply].concat()
    }

    /// Tokens after question and ground truth, for the longest answer and both verdicts.
    fn most_after_head(&self) -> usize {
        let verdicts: usize = self.verdicts.iter().map(|verdict| verdict.tokens.len()).sum();
        self.prediction(&[]).len() + self.answer_tokens + verdicts
    }

    fn longest(&self) -> usize {
        self.prefix.tokens.len() + self.head.tokens.len() + self.most_after_head()
    }

    /// Most tokens that the judgements of this many answers evaluate.
    pub fn most_tokens(&self, answers: usize) -> usize {
        self.prefix.tokens.len() + self.head.tokens.len() + answers.saturating_mul(self.most_after_head())
    }

    /// Adds the two prompts of an answer: the nodes of "True" and "False".
    fn add(&self, plan: &mut Plan, answer: &str) -> [NodeId; 2] {
        let mut answer = self.language.query(answer);
        answer.truncate(self.answer_tokens);
        let prediction = Segment::context(self.prediction(&answer));
        self.verdicts.each_ref().map(|verdict| {
            let path = plan.add(&[self.prefix.clone(), self.head.clone(), prediction.clone(), verdict.clone()]);
            path[path.len() - 1]
        })
    }
}

/// The generator's judgements of answers.
#[derive(Debug, Default)]
pub(super) struct Judgements {
    /// Probability of "True" by answer.
    of: HashMap<String, f64>,
    /// The evaluation of the prompts.
    pub outcome: Outcome,
    /// Tokens of all prompts without sharing.
    pub naive_tokens: usize,
}

impl Judgements {
    /// The probability that the answer matches a reference; 0 for one without text.
    pub fn of(&self, answer: &str) -> f64 {
        self.of.get(answer).copied().unwrap_or(0.0)
    }
}

/// Has each distinct answer judged once. At most `allowed` tokens are evaluated.
pub(super) async fn judge(
    sampler: &Sampler,
    call: &Call,
    prompts: AnswerJudgement,
    mut answers: Vec<String>,
    allowed: usize,
) -> Result<Judgements, EngineError> {
    answers.retain(|answer| !answer.is_empty());
    answers.sort_unstable();
    answers.dedup();
    if answers.is_empty() {
        return Ok(Judgements::default());
    }
    let plan = move |call: &Call| {
        let mut plan = Plan::new();
        let nodes = answers.into_iter().map(|answer| {
            call.check()?;
            let nodes = prompts.add(&mut plan, &answer);
            Ok::<_, EngineError>((answer, nodes))
        });
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        Ok::<_, EngineError>((nodes, plan))
    };
    let (nodes, plan) = call.compute(plan).await?;
    let naive_tokens = plan.cost().naive_tokens;
    let (outcome, _): (_, Usage) = sampler.run(call, plan, Some(allowed), None::<fn(Event)>).await?;
    let of = nodes.into_iter().map(|(answer, [yes, no])| (answer, probability(&outcome, [yes, no]))).collect();
    Ok(Judgements { of, outcome, naive_tokens })
}

/// Probability of the first of two scored words against the second.
pub(super) fn probability(outcome: &Outcome, [yes, no]: [NodeId; 2]) -> f64 {
    let sum = |node: NodeId| outcome.scores.get(node.0).map_or(0.0, |scores| scores.iter().sum::<f64>());
    sigmoid(sum(yes) - sum(no))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use prefix_scheduler::model::PromptFormat;
    use prefix_scheduler::model::Tokenizer;
    use prefix_scheduler::scripted::ByteTokenizer;

    fn prompts(answer_tokens: usize) -> AnswerJudgement {
        let tokenizer = ByteTokenizer { frame: Some(("<u>".into(), "</u>".into())) };
        let language = Language::new(Arc::new(tokenizer), PromptFormat::Chat);
        AnswerJudgement::new(&language, " who? ", &["Moira \"M\" Kell".into(), "Kell".into()], answer_tokens)
    }

    #[test]
    fn the_prompt_is_the_papers_with_the_beginning_of_its_reply() {
        let (mut plan, prompts) = (Plan::new(), prompts(64));
        let [yes, no] = prompts.add(&mut plan, "an engineer");
        let text = |node: NodeId| ByteTokenizer::default().detokenize(&plan.path(node));
        let (yes, no) = (text(yes), text(no));
        assert!(yes.starts_with("<u># Task:\nYou are given a Question, a model Prediction, and a list"), "{yes}");
        let end = "\"True\" or \"False.\"\n\nQuestion: who?\nGround-truth: [\"Moira \\\"M\\\" Kell\",\"Kell\"]\nPrediction: an \
                   engineer\n</u>{\"Accuracy\": \"";
        assert!(yes.ends_with(&format!("{end}True")) && no.ends_with(&format!("{end}False")), "{yes}");
    }

    #[test]
    fn an_answer_is_cut_and_the_bound_is_met() {
        let prompts = prompts(5);
        let mut plan = Plan::new();
        for answer in ["aaaaaaaa", "bbbbbbbb", "c"] {
            let [yes, _] = prompts.add(&mut plan, answer);
            assert!(plan.path(yes).len() <= prompts.longest());
        }
        let evaluated = plan.cost().tokens;
        // Of an answer of five tokens, only the last tokens of both verdicts are not evaluated; "c" and its space
        // are two.
        assert_eq!(prompts.most_tokens(3) - evaluated, 3 * 2 + 3);
    }
}
