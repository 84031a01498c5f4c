//! A causal model with a unified key-value cache.
//!
//! With a cache per sequence, llama.cpp aborts the process when part of a sequence is copied. In a unified cache such a copy
//! is allowed and moves no data. A step is one physical batch. Its logits are reduced to log-probabilities before the next
//! step starts, so that at most one batch of rows is in memory (a row takes 192 KiB for a vocabulary of 49k tokens).

use std::num::NonZeroU32;
use std::ops::Range;
use std::time::{Duration, Instant};

use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::{LlamaLoraAdapter, LlamaModel};
use llama_cpp_2::token::LlamaToken;
use rayon::prelude::*;

use super::{Settings, state};
use numeric::logspace::logsumexp;
use numeric::real;
use prefix_scheduler::model::{Batch, Capacity, Decoded, Generator, ModelError, Row};
use prefix_scheduler::plan::{Reads, Token};

/// The maximum number of sequences in one context (LLAMA_MAX_SEQ).
const MAX_SEQUENCES: u32 = 256;

/// The AMX kernels compute tiles of this many rows, and are up to a third slower if the last tile is not full.
const TILE: usize = 32;

pub(super) struct LlamaGenerator<'m> {
    context: LlamaContext<'m>,
    batch: LlamaBatch<'static>,
    capacity: Capacity,
    vocabulary: usize,
    identity: String,
    /// True if layers run on an accelerator.
    offloaded: bool,
    /// True if steps are padded to a multiple of [`TILE`].
    pads: bool,
    /// Size of the attention window in positions; 0 if a position sees all earlier ones.
    window: usize,
    /// [`Generator::saves_cheaply`]: true on a CPU, which copies in memory; measured by [`LlamaGenerator::warm_up`] on an
    /// accelerator.
    saves_cheaply: bool,
}

impl<'m> LlamaGenerator<'m> {
    pub fn new(model: &'m LlamaModel, backend: &LlamaBackend, settings: &Settings) -> Result<Self, ModelError> {
        let unusable = |problem: String| ModelError::Unusable { path: settings.path.display().to_string(), problem };
        let narrow = |what: &str, value: usize| {
            u32::try_from(value).map_err(|_| unusable(format!("{what}: {value} given, at most {} allowed", u32::MAX)))
        };
        let threads = i32::try_from(settings.threads)
            .map_err(|_| unusable(format!("threads: {} given, at most {} allowed", settings.threads, i32::MAX)))?;
        let step = narrow("batch", settings.batch)?;
        // llama.cpp aborts the process when a batch cannot hold one row of logits for every sequence.
        let sequences = MAX_SEQUENCES.min(step);
        let offloaded = super::offloads(settings)?;
        let pads = !offloaded && super::uses_amx();
        // Padding needs cells, too. llama.cpp warns of a context that is longer than the model's.
        let trained = usize::try_from(model.n_ctx_train()).unwrap_or(usize::MAX);
        let padding = if pads { TILE } else { 0 };
        let all = settings.cells.saturating_add(padding).min(trained.max(settings.cells));
        let cells = all.saturating_sub(padding);
        let params = LlamaContextParams::default()
            .with_n_ctx(NonZeroU32::new(narrow("context_tokens", all)?))
            .with_n_batch(step)
            .with_n_ubatch(step)
            .with_n_seq_max(sequences)
            .with_kv_unified(true)
            .with_flash_attention_policy(llama_cpp_sys_2::LLAMA_FLASH_ATTN_TYPE_ENABLED)
            .with_type_k(settings.cache_type.of_llama())
            .with_type_v(settings.cache_type.of_llama())
            .with_n_threads(threads)
            .with_n_threads_batch(threads)
            // Without layers on an accelerator, single operations are not offloaded either.
            .with_op_offload(settings.gpu_layers > 0)
            .with_no_perf(true);
        let context = model
            .new_context(backend, params)
            .map_err(|error| unusable(format!("cannot create a context of {} cells: {error}", settings.cells)))?;
        // The last sequence is reserved for saving and restoring states, and for padding.
        let sequences = sequences as usize - 1;
        let capacity = Capacity { cells, sequences, batch: settings.batch };
        let identity = state::identity(settings);
        let vocabulary = usize::try_from(model.n_vocab()).map_err(|_| unusable("the file has no vocabulary".into()))?;
        let batch = LlamaBatch::new(settings.batch, 1);
        let says = |key: &str| model.meta_val_str(key).unwrap_or_default();
        let window = says(&format!("{}.attention.sliding_window", says("general.architecture")));
        let window = window.parse().unwrap_or(0);
        let saves_cheaply = !offloaded;
        Ok(Self { context, batch, capacity, vocabulary, identity, offloaded, pads, window, saves_cheaply })
    }

