//! Signals of the operating system, as what they ask a server to do.

use crate::app::{Control, Operator};

/// Listens for signals from now on. The returned control is what the server follows.
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
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => operator.stop(),
                _ = interrupt.recv() => operator.stop(),
                _ = hangup.recv() => {
                    reload();
                    operator.reload();
                }
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
