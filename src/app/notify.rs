//! Reports the server's state to the service manager (sd_notify(3)). Without a service manager nothing is sent.

#[cfg(unix)]
use sd_notify::NotifyState;

/// Reports that the server serves.
pub(super) fn ready() {
    #[cfg(unix)]
    send(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

/// Reports that the server reloads its files. [`ready`] ends this state.
pub(super) fn reloading() {
    #[cfg(unix)]
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        send(&[NotifyState::Reloading, now]);
    }
}

/// Reports that the server stops.
pub(super) fn stopping() {
    #[cfg(unix)]
    send(&[NotifyState::Stopping, NotifyState::Status("finishing the calls in flight")]);
}

/// Sends keep-alive messages at twice the watchdog's rate until it is dropped.
pub(super) async fn keep_alive() {
    #[cfg(unix)]
    if let Some(interval) = sd_notify::watchdog_enabled().filter(|interval| !interval.is_zero()) {
        loop {
            send(&[NotifyState::Watchdog]);
            tokio::time::sleep(interval / 2).await;
        }
    }
    std::future::pending::<()>().await;
}

#[cfg(unix)]
fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager cannot be reached");
    }
}
