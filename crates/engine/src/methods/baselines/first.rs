//! FIRST: passages by the probability of their label as the first word of the answer (Reddy et al., 2024).
//!
//! After the list and "[" each label, a letter, is one token. All labels are read from one row of logits, so
//! nothing is decoded and no label can be missing. An untuned generator prefers some labels and positions for any
//! query. The same row for the query "N/A" measures that preference and is subtracted (as in in-context reranking,
//! Chen et al., 2024). The query comes last, so the second row costs only another cue.
//!
//! ```text
//! utility of passage i = ln s_i(query) - ln s_i("N/A"),   s_i = P(label i) / Σ_j P(label j), over one window
//! ```
//!
//! In nats; above 0 if the query makes the passage's label likelier. Lists of more than 20 passages are ranked in windows
//! (`windows`), and their utilities are minus the ranks.

use std::sync::Arc;

use super::super::{Method, Prompt, PromptShape, Ranking, Scores, Task};
use super::list_prompt::{Labels, ListPrompt};
use super::windows::{Sliding, WINDOW, WindowRanker};
use crate::prompt::Language;
use crate::types::{EngineError, RerankRequest};
use numeric::logspace::log_sum_exp;
use prefix_scheduler::plan::{Segment, Token};

/// A query without content.
const NEUTRAL: &str = "N/A";

/// Utility in nats.
pub(super) struct First;

impl Method for First {
    fn name(&self) -> &'static str {
        "first"
    }

    fn summary(&self) -> &'static str {
        "log-share of each passage's label as the first of a list, less that under the query \"N/A\" (FIRST; Reddy et al.)"
    }

    fn prompts(&self, request: &RerankRequest, language: &Language) -> Option<PromptShape> {
        Some(shape(request, language))
    }

    fn uncalibrated(&self, request: &RerankRequest) -> Option<&'static str> {
        let several = request.passages.len() > WINDOW;
        several.then_some("gives ranks in place of nats for more than 20 passages")
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let order = (0..task.passages.len()).collect();
        Ok(Box::new(Sliding::new(FirstRow::new(task)?, vec![order])))
    }
}

/// The prompts of [`FirstRow`].
pub(super) fn shape(request: &RerankRequest, language: &Language) -> PromptShape {
    let passages = request.passages.len();
    // A label follows the cue, and "N/A" may be longer than the query.
    let overhead = Labels::Letters.overhead(language, passages) + language.query(NEUTRAL).len() + 1;
    PromptShape { longest: passages.min(WINDOW), overhead }
}

/// Ranks a window by its row of first labels.
pub(super) struct FirstRow {
    list: ListPrompt,
    /// With the query, and with the neutral one.
    cues: [Segment; 2],
    /// One token each.
    labels: Vec<Token>,
}

impl FirstRow {
    pub fn new(task: Arc<Task>) -> Result<Self, EngineError> {
        let language = task.language()?;
        let labels = single_tokens(&Labels::Letters.tokens(language))?;
        let cues = [&task.query, &language.query(NEUTRAL)].map(|query| Labels::Letters.cue(language, query));
        Ok(Self { list: ListPrompt::new(task, Labels::Letters)?, cues, labels })
    }
}

/// Refuses a vocabulary in which a label is several tokens or two labels are equal: one row cannot tell them apart.
fn single_tokens(labels: &[Vec<Token>]) -> Result<Vec<Token>, EngineError> {
    let mut tokens = Vec::new();
    for label in labels {
        match label[..] {
            [token] if !tokens.contains(&token) => tokens.push(token),
            _ => {
                let problem =
                    "the letters A to T are not one token each in the generator's vocabulary: take the method listwise";
                return Err(EngineError::Precondition(problem.into()));
            }
        }
    }
    Ok(tokens)
}

impl WindowRanker for FirstRow {
    fn prompts(&self, order: &[usize]) -> Vec<Prompt> {
        let list = self.list.segments(order);
        let prompt = |cue: &Segment, label: Token| {
            let ending = [cue.clone(), Segment::scored(vec![label], 0)];
            Prompt::scored(list.iter().cloned().chain(ending).collect())
        };
        let row = |cue| self.labels[..order.len()].iter().map(move |&label| prompt(cue, label));
        self.cues.iter().flat_map(row).collect()
    }

