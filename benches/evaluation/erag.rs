//! eRAG on labelled questions: correlation of its metrics with the quality of the end-to-end answer, and cost
//! relative to it.

use std::path::Path;
use std::process::{Command, Stdio};

use rerankd::call::Call;
use rerankd::engine::Engine;
use rerankd::engine::belief::{BeliefRequest, SampleOptions};
use rerankd::engine::evaluate::{Annotator, EvaluateRequest};
use serde_json::{Value, json};

use super::data;
use super::report::Line;

/// Most tokens of a passage and of an answer.
const PASSAGE_TOKENS: usize = 64;
const ANSWER_TOKENS: usize = 24;
/// Qualities of the end-to-end answer to correlate with. The default generator's answers differ in word overlap and
/// containment; SePer is the target of its own labels.
const TARGETS: [&str; 3] = ["token-f1", "containment", "seper-soft"];

/// Cost, after the paper's Table 2: labels of all passages relative to one end-to-end answer, in tokens and seconds.
pub async fn cost(engine: &Engine, file: &str, most: usize) -> anyhow::Result<()> {
    let name = Path::new(file).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let (mut labels, mut naive, mut answers, mut seconds) = (0, 0, 0, [0.0, 0.0]);
    let questions = data::read(Path::new(file), most)?;
    for question in &questions {
        let request = EvaluateRequest {
            question: question.question.clone(),
            passages: question.request_passages(),
            references: question.answers.clone(),
            annotators: vec![Annotator::ExactMatch],
            answer_tokens: Some(ANSWER_TOKENS),
            passage_tokens: Some(PASSAGE_TOKENS),
            ..EvaluateRequest::default()
        };
        let whole = BeliefRequest {
            question: question.question.clone(),
            passages: question.request_passages(),
            contexts: vec![(0..question.passages.len()).collect()],
            options: SampleOptions { max_tokens: Some(ANSWER_TOKENS), ..SampleOptions::greedy() },
            passage_tokens: Some(PASSAGE_TOKENS),
            ..BeliefRequest::default()
        };
        let labelled = engine.evaluate(&Call::local(), request).await?;
        let answered = engine.sample(&Call::local(), whole, None).await?;
        labels += labelled.usage.tokens;
        naive += labelled.usage.naive_tokens;
        answers += answered.usage.tokens;
        seconds[0] += labelled.usage.total_ms / 1e3;
        seconds[1] += answered.usage.total_ms / 1e3;
    }
    let count = questions.len() as f64;
    let what = |what: &str| format!("{name}, {} questions: {what}", questions.len());
    Line::new(&what("eRAG labels"), labels as f64 / count, "tokens a question")
        .ratio(answers as f64 / labels as f64)
        .print();
    Line::new(&what("eRAG labels, every prompt from its beginning"), naive as f64 / count, "tokens a question").print();
    Line::new(&what("answer from the whole list"), answers as f64 / count, "tokens a question").print();
    Line::new(&what("eRAG labels"), seconds[0] / count, "s a question").ratio(seconds[1] / seconds[0]).print();
    Line::new(&what("answer from the whole list"), seconds[1] / count, "s a question").print();
    Ok(())
}

