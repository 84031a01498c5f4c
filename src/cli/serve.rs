//! `rerankd serve`

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use tokio::net::TcpListener;

use super::{Failure, SettingsArgs, signals};
use crate::config::{Config, ConfigError};
use crate::{app, telemetry};
use server::rpc::server::Ended;
use server::transport::{Access, AccessFiles};

/// Serve over gRPC and HTTP until interrupted.
#[derive(Debug, Args)]
#[command(after_help = "Signals:
  SIGTERM, SIGINT  stop: health turns to NOT_SERVING, calls are accepted for
                   server.lame_duck_seconds more, those in flight may finish
                   within server.drain_seconds; a second signal stops at once
  SIGHUP           reload certificates, tokens, calibration and log.filter

Exit codes: 0 stopped, every call answered; 1 failed; 75 stopped before every call was answered; 78 bad configuration.

Example:
  rerankd serve --listen 127.0.0.1:50051 --model /models/qwen2.5-0.5b-instruct-q8_0.gguf")]
pub(super) struct ServeArgs {
    /// Address of gRPC [default: 127.0.0.1:50051]; port 0 selects a free port.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Address of HTTP/JSON for clients of other rerankers [default: 127.0.0.1:8080], or off; port 0 selects a free port.
    #[arg(long, value_name = "ADDRESS|off", value_parser = address_or_off)]
    http_listen: Option<String>,
    /// Generator: a catalogue name or the path of a GGUF file.
    #[arg(long, value_name = "NAME|FILE")]
    model: Option<String>,
    /// Generator that scores passages instead of the one that answers: a catalogue name or the path of a GGUF file.
    #[arg(long, value_name = "NAME|FILE")]
    scorer: Option<String>,
    /// Keep the tensor type of the model file, even if another type is faster on this machine.
    #[arg(long)]
    no_reencode: bool,
    /// File to which the bound address is written once the server listens.
    #[arg(long, value_name = "FILE")]
    address_file: Option<PathBuf>,
}

pub(super) async fn run(args: ServeArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let mut flags = Vec::new();
    flags.extend(args.listen.map(|address| ("server.listen".to_owned(), address.to_string())));
    flags.extend(args.http_listen.map(|address| ("http.listen".to_owned(), address)));
    flags.extend(args.model.map(|model| ("generator.model".to_owned(), model)));
    flags.extend(args.scorer.map(|model| ("scorer.model".to_owned(), model)));
    if args.no_reencode {
        flags.push(("generator.reencode_megabytes".to_owned(), "off".to_owned()));
    }
    let config = settings.load(flags.clone()).map_err(with_files)?;
    config.check_serving()?;
    let traces = telemetry::install_for_server(&config)?;
    let access = Access::load(&config.security.files).map_err(|faults| ConfigError {
        faults: faults.iter().map(ToString::to_string).collect(),
        files: AccessFiles::default(),
    })?;
    warn_of_exposure(&config, &access);
    raise_descriptor_limit();
    let control =
        signals::listen(again(settings.clone(), flags, config.clone())).context("signals cannot be received")?;
    // The socket is bound before the model loads, so that a port in use is reported immediately.
    let (grpc, address) = bind("server.listen", config.server.listen).await?;
    let http = match config.http.listen {
        Some(wanted) => Some(bind("http.listen", wanted).await?),
        None => None,
    };
    // The models load while the server listens. Health reports NOT_SERVING until the generator is ready.
    let Some(engine) = app::start_unless_stopped(&config, &control).await? else { return Ok(()) };
    if let Some(path) = &args.address_file {
        models::store::write_atomically(path, address.to_string().as_bytes())
            .with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    tracing::info!(%address, model = %config.generator.model, "listening");
    if let Some((_, address)) = &http {
        tracing::info!(%address, "listening for HTTP");
    }
    let listeners = app::Listeners { grpc, http: http.map(|(listener, _)| listener) };
    let ended = Box::pin(app::serve(&config, engine, access, listeners, control)).await;
    if let Some(traces) = traces {
        traces.flush().await;
    }
    match ended? {
        Ended::Answered => {
            tracing::info!("stopped");
            Ok(())
        }
        Ended::Cut(calls) => Err(Failure::Cut(calls)),
    }
}

/// Adds the faults of certificate and token files to the error, so that all are reported at once.
fn with_files(mut error: ConfigError) -> ConfigError {
    if let Err(faults) = Access::load(&error.files) {
        error.faults.extend(faults.iter().map(ToString::to_string));
    }
    error
}

/// Raises the soft limit of open files to the hard one. The usual soft limit is 1,024, and each connection needs one.
fn raise_descriptor_limit() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let maximum = getrlimit(Resource::Nofile).maximum;
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
            tracing::debug!(%error, "the limit of open files stays as it is");
        }
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "must be an IP address and a port, such as 127.0.0.1:50051".to_owned())
}

fn address_or_off(text: &str) -> Result<String, String> {
    let is_valid = text == "off" || text.parse::<SocketAddr>().is_ok();
    if is_valid {
        Ok(text.to_owned())
    } else {
        Err("must be an address and port such as 127.0.0.1:8080, or off".to_owned())
    }
}

/// Opens the socket of a configuration key. Also returns its address with the selected port.
async fn bind(key: &str, wanted: SocketAddr) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let flag = if key == "http.listen" {
        "--http-listen off turns HTTP off, another address moves it"
    } else {
        "--listen sets another address"
    };
    let listener = TcpListener::bind(wanted).await.map_err(|error| {
        anyhow::anyhow!("{key}: cannot listen on {wanted}: {error}; {flag}, and port 0 selects a free port")
    })?;
    let address = listener.local_addr().context("the socket has no address")?;
    Ok((listener, address))
}

/// Warns of the risks of an address that other machines can reach.
fn warn_of_exposure(config: &Config, access: &Access) {
    let (encrypted, closed) = (access.tls.is_some(), access.tokens.required());
    let open = !closed && !access.tls.as_ref().is_some_and(|tls| tls.asks_for_certificates());
    for listen in std::iter::once(config.server.listen).chain(config.http.listen) {
        if listen.ip().is_loopback() {
            continue;
        }
        if open && !encrypted {
            tracing::warn!(%listen, "INSECURE: anyone who reaches this address may call, and all texts are sent unencrypted \
                 (server.allow_insecure)");
        } else if open {
            tracing::warn!(%listen, "anyone who reaches this address may call: neither auth.tokens_file nor tls.client_ca is set");
        } else if !encrypted {
            tracing::warn!(%listen, "tokens and texts are sent unencrypted: tls.certificate is not set");
        }
    }
}

/// Handles SIGHUP: reads the configuration, applies its log filter, and logs the changed keys that need a restart.
fn again(settings: SettingsArgs, flags: Vec<(String, String)>, running: Config) -> impl FnMut() + Send + 'static {
    move || match settings.load(flags.clone()) {
        Ok(read) => {
            if !telemetry::refilter(&read) {
                tracing::error!("log.filter not applied");
            }
            let ignored: Vec<String> = running.changes(&read).into_iter().filter(|key| key != "log.filter").collect();
            if !ignored.is_empty() {
                tracing::warn!(keys = ignored.join(", "), "changed in the configuration; applied at the next start");
            }
        }
        Err(error) => tracing::error!(%error, "the configuration cannot be reloaded"),
    }
}