    /// Applies an adapter of this model to all tokens.
    pub fn apply(&mut self, adapter: &mut LlamaLoraAdapter, scale: f32) -> Result<(), ModelError> {
        let applied = self.context.lora_adapter_set(adapter, scale);
        applied.map_err(|error| ModelError::Decode(format!("the adapter cannot be applied: {error}")))
    }

    /// Evaluates full steps and a step of one token, and discards them. On an accelerator the first step loads kernels
    /// and allocates memory, and takes as long as hundreds of others. It must not delay a caller or distort a measured
    /// speed. A step that does not fit the accelerator's memory fails here, while the model loads. Does nothing on a CPU.
    pub fn warm_up(&mut self) -> Result<(), ModelError> {
        if !self.offloaded {
            return Ok(());
        }
        let full = trial(self.capacity.batch.min(self.capacity.sequences * TRIAL));
        // The first round is not counted.
        let _ = self.time_step(&full)?;
        let (evaluated, moved) = self.time_step(&full)?;
        let _ = self.time_step(&trial(1))?;
        let tokens = TRIAL.min(full.rows.len());
        let evaluated = evaluated.mul_f64(real(tokens) / real(full.rows.len()));
        match moved {
            Ok(moved) => {
                self.saves_cheaply = worth_saving(moved, evaluated);
                let kept = self.saves_cheaply;
                tracing::info!(tokens, ?evaluated, ?moved, kept, "KV states of passages timed on the accelerator");
            }
            Err(error) => tracing::warn!(%error, "KV states of passages cannot be moved; none are cached"),
        }
        Ok(())
    }

    /// Times the evaluation of a step of [`trial`] and the saving and restoring of its first sequence. Leaves the cache
    /// empty.
    fn time_step(&mut self, batch: &Batch) -> Result<(Duration, Result<Duration, ModelError>), ModelError> {
        let began = Instant::now();
        self.decode(batch)?;
        let evaluated = began.elapsed();
        let moved = self.time_state(TRIAL.min(batch.rows.len()));
        for sequence in 0..batch.rows.len().div_ceil(TRIAL) {
            self.release(sequence)?;
        }
        Ok((evaluated, moved))
    }

    /// Times saving the first positions of the first sequence and restoring them in its place.
    fn time_state(&mut self, positions: usize) -> Result<Duration, ModelError> {
        let began = Instant::now();
        let state = self.save(0, 0..positions)?;
        self.release(0)?;
        self.restore(&state, 0, 0..positions)?;
        Ok(began.elapsed())
    }

    /// Number of unused rows that are added to a step. Below [`TILE`] rows they would cost more than they save.
    fn padding(&self, rows: usize) -> usize {
        if !self.pads || rows < TILE {
            return 0;
        }
        rows.next_multiple_of(TILE).min(self.capacity.batch) - rows
    }

    /// Copies the rows into llama.cpp's batch, and adds the padding in the spare sequence.
    fn fill(&mut self, batch: &Batch) -> Result<(), ModelError> {
        let failed = |problem: String| ModelError::Decode(problem);
        self.batch.clear();
        for row in &batch.rows {
            let position =
                i32::try_from(row.position).map_err(|_| failed(format!("position {} is too large", row.position)))?;
            self.batch
                .add(LlamaToken::new(row.token), position, &[sequence(row.sequence)?], row.is_read())
                .map_err(|error| failed(error.to_string()))?;
        }
        let spare = sequence(self.capacity.sequences)?;
        for position in (0..).take(self.padding(batch.rows.len())) {
            self.batch.add(LlamaToken::new(0), position, &[spare], false).map_err(|error| failed(error.to_string()))?;
        }
        Ok(())
    }
}

