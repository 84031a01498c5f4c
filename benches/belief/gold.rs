//! Agreement of the measured utility of single passages with their gold labels, after the paper's Table 2 on fewer
//! questions.

use std::path::Path;

use engine::types::{ContextKind, SampleOptions, UtilityRequest};
use numeric::{mean, pearson};
use prefix_scheduler::call::Call;
use rag_metrics::lexical;
use rerankd::config::Config;

use super::report::Line;
use super::{data, sampling};

const FILES: [&str; 2] = [sampling::FILE, "qa/hotpotqa-200.jsonl.gz"];

const NAMES: [&str; 10] = [
    "DeltaSePer soft",
    "DeltaSePer hard",
    "exact match",
    "ROUGE-L",
    "token F1",
    "perplexity reduction",
    "predictive entropy reduction",
    "semantic entropy reduction",
    "semantic entropy reduction (count)",
    "semantic entropy reduction (count, corrected)",
];

/// Half of the questions from each file. A lexical measure is the mean over the samples, each against its best
/// reference, minus the context-free mean, like DeltaSePer. Perplexity is that of the mean log-likelihood.
pub async fn run(config: &Config, folder: &Path, most: usize, samples: usize) -> anyhow::Result<()> {
    let engine = super::engine(config).await?;
    let (mut marks, mut columns): (Vec<f64>, Vec<Vec<f64>>) = (Vec::new(), vec![Vec::new(); NAMES.len()]);
    let (mut tokens, mut seconds, mut pairs) = (0, 0.0, 0);
    for file in FILES {
        for question in data::read(&folder.join(file), most / 2)? {
            let references: Vec<String> = question.answers.iter().take(3).cloned().collect();
            let request = UtilityRequest {
                question: question.question.clone(),
                passages: question.request_passages(),
                references: references.clone(),
                each: true,
                sampling: SampleOptions { samples: Some(samples), max_tokens: Some(24), ..SampleOptions::default() },
                passage_tokens: Some(sampling::CAP),
                ..UtilityRequest::default()
            };
            let report = engine.utility.measure(&Call::local(), request, None).await?;
            let words = |answers: &[engine::types::Answer]| {
                let by = |score: fn(&str, &[String]) -> f64| {
                    mean(&answers.iter().map(|answer| score(&answer.text, &references)).collect::<Vec<_>>())
                };
                [by(lexical::exact_match), by(lexical::rouge_l), by(lexical::token_f1)]
            };
            let context_free = words(&report.context_free_answers);
            let perplexity = |entropy: f64| entropy.exp();
            let alone = perplexity(report.context_free.predictive_entropy.value);
            for utility in &report.utilities {
                let ContextKind::Passage(index) = utility.kind else { continue };
                marks.push(f64::from(u8::from(question.passages[index].supporting)));
                let with = words(&utility.answers);
                let values = [
                    utility.delta_soft.map_or(0.0, |delta| delta.value),
                    utility.delta_hard.map_or(0.0, |delta| delta.value),
                    with[0] - context_free[0],
                    with[1] - context_free[1],
                    with[2] - context_free[2],
                    alone - perplexity(utility.belief.predictive_entropy.value),
                    utility.predictive_entropy_reduction.value,
                    utility.semantic_entropy_reduction.value,
                    utility.semantic_entropy_count_reduction.value,
                    utility.semantic_entropy_corrected_reduction.map_or(0.0, |reduction| reduction.value),
                ];
                for (column, value) in columns.iter_mut().zip(values) {
                    column.push(value);
                }
            }
            tokens += report.usage.tokens;
            seconds += report.usage.total_ms / 1e3;
            pairs += report.judged_pairs;
            eprintln!("{}: {:.1} s, {} pairs", question.id, report.usage.total_ms / 1e3, report.judged_pairs);
        }
    }
    let place = format!("{} passages of {most} questions, {samples} samples", marks.len());
    for (name, column) in NAMES.iter().zip(&columns) {
        let r = pearson(column, &marks).unwrap_or(f64::NAN);
        Line::new(&format!("Pearson r with the gold mark, {place}: {name}"), r, "").print();
    }
    Line::new(&format!("{place}: tokens"), tokens as f64 / most as f64, "tokens a question").print();
    Line::new(&format!("{place}: seconds"), seconds / most as f64, "s a question").print();
    Line::new(&format!("{place}: judged pairs"), pairs as f64 / most as f64, "pairs a question").print();
    Ok(())
}
