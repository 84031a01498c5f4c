//! `rerankd serve`

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use tokio::net::TcpListener;

use super::{Failure, SettingsArgs};
use crate::{app, storage, telemetry};

/// Serve over gRPC until interrupted.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  rerankd serve --listen 127.0.0.1:50051 --model /models/qwen2.5-0.5b-instruct-q8_0.gguf"
)]
pub(super) struct ServeArgs {
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Generator: a catalogue name or the path of a GGUF file.
    #[arg(long, value_name = "NAME|FILE")]
    model: Option<String>,
    /// Keep the tensor type of the model file, even if another type is faster on this CPU.
    #[arg(long)]
    no_reencode: bool,
    /// File to which the bound address is written once the server listens.
    #[arg(long, value_name = "FILE")]
    address_file: Option<PathBuf>,
}

pub(super) async fn run(args: ServeArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let mut flags = Vec::new();
    flags.extend(args.listen.map(|address| ("server.listen".to_owned(), address.to_string())));
    flags.extend(args.model.map(|model| ("generator.model".to_owned(), model)));
    if args.no_reencode {
        flags.push(("generator.reencode".to_owned(), "false".to_owned()));
    }
    let config = settings.load(flags)?;
    telemetry::install(&config, false);
    // The socket is bound before the model loads, so that a port in use is reported immediately.
    let listener = TcpListener::bind(config.server.listen)
        .await
        .with_context(|| format!("cannot listen on {}", config.server.listen))?;
    let address = listener.local_addr().context("the socket has no address")?;
    // The models load while the server listens. Health reports NOT_SERVING until the generator is ready.
    let engine = app::start(&config)?;
    if let Some(path) = &args.address_file {
        storage::store::write_atomically(path, address.to_string().as_bytes())
            .with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    tracing::info!(%address, model = %config.generator.model, "listening");
    app::serve(&config, engine, listener, interrupted()).await?;
    tracing::info!("stopped");
    Ok(())
}

/// Resolves at the first interrupt or termination signal.
async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
