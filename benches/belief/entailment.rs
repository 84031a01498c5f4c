//! Accuracy and speed of entailment.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use models::catalog::Role;
use models::onnx::graft;
use prefix_scheduler::call::Call;
use prefix_scheduler::model::entailment::TextPair;
use prefix_scheduler::scheduler::entailment::Judge;
use rerankd::config::Config;

use super::report::{self, Line};

fn lines(path: &Path) -> anyhow::Result<impl Iterator<Item = String>> {
    let file = std::fs::File::open(path).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
    Ok(BufReader::new(flate2::read::GzDecoder::new(file)).lines().map_while(Result::ok))
}

fn snli(folder: &Path, most: usize) -> anyhow::Result<Vec<(usize, TextPair)>> {
    let classes = ["entailment", "neutral", "contradiction"];
    let parse = |line: String| {
        let mut parts = line.split('\t').map(str::to_owned);
        let class = parts.next().and_then(|label| classes.iter().position(|class| *class == label))?;
        Some((class, TextPair::new(parts.next()?.trim(), parts.next()?.trim())))
    };
    Ok(lines(&folder.join("nli/snli-dev.tsv.gz"))?.filter_map(parse).take(most).collect())
}

async fn judged(judge: &Judge, pairs: Vec<TextPair>) -> anyhow::Result<Vec<[f64; 3]>> {
    let mut verdicts = Vec::new();
    for part in pairs.chunks(500) {
        let judged = judge.judge(part.to_vec(), &Call::local()).await?;
        report::about_model(&judged.model.name, &judged.model.sha256, "int8");
        verdicts.extend(judged.verdicts.iter().map(|v| [v.entailment, v.neutral, v.contradiction]));
    }
    Ok(verdicts)
}

/// Accuracy on SNLI dev.
pub async fn quality(config: &Config, folder: &Path, most: usize) -> anyhow::Result<()> {
    let judge = rerankd::app::judge(config)?.ok_or_else(|| anyhow::anyhow!("no entailment model"))?;
    let rows = snli(folder, most)?;
    let verdicts = judged(&judge, rows.iter().map(|row| row.1.clone()).collect()).await?;
    let first = |v: &[f64; 3]| (0..3).max_by(|a, b| v[*a].total_cmp(&v[*b])).unwrap_or(0);
    let right = rows.iter().zip(&verdicts).filter(|(row, v)| row.0 == first(v)).count();
    let name = format!("entailment: accuracy on {} pairs of SNLI dev", rows.len());
    Line::new(&name, right as f64 / rows.len() as f64, "").print();
    Ok(())
}

/// Pairs per second, compared with onnxruntime's Python binding on the same network: median of three alternating
/// rounds.
pub async fn peer(config: &Config, folder: &Path, python: &str) -> anyhow::Result<()> {
    let pairs: Vec<TextPair> = snli(folder, 600)?.into_iter().map(|row| row.1).collect();
    let located = config.store.locate("deberta-v3-xsmall-nli", Role::Entailment)?;
    let (head, weights) = graft::built_in().map_err(anyhow::Error::msg)?;
    let network = graft::graft(&std::fs::read(&located.path)?, &head, &weights).map_err(anyhow::Error::msg)?;
    let scratch = tempfile::tempdir()?;
    std::fs::write(scratch.path().join("network.onnx"), network)?;
    let rows: Vec<[&str; 2]> = pairs.iter().map(|pair| [&*pair.premise, &*pair.hypothesis]).collect();
    for (name, batch) in [("one pair a step", 1), ("16 pairs a step", 16)] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let mut own = config.clone();
            own.entailment.batch = batch;
            own.entailment.worker.cache_entries = 0;
            let judge = rerankd::app::judge(&own)?.ok_or_else(|| anyhow::anyhow!("no entailment model"))?;
            judged(&judge, pairs[..1].to_vec()).await?;
            let started = Instant::now();
            judged(&judge, pairs.clone()).await?;
            ours.push(pairs.len() as f64 / started.elapsed().as_secs_f64());
            let mut child = Command::new(python)
                .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/belief/peer.py"))
                .arg(scratch.path().join("network.onnx"))
                .arg(located.path.with_file_name("tokenizer.json"))
                .arg(batch.to_string())
                .arg(config.entailment.threads.to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            child.stdin.take().expect("piped").write_all(serde_json::to_string(&rows)?.as_bytes())?;
            let output = child.wait_with_output()?;
            theirs.push(String::from_utf8_lossy(&output.stdout).trim().parse::<f64>()?);
        }
        ours.sort_by(f64::total_cmp);
        theirs.sort_by(f64::total_cmp);
        Line::new(&format!("entailment: Python binding, {name}"), theirs[1], "pairs/s").print();
        Line::new(&format!("entailment: pairs a second, {name}"), ours[1], "pairs/s")
            .ratio(ours[1] / theirs[1])
            .print();
    }
    Ok(())
}
