//! Evaluation of retrieval over many questions (eRAG), behind `rerankd evaluate`. [`compare`] compares ranking methods on
//! labelled lists, and [`ranking`] calibrates them.
//!
//! Each question's lists are reranked by every method, labelled by every annotator and scored ([`ask`]) by the driver of `study`.
//! The results ([`mod@line`]) are summarised ([`summary`]) and become a report ([`present`]).

mod ask;
mod cited;
pub mod compare;
pub mod data;
pub mod gate;
mod gated;
mod line;
pub mod methods;
mod plan;
mod present;
pub mod ranking;
mod summary;
mod verdict;

use std::path::Path;

use serde_json::{Value, json};

use self::data::{Data, Query};
use self::gate::{Gate, Judged};
use self::methods::Ranker;
pub use self::plan::Plan;
use self::summary::Summary;
use crate::study::backend::Backend;
use crate::study::{Event, Finished, Named, Study, StudyError, fingerprint, identity, journal, manifest, write};
use engine::types::MeasureOptions;
use engine::types::{Task, TaskKind};
use rag_metrics::rank::Metric;
use rag_metrics::resample::Statistics;

/// Settings of an evaluation.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Names of annotators, or `all`; empty for the default ones that the data allow.
    pub annotators: Vec<String>,
    /// Metrics over the labels; empty for the paper's.
    pub metrics: Vec<Metric>,
    /// Rankers of each list; at least one.
    pub rankers: Vec<Ranker>,
    /// Least label of a relevant passage.
    pub relevance_threshold: f64,
    /// True to also answer from whole contexts.
    pub end_to_end: bool,
    /// True to only answer from whole contexts: passages get no labels, rankings no metrics. Each system is asked by
    /// itself, so that its tokens and seconds are known.
    pub answers_only: bool,
    /// With `answers_only`: the first passages of each ranking that the prompt holds; `None` for all.
    pub top_n: Option<usize>,
    /// The generator's task.
    pub task: Task,
    /// Most tokens of an answer.
    pub answer_tokens: usize,
    /// Samples per prompt for the SePer annotators; `None` for the engine's default.
    pub samples: Option<usize>,
    /// Questions that are asked at once; at least 1.
    pub concurrency: usize,
    /// Seed of the samples.
    pub seed: u64,
    /// Most tokens of a passage.
    pub passage_tokens: Option<usize>,
    /// How sampled answers are measured.
    pub measure: MeasureOptions,
    /// Intervals and tests of the summary.
    pub statistics: Statistics,
}

/// Evaluates the questions that `folder` does not hold yet, then summarises all of them. With `restart` the results in the folder
/// are deleted. Also returns the content of summary.json, settings and summary, and the gate's judgement.
pub async fn run(
    plan: &Plan,
    data: &Data,
    backend: &Backend,
    (folder, restart): (&Path, bool),
    gate: &Gate,
    mut notify: impl FnMut(Event<'_>),
) -> Result<(Finished, Value, Judged), StudyError> {
    let mut models = manifest::models(backend, plan.asks_judge().then_some("this evaluation")).await?;
    if plan.arranges() {
        models.profiles = Some(identity::profiles(&backend.client).await?);
    }
    let checked = gate.check(gated::subject(plan, data, plan.manifest(&models)))?;
    let queries = data.queries.iter();
    let questions = queries.map(|one| Named { id: &one.id, fingerprint: fingerprint(one), question: one }).collect();
    let concurrency = plan.settings.concurrency;
    let study = Study { questions, concurrency, backend, models: &models, folder: Some(folder), restart };
    let ask = async |query: &Query| ask::evaluate(plan, backend, query).await;
    let results = study.run(|models| plan.manifest(models), ask, &mut notify).await?;
    let summary = Summary::new(plan, &results);
    let document = json!({ "settings": results.manifest, "summary": summary });
    write(&folder.join("summary.json"), &format!("{document:#}\n"))?;
    if plan.end_to_end && plan.settings.task.kind == TaskKind::LongAnswer {
        write(&folder.join(journal::ANSWERS), &cited::answers(&results.entries, &data.queries))?;
    }
    let judged = checked.judge(&gated::values(plan, &results));
    let failed = summary.failed.len();
    let report = present::report(plan, &summary, &results, &data.queries, &models)?;
    Ok((Finished::new(report, failed, Some(folder), "report")?, document, judged))
}
