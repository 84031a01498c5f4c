//! `rerankd metrics`

mod show;

pub(super) use show::p_value;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rayon::prelude::*;

use super::trec::{self, Judgements, Run};
use super::{Failure, input, once, output};
use crate::metrics::rank::summary::{Table, evaluate};
use crate::metrics::rank::{Grading, Metric, Ranking, Ties};
use crate::metrics::resample::{Compared, Resampling, Test, paired};

/// Compute rank metrics of runs from their judgements, as trec_eval does.
///
/// Judgements and runs are files of TREC (also gzipped), BEIR's tab-separated judgements, or JSON objects of objects.
/// Metrics are named as in ir-measures (nDCG@10), trec_eval (ndcg_cut.5,10; official) or ranx (ndcg@10). With several runs
/// the later ones are compared with the first, query by query. No model is needed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rerankd metrics qrels.txt bm25.run -m nDCG@10 -m AP\n  \
                        rerankd metrics qrels.txt bm25.run moi.run --format json\n  \
                        rerankd metrics qrels.txt bm25.run -m official --format trec")]
pub(super) struct MetricsArgs {
    /// Judgements.
    #[arg(value_name = "QRELS")]
    judgements: PathBuf,
    /// Runs.
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// A metric, or trec_eval's `official`; may be given again. nDCG@10, AP, RR, P@10 and R@100 where absent.
    #[arg(short, long = "metric", value_name = "METRIC")]
    metric: Vec<String>,
    /// Show every query, too.
    #[arg(short = 'q', long)]
    per_query: bool,
    /// Count judged queries without results as 0 instead of leaving them out. Always so for several runs.
    #[arg(short, long)]
    complete: bool,
    /// Least label of a relevant document.
    #[arg(short = 'l', long, value_name = "LABEL", default_value_t = 1.0, allow_negative_numbers = true)]
    level: f64,
    /// Documents of a list that count.
    #[arg(short = 'M', long, value_name = "DOCUMENTS")]
    depth: Option<usize>,
    /// How documents of one score are ordered.
    #[arg(long, value_enum, default_value_t = TieName::Trec)]
    ties: TieName,
    #[command(flatten)]
    statistics: StatisticsArgs,
    /// How the result is printed; a table on a terminal and JSON in a pipe where absent.
    #[arg(long, value_enum)]
    format: Option<Format>,
}

/// How intervals and p-values are drawn; `evaluate` takes the same.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct StatisticsArgs {
    /// Resamples of intervals, a fifth of them for correlations; 0 for none.
    #[arg(long, default_value_t = 1000)]
    resamples: usize,
    /// Resamples of p-values.
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
    /// As trec_eval: scores in single precision, of equal ones the id that sorts last first.
    Trec,
    /// As in the file.
    Input,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Csv,
    /// trec_eval's lines.
    Trec,
}

impl StatisticsArgs {
    pub fn check(&self) -> Result<(), Failure> {
        if !(self.confidence > 0.0 && self.confidence < 1.0) {
            return Err(Failure::Input(format!("--confidence: must lie between 0 and 1, is {}", self.confidence)));
        }
        for (flag, resamples) in [("--resamples", self.resamples), ("--test-resamples", self.test_resamples)] {
            if resamples > 1_000_000 {
                return Err(Failure::Input(format!("{flag}: must be at most 1000000, is {resamples}")));
            }
        }
        Ok(())
    }

    /// For intervals; `None` where none are wanted.
    pub fn intervals(&self) -> Option<Resampling> {
        let how = Resampling { resamples: self.resamples, seed: self.statistics_seed, confidence: self.confidence };
        Some(how).filter(|how| how.resamples > 0)
    }

    /// For correlations, which take longer: a fifth as many.
    pub fn correlation_intervals(&self) -> Option<Resampling> {
        self.intervals().map(|how| Resampling { resamples: how.resamples.div_ceil(5), ..how })
    }

    /// Compares values of the same queries.
    pub fn compare(&self, first: &[f64], second: &[f64]) -> Compared {
        let test = self.test();
        let drawn =
            Resampling { resamples: self.test_resamples, seed: self.statistics_seed, confidence: self.confidence };
        let compared = paired(first, second, test, drawn);
        Compared { interval: compared.interval.filter(|_| self.resamples > 0), ..compared }
    }

    pub fn test(&self) -> Test {
        match self.test {
            TestName::Randomisation => Test::Randomisation,
            TestName::Bootstrap => Test::Bootstrap,
        }
    }

    pub fn test_name(&self) -> &'static str {
        match self.test {
            TestName::Randomisation => "randomisation",
            TestName::Bootstrap => "bootstrap",
        }
    }
}

/// One run's metrics.
struct Evaluated {
    name: String,
    queries: Vec<String>,
    table: Table,
    /// Judged queries without results, and queries without judgements.
    without: (usize, usize),
}

