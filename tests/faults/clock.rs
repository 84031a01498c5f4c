//! Clocks that jump: deadlines, ages and intervals use a monotonic clock, and files are used whatever their date.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::{certificates, common};
use certificates::{Authority, install};
use common::Scripted;
use engine::fusion::calibration::Calibration;
use engine::fusion::platt::Platt;
use http::HeaderMap;
use prefix_scheduler::warm::{DiskOptions, Key, Options, Store};
use protocol::client::Client;
use protocol::connect::Server;
use rerankd::config::Config;
use server::rpc::server::ServerOptions;
use server::transport::{Access, AccessFiles, NewToken};

/// Times of files after a clock was set: in the past, before the epoch, in the future.
fn times() -> [SystemTime; 4] {
    let day = Duration::from_hours(24);
    let (now, epoch) = (SystemTime::now(), SystemTime::UNIX_EPOCH);
    [now - day, epoch, epoch - day, now + 365 * day]
}

fn date(path: &Path, time: SystemTime) {
    std::fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Files that read the wall clock, with the reason. All others use `Instant`, which no setting of the clock moves.
const WALL_CLOCK: [&str; 7] = [
    // When a state was last used, as the date of its file.
    "crates/prefix-scheduler/src/warm/disk/mod.rs",
    "crates/prefix-scheduler/src/warm/disk/writer.rs",
    // Dates of files, which are compared for being equal.
    "src/app/follow.rs",
    "crates/models/src/receipts.rs",
    "src/app/sealed.rs",
    "crates/server/src/transport/watched.rs",
    // The random part of request ids.
    "crates/prefix-scheduler/src/call/mod.rs",
];

/// Files that only show dates.
const SHOWN: [&str; 2] = ["crates/server/src/http/problem.rs", "crates/server/src/observe/export.rs"];

#[test]
fn nothing_else_reads_the_wall_clock() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut folders, mut found) = (vec![root.join("src"), root.join("crates")], BTreeSet::new());
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && ["SystemTime", "UNIX_EPOCH"]
                    .iter()
                    .any(|name| std::fs::read_to_string(&path).unwrap().contains(name))
            {
                found.insert(path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    let known: BTreeSet<String> = WALL_CLOCK.iter().chain(&SHOWN).map(ToString::to_string).collect();
    assert_eq!(found, known);
}

#[test]
fn a_token_file_is_loaded_whatever_its_date() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    let header = |new: &NewToken| {
        HeaderMap::from_iter([("authorization".parse().unwrap(), format!("Bearer {}", new.token).parse().unwrap())])
    };
    let first = NewToken::new("search").unwrap();
    std::fs::write(&path, &first.line).unwrap();
    let access = Access::load(&AccessFiles { tls: None, tokens: Some(path.clone()) }).ok().unwrap();
    let mut before = first;
    for time in times() {
        let new = NewToken::new("search").unwrap();
        std::fs::write(&path, &new.line).unwrap();
        date(&path, time);
        assert!(access.reload(false).is_empty());
        assert!(access.tokens.check(&header(&new)).is_ok(), "{time:?}");
        assert!(access.tokens.check(&header(&before)).is_err(), "{time:?}");
        before = new;
    }
}

