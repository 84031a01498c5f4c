//! File systems for a test. Once one is read-only, root cannot write to it either.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::path::Path;
use std::process::Command;

/// A file system in memory, unmounted when dropped.
pub struct Mounted {
    folder: tempfile::TempDir,
}

impl Mounted {
    /// Mounts a file system of this size, e.g. `1m`; `None` without the right to mount.
    pub fn of(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), &["mount", "-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).then_some(Self { folder })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes it read-only (`ro`) or not (`rw`).
    pub fn remount(&self, mode: &str) {
        assert!(run(self.path(), &["mount", "-o", &format!("remount,{mode}")]));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = run(self.path(), &["umount"]);
        assert!(unmounted || std::thread::panicking());
    }
}

fn run(folder: &Path, command: &[&str]) -> bool {
    let status = Command::new(command[0]).args(&command[1..]).arg(folder).status();
    status.is_ok_and(|status| status.success())
}
