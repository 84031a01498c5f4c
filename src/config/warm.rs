//! Keys of the section `warm`: what is kept of passages that were read.

use std::path::PathBuf;

use serde::Deserialize;

use prefix_scheduler::warm::{DiskOptions, Options};

#[derive(Debug, Deserialize)]
pub(super) struct Warm {
    memory_bytes: u64,
    disk: String,
    disk_bytes: u64,
}

impl Warm {
    pub fn options(self, faults: &mut Vec<String>) -> Options {
        let Self { memory_bytes, disk, disk_bytes } = self;
        if memory_bytes == 0 && !disk.is_empty() {
            faults.push("warm.disk: must be empty where warm.memory_bytes is 0".to_owned());
        }
        let disk = (!disk.is_empty()).then(|| DiskOptions { folder: PathBuf::from(disk), bytes: disk_bytes });
        Options { memory_bytes, disk }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_needs_memory() {
        let warm = |memory_bytes, disk: &str| Warm { memory_bytes, disk: disk.to_owned(), disk_bytes: 7 };
        let options = |warm: Warm| {
            let mut faults = Vec::new();
            (warm.options(&mut faults), faults)
        };
        let folder = Some(DiskOptions { folder: "/states".into(), bytes: 7 });
        assert_eq!(options(warm(5, "/states")), (Options { memory_bytes: 5, disk: folder }, vec![]));
        assert_eq!(options(warm(5, "")), (Options { memory_bytes: 5, disk: None }, vec![]));
        assert!(options(warm(0, "/states")).1[0].starts_with("warm.disk:"));
    }
}
