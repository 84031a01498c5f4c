//! `rerankd utility`

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use super::connection::ConnectionArgs;
use super::output::FormatArgs;
use super::task::TaskArgs;
use super::{Failure, SettingsArgs, backend, input, measure, models, output, task};
use crate::telemetry;
use engine::types::{SampleOptions, UtilityRequest};
use files::{Empty, Warnings};
use numeric::sampling::Sampling;
use protocol::v1;

/// Measure how far passages move belief toward the references.
///
/// Each input line is a JSON object with "question", "passages" (objects with "text" and optional "id" and "title") and
/// optional "references"; docs/reference/formats.md lists other accepted names. Prints a table per question, or with
/// --format json one JSON object per line. A question that cannot be measured, such as one without passages, is reported and skipped; the
/// command then exits with status 1.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rerankd utility questions.jsonl --each --samples --score-references\n  \
                        rerankd utility claims.jsonl --task fact-verification\n  \
                        rerankd utility texts.jsonl --task classification --labels sports,politics,science")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command are independent of each other")]
pub(super) struct UtilityArgs {
    /// Questions, one JSON object per line; - for standard input.
    #[arg(default_value = "-", value_name = "FILE")]
    questions: PathBuf,
    /// Address of a server; by default the models are loaded in this process.
    #[arg(long, value_name = "ADDRESS")]
    server: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Questions to measure at once, at most 256. Speeds up a GPU or several replicas, but not a CPU. Output is in input
    /// order. Numbers are then equal to rounding only, and samples may differ.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = super::at_once)]
    concurrency: usize,
    /// Also measure each passage on its own.
    #[arg(long)]
    each: bool,
    /// Also measure every growing prefix of the list.
    #[arg(long)]
    prefixes: bool,
    /// Also measure the list with each passage left out.
    #[arg(long)]
    leave_one_out: bool,
    #[command(flatten)]
    task: TaskArgs,
    /// Also print log P of each reference as the answer, without and with passages: a measure without sampling error.
    #[arg(long)]
    score_references: bool,
    /// Print the sampled answers, grouped by cluster.
    #[arg(long)]
    samples: bool,
    /// Samples per prompt; 10 by default.
    #[arg(short = 'n', long = "count", value_name = "SAMPLES", value_parser = super::count)]
    count: Option<usize>,
    /// Most tokens per sample; by default 64, for dialogue 128, for long answers 300.
    #[arg(long, value_name = "TOKENS", value_parser = super::count)]
    max_tokens: Option<usize>,
    /// Sampling temperature; 0 always selects the likeliest token.
    #[arg(long, default_value_t = 1.0)]
    temperature: f64,
    /// Seed of the samples.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Most tokens per passage.
    #[arg(long, visible_alias = "passage-tokens", value_name = "TOKENS", value_parser = super::count)]
    max_passage_tokens: Option<usize>,
    /// Most tokens to evaluate per question; `limits.tokens_per_request` by default.
    #[arg(long, value_name = "TOKENS", value_parser = super::count)]
    token_budget: Option<usize>,
    #[command(flatten)]
    measure: measure::OptionArgs,
    #[command(flatten)]
    format: FormatArgs,
}

impl UtilityArgs {
    fn request(&self, question: &input::Question) -> UtilityRequest {
        UtilityRequest {
            question: question.question.clone(),
            passages: question.passages.clone(),
            references: question.answers.clone(),
            list: true,
            each: self.each,
            prefixes: self.prefixes,
            leave_one_out: self.leave_one_out,
            subsets: Vec::new(),
            score_references: self.score_references,
            task: self.task.task(),
            sampling: SampleOptions {
                samples: self.count,
                max_tokens: self.max_tokens,
                sampling: Sampling { temperature: self.temperature, ..Sampling::default() },
                stop: None,
                seed: self.seed,
            },
            measure: self.measure.options(),
            passage_tokens: self.max_passage_tokens,
            truncate: None,
            token_budget: self.token_budget,
            pair_budget: None,
        }
    }
}

/// The questions that have passages, and the number of the others, which are reported.
fn usable_questions(path: &Path) -> Result<(Vec<input::Question>, usize), Failure> {
    let mut warnings = Warnings::default();
    // A passage without text cannot be measured.
    let mut questions = input::questions(path, Empty::LeftOut, &mut warnings)?;
    output::warn(&warnings);
    for question in &mut questions {
        question.fault = question.fault.take().or(question.answers_fault.take());
    }
    let (all, name) = (questions.len(), input::name(path));
    if let Some((line, fault)) = input::without_passages(&questions) {
        return Err(Failure::Input(format!("{name}:{line}: {fault}")));
    }
    questions.retain(|question| {
        if let Some(fault) = &question.fault {
            output::complain(&format!("{name}:{}: {fault}", question.line));
        }
        question.fault.is_none()
    });
    let faults = all - questions.len();
    Ok((questions, faults))
}

