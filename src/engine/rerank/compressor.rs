//! The prompts of a compression, their cost, and what is left of the texts by their scores.
//!
//! ```text
//! P(passage)          [opening of question generation]                    [passage, scored] [two tokens of the cue]
//! P(passage | query)  [opening of question generation] [Question: query]  [passage, scored]
//! ```
//!
//! The first prompt is that of `bayes-saliency` up to the end of the passage. Where the states of passages are kept with their
//! scores, by that method or by an earlier compression, it costs one token a passage: the first of the cue, which makes the
//! passage's state one that can be kept. Selective-Context needs the first prompt only. The two prompts differ in the query
//! alone, so their difference is its doing.

use std::ops::Range;
use std::sync::Arc;

use super::RerankRequest;
use super::compress::Compression;
use crate::call::Call;
use crate::compress::{Method, Unit, Valued, lingua, selective, units};
use crate::engine::methods::query_prompt::QueryPrompt;
use crate::engine::models::ServedGenerator;
use crate::engine::prompt::PassageTokens;
use crate::engine::truncate::{Fit, fit_passages};
use crate::engine::{EngineError, Limits};
use crate::numeric::real;
use crate::plan::{NodeId, Plan, Segment, Token};

/// Spread of the shares over the ranks where the request says nothing (`dynamic_context_compression_ratio` of the authors'
/// demonstrations).
const SPREAD: f64 = 0.3;

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

/// A request's passages, ready to be compressed once it is known which are returned.
pub(super) struct Compressor {
    pub options: Compression,
    pub model: Arc<ServedGenerator>,
    pub passages: Vec<Tokenised>,
    opening: Segment,
    question: Segment,
    after: Segment,
    /// Most passages that are returned.
    returned: usize,
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
        let query = language.query(&request.query);
        let prompt = QueryPrompt::new(language, &[]);
        let lead = [language.text("Question:"), query.clone(), language.text("\n\n")].concat();
        let question = Segment::context(lead);
        let cue: Vec<Token> = prompt.query.tokens.iter().copied().cycle().take(2).collect();
        let after = Segment::scored(cue, 1);
        let frame = prompt.opening.tokens.len() + question.tokens.len() + after.tokens.len();
        let context = model.context()?;
        let Some(available) = context.checked_sub(frame).filter(|left| *left > 0) else {
            let available = context.saturating_sub(frame - query.len());
            return Err(EngineError::TooLong { field: "query".into(), needed: query.len(), available });
        };
        let truncate = request.truncate.unwrap_or(limits.truncate);
        let (passage_tokens, side) = (request.passage_tokens, request.cut_side);
        let fit = Fit { available, longest: 1, passage_tokens, truncate, side };
        let fitted = fit_passages(language, &request.passages, fit, call)?;
        let mut passages = Vec::with_capacity(fitted.tokens.len());
        for (passage, prompt) in request.passages.iter().zip(fitted.tokens) {
            call.check()?;
            let tokens = PassageTokens::new(language.tokenizer.as_ref(), &passage.title, &passage.text);
            let place = tokens.body_in(prompt.len());
            passages.push(Tokenised { prompt, body: tokens.into_body(), place });
        }
        let returned = request.top_n.unwrap_or(usize::MAX).min(passages.len());
        let opening = prompt.opening;
        Ok(Self { options, model, passages, opening, question, after, returned })
    }

    /// Upper bound on the tokens that the compression evaluates: the longest passages may be those that are returned.
    pub fn cost(&self) -> usize {
        if self.options.ratio == Some(1.0) {
            return 0;
        }
        let mut lengths: Vec<usize> = self.passages.iter().map(|passage| passage.prompt.len()).collect();
        lengths.sort_unstable_by(|left, right| right.cmp(left));
        let read: usize = lengths.iter().take(self.returned).sum();
        let alone = self.opening.tokens.len() + read + self.returned;
        match self.options.method {
            Method::SelectiveContext => alone,
            Method::LongLlmLingua => alone + self.question.tokens.len() + read,
        }
    }

    /// What is kept of the passages of `ranking`, best first, in tokens: the target, and how many passages are read for it.
    pub fn target(&self, ranking: &[usize]) -> (f64, usize) {
        let lengths: Vec<usize> = ranking.iter().map(|&index| self.passages[index].body.len()).collect();
        let total = lengths.iter().sum();
        let share = self.options.share(total);
        let target = share * real(total);
        let read = match self.options.method {
            _ if share >= 1.0 => 0,
            Method::SelectiveContext => ranking.len(),
            Method::LongLlmLingua => lingua::coarse(&lengths, target),
        };
        (target, read)
    }

    /// The prompts of these passages, and the nodes of each: alone, and after the query.
    pub fn plan(&self, read: &[usize]) -> (Plan, Vec<(NodeId, Option<NodeId>)>) {
        let mut plan = Plan::new();
        let nodes = read.iter().map(|&index| {
            let passage = Segment::scored(Arc::clone(&self.passages[index].prompt), 0);
            let alone = plan.add(&[self.opening.clone(), passage.clone(), self.after.clone()]);
            let asked = (self.options.method == Method::LongLlmLingua)
                .then(|| plan.add(&[self.opening.clone(), self.question.clone(), passage]));
            // The opening always has tokens: the instruction.
            (alone[1], asked.and_then(|path| path.last().copied()))
        });
        let nodes = nodes.collect();
        (plan, nodes)
    }

    /// What each token of a passage's text is worth: its self-information, or what the query adds to its log-probability.
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
            Method::SelectiveContext => {
                let read: usize = all.iter().flatten().map(|unit| unit.tokens).sum();
                selective::keep(&all, target / real(read.max(1)))
            }
            Method::LongLlmLingua => {
                let spread = self.options.ratio_spread.unwrap_or(SPREAD);
                lingua::fine(&all, target, spread, self.options.unit() == Unit::Token)
            }
        }
    }
}

