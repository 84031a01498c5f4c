//! Listwise generation: the generator writes the order of the passages (RankGPT; Sun et al., 2023).
//!
//! A window of up to 20 passages is labelled `[1]`, `[2]` and so on, and the generator continues `[` with the
//! order, as `2] > [1] > [3`. It decodes greedily and can only write permutations of the window (`permutation`), so
//! no output is malformed, repeats a label or misses one. Lists of more than 20 passages are ranked in windows
//! (`windows`).
//!
//! The order of the request matters (nDCG@10 of 65.8 from BM25's order, 25.2 from a random one; RankGPT, Table 5),
//! and small generators cannot write such lists. There is no scale: the utility of a passage is the number of
//! passages minus its rank.
//!
//! `[12]` in a passage or query would read as a label. It is rewritten to `(12)`, as in rank_llm.

use std::sync::Arc;

use super::super::{Method, Prompt, PromptShape, Ranking, Scores, Task};
use super::list_prompt::{Labels, ListPrompt};
use super::permutation::Permutation;
use super::windows::{Sliding, WINDOW, WindowRanker, windows};
use crate::prompt::Language;
use crate::types::{EngineError, RerankRequest};
use numeric::real;
use numeric::sampling::Sampling;
use prefix_scheduler::plan::{Allowed, Grow, Segment, Stop, Token};

/// Between two labels.
const SEPARATOR: &str = "] > [";

/// Approximate tokens of a number and a separator.
const LABEL: usize = 4;

/// Utility is the number of passages minus the rank.
pub(super) struct Listwise;

impl Method for Listwise {
    fn name(&self) -> &'static str {
        "listwise"
    }

    fn summary(&self) -> &'static str {
        "the generator writes the order of windows of 20 passages, always a whole permutation (RankGPT; Sun et al.)"
    }

    fn prepare(&self, request: &mut RerankRequest) {
        request.query = without_labels(&request.query);
        for passage in &mut request.passages {
            passage.title = without_labels(&passage.title);
            passage.text = without_labels(&passage.text);
        }
    }

    fn prompts(&self, request: &RerankRequest, language: &Language) -> Option<PromptShape> {
        let passages = request.passages.len();
        // A vocabulary whose labels are ambiguous is refused when the ranking begins.
        let answer = labels(language, passages.min(WINDOW)).map_or(0, |labels| labels.most());
        let overhead = Labels::Numbers.overhead(language, passages) + answer;
        Some(PromptShape { longest: passages.min(WINDOW), overhead })
    }

    fn drawn(&self, request: &RerankRequest) -> usize {
        windows(request.passages.len()).iter().map(|window| window.len() * LABEL).sum()
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let order = (0..task.passages.len()).collect();
        Ok(Box::new(Sliding::new(Written::new(task)?, vec![order])))
    }
}

fn labels(language: &Language, passages: usize) -> Option<Permutation> {
    Permutation::new(&Labels::Numbers.tokens(language)[..passages], &language.text(SEPARATOR))
}

/// `[12]` as `(12)`; other brackets stay.
fn without_labels(text: &str) -> String {
    let mut rewritten = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('[') {
        let (before, bracket) = rest.split_at(open);
        rewritten.push_str(before);
        let inside = &bracket[1..];
        let digits = inside.find(|c: char| !c.is_ascii_digit()).unwrap_or(inside.len());
        if digits > 0 && inside[digits..].starts_with(']') {
            rewritten.push('(');
            rewritten.push_str(&inside[..digits]);
            rewritten.push(')');
            rest = &inside[digits + 1..];
        } else {
            rewritten.push('[');
            rest = inside;
        }
    }
    rewritten.push_str(rest);
    rewritten
}

/// Ranks a window by the list that the generator writes.
struct Written {
    list: ListPrompt,
    cue: Segment,
    /// The tokens of the numbers and of the separator.
    labels: Vec<Vec<Token>>,
    separator: Vec<Token>,
}

impl Written {
    fn new(task: Arc<Task>) -> Result<Self, EngineError> {
        let language = task.language()?;
        if labels(language, WINDOW).is_none() {
            let problem = "the generator's vocabulary does not tell the numbers 1 to 20 apart: take another method";
            return Err(EngineError::Precondition(problem.into()));
        }
        let cue = Labels::Numbers.cue(language, &task.query);
        let (labels, separator) = (Labels::Numbers.tokens(language), language.text(SEPARATOR));
        Ok(Self { list: ListPrompt::new(task, Labels::Numbers)?, cue, labels, separator })
    }

    fn permutation(&self, passages: usize) -> Option<Permutation> {
        Permutation::new(&self.labels[..passages], &self.separator)
    }
}

