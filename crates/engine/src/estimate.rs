//! How many tokens a request will take, before it is tokenised, and whether it may come in.
//!
//! The estimate counts bytes: those of the passages, and the query once for each. How many tokens a byte of a request takes is
//! learnt from requests that ended, for each method and size class of lists, because most methods read a passage several
//! times and some of them more often the longer the list. A class that was not seen takes what the nearest one took. Nothing
//! but the lengths of the texts is read, so an estimate costs microseconds, and it is never above the limits of a request.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::models::GeneratorModel;
use crate::types::Limits;
use crate::types::{
    Annotator, BeliefRequest, Compression, CompressionMethod, EngineError, EvaluateRequest, Inline, Passage,
    RerankRequest, Role, SampleOptions,
};
use numeric::{count, real};
use prefix_scheduler::call::Call;
use prefix_scheduler::scheduler::pace::Kind;

/// Tokens a byte before anything is learnt: English text has about four bytes a token.
const PRIOR: f64 = 0.25;

/// Tokens of plain text of so many bytes, about.
pub(super) fn tokens_of_text(bytes: usize) -> usize {
    count(real(bytes) * PRIOR)
}

/// Bounds of what one request may teach, in tokens a byte.
const TAUGHT: (f64, f64) = (0.01, 100.0);

/// Weight of a new request.
const WEIGHT: f64 = 0.125;

/// Bytes of a prompt beside query and passage, about.
const FRAME: usize = 128;

/// Bytes counted for a token of a sample, or of a passage whose tokens the request bounds.
const BYTES_PER_TOKEN: usize = 4;

/// Requests that teach each other: the role of the generator that works on them, what is done, the options that change its size
/// (a bit each), and the number of passages as a power of two.
type Class = (&'static str, &'static str, u16, u32);

/// Orders of a design are named.
const ORDERS: u16 = 1;
/// The utility is measured, too.
const INLINE: u16 = 2;
/// The prompt prefix is the caller's.
const OPENING: u16 = 4;
/// Answers from whole contexts are evaluated, too.
const END_TO_END: u16 = 8;
/// What is returned is compressed.
const COMPRESSED: u16 = 16;
/// Answers are judged, too.
const JUDGED: u16 = 32;
/// Answers are drawn, too.
const BELIEF: u16 = 64;
/// The depth of a design is named.
const DEPTH: u16 = 128;
/// The first bit of the design of the prompts.
const DESIGN: u32 = 8;

/// The bit where the option is set.
const fn option(bit: u16, set: bool) -> u16 {
    if set { bit } else { 0 }
}

/// What was learnt. Classes are few: a name has some tens of variants in use, of at most 64 sizes for each of two generators.
#[derive(Debug, Default)]
pub(super) struct Estimates(Mutex<BTreeMap<Class, f64>>);

/// The size of a request in bytes, by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    class: Class,
    bytes: usize,
    /// Most tokens that it may take.
    most: usize,
    kind: Kind,
}

/// A request whose work was admitted.
#[derive(Debug)]
pub(super) struct Admitted {
    size: Size,
    /// Tokens evaluated for the call before.
    before: usize,
}

impl Estimates {
    fn tokens(&self, size: &Size) -> usize {
        let learnt = self.0.lock();
        let (role, name, variant, passages) = size.class;
        let known = learnt.range((role, name, variant, 0)..=(role, name, variant, u32::MAX));
        let nearest = known.min_by_key(|((_, _, _, other), _)| other.abs_diff(passages));
        let ratio = nearest.map_or(PRIOR, |(_, ratio)| *ratio);
        count(real(size.bytes) * ratio).clamp(1, size.most.max(1))
    }

    fn learn(&self, size: &Size, tokens: usize) {
        let ratio = (real(tokens) / real(size.bytes.max(1))).clamp(TAUGHT.0, TAUGHT.1);
        let mut learnt = self.0.lock();
        let mean = learnt.entry(size.class).or_insert(ratio);
        *mean += WEIGHT * (ratio - *mean);
    }
}

impl Size {
    fn new(name: &'static str, variant: u16, passages: usize, bytes: usize, most: usize) -> Self {
        let passages = passages.checked_ilog2().map_or(0, |power| power + 1);
        Self { class: (Role::Generator.name(), name, variant, passages), bytes, most, kind: Kind::Draws }
    }

