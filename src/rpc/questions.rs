//! Bidirectional streams of questions. Each answer is sent as soon as it is ready.
//!
//! A stream goes on for as long as its caller likes. It ends earlier where its connection closes, because the server stops or
//! the connection is old: it would hold up the drain otherwise, and be cut in the middle of its questions.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Status, Streaming};

use super::status;
use crate::transport::Closing;

/// Questions of one stream that are processed at once. Flow control of the transport holds back the others.
const IN_FLIGHT: usize = 4;

/// The stream of answers.
pub(super) type Answers<A> = Pin<Box<dyn Stream<Item = Result<A, Status>> + Send>>;

/// Answers each question of a stream; answers are sent in the order in which they are ready. `answer` must report
/// failures in the answer itself. Questions in flight are cancelled when the caller disconnects. When the connection closes,
/// no further question is read, those in flight are answered, and the stream ends with UNAVAILABLE.
pub(super) fn answer_each<Q, A, W>(
    request: Request<Streaming<Q>>,
    answer: impl Fn(Q) -> W + Send + Sync + 'static,
) -> Answers<A>
where
    Q: Send + 'static,
    A: Send + 'static,
    W: Future<Output = A> + Send + 'static,
{
    // Within the process there is no connection.
    let Closing(closing) = request.extensions().get::<Closing>().cloned().unwrap_or_default();
    let mut questions = request.into_inner();
    let (sender, answers) = mpsc::channel(IN_FLIGHT);
    tokio::spawn(async move {
        let permits = Arc::new(Semaphore::new(IN_FLIGHT));
        let mut work = JoinSet::new();
        let unread = loop {
            let permit = Arc::clone(&permits).acquire_owned();
            let next = tokio::select! {
                biased;
                () = sender.closed() => return,
                () = closing.cancelled() => break true,
                next = async { permit.await.ok().zip(Some(questions.next().await)) } => next,
            };
            match next {
                Some((permit, Some(Ok(question)))) => {
                    let (answer, sender) = (answer(question), sender.clone());
                    work.spawn(async move {
                        let answer = answer.await;
                        let _ = sender.send(Ok(answer)).await;
                        drop(permit);
                    });
                }
                Some((_, Some(Err(status)))) => {
                    let _ = sender.send(Err(status::readable(status))).await;
                    break false;
                }
                Some((_, None)) | None => break false,
            }
            while work.try_join_next().is_some() {}
        };
        tokio::select! {
            () = sender.closed() => {}
            () = async {
                while work.join_next().await.is_some() {}
                if unread {
                    let _ = sender.send(Err(status::closing())).await;
                }
            } => {}
        }
    });
    Box::pin(ReceiverStream::new(answers))
}
