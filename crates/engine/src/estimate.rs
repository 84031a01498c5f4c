//! How many tokens a request will take, estimated before tokenisation, and if it is admitted.
//!
//! The estimate counts bytes: each passage, plus the query once per passage. The generator's [`Estimator`] learns
//! the tokens per byte for each method and size class of lists, because most methods evaluate a passage several
//! times, and some do so more often in longer lists. Only text lengths are used, so an estimate takes microseconds.
//! It never exceeds the limits of a request.

use super::models::GeneratorModel;
use crate::types::{
    Annotator, BeliefRequest, Compression, CompressionMethod, EngineError, EvaluateRequest, Inline, Limits, Passage,
    RerankRequest, SampleOptions,
};
use prefix_scheduler::call::Call;
pub(super) use prefix_scheduler::scheduler::estimate::tokens_of_text;
use prefix_scheduler::scheduler::estimate::{BYTES_PER_TOKEN, Class, Estimator};
use prefix_scheduler::scheduler::pace::Kind;

/// Approximate bytes of a prompt without query and passage.
const FRAME: usize = 128;

// The options of a class.

/// The request sets the orders of a design.
const ORDERS: u16 = 1;
/// The utility is measured, too.
const INLINE: u16 = 2;
/// The request sets the prompt prefix.
const OPENING: u16 = 4;
/// Answers from whole contexts are evaluated, too.
const END_TO_END: u16 = 8;
/// The returned passages are compressed.
const COMPRESSED: u16 = 16;
/// Answers are judged, too.
const JUDGED: u16 = 32;
/// Answers are drawn, too.
const BELIEF: u16 = 64;
/// The request sets the depth of a design.
const DEPTH: u16 = 128;
/// The first bit of the design of the prompts.
const DESIGN: u32 = 8;

/// The bit where the option is set.
const fn option(bit: u16, set: bool) -> u16 {
    if set { bit } else { 0 }
}

/// The size of a request in bytes, by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    class: Class,
    bytes: usize,
    /// The most tokens that it may take.
    most: usize,
    kind: Kind,
}

/// A request whose work was admitted.
#[derive(Debug)]
pub(super) struct Admitted {
    size: Size,
    estimator: Estimator,
    /// Tokens evaluated for the call before.
    before: usize,
}

impl Admitted {
    /// Learns from the tokens that the request took. Other requests of its call may have taken more.
    pub fn learn(&self, tokens: usize) {
        self.estimator.learn(self.size.class, self.size.bytes, tokens);
    }

    /// Learns from the request, if the call has had no other request since admission.
    pub fn learn_from(&self, call: &Call) {
        self.learn(call.spent().saturating_sub(self.before));
    }
}

impl Size {
    fn new(name: &'static str, options: u16, passages: usize, bytes: usize, most: usize) -> Self {
        let texts = passages.checked_ilog2().map_or(0, |power| power + 1);
        Self { class: Class { name, options, texts }, bytes, most, kind: Kind::Draws }
    }

    /// This size for a request that draws no tokens.
    fn read_only(self) -> Self {
        Self { kind: Kind::Reads, ..self }
    }

    /// Admits a request of this size to the queue of a generator, if it can end in time after the work that is
    /// already admitted. A call is admitted once: its size includes all later work.
    ///
    /// # Errors
    /// [`EngineError::QueueFull`], or [`EngineError::DeadlineExceeded`] if it could not end in time even on an idle
    /// machine.
    pub fn admit(self, call: &Call, model: &GeneratorModel) -> Result<Admitted, EngineError> {
        let estimator = model.scheduler().estimator().clone();
        model.scheduler().admit(call, self.tokens(&estimator), self.kind)?;
        Ok(Admitted { size: self, estimator, before: call.spent() })
    }

    fn tokens(&self, estimator: &Estimator) -> usize {
        estimator.tokens(self.class, self.bytes).clamp(1, self.most.max(1))
    }

    /// The ranking and its inline utility.
    pub fn of_rerank(request: &RerankRequest, limits: usize) -> Self {
        Self::ranking(request, request.inline.as_ref(), limits)
    }

    /// Only the ranking.
    pub fn of_ranking(request: &RerankRequest, limits: usize) -> Self {
        Self::ranking(request, None, limits)
    }

    /// Only the utility.
    pub fn of_inline(request: &RerankRequest, inline: &Inline, limits: usize) -> Self {
        let most = limits.min(request.token_budget.unwrap_or(usize::MAX));
        Self::new("inline", 0, request.passages.len(), measured(request, inline), most)
    }

    fn ranking(request: &RerankRequest, inline: Option<&Inline>, limits: usize) -> Self {
        let passages = bytes(&request.passages, request.passage_tokens);
        let queries = (request.query.len() + FRAME).saturating_mul(request.passages.len());
        // Other methods ignore it.
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
        let labelled = if request.label_passages { passages } else { 0 };
        let single = if request.label_passages { bytes(&request.passages, request.passage_tokens) } else { 0 };
        let alone = context.saturating_mul(labelled).saturating_add(whole).saturating_add(free);
        let judged = request.annotators.contains(&Annotator::AnswerJudgement);
        let references: usize = request.references.iter().map(String::len).fold(0, usize::saturating_add);
        // The answers are short compared with the references.
        let answers = labelled.saturating_add(contexts.len());
        let judging = if judged { references.saturating_add(FRAME.saturating_mul(answers)) } else { 0 };
        let total = single.saturating_add(alone).saturating_add(judging);
        let variant = option(END_TO_END, request.end_to_end)
            | option(JUDGED, judged)
            | option(BELIEF, request.has(Annotator::is_belief));
        let most = limits.min(request.token_budget.unwrap_or(usize::MAX));
        Self::new(if request.label_passages { "evaluate" } else { "answer" }, variant, passages, total, most)
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

/// Bytes of the inline utility: the input order and the new order of the returned passages, and the empty context.
fn measured(request: &RerankRequest, inline: &Inline) -> usize {
    let all = request.passages.len().max(1);
    let returned = request.top_n.unwrap_or(all).min(all);
    let passages = (bytes(&request.passages, request.passage_tokens) / all).saturating_mul(returned);
    let each = request.query.len().saturating_add(FRAME).saturating_add(grown(&inline.sampling));
    passages.saturating_mul(2).saturating_add(each.saturating_mul(3))
}

/// Bytes of the samples of one context if each has the maximum length.
fn grown(options: &SampleOptions) -> usize {
    let samples = options.count().saturating_mul(options.most_tokens());
    samples.saturating_mul(BYTES_PER_TOKEN)
}

/// Admits several requests of one call together, as [`Size::admit`]: all of them, or none.
pub(super) fn admit_together(
    call: &Call,
    model: &GeneratorModel,
    limits: &Limits,
    sizes: impl Iterator<Item = Size>,
) -> Result<(), EngineError> {
    let (mut tokens, mut kind) = (0_usize, Kind::Reads);
    for size in sizes {
        tokens = tokens.saturating_add(size.tokens(model.scheduler().estimator()));
        if size.kind == Kind::Draws {
            kind = Kind::Draws;
        }
    }
    Ok(model.scheduler().admit(call, tokens.min(limits.tokens), kind)?)
}

#[cfg(test)]
mod tests;
