use super::*;

fn key(number: usize) -> Key {
    Key::of_generator(&number.to_string())
}

fn open(folder: &Path, bytes: u64) -> Disk {
    Disk::open(&DiskOptions { folder: folder.to_owned(), bytes }).unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn states_survive_a_restart_and_damaged_ones_are_deleted() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("warm");
    let disk = open(&folder, 1 << 20);
    (0..4).for_each(|number| disk.write(key(number), Arc::new(vec![u8::try_from(number).unwrap(); 100]), false));
    drop(disk);
    assert_eq!(files(&folder).len(), 4);
    // Cut off, flipped, and another state's file.
    std::fs::File::options().write(true).open(path(&folder, &key(1))).unwrap().set_len(90).unwrap();
    let mut flipped = std::fs::read(path(&folder, &key(2))).unwrap();
    flipped[150] ^= 4;
    std::fs::write(path(&folder, &key(2)), flipped).unwrap();
    std::fs::copy(path(&folder, &key(0)), path(&folder, &key(3))).unwrap();
    let disk = open(&folder, 1 << 20);
    assert_eq!(disk.read(&key(0)), Some(vec![0; 100]));
    assert!(disk.holds(&key(3)));
    assert_eq!([1, 2, 3, 4].map(|number| disk.read(&key(number))), [None, None, None, None]);
    assert_eq!(files(&folder), vec![path(&folder, &key(0))]);
}

#[test]
fn the_folder_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("a/b");
    drop(open(&folder, 1_000));
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o757)).unwrap();
    assert!(
        Disk::open(&DiskOptions { folder, bytes: 1_000 }).is_none(),
        "a folder that everybody may write to is refused"
    );
    let taken = scratch.path().join("file");
    std::fs::write(&taken, "").unwrap();
    assert!(Disk::open(&DiskOptions { folder: taken, bytes: 1_000 }).is_none());
}

/// A file of last week.
fn old(path: &Path) {
    let file = std::fs::File::create(path).unwrap();
    let now = file.metadata().unwrap().modified().unwrap();
    file.set_modified(now - Duration::from_hours(7 * 24)).unwrap();
}

#[test]
fn the_files_used_longest_ago_go_first_and_nobody_elses() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("warm");
    drop(open(&folder, 10_000));
    // Names like those of the files that are deleted by age.
    let others = ["notes.txt", "mine.state", "writing-thesis.txt", "writing-old"].map(|name| folder.join(name));
    for path in &others {
        old(path);
    }
    let abandoned = folder.join("writing-a1B2c3");
    old(&abandoned);
    for number in 0..30 {
        let disk = open(&folder, 10_000);
        disk.write(key(number), Arc::new(vec![1; 1_000]), false);
        assert!(number == 0 || disk.read(&key(0)).is_some(), "it is used in every turn");
    }
    assert!(!abandoned.exists(), "what a process left that ended while it wrote");
    let kept: u64 = files(&folder).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(kept <= 10_000 && kept > 6_000, "{kept}");
    let disk = open(&folder, 10_000);
    assert!(disk.holds(&key(0)) && disk.holds(&key(29)) && !disk.holds(&key(1)));
    assert!(others.iter().all(|path| path.exists()), "{others:?}");
}

/// It was written afterwards, with a valid checksum.
#[test]
fn a_state_that_is_dropped_while_it_waits_is_not_there_afterwards() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("warm");
    let disk = open(&folder, 1 << 30);
    for number in 0..20 {
        disk.write(key(number), Arc::new(vec![1; 1 << 20]), true);
    }
    disk.remove(&key(19));
    assert!(!disk.holds(&key(19)) && disk.read(&key(19)).is_none());
    disk.remove(&key(0));
    let end = Instant::now() + Duration::from_secs(20);
    while !disk.is_settled() {
        assert!(Instant::now() < end, "the states are not written");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!disk.holds(&key(19)) && !disk.holds(&key(0)) && disk.holds(&key(18)));
    disk.write(key(0), Arc::new(vec![2; 10]), false);
    drop(disk);
    assert_eq!(files(&folder).len(), 19);
    assert_eq!(open(&folder, 1 << 30).read(&key(0)), Some(vec![2; 10]));
}

#[test]
fn two_servers_share_a_folder() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("warm");
    let (one, two) = (open(&folder, 1 << 20), open(&folder, 1 << 20));
    for number in 0..20 {
        one.write(key(number), Arc::new(vec![3; 500]), false);
        two.write(key(number), Arc::new(vec![3; 500]), false);
    }
    drop(one);
    drop(two);
    let three = open(&folder, 1 << 20);
    assert!((0..20).all(|number| three.read(&key(number)) == Some(vec![3; 500])));
    assert_eq!(files(&folder).len(), 20, "no temporary file is left");
}

#[test]
fn a_folder_that_vanishes_costs_nothing_but_the_states() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("warm");
    let disk = open(&folder, 1 << 20);
    std::fs::remove_dir_all(&folder).unwrap();
    disk.write(key(0), Arc::new(vec![3; 500]), false);
    assert_eq!(disk.read(&key(0)), None);
    drop(disk);
    assert!(!folder.exists());
}

