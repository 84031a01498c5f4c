//! What is shown while the questions of a file are asked.

use indicatif::ProgressBar;

use crate::cli::output;
use lab::evaluation::Event;

/// Shows the events of an evaluation, a comparison or an analysis.
pub(super) struct Following {
    bar: ProgressBar,
    spinner: Option<ProgressBar>,
    started: bool,
    questions: usize,
    /// What becomes of the questions that are done where the command stops.
    kept: String,
    /// What is computed after the last question.
    summary: &'static str,
}

impl Following {
    pub(super) fn new(questions: usize, kept: String, summary: &'static str) -> Self {
        Self { bar: output::progress(questions, "questions"), spinner: None, started: false, questions, kept, summary }
    }

    /// [`Following::new`] for a command whose folder is optional.
    pub(super) fn with_optional_folder(questions: usize, has_folder: bool, summary: &'static str) -> Self {
        let kept = if has_folder { "the same command continues" } else { "nothing was kept without --out" };
        Self::new(questions, kept.to_owned(), summary)
    }

    pub(super) fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Done(done) => {
                self.bar.set_position(*done as u64);
                // Questions of an earlier command say nothing about this one's speed.
                if !std::mem::replace(&mut self.started, true) {
                    self.bar.reset_eta();
                }
            }
            Event::Failed { id, problem } => {
                self.bar.suspend(|| output::complain(&format!("question {id:?}: {problem}")));
            }
            Event::Stopped { id, done } => {
                self.bar.finish_and_clear();
                let questions = self.questions;
                output::complain(&format!(
                    "{done} of {questions} questions are done, stopped at {id:?}; {}",
                    self.kept
                ));
            }
            Event::Summarising => {
                self.bar.finish_and_clear();
                self.spinner = Some(output::spinner(self.summary));
            }
        }
    }

    /// Clears what is left on the terminal.
    pub(super) fn finish(self) {
        if let Some(spinner) = self.spinner {
            spinner.finish_and_clear();
        }
    }
}
