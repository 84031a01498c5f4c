//! Structured logs on standard error, as text lines or as JSON.

use tracing_subscriber::EnvFilter;

use crate::config::{Config, LogFormat};

/// Installs the process's log subscriber. `quiet` limits logs to warnings, for commands that show progress on standard
/// error. Further calls have no effect.
pub fn install(config: &Config, quiet: bool) {
    let filter = if quiet { "warn,llama-cpp-2=error" } else { &config.log_filter };
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(std::io::stderr);
    let _ = match config.log_format {
        LogFormat::Json => builder.json().try_init(),
        LogFormat::Text => builder.with_target(false).try_init(),
    };
}
