//! A causal model with a unified key-value cache.
//!
//! With a cache per sequence, llama.cpp aborts the process when part of a sequence is copied. In a unified cache such a copy
//! is allowed and moves no data. A step is one physical batch. Its logits are reduced to log-probabilities before the next
//! step starts, so that at most one batch of rows is in memory (a row takes 192 KiB for a vocabulary of 49k tokens).

use std::num::NonZeroU32;
use std::ops::Range;

use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::{LlamaLoraAdapter, LlamaModel};
use llama_cpp_2::token::LlamaToken;
use rayon::prelude::*;

use super::{Settings, state};
use crate::model::{Batch, Capacity, Decoded, Generator, ModelError};
use crate::numeric::logspace::logsumexp;
use crate::plan::{Reads, Token};

/// The maximum number of sequences in one context (LLAMA_MAX_SEQ).
const MAX_SEQUENCES: u32 = 256;

pub(super) struct LlamaGenerator<'m> {
    context: LlamaContext<'m>,
    batch: LlamaBatch<'static>,
    capacity: Capacity,
    vocabulary: usize,
    identity: String,
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
        let flash = if settings.flash_attention {
            llama_cpp_sys_2::LLAMA_FLASH_ATTN_TYPE_ENABLED
        } else {
            llama_cpp_sys_2::LLAMA_FLASH_ATTN_TYPE_DISABLED
        };
        let params = LlamaContextParams::default()
            .with_n_ctx(NonZeroU32::new(narrow("context_cells", settings.cells)?))
            .with_n_batch(step)
            .with_n_ubatch(step)
            .with_n_seq_max(sequences)
            .with_kv_unified(true)
            .with_flash_attention_policy(flash)
            .with_type_k(settings.cache_type.of_llama())
            .with_type_v(settings.cache_type.of_llama())
            .with_n_threads(threads)
            .with_n_threads_batch(threads)
            .with_no_perf(true);
        let context = model
            .new_context(backend, params)
            .map_err(|error| unusable(format!("cannot create a context of {} cells: {error}", settings.cells)))?;
        // States pass through the last sequence.
        let sequences = sequences as usize - 1;
        let capacity = Capacity { cells: settings.cells, sequences, batch: settings.batch };
        let identity = state::identity(settings);
        let vocabulary = usize::try_from(model.n_vocab()).map_err(|_| unusable("the file has no vocabulary".into()))?;
        Ok(Self { context, batch: LlamaBatch::new(settings.batch, 1), capacity, vocabulary, identity })
    }

    /// Applies an adapter of this model to all tokens from now on.
    pub fn apply(&mut self, adapter: &mut LlamaLoraAdapter, scale: f32) -> Result<(), ModelError> {
        let applied = self.context.lora_adapter_set(adapter, scale);
        applied.map_err(|error| ModelError::Decode(format!("the adapter cannot be applied: {error}")))
    }

    /// Copies the rows into llama.cpp's batch.
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
        Ok(())
    }
}

fn sequence(number: usize) -> Result<i32, ModelError> {
    i32::try_from(number).map_err(|_| ModelError::Decode(format!("sequence number {number} is too large")))
}

/// What is read of a token; NaN for a token outside the vocabulary, and where the logits have no finite normaliser.
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

    fn save(&mut self, from: usize, positions: Range<usize>) -> Result<Vec<u8>, ModelError> {
        state::save(&mut self.context, sequence(self.capacity.sequences)?, sequence(from)?, positions)
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

    fn decode(&mut self, batch: &Batch) -> Result<Decoded, ModelError> {
        if batch.rows.is_empty() {
            return Ok(Decoded::default());
        }
        self.fill(batch)?;
        self.context.decode(&mut self.batch).map_err(|error| ModelError::Decode(error.to_string()))?;
        let mut wanted = Vec::new();
        for (index, row) in batch.rows.iter().enumerate().filter(|(_, row)| row.is_read()) {
            let index = i32::try_from(index).map_err(|_| ModelError::Decode("the batch is too large".into()))?;
            let (targets, draws) = (&batch.targets[row.targets.clone()], &batch.draws[row.draws.clone()]);
            wanted.push((self.context.get_logits_ith(index), targets, draws));
        }
        if wanted.is_empty() {
            // An accelerator would go on behind the call: its time belongs to this step, by which budgets of time are kept.
            self.context.synchronize();
        }
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
        let mut decoded = Decoded::default();
        for (scores, drawn) in rows {
            decoded.scores.extend(scores);
            decoded.drawn.extend(drawn);
        }
        Ok(decoded)
    }
}
