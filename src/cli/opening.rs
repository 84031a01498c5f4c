//! The caller's instruction and examples, for every command that ranks.

use std::path::PathBuf;

use clap::Args;

use super::Failure;
use crate::engine::opening::Opening;
use crate::files::examples::examples;

#[derive(Debug, Args)]
pub(super) struct OpeningArgs {
    /// Instruction before the passages, in place of the built-in one; at most 4,000 characters.
    #[arg(long, value_name = "TEXT")]
    instruction: Option<String>,
    /// Worked examples after the instruction: JSON objects with "passage", "query" and optional "passage_title", one a line,
    /// at most 16.
    #[arg(long, value_name = "FILE")]
    examples: Option<PathBuf>,
}

impl OpeningArgs {
    pub(super) fn opening(&self) -> Result<Opening, Failure> {
        let examples = self.examples.as_deref().map_or(Ok(Vec::new()), examples)?;
        Ok(Opening { instruction: self.instruction.clone().unwrap_or_default(), examples })
    }
}
