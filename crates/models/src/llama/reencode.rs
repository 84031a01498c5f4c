//! Re-encodes weights to the tensor type that this machine multiplies fastest.
//!
//! The tensor type of a file decides its prefill speed: without AMX, four-bit blocks are unpacked again for
//! every product, while 16-bit floats go straight into the widest instructions of a CPU, or the matrix units of an
//! accelerator.
//! [`measure`] re-encodes the file to the candidate types, times each for a second or two, and stores the fastest
//! under the hash of the original and the device. The original stays, and wins unless another type is faster by a
//! margin. A 16-bit float represents the product of a block's scale and a small integer to within half a unit in
//! the last place, and Q8_0 has more steps than a block type of fewer bits. Q8_0 is no candidate for a file of 16 bits.
//!
//! Measuring a file of 0.5 billion parameters takes minutes. `rerankd models pull` does it; a server only reads the result
//! ([`chosen`]).

mod machine;

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use machine::Machine;
use serde::{Deserialize, Serialize};

use super::gguf::{Header, reencoded_bytes};
use super::{Settings, backend, with_model};
use crate::scratch::{self, Scratch};
use crate::store::{Store, free_bytes, write_atomically};
use prefix_scheduler::model::{Batch, Generator, ModelError, Row};
use prefix_scheduler::plan::Reads;

/// How many times faster than the original a candidate must be.
const MARGIN: f64 = 1.15;

/// Tokens of a timed prompt.
const PROBE: usize = 256;

/// Tokens of a timed step on an accelerator, in prompts of [`PROBE`], as in a usual request. In smaller steps the fixed
/// cost hides the type.
const ACCELERATED_PROBE: usize = 2_048;

/// Timed steps. The fastest counts, because every disturbance makes a measurement slower.
const ROUNDS: usize = 3;

/// Bytes that must remain free on the file system after a file was written.
const RESERVE: u64 = 512 << 20;

/// The encoding of an unchanged file.
pub const AS_SHIPPED: &str = "as shipped";

const CANDIDATES: [(&str, u32); 3] = [
    ("BF16", llama_cpp_sys_2::LLAMA_FTYPE_MOSTLY_BF16),
    ("F16", llama_cpp_sys_2::LLAMA_FTYPE_MOSTLY_F16),
    ("Q8_0", llama_cpp_sys_2::LLAMA_FTYPE_MOSTLY_Q8_0),
];

/// On accelerators llama.cpp adds products of half precision in half precision. Activations of some models exceed its
/// range.
const ACCELERATED: &[(&str, u32)] = &[CANDIDATES[0]];

/// The result of measuring a file on this machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// [`AS_SHIPPED`], or the tensor type of the re-encoded file.
    pub encoding: String,
    /// SHA-256 of the file that runs.
    pub sha256: String,
    /// The file that runs.
    #[serde(skip)]
    pub path: PathBuf,
    /// The measured types.
    pub measured: Vec<Measured>,
    /// Size in bytes of a candidate that exceeded `generator.reencode_megabytes` or the free disk space. It is measured
    /// once it fits.
    pub too_large: Option<u64>,
}

/// Speed of a tensor type in tokens per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// [`AS_SHIPPED`], or the tensor type.
    pub encoding: String,
    /// Reading a prompt. Decides the choice, because ranking only reads.
    pub prefill: f64,
    /// Generating one token after another in one sequence.
    pub generation: f64,
}

impl Choice {
    fn as_shipped(settings: &Settings, sha256: &str) -> Self {
        Self {
            encoding: AS_SHIPPED.to_owned(),
            sha256: sha256.to_owned(),
            path: settings.path.clone(),
            measured: Vec::new(),
            too_large: None,
        }
    }
}

/// Lock file in the store, held by the process that measures.
const LOCK: &str = ".measuring";

/// Location of the results for one file on this machine.
struct Kept<'a> {
    store: &'a Store,
    folder: PathBuf,
    stem: String,
}

impl<'a> Kept<'a> {
    fn new(sha256: &str, store: &'a Store, machine: &Machine) -> Self {
        let stem = format!("{}-{:08x}", &sha256[..sha256.len().min(16)], machine.fingerprint());
        Self { store, folder: store.root().join(".encodings"), stem }
    }

