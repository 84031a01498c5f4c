//! Conversions of MetricsService between messages and domain types. Sizes are checked before anything is converted.

use prost::Message;

use super::convert_evaluate::{metric_values, metrics};
use super::convert_fit::{domain, estimate_diagnostics, paper_objective};
use super::convert_parts::{count, known, narrow};
use super::v1;
use engine::types::EngineError;
use moi::task::FitTask;
use moi::{Estimate, FitError, Observation, work};
use rag_metrics::agreement::Correlation;
use rag_metrics::input::{self, Correlated, Document, List, MOST_CORRELATIONS};
use rag_metrics::rank::summary::Table;
use rag_metrics::rank::{Grading, Metric, Ties};
use rag_metrics::recall::{Chosen, Family, Sample};
use rag_metrics::resample::{Interval, Resampling};
use rag_metrics::{InvalidInput, MetricsError};

/// Most values of one `EvaluateRanking`, queries times metrics. The response takes about 100 bytes of memory per value.
const MOST_VALUES: usize = 1_000_000;
/// Most documents, judgements and missed labels of one `EvaluateRanking`.
const MOST_ROWS: usize = 1_000_000;

/// Bytes of tags and lengths in one row, in addition to its id and values.
const ROW_OVERHEAD: usize = 12;

/// A checked request for `EvaluateRanking`.
pub struct RankingTask {
    pub ids: Vec<String>,
    pub lists: Vec<List>,
    pub metrics: Vec<Metric>,
    pub grading: Grading,
    pub ties: Ties,
    pub resampling: Option<Resampling>,
}

/// A checked request for `Correlate`.
pub struct CorrelationTask {
    pub target: Vec<f64>,
    pub series: Vec<(String, Vec<f64>)>,
    pub kinds: Vec<Correlation>,
    pub resampling: Option<Resampling>,
}

fn resampling(wire: Option<v1::Resampling>) -> Option<Resampling> {
    let (wire, default) = (wire.unwrap_or_default(), Resampling::default());
    let options = Resampling {
        resamples: wire.resamples.map_or(default.resamples, count),
        seed: wire.seed,
        confidence: wire.confidence.unwrap_or(default.confidence),
    };
    Some(options).filter(|options| options.resamples > 0)
}

fn interval(interval: Interval) -> v1::Interval {
    v1::Interval { low: interval.low, high: interval.high }
}

pub fn metrics_error(error: MetricsError) -> EngineError {
    match error {
        MetricsError::Invalid(invalid) => invalid.into(),
        // A computation is interrupted only when its call has ended. `Call::run` then reports the reason.
        MetricsError::Interrupted => EngineError::Cancelled,
    }
}

/// Refuses a request whose response could exceed the largest message, before anything is computed.
fn check_response(field: &str, bytes: usize, most: usize) -> Result<(), InvalidInput> {
    if bytes > most {
        let problem = format!("the response may need {bytes} bytes, at most {most} allowed (server.message_bytes)");
        return Err(InvalidInput::new(field, problem));
    }
    Ok(())
}

/// Refuses a request with too many values or rows, before it waits for a thread and is converted.
pub fn check_sizes(wire: &v1::EvaluateRankingRequest) -> Result<(), EngineError> {
    let (queries, metrics) = (wire.queries.len(), wire.metrics.len());
    input::check_metric_count(metrics)?;
    input::check_product("queries", queries, (metrics, "metrics"), ("values", MOST_VALUES))?;
    let rows = |query: &v1::RankedQuery| query.documents.len() + query.judgements.len() + query.missed_labels.len();
    let rows: usize = wire.queries.iter().map(rows).sum();
    if rows > MOST_ROWS {
        let problem = format!("{rows} documents, judgements and missed labels given, at most {MOST_ROWS} allowed");
        return Err(EngineError::invalid("queries", problem));
    }
    Ok(())
}

/// Converts a request that passed [`check_sizes`].
pub fn ranking_task(wire: v1::EvaluateRankingRequest, message_bytes: usize) -> Result<RankingTask, EngineError> {
    let ties = match known("tie_rule", wire.tie_rule)? {
        v1::TieRule::Unspecified | v1::TieRule::InputOrder => Ties::InputOrder,
        v1::TieRule::TrecEval => Ties::TrecEval,
    };
    let metrics = metrics(&wire.metrics)?;
    // Upper bound on the size of a row: every value is defined.
    let values = metric_values(&metrics, &vec![Some(0.0); metrics.len()]);
    let row = v1::QueryMetrics { id: String::new(), values }.encoded_len() + ROW_OVERHEAD;
    let bytes = wire.queries.iter().map(|query| row + query.id.len()).sum();
    check_response("queries", bytes, message_bytes)?;
    let document =
        |document: v1::RankedDocument| Document { id: document.id, score: document.score, label: document.label };
    let (mut ids, mut lists) = (Vec::with_capacity(wire.queries.len()), Vec::with_capacity(wire.queries.len()));
    for query in wire.queries {
        ids.push(query.id);
        lists.push(List {
            documents: query.documents.into_iter().map(document).collect(),
            judgements: query.judgements,
            missed: query.missed_labels,
        });
    }
    // Graded labels lie in [0, 1].
    let usual = if wire.graded { 0.5 } else { Grading::TREC.threshold };
    let threshold = wire.threshold.unwrap_or(usual);
    Ok(RankingTask {
        ids,
        lists,
        metrics,
        grading: Grading { threshold, graded: wire.graded },
        ties,
        resampling: resampling(wire.resampling),
    })
}

