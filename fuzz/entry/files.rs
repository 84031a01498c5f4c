//! Files that the program reads. Byte 0 is the kind of file, by its index in [`KINDS`]; the rest is its content.

use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use files::{Empty, Warnings, cited, corpus, equivalence, examples, labelled, passages, questions, trec};
use models::catalog::Catalog;
use models::fetch::Hub;
use models::llama::{Adapter, backend, reencoded_bytes, verify_adapter};
use models::store::{Store, hash};
use moi::profile::Origin;
use prefix_scheduler::model::ModelError;
use rerankd::app::calibration_file::CalibrationFile;
use rerankd::app::profile_file::ProfileFile;
use rerankd::config::Config;
use serde_json::{Value, json};
use server::transport::Tokens;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

#[path = "../../tests/common/gguf.rs"]
pub mod written;

/// The name of a kind of file, and its reader, which gets the path and the content.
pub type Kind = (&'static str, fn(&Path, &[u8]));

/// All kinds. New kinds come last, because stored inputs name a kind by its index.
pub const KINDS: [Kind; 15] = [
    ("labelled lists", labelled_lists),
    ("questions", |path, _| named(path, questions(path, Empty::Ranked, &mut Warnings::default()).map(drop))),
    ("passages", |path, _| named(path, passages(path, &mut Warnings::default()).map(drop))),
    ("run", |path, content| {
        text(content, |text| named(path, trec::run(text, path, &mut Warnings::default()).map(drop)));
    }),
    ("judgements", |path, content| {
        text(content, |text| named(path, trec::judgements(text, path, &mut Warnings::default()).map(drop)));
    }),
    ("profiles", |_, content| profiles(content)),
    ("calibrations", |_, content| calibrations(content)),
    ("tokens", |path, _| named(path, Tokens::load(path).map(drop))),
    ("catalogue", |path, _| named(path, Catalog::load(Some(path)).map(drop))),
    ("configuration", |path, _| drop(Config::from_parts(Some(path), &[], &[]))),
    ("queries", |path, _| named(path, corpus::queries(path, &mut Warnings::default()).map(drop))),
    ("documents", |path, _| documents(path)),
    ("citing answers", |path, _| named(path, cited::answers(path, &mut Warnings::default()).map(drop))),
    ("judged answers", |path, _| named(path, equivalence::lists(path, &mut Warnings::default()).map(drop))),
    ("examples", |path, _| named(path, examples::examples(path, &mut Warnings::default()).map(drop))),
];

static FOLDER: LazyLock<Mutex<TempDir>> = LazyLock::new(|| Mutex::new(tempfile::tempdir().unwrap()));

/// Reads one file.
///
/// # Panics
/// An error does not name the file, or a reader accepts content that its writer would not write.
pub fn run(input: &[u8]) {
    let [kind, content @ ..] = input else { return };
    let (_, read) = KINDS[usize::from(*kind) % KINDS.len()];
    with_file(content, |path| read(path, content));
}

/// Reads the header of a GGUF file, and the file as an adapter of one small model.
pub fn gguf(input: &[u8]) {
    // Sends llama.cpp's messages about damaged files to tracing, which discards them.
    backend().unwrap();
    with_file(input, |path| {
        drop(reencoded_bytes(path));
        named(path, adapts(path));
    });
}

/// Checks that the file is an adapter of the small model.
///
/// # Errors
/// The reason why it is not.
pub fn adapts(path: &Path) -> Result<(), ModelError> {
    let sha256 = hash(path).unwrap();
    let adapter = Adapter { path: path.to_owned(), sha256, scale: 1.0, base: "0".repeat(64) };
    verify_adapter(&adapter, &BASE.path().join("base.gguf"))
}

/// The folder of the model's file. Its matrices have the shapes that the seeds adapt.
static BASE: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let matrix = |name: &str, outputs: u64| (name.to_owned(), vec![4, outputs], vec![0.0; 16]);
    let norm = ("blk.0.attn_norm.weight".to_owned(), vec![4], vec![1.0; 4]);
    let tensors = [matrix("blk.0.attn_q.weight", 4), matrix("output.weight", 4), norm];
    let content = written::bytes(&[("general.architecture", written::text("llama"))], &tensors);
    std::fs::write(folder.path().join("base.gguf"), content).unwrap();
    folder
});

fn with_file(content: &[u8], read: impl FnOnce(&Path)) {
    let folder = FOLDER.lock().unwrap_or_else(PoisonError::into_inner);
    let path = folder.path().join("input");
    std::fs::write(&path, content).unwrap();
    read(&path);
}

fn named<E: std::fmt::Display>(path: &Path, outcome: Result<(), E>) {
    if let Err(error) = outcome {
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

fn text(content: &[u8], read: impl FnOnce(&str)) {
    if let Ok(text) = std::str::from_utf8(content) {
        read(text);
    }
}

fn labelled_lists(path: &Path, _: &[u8]) {
    match labelled::lists(path, 0.5, Empty::Ranked, &mut Warnings::default()) {
        Ok(lists) => {
            assert!(!lists.is_empty());
            for list in lists {
                assert!(!list.passages.is_empty() && list.passages.len() == list.labels.len());
                assert!(list.labels.iter().all(|label| *label >= 0.0));
            }
        }
        Err(error) => named(path, Err(error)),
    }
}

/// Looks for a document that a file may have, and for one that no file has.
fn documents(path: &Path) {
    let wanted = ["a", "nowhere"].into();
    match corpus::documents(path, &wanted, &mut Warnings::default()) {
        Ok(found) => assert!(found.keys().all(|id| wanted.contains(id.as_str()))),
        Err(error) => named(path, Err(error)),
    }
}

/// A new store, and its only file of measurements.
fn sealed(content: &[u8], path: impl FnOnce(&Store) -> PathBuf) -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path().to_owned(), Catalog::load(None).unwrap(), Hub::default());
    let path = path(&store);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    // JSON is sealed, so that the checks after the hash are reached. Other content is the file itself.
    let bytes = match serde_json::from_slice::<Value>(content) {
        Ok(mut content) => {
            if let Some(fields) = content.as_object_mut() {
                fields.entry("generator").or_insert(json!("g"));
                fields.entry("template").or_insert(json!("t"));
            }
            let check = hex::encode(Sha256::digest(content.to_string().as_bytes()));
            json!({ "check": check, "content": content }).to_string().into_bytes()
        }
        Err(_) => content.to_vec(),
    };
    std::fs::write(path, bytes).unwrap();
    (folder, store)
}

/// Accepted content is written and read again; other content is set aside.
fn profiles(content: &[u8]) {
    let file = |store: &Store| ProfileFile::new(store, "g", "t", Origin::Calibrated);
    let (_folder, store) = sealed(content, |store| file(store).path().to_owned());
    let file = file(&store);
    match file.load() {
        Ok(profiles) => {
            file.save(&profiles).unwrap();
            assert_eq!(file.load().unwrap(), profiles);
        }
        Err(_) => assert!(!file.path().exists()),
    }
}

fn calibrations(content: &[u8]) {
    let file = |store: &Store| CalibrationFile::new(store, "g", "t");
    let (_folder, store) = sealed(content, |store| file(store).path().to_owned());
    let file = file(&store);
    match file.load() {
        Ok(calibrations) => {
            file.save(&calibrations).unwrap();
            assert_eq!(file.load().unwrap(), calibrations);
        }
        Err(_) => assert!(!file.path().exists()),
    }
}
