//! `rerankd check-config`

use clap::Args;

use super::{Failure, SettingsArgs, output};

/// Check the configuration and print the effective values with secrets masked.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  RERANKD__LIMITS__PASSAGES=50 rerankd check-config --config rerankd.toml")]
pub(super) struct CheckConfigArgs {}

pub(super) fn run(settings: &SettingsArgs) -> Result<(), Failure> {
    let config = settings.load(Vec::new())?;
    config.check_serving()?;
    output::print(&config.effective())
}
