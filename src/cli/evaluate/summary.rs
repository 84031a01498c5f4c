//! All lines of a results file as one: means with intervals, correlations, comparisons, curves.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use super::Task;
use super::line::{Line, Ranked};
use crate::cli::metrics::StatisticsArgs;
use crate::cli::output;
use crate::engine::evaluate::Annotator;
use crate::metrics::agreement::Correlation;
use crate::metrics::input::correlated;
use crate::metrics::resample::{Compared, mean_interval};
use crate::numeric::{mean, real};

/// Bars of the histogram of DeltaSePer over [-1, 1].
const BARS: usize = 20;

/// A mean over questions.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Mean {
    pub value: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub questions: usize,
}

/// One of a system's numbers.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub annotator: &'static str,
    /// Absent for the score of the answer from the whole list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    #[serde(flatten)]
    pub mean: Mean,
}

#[derive(Debug, Serialize)]
pub(super) struct System {
    pub name: String,
    pub metrics: Vec<Row>,
    pub end_to_end: Vec<Row>,
    pub rerank_tokens: u64,
}

/// A coefficient with what supports it.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Coefficient {
    pub value: Option<f64>,
    pub p_value: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

/// How far a metric over an annotator's labels agrees with the quality of the answer from the whole list.
#[derive(Debug, Serialize)]
pub(super) struct Study {
    pub system: String,
    pub annotator: &'static str,
    pub metric: String,
    pub target: &'static str,
    pub questions: usize,
    pub kendall_tau_b: Coefficient,
    pub spearman_rho: Coefficient,
    pub pearson_r: Coefficient,
}

