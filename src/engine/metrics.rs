//! Arithmetic on labels and scores that a caller brings: rank metrics, correlations, the search for alpha, a MOI fit. No
//! model is asked.

use std::collections::{HashMap, HashSet};

use super::EngineError;
use super::evaluate::MOST_METRICS;
use crate::measure::agreement::{Agreement, Correlation};
use crate::measure::moi::domain::Domain;
use crate::measure::moi::varpro::Starts;
use crate::measure::moi::{self, Estimate, FitError, Objective, Observation};
use crate::measure::rank::summary::{Table, evaluate};
use crate::measure::rank::{Grading, Metric, Ranking, Ties};
use crate::measure::recall::{self, Chosen, Family, Sample};
use crate::measure::resample::{self, Interval, Resampling};

/// Passages of a fit.
const MOST_PASSAGES: usize = 2_000;
/// Lists on which alpha is chosen.
const MOST_LISTS: usize = 100_000;
/// Resamples of an interval.
const MOST_RESAMPLES: usize = 100_000;
/// Numbers drawn for the intervals of one request: resamples times values.
const MOST_DRAWS: usize = 1_000_000_000;

/// A document of a list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document {
    /// Its id.
    pub id: String,
    /// The score by which the list is ordered.
    pub score: Option<f64>,
    /// Its label, where labels do not come by id.
    pub label: Option<f64>,
}

/// A query's list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct List {
    /// The documents.
    pub documents: Vec<Document>,
    /// Labels of all judged documents, by id.
    pub judgements: HashMap<String, f64>,
    /// Labels of judged documents that are not in the list, where labels do not come by id.
    pub missed: Vec<f64>,
}

impl List {
    fn ranking(&self, field: &str, ties: Ties) -> Result<Ranking, EngineError> {
        let at = |index: usize, part: &str| format!("{field}.documents[{index}].{part}");
        let scored = self.documents.iter().filter(|document| document.score.is_some()).count();
        if scored > 0 && scored < self.documents.len() {
            let index = self.documents.iter().position(|document| document.score.is_none()).unwrap_or(0);
            return Err(EngineError::invalid(
                at(index, "score"),
                "must be set for all documents of a list, or for none",
            ));
        }
        for (index, document) in self.documents.iter().enumerate() {
            for (part, number) in [("score", document.score), ("label", document.label)] {
                if number.is_some_and(|number| !number.is_finite()) {
                    return Err(EngineError::invalid(at(index, part), "must be a finite number"));
                }
            }
        }
        if let Some((id, _)) = self.judgements.iter().find(|(_, label)| !label.is_finite()) {
            return Err(EngineError::invalid(format!("{field}.judgements[{id:?}]"), "must be a finite number"));
        }
        if let Some(index) = self.missed.iter().position(|label| !label.is_finite()) {
            return Err(EngineError::invalid(format!("{field}.missed_labels[{index}]"), "must be a finite number"));
        }
        let by_id = !self.judgements.is_empty();
        if by_id || ties == Ties::TrecEval {
            let mut seen = HashSet::new();
            if let Some(index) = self.documents.iter().position(|document| !seen.insert(document.id.as_str())) {
                let problem = format!("{:?} stands in the list twice", self.documents[index].id);
                return Err(EngineError::invalid(at(index, "id"), problem));
            }
        }
        let own = self.documents.iter().position(|document| document.label.is_some());
        if by_id && (own.is_some() || !self.missed.is_empty()) {
            let problem = "labels come by id or with the documents, not both";
            return Err(EngineError::invalid(format!("{field}.judgements"), problem));
        }
        // Documents without scores stand in their order.
        let ties = if scored == 0 { Ties::InputOrder } else { ties };
        let documents: Vec<(&str, f64)> =
            self.documents.iter().map(|document| (document.id.as_str(), document.score.unwrap_or(0.0))).collect();
        if by_id {
            let judged: HashMap<&str, f64> = self.judgements.iter().map(|(id, label)| (id.as_str(), *label)).collect();
            return Ok(Ranking::ranked(&documents, &judged, ties));
        }
        let labels: Vec<Option<f64>> = self.documents.iter().map(|document| document.label).collect();
        Ok(Ranking::labelled(&documents, &labels, &self.missed, ties))
    }
}

