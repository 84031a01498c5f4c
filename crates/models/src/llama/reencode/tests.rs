use super::super::gguf::tests::small;
use super::*;
use crate::catalog::Catalog;
use crate::fetch::Hub;

struct Bench {
    folder: tempfile::TempDir,
    settings: Settings,
    store: Store,
    sha256: String,
}

/// A store and a file with a header but no weights: its size can be computed, but it cannot be loaded.
fn bench() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.gguf");
    std::fs::write(&path, small()).unwrap();
    let store = Store::new(folder.path().join("store"), Catalog::load(None).unwrap(), Hub::default());
    let sha256 = store.identify(&path).unwrap();
    let settings = Settings {
        path,
        cells: 512,
        batch: 256,
        threads: 1,
        gpu_layers: 0,
        cache_type: super::super::CacheType::default(),
        sha256: String::new(),
        adapter: None,
    };
    Bench { folder, settings, store, sha256 }
}

impl Bench {
    fn measure(&self, most_bytes: u64) -> Result<Choice, ModelError> {
        measure(&self.settings, &self.sha256, &self.store, most_bytes, &|_| {})
    }

    fn chosen(&self) -> Option<Choice> {
        chosen(&self.settings, &self.sha256, &self.store)
    }

    fn kept(&self) -> Kept<'_> {
        Kept::new(&self.sha256, &self.store, &Machine::of(&self.settings))
    }

    fn encodings(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.path().join("store/.encodings"));
        entries.map_or_else(|_| Vec::new(), |entries| entries.map(|entry| entry.unwrap().path()).collect())
    }
}

/// The file cannot be loaded, so success shows that nothing was measured.
#[test]
fn a_file_over_the_bound_is_refused_before_anything_is_written() {
    let bench = bench();
    assert_eq!(bench.chosen(), None);
    let bytes = reencoded_bytes(&bench.settings.path).unwrap();
    let choice = bench.measure(bytes - 1).unwrap();
    assert_eq!((choice.encoding.as_str(), choice.too_large), (AS_SHIPPED, Some(bytes)));
    assert_eq!((&choice.path, &choice.sha256), (&bench.settings.path, &bench.sha256));
    assert_eq!(bench.encodings(), vec![bench.kept().note()]);
    assert_eq!(bench.chosen(), Some(choice));
}

#[test]
fn a_raised_bound_is_measured_again() {
    let bench = bench();
    let bytes = reencoded_bytes(&bench.settings.path).unwrap();
    assert!(bench.measure(bytes - 1).is_ok() && bench.measure(bytes - 1).is_ok());
    let error = bench.measure(bytes).unwrap_err().to_string();
    assert!(error.contains("small.gguf: llama.cpp cannot read it"), "{error}");
    // The failure keeps the earlier result.
    assert!(bench.chosen().is_some());
}

#[test]
fn the_bound_and_the_free_space_are_checked() {
    let gigabyte = 1_000_000_000;
    assert_eq!(allowed(gigabyte, gigabyte, None), Ok(()));
    assert_eq!(allowed(gigabyte, gigabyte, Some(gigabyte + RESERVE)), Ok(()));
    let problem = allowed(gigabyte, gigabyte, Some(gigabyte + RESERVE - 1)).unwrap_err();
    assert_eq!(problem, "re-encoding needs 1537 MB of free disk space, there are 1536 MB");
    let problem = allowed(gigabyte + 1, gigabyte, Some(u64::MAX)).unwrap_err();
    assert_eq!(problem, "the re-encoded file would have 1001 MB, generator.reencode_megabytes is 1000");
    assert!(allowed(u64::MAX, u64::MAX, Some(u64::MAX - 1)).is_err());
}

#[test]
fn a_choice_holds_while_its_file_is_unchanged() {
    let bench = bench();
    let (kept, content) = (bench.kept(), b"re-encoded weights");
    write_atomically(&kept.file("BF16"), content).unwrap();
    let mut note = Choice::as_shipped(&bench.settings, &bench.store.identify(&kept.file("BF16")).unwrap());
    for (encoding, holds) in [("BF16", true), ("F16", false), ("../BF16", false), (AS_SHIPPED, false)] {
        note.encoding = encoding.to_owned();
        write_atomically(&kept.note(), &serde_json::to_vec(&note).unwrap()).unwrap();
        assert_eq!(bench.chosen().is_some_and(|choice| choice.path == kept.file("BF16")), holds, "{encoding}");
    }
    note.encoding = "BF16".to_owned();
    write_atomically(&kept.note(), &serde_json::to_vec(&note).unwrap()).unwrap();
    std::fs::write(kept.file("BF16"), b"other weights").unwrap();
    assert_eq!(bench.chosen(), None);
    std::fs::write(kept.note(), b"{").unwrap();
    assert_eq!(bench.chosen(), None);
}

#[test]
fn a_damaged_file_and_a_store_that_is_a_file_are_named() {
    let bench = bench();
    std::fs::write(bench.folder.path().join("store/.encodings"), b"").unwrap();
    let error = bench.measure(u64::MAX).unwrap_err().to_string();
    assert!(error.contains(".encodings: "), "{error}");
    std::fs::write(&bench.settings.path, b"GGUF").unwrap();
    let error = bench.measure(u64::MAX).unwrap_err().to_string();
    assert!(error.contains("small.gguf: not a GGUF file, or its header is damaged"), "{error}");
}

/// Without the lock, two pods with one store would each remove the file that the other chose.
#[test]
fn the_second_process_waits_and_takes_the_choice_of_the_first() {
    let bench = bench();
    let bytes = reencoded_bytes(&bench.settings.path).unwrap();
    let first = bench.measure(bytes - 1).unwrap();
    let held = bench.kept().lock(&|_| {}).unwrap();
    let note = bench.kept().note();
    std::fs::remove_file(&note).unwrap();
    std::thread::scope(|scope| {
        let (reported, steps) = std::sync::mpsc::channel();
        let report = move |step: &str| reported.send(step.to_owned()).unwrap();
        let (settings, store) = (&bench.settings, &bench.store);
        let second = scope.spawn(move || measure(settings, &bench.sha256, store, bytes - 1, &report).unwrap());
        assert!(steps.recv().unwrap().contains("waiting"));
        // A result that a measurement of this file would not give.
        let choice = Choice { too_large: Some(bytes + 1), ..first.clone() };
        std::fs::write(&note, serde_json::to_vec(&choice).unwrap()).unwrap();
        drop(held);
        assert_eq!(second.join().unwrap().too_large, Some(bytes + 1));
    });
}
