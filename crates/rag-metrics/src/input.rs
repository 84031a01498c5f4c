//! Checks lists, labels and scores from a caller before they are measured.
//!
//! Every size is checked before anything of that size is computed. The bounds here are those of the library: a table of
//! [`MOST_VALUES`] holds a million queries under 16 metrics in 256 MB. The protocol's edge sets smaller ones.

use std::collections::{HashMap, HashSet};

use super::agreement::{Agreement, Correlation};
use super::rank::summary::{Table, evaluate};
use super::rank::{Grading, Metric, Ranking, Ties};
use super::recall::{self, Chosen, Family, Sample};
use super::resample::{self, Interval, Resampling};
use super::{InvalidInput, MOST_METRICS, MetricsError, quoted};
use numeric::Interrupt;

/// Most values of one table: queries times metrics.
pub const MOST_VALUES: usize = 16_000_000;
/// Most correlations of one request: series times kinds.
pub const MOST_CORRELATIONS: usize = 100_000;
/// Most lists for choosing alpha.
pub const MOST_LISTS: usize = 100_000;
/// Most resamples of an interval.
const MOST_RESAMPLES: usize = 100_000;
/// Most draws for the intervals of means of one request: resamples times values. A draw takes about 20 ns, so these take
/// 20 s on one core.
const MOST_DRAWS: usize = 1_000_000_000;
/// Most draws for the intervals of correlations of one request: resamples times pairs times correlations. A draw takes 20 ns
/// for Pearson's r and 250 to 1000 ns for the others, which sort each resample.
const MOST_CORRELATION_DRAWS: usize = 100_000_000;

/// A document of a list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document {
    /// Its id; unique within the list if labels come by id or ties are broken by id.
    pub id: String,
    /// The score by which the list is ordered.
    pub score: Option<f64>,
    /// Its label; `None` if it was not judged, or if labels come by id.
    pub label: Option<f64>,
}

/// A query's list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct List {
    /// The documents.
    pub documents: Vec<Document>,
    /// Labels of all judged documents, by id.
    pub judgements: HashMap<String, f64>,
    /// Labels of judged documents that are not in the list, if labels do not come by id.
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
            let field = format!("{field}.judgements[{}]", quoted(id));
            return Err(InvalidInput::new(field, "must be a finite number"));
        }
        if let Some(index) = self.missed.iter().position(|label| !label.is_finite()) {
            return Err(InvalidInput::new(format!("{field}.missed_labels[{index}]"), "must be a finite number"));
        }
        let by_id = !self.judgements.is_empty();
        if by_id || ties == Ties::TrecEval {
            let mut seen = HashSet::new();
            if let Some(index) = self.documents.iter().position(|document| !seen.insert(document.id.as_str())) {
                let problem = format!("{} given twice in one list", quoted(&self.documents[index].id));
                return Err(InvalidInput::new(at(index, "id"), problem));
            }
        }
        let labelled = self.documents.iter().any(|document| document.label.is_some());
        if by_id && (labelled || !self.missed.is_empty()) {
            let problem = "must be empty where documents have labels or missed_labels is set";
            return Err(InvalidInput::new(format!("{field}.judgements"), problem));
        }
        // A list without scores keeps its order.
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

/// Refuses more than `most` values, counted as `left` times `right`, with the numbers.
///
/// # Errors
/// [`InvalidInput`] of `field`: "queries: 10 with 5 metrics are 50 values, at most 40 allowed".
pub fn check_product(
    field: &str,
    left: usize,
    (right, name): (usize, &str),
    (what, most): (&str, usize),
) -> Result<(), InvalidInput> {
    let product = left.saturating_mul(right);
    if product > most {
        let problem = format!("{left} with {right} {name} are {product} {what}, at most {most} allowed");
        return Err(InvalidInput::new(field, problem));
    }
    Ok(())
}

/// Refuses no metrics, too many, or duplicates; two names of one metric are the same metric.
///
/// # Errors
/// [`InvalidInput`] with the metric at fault.
pub fn check_metrics(metrics: &[Metric]) -> Result<(), InvalidInput> {
    check_metric_count(metrics.len())?;
    check_distinct("metrics", metrics)
}

fn check_distinct<T: PartialEq + std::fmt::Display>(field: &str, values: &[T]) -> Result<(), InvalidInput> {
    for (index, value) in values.iter().enumerate() {
        if let Some(first) = values[..index].iter().position(|other| other == value) {
            let problem = format!("{value} given twice, first as {field}[{first}]");
            return Err(InvalidInput::new(format!("{field}[{index}]"), problem));
        }
    }
    Ok(())
}