#[tokio::test]
async fn certificates_are_loaded_whatever_their_date_and_expired_ones_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (mut authority, clients) = (Authority::new(), Authority::new());
    let files = install(folder.path(), &authority, Some(&clients));
    let access = Access::load(&AccessFiles { tls: Some(files.clone()), tokens: None }).ok().unwrap();
    let server = Scripted::default().serve_with(ServerOptions { access: access.clone(), ..Default::default() }).await;
    let ask = |authority: &Authority, identity| {
        let ca = Some(authority.pem.clone().into_bytes());
        let address = format!("https://{}", server.address);
        let server = Server { address, ca, identity: Some(identity), token: None };
        async move { Client::new(server, usize::MAX).server_info().await.map(drop) }
    };
    ask(&authority, clients.identity()).await.unwrap();
    for time in times() {
        authority = Authority::new();
        install(folder.path(), &authority, Some(&clients));
        date(&files.certificate, time);
        date(&files.key, time);
        assert!(access.reload(false).is_empty());
        ask(&authority, clients.identity()).await.unwrap();
    }
    // Like a certificate after the clock has jumped beyond its end.
    assert!(ask(&authority, clients.identity_until(2001)).await.is_err(), "an expired certificate is accepted");
    ask(&authority, clients.identity()).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_calibration_is_followed_whatever_its_date() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [("models.store".to_owned(), folder.path().display().to_string())];
    let file = rerankd::app::calibration_file(&Config::load(None, &flags).unwrap().store, "scripted");
    let server = Scripted::default().serve().await;
    let generator = server.engine.generator().unwrap();
    let interval = Duration::from_millis(5);
    let following = tokio::spawn(rerankd::app::follow_calibration(generator.clone(), file.clone(), interval));
    for (lists, time) in (40..).zip(times()) {
        let score = Platt { intercept: -2.0, slope: 3.0 };
        let method = "cascade".to_owned();
        let calibration = Calibration {
            embedding: None,
            model: None,
            method,
            mix: None,
            score,
            lists,
            passages: 800,
            outranks_per_nat: None,
            calibration_error: None,
        };
        file.save(&[calibration]).unwrap();
        date(file.path(), time);
        common::wait_for("the calibration is loaded", || {
            generator.calibrations.all().iter().any(|one| one.lists == lists)
        })
        .await;
    }
    following.abort();
    server.stop().await;
}

/// A receipt holds for one date of one file. Dates before 1970 must differ, too.
#[test]
fn a_file_is_hashed_again_whatever_its_date() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [("models.store".to_owned(), folder.path().display().to_string())];
    let store = Config::load(None, &flags).unwrap().store;
    let path = folder.path().join("model.gguf");
    let before = SystemTime::UNIX_EPOCH - Duration::from_secs(10);
    let mut seen = BTreeSet::new();
    for (content, time) in times().into_iter().chain([before]).enumerate() {
        std::fs::write(&path, content.to_string()).unwrap();
        date(&path, time);
        assert!(seen.insert(store.identify(&path).unwrap()), "{time:?}: an earlier content is taken for this one");
        assert!(seen.contains(&store.identify(&path).unwrap()));
    }
}

fn state(folder: &Path, key: &Key) -> PathBuf {
    folder.join(hex::encode(key.hash)).with_extension("state")
}

#[tokio::test]
async fn states_of_any_date_are_read_and_stay_within_their_bound() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("states");
    let open = |bytes: u64| {
        let disk = Some(DiskOptions { folder: folder.clone(), bytes });
        Store::new(&Options { memory_bytes: 1 << 20, disk }).unwrap()
    };
    let keys: Vec<Key> = (0..4).map(|number: u8| Key::of_generator(&number.to_string())).collect();
    let store = open(1 << 20);
    for key in &keys {
        store.keep(*key, 10, &Arc::new(vec![7; 1_000]), true, true);
    }
    common::wait_for("the states are written", || store.is_settled()).await;
    drop(store);
    for (key, time) in keys.iter().zip(times()) {
        date(&state(&folder, key), time);
    }
    // Temporary files of other processes are deleted by age. A file with a future date may still be in use.
    let (old, coming) = (folder.join("writing-beyond"), folder.join("writing-coming"));
    std::fs::write(&old, "").unwrap();
    std::fs::write(&coming, "").unwrap();
    date(&old, times()[1]);
    date(&coming, times()[3]);
    // Room for about two states: the oldest ones are deleted.
    let store = open(3_000);
    let late = Key::of_generator("late");
    // It is not prefetched, because a prefetched state takes only free room.
    store.keep(late, 10, &Arc::new(vec![8; 1_000]), true, false);
    common::wait_for("the state is written", || store.is_settled()).await;
    let there = |key: &Key| state(&folder, key).exists();
    assert!(there(&late) && there(&keys[3]) && !there(&keys[1]) && !there(&keys[2]));
    assert!(!old.exists() && coming.exists());
    let wanted = (prefix_scheduler::plan::NodeId(0), keys[3]);
    drop(store);
    let store = open(3_000);
    let held = store.hold();
    store.fetch(&[wanted], &held, || false);
    assert_eq!(held.get(&keys[3]).map(|state| state.len()), Some(1_000));
}
