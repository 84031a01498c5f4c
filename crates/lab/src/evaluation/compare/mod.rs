//! Comparison of ranking methods on labelled lists, behind `rerankd compare`: which method is worth its milliseconds?
//!
//! Every method ranks every list, one request after the other ([`ask`]); several lists may be ranked at once. The
//! driver of `study` stores the rankings. At the end the measures are computed from the rankings and the labels
//! ([`summary`]), and become a verdict ([`verdict`]) and a report ([`present`]).

mod ask;
mod gains;
mod gated;
mod notes;
mod present;
mod prompts;
mod quality;
mod row;
mod rows;
mod scorer;
mod settings;
mod summary;
mod verdict;

use std::path::Path;

use tokio::sync::OnceCell;

pub use self::settings::{ALL, BM25, GIVEN, Settings, find};
use self::summary::Summary;
use super::gate::{Gate, Judged};
use crate::study::backend::Backend;
use crate::study::data::{Data, Question};
use crate::study::{Event, Finished, Study, StudyError, distinct, manifest};

/// Ranks the lists that `folder` does not hold yet, then measures all of them. With `restart` the results in the folder are
/// deleted. Also returns the gate's judgement on all lists.
pub async fn run(
    settings: &Settings,
    data: &Data,
    backend: &Backend,
    (folder, restart): (Option<&Path>, bool),
    gate: &Gate,
    mut notify: impl FnMut(Event<'_>),
) -> Result<(Finished, Judged), StudyError> {
    if !settings.frames.is_empty() {
        // Prompt formats are compared without calibrations: a calibration belongs to one format, and its fusion weight
        // would change the rows of that format only.
        backend.without_calibrations()?;
    }
    let judged = settings.methods.iter().find(|method| method.asks_judge());
    let models = manifest::models(backend, judged.map(|method| method.name())).await?;
    settings.check_frames(&models, backend)?;
    settings.check_scorer(&models)?;
    let settings = settings.of_models(&models)?;
    let beside = if settings.beside { ask::answering(backend, &models).await } else { Vec::new() };
    let methods = distinct(settings.methods.iter().copied().chain(beside));
    let settings = &Settings { methods, ..settings };
    let checked = gate.check(gated::subject(settings, data, &models))?;
    let questions = data.named(Question::fingerprint);
    let study = Study { questions, concurrency: settings.concurrency, backend, models: &models, folder, restart };
    let warm = OnceCell::new();
    let ask = async |question: &Question| {
        if settings.latency_budget_ms.is_some() {
            warm.get_or_try_init(|| ask::warm_up(settings, backend, &data.questions)).await?;
        }
        Ok(ask::rank(settings, backend, question).await?.into())
    };
    let results = study.run(|models| settings.manifest(models), ask, &mut notify).await?;
    let summary = Summary::new(settings, data, &results.entries);
    let judged = checked.judge(&gated::values(summary.groups.first().map_or(&[][..], |group| &group.rows)));
    let report = present::report(settings, &summary, results.manifest, &models)?;
    Ok((Finished::new(report, summary.failed.len(), folder, "compare")?, judged))
}
