//! The engine compared with a bare decoding loop and with a naive program on the same weights, in one run.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use engine::Engine;
use engine::methods;
use engine::methods::query_prompt::QueryPrompt;
use engine::prompt::PassageTokens;
use engine::types::{MoiOptions, MoiOutcome, RerankRequest, Scheme};
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;
use models::llama;
use prefix_scheduler::call::Call;
use prefix_scheduler::plan::{Plan, Segment, Token};
use rerankd::config::Config;
use tokio::runtime::Runtime;

use super::data::{self, Question};
use super::load;
use super::neighbours;
use super::report::{self, Line};

const PROMPT: usize = 1024;
/// Least number of prompts of a measurement of the bare loop.
const NEIGHBOUR: usize = 3;
/// Least time of a measurement of the engine or the bare loop: an accelerator evaluates a prompt in milliseconds.
const LEAST: Duration = Duration::from_millis(400);

pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let only = data::option(arguments, "only");
    if only.is_some_and(|only| only == "rows") {
        // Needs no model.
        rows();
        return Ok(());
    }
    let questions = match data::option(arguments, "data") {
        Some(path) => data::read(Path::new(path), 40)?,
        // These parts make their own prompts.
        None if matches!(only, Some("prefill" | "neighbours")) => Vec::new(),
        None => anyhow::bail!("--data FILE is missing"),
    };
    let runtime = Runtime::new()?;
    // Otherwise a repeated request would cost only its query. `--warm` allows that.
    let cold = !arguments.iter().any(|argument| argument == "--warm");
    let mut flags: Vec<_> =
        cold.then(|| ("passage_cache.memory_bytes".to_owned(), "off".to_owned())).into_iter().collect();
    flags.extend(data::option(arguments, "model").map(|model| ("generator.model".to_owned(), model.to_owned())));
    let config = Config::load(None, &flags)?;
    let engine = runtime.block_on(rerankd::app::engine(&config))?;
    report::about(&engine.generator()?.info);
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    if wanted("tokens") {
        tokens(&runtime, &engine, &questions)?;
    }
    if wanted("prefill") {
        prefill(&runtime, &engine, &config, arguments)?;
    }
    if wanted("methods") {
        methods(&runtime, &engine, &questions)?;
    }
    if wanted("naive") {
        against_naive(&runtime, &engine, &config, &questions)?;
    }
    if wanted("fairness") {
        load::fairness(&runtime, &engine, &questions)?;
    }
    if wanted("small") {
        load::small(&runtime, &engine, &questions)?;
    }
    if wanted("samples") {
        load::samples(&runtime, &engine, &questions)?;
    }
    if wanted("memory") {
        load::memory(&runtime, &engine)?;
    }
    if wanted("neighbours") {
        neighbours::run(&runtime, &engine)?;
    }
    Ok(())
}

/// Nanoseconds per logit to reduce a row to its normaliser, compared with double precision, on one thread.
fn rows() {
    let row: Vec<f32> =
        (0..49_152_u16).map(|index| f32::from(index.wrapping_mul(7_919) % 1_000) / 100.0 - 8.0).collect();
    let peak = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let plain = |row: &[f32]| f64::from(peak) + row.iter().map(|&x| f64::from(x - peak).exp()).sum::<f64>().ln();
    let nanoseconds = |reduce: &dyn Fn(&[f32]) -> f64| {
        let mut taken = Vec::new();
        for _ in 0..201 {
            let started = Instant::now();
            std::hint::black_box(reduce(std::hint::black_box(&row)));
            taken.push(started.elapsed().as_secs_f64() * 1e9 / row.len() as f64);
        }
        median(&mut taken)
    };
    let (ours, reference) = (nanoseconds(&numeric::logspace::logsumexp), nanoseconds(&plain));
    Line::new("a row of logits to its normaliser", ours, "ns/logit").ratio(reference / ours).at_least(4.0).print();
}

