//! Attention over foreign cells: queries after cached passages, in one cache for all sequences and in one stream per
//! sequence.
//!
//! In one cache each row of a query attends, masked, to the cells of all passages. With a stream per sequence it sees
//! only its own cells, but the runtime splits a step by stream. A step decodes all queries, or a few.

use std::num::NonZeroU32;
use std::time::Instant;

use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;
use models::catalog::Role;
use models::llama;
use rerankd::config::Config;

use crate::report::Line;
use crate::rerank::median;

const PASSAGE: usize = 110;
const QUERY: usize = 17;
const ROUNDS: usize = 5;
/// Rows of a step at most.
const STEP: usize = 512;
/// Cells of a stream: llama.cpp rounds them up to a multiple of 256.
const STREAM: usize = 256;

pub fn run(model: Option<&str>) -> anyhow::Result<()> {
    let flags: Vec<(String, String)> =
        model.map(|model| ("generator.model".to_owned(), model.to_owned())).into_iter().collect();
    let config = Config::load(None, &flags)?;
    let located = config.store.locate(&config.generator.model, Role::Generator)?;
    let settings = config.generator.settings(located.path);
    let chosen = llama::reencode::chosen(&settings, &located.sha256, &config.store);
    let path = chosen.map_or(settings.path, |choice| choice.path);
    let model = LlamaModel::load_from_file(llama::backend()?, &path, &LlamaModelParams::default())?;
    for passages in [10, 20, 50] {
        let one = Cache::new(&model, passages, true)?;
        let streams = Cache::new(&model, passages, false)?;
        let mut seconds = [const { Vec::new() }; 4];
        let mut caches = [one, streams];
        for round in 0..=ROUNDS {
            for (place, (cache, each)) in [(0, passages), (0, 4), (1, passages), (1, 4)].into_iter().enumerate() {
                let taken = caches[cache].queries(passages, each)?;
                // The first round warms up.
                if round > 0 {
                    seconds[place].push(taken);
                }
            }
        }
        let found: Vec<f64> = seconds.iter_mut().map(|seconds| median(seconds)).collect();
        let names =
            ["one cache, all in a step", "one cache, four a step", "streams, all in a step", "streams, four a step"];
        for (name, value) in names.into_iter().zip(&found) {
            Line::new(&format!("{passages} queries behind passages, {name}"), *value, "s")
                .ratio(value / found[0])
                .print();
        }
    }
    Ok(())
}

struct Cache<'m> {
    context: LlamaContext<'m>,
    batch: LlamaBatch<'m>,
}

impl<'m> Cache<'m> {
    /// A cache that holds this many passages, each in its own sequence.
    fn new(model: &'m LlamaModel, passages: usize, unified: bool) -> anyhow::Result<Self> {
        let threads = i32::try_from(std::thread::available_parallelism()?.get())?;
        let (step, sequences) = (u32::try_from(STEP)?, u32::try_from(passages)?);
        let cells = u32::try_from(passages * STREAM)?;
        let params = LlamaContextParams::default()
            .with_n_ctx(NonZeroU32::new(cells))
            .with_n_batch(step)
            .with_n_ubatch(step)
            .with_n_seq_max(sequences)
            .with_kv_unified(unified)
            .with_flash_attention_policy(1)
            .with_n_threads(threads)
            .with_n_threads_batch(threads);
        let context = model.new_context(llama::backend()?, params)?;
        let mut cache = Self { context, batch: LlamaBatch::new(STEP, 1) };
        for sequence in 0..passages {
            cache.add(sequence, 0, PASSAGE, false)?;
            cache.context.decode(&mut cache.batch)?;
            cache.batch.clear();
        }
        Ok(cache)
    }

    fn add(&mut self, sequence: usize, from: usize, tokens: usize, read: bool) -> anyhow::Result<()> {
        for offset in 0..tokens {
            let token = i32::try_from(1_000 + (sequence * 7_919 + (from + offset) * 104_729) % 40_000)?;
            let (position, sequence) = (i32::try_from(from + offset)?, i32::try_from(sequence)?);
            self.batch.add(LlamaToken::new(token), position, &[sequence], read)?;
        }
        Ok(())
    }

    /// Seconds of a query after each passage, with as many per step as fit, at most `each`.
    fn queries(&mut self, passages: usize, each: usize) -> anyhow::Result<f64> {
        let each = each.min(STEP / QUERY);
        let started = Instant::now();
        for start in (0..passages).step_by(each) {
            for sequence in start..passages.min(start + each) {
                self.add(sequence, PASSAGE, QUERY, true)?;
            }
            self.context.decode(&mut self.batch)?;
            self.batch.clear();
        }
        let taken = started.elapsed().as_secs_f64();
        for sequence in 0..passages {
            self.context.clear_kv_cache_seq(Some(u32::try_from(sequence)?), Some(u32::try_from(PASSAGE)?), None)?;
        }
        Ok(taken)
    }
}
