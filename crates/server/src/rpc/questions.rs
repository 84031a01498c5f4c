//! Bidirectional streams of questions. Each answer is sent as soon as it is ready.
//!
//! A stream has no time limit. It ends when its connection closes, because the server stops or the connection is old:
//! otherwise it would delay the drain and be cut in the middle of its questions.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Code, Request, Status, Streaming};

use super::edge::{Edge, id_of_question};
use super::{admit, record, status};
use crate::transport::Closing;
use prefix_scheduler::call::{Observer, Refusal, Terms};

/// Questions of one stream that are processed at once. Flow control of the transport holds back the others.
const IN_FLIGHT: usize = 4;

/// Most bytes of an answer in addition to its response and the id of its question.
const AROUND: usize = 64;

/// The stream of answers.
pub(super) type Answers<A> = Pin<Box<dyn Stream<Item = Result<A, Status>> + Send>>;

/// The response to a question, or the code and the message of its error.
pub(super) type Outcome<R> = Result<R, (i32, String)>;

/// Bounds and observer of a stream.
pub(super) struct StreamBounds {
    /// Receives the code of each question.
    observer: Arc<dyn Observer>,
    /// Largest message of an answer in bytes.
    most: usize,
    /// Longest wait for the next question; `None` for no bound.
    idle: Option<Duration>,
}

impl StreamBounds {
    pub fn of(edge: &Edge) -> Self {
        Self { observer: edge.admission.observer(), most: edge.message_bytes, idle: edge.idle }
    }
}

/// Answers each question of a stream; answers are sent when they are ready. `ask` returns the id of a question and the
/// work for its response, `answer` makes a message of both. A response that does not fit into a message is
/// OUT_OF_RANGE. Unchecked, it would make the transport end the stream and drop other answers.
///
/// Questions in flight are cancelled when the caller disconnects. Otherwise they are answered before the stream ends:
/// with UNAVAILABLE when the connection closes, with DEADLINE_EXCEEDED if the next question does not come in time, or
/// with the error of an unreadable message. After the connection closes, no further question is read.
pub(super) fn answer_each<Q, R, A, W>(
    request: Request<Streaming<Q>>,
    bounds: StreamBounds,
    ask: impl Fn(Terms, Q) -> (String, W) + Send + Sync + 'static,
    answer: fn(String, Outcome<R>) -> A,
) -> Result<Answers<A>, Status>
where
    Q: Send + 'static,
    R: Message + 'static,
    A: Send + 'static,
    W: Future<Output = Result<R, Status>> + Send + 'static,
{
    let terms = admit::terms(&request)?;
    let StreamBounds { observer, most, idle } = bounds;
    // An in-process request has no connection.
    let Closing(closing) = request.extensions().get::<Closing>().cloned().unwrap_or_default();
    let mut questions = request.into_inner();
    let (sender, answers) = mpsc::channel(IN_FLIGHT);
    tokio::spawn(async move {
        let permits = Arc::new(Semaphore::new(IN_FLIGHT));
        let mut work = JoinSet::new();
        let end = loop {
            let permit = Arc::clone(&permits).acquire_owned();
            let next = tokio::select! {
                biased;
                () = sender.closed() => return,
                () = closing.cancelled() => break Some(status::closing()),
                next = async { permit.await.ok().zip(Some(within(idle, questions.next()).await)) } => next,
            };
            match next {
                Some((permit, Some(Ok(question)))) => {
                    let (id, response) = ask(terms.clone(), question);
                    let log_id = terms.id.as_deref().map(|stream| id_of_question(stream, &id));
                    let (observer, sender) = (Arc::clone(&observer), sender.clone());
                    let operation = terms.operation.clone();
                    let most = most.saturating_sub(AROUND + id.len());
                    let response = async move { fitting(response.await?, most) };
                    work.spawn(async move {
                        let outcome = outcome(response, log_id, &operation, observer.as_ref()).await;
                        let _ = sender.send(Ok(answer(id, outcome))).await;
                        drop(permit);
                    });
                }
                Some((_, Some(Err(unreadable)))) => break Some(status::readable(unreadable)),
                Some((_, None)) | None => break None,
            }
            while work.try_join_next().is_some() {}
        };
        tokio::select! {
            () = sender.closed() => {}
            () = async {
                while work.join_next().await.is_some() {}
                if let Some(end) = end {
                    let _ = sender.send(Err(end)).await;
                }
            } => {}
        }
    });
    Ok(Box::pin(ReceiverStream::new(answers)))
}

/// Asks again while the server is busy, until the deadline of the stream. Its next questions wait meanwhile, so nobody
/// needs to send one again.
pub(super) async fn when_free<R, W>(deadline: Option<Instant>, ask: impl Fn() -> W) -> Result<R, Status>
where
    W: Future<Output = Result<R, Status>>,
{
    loop {
        let answered = ask().await;
        let pause = answered.as_ref().err().and_then(status::busy);
        match pause.filter(|pause| deadline.is_none_or(|deadline| Instant::now() + *pause < deadline)) {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return answered,
        }
    }
}

/// The next question, if it comes in time.
async fn within<Q>(
    idle: Option<Duration>,
    next: impl Future<Output = Option<Result<Q, Status>>>,
) -> Option<Result<Q, Status>> {
    match idle {
        Some(idle) => tokio::time::timeout(idle, next).await.unwrap_or_else(|_| Some(Err(status::next_late()))),
        None => next.await,
    }
}