pub(super) async fn run(args: UtilityArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let config = settings.load(Vec::new())?;
    telemetry::install(&config, true);
    let name = input::name(&args.questions);
    let (questions, faults) = usable_questions(&args.questions)?;
    let all = questions.len() + faults;
    // Checked before the models are loaded: a fault would recur with every question.
    args.request(&questions[0]).check_settings()?;
    if args.server.is_none() {
        models::fetch_entailment(&config).await?;
    }
    let config = backend::for_measurements(&config);
    let client = backend::open(args.server.as_deref(), &args.connection, &config).await?.patient();
    let bar = output::progress(questions.len(), "questions");
    let (started, mut tokens, mut failed) = (Instant::now(), 0, faults);
    let answers = stream::iter(&questions)
        .map(async |question| (question, client.utility(&args.request(question), args.samples).await));
    let mut answers = std::pin::pin!(answers.buffered(args.concurrency));
    while let Some((question, answer)) = answers.next().await {
        match answer {
            Ok(answer) => {
                tokens += answer.usage.as_ref().map_or(0, |usage| usage.tokens);
                if !bar.suspend(|| show(question, &answer, args.format))? {
                    break;
                }
            }
            Err(error) if error.is_input() => {
                failed += 1;
                bar.suspend(|| output::complain(&format!("{name}:{}: {error}", question.line)));
            }
            Err(error) => {
                bar.finish_and_clear();
                output::complain(&format!("{} of {} questions were done", bar.position(), questions.len()));
                return Err(error.into());
            }
        }
        bar.inc(1);
        let rate = tokens / started.elapsed().as_secs().max(1);
        bar.set_message(format!("{rate} tokens/s"));
    }
    bar.finish_and_clear();
    if failed > 0 {
        return Err(Failure::Other(anyhow::anyhow!("{failed} of {all} questions were not measured")));
    }
    Ok(())
}

/// Returns false if the reader has closed the pipe.
fn show(question: &input::Question, answer: &v1::MeasureUtilityResponse, format: FormatArgs) -> Result<bool, Failure> {
    let text = if format.is_json() { format!("{}\n", line(question, answer)) } else { table(question, answer) };
    output::stream(&text)
}

fn number(measured: Option<&v1::Measured>) -> String {
    measured.map_or_else(
        || "–".to_owned(),
        |measured| match measured.standard_error {
            Some(error) => format!("{:.3} ± {error:.3}", measured.value),
            None => format!("{:.3}", measured.value),
        },
    )
}

fn label(question: &input::Question, utility: &v1::Utility) -> String {
    let number = utility.number as usize;
    let id = || question.passages.get(number).map_or_else(|| number.to_string(), |passage| passage.id.clone());
    match utility.kind() {
        v1::ContextKind::List => "whole list".to_owned(),
        v1::ContextKind::Passage => format!("passage {}", id()),
        v1::ContextKind::Prefix => format!("first {number}"),
        v1::ContextKind::Without => format!("all but {}", id()),
        v1::ContextKind::Subset | v1::ContextKind::Unspecified => format!("subset {number}"),
    }
}

fn table(question: &input::Question, answer: &v1::MeasureUtilityResponse) -> String {
    let mut table = output::table(&[
        "context",
        "SePer soft",
        "SePer hard",
        "Δ soft",
        "Δ hard",
        "semantic entropy",
        "reduction",
        "corrected",
        "clusters",
    ]);
    let row = |name: String, belief: &v1::Belief, changes: [Option<&v1::Measured>; 3]| {
        [
            name,
            number(belief.seper_soft.as_ref()),
            number(belief.seper_hard.as_ref()),
            number(changes[0]),
            number(changes[1]),
            number(belief.semantic_entropy.as_ref()),
            number(changes[2]),
            number(belief.semantic_entropy_corrected.as_ref()),
            belief.founders.len().to_string(),
        ]
    };
    let mut beliefs = Vec::new();
    if let Some(context_free) = &answer.without_context {
        table.add_row(row("no context".to_owned(), context_free, [None; 3]));
        beliefs.push(("no context".to_owned(), context_free));
    }
    for utility in &answer.utilities {
        let Some(belief) = &utility.belief else { continue };
        let changes = [
            utility.delta_seper_soft.as_ref(),
            utility.delta_seper_hard.as_ref(),
            utility.semantic_entropy_reduction.as_ref(),
        ];
        table.add_row(row(label(question, utility), belief, changes));
        beliefs.push((label(question, utility), belief));
    }
    let mut text = format!("\n{}\n{}", question.question, output::shown(table));
    text.push_str(&labels("no context", &answer.label_probabilities_without_context));
    for utility in &answer.utilities {
        text.push_str(&labels(&label(question, utility), &utility.label_probabilities));
    }
    text.push_str(&references(question, "no context", &answer.reference_log_likelihoods_without_context));
    for utility in &answer.utilities {
        text.push_str(&references(question, &label(question, utility), &utility.reference_log_likelihoods));
    }
    for (name, belief) in beliefs.iter().filter(|(_, belief)| !belief.answers.is_empty()) {
        text.push_str(&format!("{name}\n{}", clusters(belief)));
    }
    for warning in &answer.warnings {
        text.push_str(&format!("note: {warning}\n"));
    }
    text
}

