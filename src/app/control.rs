//! Commands of an operator to a running server: stop, stop at once, reload files.

use tokio::sync::watch;

/// The operator's end. Dropping it has no effect on the server.
pub struct Operator {
    stops: watch::Sender<u32>,
    reloads: watch::Sender<u32>,
}

impl Operator {
    /// Asks the server to stop. The second call stops it without waiting for its calls.
    pub fn stop(&self) {
        self.stops.send_modify(|stops| *stops = stops.saturating_add(1));
    }

    /// Asks the server to reload certificates, tokens and calibration.
    pub fn reload(&self) {
        self.reloads.send_modify(|reloads| *reloads = reloads.wrapping_add(1));
    }
}

/// The server's end.
#[derive(Clone)]
pub struct Control {
    stops: watch::Receiver<u32>,
    reloads: watch::Receiver<u32>,
}

impl Default for Control {
    /// A control without commands.
    fn default() -> Self {
        Self::new().1
    }
}

impl Control {
    /// Both ends.
    pub fn new() -> (Operator, Self) {
        let ((stops, stop), (reloads, reload)) = (watch::channel(0), watch::channel(0));
        (Operator { stops, reloads }, Self { stops: stop, reloads: reload })
    }

    /// Resolves when the operator has asked `times` times to stop.
    pub(super) async fn stopped(&self, times: u32) {
        if self.stops.clone().wait_for(|stops| *stops >= times).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when the operator asks to reload; several requests before that count as one.
    pub(super) async fn reload(&mut self) {
        if self.reloads.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
