//! The prompts of a compression, their cost, and the resulting texts.
//!
//! ```text
//! P(passage)          [prompt prefix of question generation]                    [passage, scored] [two tokens of the cue]
//! P(passage | query)  [prompt prefix of question generation] [Question: query]  [passage, scored]
//! ```
//!
//! The first prompt is the prefix of most ranking methods. If much of a list is returned, the ranking also scores
//! the passages for the compression (`alone`), and the first prompt is not evaluated again. If passages are cached
//! with their scores, it costs one token per passage: the first of the cue, which makes the passage cacheable.
//! Selective-Context needs only the first prompt, whatever the query. The two prompts differ only in the query,
//! which therefore explains the difference of their scores.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::single_passage::{SinglePassageScores, WantedScores};
use crate::compress::{Valued, lingua, selective, units};
use crate::methods::query_prompt::QueryPrompt;
use crate::models::ServedGenerator;
use crate::prompt::PassageTokens;
use crate::truncate::{Fit, fit_tokens, tokenise};
use crate::types::{Compression, CompressionMethod, CompressionUnit, EngineError, Limits, RerankRequest};
use numeric::real;
use prefix_scheduler::call::Call;
use prefix_scheduler::plan::{NodeId, Plan, Segment, Token};

/// Spread of the shares over the ranks if the request sets none (`dynamic_context_compression_ratio` in the
/// authors' demonstrations).
const SPREAD: f64 = 0.3;

/// Each passage evaluation saved pays for the logits of this many passages in the ranking. Logits of all tokens add
/// about a quarter of a passage evaluation (27 % with 135 million weights), and a second evaluation needs them,
/// too.
const PAYS_FOR: usize = 5;

/// Bytes after a cut in which its word must end.
const LOOKAHEAD: usize = 256;

/// A passage in the form of the prompts, and the tokens of its text.
pub(super) struct Tokenised {
    prompt: Arc<[Token]>,
    /// Tokens of the whole text, including the cut part.
    pub body: Vec<Token>,
    /// Tokens of the text in the prompt, as a range of the prompt's.
    place: Range<usize>,
}

impl Tokenised {
    /// Tokens of the text that were cut.
    pub const fn cut(&self) -> usize {
        self.body.len() - (self.place.end - self.place.start)
    }
}

/// The nodes of a passage in the plan of a compression.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nodes {
    /// After the prompt prefix; `None` if the ranking scored it.
    alone: Option<NodeId>,
    /// After the query; `None` for a method that ignores it.
    asked: Option<NodeId>,
}

/// A request's passages, ready for compression once the returned ones are known.
pub(super) struct Compressor {
    pub options: Compression,
    pub model: Arc<ServedGenerator>,
    pub passages: Vec<Tokenised>,
    /// Milliseconds that the tokenising took.
    pub tokenise_ms: f64,
    prefix: Segment,
    /// The query; `None` for a method that ignores it.
    question: Option<Segment>,
    after: Segment,
    /// Most passages that are returned.
    returned: usize,
    /// True if every ranking keeps all texts: nothing is evaluated.
    whole: bool,
    /// Passages that the ranking should also score, if its prompts begin with them; `None` if nothing is evaluated
    /// or the ranking asks no generator. Otherwise ranking and compression use the same generator.
    pub wanted: Option<Arc<WantedScores>>,
}