    fn utilities(&self, scores: &Scores, first: usize, order: &[usize]) -> Vec<f64> {
        let row = |from: usize| -> Vec<f64> {
            (from..from + order.len()).map(|prompt| scores.last(prompt).iter().sum()).collect()
        };
        difference(&row(first), &row(first + order.len()))
    }
}

/// Log-shares within a row, minus those within the neutral row.
fn difference(row: &[f64], neutral: &[f64]) -> Vec<f64> {
    let (all, all_neutral) = (log_sum_exp(row), log_sum_exp(neutral));
    row.iter().zip(neutral).map(|(label, other)| (label - all) - (other - all_neutral)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::Budget;
    use numeric::descending;
    use prefix_scheduler::model::PromptFormat;
    use prefix_scheduler::model::Tokenizer;
    use prefix_scheduler::scripted::ByteTokenizer;

    fn task(passages: usize) -> Arc<Task> {
        let language = Language::new(Arc::new(ByteTokenizer::default()), PromptFormat::Plain);
        Arc::new(Task {
            mixed_model: None,
            request: RerankRequest::default(),
            query: language.query("who?"),
            passages: (0..passages).map(|index| language.text(&format!("Document: {index}\n\n")).into()).collect(),
            language: Some(language),
        })
    }

    /// Logits A 2, B 1, C 3; for "N/A" 2.5, 0.5, 1.5: the uncorrected order C A B becomes C B A.
    #[test]
    fn hand_worked() {
        let (row, neutral) = ([2.0, 1.0, 3.0], [2.5, 0.5, 1.5]);
        let all = log_sum_exp(&row);
        let shares: Vec<f64> = row.iter().map(|label| (label - all).exp()).collect();
        assert!(shares.iter().zip([0.245, 0.090, 0.665]).all(|(ours, theirs)| (ours - theirs).abs() < 1e-3));
        assert_eq!(descending(&row), [2, 0, 1]);
        let utilities = difference(&row, &neutral);
        assert_eq!(descending(&utilities), [2, 1, 0]);
        assert!((utilities[1] - utilities[0] - 1.0).abs() < 1e-12 && (utilities[2] - utilities[1] - 1.0).abs() < 1e-12);
        assert_eq!(difference(&row, &row), [0.0; 3]);
    }

    #[test]
    fn labels_of_several_tokens_or_shared_ones_are_refused() {
        assert_eq!(single_tokens(&[vec![5], vec![6]]).unwrap(), [5, 6]);
        for bad in [vec![vec![5], vec![6, 7]], vec![vec![5], vec![]], vec![vec![5], vec![5]]] {
            assert!(matches!(single_tokens(&bad), Err(EngineError::Precondition(_))));
        }
    }

    /// The list is evaluated once, the second query costs a cue, and the labels cost nothing.
    #[test]
    fn the_neutral_row_costs_one_suffix() {
        let row = FirstRow::new(task(20)).unwrap();
        let order: Vec<usize> = (0..20).collect();
        let prompts = row.prompts(&order);
        assert_eq!(prompts.len(), 40);
        let list: usize = row.list.segments(&order).iter().map(|segment| segment.tokens.len()).sum();
        let cues: usize = row.cues.iter().map(|cue| cue.tokens.len()).sum();
        let cost = Budget::cost(&prompts);
        // One row of logits per cue.
        assert_eq!((cost.tokens, cost.rows), (list + cues, 2));
        let text: Vec<Token> = prompts[1].segments.iter().flat_map(|segment| segment.tokens.iter().copied()).collect();
        let text = ByteTokenizer::default().detokenize(&text);
        assert!(text.contains("[A] Document: 0\n\n[B] Document: 1\n\n"), "{text}");
        assert!(text.contains("Search Query: who?\nRank the passages") && text.ends_with("explain.\n[B"), "{text}");
    }

    #[test]
    fn the_shape_holds_the_longest_prompt() {
        let task = task(30);
        let language = task.language().unwrap();
        let passages = vec![crate::types::Passage::default(); 30];
        let shape = shape(&RerankRequest { passages, ..RerankRequest::default() }, language);
        let row = FirstRow::new(Arc::clone(&task)).unwrap();
        let order: Vec<usize> = (10..30).collect();
        let text: usize = order.iter().map(|&passage| task.passages[passage].len()).sum();
        let path = Budget::cost(&row.prompts(&order)).path_cells;
        assert_eq!(shape.longest, 20);
        assert!(path <= shape.overhead + task.query.len() + text, "{path}");
    }
}
