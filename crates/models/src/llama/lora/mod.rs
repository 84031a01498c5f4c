//! LoRA adapters: low-rank products that llama.cpp adds to the outputs of a model's matrices, W x + s (alpha / r) B A x
//! (Hu et al. 2022, section 4.1).
//!
//! llama.cpp ends the process for some faulty adapters, and ignores tensors that its graphs do not look up. A file is
//! therefore checked here first, without its parser: the header, every name and shape against the model's, and every number.

mod header;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use llama_cpp_2::model::{LlamaLoraAdapter, LlamaModel};

use self::header::{Tensor, UntrustedHeader, Value};
use crate::store;
use prefix_scheduler::model::ModelError;

/// Architectures whose graphs in the pinned llama.cpp multiply every matrix of [`PARTS`] with `build_lora_mm`.
const ARCHITECTURES: [&str; 10] =
    ["llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3", "smollm3", "olmo2", "granite"];

/// Matrices of a layer that take an adapter.
const PARTS: [&str; 8] = ["attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];

/// The output matrix. The embedding matrix takes no adapter: in a file without an output matrix llama.cpp would multiply
/// the adapter's factors in the wrong order and end the process.
const OUTPUT: &str = "output.weight";

/// Largest rank.
const MOST_RANK: u64 = 4096;

/// Key for the base model of an adapter: the SHA-256 of the model's file.
const BASE: &str = "rerankd.base.sha256";

/// Key for the number of files of a model. The header does not list the tensors of the other files.
const SPLIT: &str = "split.count";

/// An adapter for a generator.
#[derive(Debug, Clone, PartialEq)]
pub struct Adapter {
    /// Path of the GGUF file.
    pub path: PathBuf,
    /// SHA-256 of the file.
    pub sha256: String,
    /// Scale of the adapter: 0 for no effect, 1 as trained.
    pub scale: f32,
    /// SHA-256 of the model's file as configured.
    pub base: String,
}

/// Loads an adapter into `model`, which was read from `path` and frees the adapter.
///
/// # Errors
/// As [`verify`].
pub(super) fn load(adapter: &Adapter, model: &mut LlamaModel, path: &Path) -> Result<LlamaLoraAdapter, ModelError> {
    // Repeated, because loading the model took a while since the first check.
    verify(adapter, path)?;
    let loaded = model.lora_adapter_init(&adapter.path);
    let loaded = loaded.map_err(|error| unusable(&adapter.path, format!("llama.cpp cannot read it: {error}")))?;
    // The hash is equal before and after, so llama.cpp read this content.
    check_hash(adapter)?;
    Ok(loaded)
}

/// Checks that an adapter has its hash and can be applied to the model of the file `model`: header, names, shapes and numbers.
/// llama.cpp reads neither of the files.
///
/// # Errors
/// [`ModelError::Unusable`] naming the file at fault.
pub fn verify(adapter: &Adapter, model: &Path) -> Result<(), ModelError> {
    check_hash(adapter)?;
    let file = UntrustedHeader::read(&adapter.path).map_err(|problem| unusable(&adapter.path, problem))?;
    let base = UntrustedHeader::read(model).map_err(|problem| unusable(model, problem))?;
    let checked = check(adapter, &file, &base).and_then(|()| check_numbers(&adapter.path, &file));
    checked.map_err(|problem| unusable(&adapter.path, problem))
}

/// Checks the SHA-256, which names all cached data of an adapter.
fn check_hash(adapter: &Adapter) -> Result<(), ModelError> {
    let (path, expected) = (&adapter.path, &adapter.sha256);
    let found = store::hash(path).map_err(|error| match error {
        store::StoreError::File { error, .. } => unusable(path, error.to_string()),
        other => unusable(path, other.to_string()),
    })?;
    if found != *expected {
        return Err(unusable(path, format!("the file changed: SHA-256 is {found}, {expected} expected")));
    }
    Ok(())
}

fn unusable(path: &Path, problem: String) -> ModelError {
    ModelError::Unusable { path: path.display().to_string(), problem }
}

/// Checks the header of an adapter against the model's header.
fn check(adapter: &Adapter, file: &UntrustedHeader, base: &UntrustedHeader) -> Result<(), String> {
    for (key, expected) in [("general.type", "adapter"), ("adapter.type", "lora")] {
        let found = file.text(key)?;
        if found != expected {
            return Err(format!("{key} is {found:?}, {expected:?} expected"));
        }
    }
    let (own, models) = (file.text("general.architecture")?, base.text("general.architecture")?);
    if own != models {
        return Err(format!("general.architecture is {own:?}, the model's is {models:?}"));
    }
    if !ARCHITECTURES.contains(&own) {
        return Err(format!("architecture {own:?}: adapters are supported for {}", ARCHITECTURES.join(", ")));
    }
    if let Some(Value::Short(files @ 2..)) = base.values.get(SPLIT) {
        return Err(format!("the model is split over {files} files: adapters on split files are not supported"));
    }
    // Such an adapter applies only to the tokens after a mark; llama.cpp would apply it to all.
    if file.values.contains_key("adapter.alora.invocation_tokens") {
        return Err("activated adapters (adapter.alora.invocation_tokens) are not supported".to_owned());
    }
    if file.values.contains_key(BASE) && file.text(BASE)? != adapter.base {
        return Err(format!("{BASE} is {}, the model's file has {}", file.text(BASE)?, adapter.base));
    }
    let alpha = match file.values.get("adapter.lora.alpha") {
        None => 0.0,
        Some(Value::Float(alpha)) if alpha.is_finite() => *alpha,
        Some(other) => return Err(format!("adapter.lora.alpha must be a finite float32, is {other:?}")),
    };
    if !adapter.scale.is_finite() || !(adapter.scale * alpha).is_finite() {
        return Err(format!("the scale {} with adapter.lora.alpha {alpha} is not finite", adapter.scale));
    }
    check_tensors(&file.tensors, &base.tensors)
}

/// Checks that the tensors are pairs of factors of the model's matrices.
fn check_tensors(tensors: &[Tensor], base: &[Tensor]) -> Result<(), String> {
    let matrices: HashMap<&str, &[u64]> = base.iter().map(|tensor| (&*tensor.name, &*tensor.shape)).collect();
    let mut pairs: BTreeMap<&str, [Option<&Tensor>; 2]> = BTreeMap::new();
    for tensor in tensors {
        let (target, side) = split(&tensor.name)
            .filter(|(target, _)| applies(target))
            .ok_or_else(|| format!("tensor {:?} would not be applied: {}", tensor.name, applied()))?;
        if pairs.entry(target).or_default()[side].replace(tensor).is_some() {
            return Err(format!("tensor {:?} occurs twice", tensor.name));
        }
    }
    if pairs.is_empty() {
        return Err("the adapter has no tensors".to_owned());
    }
    for (target, pair) in pairs {
        let [Some(a), Some(b)] = pair else {
            return Err(format!("{target:?} has only one of lora_a and lora_b"));
        };
        let shape = matrices.get(target).ok_or_else(|| format!("the model has no tensor {target:?}"))?;
        let ([inputs, outputs], [from, rank], [rank_of_b, to]) = (*shape, &*a.shape, &*b.shape) else {
            return Err(format!(
                "{target:?}: lora_a {:?}, lora_b {:?} and {shape:?} must be matrices",
                a.shape, b.shape
            ));
        };
        if (from, to, rank) != (inputs, outputs, rank_of_b) {
            let expected = format!("lora_a [{inputs}, r] and lora_b [r, {outputs}]");
            return Err(format!("{target:?} has lora_a {:?} and lora_b {:?}, {expected} expected", a.shape, b.shape));
        }
        if *rank == 0 || *rank > MOST_RANK {
            return Err(format!("{target:?} has rank {rank}, 1 to {MOST_RANK} allowed"));
        }
    }
    Ok(())
}

/// Splits a tensor's name into its matrix and the index of the factor, first or second.
fn split(name: &str) -> Option<(&str, usize)> {
    let first = name.strip_suffix(".lora_a").map(|target| (target, 0));
    first.or_else(|| name.strip_suffix(".lora_b").map(|target| (target, 1)))
}

fn applies(target: &str) -> bool {
    let layer = |target: &str| {
        let (layer, part) = target.strip_prefix("blk.")?.strip_suffix(".weight")?.split_once('.')?;
        Some(layer.parse::<u32>().is_ok() && PARTS.contains(&part))
    };
    target == OUTPUT || layer(target).unwrap_or(false)
}

fn applied() -> String {
    format!("lora_a and lora_b of {OUTPUT} and of blk.N.P.weight are, P one of {}", PARTS.join(", "))
}

/// Reads all numbers: they must be inside the file and finite.
fn check_numbers(path: &Path, file: &UntrustedHeader) -> Result<(), String> {
    let mut reader = BufReader::new(File::open(path).map_err(|error| error.to_string())?);
    for Tensor { name, shape, kind, start } in &file.tensors {
        let (width, exponent) = match kind {
            0 => (4, 0x7f80_0000),
            1 => (2, 0x7c00),
            30 => (2, 0x7f80),
            other => return Err(format!("tensor {name:?} has ggml's type {other}: F32, F16 or BF16 expected")),
        };
        let bytes = shape.iter().try_fold(width as u64, |bytes, &length| bytes.checked_mul(length));
        let end = bytes.and_then(|bytes| bytes.checked_add(*start)).filter(|&end| end <= file.bytes);
        let Some(end) = end else {
            return Err(format!("tensor {name:?} extends beyond the end of the file, which has {} bytes", file.bytes));
        };
        reader.seek(SeekFrom::Start(*start)).map_err(|error| error.to_string())?;
        let mut numbers = (&mut reader).take(end - start);
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = fill(&mut numbers, &mut buffer).map_err(|error| error.to_string())?;
            if buffer[..read].chunks_exact(width).any(|number| bits(number) & exponent == exponent) {
                return Err(format!("tensor {name:?} has numbers that are not finite"));
            }
            if read < buffer.len() {
                break;
            }
        }
    }
    Ok(())
}

/// Reads until the buffer is full or the source ends.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// The bits of a little-endian number of at most four bytes.
fn bits(number: &[u8]) -> u32 {
    number.iter().rev().fold(0, |bits, &byte| (bits << 8) | u32::from(byte))
}

#[cfg(test)]
mod tests;
