//! The commands of the feature `lab`: they study many questions.

mod analyse;
pub(super) mod calibrate_ranking;
mod compare;
mod distil;
mod evaluate;
mod gate;
mod lists;
mod shared;

use clap::Subcommand;
use lab::study::StudyError;

use super::{Failure, SettingsArgs};

#[derive(Debug, Subcommand)]
pub(super) enum StudyCommand {
    Evaluate(evaluate::EvaluateArgs),
    Compare(compare::CompareArgs),
    Lists(lists::ListsArgs),
    Analyse(analyse::AnalyseArgs),
    Distil(distil::DistilArgs),
}

pub(super) async fn run(command: StudyCommand, settings: &SettingsArgs) -> Result<(), Failure> {
    match command {
        StudyCommand::Evaluate(args) => Box::pin(evaluate::run(args, settings)).await,
        StudyCommand::Compare(args) => Box::pin(compare::run(args, settings)).await,
        StudyCommand::Lists(args) => lists::run(&args),
        StudyCommand::Analyse(args) => analyse::run(args, settings).await,
        StudyCommand::Distil(args) => distil::run(args, settings).await,
    }
}

impl From<StudyError> for Failure {
    fn from(error: StudyError) -> Self {
        match error {
            StudyError::Input(problem) => Self::Input(problem),
            StudyError::Client(error) => error.into(),
            StudyError::Engine(error) => error.into(),
            StudyError::Other(error) => Self::Other(error),
        }
    }
}
