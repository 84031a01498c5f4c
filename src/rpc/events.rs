//! An answer that is preceded by events, as one stream.

use std::pin::Pin;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

/// Messages of a call.
pub(super) type Events<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

/// Runs `work` inside the stream, beside the events that it sends: a caller that leaves drops both. The answer comes last.
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
    let (last, answered) = tokio::sync::oneshot::channel();
    let work = work(sender);
    let work = async move {
        let _ = last.send(work.await);
    };
    let events = UnboundedReceiverStream::new(events).map(move |event| Ok(message(event)));
    let answer = tokio_stream::once(answered)
        .then(|answered| async { answered.await.unwrap_or_else(|_| Err(Status::internal("no answer"))) });
    let silent = tokio_stream::once(work).then(|work| work).filter_map(|()| None);
    Box::pin(events.chain(answer).merge(silent))
}
