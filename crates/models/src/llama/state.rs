//! Saved KV states of sequences: the cells of a range of positions as bytes.
//!
//! llama.cpp writes and reads whole sequences. A range is first copied to a spare sequence, which shares the cells and
//! moves no data. A restored state also goes into the spare sequence first, and its cells are then added to the
//! destination. The state of a passage thus shares the cells of the prompt prefix before it. A state holds positions and
//! rows of keys and values, but no tokens.

use std::ops::Range;

use llama_cpp_2::LlamaStateSeqFlags;
use llama_cpp_2::context::LlamaContext;

use super::Settings;
use prefix_scheduler::model::ModelError;

/// The crate whose llama.cpp writes the states. Its version is pinned in Cargo.toml.
const BUILD: &str = "llama-cpp-sys-2 0.1.161";

/// Everything that a state depends on, except its tokens.
pub(super) fn identity(settings: &Settings) -> String {
    let Settings { sha256, cells, cache_type, adapter, .. } = settings;
    // Some files have different rotary factors for a longer context.
    let own = format!("{BUILD}, file {sha256}, {cells} cells {}", cache_type.name());
    match adapter {
        Some(adapter) => format!("{own}, adapter {} times {}", adapter.sha256, adapter.scale),
        None => own,
    }
}

fn failed(problem: impl std::fmt::Display) -> ModelError {
    ModelError::Decode(problem.to_string())
}

fn narrow(position: usize) -> Result<u32, ModelError> {
    u32::try_from(position).map_err(|_| failed(format!("position {position} is too large")))
}

/// Releases the spare sequence. Cells shared with another sequence stay.
fn clear(context: &mut LlamaContext<'_>, spare: i32) -> Result<(), ModelError> {
    let number = u32::try_from(spare).map_err(failed)?;
    match context.clear_kv_cache_seq(Some(number), None, None) {
        Ok(true) => Ok(()),
        Ok(false) => Err(failed("llama.cpp did not remove the spare sequence")),
        Err(error) => Err(failed(error)),
    }
}

/// The state of `positions` of a sequence. `spare` is empty before and after. A position sees `window` positions before
/// it, unless that is 0; earlier positions may be gone from the cache.
///
/// # Errors
/// The sequence does not hold the positions, or llama.cpp cannot write the state.
pub(super) fn save(
    context: &mut LlamaContext<'_>,
    spare: i32,
    from: i32,
    positions: Range<usize>,
    window: usize,
) -> Result<Vec<u8>, ModelError> {
    let (start, end) = (narrow(positions.start)?, narrow(positions.end)?);
    context.copy_kv_cache_seq(from, spare, Some(start), Some(end)).map_err(failed)?;
    let state =
        if holds(context, spare, &positions, Some(window)) { write(context, spare) } else { Err(lacks(&positions)) };
    clear(context, spare)?;
    state
}

fn lacks(positions: &Range<usize>) -> ModelError {
    failed(format!("the state does not hold the positions {positions:?}"))
}

fn write(context: &LlamaContext<'_>, sequence: i32) -> Result<Vec<u8>, ModelError> {
    let flags = LlamaStateSeqFlags::empty();
    let size = context.state_seq_get_size_ext(sequence, flags);
    let mut bytes = vec![0_u8; size];
    // SAFETY: llama.cpp writes as many bytes as it reported for the same sequence, which did not change meanwhile.
    #[expect(unsafe_code, reason = "llama.cpp gives the bytes of a state only through a pointer")]
    let written = unsafe { context.state_seq_get_data_ext(bytes.as_mut_ptr(), sequence, flags) };
    if written == 0 || written != size {
        return Err(failed(format!("llama.cpp wrote {written} of {size} bytes of a state")));
    }
    Ok(bytes)
}

/// Appends a state to `to`. `spare` is empty before and after.
///
/// # Errors
/// The bytes are not a state of `positions`, or there is no room for its cells. `to` is unchanged.
pub(super) fn restore(
    context: &mut LlamaContext<'_>,
    state: &[u8],
    spare: i32,
    to: i32,
    positions: Range<usize>,
) -> Result<(), ModelError> {
    // SAFETY: llama.cpp does not read beyond the slice. It compares number, type and size of the rows with its own,
    // and refuses others. The checksum of bytes from a file was verified before.
    #[expect(unsafe_code, reason = "llama.cpp takes the bytes of a state only through a pointer")]
    let read = unsafe { context.state_seq_set_data_ext(state, spare, LlamaStateSeqFlags::empty()) };
    // A model with sliding windows saves only cells that later positions can see.
    let copied = if read && holds(context, spare, &positions, None) {
        context.copy_kv_cache_seq(spare, to, None, None).map_err(failed)
    } else {
        Err(lacks(&positions))
    };
    clear(context, spare)?;
    copied
}

/// True if a sequence ends at the end of the range, and begins at its start. With a `window` it may begin as late
/// as the first position that the next one sees; with an unknown window, anywhere within the range.
fn holds(context: &LlamaContext<'_>, sequence: i32, positions: &Range<usize>, window: Option<usize>) -> bool {
    let first = usize::try_from(context.kv_cache_seq_pos_min(sequence));
    let latest = match window {
        None => positions.end.saturating_sub(1),
        Some(0) => positions.start,
        Some(window) => positions.start.max((positions.end + 1).saturating_sub(window)),
    };
    let begins = first.is_ok_and(|first| (positions.start..=latest).contains(&first));
    begins && usize::try_from(context.kv_cache_seq_pos_max(sequence) + 1) == Ok(positions.end)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::{Adapter, CacheType, Settings};
    use super::{BUILD, identity};

    #[test]
    fn states_with_and_without_an_adapter_have_different_names() {
        let of = |adapter: Option<(&str, f32)>| {
            let adapter = adapter.map(|(sha256, scale)| Adapter {
                path: PathBuf::new(),
                sha256: sha256.to_owned(),
                scale,
                base: String::new(),
            });
            identity(&Settings {
                path: PathBuf::new(),
                cells: 512,
                batch: 256,
                threads: 1,
                gpu_layers: 0,
                cache_type: CacheType::default(),
                sha256: "f".to_owned(),
                adapter,
            })
        };
        let all = [of(None), of(Some(("a", 1.0))), of(Some(("b", 1.0))), of(Some(("a", 0.5))), of(Some(("a", 0.0)))];
        for (index, one) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|other| other != one), "{one}");
        }
        assert!(all[0].ends_with("file f, 512 cells f16"), "{}", all[0]);
    }

    #[test]
    fn the_build_is_the_pinned_one() {
        let manifest = include_str!("../../../../Cargo.toml");
        let (name, version) = BUILD.split_once(' ').unwrap();
        assert!(manifest.contains(&format!("{name} = {{ version = \"={version}\"")));
    }
}
