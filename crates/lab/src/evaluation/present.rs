//! The report of an evaluation.

use serde_json::Value;

use super::data::Query;
use super::line::Line;
use super::summary::{Bias, COSTS, Coefficient, Comparison, ContextOrder, Histogram, Row, Study, Summary, System};
use super::{Plan, verdict};
use crate::study::chart::{self, Axes, Chart, Series};
use crate::study::identity::ModelIdentity;
use crate::study::mean::NONE;
use crate::study::report::{Report, Section, Table, generator_note, intervals_note, machine, model, passages_note};
use crate::study::{Results, StudyError, warned};
use numeric::real;
use rag_metrics::resample::format_p_value;

/// Questions shown with each comparison.
const SHOWN: usize = 20;

pub(super) fn report(
    plan: &Plan,
    summary: &Summary,
    results: &Results<Line>,
    queries: &[Query],
    models: &ModelIdentity,
) -> Result<Report, StudyError> {
    let mut report = Report {
        title: format!("Retrieval evaluation: {}", plan.systems.join(", ")),
        verdict: verdict::of(summary, &plan.settings.statistics),
        text: vec![overview(plan, summary)],
        model: model(models, None, true),
        settings: results.manifest.clone(),
        ..Report::default()
    };
    report.notes.push(generator_note(models, &format!("; {}", passages_note(plan.settings.passage_tokens))));
    report.notes.extend(intervals_note(&plan.settings.statistics));
    report.notes.push(format!("Machine: {}.", machine()));
    let lines: Vec<(&Query, &Line)> = queries
        .iter()
        .zip(&results.entries)
        .filter_map(|(query, entry)| Some((query, entry.value.as_ref()?)))
        .collect();
    let sections = [
        metrics(&mut report, summary),
        answers(&mut report, plan, summary),
        comparisons(&mut report, plan, summary, &lines),
        section("Utility by rank", ranks(summary)?),
        section("DeltaSePer of single passages", deltas(summary)?),
        section("Position bias", bias(summary)?),
        correlations(&mut report, summary),
    ];
    report.sections.extend(sections.into_iter().filter(|one| !(one.charts.is_empty() && one.tables.is_empty())));
    report.sections.extend(warned::section(&summary.warned));
    report.sections.extend(Section::refused("Failed questions", &summary.failed));
    Ok(report)
}

fn section(title: &str, charts: Vec<Chart>) -> Section {
    Section { title: title.to_owned(), charts, ..Section::default() }
}

fn overview(plan: &Plan, summary: &Summary) -> String {
    let (cost, many) = (&summary.cost, plan.settings.concurrency);
    let count = |number: u64| real(usize::try_from(number).unwrap_or(usize::MAX));
    let each = count(cost.tokens) / real(summary.evaluated.max(1));
    let shared = count(cost.naive_tokens) / count(cost.tokens).max(1.0);
    let failed = if summary.failed.is_empty() { String::new() } else { format!(", {} failed", summary.failed.len()) };
    let mut text = format!(
        "{} of {} questions evaluated{failed}. The generator evaluated or had cached {} tokens, {each:.0} per question; without \
         sharing prompts it would have been {}, {shared:.1} times as many.",
        summary.evaluated, summary.questions, cost.tokens, cost.naive_tokens
    );
    match summary.rerank_tokens() {
        0 => {}
        tokens => text.push_str(&format!(" The rankings took {tokens} tokens more.")),
    }
    if cost.judged_pairs > 0 {
        text.push_str(&format!(" The entailment model judged {} pairs.", cost.judged_pairs));
    }
    if cost.timed > 0 {
        let at_once = if many > 1 { format!(", {many} questions at once") } else { String::new() };
        let seconds = (cost.seconds, cost.seconds / real(cost.timed));
        text.push_str(&format!(" {:.0} seconds, {:.2} per question{at_once}.", seconds.0, seconds.1));
    }
    text
}

/// Shown in place of a metric.
fn without_metric(name: &str) -> &'static str {
    if COSTS.contains(&name) { "per question" } else { "end to end" }
}

/// A table with a row per number and a column per system.
fn numbers(report: &mut Report, caption: &str, systems: &[System], pick: fn(&System) -> &[Row]) -> Table {
    let mut rows = Vec::new();
    for (at, first) in systems.first().map_or(&[][..], pick).iter().enumerate() {
        let metric = first.metric.as_deref().unwrap_or(without_metric(first.annotator));
        let mut row = vec![first.annotator.to_owned(), metric.to_owned()];
        for system in systems {
            let name = format!("{} {metric} by {}", system.name, first.annotator);
            row.push(report.number(name, "", pick(system)[at].mean));
        }
        row.push(first.mean.questions.to_string());
        rows.push(row);
    }
    let names = systems.iter().map(|system| system.name.as_str());
    Table::new(caption, ["labels", "metric"].into_iter().chain(names).chain(["questions"]), rows)
}

