//! A connection whose client must go on: it takes what is written, and ends the headers that it begins. What is written over HTTP/2
//! is shown to [`Resets`].

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::connection::SLOWEST;
use super::in_flight::InFlight;
use super::refused::Resets;
use super::seldom::Seldom;

/// Of all connections: a client without a token may open thousands.
static UNREAD: Seldom = Seldom::new();

/// The connection. Reads and writes fail with `TimedOut` once the client has kept the server waiting for too long.
pub(super) struct Patient<I> {
    inner: I,
    /// How long a write may wait for the client to read.
    unread: Duration,
    /// How long the header of a request may take; `None` for no bound.
    header: Option<Duration>,
    /// Requests in progress on the connection.
    open: InFlight,
    /// When the first byte of a header came whose request has not begun.
    began: Option<Instant>,
    /// Bytes of the response that the client took, and how long it let the server wait for it.
    sent: u64,
    waited: Duration,
    /// Since when a write waits.
    waiting: Option<Instant>,
    writing: Timer,
    reading: Timer,
    /// Reads the frames that are written; `None` for HTTP/1.1.
    resets: Option<Resets>,
}

impl<I> Patient<I> {
    pub fn new(inner: I, unread: Duration, header: Option<Duration>, open: InFlight, resets: Option<Resets>) -> Self {
        let (writing, reading) = (Timer::default(), Timer::default());
        let (sent, waited, waiting) = (0, Duration::ZERO, None);
        Self { inner, unread, header, open, began: None, sent, waited, waiting, writing, reading, resets }
    }

    /// Forgets a header whose request began: one is in progress, or was meanwhile.
    fn look(&mut self) {
        let begun = |began: &Instant| self.open.idle_since().is_none_or(|since| since > *began);
        if self.began.as_ref().is_some_and(begun) {
            self.began = None;
        }
        if self.open.idle_since().is_some() {
            (self.sent, self.waited) = (0, Duration::ZERO);
        }
    }

    /// How long a write may still wait. A response over HTTP/1.1 has this long and the time that its bytes take at [`SLOWEST`]; on
    /// HTTP/2, which has bounds of its own for every stream, each write has this long.
    fn patience(&self) -> Duration {
        if self.header.is_none() {
            return self.unread;
        }
        let allowed = self.unread + Duration::from_secs(self.sent) / SLOWEST;
        allowed.saturating_sub(self.waited).min(self.unread)
    }
}

/// Sleeps until a point in time that changes.
#[derive(Default)]
struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    running: bool,
}

impl Timer {
    fn stop(&mut self) {
        self.running = false;
    }

    /// Whether `end` has come. Starts the timer where it does not run; a timer that runs keeps its end.
    fn poll(&mut self, context: &mut Context<'_>, end: impl FnOnce() -> Instant) -> Poll<Error> {
        let sleep = match &mut self.sleep {
            Some(sleep) => {
                if !self.running {
                    sleep.as_mut().reset(end());
                }
                sleep
            }
            none => none.insert(Box::pin(sleep_until(end()))),
        };
        self.running = true;
        sleep.as_mut().poll(context).map(|()| Error::from(ErrorKind::TimedOut))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Patient<I> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let before = into.filled().len();
        let read = Pin::new(&mut this.inner).poll_read(context, into);
        let Some(header) = this.header else { return read };
        this.look();
        if this.began.is_none() {
            this.reading.stop();
            if into.filled().len() > before && this.open.idle_since().is_some() {
                this.began = Some(Instant::now());
            }
        }
        match (&read, this.began) {
            (Poll::Pending, Some(began)) => this.reading.poll(context, || began + header).map(Err),
            _ => read,
        }
    }
}

