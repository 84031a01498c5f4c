//! A message that has begun must be complete in time.
//!
//! A stream may be silent between its messages for as long as its caller likes. Within a message it may not: tonic would wait for
//! the rest for ever, with what it has in memory. The body of every request is read through [`WholeMessages`], which follows the
//! lengths in front of the messages and ends the request with DEADLINE_EXCEEDED.
//!
//! A message has its patience, and as much more as its bytes that came would take at [`SLOWEST`]. It is measured by what was
//! received and not by the length that was announced: a caller that announces much and sends nothing gains nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;
use tonic::body::Body;

use super::status;
use crate::transport::SLOWEST;

/// Bytes in front of a message: a flag, and its length as a big-endian number.
const PREFIX: usize = 5;

/// How many bytes came of the last message of a request that began. Clones share the number.
#[derive(Debug, Clone, Default)]
pub(super) struct Received(Arc<AtomicU32>);

impl Received {
    #[cfg(test)]
    pub fn of(bytes: u32) -> Self {
        Self(Arc::new(bytes.into()))
    }

    /// How long the message may take, from the first wait for it to its end.
    pub fn allowance(&self, patience: Duration) -> Duration {
        patience + Duration::from_secs(self.0.load(Ordering::Relaxed).into()) / SLOWEST
    }
}

/// Where in its messages a body is.
#[derive(Debug, Default)]
struct Messages {
    /// Bytes that were read of a message's prefix.
    prefix: usize,
    /// The length in it, as far as it was read.
    length: u32,
    /// Bytes that are missing of a message whose prefix was read.
    missing: usize,
}

impl Messages {
    /// Reads on. Returns whether a message ended.
    fn read(&mut self, mut bytes: &[u8]) -> bool {
        let mut ended = false;
        while let [byte, rest @ ..] = bytes {
            if self.missing > 0 {
                let taken = self.missing.min(bytes.len());
                self.missing -= taken;
                bytes = &bytes[taken..];
            } else {
                // The flag comes first, and is no part of the length.
                self.length = if self.prefix == 0 { 0 } else { (self.length << 8) | u32::from(*byte) };
                self.prefix += 1;
                bytes = rest;
                if self.prefix < PREFIX {
                    continue;
                }
                self.prefix = 0;
                self.missing = usize::try_from(self.length).unwrap_or(usize::MAX);
            }
            ended |= self.missing == 0;
        }
        ended
    }

    const fn is_within(&self) -> bool {
        self.prefix > 0 || self.missing > 0
    }

    /// Bytes that came of the last message that began, without its prefix.
    fn received(&self) -> u32 {
        if self.prefix > 0 {
            return 0;
        }
        self.length.saturating_sub(u32::try_from(self.missing).unwrap_or(u32::MAX))
    }
}

/// The wait for the rest of a message.
struct Late {
    since: Instant,
    end: Pin<Box<Sleep>>,
}

/// A body that fails where the rest of a message is waited for too long.
pub(super) struct WholeMessages {
    inner: Body,
    patience: Duration,
    messages: Messages,
    received: Received,
    /// Runs from the first wait for the rest of a message to its end. A message that nobody reads is not late.
    late: Option<Late>,
}

impl WholeMessages {
    /// The rest of a message may take `patience`, and what [`Received`] adds. `received` is told what came.
    pub fn new<B>(inner: B, patience: Duration, received: Received) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Self { inner: Body::new(inner), patience, messages: Messages::default(), received, late: None }
    }
}

