//! `rerankd analyse`

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::shared::StudyArgs;
use crate::cli::task::TaskArgs;
use crate::cli::{Failure, SettingsArgs, backend, models, output};
use crate::telemetry;
use files::Empty;
use lab::analysis::{self, Need, Settings};
use lab::study::Event;

/// Repeat a study of the papers on your own generator and data: a table, a chart and a page.
///
/// The data are labelled lists as for `rerankd compare`. Analyses that compare answers need "answers", the reference
/// answers, and leave out questions without them. `equivalence` reads judged answers (docs/experiments/papers.md).
/// Without --out the tables are printed, and nothing is saved. With --out the folder gets analysis.html, analysis.md, figures.jsonl
/// and results.jsonl (one line per question), and an interrupted analysis continues when the same command is given
/// again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rerankd analyse position-bias lists.jsonl.gz --limit 40 --out bias\n  \
                        rerankd analyse position-bias lists.jsonl --passages 10 --format json\n  \
                        rerankd analyse sample-size lists.jsonl --count 20\n  \
                        rerankd analyse utility-by-depth lists.jsonl --passages 20 --depths 1,5\n  \
                        rerankd analyse erag-correlation claims.jsonl --task fact-verification\n\n\
                        Each analysis is described in docs/experiments/papers.md.")]
pub(in crate::cli) struct AnalyseArgs {
    /// The analysis.
    #[arg(value_name = "KIND", value_parser = PossibleValuesParser::new(analysis::all().map(|one| one.about().name)))]
    kind: String,
    /// Labelled lists, or judged answers for equivalence, one JSON object per line.
    #[arg(value_name = "FILE", required = true)]
    data: Vec<PathBuf>,
    #[command(flatten)]
    study: StudyArgs,
    /// Use the first N passages of each list; the default depends on the analysis.
    #[arg(long, value_name = "PASSAGES", value_parser = clap::value_parser!(u32).range(1..))]
    passages: Option<u32>,
    #[command(flatten)]
    task: TaskArgs,
    /// Samples per prompt, for analyses that sample; at most 100.
    #[arg(short = 'n', long = "count", value_name = "SAMPLES", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    count: u32,
    /// Repetitions with other seeds, for analyses of stability; at most 100.
    #[arg(long, value_name = "TIMES", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=100))]
    repeats: u32,
    /// Numbers of first passages for utility-by-depth, separated by commas; by default every number.
    #[arg(long, value_name = "PASSAGES", value_delimiter = ',', value_parser = crate::cli::count)]
    depths: Vec<usize>,
}

impl AnalyseArgs {
    fn settings(&self) -> Result<Settings, Failure> {
        let mut depths = self.depths.clone();
        depths.sort_unstable();
        depths.dedup();
        let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Settings {
            task: self.task.task(),
            passages: self.passages.map(number),
            passage_tokens: self.study.passage_tokens,
            samples: number(self.count),
            repeats: number(self.repeats),
            depths,
            threshold: self.study.relevance_threshold,
            seed: self.study.seed,
            statistics: self.study.statistics(None)?,
        })
    }
}

pub(super) async fn run(args: AnalyseArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let config = settings.load(Vec::new())?;
    telemetry::install(&config, true);
    let analysis = analysis::find(&args.kind)?;
    let (about, settings) = (analysis.about(), args.settings()?);
    settings.check(&about)?;
    let data = analysis.load(&args.study.sources(&args.data, Empty::LeftOut))?;
    output::warn(&data.warnings);
    let (data, left_out) = analysis::suitable(&about, &settings, data);
    if left_out > 0 {
        output::complain(&format!(
            "{left_out} questions were left out: they lack answers or passages that {} needs",
            about.name
        ));
    }
    if data.questions.is_empty() {
        return Err(Failure::Input(format!("no question has what {} needs", about.name)));
    }
    // Checked before a folder is opened, because --restart empties it.
    if args.study.server.is_some() && analysis.local(&data) {
        let problem = format!("{} needs data that the protocol does not carry; leave it out", about.name);
        return Err(Failure::Input(format!("--server: {problem}")));
    }
    if args.study.server.is_none() && about.needs.contains(&Need::Entailment) {
        models::fetch_entailment(&config).await?;
    }
    let (server, config) = (args.study.server.as_deref(), backend::for_measurements(&config));
    let backend = backend::open_for_study(server, &args.study.connection, &config).await?;
    let mut following = args.study.following(data.questions.len(), "intervals");
    let show = |event: Event<'_>| following.show(&event);
    let (folder, restart) = (args.study.out.as_deref(), args.study.restart);
    let finished = analysis::run(analysis, &settings, &data, &backend, folder, restart, show).await;
    following.finish();
    args.study.show(&finished?, "questions")
}