impl<I: AsyncWrite + Unpin> Patient<I> {
    /// Counts the bytes of `parts` that were taken.
    fn count<'b>(&mut self, written: &Poll<Result<usize>>, parts: impl Iterator<Item = &'b [u8]>) {
        let Poll::Ready(Ok(mut bytes)) = *written else { return };
        self.sent = self.sent.saturating_add(bytes as u64);
        let Some(resets) = &mut self.resets else { return };
        for part in parts {
            let taken = bytes.min(part.len());
            resets.see(&part[..taken]);
            bytes -= taken;
        }
    }

    fn written<T>(&mut self, context: &mut Context<'_>, written: Poll<Result<T>>) -> Poll<Result<T>> {
        if written.is_ready() {
            self.writing.stop();
            if let Some(since) = self.waiting.take() {
                self.waited += since.elapsed();
            }
            return written;
        }
        let (unread, now) = (self.unread, Instant::now());
        let end = *self.waiting.get_or_insert(now) + self.patience();
        self.writing.poll(context, || end).map(|late| {
            if let Some(untold) = UNREAD.is_due() {
                let seconds = unread.as_secs();
                tracing::warn!(seconds, untold, "the client did not read its response: connection cut");
            }
            Err(late)
        })
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Patient<I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.count(&written, std::iter::once(bytes));
        self.written(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, parts);
        self.count(&written, parts.iter().map(|part| &**part));
        self.written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        self.written(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(context);
        self.written(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn a_write_waits_so_long_for_its_reader() {
        let (near, mut far) = duplex(8);
        let mut io = Patient::new(near, SHORT, None, InFlight::default(), None);
        io.write_all(b"12345678").await.unwrap();
        assert_eq!(io.write_all(b"9").await.unwrap_err().kind(), ErrorKind::TimedOut);
        far.read_exact(&mut [0; 8]).await.unwrap();
        io.write_all(b"9").await.unwrap();
    }

    /// A part that is taken gives the next one the whole time.
    #[tokio::test]
    async fn a_slow_reader_goes_on() {
        let (near, mut far) = duplex(1);
        let mut io = Patient::new(near, LONG, None, InFlight::default(), None);
        let reader = tokio::spawn(async move {
            let mut text = [0; 8];
            for byte in &mut text {
                tokio::task::yield_now().await;
                *byte = far.read_u8().await.unwrap();
            }
            text
        });
        io.write_all(b"12345678").await.unwrap();
        assert_eq!(&reader.await.unwrap(), b"12345678");
    }

    /// A client that takes a byte now and then would keep the response for hours.
    #[tokio::test]
    async fn a_response_over_http_1_is_taken_as_a_whole() {
        let (near, mut far) = duplex(1);
        let open = InFlight::default();
        let _request = open.begin();
        let mut io = Patient::new(near, SHORT * 2, Some(LONG), open, None);
        let reader = tokio::spawn(async move {
            for _ in 0..100 {
                tokio::time::sleep(SHORT / 2).await;
                if far.read_u8().await.is_err() {
                    break;
                }
            }
        });
        let started = Instant::now();
        let kind = io.write_all(&[0; 100]).await.unwrap_err().kind();
        assert_eq!(kind, ErrorKind::TimedOut);
        assert!(started.elapsed() < SHORT * 30, "{:?}", started.elapsed());
        drop(io);
        reader.await.unwrap();
    }

    #[tokio::test]
    async fn a_header_that_was_begun_must_end() {
        let (near, mut far) = duplex(64);
        let open = InFlight::default();
        let mut io = Patient::new(near, LONG, Some(SHORT), open.clone(), None);
        // A connection that waits for a request is not concerned.
        let silent = tokio::time::timeout(SHORT * 4, io.read_u8()).await;
        assert!(silent.is_err());
        far.write_all(b"GE").await.unwrap();
        assert_eq!(io.read_u16().await.unwrap(), u16::from_be_bytes(*b"GE"));
        assert_eq!(io.read_u8().await.unwrap_err().kind(), ErrorKind::TimedOut);
        // Nor is the body of a request, or the wait after it.
        let request = open.begin();
        assert!(tokio::time::timeout(SHORT * 4, io.read_u8()).await.is_err());
        far.write_all(b"x").await.unwrap();
        assert_eq!(io.read_u8().await.unwrap(), b'x');
        drop(request);
        assert!(tokio::time::timeout(SHORT * 4, io.read_u8()).await.is_err());
    }
}
