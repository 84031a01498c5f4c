//! Contexts of equal size: `BuildContext`, the ranked list cut at the size, and the first-stage order cut at the size, all
//! written with one template. Measures the log-likelihood of the reference answer, the share of contexts that hold it, and
//! the F1 of the generator's answer; also with three near-copies of each relevant passage in the list.
//!
//! `cargo bench --bench context -- --data FILE --questions 40`. FILE holds labelled lists as `rerankd compare` reads them,
//! gzipped or not, with `answers`. Prints JSON lines: means, and paired differences with their 95 % intervals over questions.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    clippy::items_after_statements,
    clippy::similar_names,
    missing_docs,
    reason = "a test or benchmark that fails says where; its numbers are small"
)]

#[path = "../answers/list.rs"]
#[allow(dead_code, reason = "shared with the answers benchmark")]
mod list;

use std::path::Path;

use engine::Engine;
use engine::contexts::ContextsRequest;
use engine::types::{ContextOrder, ContextRequest, ContextSize, Passage, RerankRequest, Task};
use list::List;
use prefix_scheduler::call::Call;
use rag_metrics::lexical::{contains, token_f1};
use rag_metrics::resample::{Resampling, mean_interval};
use rerankd::config::Config;
use serde_json::json;

/// Sizes of a context in tokens.
const SIZES: [usize; 4] = [128, 256, 512, 1_024];

/// The ways to make a context. Differences are those of the first way.
const WAYS: [&str; 4] = ["BuildContext", "BuildContext, best first", "ranked list, cut", "first-stage order, cut"];

/// The measures with their units.
const MEASURES: [(&str, &str); 4] = [
    ("log P(reference), mean over its tokens", "nats"),
    ("context holds the reference", "share"),
    ("F1 of the answer", "share"),
    ("tokens of the context", "tokens"),
];

/// Most tokens of an answer.
const ANSWER_TOKENS: usize = 24;

/// The measures of each way, for each size.
type Values = Vec<[[f64; MEASURES.len()]; WAYS.len()]>;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let given =
        |name: &'static str| arguments.windows(2).filter(move |pair| pair[0] == name).map(|pair| pair[1].as_str());
    let number = |name: &'static str, default: usize| given(name).next_back().map_or(Ok(default), str::parse);
    anyhow::ensure!(given("--data").next().is_some(), "--data FILE is missing");
    let (questions, skip) = (number("--questions", 40)?, number("--skip", 0)?);
    let config = Config::load(None, &[])?;
    rerankd::telemetry::install(&config, false);
    let runtime = tokio::runtime::Runtime::new()?;
    let engine = runtime.block_on(rerankd::app::engine(&config))?;
    for file in given("--data") {
        for copies in [false, true] {
            let lists = list::read(Path::new(file), skip, questions)?;
            let mut values: Vec<Values> = Vec::with_capacity(lists.len());
            for (number, list) in lists.iter().enumerate() {
                let passages = if copies { with_copies(list) } else { list.passages.clone() };
                values.push(runtime.block_on(question(&engine, list, &passages))?);
                eprintln!("{} of {} questions of {file}, copies: {copies}", number + 1, lists.len());
            }
            print(file, copies, &engine.generator()?.info.name, &values);
        }
    }
    Ok(())
}

/// The list with three near-copies behind each relevant passage. Each lacks another one of twenty words.
fn with_copies(list: &List) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    for (passage, relevant) in list.passages.iter().zip(&list.relevant) {
        passages.push(passage.clone());
        for copy in 0..if *relevant { 3 } else { 0 } {
            let words = passage.text.split(' ').enumerate().filter(|(at, _)| at % 20 != 6 * copy + 4);
            let text = words.map(|(_, word)| word).collect::<Vec<_>>().join(" ");
            passages.push(Passage { text, ..passage.clone() });
        }
    }
    for (index, passage) in passages.iter_mut().enumerate() {
        passage.id = index.to_string();
    }
    passages
}

