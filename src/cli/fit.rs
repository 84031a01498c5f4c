//! `rerankd fit`

use std::path::{Path, PathBuf};

use clap::Args;
use serde::de::value::StringDeserializer;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{Failure, input, output};
use files::Warnings;
use moi::domain::Domain;
use moi::task::{FitTask, fit_moi};
use moi::{FitError, Observation, Orientation};

/// Fit utilities and position bias to given scores.
///
/// The input is a JSON object. Required: n (passages), permutations (rows of passage indices from 0) and scores (one per
/// row; any finite numbers, as a common shift does not change the fit). Optional: l (positions per row, default n);
/// problem, P1 (regularised, default) or P0 (the paper's objective); a0 (prior position weights); lam and rho (strengths
/// of the two penalties); sigma2 (share of noise, default 0.5); monotone; anchor (score of each passage alone, which
/// decides the direction and, for l < n under P1, is fitted too); domain (`as_is`, `log_z`, `log_winsor_z`,
/// `rank_normal`). The default domain is `as_is` for P0 and if lam or rho is given, else `log_winsor_z`, or `log_z` if
/// the anchor is fitted.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  echo '{\"n\":2,\"permutations\":[[0,1],[1,0]],\"scores\":[-20.0,-22.5]}' | rerankd fit"
)]
pub(super) struct FitArgs {
    /// Input file, or - for standard input.
    #[arg(default_value = "-", value_name = "FILE")]
    input: PathBuf,
}

/// Keys of the input. Other keys are ignored, because files of other programs have more.
#[derive(Debug, Deserialize)]
struct ProblemFile {
    n: usize,
    l: Option<usize>,
    permutations: Vec<Vec<usize>>,
    scores: Vec<f64>,
    #[serde(default, deserialize_with = "in_any_case")]
    problem: ProblemKind,
    lam: Option<f64>,
    rho: Option<f64>,
    a0: Option<Vec<f64>>,
    sigma2: Option<f64>,
    #[serde(default)]
    monotone: bool,
    anchor: Option<Vec<f64>>,
    #[serde(default, deserialize_with = "optional_in_any_case")]
    domain: Option<DomainName>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
enum ProblemKind {
    P0,
    #[default]
    P1,
}

/// A name, in any letter case.
fn in_any_case<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let name = String::deserialize(from)?;
    let read = |name: String| T::deserialize(StringDeserializer::<serde_json::Error>::new(name));
    let spelt = read(name.clone())
        .or_else(|error| read(name.to_lowercase()).or_else(|_| read(name.to_uppercase())).map_err(|_| error));
    spelt.map_err(D::Error::custom)
}

/// A name in any letter case, or null for none.
fn optional_in_any_case<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    let Some(name) = Option::<String>::deserialize(from)? else { return Ok(None) };
    in_any_case(StringDeserializer::new(name)).map(Some)
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DomainName {
    AsIs,
    LogZ,
    LogWinsorZ,
    RankNormal,
}

pub(super) fn run(args: &FitArgs) -> Result<(), Failure> {
    let text = input::read(&args.input)?;
    output::json(&solve(&text, &args.input)?)
}