/// The part of [`check_metrics`] that needs no parsed names.
///
/// # Errors
/// [`InvalidInput`] of `metrics`.
pub fn check_metric_count(given: usize) -> Result<(), InvalidInput> {
    match given {
        0 => Err(InvalidInput::new("metrics", "must not be empty")),
        1..=MOST_METRICS => Ok(()),
        _ => Err(InvalidInput::new("metrics", format!("{given} given, at most {MOST_METRICS} allowed"))),
    }
}

fn check_resampling(how: Option<Resampling>, values: usize, most: usize) -> Result<(), InvalidInput> {
    let Some(how) = how else { return Ok(()) };
    let field = "resampling.resamples";
    if how.resamples > MOST_RESAMPLES {
        let problem = format!("{} given, at most {MOST_RESAMPLES} allowed", how.resamples);
        return Err(InvalidInput::new(field, problem));
    }
    check_product(field, how.resamples, (values, "values"), ("draws", most))?;
    if !(how.confidence > 0.0 && how.confidence < 1.0) {
        let problem = format!("must lie between 0 and 1, is {}", how.confidence);
        return Err(InvalidInput::new("resampling.confidence", problem));
    }
    Ok(())
}

fn unless_interrupted<T>(result: T, interrupt: Interrupt<'_>) -> Result<T, MetricsError> {
    if interrupt() { Err(MetricsError::Interrupted) } else { Ok(result) }
}

/// Metrics of lists, and their means, with intervals if `resampling` is set.
///
/// # Errors
/// [`MetricsError::Invalid`] with the field at fault.
pub fn evaluate_rankings(
    lists: &[List],
    metrics: &[Metric],
    (grading, ties): (Grading, Ties),
    resampling: Option<Resampling>,
    interrupt: Interrupt<'_>,
) -> Result<Table, MetricsError> {
    if lists.is_empty() {
        return Err(InvalidInput::new("queries", "must not be empty").into());
    }
    check_metrics(metrics)?;
    check_product("queries", lists.len(), (metrics.len(), "metrics"), ("values", MOST_VALUES))?;
    if !grading.threshold.is_finite() {
        return Err(InvalidInput::new("threshold", "must be a finite number").into());
    }
    check_resampling(resampling, lists.len() * metrics.len(), MOST_DRAWS)?;
    let mut rankings = Vec::with_capacity(lists.len());
    for (index, list) in lists.iter().enumerate() {
        rankings.push(list.ranking(&format!("queries[{index}]"), ties)?);
        if interrupt() {
            return Err(MetricsError::Interrupted);
        }
    }
    unless_interrupted(evaluate(metrics, &rankings, grading, resampling, interrupt), interrupt)
}

/// A correlation with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Correlated {
    /// The correlation; `None` if one side has no spread.
    pub agreement: Option<Agreement>,
    /// Bootstrap interval over the pairs.
    pub interval: Option<Interval>,
}

/// Correlations of each series with the target, by series, in the order of the kinds.
///
/// # Errors
/// [`MetricsError::Invalid`] with the field at fault.
pub fn correlate(
    target: &[f64],
    series: &[(String, Vec<f64>)],
    kinds: &[Correlation],
    resampling: Option<Resampling>,
    interrupt: Interrupt<'_>,
) -> Result<Vec<Vec<Correlated>>, MetricsError> {
    let finite = |field: &str, values: &[f64]| match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(InvalidInput::new(format!("{field}[{index}]"), "must be a finite number")),
        None => Ok(()),
    };
    if target.len() < 2 {
        let problem = format!("{} numbers given, at least 2 needed", target.len());
        return Err(InvalidInput::new("target", problem).into());
    }
    finite("target", target)?;
    if series.is_empty() {
        return Err(InvalidInput::new("series", "must not be empty").into());
    }
    check_distinct("kinds", kinds)?;
    let correlations = ("correlations", MOST_CORRELATIONS);
    check_product("series", series.len(), (kinds.len(), "kinds"), correlations)?;
    for (index, (_, values)) in series.iter().enumerate() {
        let field = format!("series[{index}].values");
        if values.len() != target.len() {
            let problem = format!("{} numbers given, the target has {}", values.len(), target.len());
            return Err(InvalidInput::new(field, problem).into());
        }
        finite(&field, values)?;
    }
    let pairs = target.len().saturating_mul(series.len() * kinds.len());
    check_resampling(resampling, pairs, MOST_CORRELATION_DRAWS)?;
    let mut rows = Vec::with_capacity(series.len());
    for (_, values) in series {
        rows.push(kinds.iter().map(|kind| correlated(*kind, values, target, resampling, interrupt)).collect());
        if interrupt() {
            return Err(MetricsError::Interrupted);
        }
    }
    Ok(rows)
}