    fn note(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.stem))
    }

    fn file(&self, encoding: &str) -> PathBuf {
        self.folder.join(format!("{}-{encoding}.gguf", self.stem))
    }

    /// Waits until no other process measures with this store. Does not wait on a file system without locks.
    fn lock(&self, report: &dyn Fn(&str)) -> Option<std::fs::File> {
        let path = self.store.root().join(LOCK);
        let file = std::fs::File::options().create(true).append(true).open(path).ok()?;
        if let Err(std::fs::TryLockError::WouldBlock) = file.try_lock() {
            report("another process measures a model: waiting for it");
        }
        file.lock().ok().map(|()| file)
    }

    /// The result of an earlier measurement, if the file that it chose is unchanged.
    fn read(&self, settings: &Settings, sha256: &str) -> Option<Choice> {
        let mut choice: Choice = serde_json::from_slice(&std::fs::read(self.note()).ok()?).ok()?;
        if choice.encoding == AS_SHIPPED {
            choice.path.clone_from(&settings.path);
            return Some(choice).filter(|choice| choice.sha256 == sha256);
        }
        let (encoding, _) = CANDIDATES.iter().find(|(name, _)| *name == choice.encoding)?;
        choice.path = self.file(encoding);
        match self.store.identify(&choice.path) {
            Ok(sha256) if sha256 == choice.sha256 => Some(choice),
            outcome => {
                tracing::warn!(path = %choice.path.display(), ?outcome, "the re-encoded file is missing or was changed");
                None
            }
        }
    }
}

/// The file that an earlier measurement chose for this machine; `None` when there was none. Takes milliseconds, unless the
/// re-encoded file has no valid receipt and must be hashed.
pub fn chosen(settings: &Settings, sha256: &str, store: &Store) -> Option<Choice> {
    if Header::read(&settings.path).is_ok_and(|header| header.files() > 1) {
        return None;
    }
    let choice = Kept::new(sha256, store, &Machine::of(settings)).read(settings, sha256);
    if choice.is_none() {
        tracing::info!(
            path = %settings.path.display(),
            "the model runs as shipped; `rerankd models pull` measures the tensor types on this machine, and its choice holds from the next start"
        );
    }
    choice
}

/// Finds the fastest tensor type for this machine and stores the result for [`chosen`]. Returns an earlier result
/// unchanged, unless a candidate that was too large fits now. `most_bytes` bounds the size of a re-encoded file; `report`
/// is called before every step that takes long.
///
/// # Errors
/// [`ModelError`] when the original cannot be loaded or the store cannot be written. A candidate that fails is
/// logged and skipped.
pub fn measure(
    settings: &Settings,
    sha256: &str,
    store: &Store,
    most_bytes: u64,
    report: &dyn Fn(&str),
) -> Result<Choice, ModelError> {
    // Starts the log of llama.cpp.
    backend()?;
    let damaged = |problem| unusable(&settings.path, problem);
    let files = Header::read(&settings.path).map_err(damaged)?.files();
    if files > 1 {
        // The sizes of tensors in the other files are unknown, and the result would be a single file.
        report(&format!("not re-encoded: the model is split into {files} files"));
        return Ok(Choice::as_shipped(settings, sha256));
    }
    let bytes = reencoded_bytes(&settings.path).map_err(damaged)?;
    let machine = Machine::of(settings);
    let kept = Kept::new(sha256, store, &machine);
    // Frees space before the free space is checked.
    scratch::remove_abandoned(&kept.folder, SCRATCH);
    if let Some(choice) = kept.read(settings, sha256)
        && choice.too_large.is_none_or(|bytes| fits(bytes, most_bytes, &kept.folder).is_err())
    {
        return Ok(choice);
    }
    // Checked before minutes are spent.
    std::fs::create_dir_all(&kept.folder)
        .and_then(|()| tempfile::tempfile_in(&kept.folder))
        .map_err(|error| unusable(&kept.folder, error.to_string()))?;
    // Two processes that measure at once would each remove the other's file.
    let _measuring = kept.lock(report);
    if let Some(choice) = kept.read(settings, sha256)
        && choice.too_large.is_none_or(|bytes| fits(bytes, most_bytes, &kept.folder).is_err())
    {
        return Ok(choice);
    }
    let choice = match fits(bytes, most_bytes, &kept.folder) {
        Ok(()) => fastest(settings, &machine, sha256, (bytes, most_bytes), &kept, report)?,
        Err(problem) => {
            report(&format!("not re-encoded: {problem}"));
            Choice { too_large: Some(bytes), ..Choice::as_shipped(settings, sha256) }
        }
    };
    let note = serde_json::to_vec_pretty(&choice).map_err(|error| unusable(&kept.note(), error.to_string()))?;
    write_atomically(&kept.note(), &note).map_err(|error| unusable(&kept.note(), error.to_string()))?;
    Ok(choice)
}

