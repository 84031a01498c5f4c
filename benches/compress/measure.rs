//! One question: the ways to shorten its passages, and the generator's results for each.

use std::collections::BTreeMap;
use std::time::Instant;

use engine::Engine;
use engine::calibrate::Labelled;
use engine::methods;
use engine::types::{
    Compression, CompressionMethod, ContextOrder, Passage, RerankRequest, SampleOptions, UtilityRequest,
};
use prefix_scheduler::call::Call;

use super::list::List;

/// Most tokens of an answer.
const ANSWER_TOKENS: usize = 24;

/// Shares of the tokens that are kept.
pub const RATIOS: [f64; 3] = [0.75, 0.5, 0.25];

/// A compressor and the ranking before it, which decides what LongLLMLingua drops and how much it keeps of the rest.
#[derive(Debug, Clone, Copy)]
pub struct Compressor {
    pub name: &'static str,
    method: CompressionMethod,
    rank: &'static str,
}

/// LongLLMLingua by its own r_k, whose prompts share nothing with the compression, and by the ranking of `rerankd compress`, which
/// reads passages once for both. Selective-Context does not rank.
pub const COMPRESSORS: [Compressor; 3] = [
    Compressor { name: "selective-context", method: CompressionMethod::SelectiveContext, rank: "retriever" },
    Compressor { name: "long-llm-lingua", method: CompressionMethod::LongLlmLingua, rank: "long-llm-lingua" },
    Compressor {
        name: "long-llm-lingua by query-generation",
        method: CompressionMethod::LongLlmLingua,
        rank: "query-generation",
    },
];

/// Contexts of a question: the whole passages, and for each ratio and compressor the compressed ones and two others of
/// equal length.
pub const CONTEXTS: usize = 1 + RATIOS.len() * COMPRESSORS.len() * 3;

/// Settings for measuring a question.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The retriever's first passages that make up the context.
    pub passages: usize,
    /// Most tokens of a passage before compression.
    pub passage_tokens: usize,
    /// Samples of each context for DeltaSePer; 0 for none.
    pub samples: usize,
}

/// The way in which a context is made from the passages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    Whole,
    /// By a compressor of [`COMPRESSORS`] at a ratio of [`RATIOS`], both by index.
    Compressed(usize, usize),
    /// Every passage cut at its end to the same share, as long as the compressed ones together.
    CutEnds(usize, usize),
    /// The last passages dropped, and the last of the rest cut at its end, as long as the compressed ones together.
    DroppedLast(usize, usize),
}

/// Tokens of the texts, log P(reference) in nats, DeltaSePer, and the tokens and seconds of ranking and shortening
/// without a cache; NaN if not measured.
pub type Values = [f64; 5];

/// A context: its passages with their titles, and the tokens and seconds that ranking and shortening took.
struct Context {
    passages: Vec<Passage>,
    tokens: usize,
    cost: [f64; 2],
}

/// The cost of a context without a request.
const NO_COST: [f64; 2] = [f64::NAN; 2];

/// Measures every way to shorten the first passages of a list.
pub async fn question(engine: &Engine, list: &List, settings: Settings) -> anyhow::Result<BTreeMap<Way, Values>> {
    let whole = first(engine, list, settings)?;
    let lengths: Vec<usize> = whole.iter().map(|passage| length(engine, &passage.text)).collect::<Result<_, _>>()?;
    let mut contexts = BTreeMap::from([(
        Way::Whole,
        Context { tokens: lengths.iter().sum(), passages: whole.clone(), cost: NO_COST },
    )]);
    for (by, compressor) in COMPRESSORS.into_iter().enumerate() {
        for (at, ratio) in RATIOS.into_iter().enumerate() {
            let short = compressed(engine, list, &whole, compressor, (ratio, by * RATIOS.len() + at)).await?;
            let share = short.tokens as f64 / lengths.iter().sum::<usize>().max(1) as f64;
            let ends: Vec<usize> = lengths.iter().map(|length| (*length as f64 * share).round() as usize).collect();
            contexts.insert(Way::CutEnds(by, at), cut(engine, &whole, &ends)?);
            let mut left = short.tokens;
            let some = lengths.iter().map(|length| {
                let kept = left.min(*length);
                left -= kept;
                kept
            });
            let some: Vec<usize> = some.collect();
            contexts.insert(Way::DroppedLast(by, at), cut(engine, &whole, &some)?);
            contexts.insert(Way::Compressed(by, at), short);
        }
    }
    measure(engine, list, contexts, settings).await
}

/// The retriever's first passages, each cut to `passage_tokens`, so that all ways begin with the same texts.
fn first(engine: &Engine, list: &List, settings: Settings) -> anyhow::Result<Vec<Passage>> {
    let passages = list.passages.iter().take(settings.passages);
    let short = passages.map(|passage| {
        anyhow::Ok(Passage { text: beginning(engine, &passage.text, settings.passage_tokens)?, ..passage.clone() })
    });
    short.collect()
}

