//! Near-duplicates, for the commands that rank.

use clap::{Args, ValueEnum};

use engine::types::{Dedup, DedupMode};

/// How near-duplicates are found, and their places.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct DedupArgs {
    /// Near-duplicates: the best ranked one stands for all (one-place), the others come last (push-down), or they are
    /// ranked like other passages (off).
    #[arg(long, value_enum)]
    dedup: Option<DedupName>,
    /// Least similarity of near-duplicates, above 0 and at most 1: the share of common word pairs; 0.6 by default. 1 finds
    /// copies only.
    #[arg(long, value_name = "SHARE", value_parser = super::probability)]
    dedup_similarity: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DedupName {
    OnePlace,
    PushDown,
    Off,
}

impl DedupArgs {
    /// `None` if no option is given.
    pub(super) fn options(self) -> Option<Dedup> {
        let mode = match self.dedup {
            None if self.dedup_similarity.is_none() => return None,
            None | Some(DedupName::OnePlace) => DedupMode::OnePlace,
            Some(DedupName::PushDown) => DedupMode::PushDown,
            Some(DedupName::Off) => DedupMode::Off,
        };
        let similarity = self.dedup_similarity.unwrap_or(Dedup::default().similarity);
        Some(Dedup { mode, similarity })
    }
}
