//! Summary of all lines: means with intervals, correlations, comparisons and curves.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use super::Plan;
use super::line::{Line, Ranked};
use crate::study::journal::Entry;
use crate::study::mean::{Gain, Mean, mean_of};
use crate::study::warned::{self, Warned};
use crate::study::{Refused, Results};
use engine::types::Annotator;
use numeric::{mean, real, rounded};
use rag_metrics::agreement::Correlation;
use rag_metrics::input::correlated;
use rag_metrics::never;
use rag_metrics::resample::Statistics;

/// Bars of the histogram of DeltaSePer over [-1, 1].
const BARS: usize = 20;

/// The mean of one number of a system.
#[derive(Debug, Serialize)]
pub struct Row {
    pub annotator: &'static str,
    /// `None` for the end-to-end score and the cost.
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
    /// Tokens and seconds per question, if each system was asked by itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cost: Vec<Row>,
    /// Origins of the order of the end-to-end prompts; empty without such answers.
    pub contexts: Vec<ContextOrder>,
    pub rerank_tokens: u64,
}

/// Questions whose end-to-end prompt has an order of this origin.
#[derive(Debug, Serialize)]
pub struct ContextOrder {
    /// As in the results: "given", "descending", "by position bias" and so on.
    pub order: String,
    pub questions: usize,
    /// Questions among these with a context that differs from the ranking.
    pub differing: usize,
}

/// A correlation coefficient, its p-value and its interval.
#[derive(Debug, Serialize)]
pub struct Coefficient {
    pub p_value: Option<f64>,
    #[serde(flatten)]
    pub mean: Mean,
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
    #[serde(flatten)]
    pub gain: Gain,
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
    pub failed: Vec<Refused>,
    pub systems: Vec<System>,
    pub correlations: Vec<Study>,
    pub comparisons: Vec<Comparison>,
    pub delta_seper: Vec<Histogram>,
    pub utility_by_rank: Vec<Curve>,
    pub position_bias: Vec<Bias>,
    /// Warnings of each system's rankings, and of labels and answers.
    pub warned: Vec<Warned>,
    pub cost: Cost,
}

/// The rows of one system.
struct Column<'a> {
    name: &'a str,
    rows: Vec<&'a Ranked>,
    /// Seconds of each row, if each system was asked by itself.
    seconds: Vec<Option<f64>>,
}

/// A metric over the labels of an annotator, or without a metric a score of the end-to-end answer or a cost.
type Number<'a> = (&'static str, Option<&'a String>);

/// Names of the costs: less is better.
pub(super) const COSTS: [&str; 2] = ["tokens", "seconds"];

impl<'a> Column<'a> {
    fn new(name: &'a str, results: &'a Results<Line>) -> Self {
        let row = |entry: &'a Entry<Line>| {
            let seconds = results.timings.get(&entry.id).and_then(|timing| timing.times.get(name)?.as_f64());
            Some((entry.value.as_ref()?.systems.get(name)?, seconds))
        };
        let (rows, seconds) = results.entries.iter().filter_map(row).unzip();
        Self { name, rows, seconds }
    }

    /// A number of every question.
    fn values(&self, (name, metric): Number<'_>) -> Vec<Option<f64>> {
        let tokens = |row: &&Ranked| Some(real(usize::try_from(row.tokens()).unwrap_or(usize::MAX)));
        match name {
            "tokens" => self.rows.iter().map(tokens).collect(),
            "seconds" => self.seconds.clone(),
            _ => self.rows.iter().map(|row| row.number(name, metric.map(String::as_str))).collect(),
        }
    }
}

impl Summary {
    /// Tokens of all rerankings, which [`Cost`] leaves out.
    pub fn rerank_tokens(&self) -> u64 {
        self.systems.iter().map(|system| system.rerank_tokens).sum()
    }

