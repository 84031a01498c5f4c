//! Time of `rerankd metrics` against pytrec_eval on the same files, each in its own process.

use std::fmt::Write as _;
use std::process::Command;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use super::report::Line;

/// Random runs with 1,000 documents per query.
pub fn run(python: &str, queries: usize) -> anyhow::Result<()> {
    const DOCUMENTS: u32 = 1_000;
    let folder = tempfile::tempdir()?;
    let mut random = ChaCha8Rng::seed_from_u64(0);
    let (mut run, mut judged) = (String::new(), String::new());
    for query in 0..queries {
        for rank in 0..DOCUMENTS {
            let (document, noise) = (rank * 7_919 + random.random_range(0..7_919), random.random::<f64>());
            let score = f64::from(DOCUMENTS - rank) + noise;
            writeln!(run, "q{query} Q0 d{document} {} {score:.5} random", rank + 1)?;
            if random.random_bool(0.04) {
                writeln!(judged, "q{query} 0 d{document} {}", random.random_range(0..3))?;
            }
        }
        for missed in 0..60 {
            writeln!(judged, "q{query} 0 m{missed} {}", random.random_range(0..3))?;
        }
    }
    let (run_file, judged_file) = (folder.path().join("run.txt"), folder.path().join("qrels.txt"));
    std::fs::write(&run_file, &run)?;
    std::fs::write(&judged_file, &judged)?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/evaluation/peer.py");
    let output = Command::new(python)
        .args([script, env!("CARGO_BIN_EXE_rerankd")])
        .args([&judged_file, &run_file])
        .stderr(std::process::Stdio::inherit())
        .output()?;
    anyhow::ensure!(output.status.success(), "{python} {script} failed");
    let measured: Value = serde_json::from_slice(&output.stdout)?;
    let number = |name: &str| measured[name].as_f64().unwrap_or(f64::NAN);
    let rows = queries * DOCUMENTS as usize;
    Line::new(&format!("{rows} rows: rerankd metrics"), number("ours_seconds"), "s")
        .ratio(number("peer_seconds") / number("ours_seconds"))
        .at_least(5.0)
        .print();
    Line::new(&format!("{rows} rows: pytrec_eval"), number("peer_seconds"), "s").print();
    Line::new(&format!("{rows} rows: rerankd metrics, peak memory"), number("ours_mib"), "MiB")
        .ratio(number("ours_mib") / number("peer_mib"))
        .print();
    Line::new(&format!("{rows} rows: pytrec_eval, peak memory"), number("peer_mib"), "MiB").print();
    Line::new(&format!("{rows} rows: largest difference of a mean"), number("largest_difference"), "").print();
    Ok(())
}
