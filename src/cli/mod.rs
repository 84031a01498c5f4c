//! The command line, with one file per command.

mod backend;
mod calibrate;
mod calibrations;
mod check_config;
mod citations;
mod compress;
mod connection;
mod context;
mod dedup;
mod fit;
mod grammar;
mod health;
mod measure;
mod metrics;
mod models;
mod opening;
mod output;
mod plot;
mod position_bias;
mod rerank;
mod rerank_lists;
mod serve;
mod shell;
mod signals;
#[cfg(feature = "lab")]
mod study;
mod task;
mod token;
mod utility;
mod version;
mod warm;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{Args, FromArgMatches, Parser, Subcommand};

use crate::app;
use crate::config::{self, Config, ConfigError};
use files as input;
use files::FileError;

/// Rerank retrieved passages by how much they help a generator, and measure how much they help.
#[derive(Debug, Parser)]
#[command(
    name = "rerankd",
    version,
    propagate_version = true,
    after_help = "Exit codes: 0 done, 1 failed, 2 bad usage or input, 3 quality gate failed, 69 server not reachable, 75 stopped before every call was answered, 78 bad configuration."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    settings: SettingsArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    Rerank(rerank::RerankArgs),
    Context(context::ContextArgs),
    Compress(compress::CompressArgs),
    Fit(fit::FitArgs),
    Utility(utility::UtilityArgs),
    Measure(measure::MeasureArgs),
    Citations(citations::CitationsArgs),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Study(study::StudyCommand),
    Metrics(metrics::MetricsArgs),
    Calibrate(calibrate::CalibrateArgs),
    PositionBias(position_bias::PositionBiasArgs),
    Models(models::ModelsArgs),
    Warm(warm::WarmArgs),
    Health(health::HealthArgs),
    Token(token::TokenArgs),
    CheckConfig(check_config::CheckConfigArgs),
    Completions(shell::CompletionsArgs),
    Man(shell::ManArgs),
}

/// The arguments. An empty variable, as in an environment file without a value, names no file; clap would refuse it as an
/// empty `--config`.
fn arguments() -> Cli {
    let mut command = grammar::command();
    if config::names_no_file() {
        command = command.mut_arg("config", |config| config.env(Resettable::Reset));
    }
    let parsed = command.try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| refuse(&error))
}

/// Ends the program with clap's error, help or version. Long arguments in an error are shortened.
fn refuse(error: &clap::Error) -> ! {
    // Asked for here, because clap needs its long version before it reads the arguments.
    if error.kind() == ErrorKind::DisplayVersion && std::env::args_os().any(|argument| argument == "--version") {
        let code = output::print(&version::describe()).map_or_else(|failure| failure.code(), |()| 0);
        std::process::exit(code.into());
    }
    let text = error.render().to_string();
    let short = output::short_lines(&text);
    if !error.use_stderr() || short.len() >= text.trim_end().len() {
        error.exit();
    }
    output::complain(&short);
    std::process::exit(error.exit_code())
}

/// Heading of the options of every command.
const CONFIGURATION: &str = "Configuration";

/// Sources of the configuration, accepted by every command.
#[derive(Debug, Clone, Args)]
struct SettingsArgs {
    /// Configuration file in TOML; `rerankd check-config` prints all keys.
    #[arg(long, global = true, help_heading = CONFIGURATION, value_name = "FILE", env = config::FILE)]
    config: Option<PathBuf>,
    /// Override one key, for example `--set generator.threads=4`; may be repeated.
    #[arg(long, global = true, help_heading = CONFIGURATION, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.to_owned()))
}

impl SettingsArgs {
    /// Loads the configuration. `flags` are options of the command and override every other source.
    fn load(&self, flags: Vec<(String, String)>) -> Result<Config, ConfigError> {
        let all: Vec<(String, String)> = self.set.iter().cloned().chain(flags).collect();
        Config::load(self.config.as_deref(), &all)
    }
}

/// An error with its exit code.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// Bad usage or input, or a request that the models are not set up for; exit code 2.
    #[error("{0}")]
    Input(String),
    /// A bound of a quality gate does not hold; exit code 3.
    #[error("{0}")]
    Gate(String),
    /// No server at the address; exit code 69.
    #[error("{0}")]
    Unreachable(String),
    /// The server was stopped before it had answered its calls; exit code 75 (EX_TEMPFAIL).
    #[error("stopped before every call was answered: {0} cancelled")]
    Cut(usize),
    /// Bad configuration; exit code 78.
    #[error("invalid configuration:\n{0}")]
    Config(#[from] ConfigError),
    /// Any other failure; exit code 1.
    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Self::Other(_) => 1,
            Self::Input(_) => 2,
            Self::Gate(_) => 3,
            Self::Unreachable(_) => 69,
            Self::Cut(_) => 75,
            Self::Config(_) => 78,
        }
    }
}

