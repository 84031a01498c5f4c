//! Whole MOI fits against values from independent solvers (tests/golden/README.md says which, and the tolerances).
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

use moi::domain::Domain;
use moi::varpro::Starts;
use moi::{Estimate, Objective, Observation, Settings, estimate};
use serde_json::Value;

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

fn indices(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|v| usize::try_from(v.as_u64().unwrap()).unwrap()).collect()
}

fn solve(case: &Value, starts: Starts) -> Estimate {
    let observations: Vec<Observation> = case["permutations"]
        .as_array()
        .unwrap()
        .iter()
        .zip(floats(&case["scores"]))
        .map(|(order, score)| Observation { order: indices(order), score })
        .collect();
    let settings = Settings {
        domain: Some(Domain::AsIs),
        objective: if case["problem"] == "P0" { Objective::Paper } else { Objective::Regularised },
        lam: case["lam"].as_f64(),
        rho: case["rho"].as_f64(),
        prior: Some(floats(&case["a0"])),
        monotone: case["monotone"].as_bool().unwrap_or(false),
        starts,
        ..Settings::default()
    };
    estimate(usize::try_from(case["n"].as_u64().unwrap()).unwrap(), &observations, None, &settings, &|| false).unwrap()
}

fn check(name: &str) {
    let path = format!("{}/tests/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let case: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let fitted = solve(&case, Starts::Many);
    let objective = case["objective_star"].as_f64().unwrap();
    assert!(
        (fitted.objective - objective).abs() <= 1e-8 * objective.abs().max(1e-8),
        "{name}: objective {} against {objective}",
        fitted.objective
    );
    // A search ends where a step lowers the objective by less than 1e-9 of it. On the edge of a constraint that is 1e-6 in the weights.
    let within = if case["monotone"] == true { 1e-5 } else { 1e-6 };
    for (ours, theirs) in fitted.bias[0].iter().zip(floats(&case["a_star"])) {
        assert!((ours - theirs).abs() <= within, "{name}: a {ours} against {theirs}");
    }
    for (ours, theirs) in fitted.utilities.iter().zip(floats(&case["u_star"])) {
        assert!((ours - theirs).abs() <= 1e-5, "{name}: u {ours} against {theirs}");
    }
    assert_eq!(fitted.ranking, indices(&case["ranking"]), "{name}");
    assert_eq!(fitted.diagnostics.jacobian_rank as u64, case["jacobian_rank"].as_u64().unwrap(), "{name}: rank");
    assert_eq!(fitted.diagnostics.rank_needed as u64, case["full_rank_needed"].as_u64().unwrap(), "{name}: needed");
    match case["r2"].as_f64() {
        None => assert_eq!(fitted.diagnostics.r2, None, "{name}"),
        Some(r2) => assert!((fitted.diagnostics.r2.unwrap() - r2).abs() < 1e-6, "{name}: r2"),
    }
    if let Some(identifiable) = case["identifiable"].as_bool() {
        assert_eq!(fitted.diagnostics.identifiable, identifiable, "{name}");
    }
}

macro_rules! golden {
    ($($test:ident = $file:literal),+ $(,)?) => { $(#[test] fn $test() { check($file); })+ };
}

golden! {
    p0_noiseless_n4_all24 = "01_p0_noiseless_n4_all24",
    p0_noisy_n4_m12 = "04_p0_noisy_n4_m12",
    p0_n2 = "05_p0_n2",
    p1_noisy_n5_m15 = "06_p1_noisy_n5_m15",
    p1_noisy_n10_m30 = "08_p1_noisy_n10_m30",
    p1_fewer_orders_than_passages = "10_p1_m_lt_n_n6_m3",
    p1_constant_scores = "11_p1_constant_scores_n5",
    p1_one_passage = "13_p1_n1",
    p1_two_passages = "14_p1_n2",
    p1_calibrated_prior = "16_p1_ushape_n5_calibrated_prior",
    p1_pruned = "18_p1_pruned_n6_l4_m18",
    p1_monotone = "19_p1_monotone_n5",
}

/// The P0 goldens carry their gauge: unit directions and the product of norms do not depend on the representative.
#[test]
fn p0_invariants() {
    for name in ["01_p0_noiseless_n4_all24", "04_p0_noisy_n4_m12", "05_p0_n2"] {
        let path = format!("{}/tests/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let case: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let fitted = solve(&case, Starts::Many);
        let norm = |values: &[f64]| {
            let centre = values.iter().sum::<f64>() / values.len() as f64;
            values.iter().map(|v| (v - centre).powi(2)).sum::<f64>().sqrt()
        };
        let product = norm(&fitted.bias[0]) * norm(&fitted.utilities);
        assert!((product - case["invariants"]["product_norm"].as_f64().unwrap()).abs() < 1e-5, "{name}");
    }
}
