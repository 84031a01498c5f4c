//! The dashboard, the alert rules and the documentation against the page of a running server.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::{common, page};
use common::{Scripted, wire};
use page::Page;
use protocol::v1;
use serde_json::Value;

fn file(path: &str) -> String {
    std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Names of metrics in an expression. A name that is followed by `=`, or stands in quotes, is a label or its value.
fn metrics(text: &str) -> BTreeSet<String> {
    let unquoted: String = text.split('"').step_by(2).collect::<Vec<_>>().join("\"");
    let words = unquoted.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let prefixes = ["rerankd_", "grpc_server_", "process_"];
    words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix))).map(str::to_owned).collect()
}

/// Every expression of a panel, and every query of a variable.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields {
                match inner {
                    Value::String(text) if ["expr", "query", "definition"].contains(&key.as_str()) => {
                        found.push(text.clone());
                    }
                    inner => expressions(inner, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

async fn page() -> Page {
    let warm = prefix_scheduler::warm::Options { memory_bytes: 1 << 20, disk: None };
    let (engine, observed, queue_length) = Scripted { warm, ..Scripted::default() }.engine().await;
    let (engine, _) = common::with_scripted_judge(&engine, Duration::ZERO);
    let engine = common::with_scripted_reranker(&engine, "cross");
    let observable = page::observable(engine, observed, queue_length).await;
    let request =
        v1::RerankRequest { method: v1::Method::Moi.into(), ..wire("alpha?", &["alpha beta", "gamma delta"]) };
    observable.server.client().await.rerank(request).await.unwrap();
    observable.scrape_until("the call ended", |page| page.sum("rerankd_fits_total", &[]) > 0.0).await
}

/// The values of a label's patterns in a file.
fn patterns<'a>(text: &'a str, label: &str) -> Vec<&'a str> {
    let parts = text.split(label).skip(1).filter_map(|rest| rest.strip_prefix("=~"));
    parts.map(|rest| rest.trim_start_matches('\\').split('"').nth(1).unwrap().trim_end_matches('\\')).collect()
}

/// Without HTTP/JSON, a server that is used only over HTTP would show no requests and raise no alert.
#[test]
fn every_protocol_is_in_the_dashboard_and_the_alerts() {
    let (dashboard, alerts) = (file("helm/rerankd/files/rerankd.json"), file("helm/rerankd/files/alerts.yaml"));
    let found = [patterns(&dashboard, "grpc_service"), patterns(&alerts, "grpc_service")];
    assert!(found[0].len() >= 8 && found[1].len() >= 3, "{found:?}");
    for pattern in found.concat() {
        let parts: Vec<&str> = pattern.split('|').collect();
        for service in ["rerankd.v1.RerankService", "tei.v1.Rerank", "http"] {
            let matches =
                |part: &&str| part.strip_suffix(".*").map_or(*part == service, |begin| service.starts_with(begin));
            assert!(parts.iter().any(matches), "{service} is not in {pattern}");
        }
    }
    let documentation = file("docs/how-to/monitor.md");
    assert!(documentation.contains(patterns(&alerts, "grpc_service")[0]));
}

/// The denominator must count everything that the numerator counts, or the share may exceed 1 or divide by 0.
#[test]
fn the_share_of_refusals_counts_refusals_in_both_parts() {
    let alerts = file("helm/rerankd/files/alerts.yaml");
    let rule = alerts.split("- alert: ").find(|rule| rule.starts_with("RerankdRefusing")).unwrap();
    let expression = rule.split("labels:").next().unwrap();
    let (above, below) = expression.split_once("\n            / ").unwrap();
    assert_eq!(metrics(above), BTreeSet::from(["rerankd_requests_refused_total".to_owned()]));
    assert!(metrics(above).is_subset(&metrics(below)), "{below}");
    // Lists of a cross-encoder and of an embedding model never wait for the generator.
    assert!(metrics(below).contains("grpc_server_handled_total"), "{below}");
}

/// A stream takes as long as its caller likes, so streams must not enter the percentiles.
#[test]
fn times_of_requests_are_those_of_single_calls() {
    for name in ["helm/rerankd/files/rerankd.json", "helm/rerankd/files/alerts.yaml"] {
        for one in file(name).split("grpc_server_handling_seconds_bucket{").skip(1) {
            let labels = one.split('}').next().unwrap();
            assert!(labels.contains("grpc_type="), "{name}: {labels}");
        }
    }
}

#[test]
fn names_of_metrics_are_found() {
    let text = r#"sum by (le) (rate(grpc_server_x_bucket{grpc_type="rerankd_y", job=~"a"}[5m])) / rerankd_z"#;
    assert_eq!(metrics(text), BTreeSet::from(["grpc_server_x_bucket".to_owned(), "rerankd_z".to_owned()]));
}

#[tokio::test]
async fn the_dashboard_asks_for_metrics_that_exist() {
    let page = page().await;
    let dashboard: Value = serde_json::from_str(&file("helm/rerankd/files/rerankd.json")).unwrap();
    let mut found = Vec::new();
    expressions(&dashboard, &mut found);
    assert!(found.len() > 30, "{}", found.len());
    for expression in found.iter().filter(|expression| *expression != "prometheus") {
        let names = metrics(expression);
        assert!(!names.is_empty(), "{expression}");
        for name in names {
            assert!(page.has(&name), "{name} of {expression}");
        }
    }
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have the same id");
}

#[tokio::test]
async fn the_alerts_ask_for_metrics_that_exist() {
    let page = page().await;
    let rules = file("helm/rerankd/files/alerts.yaml");
    let (mut alerts, mut in_expression, mut names) = (0, false, BTreeSet::new());
    for line in rules.lines() {
        let field = line.trim_start();
        // A block of an expression ends with the next field of its rule.
        if field.starts_with("for:") || field.starts_with("labels:") {
            in_expression = false;
        }
        alerts += usize::from(field.starts_with("- alert:"));
        in_expression |= field.starts_with("expr:");
        if in_expression {
            names.extend(metrics(line));
        }
    }
    assert!(alerts >= 6 && names.len() >= alerts, "{alerts} {names:?}");
    for name in names {
        assert!(page.has(&name), "{name}");
    }
    let (documentation, series) = (file("docs/how-to/monitor.md"), file("tests/alerts.yaml"));
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let (fires, silent) = (format!("alertname: {alert}\n"), format!("alertname: {alert} }}"));
        assert!(series.contains(&fires) && series.contains(&silent), "tests/alerts.yaml has no series for {alert}");
        assert!(documentation.contains(&format!("`{alert}`")), "docs/how-to/monitor.md does not name {alert}");
    }
}

#[tokio::test]
async fn every_metric_is_documented_and_every_documented_metric_exists() {
    let page = page().await;
    let documentation = file("docs/reference/observability.md");
    for name in page.kinds.keys() {
        assert!(documentation.contains(&format!("`{name}`")), "docs/reference/observability.md does not name {name}");
    }
    let documented = documentation.split('`').skip(1).step_by(2).filter(|word| metrics(word).contains(*word));
    for name in documented.filter(|name| cfg!(target_os = "linux") || !name.starts_with("process_")) {
        assert!(page.has(name), "{name} of docs/reference/observability.md");
    }
}