pub fn ranking_response(task: &RankingTask, table: &Table) -> v1::EvaluateRankingResponse {
    let query = |(id, values): (&String, &Vec<Option<f64>>)| v1::QueryMetrics {
        id: id.clone(),
        values: metric_values(&task.metrics, values),
    };
    let summary = task.metrics.iter().zip(&table.summary).map(|(metric, summary)| v1::MetricSummary {
        metric: metric.to_string(),
        value: summary.value,
        interval: summary.interval.map(interval),
        queries: narrow(summary.lists),
    });
    let ties = match task.ties {
        Ties::InputOrder => v1::TieRule::InputOrder,
        Ties::TrecEval => v1::TieRule::TrecEval,
    };
    v1::EvaluateRankingResponse {
        queries: task.ids.iter().zip(&table.values).map(query).collect(),
        summary: summary.collect(),
        tie_rule: ties.into(),
    }
}

fn correlation(field: &str, wire: i32) -> Result<Option<Correlation>, EngineError> {
    Ok(match known(field, wire)? {
        v1::CorrelationKind::Unspecified => None,
        v1::CorrelationKind::KendallB => Some(Correlation::KendallB),
        v1::CorrelationKind::KendallC => Some(Correlation::KendallC),
        v1::CorrelationKind::Spearman => Some(Correlation::Spearman),
        v1::CorrelationKind::Pearson => Some(Correlation::Pearson),
    })
}

pub fn correlation_task(wire: v1::CorrelateRequest, message_bytes: usize) -> Result<CorrelationTask, EngineError> {
    let most = Correlation::ALL.len();
    if wire.kinds.len() > most {
        return Err(EngineError::invalid("kinds", format!("{} given, at most {most} allowed", wire.kinds.len())));
    }
    let kind = |(index, kind): (usize, &i32)| {
        let field = format!("kinds[{index}]");
        correlation(&field, *kind)?.ok_or_else(|| EngineError::invalid(field, "must be set"))
    };
    let mut kinds: Vec<Correlation> = wire.kinds.iter().enumerate().map(kind).collect::<Result<_, _>>()?;
    if kinds.is_empty() {
        kinds = vec![Correlation::KendallB, Correlation::Spearman, Correlation::Pearson];
    }
    let correlations = ("correlations", MOST_CORRELATIONS);
    input::check_product("series", wire.series.len(), (kinds.len(), "kinds"), correlations)?;
    // Upper bound on the size of a correlation: every optional field is present.
    let largest = v1::Correlation {
        series: String::new(),
        kind: v1::CorrelationKind::Pearson.into(),
        value: Some(0.0),
        p_value: Some(0.0),
        interval: Some(v1::Interval { low: 1.0, high: 1.0 }),
        pairs: u32::MAX,
    };
    let row = largest.encoded_len() + ROW_OVERHEAD;
    let bytes = wire.series.iter().map(|series| kinds.len() * (row + series.name.len())).sum();
    check_response("series", bytes, message_bytes)?;
    Ok(CorrelationTask {
        target: wire.target,
        series: wire.series.into_iter().map(|series| (series.name, series.values)).collect(),
        kinds,
        resampling: resampling(wire.resampling),
    })
}

pub fn correlation_response(task: &CorrelationTask, rows: &[Vec<Correlated>]) -> v1::CorrelateResponse {
    let one = |name: &String, kind: &Correlation, correlated: &Correlated| v1::Correlation {
        series: name.clone(),
        kind: match kind {
            Correlation::KendallB => v1::CorrelationKind::KendallB,
            Correlation::KendallC => v1::CorrelationKind::KendallC,
            Correlation::Spearman => v1::CorrelationKind::Spearman,
            Correlation::Pearson => v1::CorrelationKind::Pearson,
        }
        .into(),
        value: correlated.agreement.map(|agreement| agreement.value),
        p_value: correlated.agreement.and_then(|agreement| agreement.p_value),
        interval: correlated.interval.map(interval),
        pairs: narrow(task.target.len()),
    };
    let rows = task.series.iter().zip(rows);
    let correlations =
        rows.flat_map(|((name, _), row)| task.kinds.iter().zip(row).map(move |(kind, value)| one(name, kind, value)));
    v1::CorrelateResponse { correlations: correlations.collect() }
}

