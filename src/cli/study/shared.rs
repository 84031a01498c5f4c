//! Code that the commands of studies share: arguments, progress, and the report on the terminal.

use std::path::PathBuf;

use clap::Args;
use indicatif::ProgressBar;

use crate::cli::connection::ConnectionArgs;
use crate::cli::output::FormatArgs;
use crate::cli::{Failure, output};
use files::{Empty, RELEVANT};
use lab::study::data::Sources;
use lab::study::report::{Report, Section, Table};
use lab::study::{Event, Finished};
use rag_metrics::resample::Statistics;

/// Sources, backend and outputs of a study.
#[derive(Debug, Args)]
pub(super) struct StudyArgs {
    /// Folder of the page and the results; by default nothing is saved.
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Delete the results in the folder.
    #[arg(long, requires = "out")]
    pub restart: bool,
    #[command(flatten)]
    pub format: FormatArgs,
    /// Address of a server; without it the models are loaded in this process.
    #[arg(long, value_name = "ADDRESS")]
    pub server: Option<String>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Use the first N questions of each file.
    #[arg(long, value_name = "N", value_parser = crate::cli::count)]
    limit: Option<usize>,
    /// Leave out the first N questions of each file.
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: usize,
    /// Most tokens of a passage.
    #[arg(long, visible_alias = "max-passage-tokens", value_name = "TOKENS", value_parser = crate::cli::count)]
    pub passage_tokens: Option<usize>,
    /// Least label of a relevant passage.
    #[arg(long, value_name = "LABEL", default_value_t = RELEVANT, value_parser = crate::cli::above_zero)]
    pub relevance_threshold: f64,
    /// Seed of designs, samples and resamples.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Resamples of intervals of means; 0 for no intervals.
    #[arg(long, default_value_t = 1_000)]
    resamples: usize,
}

impl StudyArgs {
    pub(super) fn sources(&self, files: &[PathBuf], empty: Empty) -> Sources {
        let (skip, questions, threshold) = (self.skip, self.limit, self.relevance_threshold);
        Sources { files: files.to_vec(), skip, questions, threshold, empty }
    }

    pub(super) fn statistics(&self, test_resamples: Option<usize>) -> Result<Statistics, Failure> {
        let mut statistics = Statistics { resamples: self.resamples, seed: self.seed, ..Statistics::default() };
        statistics.test_resamples = test_resamples.unwrap_or(statistics.test_resamples);
        statistics.check().map_err(|error| Failure::Input(error.to_string()))?;
        Ok(statistics)
    }

    /// Shows the events for this number of questions. `summary` names the computation after the last one.
    pub(super) fn following(&self, questions: usize, summary: &'static str) -> Following {
        let kept = if self.out.is_some() { "the same command continues" } else { "nothing was saved without --out" };
        Following::new(questions, kept, summary)
    }

    /// Prints a finished study. The command fails if any of `what` were refused.
    pub(super) fn show(&self, finished: &Finished, what: &str) -> Result<(), Failure> {
        if self.format.is_json() {
            output::print(&finished.report.lines())?;
        } else {
            output::print(&report(&finished.report))?;
        }
        written(finished, &format!("{} {what} were refused", finished.refused))
    }
}

/// Names the page of a finished study. The command fails with the message `refused` if questions were refused.
pub(super) fn written(finished: &Finished, refused: &str) -> Result<(), Failure> {
    if let Some(page) = &finished.page {
        output::complain(&format!("written: {}", page.display()));
    }
    match finished.refused {
        0 => Ok(()),
        _ => Err(Failure::Other(anyhow::anyhow!(refused.to_owned()))),
    }
}

/// A report for the terminal: tables first, then the sentences, which are visible when the command ends.
pub(super) fn report(report: &Report) -> String {
    let mut text = format!("{}\n\n", report.title);
    text.push_str(&tables(&report.tables));
    for Section { title, text: sentences, tables: own, .. } in &report.sections {
        text.push_str(&format!("{title}\n\n{}", tables(own)));
        for sentence in sentences {
            text.push_str(&format!("{sentence}\n"));
        }
        text.push('\n');
    }
    for sentence in report.text.iter().chain([&report.verdict]) {
        text.push_str(&format!("{sentence}\n"));
    }
    text
}

/// Tables that are not folded. The interval of a cell stands below its value.
fn tables(all: &[Table]) -> String {
    let mut text = String::new();
    for one in all.iter().filter(|table| !table.folded) {
        let head: Vec<&str> = one.head.iter().map(String::as_str).collect();
        let mut table = output::table(&head);
        for row in &one.rows {
            let cell = |(at, cell): (usize, &String)| match one.parts(at, cell) {
                (value, Some(interval)) => format!("{value}\n{interval}"),
                (value, None) => value.to_owned(),
            };
            table.add_row(row.iter().enumerate().map(cell).collect::<Vec<_>>());
        }
        let caption = if one.caption.is_empty() { String::new() } else { format!("{}\n", one.caption) };
        text.push_str(&format!("{caption}{}\n", output::shown(table)));
    }
    text
}

/// Shows the events of a study.
pub(super) struct Following {
    bar: ProgressBar,
    spinner: Option<ProgressBar>,
    started: bool,
    questions: usize,
    /// The fate of the finished questions if the command stops.
    kept: String,
    /// Name of the computation after the last question.
    summary: &'static str,
}

impl Following {
    pub(super) fn new(questions: usize, kept: impl Into<String>, summary: &'static str) -> Self {
        let (bar, kept) = (output::progress(questions, "questions"), kept.into());
        Self { bar, spinner: None, started: false, questions, kept, summary }
    }

    pub(super) fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Dropped(bytes) => self.complain(&format!("{bytes} bytes of an incomplete line were dropped")),
            Event::Done(done) => {
                self.bar.set_position(*done as u64);
                // Questions of an earlier command do not show this command's speed.
                if !std::mem::replace(&mut self.started, true) {
                    self.bar.reset_eta();
                }
            }
            Event::Refused { id, problem } => self.complain(&format!("question {id:?}: {problem}")),
            Event::Stopped { id, done } => {
                self.bar.finish_and_clear();
                let (questions, kept) = (self.questions, &self.kept);
                output::complain(&format!("{done} of {questions} questions are done, stopped at {id:?}; {kept}"));
            }
            Event::Summarising => {
                self.bar.finish_and_clear();
                self.spinner = Some(output::spinner(self.summary));
            }
        }
    }

    /// A line above the bar.
    pub(super) fn complain(&self, text: &str) {
        self.bar.suspend(|| output::complain(text));
    }

    /// Removes bar and spinner from the terminal.
    pub(super) fn finish(self) {
        self.bar.finish_and_clear();
        if let Some(spinner) = self.spinner {
            spinner.finish_and_clear();
        }
    }
}
