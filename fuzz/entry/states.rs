//! Files of passage states, as the store reads them.
//!
//! | byte 0 | the rest |
//! |---|---|
//! | 0 | the raw file |
//! | 1 | a state: its file is written, and must give the same state |
//! | 2 | a file with a corrected checksum, so that the checks after it are reached |

use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, PoisonError};

use prefix_scheduler::plan::NodeId;
use prefix_scheduler::warm::{DiskOptions, Key, Options, Store};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// Bytes before the checksum, and with it.
const START: usize = 8 + 4 + 32 + 8;
const HEADER: usize = START + 32;

struct Kept {
    store: Store,
    key: Key,
    path: PathBuf,
    _folder: TempDir,
}

static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("states");
    let disk = DiskOptions { folder: place.clone(), bytes: 1 << 30 };
    let store = Store::new(&Options { memory_bytes: 1 << 24, disk: Some(disk) }).unwrap();
    let key = Key::of_generator("fuzz");
    Mutex::new(Kept { store, key, path: place.join(hex::encode(key.hash)).with_extension("state"), _folder: folder })
});

/// The file of a state, in the program's format.
fn file(key: &Key, state: &[u8]) -> Vec<u8> {
    let length = u64::try_from(state.len()).unwrap_or(u64::MAX).to_le_bytes();
    sealed(&[b"rrkwarm\n", &1_u32.to_le_bytes()[..], &key.hash, &length].concat(), state)
}

fn sealed(start: &[u8], state: &[u8]) -> Vec<u8> {
    let sum = Sha256::new().chain_update(start).chain_update(state).finalize();
    [start, &sum, state].concat()
}

/// Reads one file.
///
/// # Panics
/// A foreign file is accepted, or a valid one is refused.
pub fn run(input: &[u8]) {
    let [form, rest @ ..] = input else { return };
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes = match form % 3 {
        1 => file(&kept.key, rest),
        2 if rest.len() >= START => sealed(&rest[..START], &rest[START..]),
        _ => rest.to_vec(),
    };
    std::fs::write(&kept.path, &bytes).unwrap();
    let held = kept.store.hold();
    kept.store.fetch(&[(NodeId(0), kept.key)], &held, || false);
    match held.get(&kept.key) {
        Some(state) => assert_eq!(file(&kept.key, &state), bytes, "a foreign file is accepted"),
        None => {
            let written = bytes.get(HEADER..).is_some_and(|state| file(&kept.key, state) == bytes);
            assert!(!written && !kept.path.exists(), "a valid file is refused, or a damaged one stays");
        }
    }
    kept.store.drop_state(&kept.key);
    while !kept.store.is_settled() {
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
}
