//! The same weights in a tensor type that this machine multiplies fast.
//!
//! The type of a file decides its prefill speed: four-bit blocks are unpacked again for every product, while 16-bit floats
//! go straight into the widest instructions of the CPU. On the first load the file is re-encoded into the candidates, each
//! is timed for a second or two, and the fastest is kept beside the models, named by the hash of the original and the
//! features of the CPU; the original stays and wins unless another is faster by a margin. Candidates are no less
//! precise than any block type of eight bits or fewer: the products of their scales and small integers fit 16-bit floats to
//! within half a unit in the last place.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{Settings, backend, with_model};
use crate::model::{Batch, ModelError, Row};
use crate::storage::store::{Store, write_atomically};

/// How much faster an encoding must be to be preferred to the file as it is.
const WORTH_IT: f64 = 1.15;

/// Tokens of one timed prompt.
const PROBE: usize = 256;

/// Timed prompts; the fastest counts, for everything that disturbs a measurement slows it.
const ROUNDS: usize = 3;

const CANDIDATES: [(&str, u32); 2] =
    [("BF16", llama_cpp_sys_2::LLAMA_FTYPE_MOSTLY_BF16), ("F16", llama_cpp_sys_2::LLAMA_FTYPE_MOSTLY_F16)];

/// What was found out about a file on this CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// `as shipped`, or the type it was re-encoded to.
    pub encoding: String,
    /// SHA-256 of the file that runs.
    pub sha256: String,
    /// The file that runs.
    pub path: PathBuf,
    /// Prefill speed of every candidate in tokens a second, as measured then.
    pub tokens_per_second: Vec<(String, f64)>,
}

/// Finds the fastest encoding of the file in `settings`, from an earlier measurement or a new one. `most_bytes` bounds the
/// size of a re-encoded file.
///
/// # Errors
/// [`ModelError`] when the original itself cannot be loaded. What goes wrong with a candidate is logged and the candidate
/// passed over.
pub fn choose(settings: &Settings, sha256: &str, store: &Store, most_bytes: u64) -> Result<Choice, ModelError> {
    let folder = store.root().join(".encodings");
    let stem = format!("{}-{:08x}", &sha256[..sha256.len().min(16)], fingerprint());
    let note = folder.join(format!("{stem}.json"));
    if let Some(choice) = known(&note, store) {
        return Ok(choice);
    }
    tracing::info!(path = %settings.path.display(), "measuring tensor types for this CPU, once");
    let original = Choice {
        encoding: "as shipped".into(),
        sha256: sha256.to_owned(),
        path: settings.path.clone(),
        tokens_per_second: Vec::new(),
    };
    let mut speeds = vec![(original.encoding.clone(), speed(settings, &settings.path)?)];
    let mut best = (speeds[0].1 * WORTH_IT, original);
    for (name, kind) in CANDIDATES {
        let path = folder.join(format!("{stem}-{name}.gguf"));
        match candidate(settings, &path, kind, most_bytes, store) {
            Ok((rate, sha256)) => {
                speeds.push((name.to_owned(), rate));
                let choice = Choice { encoding: name.to_owned(), sha256, path, tokens_per_second: Vec::new() };
                let loser = if rate > best.0 { std::mem::replace(&mut best, (rate, choice)).1 } else { choice };
                if loser.path != settings.path {
                    let _ = std::fs::remove_file(&loser.path);
                }
            }
            Err(problem) => tracing::warn!(encoding = name, %problem, "tensor type passed over"),
        }
    }
    let mut choice = best.1;
    choice.tokens_per_second = speeds;
    tracing::info!(encoding = %choice.encoding, measured = ?choice.tokens_per_second, "tensor type chosen");
    if let Err(error) = write_atomically(&note, &serde_json::to_vec_pretty(&choice).unwrap_or_default()) {
        tracing::warn!(%error, "the choice is not kept; the next start measures again");
    }
    Ok(choice)
}

/// shim
pub fn chosen(_: &Settings, sha256: &str, store: &Store) -> Option<Choice> {
    let folder = store.root().join(".encodings");
    let stem = format!("{}-{:08x}", &sha256[..sha256.len().min(16)], fingerprint());
    known(&folder.join(format!("{stem}.json")), store)
}

/// An earlier choice, if its file is still the one that was measured.
fn known(note: &Path, store: &Store) -> Option<Choice> {
    let choice: Choice = serde_json::from_slice(&std::fs::read(note).ok()?).ok()?;
    match store.identify(&choice.path) {
        Ok(sha256) if sha256 == choice.sha256 => Some(choice),
        outcome => {
            tracing::warn!(path = %choice.path.display(), ?outcome, "re-encoded file is not as it was; making it again");
            None
        }
    }
}

