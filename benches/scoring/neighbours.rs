//! Prefill speed while other processes keep cores busy, and under a CPU quota of 1.5 cores, relative to the quiet machine.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use engine::Engine;
use tokio::runtime::Runtime;

use super::engine::{engine_rate, median};
use super::report::Line;

const ROUNDS: usize = 7;

/// Conditions, and the least share of the quiet machine's speed.
const CONDITIONS: [(&str, Condition, Option<f64>); 4] = [
    ("quiet", Condition::Neighbours(0), None),
    ("one busy neighbour", Condition::Neighbours(1), Some(0.45)),
    ("two busy neighbours", Condition::Neighbours(2), Some(0.3)),
    ("a quota of 1.5 cores", Condition::Quota, Some(0.6)),
];

#[derive(Clone, Copy)]
enum Condition {
    Neighbours(usize),
    Quota,
}

pub fn run(runtime: &Runtime, engine: &Engine) -> anyhow::Result<()> {
    let mut rates = vec![Vec::new(); CONDITIONS.len()];
    for round in 0..=ROUNDS {
        for ((name, condition, _), rates) in CONDITIONS.iter().zip(&mut rates) {
            let neighbours = match condition {
                Condition::Neighbours(number) => *number,
                Condition::Quota => 0,
            };
            let _busy = (0..neighbours).map(|_| Busy::start()).collect::<std::io::Result<Vec<_>>>()?;
            let quota = matches!(condition, Condition::Quota).then(Quota::enter).transpose();
            match quota {
                Ok(_entered) => {
                    let rate = engine_rate(runtime, engine, 1, round)?;
                    // The first round warms the caches.
                    rates.extend((round > 0).then_some(rate));
                }
                Err(error) => eprintln!("{name}: not measured: {error}"),
            }
        }
    }
    let quiet = rates[0].clone();
    for ((name, _, goal), rates) in CONDITIONS.iter().zip(&mut rates).filter(|(_, rates)| !rates.is_empty()) {
        let mut ratios: Vec<f64> = rates.iter().zip(&quiet).map(|(rate, quiet)| rate / quiet).collect();
        let line = Line::new(&format!("prefill, {name}"), median(rates), "tokens/s").ratio(median(&mut ratios));
        if let Some(goal) = goal { line.at_least(*goal) } else { line }.print();
    }
    Ok(())
}

/// A process that keeps a core busy.
struct Busy(Child);

impl Busy {
    fn start() -> std::io::Result<Self> {
        Command::new("sh").args(["-c", "while :; do :; done"]).spawn().map(Self)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This process in a control group with 1.5 cores; needs root.
struct Quota {
    folder: PathBuf,
}

impl Quota {
    fn enter() -> std::io::Result<Self> {
        let first = Path::new("/sys/fs/cgroup/cpu");
        let parent = if first.exists() { first } else { Path::new("/sys/fs/cgroup") };
        let folder = parent.join("rerankd-bench");
        std::fs::create_dir_all(&folder)?;
        if first.exists() {
            std::fs::write(folder.join("cpu.cfs_period_us"), "100000")?;
            std::fs::write(folder.join("cpu.cfs_quota_us"), "150000")?;
        } else {
            std::fs::write(folder.join("cpu.max"), "150000 100000")?;
        }
        std::fs::write(folder.join("cgroup.procs"), std::process::id().to_string())?;
        Ok(Self { folder })
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        if let Some(parent) = self.folder.parent() {
            let _ = std::fs::write(parent.join("cgroup.procs"), std::process::id().to_string());
        }
        let _ = std::fs::remove_dir(&self.folder);
    }
}