    /// The same where nothing is drawn.
    fn read_only(self) -> Self {
        Self { kind: Kind::Reads, ..self }
    }

    /// The same for the generator of this role.
    fn on(mut self, role: Role) -> Self {
        self.class.0 = role.name();
        self
    }

    /// The ranking, and the utility that is measured beside it.
    pub fn of_rerank(request: &RerankRequest, limits: usize) -> Self {
        Self::ranking(request, request.inline.as_ref(), limits)
    }

    /// The ranking alone.
    pub fn of_ranking(request: &RerankRequest, limits: usize) -> Self {
        Self::ranking(request, None, limits)
    }

    /// The utility alone.
    pub fn of_inline(request: &RerankRequest, inline: &Inline, limits: usize) -> Self {
        let most = limits.min(request.token_budget.unwrap_or(usize::MAX));
        Self::new("inline", 0, request.passages.len(), measured(request, inline), most)
    }

    fn ranking(request: &RerankRequest, inline: Option<&Inline>, limits: usize) -> Self {
        let passages = bytes(&request.passages, request.passage_tokens);
        let queries = (request.query.len() + FRAME).saturating_mul(request.passages.len());
        // Other methods do not read it.
        let orders = request.moi.orders.filter(|_| request.method().name() == "moi");
        let ranked = passages.saturating_add(queries).saturating_mul(orders.unwrap_or(1));
        let sampled = inline.map_or(0, |inline| measured(request, inline));
        let (method, answers) = (request.method(), request.method().drawn(request));
        let drawn = answers.saturating_mul(BYTES_PER_TOKEN);
        // The prompt prefix is evaluated once.
        let ranked = ranked.saturating_add(request.prefix.bytes());
        let compressed = request.compression.filter(Compression::reads).map_or(0, |compression| {
            let reads = if compression.method == CompressionMethod::LongLlmLingua { 2 } else { 1 };
            let all = request.passages.len().max(1);
            let returned = request.top_n.unwrap_or(all).min(all);
            (passages / all).saturating_mul(returned).saturating_add(FRAME).saturating_mul(reads)
        });
        let variant = option(ORDERS, orders.is_some())
            | option(INLINE, inline.is_some())
            | option(OPENING, !request.prefix.is_built_in())
            | option(COMPRESSED, request.compression_reads())
            | option(DEPTH, request.moi.depth.is_some())
            | ((request.moi.scheme() as u16) << DESIGN);
        let total = ranked.saturating_add(sampled).saturating_add(drawn).saturating_add(compressed);
        let most = limits.min(request.token_budget.unwrap_or(usize::MAX));
        let size = Self::new(method.name(), variant, request.passages.len(), total, most);
        let draws = inline.is_some() || method.reads_own_answer() || answers > 0;
        if draws { size } else { size.read_only() }
    }

    pub fn of_samples(request: &BeliefRequest, limits: usize) -> Self {
        let passage = |index: &usize| request.passages.get(*index).map_or(0, |one| length(one, request.passage_tokens));
        let scored = request.references.iter().map(String::len).fold(0, usize::saturating_add);
        let context = |context: &Vec<usize>| {
            let read =
                context.iter().fold(request.question.len() + FRAME, |sum, index| sum.saturating_add(passage(index)));
            read.saturating_add(grown(&request.options)).saturating_add(scored)
        };
        let total = request.contexts.iter().map(context).fold(0, usize::saturating_add);
        let most = limits.min(request.token_budget.unwrap_or(usize::MAX));
        Self::new("sample", 0, request.contexts.len(), total, most)
    }

