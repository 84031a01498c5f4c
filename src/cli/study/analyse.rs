//! `rerankd analyse`

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::following::Following;
use crate::cli::connection::ConnectionArgs;
use crate::cli::task::TaskArgs;
use crate::cli::{Failure, SettingsArgs, backend, output};
use crate::telemetry;
use files::Empty;
use lab::analysis::{self, Analysis, Settings, page, report};
use lab::evaluation::Event;
use lab::evaluation::compare::data::Sources;
use rag_metrics::resample::Statistics;

/// Repeat a study of the papers on your own generator and data: a table, a chart and a page.
///
/// The data are labelled lists as for `rerankd compare`; some analyses need "answers", the reference answers, too, and leave out
/// questions that lack them. `equivalence` reads judged answers (docs/papers.md). Without --out the tables are printed, and nothing is kept. With it the folder gets analysis.html,
/// analysis.md, figures.jsonl and results.jsonl (one line a question), and an interrupted analysis continues when the same
/// command is given again.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rerankd analyse position-bias --data lists.jsonl.gz --questions 40 --out bias\n  \
                        rerankd analyse position-bias --data lists.jsonl --passages 10 --json\n  \
                        rerankd analyse sample-size --data lists.jsonl --samples 20\n  \
                        rerankd analyse utility-by-depth --data lists.jsonl --passages 20 --depths 1,5\n  \
                        rerankd analyse erag-correlation --data claims.jsonl --task fact-verification\n\n\
                        Each analysis is described in docs/papers.md."
)]
pub(in crate::cli) struct AnalyseArgs {
    /// The analysis.
    #[arg(value_name = "KIND", value_parser = PossibleValuesParser::new(analysis::all().map(Analysis::name)))]
    kind: String,
    /// Labelled lists, for equivalence judged answers, one JSON object a line; may be repeated.
    #[arg(long, value_name = "FILE", required = true)]
    data: Vec<PathBuf>,
    /// Folder of the page and the results; by default nothing is kept.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Throw away the results in the folder.
    #[arg(long, requires = "out")]
    restart: bool,
    /// Print one JSON line a figure, also on a terminal.
    #[arg(long)]
    json: bool,
    /// Address of a server; without it the model is loaded in this process.
    #[arg(long, value_name = "ADDRESS")]
    server: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Take only so many questions of each file.
    #[arg(long, value_name = "QUESTIONS", value_parser = crate::cli::count)]
    questions: Option<usize>,
    /// Leave out so many questions at the beginning of each file.
    #[arg(long, value_name = "QUESTIONS", default_value_t = 0)]
    skip: usize,
    /// Take only so many passages from the front of each list; by default as many as suit the analysis.
    #[arg(long, value_name = "PASSAGES", value_parser = clap::value_parser!(u32).range(1..))]
    passages: Option<u32>,
    /// Most tokens of a passage.
    #[arg(long, visible_alias = "max-passage-tokens", value_name = "TOKENS", value_parser = crate::cli::count)]
    passage_tokens: Option<usize>,
    #[command(flatten)]
    task: TaskArgs,
    /// Sampled answers of a prompt, for analyses that sample; at most 100.
    #[arg(long, value_name = "ANSWERS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    samples: u32,
    /// Repetitions with other seeds, for analyses of stability; at most 100.
    #[arg(long, value_name = "TIMES", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=100))]
    repeats: u32,
    /// Numbers of first passages that utility-by-depth reads, separated by commas; by default every number.
    #[arg(long, value_name = "PASSAGES", value_delimiter = ',', value_parser = crate::cli::count)]
    depths: Vec<usize>,
    /// Least label of a relevant passage.
    #[arg(long, value_name = "LABEL", default_value_t = 0.5, value_parser = crate::cli::above_zero)]
    relevance_threshold: f64,
    /// Seed of designs, samples and resamples.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Resamples of intervals; 0 for no intervals.
    #[arg(long, default_value_t = 1_000)]
    resamples: usize,
}

impl AnalyseArgs {
    fn settings(&self) -> Result<Settings, Failure> {
        let statistics = Statistics { resamples: self.resamples, seed: self.seed, ..Statistics::default() };
        statistics.check().map_err(|error| Failure::Input(error.to_string()))?;
        let mut depths = self.depths.clone();
        depths.sort_unstable();
        depths.dedup();
        let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Settings {
            task: self.task.task(),
            passages: self.passages.map(number),
            passage_tokens: self.passage_tokens,
            samples: number(self.samples),
            repeats: number(self.repeats),
            depths,
            threshold: self.relevance_threshold,
            seed: self.seed,
            statistics,
        })
    }
}

pub(super) async fn run(args: AnalyseArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let config = settings.load(Vec::new())?;
    telemetry::install(&config, true);
    let analysis = analysis::find(&args.kind)?;
    let settings = args.settings()?;
    settings.check(analysis)?;
    let sources = Sources {
        files: args.data.clone(),
        skip: args.skip,
        questions: args.questions,
        threshold: settings.threshold,
        empty: Empty::LeftOut,
    };
    let data = analysis.load(&sources)?;
    output::warn(&data.warnings);
    let (data, left_out) = analysis::suitable(analysis, &settings, data);
    if left_out > 0 {
        output::complain(&format!("{left_out} questions lack what {} needs, and are left out", analysis.name()));
    }
    if data.questions.is_empty() {
        return Err(Failure::Input(format!("--data: no question has what {} needs", analysis.name())));
    }
    // Before a folder is opened, which --restart empties.
    if args.server.is_some() && analysis.local(&data) {
        let problem = format!("{} needs what the protocol does not carry; leave it out", analysis.name());
        return Err(Failure::Input(format!("--server: {problem}")));
    }
    let backend = backend::open(args.server.as_ref(), &args.connection, &config).await?;
    let questions = data.questions.len();
    let mut following = Following::with_optional_folder(questions, args.out.is_some(), "intervals");
    let show = |event: Event<'_>| following.show(&event);
    let finished = analysis::run(analysis, &settings, &data, &backend, (args.out.as_deref(), args.restart), show).await;
    following.finish();
    let finished = finished?;
    if args.json || !output::on_terminal() {
        output::print(&page::lines(analysis, &settings, &finished))?;
    } else {
        output::print(&shown(analysis, &finished.report))?;
    }
    if let Some(page) = &finished.page {
        output::complain(&format!("written: {}", page.display()));
    }
    match finished.refused {
        0 => Ok(()),
        refused => Err(Failure::Other(anyhow::anyhow!("{refused} questions were refused"))),
    }
}

/// A report for the terminal: its tables, then the verdict, where the eye is when the command ends.
fn shown(analysis: &dyn Analysis, report: &report::Report) -> String {
    let mut text = format!("{}\n\n", analysis.title());
    for one in &report.tables {
        let head: Vec<&str> = one.head.iter().map(String::as_str).collect();
        let mut table = output::table(&head);
        for row in &one.rows {
            table.add_row(row);
        }
        text.push_str(&format!("{}\n{table}\n\n", one.caption));
    }
    text.push_str(&report.verdict);
    text.push('\n');
    text
}
