//! Sessions of ONNX Runtime, and the inputs of an encoder.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use ort::environment::Environment;
use ort::session::Session;
use ort::session::builder::GraphOptimizationLevel;
use ort::value::Tensor;

use super::providers;

/// The inputs of an encoder; the last one is optional.
const INPUTS: [&str; 3] = ["input_ids", "attention_mask", "token_type_ids"];

/// Source of a network.
pub(super) enum Source<'a> {
    Bytes(&'a [u8]),
    /// A file, which may have its weights in other files of its folder.
    File(&'a Path),
}

/// Rows in a step, for a network whose outputs do not depend on the batch.
const BATCH: usize = 16;

/// Maximum number of parallel sessions. Each has its own copy of the weights.
const SESSIONS: usize = 4;

/// Rows in a step of this network: `given`, or a suitable number if it is 0. If a network quantises with the range of the
/// whole batch, a result depends on the other rows, so a step has one row.
pub(super) fn batch(network: &[u8], given: usize) -> usize {
    let over_batch = memchr::memmem::find(network, b"DynamicQuantizeLinear").is_some();
    match given {
        0 if over_batch => 1,
        0 => BATCH,
        given => given,
    }
}

/// Sessions that share the threads. `for_passages` as for [`session`].
pub(super) fn sessions(
    environment: &Environment,
    threads: usize,
    source: &Source,
    for_passages: bool,
) -> Result<Vec<Session>, String> {
    let count = threads.clamp(1, SESSIONS);
    (0..count).map(|_| session(environment, threads.max(1) / count, source, for_passages)).collect()
}

/// Evaluates steps. Each session takes the next open step. The results are in the order of the steps and do not depend on the
/// session.
pub(super) fn in_parallel<S: Sync, T: Send, E: Send>(
    sessions: &mut [Session],
    steps: &[S],
    evaluate: impl Fn(&mut Session, &S) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let run = |session: &mut Session| {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(step) = steps.get(index) else { return Ok::<_, E>(done) };
            done.push((index, evaluate(session, step)?));
        }
    };
    let by_session: Vec<_> = std::thread::scope(|scope| {
        let (first, others) = sessions.split_at_mut(1);
        let busy = steps.len().saturating_sub(1).min(others.len());
        let started: Vec<_> = others[..busy].iter_mut().map(|session| scope.spawn(|| run(session))).collect();
        let own = first.iter_mut().map(run).collect::<Vec<_>>();
        let ended = started.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        own.into_iter().chain(ended).collect()
    });
    let mut results = Vec::with_capacity(steps.len());
    for part in by_session {
        results.extend(part?);
    }
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// A session with this number of threads per step. `for_passages`: it reads one passage per step. With an arena, memory use
/// stays at the size of the largest step. Without one, the operating system clears the memory of every step, which takes as
/// long as a fast network.
pub(super) fn session(
    environment: &Environment,
    threads: usize,
    source: &Source,
    for_passages: bool,
) -> Result<Session, String> {
    let text = |error: ort::Error| error.to_string();
    let built = |error: ort::Error<ort::session::builder::SessionBuilder>| error.to_string();
    let builder = Session::builder(environment).map_err(text)?;
    let builder = builder.with_optimization_level(GraphOptimizationLevel::Level3).map_err(built)?;
    let builder = builder.with_intra_threads(threads).map_err(built)?;
    // SkipLayerNormalization takes several times as long as the Add and LayerNormalization that it replaces. The default
    // entailment model amplifies the difference in rounding: without the fusion its probabilities change by up to 0.07.
    let unfused = if for_passages { "SkipLayerNormFusion" } else { "" };
    let builder = builder.with_disabled_optimizers(unfused).map_err(built)?;
    // Spinning threads would take cores from the generator.
    let builder = builder.with_intra_op_spinning(false).map_err(built)?;
    // 8-bit products overflow in the fast kernels of x86-64 without VNNI: probabilities of the default entailment model
    // were off by up to 0.74. The setting selects kernels without overflow, and has no effect on other CPUs.
    let builder = builder.with_config_entry("session.x64quantprecision", "1").map_err(built)?;
    // With memory patterns, memory use stays at the size of the largest step.
    let builder = builder.with_memory_pattern(false).map_err(built)?;
    let mut builder = builder.with_execution_providers(providers::chosen(for_passages)).map_err(built)?;
    match source {
        Source::Bytes(bytes) => builder.commit_from_memory(bytes),
        Source::File(path) => builder.commit_from_file(path),
    }
    .map_err(text)
}

/// Checks that the network has exactly the inputs of an encoder. Returns true if it has `token_type_ids`.
pub(super) fn has_token_types(session: &Session) -> Result<bool, String> {
    let inputs: Vec<&str> = session.inputs().iter().map(ort::value::Outlet::name).collect();
    for needed in &INPUTS[..2] {
        if !inputs.contains(needed) {
            return Err(format!("the network has no input {needed}; its inputs are {inputs:?}"));
        }
    }
    if let Some(unknown) = inputs.iter().find(|name| !INPUTS.contains(name)) {
        return Err(format!("the network has the input {unknown}, which rerankd does not provide"));
    }
    Ok(inputs.contains(&INPUTS[2]))
}

/// The tokens of one row of a batch, and the type of each.
pub struct Row<'a> {
    pub ids: &'a [u32],
    pub types: &'a [u32],
}

/// Evaluates rows, padded at their end to the longest, and passes the outputs to `read`.
pub(super) fn run<T>(
    session: &mut Session,
    rows: &[Row],
    pad: i64,
    typed: bool,
    read: impl FnOnce(&ort::session::SessionOutputs) -> Result<T, String>,
) -> Result<T, String> {
    let failed = |error: ort::Error| error.to_string();
    let width = rows.iter().map(|row| row.ids.len()).max().unwrap_or(0).max(1);
    let (mut ids, mut mask, mut types) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let fill = width - row.ids.len();
        ids.extend(row.ids.iter().map(|&id| i64::from(id)).chain(std::iter::repeat_n(pad, fill)));
        mask.extend(std::iter::repeat_n(1_i64, row.ids.len()).chain(std::iter::repeat_n(0, fill)));
        let missing = width - row.types.len();
        types.extend(row.types.iter().map(|&kind| i64::from(kind)).chain(std::iter::repeat_n(0, missing)));
    }
    let shape = [rows.len(), width];
    let mut inputs = ort::inputs![
        INPUTS[0] => Tensor::from_array((shape, ids)).map_err(failed)?,
        INPUTS[1] => Tensor::from_array((shape, mask)).map_err(failed)?,
    ];
    if typed {
        inputs.push((INPUTS[2].into(), Tensor::from_array((shape, types)).map_err(failed)?.into()));
    }
    read(&session.run(inputs).map_err(failed)?)
}