    pub fn of_evaluation(request: &EvaluateRequest, limits: usize) -> Self {
        let passages = request.passages.len();
        let drawn = if request.has(Annotator::is_belief) { grown(&request.sampling) } else { 0 };
        let context = (request.question.len() + FRAME).saturating_add(drawn);
        let each: Vec<usize> = request.passages.iter().map(|one| length(one, request.passage_tokens)).collect();
        let read = |indices: &Vec<usize>| {
            let passages = indices.iter().filter_map(|index| each.get(*index));
            passages.fold(context, |sum, length| sum.saturating_add(*length))
        };
        let contexts = request.whole_contexts();
        let whole = contexts.iter().map(read).fold(0, usize::saturating_add);
        let free = if request.has(Annotator::is_delta) { context } else { 0 };
        let alone = context.saturating_mul(passages).saturating_add(whole).saturating_add(free);
        let judged = request.annotators.contains(&Annotator::AnswerJudgement);
        let references: usize = request.references.iter().map(String::len).fold(0, usize::saturating_add);
        // The answers are short beside the references.
        let answers = passages.saturating_add(contexts.len());
        let judging = if judged { references.saturating_add(FRAME.saturating_mul(answers)) } else { 0 };
        let total = bytes(&request.passages, request.passage_tokens).saturating_add(alone).saturating_add(judging);
        let variant = option(END_TO_END, request.end_to_end)
            | option(JUDGED, judged)
            | option(BELIEF, request.has(Annotator::is_belief));
        let most = limits.min(request.token_budget.unwrap_or(usize::MAX));
        Self::new("evaluate", variant, passages, total, most)
    }
}

/// Bytes of passages that are cut to `most` tokens.
fn bytes(passages: &[Passage], most: Option<usize>) -> usize {
    passages.iter().map(|passage| length(passage, most)).fold(0, usize::saturating_add)
}

fn length(passage: &Passage, most: Option<usize>) -> usize {
    let most = most.map_or(usize::MAX, |tokens| tokens.saturating_mul(BYTES_PER_TOKEN));
    // The title is not cut.
    (passage.title.len() + passage.text.len()).min(most.max(passage.title.len()))
}

/// Bytes of the utility beside a ranking: the given and the new order of the passages that are returned, and none.
fn measured(request: &RerankRequest, inline: &Inline) -> usize {
    let all = request.passages.len().max(1);
    let returned = request.top_n.unwrap_or(all).min(all);
    let passages = (bytes(&request.passages, request.passage_tokens) / all).saturating_mul(returned);
    let each = request.query.len().saturating_add(FRAME).saturating_add(grown(&inline.sampling));
    passages.saturating_mul(2).saturating_add(each.saturating_mul(3))
}

/// Bytes of the samples of one context, if all are as long as they may be.
fn grown(options: &SampleOptions) -> usize {
    let samples = options.count().saturating_mul(options.most_tokens());
    samples.saturating_mul(BYTES_PER_TOKEN)
}

impl Estimates {
    /// Admits a request of this size to the queue of a generator, if it can end in time behind what is admitted. A call is asked once: what it does
    /// further was part of its size.
    ///
    /// # Errors
    /// [`EngineError::QueueFull`], or [`EngineError::DeadlineExceeded`] if it could not end in time on an idle machine.
    pub(super) fn admit_work(&self, call: &Call, model: &GeneratorModel, size: Size) -> Result<Admitted, EngineError> {
        let size = size.on(model.role());
        model.scheduler().admit(call, self.tokens(&size), size.kind)?;
        Ok(Admitted { size, before: call.spent() })
    }

    /// Admits several requests of one call as one, as [`Estimates::admit_work`]: all of them, or none.
    pub(super) fn admit_together(
        &self,
        call: &Call,
        model: &GeneratorModel,
        limits: &Limits,
        sizes: impl Iterator<Item = Size>,
    ) -> Result<(), EngineError> {
        let sizes: Vec<Size> = sizes.map(|size| size.on(model.role())).collect();
        let tokens = sizes.iter().map(|size| self.tokens(size)).fold(0, usize::saturating_add);
        let draws = sizes.iter().any(|size| size.kind == Kind::Draws);
        let kind = if draws { Kind::Draws } else { Kind::Reads };
        Ok(model.scheduler().admit(call, tokens.min(limits.tokens), kind)?)
    }

    /// Learns from a request that ended and took so many tokens. Other requests of its call may have taken some, too.
    pub(super) fn learn_tokens(&self, admitted: &Admitted, tokens: usize) {
        self.learn(&admitted.size, tokens);
    }

    /// Learns from a request that ended.
    pub(super) fn learn_work(&self, call: &Call, admitted: &Admitted) {
        self.learn(&admitted.size, call.spent().saturating_sub(admitted.before));
    }
}

#[cfg(test)]
mod tests;
