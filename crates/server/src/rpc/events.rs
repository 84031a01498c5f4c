//! A stream of events that ends with the answer.

use std::pin::Pin;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinError;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

use super::status;

/// Messages of a call.
pub(super) type Events<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

/// Runs `work` in a separate task. The stream carries its events and, last, its answer. The task ends by its own terms
/// and frees its slot even if nobody reads the stream. A caller that disconnects ends it. Unread events are at most a
/// few per step and sample of the work.
pub(super) fn with_answer<E, M, W>(
    work: impl FnOnce(UnboundedSender<E>) -> W,
    message: impl Fn(E) -> M + Send + 'static,
) -> Events<M>
where
    E: Send + 'static,
    M: Send + 'static,
    W: Future<Output = Result<M, Status>> + Send + 'static,
{
    let (sender, events): (_, UnboundedReceiver<E>) = unbounded_channel();
    let work = AbortOnDropHandle::new(tokio::spawn(work(sender)));
    let events = UnboundedReceiverStream::new(events).map(move |event| Ok(message(event)));
    let panicked = |error: JoinError| Err(status::of_panic(&error));
    let answer = tokio_stream::once(work).then(move |work| async move { work.await.unwrap_or_else(panicked) });
    Box::pin(events.chain(answer))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tonic::Code;

    use super::*;

    /// A caller that stops reading must not keep its slot beyond its deadline.
    #[tokio::test]
    async fn the_work_ends_even_if_nobody_reads() {
        let ended = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&ended);
        let work = |events: UnboundedSender<u32>| async move {
            events.send(1).unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(2)
        };
        let stream = with_answer(work, |event| event);
        while ended.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let all: Vec<u32> = stream.map(Result::unwrap).collect().await;
        assert_eq!(all, [1, 2]);
    }

    /// The text of the panic must not be the text of the status.
    #[tokio::test]
    async fn the_text_of_a_panic_is_not_sent() {
        let work = |_: UnboundedSender<u32>| async { std::panic::panic_any("secret") };
        let mut stream = with_answer(work, |event| event);
        let status = stream.next().await.unwrap().unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Internal, "internal error; see the log"));
        assert!(stream.next().await.is_none());
    }

    #[tokio::test]
    async fn a_caller_that_leaves_ends_the_work() {
        let place = Arc::new(());
        let held = Arc::clone(&place);
        let work = |_: UnboundedSender<u32>| async move {
            let never = std::future::pending().await;
            drop(held);
            never
        };
        let stream = with_answer(work, |event| event);
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&place), 2);
        drop(stream);
        while Arc::strong_count(&place) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