fn unusable(path: &Path, problem: String) -> ModelError {
    ModelError::Unusable { path: path.display().to_string(), problem }
}

/// Times the original and the candidates. Only the file of the winner remains.
fn fastest(
    settings: &Settings,
    machine: &Machine,
    sha256: &str,
    (bytes, most_bytes): (u64, u64),
    kept: &Kept,
    report: &dyn Fn(&str),
) -> Result<Choice, ModelError> {
    report("measuring the file as shipped");
    let original = Choice::as_shipped(settings, sha256);
    let mut all = vec![measured(AS_SHIPPED, settings, &settings.path, machine)?];
    let mut too_large = None;
    let mut best = (all[0].prefill * MARGIN, original);
    let candidates = if machine.accelerated() { ACCELERATED } else { &CANDIDATES };
    // A file of 16 bits has about `bytes`, one of 8 bits half of that.
    let is_coarse = settings.path.metadata().is_ok_and(|data| data.len() < bytes / 2);
    for &(name, _) in candidates.iter().filter(|(name, _)| is_coarse || *name != "Q8_0") {
        // Two candidates can be on the disk at once, so each is checked.
        if let Err(problem) = fits(bytes, most_bytes, &kept.folder) {
            report(&format!("{name} is passed over: {problem}"));
            too_large = Some(bytes);
            continue;
        }
        let path = kept.file(name);
        report(&format!("re-encoding to {name}, at most {} MB", bytes.div_ceil(1_000_000)));
        let written = encode(&settings.path, &path, name, settings.threads);
        report(&format!("measuring {name}"));
        match written.and_then(|()| candidate(name, settings, machine, &path, kept.store)) {
            Ok((speed, sha256)) => {
                let choice = Choice { encoding: name.to_owned(), sha256, path, ..best.1.clone() };
                let faster = speed.prefill > best.0;
                let loser = if faster { std::mem::replace(&mut best, (speed.prefill, choice)).1 } else { choice };
                all.push(speed);
                if loser.path != settings.path {
                    let _ = std::fs::remove_file(&loser.path);
                }
            }
            Err(problem) => tracing::warn!(encoding = name, %problem, "tensor type passed over"),
        }
    }
    Ok(Choice { measured: all, too_large, ..best.1 })
}

/// Checks that a file of `bytes` may be written to `folder`.
fn fits(bytes: u64, most_bytes: u64, folder: &Path) -> Result<(), String> {
    allowed(bytes, most_bytes, free_bytes(folder))
}

/// `free` is `None` if the system does not report it.
fn allowed(bytes: u64, most_bytes: u64, free: Option<u64>) -> Result<(), String> {
    let megabytes = |bytes: u64| bytes.div_ceil(1_000_000);
    let needed = bytes.saturating_add(RESERVE);
    if bytes > most_bytes {
        let (size, most) = (megabytes(bytes), most_bytes / 1_000_000);
        return Err(format!("the re-encoded file would have {size} MB, generator.reencode_megabytes is {most}"));
    }
    match free {
        Some(free) if free < needed => {
            let (needed, free) = (megabytes(needed), free / 1_000_000);
            Err(format!("re-encoding needs {needed} MB of free disk space, there are {free} MB"))
        }
        _ => Ok(()),
    }
}

/// Speed and hash of a candidate. Its file is removed on failure.
fn candidate(
    name: &str,
    settings: &Settings,
    machine: &Machine,
    path: &Path,
    store: &Store,
) -> Result<(Measured, String), String> {
    let speed = measured(name, settings, path, machine).map_err(|error| error.to_string());
    let sha256 = store.identify(path).map_err(|error| error.to_string());
    if speed.is_err() || sha256.is_err() {
        let _ = std::fs::remove_file(path);
    }
    Ok((speed?, sha256?))
}