async fn question(engine: &Engine, list: &List, passages: &[Passage]) -> anyhow::Result<Values> {
    let call = Call::local();
    let ranking =
        RerankRequest { query: list.question.clone(), passages: passages.to_vec(), ..RerankRequest::default() };
    let ranked = engine.reranker.rerank(&call, ranking.clone(), None).await?;
    let ranked: Vec<usize> = ranked.passages.iter().map(|passage| passage.index).collect();
    let given: Vec<usize> = (0..passages.len()).collect();
    let mut texts = Vec::with_capacity(SIZES.len() * WAYS.len());
    for size in SIZES {
        for order in [ContextOrder::Auto, ContextOrder::Descending] {
            let ranking = RerankRequest { context_order: order, ..ranking.clone() };
            let request = ContextRequest { ranking, size: ContextSize::Tokens(size), ..ContextRequest::default() };
            texts.push(engine.context_builder.build(&call, request).await?.text);
        }
        for order in [&ranked, &given] {
            texts.push(cut(engine, passages, order, size)?);
        }
    }
    // Each context is one passage, so that all are read with the same words around them.
    let filled: Vec<usize> = (0..texts.len()).filter(|at| !texts[*at].is_empty()).collect();
    let context = |at: usize| -> Vec<usize> { filled.iter().position(|filled| *filled == at).into_iter().collect() };
    let request = ContextsRequest {
        question: list.question.clone(),
        task: Task::default(),
        passages: filled.iter().map(|&at| Passage::untitled(at, texts[at].clone())).collect(),
        contexts: (0..texts.len()).map(context).collect(),
        reference: Some(list.answers[0].clone()),
        answer_tokens: Some(ANSWER_TOKENS),
        ..ContextsRequest::default()
    };
    let readings = engine.contexts.read(&call, request).await?;
    let tokenizer = &engine.generator()?.language.tokenizer;
    let measured = texts.iter().zip(readings).map(|(text, reading)| {
        [
            reading.reference.unwrap_or(f64::NAN),
            contains(text, &list.answers),
            token_f1(&reading.answer.unwrap_or_default(), &list.answers),
            tokenizer.text(text).len() as f64,
        ]
    });
    let measured: Vec<_> = measured.collect();
    Ok(measured.chunks(WAYS.len()).map(|ways| std::array::from_fn(|way| ways[way])).collect())
}

/// The passages in this order with the built-in template, cut at a number of tokens.
fn cut(engine: &Engine, passages: &[Passage], order: &[usize], tokens: usize) -> anyhow::Result<String> {
    let write = |(place, &index): (usize, &usize)| {
        let Passage { title, text, .. } = &passages[index];
        let title = if title.is_empty() { String::new() } else { format!("{title}\n") };
        format!("[{}] {title}{}", place + 1, text.trim())
    };
    let whole = order.iter().enumerate().map(write).collect::<Vec<_>>().join("\n\n");
    let tokenizer = &engine.generator()?.language.tokenizer;
    let all = tokenizer.text(&whole);
    let bytes = tokenizer.bytes(&all[..tokens.min(all.len())]);
    let end = std::str::from_utf8(&bytes).map_or_else(|error| error.valid_up_to(), str::len);
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

fn print(file: &str, copies: bool, model: &str, values: &[Values]) {
    let line = |size: usize, way: usize, minus: Option<usize>, measure: usize| {
        let of = |way: usize, one: &Values| one[size][way][measure];
        let values: Vec<f64> =
            values.iter().map(|one| of(way, one) - minus.map_or(0.0, |minus| of(minus, one))).collect();
        let ends = mean_interval(&values, Resampling::default(), &|| false);
        println!(
            "{}",
            json!({
                "data": Path::new(file).file_name().map(|name| name.to_string_lossy()), "near_copies": copies,
                "questions": values.len(), "size": SIZES[size], "context": WAYS[way],
                "minus": minus.map(|minus| WAYS[minus]), "measure": MEASURES[measure].0, "unit": MEASURES[measure].1,
                "value": values.iter().sum::<f64>() / values.len().max(1) as f64,
                "low": ends.map(|ends| ends.low), "high": ends.map(|ends| ends.high), "model": model,
            })
        );
    };
    for size in 0..SIZES.len() {
        for measure in 0..MEASURES.len() {
            for way in 0..WAYS.len() {
                line(size, way, None, measure);
                if way > 0 {
                    line(size, 0, Some(way), measure);
                }
            }
        }
    }
}