fn solve(text: &str, path: &Path) -> Result<Value, Failure> {
    let bad = |problem: String| Failure::Input(format!("{}: {problem}", input::name(path)));
    // The file has no texts, so warnings about half surrogate pairs are not reported.
    let file: ProblemFile = input::whole(text, path, &mut Warnings::default())?;
    if file.permutations.len() != file.scores.len() {
        let (orders, scores) = (file.permutations.len(), file.scores.len());
        return Err(bad(format!("scores: {scores} given for {orders} permutations")));
    }
    let length = file.l.unwrap_or(file.n);
    // If n is 0, the error of the fit names the cause.
    let mismatched = |order: &Vec<usize>| file.n > 0 && order.len() != length;
    if let Some(index) = file.permutations.iter().position(mismatched) {
        return Err(bad(format!("permutations[{index}]: must have l = {length} positions")));
    }
    let domain = file.domain.map(|name| match name {
        DomainName::AsIs => Domain::AsIs,
        DomainName::LogZ => Domain::LogZ,
        DomainName::LogWinsorZ => Domain::LogWinsorZ,
        DomainName::RankNormal => Domain::RankNormal,
    });
    let pairs = file.permutations.into_iter().zip(file.scores);
    let task = FitTask {
        passages: file.n,
        observations: pairs.map(|(order, score)| Observation { order, score }).collect(),
        domain,
        paper: file.problem == ProblemKind::P0,
        sigma2: file.sigma2,
        prior: file.a0.clone(),
        monotone: file.monotone,
        lam: file.lam,
        rho: file.rho,
        anchor: file.anchor,
    };
    let fitted = fit_moi(&task, &|| false).map_err(|error| match error {
        FitError::Invalid { .. } => bad(error.to_string()),
        FitError::NotSolved { .. } | FitError::Interrupted => Failure::Other(error.into()),
    })?;
    let orientation = match fitted.orientation {
        Orientation::OnePassageScores => "one_passage_scores",
        Orientation::CallerPrior => "caller_prior",
        Orientation::DefaultPrior => "default_prior",
        Orientation::Lengths => "lengths",
        Orientation::Subsets => "subsets",
        Orientation::None => "none",
    };
    let inner = &fitted.diagnostics;
    Ok(json!({
        "a": fitted.bias[0],
        "u": fitted.utilities,
        "objective": fitted.objective,
        "ranking": fitted.ranking,
        "standard_errors": fitted.standard_errors,
        "outranks_next": fitted.outranks_next,
        "diagnostics": {
            "r2": inner.r2,
            "loo_r2": inner.loo_r2,
            "jacobian_rank": inner.jacobian_rank,
            "rank_needed": inner.rank_needed,
            "condition": inner.condition,
            "m_distinct": inner.distinct,
            "noise_variance": inner.noise_variance,
            "signal": inner.signal,
            "identifiable": inner.identifiable,
            "scale_identified": inner.scale_identified,
            "converged": inner.converged,
            "prior_dominated": !inner.identifiable && inner.r2.is_some(),
            "expected_tau": fitted.expected_tau,
            "orientation": orientation,
            "anchor_correlation": fitted.anchor_correlation,
            "prior": fitted.prior[0],
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        solve(text, Path::new("p.json")).unwrap_err().to_string()
    }

    /// The prior depends on the end that the fit was made from.
    #[test]
    fn the_prior_is_the_one_that_was_taken() {
        let text = r#"{"n":2,"permutations":[[0,1],[1,0]],"scores":[-1,-2],"anchor":[-5,-1]}"#;
        let solved = solve(text, Path::new("-")).unwrap();
        let prior: Vec<f64> = serde_json::from_value(solved["diagnostics"]["prior"].clone()).unwrap();
        assert_eq!(solved["diagnostics"]["orientation"], "one_passage_scores");
        assert!(prior[0] < prior[1], "{prior:?}");
    }

    #[test]
    fn golden_files_are_valid_input() {
        let path = format!("{}/crates/moi/tests/golden/06_p1_noisy_n5_m15.json", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        let solved = solve(&text, Path::new("-")).unwrap();
        assert_eq!(solved["ranking"], expected["ranking"]);
        let gap = solved["objective"].as_f64().unwrap() - expected["objective_star"].as_f64().unwrap();
        assert!(gap.abs() < 1e-8);
    }

    #[test]
    fn names_are_read_in_any_letter_case() {
        let text =
            r#"{"n":2,"permutations":[[0,1],[1,0]],"scores":[-1,-2],"anchor":[-5,-1],"problem":"p1","domain":"LOG_Z"}"#;
        let lower = text.replace("p1", "P1").replace("LOG_Z", "log_z");
        let solved = |text: &str| solve(text, Path::new("-")).unwrap();
        assert_eq!(solved(text), solved(&lower));
    }

    #[test]
    fn errors_name_the_field() {
        assert!(fault("{").starts_with("p.json: EOF"));
        assert!(fault(r#"{"n":2,"permutations":[[0,1]],"scores":[]}"#).contains("scores: 0 given for 1 permutations"));
        assert!(fault(r#"{"n":0,"permutations":[[0,1]],"scores":[1]}"#).contains("n: must be"));
        assert!(fault(r#"{"n":2,"permutations":[[0]],"scores":[1]}"#).contains("permutations[0]: must have l = 2"));
        assert!(fault(r#"{"n":2,"permutations":[[0,7]],"scores":[1]}"#).contains("permutations[0][1]"));
        assert!(
            fault(r#"{"n":2,"permutations":[[0,1]],"scores":[1],"a0":[0.5,0.5]}"#).contains("a0: has no direction")
        );
        assert!(fault(r#"{"n":2,"permutations":[[0,1]],"scores":[1],"lam":-1}"#).contains("lam"));
        let paper = r#"{"n":2,"permutations":[[0,1]],"scores":[1],"problem":"P0","rho":-5}"#;
        assert!(fault(paper).contains("rho: has no effect with the paper's objective"));
        assert!(fault(r#"{"n":2,"permutations":[[0,1]],"scores":[1],"problem":"P7"}"#).contains("P7"));
        assert!(fault(r#"{"n":2,"permutations":[[0,1]],"scores":[1],"sigma2":1.5}"#).contains("sigma2"));
        assert!(fault(r#"{"n":2,"permutations":[[0,1]],"scores":[1e999]}"#).contains("number out of range"));
    }
}
