//! Rank metrics, eRAG aggregation, correlations and the Recall paper's measures against independent programs:
//! pytrec_eval-terrier 0.5.11, ir_measures 0.4.3 (with gdeval), ranx 0.3.21, erag 0.0.1, scipy 1.17.1. The values are those
//! of tests/golden/metrics/reference.py. BLEU against sacrebleu 2.6.0, by tests/golden/metrics/bleu.py.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    clippy::items_after_statements,
    clippy::similar_names,
    missing_docs,
    reason = "a test or benchmark that fails says where; its numbers are small"
)]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;

use rag_metrics::agreement::Correlation;
use rag_metrics::bleu::bleu;
use rag_metrics::never;
use rag_metrics::rank::{Grading, Metric, Ranking, Ties};
use rag_metrics::recall::{Family, Sample, choose_alpha};
use serde::Deserialize;
use serde_json::Value;

fn golden(name: &str) -> String {
    let path = format!("{}/tests/golden/metrics/{name}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).unwrap();
    let mut text = String::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
        return text;
    }
    String::from_utf8(bytes).unwrap()
}

#[derive(Deserialize)]
struct Query {
    run: Vec<(String, f64)>,
    qrels: HashMap<String, f64>,
    values: BTreeMap<String, f64>,
}

/// Distinct scores in single and in double precision.
#[expect(clippy::cast_possible_truncation, reason = "the precision of trec_eval's scores")]
fn distinct(documents: &[(&str, f64)]) -> (usize, usize) {
    let single: HashSet<u32> = documents.iter().map(|(_, score)| (*score as f32).to_bits()).collect();
    let double: HashSet<u64> = documents.iter().map(|(_, score)| score.to_bits()).collect();
    (single.len(), double.len())
}

#[test]
fn two_thousand_random_runs_score_as_in_trec_eval_ir_measures_gdeval_and_ranx() {
    let (mut compared, mut runs): (BTreeMap<&str, usize>, usize) = (BTreeMap::new(), 0);
    for (number, line) in golden("runs.jsonl.gz").lines().enumerate() {
        let query: Query = serde_json::from_str(line).unwrap();
        let documents: Vec<(&str, f64)> = query.run.iter().map(|(id, score)| (id.as_str(), *score)).collect();
        let judged: HashMap<&str, f64> = query.qrels.iter().map(|(id, label)| (id.as_str(), *label)).collect();
        let ranking = Ranking::ranked(&documents, &judged, Ties::TrecEval);
        runs += usize::from(!documents.is_empty());
        for (name, expected) in &query.values {
            let (program, plain, tolerance) = match name.split_once([':', '~']) {
                Some(("ranx", plain)) => ("ranx", plain, 1e-9),
                // gdeval prints five digits and knows no labels below 0.
                Some(("", plain)) => ("gdeval", plain, 5.1e-6),
                _ => ("pytrec_eval or ir_measures", name.as_str(), 1e-9),
            };
            // A query without a run has no documents to count; ir_measures counts its relevant ones as 0, too.
            if documents.is_empty() && plain == "NumRel" {
                continue;
            }
            // ir_measures computes these itself and orders ties in its own way.
            let own = plain == "RR@3" || plain.starts_with("Judged");
            let distinct = distinct(&documents);
            if own && distinct.0 < documents.len() {
                continue;
            }
            // gdeval compares in double precision.
            if program == "gdeval" && distinct.0 < distinct.1 {
                continue;
            }
            let value = plain.parse::<Metric>().unwrap().of(&ranking, Grading::TREC).unwrap();
            assert!(
                (value - expected).abs() < tolerance,
                "line {number}, {name}: {value} instead of {expected}\n{line}"
            );
            *compared.entry(program).or_default() += 1;
        }
    }
    assert!(runs >= 2_000, "{runs}");
    assert!(compared["pytrec_eval or ir_measures"] > 100_000, "{compared:?}");
    assert!(compared["gdeval"] > 4_000 && compared["ranx"] > 5_000, "{compared:?}");
}

#[derive(Deserialize)]
struct Labels {
    cases: Vec<LabelCase>,
    refused: Vec<Refused>,
}