fn length(engine: &Engine, text: &str) -> anyhow::Result<usize> {
    Ok(if text.is_empty() { 0 } else { engine.generator()?.language.query(text).len() })
}

/// The first tokens of a text, without a part of a character at the end.
fn beginning(engine: &Engine, text: &str, tokens: usize) -> anyhow::Result<String> {
    let language = &engine.generator()?.language;
    let all = language.query(text);
    let bytes = language.tokenizer.bytes(&all[..tokens.min(all.len())]);
    let whole = std::str::from_utf8(&bytes).map_or_else(|error| error.valid_up_to(), str::len);
    Ok(String::from_utf8_lossy(&bytes[..whole]).trim().to_owned())
}

/// Cuts the passages at their ends to these numbers of tokens. Passages of 0 tokens are left out.
fn cut(engine: &Engine, whole: &[Passage], tokens: &[usize]) -> anyhow::Result<Context> {
    let mut passages = Vec::new();
    for (passage, tokens) in whole.iter().zip(tokens) {
        let text = beginning(engine, &passage.text, *tokens)?;
        if !text.is_empty() {
            passages.push(Passage { text, ..passage.clone() });
        }
    }
    let lengths = passages.iter().map(|passage| length(engine, &passage.text));
    let tokens = lengths.sum::<anyhow::Result<usize>>()?;
    Ok(Context { passages, tokens, cost: NO_COST })
}

/// The passages in first-stage order, compressed. Their titles end with the number of the request, so that it shares no
/// cache with other requests of the question.
async fn compressed(
    engine: &Engine,
    list: &List,
    whole: &[Passage],
    Compressor { method, rank, .. }: Compressor,
    (ratio, number): (f64, usize),
) -> anyhow::Result<Context> {
    let own = |passage: &Passage| Passage { title: format!("{} {number}", passage.title), ..passage.clone() };
    let request = RerankRequest {
        query: list.question.clone(),
        passages: whole.iter().map(own).collect(),
        method: methods::find(rank),
        context_order: ContextOrder::Input,
        compression: Some(Compression { ratio: Some(ratio), ..Compression::by(method) }),
        ..RerankRequest::default()
    };
    let started = Instant::now();
    let answer = engine.reranker.rerank(&Call::local(), request, None).await?;
    let seconds = started.elapsed().as_secs_f64();
    let report = answer.compression.ok_or_else(|| anyhow::anyhow!("no compression in the answer"))?;
    let tokens = report.passages.iter().map(|passage| passage.tokens_after).sum();
    let left = report.passages.into_iter().filter(|passage| !passage.is_dropped());
    let passages = left.map(|passage| Passage { text: passage.text, ..whole[passage.index].clone() }).collect();
    Ok(Context { passages, tokens, cost: [answer.usage.tokens as f64, seconds] })
}

async fn measure(
    engine: &Engine,
    list: &List,
    contexts: BTreeMap<Way, Context>,
    settings: Settings,
) -> anyhow::Result<BTreeMap<Way, Values>> {
    let call = Call::local();
    let mut passages: Vec<Passage> = Vec::new();
    let mut subsets: Vec<Vec<usize>> = Vec::new();
    for context in contexts.values() {
        subsets.push((passages.len()..passages.len() + context.passages.len()).collect());
        passages.extend(context.passages.iter().cloned());
    }
    for (number, passage) in passages.iter_mut().enumerate() {
        passage.id = number.to_string();
    }
    let task = Labelled {
        question: list.question.clone(),
        answer: list.answers[0].clone(),
        passages: passages.clone(),
        gold: Vec::new(),
        passage_tokens: None,
    };
    let likelihoods = engine.positions.likelihoods(&call, &task, &subsets).await?;
    let mut deltas = vec![f64::NAN; subsets.len()];
    if settings.samples > 0 {
        let utility = UtilityRequest {
            question: list.question.clone(),
            passages,
            references: list.answers.clone(),
            subsets,
            sampling: SampleOptions {
                samples: Some(settings.samples),
                max_tokens: Some(ANSWER_TOKENS),
                ..SampleOptions::default()
            },
            ..UtilityRequest::default()
        };
        let report = engine.utility.measure(&call, utility, None).await?;
        deltas = report.utilities.iter().map(|one| one.delta_soft.map_or(f64::NAN, |delta| delta.value)).collect();
    }
    let rows = contexts.into_iter().zip(likelihoods).zip(deltas).map(|(((way, context), likelihood), delta)| {
        let [evaluated, seconds] = context.cost;
        (way, [context.tokens as f64, likelihood, delta, evaluated, seconds])
    });
    Ok(rows.collect())
}
