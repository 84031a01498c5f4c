//! Tells the service manager what the server does: the protocol of sd_notify(3), a datagram of `KEY=VALUE` lines.

use std::time::Duration;

/// A service manager that listens. Without one, nothing is sent.
#[derive(Debug, Clone, Default)]
pub(super) struct ServiceManager {
    socket: Option<String>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// From [`crate::config::Config::service_manager`].
    pub(super) fn new(configured: Option<(String, Option<Duration>)>) -> Self {
        let (socket, watchdog) = configured.unzip();
        Self { socket, watchdog: watchdog.flatten() }
    }

    /// The server serves.
    pub(super) fn ready(&self) {
        self.send("READY=1\nSTATUS=serving");
    }

    /// The server reads its files again. [`ServiceManager::ready`] ends this.
    pub(super) fn reloading(&self) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_micros()));
    }

    /// The server stops.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=finishing the calls in flight");
    }

    /// Gives signs of life, twice as often as the watchdog wants them, until it is dropped.
    pub(super) async fn keep_alive(&self) {
        let Some(interval) = self.watchdog else { return std::future::pending().await };
        loop {
            self.send("WATCHDOG=1");
            tokio::time::sleep(interval / 2).await;
        }
    }

    #[cfg(unix)]
    fn send(&self, message: &str) {
        use std::os::unix::net::UnixDatagram;
        let Some(path) = &self.socket else { return };
        let sent = UnixDatagram::unbound().and_then(|socket| {
            // A manager that does not read must not hold up the server.
            socket.set_nonblocking(true)?;
            match path.strip_prefix('@') {
                #[cfg(target_os = "linux")]
                Some(name) => {
                    use std::os::linux::net::SocketAddrExt;
                    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
                    socket.send_to_addr(message.as_bytes(), &address)
                }
                _ => socket.send_to(message.as_bytes(), path),
            }
        });
        if let Err(error) = sent {
            tracing::warn!(path, %error, "the service manager is not reached");
        }
    }

    #[cfg(not(unix))]
    fn send(&self, _: &str) {}
}

#[cfg(unix)]
fn monotonic_micros() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

#[cfg(not(unix))]
fn monotonic_micros() -> i64 {
    0
}