/// One correlation with its interval. If interrupted, it has no interval.
#[must_use]
pub fn correlated(
    kind: Correlation,
    left: &[f64],
    right: &[f64],
    resampling: Option<Resampling>,
    interrupt: Interrupt<'_>,
) -> Correlated {
    let agreement = kind.of(left, right);
    let pick = |values: &[f64], indices: &[usize]| indices.iter().map(|&index| values[index]).collect::<Vec<_>>();
    let resampled = |indices: &[usize]| Some(kind.of(&pick(left, indices), &pick(right, indices))?.value);
    let interval = agreement.and_then(|_| resample::interval(left.len(), resampling?, interrupt, resampled));
    Correlated { agreement, interval }
}

/// The alpha at which a measure agrees best with response scores.
///
/// # Errors
/// [`MetricsError::Invalid`] with the field at fault, also if no alpha has a correlation.
pub fn choose_alpha(
    samples: &[Sample],
    family: Family,
    correlation: Correlation,
    interrupt: Interrupt<'_>,
) -> Result<Chosen, MetricsError> {
    check_list_count(samples.len())?;
    for (index, sample) in samples.iter().enumerate() {
        let problem = if sample.k == 0 {
            Some(("cutoff", "must be at least 1"))
        } else if !sample.response.is_finite() {
            Some(("response_score", "must be a finite number"))
        } else if family == Family::F && sample.all.is_none() {
            Some(("positives", "must be set for F"))
        } else if sample.all.is_some_and(|all| all < sample.marks.iter().filter(|is| **is).count()) {
            Some(("positives", "must be at least the number of relevant documents of the list"))
        } else {
            None
        };
        if let Some((part, problem)) = problem {
            return Err(InvalidInput::new(format!("lists[{index}].{part}"), problem).into());
        }
    }
    let chosen = unless_interrupted(recall::choose_alpha(samples, family, correlation, interrupt), interrupt)?;
    let problem = "no alpha has a correlation, because the measure or the response scores have no spread";
    Ok(chosen.ok_or_else(|| InvalidInput::new("lists", problem))?)
}

/// Refuses too few or too many lists for [`choose_alpha`].
///
/// # Errors
/// [`InvalidInput`] of `lists`.
pub fn check_list_count(given: usize) -> Result<(), InvalidInput> {
    if (2..=MOST_LISTS).contains(&given) {
        return Ok(());
    }
    Err(InvalidInput::new("lists", format!("{given} given, must be 2 to {MOST_LISTS}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::never;

    fn parsed(names: &[&str]) -> Vec<Metric> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn a_million_rows_are_evaluated() {
        let document = Document { label: Some(1.0), ..Document::default() };
        let list = List { documents: vec![document], ..List::default() };
        let lists = vec![list; 1_000_000];
        let table = evaluate_rankings(&lists, &parsed(&["P@1", "AP"]), (Grading::TREC, Ties::InputOrder), None, &never);
        assert_eq!(table.unwrap().summary[1].value, Some(1.0));
    }

    #[test]
    fn sizes_are_refused_with_both_numbers() {
        let lists = vec![List::default(); MOST_VALUES / 2 + 1];
        let asked = (Grading::TREC, Ties::InputOrder);
        let error = evaluate_rankings(&lists, &parsed(&["P@1", "AP"]), asked, None, &never).unwrap_err();
        let expected = "queries: 8000001 with 2 metrics are 16000002 values, at most 16000000 allowed";
        assert_eq!(error.to_string(), expected);
        let how = Resampling { resamples: 100_000, ..Resampling::default() };
        let series = [("s".to_owned(), vec![1.0, 2.0, 3.0])];
        let accepted = correlate(&[1.0; 3], &series, &Correlation::ALL, Some(how), &never);
        assert_eq!(accepted.map(drop), Ok(()));
        let target: Vec<f64> = vec![1.0; 1_001];
        let error = correlate(&target, &[("s".to_owned(), target.clone())], &[Correlation::Pearson], Some(how), &never);
        let expected = "resampling.resamples: 100000 with 1001 values are 100100000 draws, at most 100000000 allowed";
        assert_eq!(error.unwrap_err().to_string(), expected);
    }

    #[test]
    fn an_interrupt_ends_the_work() {
        let stop = || true;
        let lists = vec![List::default(); 2];
        let asked = (Grading::TREC, Ties::InputOrder);
        assert_eq!(
            evaluate_rankings(&lists, &parsed(&["AP"]), asked, None, &stop).unwrap_err(),
            MetricsError::Interrupted
        );
        let series = [("s".to_owned(), vec![1.0, 2.0])];
        let stopped = correlate(&[1.0, 2.0], &series, &[Correlation::Pearson], None, &stop);
        assert_eq!(stopped.unwrap_err(), MetricsError::Interrupted);
        let sample = Sample { marks: vec![true], k: 1, all: None, response: 1.0 };
        let stopped = choose_alpha(&[sample.clone(), sample], Family::T, Correlation::Pearson, &stop);
        assert_eq!(stopped.unwrap_err(), MetricsError::Interrupted);
    }
}
