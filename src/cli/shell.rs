//! `rerankd completions` and `rerankd man`

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use clap_complete::Shell;

use super::{Failure, grammar, output};

/// Print the completion script of a shell.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  rerankd completions bash > /usr/share/bash-completion/completions/rerankd\n  rerankd completions zsh > /usr/share/zsh/site-functions/_rerankd"
)]
pub(super) struct CompletionsArgs {
    /// Shell that reads the script.
    #[arg(value_enum)]
    shell: Shell,
}

/// Print the manual page, or write the pages of all commands.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rerankd man > rerankd.1\n  rerankd man --out /usr/share/man/man1")]
pub(super) struct ManArgs {
    /// Existing folder for one page per command: rerankd.1, rerankd-serve.1 and so on.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub(super) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    // The generator panics if it cannot write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut grammar::command(), "rerankd", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

pub(super) fn man(args: &ManArgs) -> Result<(), Failure> {
    if let Some(folder) = &args.out {
        let unwritable = || format!("{}: the manual pages cannot be written", folder.display());
        return Ok(clap_mangen::generate_to(grammar::command(), folder).with_context(unwritable)?);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(grammar::command()).render(&mut page).context("the manual page cannot be rendered")?;
    output::print(&String::from_utf8_lossy(&page))
}