pub fn alpha_task(wire: v1::ChooseAlphaRequest) -> Result<(Vec<Sample>, Family, Correlation), EngineError> {
    input::check_list_count(wire.lists.len())?;
    let family = match known("measure", wire.measure)? {
        v1::AlphaMeasure::Unspecified | v1::AlphaMeasure::T => Family::T,
        v1::AlphaMeasure::F => Family::F,
        v1::AlphaMeasure::Fe => Family::Fe,
        v1::AlphaMeasure::TPrime => Family::TPrime,
    };
    let sample = |list: v1::ScoredList| Sample {
        marks: list.relevant,
        k: count(list.cutoff),
        all: list.positives.map(count),
        response: list.response_score,
    };
    let correlation = correlation("correlation", wire.correlation)?.unwrap_or(Correlation::Spearman);
    Ok((wire.lists.into_iter().map(sample).collect(), family, correlation))
}

pub fn alpha_response(chosen: &Chosen) -> v1::ChooseAlphaResponse {
    v1::ChooseAlphaResponse {
        alpha: chosen.alpha,
        correlation: chosen.agreement.value,
        p_value: chosen.agreement.p_value,
        lists: narrow(chosen.samples),
    }
}

/// Bounds on the size of a `FitMoi` request; [`work::LARGEST`] bounds its computation.
const MOST_PASSAGES: u32 = 200;
const MOST_ORDERS: usize = 5_000;

pub fn fit_task(wire: v1::FitMoiRequest) -> Result<FitTask, EngineError> {
    if wire.passages > MOST_PASSAGES {
        let problem = format!("{} given, at most {MOST_PASSAGES} allowed", wire.passages);
        return Err(EngineError::invalid("passages", problem));
    }
    if wire.orders.len() > MOST_ORDERS {
        let problem = format!("{} given, at most {MOST_ORDERS} allowed", wire.orders.len());
        return Err(EngineError::invalid("orders", problem));
    }
    let order = |order: v1::ScoredOrder| Observation {
        order: order.passages.into_iter().map(count).collect(),
        score: order.score,
    };
    let task = FitTask {
        passages: count(wire.passages),
        observations: wire.orders.into_iter().map(order).collect(),
        domain: domain("score_domain", wire.score_domain, wire.softmax_temperature)?,
        paper: paper_objective("objective", wire.objective)?,
        sigma2: wire.sigma2,
        prior: Some(wire.position_prior).filter(|prior| !prior.is_empty()),
        monotone: wire.monotone,
        lam: wire.lam,
        rho: wire.rho,
        anchor: Some(wire.one_passage_scores).filter(|scores| !scores.is_empty()),
    };
    let work = task.work();
    if work > work::LARGEST {
        let problem = format!("the fit needs about {work} operations, at most {} allowed", work::LARGEST);
        return Err(EngineError::invalid("orders", problem));
    }
    Ok(task)
}

/// Replaces the field names of the fit by the names of the protocol.
pub fn fit_error(error: FitError) -> EngineError {
    let FitError::Invalid { field, problem } = error else { return error.into() };
    let field = match field.split_once('[') {
        Some(("permutations", rest)) => match rest.split_once("][") {
            Some((order, position)) => format!("orders[{order}].passages[{position}"),
            None => format!("orders[{rest}"),
        },
        Some(("scores", rest)) => format!("orders[{rest}.score"),
        _ => match field.as_str() {
            "n" => "passages".into(),
            "permutations" => "orders".into(),
            "a0" => "position_prior".into(),
            "anchor" => "one_passage_scores".into(),
            _ => field,
        },
    };
    EngineError::Invalid { field, problem }
}

pub fn fit_response(fitted: Estimate) -> v1::FitMoiResponse {
    let diagnostics = estimate_diagnostics(&fitted);
    v1::FitMoiResponse {
        utilities: fitted.utilities,
        standard_errors: fitted.standard_errors.unwrap_or_default(),
        ranking: fitted.ranking.into_iter().map(narrow).collect(),
        outranks_next: fitted.outranks_next,
        position_bias: fitted.bias.into_iter().next().map(|weights| v1::PositionBias { weights }),
        diagnostics: Some(diagnostics),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_of_minutes_is_refused_before_it_begins() {
        let request = |passages: u32, orders: usize| {
            let order = v1::ScoredOrder { passages: (0..passages).collect(), score: -1.0 };
            v1::FitMoiRequest { passages, orders: vec![order; orders], ..v1::FitMoiRequest::default() }
        };
        assert!(fit_task(request(100, 300)).is_ok());
        let error = fit_task(request(200, 5_000)).unwrap_err();
        assert!(error.to_string().starts_with("orders: the fit needs about"), "{error}");
        assert!(fit_task(request(201, 1)).unwrap_err().to_string().starts_with("passages: 201 given"));
    }
}
