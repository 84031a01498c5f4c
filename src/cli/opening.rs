//! The caller's instruction and examples, for every command that ranks.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Failure, output};
use engine::types::PromptPrefix;
use files::Warnings;
use files::examples::examples;

#[derive(Debug, Args)]
pub(super) struct OpeningArgs {
    /// Instruction before the passages, in place of the built-in one; at most 4,000 characters.
    #[arg(long, value_name = "TEXT")]
    instruction: Option<String>,
    /// Worked examples after the instruction: JSON objects with "passage", "query" and optional "passage_title", one per
    /// line, at most 16.
    #[arg(long, value_name = "FILE")]
    examples: Option<PathBuf>,
}

impl OpeningArgs {
    /// Refuses an invalid instruction or examples before a model is loaded or a list is ranked.
    pub(super) fn opening(&self) -> Result<PromptPrefix, Failure> {
        if self.instruction.as_ref().is_some_and(|text| text.trim().is_empty()) {
            return Err(Failure::Input("--instruction: must not be empty".to_owned()));
        }
        let mut warnings = Warnings::default();
        let read = |path: &Path| examples(path, &mut warnings);
        let examples = self.examples.as_deref().map_or(Ok(Vec::new()), read)?;
        output::warn(&warnings);
        let opening = PromptPrefix { instruction: self.instruction.clone().unwrap_or_default(), examples };
        opening.check_texts().map_err(|error| Failure::Input(format!("--{error}")))?;
        Ok(opening)
    }
}