    /// Summarises the results.
    pub fn new(plan: &Plan, results: &Results<Line>) -> Self {
        let statistics = &plan.settings.statistics;
        let good: Vec<&Line> = results.entries.iter().filter_map(|entry| entry.value.as_ref()).collect();
        let columns: Vec<Column<'_>> = plan.systems.iter().map(|name| Column::new(name, results)).collect();
        let metrics: Vec<String> = plan.metrics.iter().map(ToString::to_string).collect();
        let targets = plan.answer_scores();
        let over_labels =
            || plan.annotators.iter().flat_map(|one| metrics.iter().map(move |metric| (one.name(), metric)));
        let costs = if plan.settings.answers_only { &COSTS[..] } else { &[] };
        // The numbers of a system: metrics by annotator, then end-to-end scores, then costs.
        let numbers: Vec<Number<'_>> = over_labels()
            .map(|(annotator, metric)| (annotator, Some(metric)))
            .chain(targets.iter().chain(costs).map(|name| (*name, None)))
            .collect();
        let system = |column: &Column<'_>| {
            let row = |number: &Number<'_>| Row {
                annotator: number.0,
                metric: number.1.cloned(),
                mean: mean_of(column.values(*number), statistics),
            };
            let rows: Vec<Row> = numbers.par_iter().map(row).collect();
            let (metrics, rows): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(|row| row.metric.is_some());
            let (cost, end_to_end) = rows.into_iter().partition(|row| COSTS.contains(&row.annotator));
            System {
                name: column.name.to_owned(),
                metrics,
                end_to_end,
                cost,
                contexts: if plan.end_to_end { context_orders(column) } else { Vec::new() },
                rerank_tokens: column.rows.iter().map(|row| row.rerank_tokens).sum(),
            }
        };
        let studies = |column: &Column<'_>| {
            let all: Vec<_> = over_labels().flat_map(|one| targets.iter().map(move |target| (one, *target))).collect();
            all.par_iter().map(|(one, target)| studied(column, *one, target, statistics)).collect::<Vec<Study>>()
        };
        let compare = |column: &Column<'_>| {
            let one = |number: &Number<'_>| {
                let both = columns[0].values(*number).into_iter().zip(column.values(*number));
                let (first, second): (Vec<f64>, Vec<f64>) =
                    both.filter_map(|(first, second)| first.zip(second)).unzip();
                let gain = Gain::new(&statistics.compare(&first, &second), None);
                let (wins, losses) = (gain.wins, gain.losses);
                let less_is_better = COSTS.contains(&number.0);
                let gain = if less_is_better { Gain { wins: losses, losses: wins, ..gain } } else { gain };
                Difference { annotator: number.0, metric: number.1.cloned(), gain }
            };
            Comparison {
                system: column.name.to_owned(),
                against: columns[0].name.to_owned(),
                test: statistics.test.name(),
                differences: numbers.par_iter().map(one).collect(),
            }
        };
        let warned =
            |column: &Column<'_>| warned::of(column.name, column.rows.iter().map(|row| row.warnings.as_slice()));
        let timings = results.entries.iter().filter_map(|entry| results.timings.get(&entry.id));
        let timed: Vec<f64> = timings.map(|timing| timing.seconds).collect();
        Self {
            questions: results.entries.len(),
            evaluated: good.len(),
            failed: results.refused(),
            systems: columns.iter().map(system).collect(),
            correlations: columns.iter().flat_map(studies).collect(),
            comparisons: columns.iter().skip(1).map(compare).collect(),
            delta_seper: plan.annotators.iter().filter(|a| a.is_delta()).filter_map(|a| histogram(*a, &good)).collect(),
            utility_by_rank: columns
                .iter()
                .filter(|_| !plan.settings.answers_only)
                .flat_map(|column| plan.annotators.iter().map(|annotator| curve(column, *annotator, &good)))
                .collect(),
            position_bias: columns.iter().flat_map(bias).collect(),
            warned: columns
                .iter()
                .flat_map(warned)
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

fn studied(
    column: &Column<'_>,
    (annotator, metric): (&'static str, &String),
    target: &'static str,
    statistics: &Statistics,
) -> Study {
    let both = column.values((annotator, Some(metric))).into_iter().zip(column.values((target, None)));
    let tied = both.filter_map(|(left, right)| Some((rounded(left?), rounded(right?))));
    let (left, right): (Vec<f64>, Vec<f64>) = tied.unzip();
    let coefficient = |kind: Correlation| {
        let found = correlated(kind, &left, &right, statistics.correlation_intervals(), &never);
        let value = found.agreement.map(|agreement| agreement.value);
        let p_value = found.agreement.and_then(|agreement| agreement.p_value);
        Coefficient { p_value, mean: Mean::new(value, found.interval, left.len()) }
    };
    Study {
        system: column.name.to_owned(),
        annotator,
        metric: metric.clone(),
        target,
        questions: left.len(),
        kendall_tau_b: coefficient(Correlation::KendallB),
        spearman_rho: coefficient(Correlation::Spearman),
        pearson_r: coefficient(Correlation::Pearson),
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
            by_rank[rank].extend(labels.get(*index));
        }
    }
    Curve {
        system: column.name.to_owned(),
        annotator: annotator.name(),
        questions: by_rank.iter().map(Vec::len).collect(),
        by_rank: by_rank.iter().map(|labels| mean(labels)).collect(),
    }
}

/// Origins of the order of a system's end-to-end prompts.
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
