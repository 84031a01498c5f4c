//! `rerankd citations`

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::connection::ConnectionArgs;
use super::{Failure, SettingsArgs, input, models, output};
use crate::app;
use engine::citations::{CitationRequest, check_citations};
use files::Warnings;
use files::cited::{self, CitingAnswer};
use numeric::mean;
use prefix_scheduler::call::Call;
use protocol::convert_citation::response;
use protocol::v1;
use rag_metrics::citation::OutOfRange;

/// Check the citations of long answers: citation recall and precision (ALCE) by the entailment model.
///
/// Each input line is a JSON object with "answer", which cites passages as `[1]` or `[1][2]`; "passages", a list of texts
/// or of objects with "text" and optional "title", in the order of their numbers; and optionally "question", "id" and
/// "system". `rerankd evaluate --task long-answer` writes such lines to answers.jsonl in its folder;
/// docs/reference/formats.md describes the format. Prints one JSON object with the statements of each answer, its line, and the means, also per
/// system. Refused answers are reported and left out; the exit code is then 2. An answer without citations counts 0 in
/// the mean precision, as in the authors' program. The generator is not loaded. An interrupted command prints nothing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rerankd citations answers.jsonl\n  \
                        rerankd citations evaluation/answers.jsonl\n  \
                        rerankd citations answers.jsonl --threshold 0.5 --server 127.0.0.1:50051")]
pub(super) struct CitationsArgs {
    /// Answers, one JSON object per line; - for standard input.
    #[arg(default_value = "-", value_name = "FILE")]
    input: PathBuf,
    /// Least probability of entailment at which passages support a statement; by default entailment must be the likeliest
    /// verdict.
    #[arg(long, value_name = "PROBABILITY", value_parser = super::probability)]
    threshold: Option<f64>,
    /// Leave the citations of a statement that cites a number without a passage out of the precision, as the authors' program
    /// does; by default they are imprecise.
    #[arg(long)]
    skip_out_of_range: bool,
    /// Address of a server; by default the entailment model is loaded in this process.
    #[arg(long, value_name = "ADDRESS")]
    server: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

impl CitationsArgs {
    fn request(&self, one: CitingAnswer) -> (Source, CitationRequest) {
        let request = CitationRequest {
            answer: one.answer,
            passages: one.passages,
            question: one.question,
            threshold: self.threshold,
            out_of_range: if self.skip_out_of_range { OutOfRange::LeftOut } else { OutOfRange::Imprecise },
        };
        (Source { line: one.line, id: one.id, system: one.system }, request)
    }
}

/// Origin of an answer.
struct Source {
    line: usize,
    id: Option<Value>,
    system: Option<String>,
}

type Checked = (Source, v1::CheckCitationsResponse);

/// The means over some answers, with their number.
fn means<'a>(answers: impl Iterator<Item = &'a Checked> + Clone) -> Value {
    let all = |measure: fn(&v1::CheckCitationsResponse) -> f64| {
        mean(&answers.clone().map(|(_, answer)| measure(answer)).collect::<Vec<_>>())
    };
    json!({
        "recall": all(|answer| answer.recall), "precision": all(|answer| answer.precision.unwrap_or(0.0)),
        "count": answers.count(),
    })
}

/// The means of each system; null if no answer names one.
fn systems(answers: &[Checked]) -> Value {
    let names: BTreeSet<&str> = answers.iter().filter_map(|(source, _)| source.system.as_deref()).collect();
    let of = |name| means(answers.iter().filter(|(source, _)| source.system.as_deref() == Some(name)));
    let means: BTreeMap<&str, Value> = names.into_iter().map(|name| (name, of(name))).collect();
    if means.is_empty() { Value::Null } else { json!(means) }
}

pub(super) async fn run(args: CitationsArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let config = settings.load(Vec::new())?;
    crate::telemetry::install(&config, true);
    let (name, mut warnings) = (input::name(&args.input), Warnings::default());
    let given = cited::answers(&args.input, &mut warnings)?;
    output::warn(&warnings);
    let requests: Vec<(Source, CitationRequest)> = given.into_iter().map(|one| args.request(one)).collect();
    let client = args.server.as_ref().map(|address| args.connection.client(address, &config)).transpose()?;
    if client.is_none() {
        models::fetch_entailment(&config).await?;
    }
    let judge = if client.is_none() { app::judge(&config)? } else { None };
    let bar = output::progress(requests.len(), "answers");
    let (mut answers, mut refused, mut ended) = (Vec::new(), 0, Ok::<(), Failure>(()));
    for (source, request) in requests {
        let checked = match (&client, &judge) {
            (Some(client), _) => {
                let checked = client.check_citations(&request).await;
                checked.map_err(|error| (error.is_input(), Failure::from(error)))
            }
            // Services in this process would need a generator.
            (None, Some(judge)) => {
                let checked = check_citations(&Call::local(), &config.limits, request, judge).await;
                checked.map(response).map_err(|error| (error.is_input(), Failure::from(error)))
            }
            (None, None) => return Err(no_model()),
        };
        bar.inc(1);
        match checked {
            Ok(answer) => answers.push((source, answer)),
            // Other answers may have verdicts. Without a model none has.
            Err((true, problem)) => {
                refused += 1;
                bar.suspend(|| output::complain(&format!("{name}:{}: {problem}", source.line)));
            }
            Err((false, error)) => {
                ended = Err(error);
                break;
            }
        }
    }
    bar.finish_and_clear();
    if !answers.is_empty() {
        let of_all = means(answers.iter());
        output::json(&json!({
            "recall": of_all["recall"], "precision": of_all["precision"], "systems": systems(&answers),
            "answers": answers.iter().map(document).collect::<Vec<_>>(),
        }))?;
    }
    ended?;
    match refused {
        0 => Ok(()),
        _ => Err(Failure::Input(format!("{name}: {refused} of {} answers were refused", refused + answers.len()))),
    }
}

fn no_model() -> Failure {
    Failure::Input("no entailment model is configured: set entailment.model".to_owned())
}

/// Converts a response to JSON with the field names of the protocol.
fn document((source, answer): &Checked) -> Value {
    let citation = |one: &v1::CheckedCitation| json!({ "number": one.number, "exists": one.exists, "precise": one.precise, "entailment": one.entailment });
    let statement = |one: &v1::CheckedStatement| {
        json!({
            "text": one.text, "supported": one.supported, "entailment": one.entailment,
            "citations": one.citations.iter().map(citation).collect::<Vec<_>>(),
        })
    };
    json!({
        "line": source.line, "id": source.id, "system": source.system, "recall": answer.recall, "precision": answer.precision,
        "citations": answer.citations,
        "statements": answer.statements.iter().map(statement).collect::<Vec<_>>(),
        "judged_pairs": answer.judged_pairs, "warnings": answer.warnings, "model": answer.model,
        "model_sha256": answer.model_sha256,
    })
}