fn candidate(
    settings: &Settings,
    path: &Path,
    kind: u32,
    most_bytes: u64,
    store: &Store,
) -> Result<(f64, String), String> {
    encode(&settings.path, path, kind, settings.threads, most_bytes)?;
    let measured = speed(settings, path).map_err(|error| error.to_string());
    let identified = store.identify(path).map_err(|error| error.to_string());
    if measured.is_err() || identified.is_err() {
        let _ = std::fs::remove_file(path);
    }
    Ok((measured?, identified?))
}

/// Writes `from` re-encoded to `to`, by way of a temporary file beside it.
fn encode(from: &Path, to: &Path, kind: u32, threads: usize, most_bytes: u64) -> Result<(), String> {
    backend().map_err(|error| error.to_string())?;
    let folder = to.parent().ok_or("no folder")?;
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let scratch = tempfile::Builder::new().prefix(".encode-").tempdir_in(folder).map_err(|error| error.to_string())?;
    let target = scratch.path().join("file");
    let plain = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string());
    let (input, output) = (plain(from)?, plain(&target)?);
    // SAFETY: the parameters are llama.cpp's own defaults with plain fields changed, the strings outlive the call, and the
    // function catches its exceptions and reports them as a non-zero code.
    #[expect(unsafe_code, reason = "llama-cpp-2 has no wrapper for quantisation")]
    let code = unsafe {
        let mut params = llama_cpp_sys_2::llama_model_quantize_default_params();
        params.ftype = kind;
        params.allow_requantize = true;
        params.nthread = i32::try_from(threads).unwrap_or(1);
        params.dry_run = false;
        llama_cpp_sys_2::llama_model_quantize(input.as_ptr(), output.as_ptr(), &raw const params)
    };
    if code != 0 {
        return Err(format!("llama.cpp cannot re-encode it (code {code})"));
    }
    let bytes = target.metadata().map_err(|error| error.to_string())?.len();
    if bytes > most_bytes {
        return Err(format!("would take {bytes} bytes, the bound is {most_bytes}"));
    }
    std::fs::rename(&target, to).map_err(|error| format!("{}: {error}", to.display()))
}

/// Best prefill speed of a few prompts, in tokens a second.
fn speed(settings: &Settings, path: &Path) -> Result<f64, ModelError> {
    let probe = Settings { path: path.to_owned(), cells: 2 * PROBE, batch: PROBE, ..settings.clone() };
    let mut best = Err(ModelError::Decode("not measured".into()));
    with_model(&probe, &mut |generator| {
        best = (0..=ROUNDS)
            .map(|round| {
                let rows = (0..PROBE).map(|position| Row {
                    // Any tokens do: the time does not depend on them. The first ids exist in every vocabulary.
                    token: i32::try_from(100 + (position * 37 + round) % 900).unwrap_or(100),
                    position,
                    sequence: 0,
                    targets: 0..0,
                    draws: 0..0,
                });
                let mut batch = Batch { rows: rows.collect(), targets: vec![100], ..Batch::default() };
                if let Some(last) = batch.rows.last_mut() {
                    last.targets = 0..1;
                }
                let started = Instant::now();
                generator.decode(&batch)?;
                let rate = crate::numeric::real(PROBE) / started.elapsed().as_secs_f64();
                generator.release(0)?;
                // The first round pays for pages that are not in memory yet.
                Ok(if round == 0 { 0.0 } else { rate })
            })
            .try_fold(0.0_f64, |most, rate: Result<f64, ModelError>| Ok(most.max(rate?)));
    })?;
    best
}

/// A hash of what decides the speed of a tensor type: the CPU's features at run time and at compile time.
fn fingerprint() -> u32 {
    let mut text = std::env::consts::ARCH.to_owned();
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        let found = [
            has!("avx2"),
            has!("fma"),
            has!("f16c"),
            has!("avx512f"),
            has!("avx512vnni"),
            has!("avx512bf16"),
            cfg!(target_feature = "avx2"),
            cfg!(target_feature = "avx512f"),
            cfg!(target_feature = "avx512bf16"),
        ];
        text.push_str(&format!("{found:?}"));
    }
    #[cfg(target_arch = "aarch64")]
    {
        use std::arch::is_aarch64_feature_detected as has;
        text.push_str(&format!("{:?}", [has!("dotprod"), has!("i8mm"), has!("bf16"), has!("fp16")]));
    }
    text.push_str(if cfg!(feature = "portable") { "portable" } else { "fixed" });
    // FNV-1a; the standard hasher may change between releases.
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
