//! `rerankd warm`

use std::path::PathBuf;

use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;

use super::connection::ConnectionArgs;
use super::{Failure, SettingsArgs, input, output};
use crate::{app, telemetry};
use engine::types::Passage;
use files::{Empty, Warnings};
use protocol::client::ClientError;
use protocol::v1;
use server::rpc::server::local;

/// Evaluate passages ahead of time, so that ranking is faster.
///
/// A server caches their KV states in memory, and on disk if passage_cache.disk is set. Without --server the states are
/// written to the folder passage_cache.disk. Cached passages are skipped, so the command can be repeated after an
/// interruption.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rerankd warm passages.jsonl --server 127.0.0.1:50051")]
pub(super) struct WarmArgs {
    /// Passages, one JSON value per line, as for rerank; - for standard input.
    #[arg(default_value = "-", value_name = "FILE")]
    passages: PathBuf,
    /// Address of a server; by default the model is loaded in this process.
    #[arg(long, value_name = "ADDRESS")]
    server: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Position in the file and reason of a refused passage; `left` holds the positions of the sent passages. Returns the
/// error if it does not concern a single passage.
fn refused(error: ClientError, left: &[usize]) -> Result<(usize, String), ClientError> {
    if !error.is_input() {
        return Err(error);
    }
    let text = error.to_string();
    let at = text.split_once("passages[").and_then(|(_, rest)| {
        let (index, problem) = rest.split_once(']')?;
        let index = index.parse::<usize>().ok().filter(|index| *index < left.len())?;
        Some((index, problem.trim_start_matches(['.', ':', ' ']).to_owned()))
    });
    at.ok_or(error)
}

/// Most passages and bytes of one call. A server accepts messages of 4 MiB by default.
const PASSAGES: usize = 256;
const BYTES: usize = 2 << 20;

pub(super) async fn run(args: WarmArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let mut config = settings.load(Vec::new())?;
    telemetry::install(&config, true);
    let mut warnings = Warnings::default();
    let mut numbered = input::numbered_passages(&args.passages, Empty::LeftOut, &mut warnings)?;
    output::warn(&warnings);
    let (name, given) = (input::name(&args.passages), numbered.len());
    numbered.retain(|(_, passage)| !passage.text.trim().is_empty());
    let (lines, passages): (Vec<usize>, Vec<Passage>) = numbered.into_iter().unzip();
    let client = match &args.server {
        Some(address) => args.connection.client(address, &config)?,
        None if config.scheduler.warm.disk.is_none() => {
            return Err(Failure::Input(
                "passage_cache.disk: must be set, or --server: states in memory are lost when this command ends".into(),
            ));
        }
        None => {
            // Memory is lost when this command ends, so states must go to disk.
            config.scheduler.warm.memory_bytes = 1;
            let engine = app::engine(&config).await?;
            if !engine.prefiller.keeps_on_disk()? {
                let problem = "passage_cache.disk: no states can be cached in this folder; the log above says why";
                return Err(Failure::Input(problem.into()));
            }
            local(engine)
        }
    };
    let bar = output::progress(passages.len(), "passages");
    let mut total = v1::WarmPassagesResponse::default();
    let (mut start, mut faults) = (0, given - passages.len());
    'parts: for part in parts(&passages) {
        // Positions of the passages in this part that were not refused.
        let mut left: Vec<usize> = (start..start + part.len()).collect();
        start += part.len();
        let done = loop {
            let part: Vec<Passage> = left.iter().map(|&place| passages[place].clone()).collect();
            if part.is_empty() {
                continue 'parts;
            }
            match client.warm(&part, |now| show(&bar, &total, now)).await {
                Ok(done) => break done,
                Err(error) => {
                    let (at, problem) = refused(error, &left)?;
                    bar.suspend(|| output::complain(&format!("{name}:{}: {problem}; left out", lines[left[at]])));
                    left.remove(at);
                    faults += 1;
                }
            }
        };
        let part = left;
        total.passages += done.passages;
        total.present += done.present;
        total.kept += done.kept;
        total.tokens += done.tokens;
        total.model.clone_from(&done.model);
        if usize::try_from(done.passages).unwrap_or(usize::MAX) < part.len() {
            output::complain(if args.server.is_none() {
                "no more states are cached: raise passage_cache.disk_bytes, or delete files of passage_cache.disk; the log above says what failed"
            } else {
                "there is no room for more states: raise passage_cache.memory_bytes or passage_cache.disk_bytes, or delete files of passage_cache.disk"
            });
            break;
        }
    }
    bar.finish_and_clear();
    output::json(&json!({
        "given": given, "refused": faults, "done": total.passages, "present": total.present, "kept": total.kept,
        "tokens": total.tokens, "model": total.model,
    }))?;
    let done = usize::try_from(total.passages).unwrap_or(0).min(given);
    // A passage larger than the cache is evaluated in vain.
    let lost = total.passages.saturating_sub(total.present + total.kept);
    match (given - done, lost) {
        (0, 0) => Ok(()),
        (0, lost) => Err(Failure::Other(anyhow::anyhow!("the states of {lost} of {given} passages were not cached"))),
        (left, _) => Err(Failure::Other(anyhow::anyhow!("{left} of {given} passages were not evaluated"))),
    }
}

fn show(bar: &ProgressBar, before: &v1::WarmPassagesResponse, progress: &v1::WarmPassagesResponse) {
    bar.set_position(u64::from(before.passages + progress.passages));
}

/// Passages in parts of at most [`PASSAGES`] and [`BYTES`]; a longer passage is a separate part.
fn parts(passages: &[Passage]) -> Vec<&[Passage]> {
    let (mut parts, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (index, passage) in passages.iter().enumerate() {
        let size = passage.text.len() + passage.title.len();
        if index > start && (bytes + size > BYTES || index - start == PASSAGES) {
            parts.push(&passages[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += size;
    }
    if start < passages.len() {
        parts.push(&passages[start..]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passage_that_is_refused_is_found() {
        let of = |text: &str| refused(ClientError::input(text.to_owned()), &[7, 9]).map_err(|error| error.to_string());
        assert_eq!(of("passages[1].text: must not be empty"), Ok((1, "text: must not be empty".to_owned())));
        assert_eq!(of("passages[0]: too long"), Ok((0, "too long".to_owned())));
        assert_eq!(of("passages[2].text: must not be empty"), Err("passages[2].text: must not be empty".to_owned()));
        assert_eq!(of("passage_cache.disk: must be set"), Err("passage_cache.disk: must be set".to_owned()));
    }

    #[test]
    fn parts_hold_every_passage_once() {
        let passage = |bytes: usize| Passage { text: "x".repeat(bytes), ..Passage::default() };
        let sizes = |passages: &[Passage]| parts(passages).iter().map(|part| part.len()).collect::<Vec<_>>();
        assert_eq!(sizes(&[]), Vec::<usize>::new());
        assert_eq!(sizes(&vec![passage(1); 600]), [256, 256, 88]);
        let long = [passage(BYTES), passage(5 << 20), passage(1), passage(BYTES - 1), passage(1)];
        assert_eq!(sizes(&long), [1, 1, 2, 1]);
    }
}