impl WindowRanker for Written {
    const RANKS: bool = true;

    fn prompts(&self, order: &[usize]) -> Vec<Prompt> {
        let Some(labels) = self.permutation(order.len()).map(Arc::new) else { return Vec::new() };
        let grow = Grow {
            sampling: Sampling { temperature: 0.0, ..Sampling::default() },
            most: labels.most(),
            seed: 0,
            stop: Arc::clone(&labels) as Arc<dyn Stop>,
            allowed: Some(labels as Arc<dyn Allowed>),
        };
        let segments = self.list.segments(order).into_iter().chain([self.cue.clone()]).collect();
        vec![Prompt::grown(segments, grow)]
    }

    fn utilities(&self, scores: &Scores, first: usize, order: &[usize]) -> Vec<f64> {
        let written = scores.sample(first).map(|sample| &sample.tokens[..]).unwrap_or_default();
        let mut utilities = vec![0.0; order.len()];
        let places = self.permutation(order.len()).map(|labels| labels.order(written)).unwrap_or_default();
        for (rank, place) in places.into_iter().enumerate() {
            utilities[place] = 0.0 - real(rank);
        }
        utilities
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::Budget;
    use crate::types::Passage;
    use prefix_scheduler::model::PromptFormat;
    use prefix_scheduler::model::Tokenizer;
    use prefix_scheduler::plan::Finish;
    use prefix_scheduler::scheduler::generator::Sample;
    use prefix_scheduler::scripted::ByteTokenizer;

    #[test]
    fn bracketed_numbers_are_rewritten_and_nothing_else() {
        for (text, expected) in [
            ("as shown in [12] and [3]", "as shown in (12) and (3)"),
            ("[1][22]", "(1)(22)"),
            ("[[1]] [a] [] [1 [2] [", "[(1)] [a] [] [1 (2) ["),
            ("[北1] [1", "[北1] [1"),
            ("", ""),
        ] {
            assert_eq!(without_labels(text), expected);
        }
        let mut request = RerankRequest { query: "what is [1]?".into(), ..RerankRequest::default() };
        request.passages.push(Passage { title: "[2]".into(), text: "see [3]".into(), ..Passage::default() });
        Listwise.prepare(&mut request);
        assert_eq!((request.query.as_str(), request.passages[0].title.as_str()), ("what is (1)?", "(2)"));
        assert_eq!(request.passages[0].text, "see (3)");
    }

    fn written(passages: usize) -> Written {
        let language = Language::new(Arc::new(ByteTokenizer::default()), PromptFormat::Plain);
        let task = Task {
            mixed_model: None,
            request: RerankRequest::default(),
            query: language.query("who?"),
            passages: (0..passages).map(|index| language.text(&format!("Document: {index}\n\n")).into()).collect(),
            language: Some(language),
        };
        Written::new(Arc::new(task)).unwrap()
    }

    #[test]
    fn the_prompt_and_what_is_read_from_its_answer() {
        let written = written(12);
        let prompt = &written.prompts(&[7, 0, 3, 9])[0];
        let tokens: Vec<Token> = prompt.segments.iter().flat_map(|segment| segment.tokens.iter().copied()).collect();
        let text = ByteTokenizer::default().detokenize(&tokens);
        assert!(
            text.contains("[1] Document: 7\n\n[2] Document: 0\n\n[3] Document: 3\n\n[4] Document: 9\n\n"),
            "{text}"
        );
        assert!(text.contains("Search Query: who?\n") && text.ends_with("explain.\n["), "{text}");
        let answer = "3] > [1] > [4";
        let tokens: Vec<Token> = answer.bytes().map(Token::from).collect();
        let sample = Sample { log_probabilities: vec![0.0; tokens.len()], tokens, finish: Finish::StopString };
        let scores = Scores { samples: [(0, sample)].into(), ..Scores::default() };
        assert_eq!(written.utilities(&scores, 0, &[7, 0, 3, 9]), [-1.0, -3.0, 0.0, -2.0]);
    }

    #[test]
    fn the_shape_holds_prompt_and_answer() {
        let written = written(30);
        let language = Language::new(Arc::new(ByteTokenizer::default()), PromptFormat::Plain);
        let request = RerankRequest { passages: vec![Passage::default(); 30], ..RerankRequest::default() };
        let shape = Listwise.prompts(&request, &language).unwrap();
        let order: Vec<usize> = (10..30).collect();
        let prompts = written.prompts(&order);
        let text = 20 * "Document: 10\n\n".len() + " who?".len();
        assert_eq!(shape.longest, 20);
        assert!(Budget::cost(&prompts).path_cells <= shape.overhead + text);
    }
}