/// The response, if it has at most `most` bytes.
fn fitting<R: Message>(response: R, most: usize) -> Result<R, Status> {
    let bytes = response.encoded_len();
    if bytes <= most {
        return Ok(response);
    }
    Err(Status::out_of_range(format!("the response has {bytes} bytes, at most {most} allowed (server.message_bytes)")))
}

/// The outcome of a question. A panic is INTERNAL and ends only its question. Outcomes and refusals are counted here,
/// because the status of the stream does not contain them.
async fn outcome<R: Send + 'static>(
    response: impl Future<Output = Result<R, Status>> + Send + 'static,
    log_id: Option<String>,
    operation: &str,
    observer: &dyn Observer,
) -> Outcome<R> {
    // In a separate task, because a panic ends its task.
    let ended = AbortOnDropHandle::new(tokio::spawn(response)).await;
    let response = ended.unwrap_or_else(|panic| {
        tracing::error_span!("question", id = log_id.as_deref()).in_scope(|| Err(status::of_panic(&panic)))
    });
    let code = response.as_ref().map_or_else(Status::code, |_| Code::Ok);
    observer.question_handled(operation, record::code_name(code));
    response.map_err(|status| {
        // A question whose deadline passed was not refused.
        if let Some(reason) = record::refusal(&status, false).filter(|reason| *reason != Refusal::Deadline) {
            observer.refused(reason);
        }
        (status.code() as i32, status.message().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use tonic::codec::{Codec, Streaming};
    use tonic_prost::ProstCodec;

    use super::*;
    use prefix_scheduler::call::Admission;
    use protocol::v1;

    type Question = v1::RerankStreamRequest;
    type Answer = (String, Outcome<String>);

    fn framed(id: &str) -> Vec<u8> {
        let question = Question { request_id: id.to_owned(), request: None };
        let message = question.encode_to_vec();
        [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), &message].concat()
    }

    fn stream(body: impl Into<axum::body::Body>) -> Request<Streaming<Question>> {
        let decoder = ProstCodec::<(), Question>::default().decoder();
        let mut request = Request::new(Streaming::new_request(decoder, body.into(), None, None));
        request.extensions_mut().insert(Terms { id: Some("stream".to_owned()), ..Terms::default() });
        request
    }

    /// Answers every question. The work for the id `panics` panics; the answer to `large` has 2,000 bytes, above the
    /// bound of 1,000.
    async fn answers(request: Request<Streaming<Question>>) -> Vec<Result<Answer, Status>> {
        let ask = |_: Terms, question: Question| {
            let id = question.request_id.clone();
            let work = async move {
                if id == "panics" {
                    std::panic::panic_any("secret");
                }
                Ok("x".repeat(if id == "large" { 2_000 } else { 1 }))
            };
            (question.request_id, work)
        };
        let idle = Some(Duration::from_millis(100));
        let bounds = StreamBounds { observer: Admission::new(1).observer(), most: 1_000, idle };
        let answers = answer_each(request, bounds, ask, |id, outcome| (id, outcome)).unwrap();
        answers.collect().await
    }

    /// A panic must not leave its question without an answer.
    #[tokio::test]
    async fn a_question_that_panics_is_answered_and_the_stream_goes_on() {
        let all = answers(stream(["before", "panics", "after"].map(framed).concat())).await;
        let mut all: Vec<Answer> = all.into_iter().map(Result::unwrap).collect();
        all.sort_by_key(|(id, _)| id.clone());
        let internal = (Code::Internal as i32, "internal error; see the log".to_owned());
        let expected = [("after", Ok("x".to_owned())), ("before", Ok("x".to_owned())), ("panics", Err(internal))];
        assert_eq!(all, expected.map(|(id, outcome)| (id.to_owned(), outcome)));
    }

    /// The transport would end the stream with OUT_OF_RANGE, and drop the other answers.
    #[tokio::test]
    async fn a_response_that_is_too_large_ends_only_its_question() {
        let all = answers(stream(["a", "large", "b"].map(framed).concat())).await;
        let mut all: Vec<Answer> = all.into_iter().map(Result::unwrap).collect();
        all.sort_by_key(|(id, _)| id.clone());
        let [(_, a), (_, b), (_, large)] = &all[..] else { panic!("{all:?}") };
        assert!(a.is_ok() && b.is_ok());
        let (code, message) = large.as_ref().unwrap_err();
        assert_eq!(*code, Code::OutOfRange as i32);
        assert!(message.contains("server.message_bytes"), "{message}");
    }

    /// Half of a message, and then nothing.
    #[tokio::test]
    async fn a_stream_whose_next_question_does_not_come_ends() {
        let mut sent = framed("a");
        sent.extend([0, 0, 0, 0, 9, 1]);
        let sent = tokio_stream::once(Ok::<_, std::io::Error>(sent)).chain(tokio_stream::pending());
        let mut all = answers(stream(axum::body::Body::from_stream(sent))).await;
        let end = all.pop().unwrap().unwrap_err();
        assert!(status::is_late(&end), "{end:?}");
        assert_eq!(all.pop().unwrap().unwrap().0, "a");
    }

    /// The error of the last message must not overtake the answers to earlier ones.
    #[tokio::test]
    async fn questions_before_an_unreadable_message_are_answered() {
        let mut body = ["a", "b", "c"].map(framed).concat();
        body.extend([0, 0, 0, 0, 9, 1]);
        let mut all = answers(stream(body)).await;
        let end = all.pop().unwrap().unwrap_err();
        assert_eq!(end.code(), Code::InvalidArgument, "{end:?}");
        let mut ids: Vec<String> = all.into_iter().map(|answer| answer.unwrap().0).collect();
        ids.sort();
        assert_eq!(ids, ["a", "b", "c"]);
    }
}
