//! `rerankd token`

use clap::{Args, Subcommand};

use super::{Failure, output};
use server::transport::NewToken;

/// Make bearer tokens for callers.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rerankd token new search-frontend")]
pub(super) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    New(NewArgs),
}

/// Make a token. The first line of the output is the token, which is not stored anywhere; the second is the line to append
/// to the file `auth.tokens_file` of the server.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rerankd token new search-frontend")]
struct NewArgs {
    /// Name of the caller, for the log lines of its calls. A name may have several tokens.
    name: String,
}

pub(super) fn run(args: &TokenArgs) -> Result<(), Failure> {
    let TokenCommand::New(args) = &args.command;
    let new = NewToken::new(&args.name).map_err(Failure::Input)?;
    output::print(&format!("{}\n{}\n", new.token, new.line))
}