impl Compressor {
    /// Blocking: tokenises.
    pub fn new(
        call: &Call,
        model: Arc<ServedGenerator>,
        limits: Limits,
        options: Compression,
        request: &RerankRequest,
    ) -> Result<Self, EngineError> {
        let language = &model.language;
        let prompt = QueryPrompt::new(language, &[]);
        let cue: Vec<Token> = prompt.query.tokens.iter().copied().cycle().take(2).collect();
        let (prefix, after) = (prompt.prefix, Segment::scored(cue, 1));
        let query = match options.method {
            CompressionMethod::SelectiveContext => Vec::new(),
            CompressionMethod::LongLlmLingua => language.query(&request.query),
        };
        let lead = || Segment::context([language.text("Question:"), query.clone(), language.text("\n\n")].concat());
        let question = (options.method == CompressionMethod::LongLlmLingua).then(lead);
        let tokens = tokenise(language, &request.passages, call)?;
        let returned = request.top_n.unwrap_or(usize::MAX).min(tokens.len());
        let whole = options.keeps_all(tokens.iter().map(PassageTokens::body_len).collect(), returned);
        let prompts: Vec<Arc<[Token]>> = if whole {
            // No prompt uses them, so they need not fit one.
            tokens.iter().map(|text| text.cut(usize::MAX).0.into()).collect()
        } else {
            let asked = question.as_ref().map_or(0, |question| question.tokens.len());
            let frame = prefix.tokens.len() + asked + after.tokens.len();
            let context = model.context()?;
            let Some(available) = context.checked_sub(frame).filter(|left| *left > 0) else {
                let available = context.saturating_sub(frame - query.len());
                return Err(EngineError::TooLong { field: "query".into(), needed: query.len(), available });
            };
            let truncate = request.truncate.unwrap_or(limits.truncate);
            let (passage_tokens, side) = (request.passage_tokens, request.cut_side);
            fit_tokens(&tokens, Fit { available, longest: 1, passage_tokens, truncate, side })?.tokens
        };
        let tokenised = |(text, prompt): (PassageTokens, Arc<[Token]>)| {
            let place = text.body_in(prompt.len());
            Tokenised { prompt, body: text.into_body(), place }
        };
        let passages = tokens.into_iter().zip(prompts).map(tokenised).collect();
        let tokenise_ms = 0.0;
        let mut compressor =
            Self { options, model, passages, tokenise_ms, prefix, question, after, returned, whole, wanted: None };
        if !whole && request.method().asks_generator() {
            let (prefix, passages) = (Arc::clone(&compressor.prefix.tokens), compressor.worth_scoring());
            compressor.wanted = Some(Arc::new(WantedScores { prefix, passages }));
        }
        Ok(compressor)
    }

    /// The passages that the ranking should score; none unless the compression needs enough of them. A passage that
    /// is cached without scores is left out: the ranking would evaluate it again for its scores.
    fn worth_scoring(&self) -> HashSet<Arc<[Token]>> {
        if self.read_at_most() * PAYS_FOR < self.passages.len() {
            return HashSet::new();
        }
        let prompts = || self.passages.iter().map(|passage| Arc::clone(&passage.prompt));
        let Some(store) = self.model.scheduler.store() else { return prompts().collect() };
        let mut plan = Plan::new();
        let mut add = |passage| plan.add(&[self.prefix.clone(), Segment::context(passage), self.after.clone()]);
        let nodes: Vec<Option<NodeId>> = prompts().map(|passage| add(passage).get(1).copied()).collect();
        let keys: HashMap<_, _> = store.keys(&plan).into_iter().collect();
        let is_worth = |node: &Option<NodeId>| {
            let key = node.and_then(|node| keys.get(&node));
            key.is_none_or(|key| store.holds(&key.with_scores()) || !store.holds(&key.without_scores()))
        };
        prompts().zip(&nodes).filter(|(_, node)| is_worth(node)).map(|(passage, _)| passage).collect()
    }

    /// Most passages to evaluate for the compression, for any ranking. LongLLMLingua may take the shortest ones.
    fn read_at_most(&self) -> usize {
        if self.options.method == CompressionMethod::SelectiveContext {
            return self.returned;
        }
        let mut lengths: Vec<usize> = self.passages.iter().map(|passage| passage.place.len()).collect();
        lengths.sort_unstable();
        let most: usize = lengths.iter().rev().take(self.returned).sum();
        lengths.truncate(self.returned);
        lingua::coarse(&lengths, self.options.share(most) * real(most))
    }

    /// Upper bound on the tokens of the compression: the longest passages may be returned.
    pub fn cost(&self) -> usize {
        if self.whole {
            return 0;
        }
        let lengths = self.passages.iter().map(|passage| passage.prompt.len()).collect();
        let read = longest(lengths, self.returned);
        let alone = self.prefix.tokens.len() + read + self.returned;
        alone + self.question.as_ref().map_or(0, |question| question.tokens.len() + read)
    }