fn metrics(report: &mut Report, summary: &Summary) -> Section {
    let text = "Means over questions with bootstrap intervals. A label is the quality of the generator's answer from the passage alone. \
                P is the mean of the labels, Success their maximum, and nDCG takes them as gains; the other metrics count the passages \
                whose label reaches the threshold. With provenance the threshold is for its labels alone; those of the others then \
                count from one half on.";
    let mut section =
        Section { title: "Metrics over the labels".to_owned(), text: vec![text.to_owned()], ..Section::default() };
    section.tables.push(numbers(report, "", &summary.systems, |system| &system.metrics));
    section.tables.retain(|table| !table.rows.is_empty());
    section
}

/// The answers from whole contexts.
fn answers(report: &mut Report, plan: &Plan, summary: &Summary) -> Section {
    let mut section = Section { title: "End-to-end answers".to_owned(), ..Section::default() };
    if summary.systems.iter().any(|system| !system.end_to_end.is_empty()) {
        let settings = &plan.settings;
        let list =
            settings.top_n.map_or("the whole list".to_owned(), |top| format!("the first {top} of the ranked list"));
        let more = if settings.answers_only { "" } else { " Metrics are over the ranking." };
        section.text.push(format!(
            "The generator reads {list} in its context order: the order of the passages in the prompt, as in the rerank \
             response.{more}"
        ));
        section.tables.push(numbers(report, "", &summary.systems, |system| &system.end_to_end));
        if settings.answers_only {
            let waits = if settings.concurrency > 1 { ", and include waiting for other questions" } else { "" };
            section.text.push(format!(
                "Tokens are the generator's for the ranking and the answer, including cached ones. Seconds are from the start of the \
                 ranking to the end of the answer{waits}. Later systems may find parts of their prompts in the cache. Samples and \
                 checked citations count in neither."
            ));
            section.tables.push(numbers(report, "Cost", &summary.systems, |system| &system.cost));
        }
        let contexts = summary.systems.iter().flat_map(|system| system.contexts.iter().map(move |one| (system, one)));
        let row = |(system, one): (&System, &ContextOrder)| {
            vec![system.name.clone(), one.order.clone(), one.questions.to_string(), one.differing.to_string()]
        };
        let head = ["system", "context order", "questions", "not in the order of the ranking"];
        section.tables.push(Table::new("Context orders", head, contexts.map(row).collect()));
    }
    section
}

fn comparisons(report: &mut Report, plan: &Plan, summary: &Summary, lines: &[(&Query, &Line)]) -> Section {
    let mut section = Section { title: "Comparisons".to_owned(), ..Section::default() };
    if let Some(first) = summary.comparisons.first() {
        section.text.push(format!(
            "Second system less first on the same questions, with {} p-values that are not corrected for multiple comparisons.",
            first.test
        ));
    }
    for comparison in &summary.comparisons {
        let both = format!("{} against {}", comparison.system, comparison.against);
        let (mut rows, mut alike) = (Vec::new(), 0);
        for one in &comparison.differences {
            let metric = one.metric.as_deref().unwrap_or(without_metric(one.annotator));
            let gain = &one.gain;
            report.number(format!("{both} {metric} by {}", one.annotator), "", gain.mean());
            if gain.wins + gain.losses == 0 {
                alike += 1;
                continue;
            }
            let counts = [gain.wins, gain.ties, gain.losses].map(|count| count.to_string());
            let row = [one.annotator.to_owned(), metric.to_owned(), gain.cell(), format_p_value(gain.p_value)];
            rows.push(row.into_iter().chain(counts).collect());
        }
        let more = if alike > 0 { format!("; {alike} numbers are equal on every question") } else { String::new() };
        let head = ["labels", "metric", "difference", "p", "wins", "ties", "losses"];
        section.tables.push(Table::new(format!("{both}{more}"), head, rows));
        section.tables.extend(by_question(plan, comparison, lines));
    }
    section
}