impl HttpBody for WholeMessages {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.inner).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(bytes) = frame.data_ref() {
                    if this.messages.read(bytes) {
                        this.late = None;
                    }
                    this.received.0.store(this.messages.received(), Ordering::Relaxed);
                }
                polled
            }
            Poll::Pending if this.messages.is_within() => {
                let allowance = this.received.allowance(this.patience);
                let late = this.late.get_or_insert_with(|| {
                    let since = Instant::now();
                    Late { since, end: Box::pin(sleep_until(since + allowance)) }
                });
                let end = late.since + allowance;
                if late.end.deadline() != end {
                    late.end.as_mut().reset(end);
                }
                late.end.as_mut().poll(context).map(|()| Some(Err(status::late())))
            }
            _ => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use proptest::prelude::*;
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::ReceiverStream;
    use tonic::Code;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(50);

    fn framed(message: &[u8]) -> Vec<u8> {
        [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
    }

    fn body() -> (mpsc::Sender<Result<Bytes, std::io::Error>>, WholeMessages) {
        let (sender, parts) = mpsc::channel(16);
        let parts = axum::body::Body::from_stream(ReceiverStream::new(parts));
        (sender, WholeMessages::new(parts, PATIENCE, Received::default()))
    }

    async fn next(body: &mut WholeMessages) -> Option<Result<Bytes, Status>> {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
        Some(frame.map(|frame| frame.into_data().unwrap()))
    }

    #[tokio::test]
    async fn the_rest_of_a_message_must_come_and_the_next_message_need_not() {
        let message = framed(b"abcdef");
        // In the prefix, after it, within the message, and within a second one.
        for sent in [&message[..1], &message[..5], &message[..8], &[&message[..], &message[..3]].concat()] {
            let (sender, mut body) = body();
            assert!(tokio::time::timeout(PATIENCE * 4, next(&mut body)).await.is_err(), "nothing was begun");
            sender.send(Ok(message.clone().into())).await.unwrap();
            assert_eq!(next(&mut body).await.unwrap().unwrap(), message);
            assert!(tokio::time::timeout(PATIENCE * 4, next(&mut body)).await.is_err(), "it was complete");
            sender.send(Ok(sent.to_vec().into())).await.unwrap();
            assert_eq!(next(&mut body).await.unwrap().unwrap(), sent);
            assert_eq!(next(&mut body).await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
        }
    }

    /// A caller that sends a byte now and then gains nothing; one that sends message after message does.
    #[tokio::test]
    async fn the_bound_is_that_of_a_message_and_not_of_a_part() {
        let (sender, mut body) = body();
        let drip = tokio::spawn(async move {
            for byte in framed(&[0; 1_000]) {
                if sender.send(Ok(vec![byte].into())).await.is_err() {
                    return;
                }
                tokio::time::sleep(PATIENCE / 10).await;
            }
        });
        let status = loop {
            if let Err(status) = next(&mut body).await.unwrap() {
                break status;
            }
        };
        assert_eq!(status.code(), Code::DeadlineExceeded);
        drop(body);
        drip.await.unwrap();
    }

    /// Ten seconds for sixteen megabytes were a rate that not every caller has. What came of a message gives the rest time.
    #[tokio::test]
    async fn a_message_that_comes_fast_enough_may_be_long() {
        let (sender, mut body) = body();
        // A minute's worth, and a byte.
        let mut message = framed(&vec![7; SLOWEST as usize * 60 + 1]);
        let rest = message.split_off(message.len() - 1);
        sender.send(Ok(message.into())).await.unwrap();
        next(&mut body).await.unwrap().unwrap();
        let waiting = tokio::time::timeout(PATIENCE * 4, next(&mut body)).await;
        assert!(waiting.is_err(), "{waiting:?}");
        sender.send(Ok(rest.into())).await.unwrap();
        assert_eq!(next(&mut body).await.unwrap().unwrap().len(), 1);
        // The next message begins anew.
        sender.send(Ok(Bytes::from_static(&[0, 0, 0, 0, 9, 7]))).await.unwrap();
        next(&mut body).await.unwrap().unwrap();
        let late = tokio::time::timeout(Duration::from_secs(20), next(&mut body)).await.expect("it waits");
        assert_eq!(late.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
    }

    #[tokio::test]
    async fn a_length_that_is_announced_gives_no_time() {
        let (sender, mut body) = body();
        sender.send(Ok(Bytes::from_static(&[0, 255, 255, 255, 255, 7]))).await.unwrap();
        next(&mut body).await.unwrap().unwrap();
        let late = tokio::time::timeout(Duration::from_secs(20), next(&mut body)).await.expect("it waits");
        assert_eq!(late.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
    }

    /// The time counts while somebody waits for the rest: a stream with enough questions in work is not read.
    #[tokio::test]
    async fn a_message_that_nobody_reads_is_not_late() {
        let (sender, mut body) = body();
        sender.send(Ok(framed(b"ab")[..6].to_vec().into())).await.unwrap();
        next(&mut body).await.unwrap().unwrap();
        tokio::time::sleep(PATIENCE * 4).await;
        // Polls once: a clock that ran meanwhile would end the body here.
        let waiting = tokio::time::timeout(Duration::ZERO, next(&mut body)).await;
        assert!(waiting.is_err(), "{waiting:?}");
        sender.send(Ok(Bytes::from_static(b"b"))).await.unwrap();
        assert_eq!(next(&mut body).await.unwrap().unwrap(), "b");
        drop(sender);
        assert!(next(&mut body).await.is_none());
    }

    proptest! {
        /// However the bytes are cut, the ends of messages are found.
        #[test]
        fn messages_end_where_their_lengths_say(
            lengths in prop::collection::vec(0_usize..40, 1..6),
            cuts in prop::collection::vec(1_usize..9, 1..200),
        ) {
            let bytes: Vec<u8> = lengths.iter().flat_map(|&length| framed(&vec![7; length])).collect();
            let mut ends: Vec<usize> = Vec::new();
            for length in &lengths {
                ends.push(ends.last().unwrap_or(&0) + PREFIX + length);
            }
            let (mut messages, mut at) = (Messages::default(), 0);
            for cut in cuts.iter().cycle() {
                if at == bytes.len() {
                    break;
                }
                let to = bytes.len().min(at + cut);
                let ended = messages.read(&bytes[at..to]);
                prop_assert_eq!(ended, ends.iter().any(|end| (at + 1..=to).contains(end)));
                prop_assert_eq!(messages.is_within(), !ends.contains(&to));
                let begun = ends.iter().filter(|end| **end < to).count();
                let begin = if begun == 0 { PREFIX } else { ends[begun - 1] + PREFIX };
                prop_assert_eq!(messages.received() as usize, to.saturating_sub(begin));
                at = to;
            }
        }
    }
}