impl From<engine::types::EngineError> for Failure {
    fn from(error: engine::types::EngineError) -> Self {
        if error.is_input() || matches!(error, engine::types::EngineError::Precondition(_)) {
            Self::Input(error.to_string())
        } else {
            Self::Other(error.into())
        }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::Input(error.0)
    }
}

impl From<protocol::client::ClientError> for Failure {
    fn from(error: protocol::client::ClientError) -> Self {
        use protocol::client::ClientError;
        match &error {
            ClientError::Unreachable { .. } => Self::Unreachable(error.to_string()),
            ClientError::Misused { .. } => Self::Input(error.to_string()),
            _ if error.is_input() || error.is_precondition() => Self::Input(error.to_string()),
            ClientError::Refused { .. } => Self::Other(error.into()),
        }
    }
}

/// A number above 0, for an argument.
fn above_zero(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "must be a number above 0".to_owned())
}

/// A least probability, for an argument.
fn probability(text: &str) -> Result<f64, String> {
    above_zero(text).ok().filter(|number| *number <= 1.0).ok_or_else(|| "must be above 0 and at most 1".to_owned())
}

/// A count, for an argument. 0 is refused: it means "not given" to a server, and "none" in this process.
fn count(text: &str) -> Result<usize, String> {
    let number = text.parse::<usize>().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "must be a whole number above 0".to_owned())
}

/// A number of concurrent requests, for an argument. Each request to a server has a separate connection.
fn at_once(text: &str) -> Result<usize, String> {
    count(text).ok().filter(|number| *number <= 256).ok_or_else(|| "must be a whole number from 1 to 256".to_owned())
}

/// Time for computations to stop after the command has ended.
const SHUTDOWN: std::time::Duration = std::time::Duration::from_secs(2);

/// Threads of the reactor. Large messages are converted and dropped on them, for milliseconds each; a health check needs
/// another thread.
fn reactors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).max(4) * 2
}

/// Parses the arguments, runs the command and returns its exit code. An error is printed to standard error.
#[must_use]
pub fn main() -> ExitCode {
    let cli = arguments();
    let outcome = match tokio::runtime::Builder::new_multi_thread().worker_threads(reactors()).enable_all().build() {
        Ok(runtime) => {
            let outcome = runtime.block_on(run(cli));
            // Cancelled computations stop by themselves. The timeout ends the process even if one does not.
            runtime.shutdown_timeout(SHUTDOWN);
            outcome
        }
        Err(error) => Err(Failure::Other(error.into())),
    };
    let code = match outcome {
        Ok(()) => 0,
        Err(failure) => {
            output::complain(&failure.to_string());
            failure.code()
        }
    };
    app::end(code)
}

async fn run(cli: Cli) -> Result<(), Failure> {
    let settings = cli.settings;
    // A server handles signals itself.
    if !matches!(cli.command, Command::Serve(_)) {
        signals::end_first_process().map_err(anyhow::Error::from)?;
    }
    match cli.command {
        Command::Serve(args) => serve::run(args, &settings).await,
        Command::Rerank(args) => Box::pin(rerank::run(args, &settings)).await,
        Command::Context(args) => Box::pin(context::run(args, &settings)).await,
        Command::Compress(args) => compress::run(args, &settings).await,
        Command::Fit(args) => fit::run(&args),
        Command::Utility(args) => utility::run(args, &settings).await,
        Command::Measure(args) => measure::run(args, &settings).await,
        Command::Citations(args) => citations::run(args, &settings).await,
        #[cfg(feature = "lab")]
        Command::Study(command) => study::run(command, &settings).await,
        Command::Metrics(args) => metrics::run(&args),
        Command::Calibrate(args) => calibrate::run(args, &settings).await,
        Command::PositionBias(args) => position_bias::run(args, &settings).await,
        Command::Models(args) => models::run(args, &settings).await,
        Command::Warm(args) => warm::run(args, &settings).await,
        Command::Health(args) => health::run(args, &settings).await,
        Command::Token(args) => token::run(&args),
        Command::CheckConfig(args) => check_config::run(&args, &settings),
        Command::Completions(args) => shell::completions(&args),
        Command::Man(args) => shell::man(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::grammar;

    /// clap checks this only in debug builds, and only when the command is used.
    #[test]
    fn no_command_has_two_arguments_of_one_name() {
        for command in grammar::command().get_subcommands() {
            let mut names: Vec<&str> = command.get_arguments().map(|argument| argument.get_id().as_str()).collect();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all, "{}", command.get_name());
        }
    }
}
