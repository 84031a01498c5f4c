//! Output of `rerankd metrics`: a table, JSON, CSV, and the layout of trec_eval.

use serde_json::{Map, Value, json};

use super::{Evaluated, Report};
use crate::cli::{Failure, output};
use rag_metrics::rank::Kind;
use rag_metrics::rank::summary::Summary;
use rag_metrics::resample::{Compared, Interval, format_p_value};

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.4}"))
}

fn with_interval(summary: &Summary) -> String {
    match summary.interval {
        Some(Interval { low, high }) => format!("{} [{low:.4}, {high:.4}]", number(summary.value)),
        None => number(summary.value),
    }
}

pub(super) fn table(report: &Report) -> String {
    let names: Vec<&str> = report.runs.iter().map(|run| run.name.as_str()).collect();
    let mut summary = output::table(&[&["metric"][..], &names].concat());
    for (at, metric) in report.metrics.iter().enumerate() {
        let cells = report.runs.iter().map(|run| with_interval(&run.table.summary[at]));
        summary.add_row(std::iter::once(metric.to_string()).chain(cells).collect::<Vec<_>>());
    }
    let counts: Vec<String> = report.runs.iter().map(|run| format!("{} {}", run.queries.len(), run.name)).collect();
    let mut text = output::shown(summary) + &format!("queries: {}; ties: {}\n", counts.join(", "), report.ties);
    for (run, compared) in report.runs.iter().skip(1).zip(&report.compared) {
        let mut table = output::table(&["metric", "difference", "p", "wins", "ties", "losses"]);
        for (metric, one) in report.metrics.iter().zip(compared) {
            let Some(one) = one else { continue };
            table.add_row([
                metric.to_string(),
                difference(one),
                format_p_value(one.p_value),
                one.wins.to_string(),
                one.ties.to_string(),
                one.losses.to_string(),
            ]);
        }
        let table = output::shown(table);
        text.push_str(&format!("\n{} against {} ({} test)\n{table}", run.name, report.runs[0].name, report.test));
    }
    if report.per_query {
        for run in &report.runs {
            let names: Vec<String> = report.metrics.iter().map(ToString::to_string).collect();
            let head: Vec<&str> = std::iter::once("query").chain(names.iter().map(String::as_str)).collect();
            let mut table = output::table(&head);
            for (query, values) in run.queries.iter().zip(&run.table.values) {
                table.add_row(
                    std::iter::once(query.clone()).chain(values.iter().map(|v| number(*v))).collect::<Vec<_>>(),
                );
            }
            text.push_str(&format!("\n{}\n{}", run.name, output::shown(table)));
        }
    }
    text
}

fn difference(compared: &Compared) -> String {
    match compared.interval {
        Some(Interval { low, high }) => format!("{:+.4} [{low:+.4}, {high:+.4}]", compared.difference),
        None => format!("{:+.4}", compared.difference),
    }
}

fn compared_json(compared: &Compared) -> Value {
    json!({
        "difference": compared.difference,
        "low": compared.interval.map(|interval| interval.low),
        "high": compared.interval.map(|interval| interval.high),
        "p_value": compared.p_value,
        "wins": compared.wins, "ties": compared.ties, "losses": compared.losses,
    })
}

fn summary_json(summary: &Summary) -> Value {
    json!({
        "value": summary.value,
        "low": summary.interval.map(|interval| interval.low),
        "high": summary.interval.map(|interval| interval.high),
        "queries": summary.lists,
    })
}

pub(super) fn json(report: &Report) -> Value {
    let run = |run: &Evaluated| {
        let summaries = report.metrics.iter().zip(&run.table.summary);
        let metrics: Map<String, Value> =
            summaries.map(|(metric, summary)| (metric.to_string(), summary_json(summary))).collect();
        let mut whole = json!({
            "name": run.name, "queries": run.queries.len(), "metrics": metrics,
            "judged_queries_without_results": run.missing, "queries_without_judgements": run.unjudged,
        });
        if report.per_query {
            let query = |(query, values): (&String, &Vec<Option<f64>>)| {
                let values =
                    report.metrics.iter().zip(values).map(|(metric, value)| (metric.to_string(), json!(value)));
                (query.clone(), Value::Object(values.collect()))
            };
            whole["per_query"] = Value::Object(run.queries.iter().zip(&run.table.values).map(query).collect());
        }
        whole
    };
    let compared = report.runs.iter().skip(1).zip(&report.compared).map(|(run, compared)| {
        let metrics: Map<String, Value> = report
            .metrics
            .iter()
            .zip(compared)
            .filter_map(|(metric, one)| Some((metric.to_string(), compared_json(one.as_ref()?))))
            .collect();
        json!({ "run": run.name, "against": report.runs[0].name, "test": report.test, "metrics": metrics })
    });
    json!({
        "runs": report.runs.iter().map(run).collect::<Vec<_>>(),
        "comparisons": compared.collect::<Vec<_>>(),
        "ties": report.ties,
        "missing_queries_count_as_zero": report.complete,
    })
}

pub(super) fn csv(report: &Report) -> Result<String, Failure> {
    let failed = |error: csv::Error| Failure::Other(error.into());
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(["run", "query", "metric", "value", "low", "high"]).map_err(failed)?;
    let text = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for run in &report.runs {
        for (metric, summary) in report.metrics.iter().zip(&run.table.summary) {
            let ends = summary.interval.map_or((None, None), |interval| (Some(interval.low), Some(interval.high)));
            let record =
                [run.name.clone(), "all".into(), metric.to_string(), text(summary.value), text(ends.0), text(ends.1)];
            writer.write_record(record).map_err(failed)?;
        }
        for (query, values) in run.queries.iter().zip(&run.table.values).filter(|_| report.per_query) {
            for (metric, value) in report.metrics.iter().zip(values) {
                let record =
                    [run.name.clone(), query.clone(), metric.to_string(), text(*value), String::new(), String::new()];
                writer.write_record(record).map_err(failed)?;
            }
        }
    }
    let bytes = writer.into_inner().map_err(|error| Failure::Other(anyhow::anyhow!(error.to_string())))?;
    String::from_utf8(bytes).map_err(|error| Failure::Other(error.into()))
}

pub(super) fn trec(report: &Report) -> String {
    let mut text = String::new();
    for run in &report.runs {
        for (query, values) in run.queries.iter().zip(&run.table.values).filter(|_| report.per_query) {
            for (metric, value) in report.metrics.iter().zip(values).filter(|(metric, _)| metric.is_shown_by_query()) {
                if let Some(value) = value {
                    text.push_str(&format!("{}\n", metric.trec_line(query, *value)));
                }
            }
        }
        // trec_eval prints the run's tag if it prints the number of queries.
        if report.metrics.iter().any(|metric| metric.kind == Kind::NumQ) {
            text.push_str(&format!("{:<22}\tall\t{}\n", "runid", run.name));
        }
        for (metric, summary) in report.metrics.iter().zip(&run.table.summary) {
            if let Some(value) = summary.value {
                text.push_str(&format!("{}\n", metric.trec_line("all", value)));
            }
        }
    }
    text
}