pub fn request(question: &Question, passages: usize, scheme: Option<Scheme>) -> RerankRequest {
    let mut chosen = question.request_passages();
    chosen.truncate(passages);
    RerankRequest {
        query: question.question.clone(),
        passages: chosen,
        method: engine::methods::find("moi"),
        moi: MoiOptions { scheme, ..MoiOptions::default() },
        ..RerankRequest::default()
    }
}

/// Tokens of every design relative to the naive program, for N = 5, 10 and 20. Plans give the cost; nothing is
/// evaluated.
fn tokens(runtime: &Runtime, engine: &Engine, questions: &[Question]) -> anyhow::Result<()> {
    use Scheme::{Adaptive, Cyclic, Latin, Prefix, Pruned, Random, Trie};
    for n in [5, 10, 20] {
        let mut pool = questions[0].clone();
        pool.passages =
            questions.iter().flat_map(|question| question.passages.iter().take(2).cloned()).take(n).collect();
        let naive = runtime
            .block_on(engine.reranker.cost(&Call::local(), request(&pool, n, Some(Random))))?
            .naive_tokens as f64;
        for scheme in [Random, Cyclic, Latin, Trie, Pruned, Prefix, Adaptive] {
            let cost = runtime.block_on(engine.reranker.cost(&Call::local(), request(&pool, n, Some(scheme))))?;
            Line::new(&format!("tokens, N = {n}, {scheme:?}"), cost.tokens as f64, "tokens")
                .ratio(naive / cost.tokens as f64)
                .print();
        }
    }
    Ok(())
}

/// Tokens and seconds of complete rerank requests by several methods, with passages truncated to 48 tokens.
fn methods(runtime: &Runtime, engine: &Engine, questions: &[Question]) -> anyhow::Result<()> {
    let outcomes = [MoiOutcome::QueryLikelihood, MoiOutcome::Joint];
    let rows = [
        ("query generation", "query-generation", None, MoiOutcome::default()),
        ("MOI, prefix", "moi", None, outcomes[0]),
        ("MOI, random 3N, query likelihood", "moi", Some(Scheme::Random), outcomes[0]),
        ("MOI, random 3N, joint", "moi", Some(Scheme::Random), outcomes[1]),
    ];
    for (name, method, scheme, outcome) in rows {
        let method = methods::find(method).context("no such method")?;
        let (mut tokens, mut seconds) = (0.0, 0.0);
        for question in &questions[..2] {
            let mut request = request(question, 10, scheme);
            request.method = Some(method);
            request.moi.outcome = outcome;
            request.passage_tokens = Some(48);
            let answer = runtime.block_on(engine.reranker.rerank(&Call::local(), request, None))?;
            tokens += answer.usage.tokens as f64 / 2.0;
            seconds += answer.usage.total_ms / 2e3;
        }
        Line::new(&format!("{name}: seconds of a rerank"), seconds, "s").print();
        Line::new(&format!("{name}: tokens of a rerank"), tokens, "tokens").print();
    }
    Ok(())
}