    /// The target in tokens for the passages of `ranking`, best first, and how many of them to evaluate. A ratio is
    /// a share of the tokens that fit the prompt; cut text is lost in any case.
    pub fn target(&self, ranking: &[usize]) -> (f64, usize) {
        let all = ranking.iter().map(|&index| self.passages[index].body.len()).collect();
        let lengths: Vec<usize> = ranking.iter().map(|&index| self.passages[index].place.len()).collect();
        let total = lengths.iter().sum();
        let target = self.options.share(total) * real(total);
        let read = match self.options.method {
            _ if self.whole || self.options.keeps_all(all, ranking.len()) => 0,
            CompressionMethod::SelectiveContext => ranking.len(),
            CompressionMethod::LongLlmLingua => lingua::coarse(&lengths, target),
        };
        (target, read)
    }

    /// The prompts of these passages, and each passage's nodes: without the query, unless the ranking scored it,
    /// and after the query. Also returns the tokens without sharing of the prompts that the ranking made
    /// unnecessary.
    pub fn plan(&self, read: &[usize], known: &SinglePassageScores) -> (Plan, Vec<Nodes>, usize) {
        let (mut plan, mut spared) = (Plan::new(), 0);
        let nodes = read.iter().map(|&index| {
            let passage = Segment::scored(Arc::clone(&self.passages[index].prompt), 0);
            let alone = if known.of(&passage.tokens).is_some() {
                spared += self.prefix.tokens.len() + passage.tokens.len() + self.after.tokens.len();
                None
            } else {
                // The prompt prefix always has tokens: the instruction.
                Some(plan.add(&[self.prefix.clone(), passage.clone(), self.after.clone()])[1])
            };
            let ask = |question: &Segment| plan.add(&[self.prefix.clone(), question.clone(), passage]);
            let asked = self.question.as_ref().map(ask);
            Nodes { alone, asked: asked.and_then(|path| path.last().copied()) }
        });
        let nodes = nodes.collect();
        (plan, nodes, spared)
    }

    /// A passage's log-probabilities in both prompts, from the scores of their nodes and of the ranking.
    pub fn scores<'a>(
        &self,
        index: usize,
        nodes: Nodes,
        scores: &'a [Vec<f64>],
        known: &'a SinglePassageScores,
    ) -> (&'a [f64], Option<&'a [f64]>) {
        let of = |node: NodeId| scores.get(node.0).map_or(&[][..], Vec::as_slice);
        let ranked = || known.of(&self.passages[index].prompt).unwrap_or_default();
        (nodes.alone.map_or_else(ranked, of), nodes.asked.map(of))
    }

    /// The value of each token of a passage's text: its self-information, or the change of its log-probability by
    /// the query.
    pub fn values(&self, index: usize, alone: &[f64], asked: Option<&[f64]>) -> Result<Vec<f64>, EngineError> {
        let place = self.passages[index].place.clone();
        let of = |scores: &[f64]| scores.get(place.clone()).map(<[f64]>::to_vec);
        let missing = || EngineError::Internal("a passage was not scored".into());
        let alone = of(alone).ok_or_else(missing)?;
        let values = match asked {
            None => alone.iter().map(|score| -score).collect::<Vec<f64>>(),
            Some(asked) => {
                of(asked).ok_or_else(missing)?.iter().zip(&alone).map(|(asked, alone)| asked - alone).collect()
            }
        };
        Ok(values)
    }

    /// For the evaluated texts, best passage first, which units to keep.
    pub fn chosen(&self, texts: &[(Text<'_>, Vec<Valued>)], target: f64) -> Vec<Vec<bool>> {
        let all: Vec<Vec<Valued>> = texts.iter().map(|(_, units)| units.clone()).collect();
        match self.options.method {
            CompressionMethod::SelectiveContext => {
                let read: usize = all.iter().flatten().map(|unit| unit.tokens).sum();
                selective::keep(&all, target / real(read.max(1)))
            }
            CompressionMethod::LongLlmLingua => {
                let spread = self.options.ratio_spread.unwrap_or(SPREAD);
                lingua::fine(&all, target, spread, self.options.unit() == CompressionUnit::Token)
            }
        }
    }
}

/// Sum of the `most` largest lengths.
pub(super) fn longest(mut lengths: Vec<usize>, most: usize) -> usize {
    lengths.sort_unstable_by(|left, right| right.cmp(left));
    lengths.into_iter().take(most).sum()
}

/// A passage's text as its tokens spell it, cut into units.
pub(super) struct Text<'a> {
    spelled: String,
    given: &'a str,
    ends: Vec<usize>,
    pub units: Vec<Range<usize>>,
    /// True if the evaluated tokens spell the text, or its beginning. If not, it is one unit.
    pub aligned: bool,
    /// Tokens of the text that were cut.
    cut: usize,
}

