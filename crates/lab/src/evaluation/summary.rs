//! Summary of all lines: means with intervals, correlations, comparisons and curves.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use super::Plan;
use super::line::{Line, Ranked};
use super::warned::{self, Warned};
use engine::evaluate::Annotator;
use numeric::{mean, real, rounded};
use rag_metrics::agreement::Correlation;
use rag_metrics::input::correlated;
use rag_metrics::never;
use rag_metrics::resample::{Compared, Statistics, mean_interval};

/// Bars of the histogram of DeltaSePer over [-1, 1].
const BARS: usize = 20;

/// A mean over questions.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Mean {
    pub value: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub questions: usize,
}

/// The mean of one number of a system.
#[derive(Debug, Serialize)]
pub struct Row {
    pub annotator: &'static str,
    /// `None` for the end-to-end score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    #[serde(flatten)]
    pub mean: Mean,
}

#[derive(Debug, Serialize)]
pub struct System {
    pub name: String,
    pub metrics: Vec<Row>,
    pub end_to_end: Vec<Row>,
    /// Where the prompts of the end-to-end answers take their order from; empty without such answers.
    pub contexts: Vec<ContextOrder>,
    pub rerank_tokens: u64,
}

/// Questions whose end-to-end prompt has an order of this origin.
#[derive(Debug, Serialize)]
pub struct ContextOrder {
    /// As in the results: "given", "descending", "by position bias" and so on.
    pub order: String,
    pub questions: usize,
    /// Questions of those whose context differs from the ranking.
    pub differing: usize,
}

/// A correlation coefficient, its p-value and its interval.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Coefficient {
    pub value: Option<f64>,
    pub p_value: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

/// Correlation of a metric over an annotator's labels with the quality of the end-to-end answer.
#[derive(Debug, Serialize)]
pub struct Study {
    pub system: String,
    pub annotator: &'static str,
    pub metric: String,
    pub target: &'static str,
    pub questions: usize,
    pub kendall_tau_b: Coefficient,
    pub spearman_rho: Coefficient,
    pub pearson_r: Coefficient,
}

/// The difference of two systems in one number.
#[derive(Debug, Serialize)]
pub struct Difference {
    pub annotator: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    pub difference: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub p_value: Option<f64>,
    pub wins: usize,
    pub ties: usize,
    pub losses: usize,
}

#[derive(Debug, Serialize)]
pub struct Comparison {
    pub system: String,
    pub against: String,
    pub test: &'static str,
    pub differences: Vec<Difference>,
}

/// Mean label at each rank.
#[derive(Debug, Serialize)]
pub struct Curve {
    pub system: String,
    pub annotator: &'static str,
    pub by_rank: Vec<f64>,
    /// Questions whose list reaches each rank.
    pub questions: Vec<usize>,
}

#[derive(Debug, Serialize)]
pub struct Histogram {
    pub annotator: &'static str,
    /// Limits of the bars, one more than counts.
    pub edges: Vec<f64>,
    pub counts: Vec<usize>,
    pub mean: f64,
}

/// Mean fitted position weights of lists of the same length.
#[derive(Debug, Serialize)]
pub struct Bias {
    pub system: String,
    pub weights: Vec<f64>,
    pub questions: usize,
}

#[derive(Debug, Serialize)]
pub struct Failed {
    pub id: String,
    pub error: String,
}

#[derive(Debug, Serialize)]
pub struct Cost {
    pub tokens: u64,
    pub naive_tokens: u64,
    pub judged_pairs: u64,
    pub seconds: f64,
    /// Questions with a recorded time.
    pub timed: usize,
}

#[derive(Debug, Serialize)]
pub struct Summary {
    pub questions: usize,
    pub evaluated: usize,
    pub failed: Vec<Failed>,
    pub systems: Vec<System>,
    pub correlations: Vec<Study>,
    pub comparisons: Vec<Comparison>,
    pub delta_seper: Vec<Histogram>,
    pub utility_by_rank: Vec<Curve>,
    pub position_bias: Vec<Bias>,
    /// What the rankings of each system warned of, and what labels and answers did.
    pub warned: Vec<Warned>,
    pub cost: Cost,
}

/// The rows of one system.
struct Column<'a> {
    name: &'a str,
    rows: Vec<&'a Ranked>,
}

impl Column<'_> {
    fn metric(&self, annotator: Annotator, metric: &str) -> Vec<Option<f64>> {
        self.rows.iter().map(|row| row.metrics.get(annotator.name())?.get(metric).copied().flatten()).collect()
    }

    fn end_to_end(&self, annotator: Annotator) -> Vec<Option<f64>> {
        self.rows.iter().map(|row| row.end_to_end.get(annotator.name()).copied()).collect()
    }
}

impl Summary {
    /// Tokens of all rerankings, which [`Cost`] leaves out.
    pub fn rerank_tokens(&self) -> u64 {
        self.systems.iter().map(|system| system.rerank_tokens).sum()
    }