/// True if states are worth caching that take `moved` to save and restore, and whose tokens take `evaluated` to
/// compute. Most saved states are never used.
fn worth_saving(moved: Duration, evaluated: Duration) -> bool {
    moved <= evaluated / 2
}

/// Tokens per sequence of [`trial`]: few enough for any model's context.
const TRIAL: usize = 256;

/// One in this many tokens of [`trial`] has its logits read, as in a prompt with a short query.
const READ: usize = 8;

/// A step of sequences of [`TRIAL`] tokens.
fn trial(tokens: usize) -> Batch {
    let rows = (0..tokens).map(|index| {
        let targets = index.div_ceil(READ)..(index + 1).div_ceil(READ);
        // Every served vocabulary has at least 256 tokens.
        let token = Token::try_from(index * 37 % 256).unwrap_or_default();
        Row { token, position: index % TRIAL, sequence: index / TRIAL, targets, draws: 0..0 }
    });
    Batch { rows: rows.collect(), targets: vec![(0, Reads::default()); tokens.div_ceil(READ)], ..Batch::default() }
}

fn sequence(number: usize) -> Result<i32, ModelError> {
    i32::try_from(number).map_err(|_| ModelError::Decode(format!("sequence number {number} is too large")))
}

/// The requested value of a token; NaN for a token outside the vocabulary, or if the logits have no finite normaliser.
fn score(logits: &[f32], normaliser: f64, (token, reads): (Token, Reads)) -> f64 {
    let logit = usize::try_from(token).ok().and_then(|index| logits.get(index)).map_or(f64::NAN, |&x| f64::from(x));
    match reads {
        Reads::LogProbability => logit - normaliser,
        Reads::Logit if normaliser.is_finite() => logit,
        Reads::Logit => f64::NAN,
    }
}

impl Generator for LlamaGenerator<'_> {
    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn fork(&mut self, from: usize, to: usize, length: usize) -> Result<(), ModelError> {
        let end = u32::try_from(length)
            .map_err(|_| ModelError::Decode(format!("a prefix of {length} tokens is too long")))?;
        self.context
            .copy_kv_cache_seq(sequence(from)?, sequence(to)?, Some(0), Some(end))
            .map_err(|error| ModelError::Decode(error.to_string()))
    }

    fn state_identity(&self) -> Option<String> {
        Some(self.identity.clone())
    }

    fn saves_cheaply(&self) -> bool {
        self.saves_cheaply
    }

    fn save(&mut self, from: usize, positions: Range<usize>) -> Result<Vec<u8>, ModelError> {
        let spare = sequence(self.capacity.sequences)?;
        state::save(&mut self.context, spare, sequence(from)?, positions, self.window)
    }

    fn restore(&mut self, state: &[u8], to: usize, positions: Range<usize>) -> Result<(), ModelError> {
        state::restore(&mut self.context, state, sequence(self.capacity.sequences)?, sequence(to)?, positions)
    }

    fn release(&mut self, number: usize) -> Result<(), ModelError> {
        let number =
            u32::try_from(number).map_err(|_| ModelError::Decode(format!("sequence number {number} is too large")))?;
        match self.context.clear_kv_cache_seq(Some(number), None, None) {
            Ok(true) => Ok(()),
            Ok(false) => Err(ModelError::Decode(format!("llama.cpp did not remove sequence {number}"))),
            Err(error) => Err(ModelError::Decode(error.to_string())),
        }
    }

    fn clear(&mut self, numbers: bool) {
        // Once all sequences are released, a cache without windows equals a new one; a cache with windows does not.
        if numbers || self.window > 0 {
            self.context.clear_kv_cache();
        }
    }

    fn decode(&mut self, batch: &Batch) -> Result<Decoded, ModelError> {
        if batch.rows.is_empty() {
            return Ok(Decoded::default());
        }
        let began = Instant::now();
        self.fill(batch)?;
        self.context.decode(&mut self.batch).map_err(|error| ModelError::Decode(error.to_string()))?;
        if self.padding(batch.rows.len()) > 0 {
            self.release(self.capacity.sequences)?;
        }
        let submitted = Instant::now();
        let mut wanted = Vec::new();
        for (index, row) in batch.rows.iter().enumerate().filter(|(_, row)| row.is_read()) {
            let index = i32::try_from(index).map_err(|_| ModelError::Decode("the batch is too large".into()))?;
            let (targets, draws) = (&batch.targets[row.targets.clone()], &batch.draws[row.draws.clone()]);
            wanted.push((self.context.get_logits_ith(index), targets, draws));
        }
        // An accelerator works asynchronously. Waiting here attributes its time to this step, which time budgets rely on.
        self.context.synchronize();
        let evaluated = Instant::now();
        debug_assert!(wanted.iter().all(|(logits, _, _)| logits.len() == self.vocabulary));
        let rows: Vec<(Vec<f64>, Vec<_>)> = wanted
            .par_iter()
            .map(|(logits, targets, draws)| {
                let scores = if targets.is_empty() {
                    Vec::new()
                } else {
                    let normaliser = logsumexp(logits);
                    targets.iter().map(|&target| score(logits, normaliser, target)).collect()
                };
                (scores, draws.iter().map(|wanted| wanted.from_logits(logits)).collect())
            })
            .collect();
        tracing::trace!(
            tokens = batch.rows.len(),
            read = wanted.len(),
            submit_us = (submitted - began).as_micros(),
            evaluate_us = (evaluated - submitted).as_micros(),
            reduce_us = evaluated.elapsed().as_micros(),
            "step"
        );
        let mut decoded = Decoded::default();
        for (scores, drawn) in rows {
            decoded.scores.extend(scores);
            decoded.drawn.extend(drawn);
        }
        Ok(decoded)
    }
}

