//! Bidirectional streams of questions. Each answer is sent as soon as it is ready.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Status, Streaming};

use super::status;

/// Questions of one stream that are processed at once. Flow control of the transport holds back the others.
const IN_FLIGHT: usize = 4;

/// The stream of answers.
pub(super) type Answers<A> = Pin<Box<dyn Stream<Item = Result<A, Status>> + Send>>;

/// Answers each question of a stream; answers are sent in the order in which they are ready. `answer` must report
/// failures in the answer itself. Questions in flight are cancelled when the caller disconnects.
pub(super) fn answer_each<Q, A, W>(
    mut questions: Streaming<Q>,
    answer: impl Fn(Q) -> W + Send + Sync + 'static,
) -> Answers<A>
where
    Q: Send + 'static,
    A: Send + 'static,
    W: Future<Output = A> + Send + 'static,
{
    let (sender, answers) = mpsc::channel(IN_FLIGHT);
    tokio::spawn(async move {
        let permits = Arc::new(Semaphore::new(IN_FLIGHT));
        let mut work = JoinSet::new();
        loop {
            let permit = Arc::clone(&permits).acquire_owned();
            let next = tokio::select! {
                () = sender.closed() => return,
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