    /// Summarises the lines; `seconds` are those of each question by id.
    pub fn new(plan: &Plan, lines: &[Line], seconds: &BTreeMap<String, f64>) -> Self {
        let statistics = &plan.settings.statistics;
        let good: Vec<&Line> = lines.iter().filter(|line| line.error.is_none()).collect();
        let columns: Vec<Column<'_>> = plan
            .systems
            .iter()
            .map(|name| Column { name, rows: good.iter().filter_map(|line| line.systems.get(name)).collect() })
            .collect();
        let metrics: Vec<String> = plan.metrics.iter().map(ToString::to_string).collect();
        let targets: Vec<Annotator> =
            plan.annotators.iter().copied().filter(|a| plan.end_to_end && a.scores_answers()).collect();
        // The numbers of a system: metrics by annotator, then end-to-end scores.
        let numbers: Vec<(Annotator, Option<&String>)> = plan
            .annotators
            .iter()
            .flat_map(|annotator| metrics.iter().map(move |metric| (*annotator, Some(metric))))
            .chain(targets.iter().map(|target| (*target, None)))
            .collect();
        let values = |column: &Column<'_>, (annotator, metric): (Annotator, Option<&String>)| match metric {
            Some(metric) => column.metric(annotator, metric),
            None => column.end_to_end(annotator),
        };
        let system = |column: &Column<'_>| {
            let row = |number: &(Annotator, Option<&String>)| Row {
                annotator: number.0.name(),
                metric: number.1.cloned(),
                mean: mean_of(&values(column, *number), statistics),
            };
            let (metrics, end_to_end): (Vec<Row>, Vec<Row>) =
                numbers.par_iter().map(row).collect::<Vec<Row>>().into_iter().partition(|row| row.metric.is_some());
            System {
                name: column.name.to_owned(),
                metrics,
                end_to_end,
                contexts: if plan.end_to_end { context_orders(column) } else { Vec::new() },
                rerank_tokens: column.rows.iter().map(|row| row.rerank_tokens).sum(),
            }
        };
        let study = |column: &Column<'_>| {
            let pairs =
                plan.annotators.iter().flat_map(|annotator| metrics.iter().map(move |metric| (*annotator, metric)));
            let all: Vec<(Annotator, &String, Annotator)> = pairs
                .flat_map(|(annotator, metric)| targets.iter().map(move |target| (annotator, metric, *target)))
                .collect();
            let one = |(annotator, metric, target): &(Annotator, &String, Annotator)| {
                studied(column, *annotator, metric, *target, statistics)
            };
            all.par_iter().map(one).collect::<Vec<Study>>()
        };
        let compare = |column: &Column<'_>| {
            let one = |number: &(Annotator, Option<&String>)| {
                let both = values(&columns[0], *number).into_iter().zip(values(column, *number));
                let (first, second): (Vec<f64>, Vec<f64>) =
                    both.filter_map(|(first, second)| first.zip(second)).unzip();
                difference(*number, &statistics.compare(&first, &second))
            };
            Comparison {
                system: column.name.to_owned(),
                against: columns[0].name.to_owned(),
                test: statistics.test.name(),
                differences: numbers.par_iter().map(one).collect(),
            }
        };
        let failed = lines.iter().filter_map(|line| Some(Failed { id: line.id.clone(), error: line.error.clone()? }));
        let timed: Vec<f64> = lines.iter().filter_map(|line| seconds.get(&line.id).copied()).collect();
        Self {
            questions: lines.len(),
            evaluated: good.len(),
            failed: failed.collect(),
            systems: columns.iter().map(system).collect(),
            correlations: columns.iter().flat_map(study).collect(),
            comparisons: columns.iter().skip(1).map(compare).collect(),
            delta_seper: plan.annotators.iter().filter(|a| a.is_delta()).filter_map(|a| histogram(*a, &good)).collect(),
            utility_by_rank: columns
                .iter()
                .flat_map(|column| plan.annotators.iter().map(|annotator| curve(column, *annotator, &good)))
                .collect(),
            position_bias: columns.iter().flat_map(bias).collect(),
            warned: columns
                .iter()
                .flat_map(|column| warned::of(column.name, column.rows.iter().map(|row| row.warnings.as_slice())))
                .chain(warned::of("labels and answers", good.iter().map(|line| line.warnings.as_slice())))
                .collect(),
            cost: Cost {
                tokens: good.iter().map(|line| line.tokens).sum(),
                naive_tokens: good.iter().map(|line| line.naive_tokens).sum(),
                judged_pairs: good.iter().map(|line| u64::from(line.judged_pairs)).sum(),
                seconds: timed.iter().sum(),
                timed: timed.len(),
            },
        }
    }
}