/// A passage's text as its tokens spell it, cut into units.
pub(super) struct Text<'a> {
    spelled: String,
    given: &'a str,
    ends: Vec<usize>,
    pub units: Vec<Range<usize>>,
    /// Tokens of the text that were not read.
    cut: usize,
}

impl<'a> Text<'a> {
    /// Where the tokens do not spell the text it is one unit; without tokens it has none.
    pub fn new(compressor: &Compressor, index: usize, given: &'a str) -> Self {
        let passage = &compressor.passages[index];
        let (body, place, cut) = (&passage.body, &passage.place, passage.cut());
        let tokenizer = &compressor.model.language.tokenizer;
        // A cut at the end leaves the first tokens. The cut at the beginning is for other protocols, which do not compress. A
        // token alone may lose its space, as at the beginning of a text; `ends` allows for it.
        let pieces: Vec<Vec<u8>> = body[..place.len()].iter().map(|token| tokenizer.bytes(&[*token])).collect();
        let mut spelled = format!(" {}", given.trim());
        let found = units::ends(&spelled, &pieces).filter(|ends| cut > 0 || ends.last() == Some(&spelled.len()));
        let Some(mut ends) = found else {
            let all = (!place.is_empty()).then_some(0..place.len());
            let (ends, units) = (Vec::new(), all.into_iter().collect());
            return Self { spelled, given, ends, units, cut };
        };
        if cut > 0 {
            // The last tokens may be a part of a word, which what follows them tells.
            let end = ends.last().copied().unwrap_or(0);
            let near = (end + LOOKAHEAD..spelled.len()).find(|at| spelled.is_char_boundary(*at));
            spelled.truncate(near.unwrap_or(spelled.len()));
            ends.push(spelled.len());
            let words = units::units(&spelled, &ends, Unit::Token);
            let whole = words.iter().map(|word| word.end).take_while(|end| *end <= place.len()).last().unwrap_or(0);
            ends.truncate(whole);
            spelled.truncate(ends.last().copied().unwrap_or(0));
        }
        let units = units::units(&spelled, &ends, compressor.options.unit());
        Self { spelled, given, ends, units, cut }
    }

    /// What is left of it: the given text itself where all units are kept.
    pub fn left(&self, kept: &[bool]) -> String {
        if self.cut == 0 && kept.iter().all(|kept| *kept) {
            return self.given.to_owned();
        }
        if self.ends.is_empty() {
            return if kept.contains(&true) { self.given.to_owned() } else { String::new() };
        }
        units::left(&self.spelled, &self.ends, &self.units, kept)
    }
}
