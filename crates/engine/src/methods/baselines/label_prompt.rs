//! The prompt that asks which of a few passages helps most. The answer is a label.
//!
//! ```text
//! [prompt prefix: chat template, instruction] [passage]+ [cue: labels, query, end of the chat template, "Label:"] [" A" or " B" or .., scored]
//! ```
//!
//! Labels and query come after the passages, so a passage has the same tokens at every position, and prompts with
//! the same first passages share them. The labels are leaves: one row of logits has their log-probabilities and
//! nothing is decoded. No label can be missing, as it can from a list of likely tokens.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::{Prompt, Scores, Task};
use crate::prompt::Language;
use crate::types::EngineError;
use prefix_scheduler::plan::{Segment, Token};

const INSTRUCTION: &str = "Compare the documents.\n\n";
const ASK: &str = "\nWhich document helps most to answer the question?";
const CUE: &str = "Label:";
const LABELS: [&str; 4] = [" A", " B", " C", " D"];

/// The tokens between the last passage and the label, for a prompt of `passages` passages.
fn cue(language: &Language, query: &[Token], passages: usize) -> Vec<Token> {
    let lead = format!("The documents are labelled{} in the order above.\nQuestion:", LABELS[..passages].join(","));
    [&language.text(&lead)[..], query, &language.text(ASK), language.closing(), &language.text(CUE)].concat()
}

/// Tokens of a prompt of `passages` passages that are neither passage nor query.
pub(super) fn overhead(language: &Language, passages: usize) -> usize {
    let label = LABELS.iter().map(|label| language.text(label).len()).max().unwrap_or(0);
    language.prefix(INSTRUCTION).tokens.len() + cue(language, &[], passages).len() + label
}

/// The parts of the prompt for one query.
pub(super) struct LabelPrompt {
    prefix: Segment,
    /// By number of passages; the first two are unused.
    cues: Vec<Segment>,
    labels: Vec<Segment>,
}

impl LabelPrompt {
    /// The prompt for at most `passages` passages at a time, with as many labels.
    pub fn of(task: &Task, passages: usize) -> Result<Self, EngineError> {
        let language = task.language()?;
        let cue = |count| Segment::context(cue(language, &task.query, count));
        Ok(Self {
            prefix: language.prefix(INSTRUCTION),
            cues: (0..=passages).map(cue).collect(),
            labels: LABELS.iter().map(|label| Segment::scored(language.text(label), 0)).collect(),
        })
    }

    /// The prompts of an order of two or more passages: one per label, identical except for the label.
    pub fn with(&self, task: &Task, order: &[usize]) -> impl Iterator<Item = Prompt> {
        let passages = order.iter().map(|&passage| Segment::context(Arc::clone(&task.passages[passage])));
        let cue = self.cues[order.len()].clone();
        let shared: Vec<Segment> = std::iter::once(self.prefix.clone()).chain(passages).chain([cue]).collect();
        let labels = self.labels.iter().take(order.len());
        labels.map(move |label| Prompt::scored(shared.iter().chain([label]).cloned().collect()))
    }
}

/// Log-probabilities of the labels, by the order of the passages that they label.
#[derive(Debug, Clone, Default)]
pub(super) struct LabelRows(HashMap<Vec<usize>, Vec<f64>>);

impl LabelRows {
    /// Number of orders with a row.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds the available scores of these orders' prompts ([`LabelPrompt::with`], one order after the other).
    pub fn absorb(&mut self, orders: &[Vec<usize>], scores: &Scores) {
        let mut first = 0;
        for order in orders {
            let prompts = first..first + order.len();
            first = prompts.end;
            if prompts.clone().all(|prompt| scores.is_complete(prompt)) {
                self.insert(order.clone(), prompts.map(|prompt| scores.last(prompt).iter().sum()).collect());
            }
        }
    }

    pub fn insert(&mut self, order: Vec<usize>, row: Vec<f64>) {
        self.0.insert(order, row);
    }

    /// Log-odds of the first passage over the second, in the prompt with this order.
    pub fn log_odds(&self, first: usize, second: usize) -> Option<f64> {
        self.0.get([first, second].as_slice()).map(|row| row[0] - row[1])
    }

    /// Index in `order` of the passage with the likeliest label; the first of equals.
    pub fn best(&self, order: &[usize]) -> Option<usize> {
        let row = self.0.get(order)?;
        let better = |best: usize, place: usize| if row[place] > row[best] { place } else { best };
        Some((1..row.len()).fold(0, better))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{blocks, label, order, task};
    use super::*;
    use crate::methods::Budget;

    #[test]
    fn prompts_of_one_order_differ_in_their_label_only() {
        let task = task(4);
        let prompt = LabelPrompt::of(&task, 4).unwrap();
        let prompts: Vec<Prompt> = prompt.with(&task, &[2, 0, 3]).collect();
        assert_eq!(prompts.iter().map(label).collect::<Vec<_>>(), vec![0, 1, 2]);
        assert!(prompts.iter().all(|prompt| order(prompt) == vec![2, 0, 3]));
        assert_eq!(blocks(&prompts), 3);
        let language = task.language.as_ref().unwrap();
        // The last token of a label is predicted, not evaluated; a label of this tokenizer has two.
        let passages = 3 * task.passages[0].len();
        let prompt_tokens = overhead(language, 3) - 2 + passages + task.query.len();
        assert_eq!(Budget::cost(&prompts).tokens, prompt_tokens + 3);
        let text = language.tokenizer.detokenize(&prompts[0].segments[4].tokens);
        let cue = "The documents are labelled A, B, C in the order above.\nQuestion: who?";
        assert_eq!(text, format!("{cue}{ASK}{CUE}"));
    }

    #[test]
    fn equal_labels_are_the_firsts() {
        let mut rows = LabelRows::default();
        rows.insert(vec![3, 1, 2], vec![-1.0, -0.5, -0.5]);
        assert_eq!((rows.best(&[3, 1, 2]), rows.best(&[1, 3, 2])), (Some(1), None));
        rows.insert(vec![0, 1], vec![-1.0, -1.0]);
        assert_eq!((rows.best(&[0, 1]), rows.log_odds(0, 1)), (Some(0), Some(0.0)));
    }
}