#[test]
fn a_folder_of_another_user_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(owned(7, 7, 0o700), Ok(()));
    assert_eq!(owned(7, 7, 0o500), Ok(()));
    assert!(owned(0, 7, 0o700).unwrap_err().contains("belongs to user 0"));
    assert_eq!(owned(7, 7, 0o770), Ok(()), "its group may use it: a volume");
    for mode in [0o777, 0o702] {
        assert!(owned(7, 7, mode).unwrap_err().contains("should be 700"), "{mode:o}");
    }
    let scratch = tempfile::tempdir().unwrap();
    let options = |name: &str| DiskOptions { folder: scratch.path().join(name), bytes: 1 };
    assert_eq!(options("missing").check(), Ok(()), "it will be made");
    std::fs::create_dir(scratch.path().join("open")).unwrap();
    std::fs::set_permissions(scratch.path().join("open"), PermissionsExt::from_mode(0o777)).unwrap();
    assert!(options("open").check().is_err());
    let volume = scratch.path().join("open");
    std::fs::set_permissions(&volume, PermissionsExt::from_mode(0o770)).unwrap();
    private_folder(&volume).unwrap();
    assert_eq!(std::fs::metadata(&volume).unwrap().permissions().mode() & 0o777, 0o700, "it is closed to the group");
}

#[test]
fn filling_takes_free_room_only() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("warm");
    let disk = open(&folder, 10_000);
    (0..3).for_each(|number| disk.write(key(number), Arc::new(vec![1; 1_000]), false));
    (3..90).for_each(|number| disk.write(key(number), Arc::new(vec![1; 1_000]), true));
    drop(disk);
    let disk = open(&folder, 10_000);
    assert!((0..5).all(|number| disk.holds(&key(number))), "nothing that was there is deleted");
    assert!(!disk.holds(&key(89)));
    disk.write(key(100), Arc::new(vec![1; 1_000]), false);
    drop(disk);
    assert!(open(&folder, 10_000).holds(&key(100)), "traffic deletes what was used longest ago");
}

/// Other files were deleted for it, and then it was not written.
#[test]
fn a_state_that_is_too_large_deletes_no_others() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("warm");
    let disk = open(&folder, 10_000);
    (0..6).for_each(|number| disk.write(key(number), Arc::new(vec![1; 1_000]), false));
    disk.write(key(9), Arc::new(vec![1; 9_500]), false);
    drop(disk);
    let disk = open(&folder, 10_000);
    assert!((0..6).all(|number| disk.holds(&key(number))) && !disk.holds(&key(9)));
}

#[test]
fn files_of_states_that_memory_serves_are_not_the_first_to_go() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("warm");
    let disk = open(&folder, 10_000);
    for number in 0..30 {
        disk.write(key(number), Arc::new(vec![1; 1_000]), false);
        disk.used(&key(0));
        while disk.is_writing(&[key(number)]) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(disk.holds(&key(0)) && !disk.holds(&key(1)));
}

#[test]
fn a_damaged_file_that_cannot_be_deleted_is_not_used() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("warm");
    let disk = open(&folder, 10_000);
    // A folder in place of the file: it can be neither read nor removed as a file, by any user.
    std::fs::create_dir(path(&folder, &key(0))).unwrap();
    assert_eq!((disk.read(&key(0)), disk.read(&key(0))), (None, None));
}

/// A false length, of a sparse file: memory of that size cannot be allocated. Also within the bound of all files.
#[test]
fn a_file_that_is_too_long_is_damaged() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("warm");
    let disk = open(&folder, 1 << 20);
    disk.write(key(0), Arc::new(vec![7; 100]), false);
    drop(disk);
    let whole = std::fs::read(path(&folder, &key(0))).unwrap();
    for most in [1 << 20, u64::MAX] {
        std::fs::write(path(&folder, &key(0)), &whole).unwrap();
        std::fs::File::options().write(true).open(path(&folder, &key(0))).unwrap().set_len(1 << 40).unwrap();
        // Without opening the folder again, which would count its files.
        let (queue, pending, unreadable) = (None, Arc::default(), AtomicBool::new(false));
        let disk = Disk {
            files: Arc::new(Files { folder: folder.clone(), most, unreadable }),
            reader: Reader::start().unwrap(),
            queue,
            writer: None,
            pending,
        };
        assert_eq!(disk.read(&key(0)), None);
        assert!(files(&folder).is_empty(), "it is deleted");
    }
}

/// A network volume that stops answering: opening the file blocks for ever.
#[cfg(unix)]
#[test]
fn a_folder_that_does_not_answer_is_passed_over() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("warm");
    let disk = Arc::new(open(&folder, 1 << 20));
    assert!(std::process::Command::new("mkfifo").arg(path(&folder, &key(0))).status().unwrap().success());
    let (reply, answers) = channel();
    let asking = Arc::clone(&disk);
    std::thread::spawn(move || (0..2).for_each(|number| reply.send(asking.read(&key(number))).unwrap()));
    // The second question is not asked at all.
    let waited = [(); 2].map(|()| answers.recv_timeout(20 * reader::WAIT).expect("it hangs"));
    assert_eq!(waited, [None, None]);
    assert!(!disk.holds(&key(0)));
}

/// `WarmPassages` waited without end on a volume that accepts nothing, and each call left more states in memory.
#[test]
fn a_folder_that_takes_nothing_is_not_waited_for() {
    let scratch = tempfile::tempdir().unwrap();
    let (queue, _orders) = channel();
    let mut disk = open(&scratch.path().join("warm"), 1 << 20);
    let state = || Arc::new(vec![1; 8]);
    // No thread takes orders from this queue.
    let taken = disk.queue.replace(queue);
    drop(taken);
    let keys = [key(1), key(2)];
    disk.write(keys[0], state(), true);
    assert!(disk.is_writing(&keys));
    Pending::lock(&disk.pending).moved = Instant::now().checked_sub(STUCK);
    assert!(!disk.is_writing(&keys));
    disk.write(keys[1], state(), true);
    assert_eq!(Pending::lock(&disk.pending).waiting.len(), 1);
    Pending::lock(&disk.pending).remove(&keys[0]);
    disk.write(keys[1], state(), true);
    assert!(disk.is_writing(&keys));
}
