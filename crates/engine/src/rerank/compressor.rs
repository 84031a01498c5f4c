//! The prompts of a compression, their cost, and what is left of the texts by their scores.
//!
//! ```text
//! P(passage)          [prompt prefix of question generation]                    [passage, scored] [two tokens of the cue]
//! P(passage | query)  [prompt prefix of question generation] [Question: query]  [passage, scored]
//! ```
//!
//! The first prompt is where most ranking methods begin. Where much of a list is returned, the ranking scores the passages for
//! the compression as it reads them (`alone`), and the first prompt is not read again. Where the states of
//! passages are kept with their scores, it costs one token a passage: the first of the cue, which makes the passage's state one
//! that can be kept. Selective-Context needs the first prompt only, whatever the query. The two prompts differ in the query
//! alone, so their difference is its doing.

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

/// Spread of the shares over the ranks if the request says nothing (`dynamic_context_compression_ratio` of the authors'
/// demonstrations).
const SPREAD: f64 = 0.3;

/// One passage that is not read again pays for the logits of so many that the ranking reads: logits of all tokens cost about a
/// quarter of reading a passage (27 % with 135 million weights), and reading it again costs that, too.
const PAYS_FOR: usize = 5;

/// Bytes behind a cut in which its word ends, if it is one.
const LOOKAHEAD: usize = 256;

/// A passage as it stands in prompts, and the tokens of its text.
pub(super) struct Tokenised {
    prompt: Arc<[Token]>,
    /// Tokens of the whole text, the cut part included.
    pub body: Vec<Token>,
    /// Tokens of the text that stand in the prompt, as a range of the prompt's.
    place: Range<usize>,
}

impl Tokenised {
    /// Tokens of the text that are not read.
    pub const fn cut(&self) -> usize {
        self.body.len() - (self.place.end - self.place.start)
    }
}

/// The nodes of a passage in the plan of a compression.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nodes {
    /// After the prompt prefix; `None` if the ranking scored it.
    alone: Option<NodeId>,
    /// After the query; `None` for a method that does not look at it.
    asked: Option<NodeId>,
}

/// A request's passages, ready to be compressed once it is known which are returned.
pub(super) struct Compressor {
    pub options: Compression,
    pub model: Arc<ServedGenerator>,
    pub passages: Vec<Tokenised>,
    /// Milliseconds that the tokenising took.
    pub tokenise_ms: f64,
    prefix: Segment,
    /// The query; `None` for a method that does not look at it.
    question: Option<Segment>,
    after: Segment,
    /// Most passages that are returned.
    returned: usize,
    /// True if all of the texts stay whatever the ranking: nothing is read.
    whole: bool,
    /// Passages that the ranking should score as well, if its prompts begin with them; `None` if nothing is read, or the ranking
    /// asks no generator. One that does asks the generator that reads for the compression.
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
            // No prompt is made of them, so they need not fit one.
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

    /// The passages that the ranking should score, none unless enough are read for the compression that it pays. A passage that is kept
    /// from earlier requests without scores, and not with them, is left out: the ranking would read it for its scores.
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

    /// Most passages that are read for the compression, whatever the ranking: of LongLLMLingua the shortest.
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

    /// Upper bound on the tokens that the compression evaluates: the longest passages may be those that are returned.
    pub fn cost(&self) -> usize {
        if self.whole {
            return 0;
        }
        let lengths = self.passages.iter().map(|passage| passage.prompt.len()).collect();
        let read = longest(lengths, self.returned);
        let alone = self.prefix.tokens.len() + read + self.returned;
        alone + self.question.as_ref().map_or(0, |question| question.tokens.len() + read)
    }

    /// The target in tokens for the passages of `ranking`, best first, and how many of them are read for it. A ratio
    /// is a share of the tokens that can be read: what was cut is lost in any case.
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

    /// The prompts of these passages, and the nodes of each: alone, unless the ranking scored it, and after the query. Beside
    /// them what the prompts that the ranking spared would have taken without sharing.
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

    /// A passage's log-probabilities in both prompts, by the scores of their nodes and what the ranking knows.
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

    /// The worth of each token of a passage's text: its self-information, or what the query adds to its log-probability.
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

    /// The texts of the read passages with their units, and which of these are kept, best passage first.
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
    /// True if the tokens that were read spell the text, or its beginning. If not, it is one unit.
    pub aligned: bool,
    /// Tokens of the text that were not read.
    cut: usize,
}

impl<'a> Text<'a> {
    pub fn new(compressor: &Compressor, index: usize, given: &'a str) -> Self {
        let passage = &compressor.passages[index];
        let tokenizer = &compressor.model.language.tokenizer;
        // A cut at the end leaves the first tokens. The cut at the beginning is for other protocols, which do not compress.
        let read = &passage.body[..passage.place.len()];
        let pieces: Vec<Vec<u8>> = read.iter().map(|token| tokenizer.bytes(&[*token])).collect();
        Self::spelled(given, &pieces, passage.cut(), compressor.options.unit())
    }

    /// A text of which these are the first tokens, as bytes, and so many were cut. Without tokens it has no unit.
    fn spelled(given: &'a str, pieces: &[Vec<u8>], cut: usize, unit: CompressionUnit) -> Self {
        let mut spelled = format!(" {}", given.trim());
        if pieces.is_empty() {
            return Self { spelled: String::new(), given, ends: Vec::new(), units: Vec::new(), aligned: true, cut };
        }
        let found = units::ends(&spelled, pieces).filter(|ends| cut > 0 || ends.last() == Some(&spelled.len()));
        let Some(mut ends) = found else {
            // The tokens in their own spelling are what was read; a character may be cut at their end.
            let read = String::from_utf8_lossy(&pieces.concat()).into_owned();
            let spelled = read.trim_end_matches('\u{fffd}').trim().to_owned();
            let whole = 0..pieces.len();
            return Self { spelled, given, ends: Vec::new(), units: vec![whole], aligned: false, cut };
        };
        if cut > 0 {
            // The last tokens may be a part of a word. The next characters decide.
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

    /// The text of the kept units: the given text itself if all are kept and nothing was cut.
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
