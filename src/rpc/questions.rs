//! Many questions on one stream, answered as they end.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Status, Streaming};

/// Questions of one stream that are worked on at once; more wait in the transport.
const AT_ONCE: usize = 4;

/// Answers on a stream.
pub(super) type Answers<A> = Pin<Box<dyn Stream<Item = Result<A, Status>> + Send>>;

/// Answers each question of a stream; a question's own failure is part of its answer. Questions in flight end with the
/// stream, and it ends when the caller leaves.
pub(super) fn answer_each<Q, A, W>(
    mut asked: Streaming<Q>,
    answer: impl Fn(Q) -> W + Send + Sync + 'static,
) -> Answers<A>
where
    Q: Send + 'static,
    A: Send + 'static,
    W: Future<Output = A> + Send + 'static,
{
    let (sender, answers) = mpsc::channel(AT_ONCE);
    tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut work = JoinSet::new();
        loop {
            let place = Arc::clone(&places).acquire_owned();
            let next = tokio::select! {
                () = sender.closed() => return,
                next = async { place.await.ok().zip(Some(asked.next().await)) } => next,
            };
            match next {
                Some((place, Some(Ok(question)))) => {
                    let (answer, sender) = (answer(question), sender.clone());
                    work.spawn(async move {
                        let answer = answer.await;
                        let _ = sender.send(Ok(answer)).await;
                        drop(place);
                    });
                }
                Some((_, Some(Err(status)))) => {
                    let _ = sender.send(Err(status)).await;
                    break;
                }
                Some((_, None)) | None => break,
            }
            while work.try_join_next().is_some() {}
        }
        tokio::select! {
            () = sender.closed() => {}
            () = async { while work.join_next().await.is_some() {} } => {}
        }
    });
    Box::pin(ReceiverStream::new(answers))
}