/// Prefix of the folders in which files are re-encoded.
const SCRATCH: &str = ".encode-";

/// Writes `from`, re-encoded to one of the candidate types, to a temporary file and renames it to `to`.
///
/// # Errors
/// The type is not a candidate, llama.cpp cannot re-encode the file, or `to` cannot be written.
pub fn encode(from: &Path, to: &Path, encoding: &str, threads: usize) -> Result<(), String> {
    let (_, kind) = CANDIDATES.into_iter().find(|(name, _)| *name == encoding).ok_or("not a candidate type")?;
    let folder = to.parent().ok_or("the target has no folder")?;
    let scratch = Scratch::new_in(folder, SCRATCH).map_err(|error| error.to_string())?;
    let target = scratch.path().join("file");
    let c_string = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string());
    let (input, output) = (c_string(from)?, c_string(&target)?);
    // SAFETY: the parameters are llama.cpp's defaults with plain fields changed, the strings outlive the call, and the
    // function catches its exceptions and reports them as a non-zero code.
    #[expect(unsafe_code, reason = "llama-cpp-2 has no wrapper for quantisation")]
    let code = unsafe {
        let mut params = llama_cpp_sys_2::llama_model_quantize_default_params();
        params.ftype = kind;
        params.allow_requantize = true;
        params.nthread = i32::try_from(threads).unwrap_or(1);
        llama_cpp_sys_2::llama_model_quantize(input.as_ptr(), output.as_ptr(), &raw const params)
    };
    if code != 0 {
        return Err(format!("llama.cpp cannot re-encode it (code {code})"));
    }
    std::fs::rename(&target, to).map_err(|error| format!("{}: {error}", to.display()))
}

/// Generated tokens that are timed.
const GENERATED: usize = 16;

/// Prefill speed of the best of [`ROUNDS`] steps, and the speed of generating [`GENERATED`] tokens.
fn measured(name: &str, settings: &Settings, path: &Path, machine: &Machine) -> Result<Measured, ModelError> {
    let tokens = if machine.accelerated() { ACCELERATED_PROBE } else { PROBE };
    let probe = Settings { path: path.to_owned(), cells: 2 * tokens, batch: tokens, ..settings.clone() };
    let mut outcome = Err(ModelError::Decode("not measured".into()));
    with_model(&probe, &mut |generator| outcome = timed(name, generator, tokens))?;
    outcome
}

fn timed(name: &str, generator: &mut dyn Generator, tokens: usize) -> Result<Measured, ModelError> {
    let mut prefill = 0.0_f64;
    for round in 0..=ROUNDS {
        let rate = rate(generator, (0..tokens).map(|index| (index / PROBE, index % PROBE)))?;
        // The first round also reads pages that are not in memory yet.
        prefill = prefill.max(if round == 0 { 0.0 } else { rate });
        for sequence in 0..tokens / PROBE {
            generator.release(sequence)?;
        }
    }
    let mut seconds = 0.0;
    for position in 0..GENERATED {
        seconds += rate(generator, std::iter::once((0, position)))?.recip();
    }
    Ok(Measured { encoding: name.to_owned(), prefill, generation: numeric::real(GENERATED) / seconds })
}

/// Tokens per second of one step, with rows by sequence and position.
fn rate(generator: &mut dyn Generator, rows: impl Iterator<Item = (usize, usize)>) -> Result<f64, ModelError> {
    // The time does not depend on the tokens. Every served vocabulary has at least 256.
    let row = |(sequence, position): (usize, usize)| Row {
        token: i32::try_from(position * 37 % 256).unwrap_or(0),
        position,
        sequence,
        targets: 0..0,
        draws: 0..0,
    };
    let rows: Vec<Row> = rows.map(row).collect();
    let mut batch = Batch { rows, targets: vec![(100, Reads::default())], ..Batch::default() };
    if let Some(last) = batch.rows.last_mut() {
        last.targets = 0..1;
    }
    let started = Instant::now();
    generator.decode(&batch)?;
    Ok(numeric::real(batch.rows.len()) / started.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests;