#[cfg(test)]
mod tests {
    use llama_cpp_2::model::params::LlamaModelParams;

    use super::*;

    /// Times measured on an H200 with 135 million parameters, and on a CPU.
    #[test]
    fn states_are_cached_if_moving_them_takes_at_most_half_of_reading() {
        let milliseconds = Duration::from_millis;
        assert!(!worth_saving(milliseconds(8), milliseconds(2)));
        assert!(!worth_saving(milliseconds(3), milliseconds(5)));
        assert!(worth_saving(milliseconds(3), milliseconds(200)));
    }

    /// The accelerator's path, run on the CPU.
    #[test]
    fn a_trial_leaves_an_empty_cache() {
        let settings = Settings::plain("tests/golden/adapters/base.gguf", 600, 520);
        let model = super::super::load(&settings.path, &LlamaModelParams::default()).unwrap();
        let mut generator = LlamaGenerator::new(&model, super::super::backend().unwrap(), &settings).unwrap();
        assert!(generator.saves_cheaply());
        generator.warm_up().unwrap();
        assert_eq!(generator.context.kv_cache_seq_pos_max(0), -1, "warm_up does nothing on a CPU");
        generator.offloaded = true;
        generator.warm_up().unwrap();
        for sequence in 0..4 {
            assert_eq!(generator.context.kv_cache_seq_pos_max(sequence), -1, "sequence {sequence}");
        }
        // All cells are free.
        generator.decode(&trial(520)).unwrap();
    }

    #[test]
    fn a_trial_reads_an_eighth_of_its_rows_in_sequences_of_bounded_length() {
        for tokens in [1, 8, 9, 512, 4096] {
            let batch = trial(tokens);
            assert_eq!(batch.rows.len(), tokens);
            let read: Vec<_> = batch.rows.iter().filter(|row| row.is_read()).collect();
            assert_eq!(read.len(), tokens.div_ceil(READ), "{tokens}");
            assert_eq!(batch.targets.len(), read.len());
            assert!(batch.rows.iter().all(|row| row.position < TRIAL && row.targets.end <= batch.targets.len()));
            assert_eq!(batch.rows[tokens - 1].sequence, (tokens - 1) / TRIAL);
        }
    }
}
