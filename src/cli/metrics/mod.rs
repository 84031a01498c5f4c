//! `rerankd metrics`

mod show;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rayon::prelude::*;

use super::{Failure, input, output};
use files::Warnings;
use files::trec::{self, Judgements, Run};
use rag_metrics::rank::summary::{Table, evaluate};
use rag_metrics::rank::{Grading, Metric, Ranking, Ties};
use rag_metrics::resample::{Compared, Statistics, Test};
use rag_metrics::{never, quoted};

/// Compute rank metrics of runs from judgements, as trec_eval does.
///
/// Judgements and runs are TREC files, BEIR's tab-separated judgements, or JSON objects of objects; all may be gzipped.
/// Metrics have the names of ir-measures (nDCG@10), trec_eval (ndcg_cut.5,10; official) or ranx (ndcg@10). Given several runs,
/// the command compares each with the first, query by query. No model is needed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rerankd metrics qrels.txt bm25.run -m nDCG@10 -m AP\n  \
                        rerankd metrics qrels.txt bm25.run moi.run --format json\n  \
                        rerankd metrics qrels.txt bm25.run -m official --format trec")]
pub(super) struct MetricsArgs {
    /// File of judgements.
    #[arg(value_name = "QRELS")]
    judgements: PathBuf,
    /// Files of runs.
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// A metric, or trec_eval's `official`; may be repeated. Default: nDCG@10, AP, RR, P@10, R@100.
    #[arg(short, long = "metric", value_name = "METRIC")]
    metric: Vec<String>,
    /// Show the metrics of every query, too.
    #[arg(short = 'q', long)]
    per_query: bool,
    /// Count judged queries without results as 0 instead of leaving them out. Always on for several runs.
    #[arg(short, long)]
    complete: bool,
    /// Least label of a relevant document.
    #[arg(short = 'l', long, value_name = "LABEL", default_value_t = 1.0, allow_negative_numbers = true)]
    level: f64,
    /// Read only the first N documents of each list.
    #[arg(short = 'M', long, value_name = "DOCUMENTS")]
    depth: Option<usize>,
    /// Order of documents with the same score.
    #[arg(long, value_enum, default_value_t = TieName::Trec)]
    ties: TieName,
    #[command(flatten)]
    statistics: StatisticsArgs,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// Options of intervals and p-values, shared with `evaluate`.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct StatisticsArgs {
    /// Resamples of intervals of means, a fifth as many for correlations; 0 for no intervals.
    #[arg(long, default_value_t = 1000)]
    resamples: usize,
    /// Resamples of p-values, and of intervals of differences; 0 for neither.
    #[arg(long, default_value_t = 10_000)]
    test_resamples: usize,
    /// Confidence of intervals.
    #[arg(long, default_value_t = 0.95)]
    confidence: f64,
    /// Test of differences.
    #[arg(long, value_enum, default_value_t = TestName::Randomisation)]
    test: TestName,
    /// Seed of the resamples.
    #[arg(long, default_value_t = 0)]
    statistics_seed: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TestName {
    Randomisation,
    Bootstrap,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TieName {
    /// As in trec_eval: scores in single precision; equal scores by descending id.
    Trec,
    /// In the order of the file; a JSON run, which has no order, by id.
    Input,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Csv,
    /// trec_eval's layout.
    Trec,
}

impl StatisticsArgs {
    /// The checked options.
    pub fn statistics(&self) -> Result<Statistics, Failure> {
        let statistics = Statistics {
            resamples: self.resamples,
            test_resamples: self.test_resamples,
            confidence: self.confidence,
            test: match self.test {
                TestName::Randomisation => Test::Randomisation,
                TestName::Bootstrap => Test::Bootstrap,
            },
            seed: self.statistics_seed,
        };
        statistics.check().map_err(|error| Failure::Input(error.to_string()))?;
        Ok(statistics)
    }
}

/// The metrics of one run.
struct Evaluated {
    name: String,
    queries: Vec<String>,
    table: Table,
    /// Judged queries without results.
    missing: usize,
    /// Queries without judgements.
    unjudged: usize,
}

/// The runs and their comparisons.
struct Report {
    metrics: Vec<Metric>,
    runs: Vec<Evaluated>,
    /// For each later run its comparison with the first, by metric; `None` for metrics that are not a mean.
    compared: Vec<Vec<Option<Compared>>>,
    complete: bool,
    per_query: bool,
    ties: &'static str,
    test: &'static str,
}

impl MetricsArgs {
    /// True if judged queries without results count. Runs are compared on the same queries.
    fn complete(&self) -> bool {
        self.complete || self.runs.len() > 1
    }
}

pub(super) fn run(args: &MetricsArgs) -> Result<(), Failure> {
    let statistics = args.statistics.statistics()?;
    if !args.level.is_finite() {
        return Err(Failure::Input("--level: must be a finite number".to_owned()));
    }
    let metrics = metrics(&args.metric)?;
    let text = input::read(&args.judgements)?;
    let mut warnings = Warnings::default();
    let judged = trec::judgements(&text, &args.judgements, &mut warnings)?;
    let mut runs = Vec::with_capacity(args.runs.len());
    for path in &args.runs {
        let text = input::read(path)?;
        let run = trec::run(&text, path, &mut warnings)?;
        if let Some(problem) = trec::unmatched(&judged, &run) {
            warnings.of_file(path, &problem);
        }
        runs.push(evaluated(args, &metrics, &judged, &run, &statistics)?);
    }
    output::warn(&warnings);
    distinguish(&mut runs, &args.runs);
    let column =
        |run: &Evaluated, at: usize| -> Vec<Option<f64>> { run.table.values.iter().map(|row| row[at]).collect() };
    let compared = runs.iter().skip(1).map(|run| {
        let of = |(at, metric): (usize, &Metric)| {
            // A metric may be undefined for a query, Fe@K for a list shorter than 2K.
            let both =
                column(&runs[0], at).into_iter().zip(column(run, at)).filter_map(|(first, second)| first.zip(second));
            let (first, second): (Vec<f64>, Vec<f64>) = both.unzip();
            let same = runs[0].queries == run.queries && !first.is_empty();
            (metric.is_mean() && same).then(|| statistics.compare(&first, &second))
        };
        metrics.par_iter().enumerate().map(of).collect()
    });
    let report = Report {
        compared: compared.collect(),
        metrics,
        runs,
        complete: args.complete(),
        per_query: args.per_query,
        ties: match args.ties {
            TieName::Trec => "trec_eval",
            TieName::Input => "input order",
        },
        test: statistics.test.name(),
    };
    for run in &report.runs {
        note(run, report.complete);
    }
    match args.format {
        Format::Table => output::print(&show::table(&report)),
        Format::Json => output::json(&show::json(&report)),
        Format::Csv => output::print(&show::csv(&report)?),
        Format::Trec => {
            let names = report.runs.iter().flat_map(|run| run.queries.iter().chain([&run.name]));
            let broken = |name: &&String| name.contains(['\t', '\n', '\r']);
            if let Some(name) = names.into_iter().find(broken) {
                let problem = format!("has no place for the tab or line end in {}; --format json has", quoted(name));
                return Err(Failure::Input(format!("--format trec: {problem}")));
            }
            output::print(&show::trec(&report))
        }
    }
}

/// Reports the number of queries that were left out or counted as empty lists.
fn note(run: &Evaluated, complete: bool) {
    let (missing, unjudged) = (run.missing, run.unjudged);
    if missing > 0 {
        let what = if complete { "counted as empty lists" } else { "left out (-c counts them as empty lists)" };
        output::complain(&format!("{}: {missing} judged queries have no results and are {what}", run.name));
    }
    if unjudged > 0 {
        output::complain(&format!("{}: {unjudged} queries have no judgements and are left out", run.name));
    }
}

fn metrics(names: &[String]) -> Result<Vec<Metric>, Failure> {
    let default = ["nDCG@10", "AP", "RR", "P@10", "R@100"].map(str::to_owned);
    let names = if names.is_empty() { &default[..] } else { names };
    let lists: Result<Vec<Vec<Metric>>, _> = names.iter().map(|name| Metric::parse_all(name)).collect();
    let mut metrics: Vec<Metric> = Vec::new();
    // `-m official -m AP` names AP twice.
    for metric in lists.map_err(|error| Failure::Input(error.to_string()))?.concat() {
        if !metrics.contains(&metric) {
            metrics.push(metric);
        }
    }
    Ok(metrics)
}

fn evaluated(
    args: &MetricsArgs,
    metrics: &[Metric],
    judged: &Judgements<'_>,
    run: &Run<'_>,
    statistics: &Statistics,
) -> Result<Evaluated, Failure> {
    let ties = match args.ties {
        TieName::Trec => Ties::TrecEval,
        TieName::Input => Ties::InputOrder,
    };
    let depth = args.depth.unwrap_or(usize::MAX);
    let mut lists: Vec<(&str, &[(&str, f64)])> =
        run.queries.iter().filter(|(query, _)| judged.contains_key(query)).map(|(q, d)| (*q, &d[..])).collect();
    let unjudged = run.queries.len() - lists.len();
    if lists.is_empty() {
        return Err(Failure::Input(format!("{}: no query of the run has judgements", run.tag)));
    }
    let missing = judged.len() - lists.len();
    if args.complete() && missing > 0 {
        let listed: std::collections::HashSet<&str> = lists.iter().map(|(query, _)| *query).collect();
        lists.extend(judged.keys().filter(|query| !listed.contains(*query)).map(|query| (*query, &[][..])));
    }
    // trec_eval's order, which is the same for all runs.
    lists.sort_by_key(|(query, _)| *query);
    let none = trec::Labels::default();
    let rankings: Vec<Ranking> = lists
        .par_iter()
        .map(|(query, documents)| {
            let ranking = Ranking::ranked(documents, judged.get(query).unwrap_or(&none), ties);
            if depth < ranking.len() { ranking.cut(depth) } else { ranking }
        })
        .collect();
    let grading = Grading { threshold: args.level, graded: false };
    Ok(Evaluated {
        name: run.tag.clone(),
        queries: lists.iter().map(|(query, _)| (*query).to_owned()).collect(),
        table: evaluate(metrics, &rankings, grading, statistics.intervals(), &never),
        missing,
        unjudged,
    })
}

/// Names runs with the same tag by their files, and numbers them if the file names are equal, too.
fn distinguish(runs: &mut [Evaluated], paths: &[PathBuf]) {
    let repeated = |runs: &[Evaluated], name: &str| runs.iter().filter(|run| run.name == name).count() > 1;
    let by_file: Vec<bool> = runs.iter().map(|run| repeated(runs, &run.name)).collect();
    for ((run, path), _) in runs.iter_mut().zip(paths).zip(by_file).filter(|(_, by_file)| *by_file) {
        run.name = input::stem(path);
    }
    let by_number: Vec<bool> = runs.iter().map(|run| repeated(runs, &run.name)).collect();
    for (number, (run, _)) in runs.iter_mut().zip(by_number).enumerate().filter(|(_, (_, again))| *again) {
        run.name = format!("{} {}", run.name, number + 1);
    }
}