/// Correlations, after the paper's Table 1: runs `rerankd evaluate` with every annotator and reads its summary.
pub fn correlations(file: &str, questions: usize, samples: usize) -> anyhow::Result<Value> {
    let name = Path::new(file).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/evaluation").join(&name);
    let status = Command::new(env!("CARGO_BIN_EXE_rerankd"))
        .args(["evaluate", file, "--annotators", "all", "--out"])
        .arg(&out)
        .args(["--limit", &questions.to_string(), "-n", &samples.to_string()])
        .args(["--max-tokens", &ANSWER_TOKENS.to_string(), "--max-passage-tokens", &PASSAGE_TOKENS.to_string()])
        .stdout(Stdio::null())
        .status()?;
    anyhow::ensure!(status.success(), "rerankd evaluate failed");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(out.join("summary.json"))?)?;
    let summary = &document["summary"];
    for row in rows(&summary["systems"][0]["metrics"]).iter().chain(&rows(&summary["systems"][0]["end_to_end"])) {
        let metric = row["metric"].as_str().unwrap_or("end to end");
        let what = format!("{name}: mean {metric} by {}", row["annotator"].as_str().unwrap_or_default());
        Line::new(&what, row["value"].as_f64().unwrap_or(f64::NAN), "").print();
    }
    for study in rows(&summary["correlations"]) {
        let text = |field: &str| study[field].as_str().unwrap_or_default().to_owned();
        if !TARGETS.contains(&text("target").as_str()) {
            continue;
        }
        for (field, sign) in [("kendall_tau_b", "tau-b"), ("spearman_rho", "rho")] {
            let Some(value) = study[field]["value"].as_f64() else { continue };
            let what = format!("{name}: {sign} of {} by {} with {}", text("metric"), text("annotator"), text("target"));
            Line::new(&what, value, &format!("n = {}", study["questions"])).print();
        }
    }
    let cost = &summary["cost"];
    let each = |field: &str| cost[field].as_f64().unwrap_or(f64::NAN) / questions as f64;
    let naive = each("naive_tokens") / each("tokens");
    Line::new(&format!("{name}: everything"), each("tokens"), "tokens a question").ratio(naive).print();
    Line::new(&format!("{name}: everything"), each("seconds"), "s a question").print();
    Ok(json!({ "file": name, "samples": samples, "summary": summary }))
}

fn rows(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// Writes the correlations to evaluation.md, one table per file and target, as in the paper's Table 1.
pub fn write(folder: &Path, evaluated: &[Value]) -> anyhow::Result<()> {
    let mut text = String::from(
        "# Which labels agree with the answer from the whole list\n\nMade by `make bench-evaluation`, after Table 1 of eRAG. Each \
         cell: Kendall's tau-b and Spearman's rho, over questions, of a metric over the labels in the row with the quality of \
         the answer from the whole list. – where one of the two is the same for every question.\n",
    );
    for one in evaluated {
        let studies = rows(&one["summary"]["correlations"]);
        let text_of = |study: &Value, field: &str| study[field].as_str().unwrap_or_default().to_owned();
        let distinct = |field: &str| {
            let mut names: Vec<String> = Vec::new();
            for name in studies.iter().map(|study| text_of(study, field)) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            names
        };
        let (metrics, annotators) = (distinct("metric"), distinct("annotator"));
        for target in TARGETS {
            let of: Vec<&Value> = studies.iter().filter(|study| study["target"] == target).collect();
            let Some(first) = of.first() else { continue };
            let title = format!(
                "{}, quality by {target}, n = {}",
                one["file"].as_str().unwrap_or_default(),
                first["questions"]
            );
            text.push_str(&format!(
                "\n## {title}\n\n| labels | {} |\n|---|{}\n",
                metrics.join(" | "),
                "---|".repeat(metrics.len())
            ));
            for annotator in &annotators {
                let cell = |metric: &String| {
                    let study =
                        of.iter().find(|study| study["annotator"] == **annotator && study["metric"] == **metric)?;
                    let value = |field: &str| study[field]["value"].as_f64();
                    Some(format!("{:.2}, {:.2}", value("kendall_tau_b")?, value("spearman_rho")?))
                };
                let cells: Vec<String> =
                    metrics.iter().map(|metric| cell(metric).unwrap_or_else(|| "–".into())).collect();
                if cells.iter().any(|cell| cell != "–") {
                    text.push_str(&format!("| {annotator} | {} |\n", cells.join(" | ")));
                }
            }
        }
    }
    std::fs::write(folder.join("evaluation.md"), text)?;
    Ok(())
}