/// Tokens per second of the scheduler relative to a bare loop of full batches before and after it. Reports the median
/// of these ratios, because the speed of the machine varies over time.
fn prefill(runtime: &Runtime, engine: &Engine, config: &Config, arguments: &[String]) -> anyhow::Result<()> {
    let located = config.store.locate(&config.generator.model, models::catalog::Role::Generator)?;
    // The file that the engine runs, which may be re-encoded.
    let settings = config.generator.settings(located.path);
    let chosen =
        config.generator.reencode.and_then(|_| llama::reencode::chosen(&settings, &located.sha256, &config.store));
    let path = chosen.map_or(settings.path, |choice| choice.path);
    let bare = Bare::load(&path, config)?;
    let mut context = bare.context()?;
    // The first prompts warm the caches, and on an accelerator load the kernels.
    bare.rate(&mut context)?;
    let rounds: usize = data::option(arguments, "rounds").map_or(Ok(11), str::parse)?;
    for concurrency in data::option(arguments, "concurrent").unwrap_or("1,4,16").split(',') {
        let concurrency: usize = concurrency.parse()?;
        let (mut ours, mut ratios) = (Vec::new(), Vec::new());
        // The first round warms the caches and is not counted.
        let mut before = bare.rate(&mut context)?;
        for round in 0..=rounds {
            let rate = engine_rate(runtime, engine, concurrency, round)?;
            let after = bare.rate(&mut context)?;
            if round > 0 {
                ours.push(rate);
                ratios.push(2.0 * rate / (before + after));
            }
            before = after;
        }
        let (ours, ratio) = (median(&mut ours), median(&mut ratios));
        let quarters = (ratios[rounds / 4], ratios[rounds - 1 - rounds / 4]);
        eprintln!("{concurrency} concurrent: half of the ratios lie within {:.3} and {:.3}", quarters.0, quarters.1);
        let name = format!("prefill, {concurrency} concurrent");
        Line::new(&name, ours, "tokens/s").ratio(ratio).at_least(0.95).print();
    }
    Ok(())
}

pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub fn engine_rate(runtime: &Runtime, engine: &Engine, concurrency: usize, round: usize) -> anyhow::Result<f64> {
    let prompts = concurrency.max(NEIGHBOUR);
    let started = Instant::now();
    let mut repeated = 0;
    while repeated == 0 || started.elapsed() < LEAST {
        runtime.block_on(async {
            let gate = Arc::new(tokio::sync::Semaphore::new(concurrency));
            let runs = (0..prompts).map(|prompt| {
                let (engine, gate) = (engine.clone(), Arc::clone(&gate));
                tokio::spawn(async move {
                    let _place = gate.acquire_owned().await;
                    let mut plan = Plan::new();
                    plan.add(&[Segment::scored(filler(prompt + 100 * round, PROMPT + 1), PROMPT)]);
                    let generator = engine.generator()?;
                    anyhow::Ok(generator.scheduler.run(Arc::new(plan), &Call::local(), None).await?)
                })
            });
            for run in runs.collect::<Vec<_>>() {
                run.await??;
            }
            anyhow::Ok(())
        })?;
        repeated += 1;
    }
    Ok((repeated * prompts * PROMPT) as f64 / started.elapsed().as_secs_f64())
}

/// Tokens that every vocabulary has; the time does not depend on the choice.
fn filler(seed: usize, length: usize) -> Vec<Token> {
    (0..length).map(|i| Token::try_from((i * 7919 + seed * 104_729) % 251).unwrap_or(1)).collect()
}

/// A bare decoding loop: llama-cpp-2 without planning or scheduling.
struct Bare {
    model: LlamaModel,
    batch: usize,
    threads: i32,
}

impl Bare {
    fn load(path: &Path, config: &Config) -> anyhow::Result<Self> {
        let layers = LlamaModelParams::default().with_n_gpu_layers(config.generator.gpu_layers);
        let model = LlamaModel::load_from_file(llama::backend()?, path, &layers)?;
        let (_, batch) = rerankd::app::sizes(&config.generator)?;
        Ok(Self { model, batch, threads: i32::try_from(config.generator.threads)? })
    }

    fn context(&self) -> anyhow::Result<llama_cpp_2::context::LlamaContext<'_>> {
        let size = u32::try_from(self.batch)?;
        let params = LlamaContextParams::default()
            .with_n_ctx(std::num::NonZeroU32::new(8192))
            .with_n_batch(size)
            .with_n_ubatch(size)
            .with_n_threads(self.threads)
            .with_n_threads_batch(self.threads);
        Ok(self.model.new_context(llama::backend()?, params)?)
    }

    /// Tokens per second over prompts of [`PROMPT`] tokens, logits for the last token of each.
    fn rate(&self, context: &mut llama_cpp_2::context::LlamaContext<'_>) -> anyhow::Result<f64> {
        let mut batch = LlamaBatch::new(self.batch, 1);
        let started = Instant::now();
        let mut prompts = 0;
        while prompts < NEIGHBOUR || started.elapsed() < LEAST {
            sequence(context, &mut batch, self.batch, &filler(prompts, PROMPT), PROMPT - 1)?;
            prompts += 1;
        }
        Ok((prompts * PROMPT) as f64 / started.elapsed().as_secs_f64())
    }
}

