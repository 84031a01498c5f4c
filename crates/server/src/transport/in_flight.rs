//! Counts the requests in flight, on a connection or in the whole server.

use std::time::Duration;

use tokio::sync::watch;

/// A counter. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct InFlight(watch::Sender<usize>);

/// Counts as one until it is dropped.
#[derive(Debug)]
pub struct Counted(watch::Sender<usize>);

impl InFlight {
    /// Counts one more.
    pub fn begin(&self) -> Counted {
        self.0.send_modify(|count| *count += 1);
        Counted(self.0.clone())
    }

    /// The count.
    pub fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Resolves as soon as the count is 0.
    pub async fn none(&self) {
        // This sender keeps the channel open.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Resolves when the count has been 0 for `time`.
    pub async fn none_for(&self, time: Duration) {
        let mut changes = self.0.subscribe();
        loop {
            let _ = changes.wait_for(|count| *count == 0).await;
            if tokio::time::timeout(time, changes.changed()).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_ends_the_time_without_requests() {
        let open = InFlight::default();
        let short = Duration::from_millis(50);
        let request = open.begin();
        assert!(tokio::time::timeout(short, open.none()).await.is_err());
        drop(request);
        open.none().await;
        let started = tokio::time::Instant::now();
        let waiting = tokio::spawn({
            let open = open.clone();
            async move { open.none_for(short * 4).await }
        });
        tokio::time::sleep(short * 2).await;
        // Begins and ends before the waiting task runs again.
        drop(open.begin());
        waiting.await.unwrap();
        assert!(started.elapsed() >= short * 6, "{:?}", started.elapsed());
    }
}
