//! Translates signals of the operating system to requests to a server.

#[cfg(unix)]
use std::sync::{Arc, mpsc::channel};

use crate::app::{self, Control, Operator};

/// Starts listening for signals. The server follows the returned control.
pub(super) fn listen(reload: impl FnMut() + Send + 'static) -> std::io::Result<Control> {
    let (operator, control) = Control::new();
    follow(operator, reload)?;
    Ok(control)
}

#[cfg(unix)]
fn follow(operator: Operator, mut reload: impl FnMut() + Send + 'static) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let operator = Arc::new(operator);
    let (ask, asked) = channel();
    let reloading = Arc::clone(&operator);
    // Reading files may take long on a slow volume, which must not delay a stop. The thread is not awaited.
    let reads = move || {
        while asked.recv().is_ok() {
            reload();
            reloading.reload();
        }
    };
    std::thread::Builder::new().name("reload".to_owned()).spawn(reads)?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => operator.stop(),
                _ = interrupt.recv() => operator.stop(),
                _ = hangup.recv() => drop(ask.send(())),
            }
        }
    });
    Ok(())
}

#[cfg(not(unix))]
fn follow(operator: Operator, _: impl FnMut() + Send + 'static) -> std::io::Result<()> {
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            operator.stop();
        }
    });
    Ok(())
}

/// Ends the process at SIGTERM or SIGINT if it is the first of a container: the system does not end such a process by an
/// unhandled signal. It ends every other process already, as shells expect.
#[cfg(unix)]
pub(super) fn end_first_process() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    if std::process::id() != 1 {
        return Ok(());
    }
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        let number = tokio::select! {
            _ = terminate.recv() => SignalKind::terminate(),
            _ = interrupt.recv() => SignalKind::interrupt(),
        };
        app::end_at_once(u8::try_from(128 + number.as_raw_value()).unwrap_or(1));
    });
    Ok(())
}

#[cfg(not(unix))]
pub(super) fn end_first_process() -> std::io::Result<()> {
    Ok(())
}