fn check_resampling(how: Option<Resampling>, values: usize) -> Result<(), EngineError> {
    let Some(how) = how else { return Ok(()) };
    if how.resamples > MOST_RESAMPLES {
        let problem = format!("must be at most {MOST_RESAMPLES}, is {}", how.resamples);
        return Err(EngineError::invalid("resampling.resamples", problem));
    }
    if how.resamples.saturating_mul(values) > MOST_DRAWS {
        let problem = format!("times {values} values is more than {MOST_DRAWS}");
        return Err(EngineError::invalid("resampling.resamples", problem));
    }
    if !(how.confidence > 0.0 && how.confidence < 1.0) {
        return Err(EngineError::invalid("resampling.confidence", "must lie between 0 and 1"));
    }
    Ok(())
}

/// Metrics of lists, and their means with intervals where `resampling` is given.
///
/// # Errors
/// [`EngineError::Invalid`] with the field at fault.
pub fn evaluate_rankings(
    lists: &[List],
    metrics: &[Metric],
    grading: Grading,
    ties: Ties,
    resampling: Option<Resampling>,
) -> Result<Table, EngineError> {
    if lists.is_empty() {
        return Err(EngineError::invalid("queries", "must not be empty"));
    }
    if metrics.is_empty() || metrics.len() > MOST_METRICS {
        let problem = format!("must be between 1 and {MOST_METRICS}, are {}", metrics.len());
        return Err(EngineError::invalid("metrics", problem));
    }
    if !grading.threshold.is_finite() {
        return Err(EngineError::invalid("threshold", "must be a finite number"));
    }
    check_resampling(resampling, lists.len() * metrics.len())?;
    let ranking = |(index, list): (usize, &List)| list.ranking(&format!("queries[{index}]"), ties);
    let rankings: Vec<Ranking> = lists.iter().enumerate().map(ranking).collect::<Result<_, _>>()?;
    Ok(evaluate(metrics, &rankings, grading, resampling))
}

/// A correlation with its interval; `None` inside where a side has no spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Correlated {
    /// The correlation.
    pub agreement: Option<Agreement>,
    /// Bootstrap interval over the pairs.
    pub interval: Option<Interval>,
}

/// Correlations of each series with the target, by series, in the order of the kinds.
///
/// # Errors
/// [`EngineError::Invalid`] with the field at fault.
pub fn correlate(
    target: &[f64],
    series: &[(String, Vec<f64>)],
    kinds: &[Correlation],
    resampling: Option<Resampling>,
) -> Result<Vec<Vec<Correlated>>, EngineError> {
    let finite = |field: &str, values: &[f64]| match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(EngineError::invalid(format!("{field}[{index}]"), "must be a finite number")),
        None => Ok(()),
    };
    if target.len() < 2 {
        return Err(EngineError::invalid("target", format!("must hold at least two numbers, has {}", target.len())));
    }
    finite("target", target)?;
    if series.is_empty() {
        return Err(EngineError::invalid("series", "must not be empty"));
    }
    check_resampling(resampling, target.len() * series.len() * kinds.len())?;
    let of = |(index, (_, values)): (usize, &(String, Vec<f64>))| {
        let field = format!("series[{index}].values");
        if values.len() != target.len() {
            let problem = format!("must be as many as the target ({}), are {}", target.len(), values.len());
            return Err(EngineError::invalid(field, problem));
        }
        finite(&field, values)?;
        Ok(kinds.iter().map(|kind| correlated(*kind, values, target, resampling)).collect())
    };
    series.iter().enumerate().map(of).collect()
}

/// One correlation with its interval.
#[must_use]
pub fn correlated(kind: Correlation, left: &[f64], right: &[f64], resampling: Option<Resampling>) -> Correlated {
    let agreement = kind.of(left, right);
    let pick = |values: &[f64], indices: &[usize]| indices.iter().map(|&index| values[index]).collect::<Vec<_>>();
    let again = |indices: &[usize]| Some(kind.of(&pick(left, indices), &pick(right, indices))?.value);
    let interval = agreement.and_then(|_| resample::interval(left.len(), resampling?, again));
    Correlated { agreement, interval }
}