/// All that is shown.
struct Report {
    metrics: Vec<Metric>,
    runs: Vec<Evaluated>,
    /// For each run after the first its comparison by metric; `None` for what is no mean.
    compared: Vec<Vec<Option<Compared>>>,
    complete: bool,
    per_query: bool,
    ties: &'static str,
    test: &'static str,
}

pub(super) fn run(args: &MetricsArgs) -> Result<(), Failure> {
    args.statistics.check()?;
    if !args.level.is_finite() {
        return Err(Failure::Input("--level: must be a finite number".to_owned()));
    }
    let metrics = metrics(&args.metric)?;
    let format = args.format.unwrap_or(if output::on_terminal() { Format::Table } else { Format::Json });
    let text = input::read(&args.judgements)?;
    let judged = trec::judgements(&text, &args.judgements)?;
    let complete = args.complete || args.runs.len() > 1;
    let mut runs = Vec::with_capacity(args.runs.len());
    for path in &args.runs {
        let text = input::read(path)?;
        let run = trec::run(&text, path)?;
        runs.push(evaluated(args, &metrics, &judged, &run, complete)?);
    }
    distinguish(&mut runs, &args.runs);
    let column =
        |run: &Evaluated, at: usize| -> Vec<f64> { run.table.values.iter().filter_map(|row| row[at]).collect() };
    let compared = runs.iter().skip(1).map(|run| {
        let of = |(at, metric): (usize, &Metric)| {
            let (first, second) = (column(&runs[0], at), column(run, at));
            // A metric that is not defined on all queries of both has no pairs.
            let whole = first.len() == second.len() && first.len() == run.queries.len();
            (metric.is_mean() && whole).then(|| args.statistics.compare(&first, &second))
        };
        metrics.par_iter().enumerate().map(of).collect()
    });
    let report = Report {
        compared: compared.collect(),
        metrics,
        runs,
        complete,
        per_query: args.per_query,
        ties: match args.ties {
            TieName::Trec => "trec_eval",
            TieName::Input => "input order",
        },
        test: args.statistics.test_name(),
    };
    for run in &report.runs {
        note(run, complete);
    }
    match format {
        Format::Table => output::print(&show::table(&report)),
        Format::Json => output::json(&show::json(&report)),
        Format::Csv => output::print(&show::csv(&report)?),
        Format::Trec => output::print(&show::trec(&report)),
    }
}

/// What was left out, and that it was.
fn note(run: &Evaluated, complete: bool) {
    let (missing, unjudged) = run.without;
    if missing > 0 {
        let what = if complete { "counted as 0" } else { "left out (-c counts them as 0)" };
        output::complain(&format!("{}: {missing} judged queries have no results and are {what}", run.name));
    }
    if unjudged > 0 {
        output::complain(&format!("{}: {unjudged} queries have no judgements and are left out", run.name));
    }
}

fn metrics(names: &[String]) -> Result<Vec<Metric>, Failure> {
    let usual = ["nDCG@10", "AP", "RR", "P@10", "R@100"].map(str::to_owned);
    let names = if names.is_empty() { &usual[..] } else { names };
    let lists: Result<Vec<Vec<Metric>>, _> = names.iter().map(|name| Metric::parse_all(name)).collect();
    Ok(once(lists.map_err(|error| Failure::Input(error.to_string()))?.concat()))
}

fn evaluated(
    args: &MetricsArgs,
    metrics: &[Metric],
    judged: &Judgements<'_>,
    run: &Run<'_>,
    complete: bool,
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
    if complete && missing > 0 {
        let there: std::collections::HashSet<&str> = lists.iter().map(|(query, _)| *query).collect();
        lists.extend(judged.keys().filter(|query| !there.contains(*query)).map(|query| (*query, &[][..])));
    }
    // trec_eval's order, and one order for all runs.
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
        table: evaluate(metrics, &rankings, grading, args.statistics.intervals()),
        without: (missing, unjudged),
    })
}

/// Runs of one name take those of their files, and numbers where these are alike, too.
fn distinguish(runs: &mut [Evaluated], paths: &[PathBuf]) {
    let twice = |runs: &[Evaluated], name: &str| runs.iter().filter(|run| run.name == name).count() > 1;
    let by_file: Vec<bool> = runs.iter().map(|run| twice(runs, &run.name)).collect();
    for ((run, path), _) in runs.iter_mut().zip(paths).zip(by_file).filter(|(_, by_file)| *by_file) {
        run.name = input::stem(path);
    }
    let by_number: Vec<bool> = runs.iter().map(|run| twice(runs, &run.name)).collect();
    for (number, (run, _)) in runs.iter_mut().zip(by_number).enumerate().filter(|(_, (_, again))| *again) {
        run.name = format!("{} {}", run.name, number + 1);
    }
}
