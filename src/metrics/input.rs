//! Checks of lists, labels and scores that a caller brings, before they are measured.

use std::collections::{HashMap, HashSet};

use super::agreement::{Agreement, Correlation};
use super::rank::summary::{Table, evaluate};
use super::rank::{Grading, Metric, Ranking, Ties};
use super::recall::{self, Chosen, Family, Sample};
use super::resample::{self, Interval, Resampling};
use super::{InvalidInput, MOST_METRICS};

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
    fn ranking(&self, field: &str, ties: Ties) -> Result<Ranking, InvalidInput> {
        let at = |index: usize, part: &str| format!("{field}.documents[{index}].{part}");
        let scored = self.documents.iter().filter(|document| document.score.is_some()).count();
        if scored > 0 && scored < self.documents.len() {
            let index = self.documents.iter().position(|document| document.score.is_none()).unwrap_or(0);
            return Err(InvalidInput::new(at(index, "score"), "must be set for all documents of a list, or for none"));
        }
        for (index, document) in self.documents.iter().enumerate() {
            for (part, number) in [("score", document.score), ("label", document.label)] {
                if number.is_some_and(|number| !number.is_finite()) {
                    return Err(InvalidInput::new(at(index, part), "must be a finite number"));
                }
            }
        }
        if let Some((id, _)) = self.judgements.iter().find(|(_, label)| !label.is_finite()) {
            return Err(InvalidInput::new(format!("{field}.judgements[{id:?}]"), "must be a finite number"));
        }
        if let Some(index) = self.missed.iter().position(|label| !label.is_finite()) {
            return Err(InvalidInput::new(format!("{field}.missed_labels[{index}]"), "must be a finite number"));
        }
        let by_id = !self.judgements.is_empty();
        if by_id || ties == Ties::TrecEval {
            let mut seen = HashSet::new();
            if let Some(index) = self.documents.iter().position(|document| !seen.insert(document.id.as_str())) {
                let problem = format!("{:?} stands in the list twice", self.documents[index].id);
                return Err(InvalidInput::new(at(index, "id"), problem));
            }
        }
        let own = self.documents.iter().position(|document| document.label.is_some());
        if by_id && (own.is_some() || !self.missed.is_empty()) {
            let problem = "labels come by id or with the documents, not both";
            return Err(InvalidInput::new(format!("{field}.judgements"), problem));
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

fn check_resampling(how: Option<Resampling>, values: usize) -> Result<(), InvalidInput> {
    let Some(how) = how else { return Ok(()) };
    if how.resamples > MOST_RESAMPLES {
        let problem = format!("must be at most {MOST_RESAMPLES}, is {}", how.resamples);
        return Err(InvalidInput::new("resampling.resamples", problem));
    }
    if how.resamples.saturating_mul(values) > MOST_DRAWS {
        let problem = format!("times {values} values is more than {MOST_DRAWS}");
        return Err(InvalidInput::new("resampling.resamples", problem));
    }
    if !(how.confidence > 0.0 && how.confidence < 1.0) {
        return Err(InvalidInput::new("resampling.confidence", "must lie between 0 and 1"));
    }
    Ok(())
}

/// Metrics of lists, and their means with intervals where `resampling` is given.
///
/// # Errors
/// [`InvalidInput`] with the field at fault.
pub fn evaluate_rankings(
    lists: &[List],
    metrics: &[Metric],
    grading: Grading,
    ties: Ties,
    resampling: Option<Resampling>,
) -> Result<Table, InvalidInput> {
    if lists.is_empty() {
        return Err(InvalidInput::new("queries", "must not be empty"));
    }
    if metrics.is_empty() || metrics.len() > MOST_METRICS {
        let problem = format!("must be between 1 and {MOST_METRICS}, are {}", metrics.len());
        return Err(InvalidInput::new("metrics", problem));
    }
    if !grading.threshold.is_finite() {
        return Err(InvalidInput::new("threshold", "must be a finite number"));
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
/// [`InvalidInput`] with the field at fault.
pub fn correlate(
    target: &[f64],
    series: &[(String, Vec<f64>)],
    kinds: &[Correlation],
    resampling: Option<Resampling>,
) -> Result<Vec<Vec<Correlated>>, InvalidInput> {
    let finite = |field: &str, values: &[f64]| match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(InvalidInput::new(format!("{field}[{index}]"), "must be a finite number")),
        None => Ok(()),
    };
    if target.len() < 2 {
        return Err(InvalidInput::new("target", format!("must hold at least two numbers, has {}", target.len())));
    }
    finite("target", target)?;
    if series.is_empty() {
        return Err(InvalidInput::new("series", "must not be empty"));
    }
    check_resampling(resampling, target.len() * series.len() * kinds.len())?;
    let of = |(index, (_, values)): (usize, &(String, Vec<f64>))| {
        let field = format!("series[{index}].values");
        if values.len() != target.len() {
            let problem = format!("must be as many as the target ({}), are {}", target.len(), values.len());
            return Err(InvalidInput::new(field, problem));
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
/// [`InvalidInput`] with the field at fault, also where the correlation is nowhere defined.
pub fn choose_alpha(samples: &[Sample], family: Family, correlation: Correlation) -> Result<Chosen, InvalidInput> {
    if samples.len() < 2 || samples.len() > MOST_LISTS {
        return Err(InvalidInput::new("lists", format!("must be 2 to {MOST_LISTS}, are {}", samples.len())));
    }
    for (index, sample) in samples.iter().enumerate() {
        let invalid = |part: &str, problem: &str| Err(InvalidInput::new(format!("lists[{index}].{part}"), problem));
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
        .ok_or_else(|| InvalidInput::new("lists", "the correlation is not defined: a side has no spread"))
}