/// Two systems by one number.
#[derive(Debug, Serialize)]
pub(super) struct Difference {
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
pub(super) struct Comparison {
    pub system: String,
    pub against: String,
    pub test: &'static str,
    pub differences: Vec<Difference>,
}

/// Mean label at each rank.
#[derive(Debug, Serialize)]
pub(super) struct Curve {
    pub system: String,
    pub annotator: &'static str,
    pub by_rank: Vec<f64>,
    /// Questions whose list is so long.
    pub questions: Vec<usize>,
}

#[derive(Debug, Serialize)]
pub(super) struct Histogram {
    pub annotator: &'static str,
    /// Ends of the bars: one more than there are counts.
    pub edges: Vec<f64>,
    pub counts: Vec<usize>,
    pub mean: f64,
}

/// Mean fitted position weights of lists of one length.
#[derive(Debug, Serialize)]
pub(super) struct Bias {
    pub system: String,
    pub weights: Vec<f64>,
    pub questions: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct Failed {
    pub id: String,
    pub error: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Cost {
    pub tokens: u64,
    pub naive_tokens: u64,
    pub judged_pairs: u64,
    pub seconds: f64,
    /// Questions whose seconds are known.
    pub timed: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub questions: usize,
    pub evaluated: usize,
    pub failed: Vec<Failed>,
    pub systems: Vec<System>,
    pub correlations: Vec<Study>,
    pub comparisons: Vec<Comparison>,
    pub delta_seper: Vec<Histogram>,
    pub utility_by_rank: Vec<Curve>,
    pub position_bias: Vec<Bias>,
    pub cost: Cost,
}

/// The evaluated questions of one system.
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
    pub fn new(task: &Task, lines: &[Line], seconds: &BTreeMap<String, f64>, statistics: &StatisticsArgs) -> Self {
        let good: Vec<&Line> = lines.iter().filter(|line| line.error.is_none()).collect();
        let columns: Vec<Column<'_>> = task
            .systems
            .iter()
            .map(|name| Column { name, rows: good.iter().filter_map(|line| line.systems.get(name)).collect() })
            .collect();
        let metrics: Vec<String> = task.metrics.iter().map(ToString::to_string).collect();
        let targets: Vec<Annotator> =
            task.annotators.iter().copied().filter(|a| task.end_to_end && a.scores_answers()).collect();
        // Every number a system has: metrics by annotator, then the end-to-end scores.
        let numbers: Vec<(Annotator, Option<&String>)> = task
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
                mean: meant(&values(column, *number), statistics),
            };
            let (with, without): (Vec<Row>, Vec<Row>) =
                numbers.par_iter().map(row).collect::<Vec<Row>>().into_iter().partition(|row| row.metric.is_some());
            System {
                name: column.name.to_owned(),
                metrics: with,
                end_to_end: without,
                rerank_tokens: column.rows.iter().map(|row| row.rerank_tokens).sum(),
            }
        };
        let study = |column: &Column<'_>| {
            let pairs =
                task.annotators.iter().flat_map(|annotator| metrics.iter().map(move |metric| (*annotator, metric)));
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
                test: statistics.test_name(),
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
            delta_seper: task.annotators.iter().filter(|a| a.is_delta()).filter_map(|a| histogram(*a, &good)).collect(),
            utility_by_rank: columns
                .iter()
                .flat_map(|column| task.annotators.iter().map(|annotator| curve(column, *annotator, &good)))
                .collect(),
            position_bias: columns.iter().flat_map(bias).collect(),
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

fn meant(values: &[Option<f64>], statistics: &StatisticsArgs) -> Mean {
    let values: Vec<f64> = values.iter().flatten().copied().collect();
    let interval = statistics.intervals().and_then(|how| mean_interval(&values, how));
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
    statistics: &StatisticsArgs,
) -> Study {
    let both = column.metric(annotator, metric).into_iter().zip(column.end_to_end(target));
    let (left, right): (Vec<f64>, Vec<f64>) = both.filter_map(|(left, right)| left.zip(right)).unzip();
    let coefficient = |kind: Correlation| {
        let found = correlated(kind, &left, &right, statistics.correlation_intervals());
        Coefficient {
            value: found.agreement.map(|agreement| agreement.value),
            p_value: found.agreement.and_then(|agreement| agreement.p_value),
            low: found.interval.map(|interval| interval.low),
            high: found.interval.map(|interval| interval.high),
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

/// Fits of several lengths cannot be averaged, so each length has its own curve.
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

/// The means for people at a terminal.
pub(super) fn table(summary: &Summary) -> String {
    let names: Vec<&str> = summary.systems.iter().map(|system| system.name.as_str()).collect();
    let mut table = output::table(&[&["labels", "metric"][..], &names].concat());
    let number = |mean: &Mean| match (mean.value, mean.low, mean.high) {
        (Some(value), Some(low), Some(high)) => format!("{value:.3} [{low:.3}, {high:.3}]"),
        (Some(value), ..) => format!("{value:.3}"),
        (None, ..) => "–".to_owned(),
    };
    let rows = |pick: fn(&System) -> &Vec<Row>| {
        let count = summary.systems.first().map_or(0, |system| pick(system).len());
        (0..count).map(move |at| summary.systems.iter().map(move |system| &pick(system)[at]).collect::<Vec<&Row>>())
    };
    for row in rows(|system| &system.metrics).chain(rows(|system| &system.end_to_end)) {
        let metric = row[0].metric.clone().unwrap_or_else(|| "end to end".to_owned());
        let cells = row.iter().map(|row| number(&row.mean));
        table.add_row([row[0].annotator.to_owned(), metric].into_iter().chain(cells).collect::<Vec<_>>());
    }
    let cost = &summary.cost;
    format!(
        "{table}\n{} of {} questions evaluated; {} tokens ({:.1} times as many without shared beginnings), {:.0} s\n",
        summary.evaluated,
        summary.questions,
        cost.tokens,
        real(usize::try_from(cost.naive_tokens).unwrap_or(0)) / real(usize::try_from(cost.tokens).unwrap_or(0).max(1)),
        cost.seconds,
    )
}