/// The questions on which two systems differ most: by the end-to-end answer if answers were scored, else by the first
/// metric, under the annotator with the most differing questions.
fn by_question(plan: &Plan, comparison: &Comparison, lines: &[(&Query, &Line)]) -> Option<Table> {
    let metric = plan.metrics.first().map(ToString::to_string).unwrap_or_default();
    let value = |line: &Line, system: &str, annotator: &str| {
        let ranked = line.systems.get(system)?;
        let over_labels = || ranked.metrics.get(annotator)?.get(&metric).copied().flatten();
        if plan.end_to_end { ranked.end_to_end.get(annotator).copied() } else { over_labels() }
    };
    let differing = |annotator: &'static str| -> Vec<(f64, f64, &Query)> {
        let both = lines.iter().filter_map(|&(query, line)| {
            let [first, second] = [&comparison.against, &comparison.system].map(|name| value(line, name, annotator));
            Some((first?, second?, query))
        });
        both.filter(|(first, second, _)| (second - first).abs() > 1e-12).collect()
    };
    let names = plan.annotators.iter().map(|annotator| annotator.name());
    // `rev` makes it the first of several annotators with the same number of questions.
    let (annotator, mut rows) = names.map(|name| (name, differing(name))).rev().max_by_key(|(_, rows)| rows.len())?;
    rows.sort_by(|one, other| (other.1 - other.0).abs().total_cmp(&(one.1 - one.0).abs()));
    let what = if plan.end_to_end { "the end-to-end answer" } else { &metric };
    let caption = format!("Question by question: {what} by {annotator} differs on {}", rows.len());
    let row = |(first, second, query): &(f64, f64, &Query)| {
        let name = format!("{} ({})", query.question, query.id);
        vec![name, format!("{first:.3}"), format!("{second:.3}"), format!("{:+.3}", second - first)]
    };
    let head = ["question", &comparison.against, &comparison.system, "difference"];
    let shown: Vec<Vec<String>> = rows.iter().take(SHOWN).map(row).collect();
    (!shown.is_empty()).then(|| Table::new(caption, head, shown).folded())
}

fn ranks(summary: &Summary) -> Result<Vec<Chart>, StudyError> {
    if summary.utility_by_rank.is_empty() {
        return Ok(Vec::new());
    }
    let chart = |system: &System| {
        let curves = summary.utility_by_rank.iter().filter(|curve| curve.system == system.name);
        let series: Vec<Series> = curves.clone().map(|curve| Series::ranked(curve.annotator, &curve.by_rank)).collect();
        let caption = format!("Mean label by rank, system {}", system.name);
        let mut chart = chart::lines(Axes::new(caption, "rank", "mean label"), &series)?;
        chart.numbers.head.push("questions".to_owned());
        let counts = curves.max_by_key(|curve| curve.questions.len()).map_or(&[][..], |curve| &curve.questions);
        chart.numbers.rows.iter_mut().zip(counts).for_each(|(row, count)| row.push(count.to_string()));
        Ok(chart)
    };
    summary.systems.iter().map(chart).collect()
}

fn deltas(summary: &Summary) -> Result<Vec<Chart>, StudyError> {
    let chart = |one: &Histogram| {
        let caption = format!("Passages by {}, mean {:.3}", one.annotator, one.mean);
        chart::bars(Axes::new(caption, "DeltaSePer", "passages"), &one.edges, &one.counts)
    };
    summary.delta_seper.iter().map(chart).collect()
}

fn bias(summary: &Summary) -> Result<Vec<Chart>, StudyError> {
    let named = |one: &Bias| {
        let name = format!("{}, {} fits of {} positions", one.system, one.questions, one.weights.len());
        Series::ranked(name, &one.weights)
    };
    let series: Vec<Series> = summary.position_bias.iter().map(named).collect();
    let caption = "Fitted position weights of the longest prompts scored".to_owned();
    let chart = || chart::lines(Axes::new(caption, "position", "mean weight"), &series);
    (!series.is_empty()).then(chart).into_iter().collect()
}

/// A table per annotator of the end-to-end answers.
fn correlations(report: &mut Report, summary: &Summary) -> Section {
    let mut section = Section { title: "Correlation with the end-to-end answer".to_owned(), ..Section::default() };
    for study in &summary.correlations {
        let caption = format!("Quality of the end-to-end answer by {}", study.target);
        if !section.tables.iter().any(|table| table.caption == caption) {
            let head = ["system", "labels", "metric", "n", "τ-b", "p", "ρ", "p", "r", "p"];
            section.tables.push(Table::new(&caption, head, Vec::new()).folded());
        }
        let mut row = vec![study.system.clone(), study.annotator.to_owned(), study.metric.clone()];
        row.push(study.questions.to_string());
        for (sign, one) in [("tau-b", &study.kendall_tau_b), ("rho", &study.spearman_rho), ("r", &study.pearson_r)] {
            row.extend(coefficient(report, &format!("{sign} of {} {}", study.system, study.metric), study, one));
        }
        // It has no value if the labels, or the scores of the answers, are the same for all questions.
        if row[4] != NONE
            && let Some(table) = section.tables.iter_mut().find(|table| table.caption == caption)
        {
            table.rows.push(row);
        }
    }
    section.tables.retain(|table| !table.rows.is_empty());
    section
}

fn coefficient(report: &mut Report, name: &str, study: &Study, one: &Coefficient) -> [String; 2] {
    let cell = report.number(format!("{name} by {} with {}", study.annotator, study.target), "", one.mean);
    if let Some(figure) = report.figures.last_mut() {
        figure.more.insert("p_value".to_owned(), one.p_value.map_or(Value::Null, Value::from));
    }
    [cell, format_p_value(one.p_value)]
}