#[derive(Deserialize)]
struct LabelCase {
    labels: Vec<f64>,
    values: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct Refused {
    metric: String,
    labels: Vec<f64>,
    error: String,
}

fn erag(name: &str, labels: &[f64]) -> f64 {
    name.parse::<Metric>().unwrap().of(&Ranking::of_labels(labels), Grading::ERAG).unwrap()
}

#[test]
fn labels_are_aggregated_as_in_the_authors_package() {
    let labels: Labels = serde_json::from_str(&golden("labels.json")).unwrap();
    assert_eq!(labels.cases.len(), 200);
    for case in &labels.cases {
        for (name, expected) in &case.values {
            let value = erag(name, &case.labels);
            assert!((value - expected).abs() < 1e-9, "{name} of {:?}: {value} instead of {expected}", case.labels);
        }
    }
}

#[test]
fn what_the_authors_package_refuses_has_a_value_here() {
    let labels: Labels = serde_json::from_str(&golden("labels.json")).unwrap();
    let refused: Vec<(&str, &str)> =
        labels.refused.iter().map(|one| (one.metric.as_str(), one.error.as_str())).collect();
    // Graded labels under any metric but P and success; a list shorter than the cut-off.
    let expected = [
        ("ndcg", "RuntimeError"),
        ("map", "RuntimeError"),
        ("recip_rank", "RuntimeError"),
        ("P_5", "KeyError"),
        ("success_5", "KeyError"),
    ];
    assert_eq!(refused, expected);
    let values: Vec<f64> = labels.refused.iter().map(|one| erag(&one.metric, &one.labels)).collect();
    let gained = 0.5 + 1.0 / 3.0_f64.log2();
    let by_hand = [gained / (1.0 + 0.5 / 3.0_f64.log2()), 1.0, 1.0, 0.15, 0.5];
    for (value, expected) in values.iter().zip(by_hand) {
        assert!((value - expected).abs() < 1e-12, "{values:?}");
    }
}

#[test]
fn correlations_and_their_p_values_are_those_of_scipy() {
    let rows: Vec<Value> = serde_json::from_str(&golden("agreement.json")).unwrap();
    let numbers = |value: &Value| value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<f64>>();
    let names = ["tau_b", "tau_c", "rho", "r"];
    let mut compared = 0;
    for row in &rows {
        let (x, y) = (numbers(&row["x"]), numbers(&row["y"]));
        for (name, correlation) in names.iter().zip(Correlation::ALL) {
            let Some(agreement) = correlation.of(&x, &y) else {
                assert!(row[*name].is_null(), "{name} of {x:?} and {y:?}");
                continue;
            };
            let expected = row[*name][0].as_f64().unwrap();
            assert!((agreement.value - expected).abs() < 1e-9, "{name}: {} instead of {expected}", agreement.value);
            match (agreement.p_value, row[*name][1].as_f64()) {
                (Some(p), Some(expected)) => {
                    let near = (p - expected).abs() < 1e-9 + 1e-6 * expected;
                    assert!(near, "p of {name} for {}: {p:e} instead of {expected:e}", x.len());
                }
                (p, expected) => assert_eq!(p, expected, "p of {name} for {}", x.len()),
            }
            compared += 1;
        }
    }
    assert!(compared > 450, "{compared}");
}

#[test]
fn the_search_for_alpha_finds_what_scipy_finds() {
    let studies: Vec<Value> = serde_json::from_str(&golden("recall.json")).unwrap();
    let correlations = [
        ("spearman", Correlation::Spearman),
        ("pearson", Correlation::Pearson),
        ("kendall_b", Correlation::KendallB),
        ("kendall_c", Correlation::KendallC),
    ];
    let families = [("F", Family::F), ("Fe", Family::Fe), ("T", Family::T), ("T'", Family::TPrime)];
    for study in &studies {
        let sample = |value: &Value| Sample {
            marks: value["marks"].as_array().unwrap().iter().map(|mark| mark == 1).collect(),
            k: usize::try_from(value["k"].as_u64().unwrap()).unwrap(),
            all: value["all"].as_u64().map(|all| usize::try_from(all).unwrap()),
            response: value["response"].as_f64().unwrap(),
        };
        let samples: Vec<Sample> = study["samples"].as_array().unwrap().iter().map(sample).collect();
        for (name, family) in families {
            for (label, correlation) in correlations {
                let expected = &study["chosen"][format!("{name}/{label}")];
                let best = expected["best"].as_f64().unwrap();
                let chosen = choose_alpha(&samples, family, correlation, &never).unwrap();
                assert!((chosen.agreement.value - best).abs() < 1e-9, "{name}/{label}: {chosen:?} instead of {best}");
                for (alpha, values) in expected["at"].as_object().into_iter().flatten() {
                    let alpha: f64 = alpha.parse().unwrap();
                    for (sample, value) in samples.iter().zip(values.as_array().unwrap()) {
                        let ours = family.of(sample, alpha);
                        assert_eq!(ours.is_none(), value.is_null(), "{name} at {alpha} of {sample:?}");
                        assert!((ours.unwrap_or(0.0) - value.as_f64().unwrap_or(0.0)).abs() < 1e-12);
                    }
                }
            }
        }
    }
}

#[test]
fn sentence_bleu_is_that_of_sacrebleu() {
    #[derive(Deserialize)]
    struct Case {
        text: String,
        references: Vec<String>,
        bleu: f64,
    }
    let cases: Vec<Case> = serde_json::from_str(&golden("bleu.json")).unwrap();
    for Case { text, references, bleu: expected } in &cases {
        let value = bleu(text, references);
        assert!((value - expected).abs() < 1e-9, "{text:?} {references:?}: {value}, not {expected}");
    }
    let between = cases.iter().filter(|case| case.bleu > 0.0 && case.bleu < 0.999).count();
    assert!(cases.len() > 250 && between > 200, "{between} of {}", cases.len());
}