/// The labels of a context with their probabilities, on one line; nothing for tasks without labels.
fn labels(context: &str, labels: &[v1::LabelProbability]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let shown: Vec<String> = labels.iter().map(|one| format!("{} {:.3}", one.label, one.probability)).collect();
    format!("{context}: {}\n", shown.join(", "))
}

/// The references with their log-probabilities in a context, on one line; nothing if they were not scored.
fn references(question: &input::Question, context: &str, scores: &[f64]) -> String {
    if scores.is_empty() {
        return String::new();
    }
    let one = |(reference, score): (&String, &f64)| format!("log P({reference}) = {score:.2}");
    let shown: Vec<String> = question.answers.iter().zip(scores).map(one).collect();
    format!("{context}: {}\n", shown.join(", "))
}

/// Lists the answers of each cluster with their weights.
fn clusters(belief: &v1::Belief) -> String {
    let mut text = String::new();
    for cluster in 0..belief.founders.len() {
        let members =
            || (0..belief.answers.len()).filter(|&i| belief.cluster_of.get(i).is_some_and(|c| *c as usize == cluster));
        let mass: f64 = members().filter_map(|i| belief.weights.get(i)).sum();
        text.push_str(&format!("  cluster {}, weight {mass:.3}\n", cluster + 1));
        for i in members() {
            let answer = &belief.answers[i];
            let shown = if answer.text.is_empty() { "(empty)" } else { &answer.text };
            text.push_str(&format!("    {:.3}  {shown}\n", belief.weights.get(i).copied().unwrap_or(0.0)));
        }
    }
    text
}

fn measured(measured: Option<&v1::Measured>) -> Value {
    measured.map_or(Value::Null, |m| json!({ "value": m.value, "standard_error": m.standard_error }))
}

/// Converts the measures of a context, without its answers, to JSON with the field names of the protocol.
pub(super) fn measures(belief: &v1::Belief) -> Value {
    json!({
        "seper_soft": measured(belief.seper_soft.as_ref()), "seper_hard": measured(belief.seper_hard.as_ref()),
        "semantic_entropy": measured(belief.semantic_entropy.as_ref()),
        "semantic_entropy_count": measured(belief.semantic_entropy_count.as_ref()),
        "semantic_entropy_corrected": measured(belief.semantic_entropy_corrected.as_ref()),
        "predictive_entropy": measured(belief.predictive_entropy.as_ref()),
        "perplexity": measured(belief.perplexity.as_ref()),
        "lexical_similarity": measured(belief.lexical_similarity.as_ref()), "cluster_of": belief.cluster_of,
        "founders": belief.founders, "weights": belief.weights, "empty_answers": belief.empty_answers,
    })
}

/// Converts a response to JSON with the field names of the protocol.
fn line(question: &input::Question, answer: &v1::MeasureUtilityResponse) -> Value {
    let belief = |belief: &v1::Belief| {
        let answer = |answer: &v1::Answer| {
            json!({
                "text": answer.text, "log_likelihood": answer.log_likelihood,
                "tokens": answer.token_log_probabilities.len(),
                "finish_reason": answer.finish_reason().as_str_name(),
            })
        };
        let mut all = measures(belief);
        all["answers"] = belief.answers.iter().map(answer).collect();
        all
    };
    let measured = |value: &Option<v1::Measured>| measured(value.as_ref());
    let utilities: Vec<Value> = answer
        .utilities
        .iter()
        .map(|utility| {
            json!({
                "kind": utility.kind().as_str_name(), "number": utility.number, "indices": utility.indices,
                "belief": utility.belief.as_ref().map(belief),
                "delta_seper_soft": measured(&utility.delta_seper_soft),
                "delta_seper_hard": measured(&utility.delta_seper_hard),
                "semantic_entropy_reduction": measured(&utility.semantic_entropy_reduction),
                "semantic_entropy_count_reduction": measured(&utility.semantic_entropy_count_reduction),
                "semantic_entropy_corrected_reduction": measured(&utility.semantic_entropy_corrected_reduction),
                "predictive_entropy_reduction": measured(&utility.predictive_entropy_reduction),
                "perplexity_reduction": measured(&utility.perplexity_reduction),
                "lexical_similarity_increase": measured(&utility.lexical_similarity_increase),
                "reference_log_likelihoods": utility.reference_log_likelihoods,
                "label_probabilities": task::probabilities(&utility.label_probabilities),
            })
        })
        .collect();
    let usage = answer.usage.as_ref().map(|usage| {
        json!({ "tokens": usage.tokens, "naive_tokens": usage.naive_tokens, "steps": usage.steps, "total_ms": usage.total_ms })
    });
    json!({
        "question": question.question, "line": question.line, "task": answer.task().as_str_name(),
        "reference_log_likelihoods_without_context": answer.reference_log_likelihoods_without_context,
        "label_probabilities_without_context": task::probabilities(&answer.label_probabilities_without_context),
        "without_context": answer.without_context.as_ref().map(belief), "utilities": utilities, "usage": usage,
        "judged_pairs": answer.judged_pairs, "warnings": answer.warnings, "model": answer.model,
        "model_sha256": answer.model_sha256, "adapter": answer.adapter.as_ref().map(output::adapter),
    })
}
