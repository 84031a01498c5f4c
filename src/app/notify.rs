//! Tells the service manager what the server does (sd_notify(3)). Without a service manager nothing is sent.

#[cfg(unix)]
use sd_notify::NotifyState;

/// The server serves.
pub(super) fn ready() {
    #[cfg(unix)]
    send(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

/// The server reads its files again. [`ready`] ends this.
pub(super) fn reloading() {
    #[cfg(unix)]
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        send(&[NotifyState::Reloading, now]);
    }
}

/// The server stops.
pub(super) fn stopping() {
    #[cfg(unix)]
    send(&[NotifyState::Stopping, NotifyState::Status("finishing the calls in flight")]);
}

/// Gives signs of life, twice as often as the watchdog wants them, until it is dropped.
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
        tracing::warn!(%error, "the service manager is not reached");
    }
}
