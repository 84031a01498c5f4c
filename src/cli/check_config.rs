//! `rerankd check-config`

use clap::Args;

use super::{Failure, SettingsArgs, output};
use crate::config::DEFAULTS;

/// Check the configuration and print the effective values.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  RERANKD__LIMITS__PASSAGES=50 rerankd check-config --config rerankd.toml")]
pub(super) struct CheckConfigArgs {
    /// Instead, print every key with its default value and its meaning.
    #[arg(long)]
    defaults: bool,
}

pub(super) fn run(args: &CheckConfigArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    if args.defaults {
        return output::print(DEFAULTS);
    }
    let config = settings.load(Vec::new())?;
    config.check_serving()?;
    output::print(&config.effective())
}