/// Evaluates one sequence from its beginning in full batches, with logits from `scored` on. Clears the cache
/// afterwards.
fn sequence(
    context: &mut llama_cpp_2::context::LlamaContext<'_>,
    batch: &mut LlamaBatch<'_>,
    size: usize,
    tokens: &[Token],
    scored: usize,
) -> anyhow::Result<()> {
    for (start, chunk) in tokens.chunks(size).enumerate() {
        batch.clear();
        for (offset, &token) in chunk.iter().enumerate() {
            let position = start * size + offset;
            batch.add(LlamaToken::new(token), i32::try_from(position)?, &[0], position >= scored)?;
        }
        context.decode(batch)?;
        for offset in 0..chunk.len() {
            if start * size + offset >= scored {
                let row = context.get_logits_ith(i32::try_from(offset)?);
                std::hint::black_box(numeric::logspace::logsumexp(row));
            }
        }
    }
    context.clear_kv_cache_seq(Some(0), None, None)?;
    Ok(())
}

/// Complete rerank requests against the naive program: 3 N complete orders, each evaluated from its beginning, on the
/// file as shipped.
fn against_naive(runtime: &Runtime, engine: &Engine, config: &Config, questions: &[Question]) -> anyhow::Result<()> {
    let located = config.store.locate(&config.generator.model, models::catalog::Role::Generator)?;
    let naive = Bare::load(&located.path, config)?;
    let (mut ours, mut theirs, mut our_tokens, mut their_tokens) = (0.0, 0.0, 0.0, 0.0);
    for question in questions.iter().take(2) {
        let started = Instant::now();
        let answer = runtime.block_on(engine.reranker.rerank(&Call::local(), request(question, 10, None), None))?;
        ours += started.elapsed().as_secs_f64();
        our_tokens += answer.usage.tokens as f64;
        let started = Instant::now();
        their_tokens += naive_rerank(&naive, engine, question)? as f64;
        theirs += started.elapsed().as_secs_f64();
    }
    Line::new("rerank of 10 passages by moi", ours / 2.0, "s").ratio(theirs / ours).at_least(20.0).print();
    Line::new("the naive program, 30 orders from scratch, file as shipped", theirs / 2.0, "s").print();
    Line::new("tokens of moi", our_tokens / 2.0, "tokens").ratio(their_tokens / our_tokens).at_least(12.0).print();
    Ok(())
}

fn naive_rerank(naive: &Bare, engine: &Engine, question: &Question) -> anyhow::Result<usize> {
    use moi::design::{Design, orders};
    let generator = engine.generator()?;
    let tokenizer = generator.tokenizer();
    let QueryPrompt { prefix: opening, query } =
        QueryPrompt::new(&generator.language, &generator.language.query(&question.question));
    let passages: Vec<Vec<Token>> = question
        .passages
        .iter()
        .map(|passage| PassageTokens::new(tokenizer, &passage.title, &passage.text).cut(usize::MAX).0)
        .collect();
    let mut context = naive.context()?;
    let mut batch = LlamaBatch::new(naive.batch, 1);
    let mut total = 0;
    for order in orders(Design::Random, passages.len(), 3 * passages.len(), 0, &|| false)? {
        let mut prompt = opening.tokens.to_vec();
        for &p in &order {
            prompt.extend(&passages[p]);
        }
        let scored = prompt.len() + query.scored_from.unwrap_or(0) - 1;
        prompt.extend(query.tokens.iter());
        total += prompt.len();
        sequence(&mut context, &mut batch, naive.batch, &prompt, scored)?;
    }
    Ok(total)
}