/// The alpha at which a measure agrees best with response scores.
///
/// # Errors
/// [`EngineError::Invalid`] with the field at fault, also where the correlation is nowhere defined.
pub fn choose_alpha(samples: &[Sample], family: Family, correlation: Correlation) -> Result<Chosen, EngineError> {
    if samples.len() < 2 || samples.len() > MOST_LISTS {
        return Err(EngineError::invalid("lists", format!("must be 2 to {MOST_LISTS}, are {}", samples.len())));
    }
    for (index, sample) in samples.iter().enumerate() {
        let invalid = |part: &str, problem: &str| Err(EngineError::invalid(format!("lists[{index}].{part}"), problem));
        if sample.k == 0 {
            return invalid("cutoff", "must be at least 1");
        }
        if !sample.response.is_finite() {
            return invalid("response_score", "must be a finite number");
        }
        if family == Family::F && sample.all.is_none() {
            return invalid("positives", "must be set for F");
        }
    }
    recall::choose_alpha(samples, family, correlation)
        .ok_or_else(|| EngineError::invalid("lists", "the correlation is not defined: a side has no spread"))
}

/// Scores of orders, to be fitted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FitTask {
    /// Passages.
    pub passages: usize,
    /// Orders and their scores, all orders of one length.
    pub observations: Vec<Observation>,
    /// Scale of the scores; where `None` the scores themselves for the paper's objective and where `lam` or `rho` is given,
    /// for they belong to a scale, else winsorised z scores.
    pub domain: Option<Domain>,
    /// The paper's objective instead of the regularised one.
    pub paper: bool,
    /// Assumed share of noise; 0.5 where `None`.
    pub sigma2: Option<f64>,
    /// Prior position weights.
    pub prior: Option<Vec<f64>>,
    /// Position weights must not rise.
    pub monotone: bool,
    /// Strength of the pull to the mean utility.
    pub lam: Option<f64>,
    /// Strength of the pull to the prior.
    pub rho: Option<f64>,
    /// Scores of each passage alone.
    pub anchor: Option<Vec<f64>>,
}

/// Utilities and position bias of the scores.
///
/// # Errors
/// [`FitError`], its fields named as in the files that `rerankd fit` reads: n, permutations, scores, a0, anchor, sigma2, lam,
/// rho.
pub fn fit_moi(task: &FitTask) -> Result<Estimate, FitError> {
    let invalid = |field: &str, problem: String| Err(FitError::Invalid { field: field.to_owned(), problem });
    let n = task.passages;
    if n == 0 || n > MOST_PASSAGES {
        return invalid("n", format!("must be between 1 and {MOST_PASSAGES}, is {n}"));
    }
    let Some(length) = task.observations.first().map(|first| first.order.len()) else {
        return invalid("permutations", "must not be empty".into());
    };
    if let Some(index) = task.observations.iter().position(|observation| observation.order.len() != length) {
        return invalid(&format!("permutations[{index}]"), format!("must have {length} positions like the first"));
    }
    if let Some(anchor) = &task.anchor
        && (anchor.len() != n || anchor.iter().any(|score| !score.is_finite()))
    {
        return invalid("anchor", format!("must be {n} finite numbers"));
    }
    if let Some(given) = &task.prior
        && given.len() != length
    {
        return invalid("a0", format!("must have {length} weights, has {}", given.len()));
    }
    let as_is = task.paper || task.lam.is_some() || task.rho.is_some();
    let settings = moi::Settings {
        domain: task.domain.or(as_is.then_some(Domain::AsIs)),
        objective: if task.paper { Objective::Paper } else { Objective::Regularised },
        sigma2: task.sigma2.unwrap_or(0.5),
        monotone: task.monotone,
        prior: task.prior.clone(),
        lam: task.lam,
        rho: task.rho,
        starts: Starts::Many,
    };
    moi::estimate(n, &task.observations, task.anchor.as_deref(), &settings)
}