impl<'a> Text<'a> {
    pub fn new(compressor: &Compressor, index: usize, given: &'a str) -> Self {
        let passage = &compressor.passages[index];
        let tokenizer = &compressor.model.language.tokenizer;
        // A cut at the end leaves the first tokens. Only protocols without compression cut at the beginning.
        let read = &passage.body[..passage.place.len()];
        let pieces: Vec<Vec<u8>> = read.iter().map(|token| tokenizer.bytes(&[*token])).collect();
        Self::spelled(given, &pieces, passage.cut(), compressor.options.unit())
    }

    /// A text whose first tokens are `pieces`, as bytes, with `cut` tokens cut off. Without tokens it has no unit.
    fn spelled(given: &'a str, pieces: &[Vec<u8>], cut: usize, unit: CompressionUnit) -> Self {
        let mut spelled = format!(" {}", given.trim());
        if pieces.is_empty() {
            return Self { spelled: String::new(), given, ends: Vec::new(), units: Vec::new(), aligned: true, cut };
        }
        let found = units::ends(&spelled, pieces).filter(|ends| cut > 0 || ends.last() == Some(&spelled.len()));
        let Some(mut ends) = found else {
            // The tokens' spelling is what the model read; it may end within a character.
            let read = String::from_utf8_lossy(&pieces.concat()).into_owned();
            let spelled = read.trim_end_matches('\u{fffd}').trim().to_owned();
            let whole = 0..pieces.len();
            return Self { spelled, given, ends: Vec::new(), units: vec![whole], aligned: false, cut };
        };
        if cut > 0 {
            // The last tokens may be part of a word. The next characters decide.
            let end = ends.last().copied().unwrap_or(0);
            let near = (end + LOOKAHEAD..spelled.len()).find(|at| spelled.is_char_boundary(*at));
            spelled.truncate(near.unwrap_or(spelled.len()));
            ends.push(spelled.len());
            let words = units::units(&spelled, &ends, CompressionUnit::Token);
            let whole = words.iter().map(|word| word.end).take_while(|end| *end <= pieces.len()).last().unwrap_or(0);
            ends.truncate(whole);
            spelled.truncate(ends.last().copied().unwrap_or(0));
        }
        let units = units::units(&spelled, &ends, unit);
        Self { spelled, given, ends, units, aligned: true, cut }
    }

    /// The text of the kept units: the original text if all are kept and nothing was cut.
    pub fn left(&self, kept: &[bool]) -> String {
        if self.cut == 0 && kept.iter().all(|kept| *kept) {
            return self.given.to_owned();
        }
        if !self.aligned {
            return if kept.contains(&true) { self.spelled.clone() } else { String::new() };
        }
        units::left(&self.spelled, &self.ends, &self.units, kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(given: &str, pieces: &[&str], cut: usize, kept: bool) -> (String, bool) {
        let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect();
        let text = Text::spelled(given, &pieces, cut, CompressionUnit::Token);
        (text.left(&vec![kept; text.units.len()]), text.aligned)
    }

    #[test]
    fn only_what_was_read_is_left_of_a_text_that_was_cut() {
        assert_eq!(left("One two. ", &[" One", " two", "."], 0, true), ("One two. ".into(), true));
        assert_eq!(left("One two.", &[" One", " t"], 2, true), ("One".into(), true), "half a word is none");
        assert_eq!(left("One two.", &[], 3, true), (String::new(), true), "no token fits");
        // A tokeniser that rewrites characters.
        assert_eq!(left("One TWO.", &[" one", " two", "."], 0, true), ("One TWO.".into(), false));
        assert_eq!(left("One TWO three", &[" one", " two"], 1, true), ("one two".into(), false), "not the whole text");
        assert_eq!(left("One TWO three", &[" one", " two"], 1, false), (String::new(), false));
    }

    #[test]
    fn the_longest_are_counted() {
        assert_eq!(longest(vec![1, 9, 5], 2), 14);
        assert_eq!((longest(vec![1, 9], 7), longest(vec![], 1)), (10, 0));
    }
}