pub(crate) fn mean_of(values: &[Option<f64>], statistics: &Statistics) -> Mean {
    let values: Vec<f64> = values.iter().flatten().copied().collect();
    let interval = statistics.intervals().and_then(|how| mean_interval(&values, how, &never));
    Mean {
        value: (!values.is_empty()).then(|| mean(&values)),
        low: interval.map(|interval| interval.low),
        high: interval.map(|interval| interval.high),
        questions: values.len(),
    }
}

fn studied(
    column: &Column<'_>,
    annotator: Annotator,
    metric: &str,
    target: Annotator,
    statistics: &Statistics,
) -> Study {
    let both = column.metric(annotator, metric).into_iter().zip(column.end_to_end(target));
    let tied = both.filter_map(|(left, right)| Some((rounded(left?), rounded(right?))));
    let (left, right): (Vec<f64>, Vec<f64>) = tied.unzip();
    let coefficient = |kind: Correlation| {
        let correlated = correlated(kind, &left, &right, statistics.correlation_intervals(), &never);
        Coefficient {
            value: correlated.agreement.map(|agreement| agreement.value),
            p_value: correlated.agreement.and_then(|agreement| agreement.p_value),
            low: correlated.interval.map(|interval| interval.low),
            high: correlated.interval.map(|interval| interval.high),
        }
    };
    Study {
        system: column.name.to_owned(),
        annotator: annotator.name(),
        metric: metric.to_owned(),
        target: target.name(),
        questions: left.len(),
        kendall_tau_b: coefficient(Correlation::KendallB),
        spearman_rho: coefficient(Correlation::Spearman),
        pearson_r: coefficient(Correlation::Pearson),
    }
}

fn difference((annotator, metric): (Annotator, Option<&String>), compared: &Compared) -> Difference {
    Difference {
        annotator: annotator.name(),
        metric: metric.cloned(),
        difference: compared.difference,
        low: compared.interval.map(|interval| interval.low),
        high: compared.interval.map(|interval| interval.high),
        p_value: compared.p_value,
        wins: compared.wins,
        ties: compared.ties,
        losses: compared.losses,
    }
}

fn histogram(annotator: Annotator, lines: &[&Line]) -> Option<Histogram> {
    let values: Vec<f64> =
        lines.iter().filter_map(|line| line.labels.get(annotator.name())).flatten().copied().collect();
    let edge = |index: usize| -1.0 + 2.0 * real(index) / real(BARS);
    let mut counts = vec![0; BARS];
    for value in &values {
        let bar = (0..BARS).rev().find(|bar| *value >= edge(*bar)).unwrap_or(0);
        counts[bar] += 1;
    }
    let edges = (0..=BARS).map(edge).collect();
    (!values.is_empty()).then(|| Histogram { annotator: annotator.name(), edges, counts, mean: mean(&values) })
}

fn curve(column: &Column<'_>, annotator: Annotator, lines: &[&Line]) -> Curve {
    let mut by_rank: Vec<Vec<f64>> = Vec::new();
    for line in lines {
        let (Some(ranked), Some(labels)) = (line.systems.get(column.name), line.labels.get(annotator.name())) else {
            continue;
        };
        for (rank, index) in ranked.ranking.iter().enumerate() {
            if by_rank.len() <= rank {
                by_rank.push(Vec::new());
            }
            by_rank[rank].extend(usize::try_from(*index).ok().and_then(|index| labels.get(index)));
        }
    }
    Curve {
        system: column.name.to_owned(),
        annotator: annotator.name(),
        questions: by_rank.iter().map(Vec::len).collect(),
        by_rank: by_rank.iter().map(|labels| mean(labels)).collect(),
    }
}

/// Where the prompts of a system's end-to-end answers take their order from.
fn context_orders(column: &Column<'_>) -> Vec<ContextOrder> {
    let mut orders: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for row in &column.rows {
        let (questions, differing) = orders.entry(&row.context_order).or_default();
        *questions += 1;
        *differing += usize::from(row.context != row.ranking);
    }
    let order = |(order, (questions, differing)): (&str, (usize, usize))| ContextOrder {
        order: order.to_owned(),
        questions,
        differing,
    };
    orders.into_iter().map(order).collect()
}

/// Weights of different lengths cannot be averaged, so each length has its own curve.
fn bias(column: &Column<'_>) -> Vec<Bias> {
    let mut by_length: BTreeMap<usize, Vec<&[f64]>> = BTreeMap::new();
    for row in column.rows.iter().filter(|row| row.position_bias.len() > 1) {
        by_length.entry(row.position_bias.len()).or_default().push(&row.position_bias);
    }
    let averaged = |(length, fits): (usize, Vec<&[f64]>)| Bias {
        system: column.name.to_owned(),
        weights: (0..length).map(|at| mean(&fits.iter().map(|fit| fit[at]).collect::<Vec<_>>())).collect(),
        questions: fits.len(),
    };
    by_length.into_iter().map(averaged).collect()
}
