//! The quality gate of `evaluate` and `compare`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::cli::{Failure, output};
use lab::evaluation::gate::{Baseline, Bound, Gate, Judged};
use lab::study;
use rag_metrics::resample::Statistics;

#[derive(Debug, Args)]
pub(super) struct GateArgs {
    /// Exit with 3 if the mean of a metric is less, as in nDCG@10=0.8; may be repeated. Holds for every method or
    /// system, or for one: cascade:nDCG@10=0.8.
    #[arg(long, value_name = "[SYSTEM:]METRIC=VALUE", value_parser = floor)]
    fail_under: Vec<Bound>,
    /// Compare with the values in this file, which --save-baseline wrote for the same questions.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// With --baseline: exit with 3 if a metric dropped by more beyond noise: if the interval of the paired difference
    /// lies below -VALUE. May be repeated, as METRIC=VALUE; without METRIC it is the verdict's metric [default: 0].
    #[arg(long, value_name = "[[SYSTEM:]METRIC=]VALUE", requires = "baseline", value_parser = fall)]
    max_drop: Vec<Bound>,
    /// Write the values of this run as a baseline, unless the gate fails or a question is refused.
    #[arg(long, value_name = "FILE")]
    save_baseline: Option<PathBuf>,
    /// Write the checks as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Append the checks as Markdown, for example to $GITHUB_STEP_SUMMARY.
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
}

fn floor(text: &str) -> Result<Bound, String> {
    let bound = Bound::parse(text)?;
    if bound.name.is_empty() { Err("must be METRIC=VALUE, as in nDCG@10=0.8".to_owned()) } else { Ok(bound) }
}

fn fall(text: &str) -> Result<Bound, String> {
    let bound = Bound::parse(text)?;
    if bound.value < 0.0 { Err("must be at least 0".to_owned()) } else { Ok(bound) }
}

impl GateArgs {
    /// The bounds, with the baseline read.
    pub(super) fn gate(&self, statistics: Statistics) -> Result<Gate, Failure> {
        let gate = Gate {
            floors: self.fail_under.clone(),
            drops: self.max_drop.clone(),
            baseline: self.baseline.as_deref().map(Baseline::read).transpose()?,
            statistics,
        };
        let unused = [("--junit", &self.junit), ("--summary", &self.summary)];
        if let Some((option, _)) = unused.iter().find(|(_, file)| file.is_some()).filter(|_| !gate.has_bounds()) {
            return Err(Failure::Input(format!("{option}: needs a bound: give --fail-under or --baseline")));
        }
        Ok(gate)
    }

    /// Writes the files, says the outcome, and fails if a bound does not hold, or else as the command does: `outcome`. A
    /// failed command saves no baseline.
    pub(super) fn finish(&self, judged: &Judged, outcome: Result<(), Failure>) -> Result<(), Failure> {
        if let Some(path) = &self.junit {
            study::write(path, &judged.junit())?;
        }
        if let Some(path) = &self.summary {
            let file = std::fs::File::options().append(true).create(true).open(path);
            let written = file.and_then(|mut file| file.write_all(judged.summary().as_bytes()));
            written.map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
        }
        if !judged.changes.is_empty() {
            output::complain(&format!("changed since the baseline: {}", judged.changes.join(", ")));
        }
        if !judged.passed() {
            return Err(Failure::Gate(judged.sentence()));
        }
        if !judged.checks.is_empty() {
            output::complain(&judged.sentence());
        }
        outcome?;
        match &self.save_baseline {
            Some(path) => Ok(judged.baseline.write(path)?),
            None => Ok(()),
        }
    }
}
