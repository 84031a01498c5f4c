//! The numbers of an evaluation that a gate may bound.

use serde_json::{Map, Value};

use super::Plan;
use super::data::{Data, Query};
use super::gate::{Series, Subject};
use super::line::Line;
use crate::study::{Results, fingerprint};
use engine::types::Annotator;

/// A number of a system: a metric over the labels of an annotator, or without a metric a score of its answers.
type Number<'a> = (&'a str, &'static str, Option<String>);

fn numbers(plan: &Plan) -> Vec<Number<'_>> {
    let metrics: Vec<String> = plan.metrics.iter().map(ToString::to_string).collect();
    let over_labels =
        plan.annotators.iter().flat_map(|one| metrics.iter().map(|metric| (one.name(), Some(metric.clone()))));
    let answers = plan.answer_scores().into_iter().map(|name| (name, None));
    let own: Vec<(&str, Option<String>)> = over_labels.chain(answers).collect();
    let of = |system| own.iter().map(move |(name, metric)| (system, *name, metric.clone()));
    plan.systems.iter().flat_map(|system| of(system.as_str())).collect()
}

pub(super) fn subject(plan: &Plan, data: &Data, settings: Map<String, Value>) -> Subject {
    let numbers = numbers(plan);
    // The number of the verdict.
    let answers = numbers.iter().any(|(_, _, metric)| metric.is_none());
    let first = plan.metrics.first().filter(|_| !answers).map(ToString::to_string);
    let decides = |(_, _, metric): &&Number<'_>| *metric == first;
    let f1 = Annotator::TokenF1.name();
    let main = numbers.iter().filter(decides).find(|(_, name, _)| *name == f1).or_else(|| numbers.iter().find(decides));
    let main = main.map_or("", |(_, name, _)| *name);
    let series = |(system, name, metric): &Number<'_>| Series {
        system: (*system).to_owned(),
        metric: metric.as_ref().map_or_else(|| (*name).to_owned(), |metric| format!("{name}/{metric}")),
        bounded: true,
        main: *name == main && *metric == first,
    };
    let asked = |query: &Query| {
        let mut judged = query.judged.clone().unwrap_or_default();
        judged.sort_by(f64::total_cmp);
        (query.id.clone(), query.question.clone(), query.references.clone(), judged)
    };
    let provenance = plan.annotators.iter().find(|annotator| **annotator == Annotator::Provenance);
    let only = || plan.annotators.first().filter(|_| plan.annotators.len() == 1);
    Subject {
        questions: data.queries.iter().map(|query| query.id.clone()).collect(),
        fingerprint: fingerprint(&data.queries.iter().map(asked).collect::<Vec<_>>()),
        series: numbers.iter().map(series).collect(),
        annotator: provenance.or_else(only).map(|annotator| annotator.name()),
        settings,
    }
}

/// The values of each series of [`subject`], by question.
pub(super) fn values(plan: &Plan, results: &Results<Line>) -> Vec<Vec<Option<f64>>> {
    let of = |(system, name, metric): &Number<'_>| {
        let values = results.entries.iter().map(|entry| {
            let ranked = entry.value.as_ref()?.systems.get(*system)?;
            ranked.number(name, metric.as_deref())
        });
        values.collect()
    };
    numbers(plan).iter().map(of).collect()
}
