//! Admission: a request gets its place from its headers alone, before a byte of its message is decoded. A refusal costs
//! neither the time nor the memory of a message, which may be as large as `server.message_bytes`.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::{Request, Status};

use super::edge::{self, Edge};
use super::status;
use super::whole::Received;
use engine::EngineError;
use prefix_scheduler::call::{Call, Terms};

/// Longest wait for a message, beside what its bytes that came add ([`Received`]). A caller that sends its message slowly, or
/// never, keeps a place no longer.
pub(super) const MESSAGE: Duration = Duration::from_secs(10);

/// A service whose handlers find their [`Call`] in the request: [`call`], or [`terms`] for a stream of requests.
#[derive(Clone)]
pub(super) struct Admitted<S> {
    inner: S,
    edge: Edge,
}

impl<S> Admitted<S> {
    pub const fn new(inner: S, edge: Edge) -> Self {
        Self { inner, edge }
    }
}

impl<S: NamedService> NamedService for Admitted<S> {
    const NAME: &'static str = S::NAME;
}

/// Holds the call until the handler takes it.
#[derive(Clone)]
struct Place(Arc<Mutex<Option<Call>>>);

impl Place {
    fn take(&self) -> Option<Call> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The call of a request.
pub(super) fn call<T>(request: &Request<T>) -> Result<Call, Status> {
    let call = request.extensions().get::<Place>().and_then(Place::take);
    call.ok_or_else(|| status::of(&EngineError::Internal("the request was not admitted".to_owned())))
}

/// The terms of a stream of requests. Each of its questions is admitted by itself.
pub(super) fn terms<T>(request: &Request<T>) -> Result<Terms, Status> {
    let terms = request.extensions().get::<Terms>().cloned();
    terms.ok_or_else(|| status::of(&EngineError::Internal("the stream has no terms".to_owned())))
}

impl<S> Admitted<S> {
    /// Puts the call, or a stream's terms, into the request.
    fn admit<B>(&self, request: &mut http::Request<B>) -> Result<Option<Place>, Status> {
        let terms = edge::terms(request).map_err(|error| status::of(&error))?;
        // By convention of this protocol, a method that takes many requests is called so.
        if terms.operation.ends_with("Stream") {
            request.extensions_mut().insert(terms);
            return Ok(None);
        }
        let place = Place(Arc::new(Mutex::new(Some(self.edge.admit(terms)?))));
        request.extensions_mut().insert(place.clone());
        Ok(Some(place))
    }
}

impl<S, B, R> Service<http::Request<B>> for Admitted<S>
where
    S: Service<http::Request<B>, Response = http::Response<R>, Error = Infallible>,
    S::Future: Send + 'static,
    R: Default + 'static,
{
    type Response = http::Response<R>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<B>) -> Self::Future {
        let place = match self.admit(&mut request) {
            Ok(place) => place,
            Err(status) => return Box::pin(async move { Ok(status.into_http()) }),
        };
        let received = request.extensions().get::<Received>().cloned().unwrap_or_default();
        let answer = self.inner.call(request);
        match place {
            Some(place) => Box::pin(complete(answer, place, received, MESSAGE)),
            None => Box::pin(answer),
        }
    }
}

/// Ends a request whose message is not complete in time: its handler has not taken the call.
async fn complete<R: Default>(
    answer: impl Future<Output = Result<http::Response<R>, Infallible>>,
    place: Place,
    received: Received,
    patience: Duration,
) -> Result<http::Response<R>, Infallible> {
    let deadline = place.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(Call::deadline);
    let began = Instant::now();
    let end = || {
        let end = began + received.allowance(patience);
        deadline.map_or(end, |deadline| deadline.min(end))
    };
    let mut answer = std::pin::pin!(answer);
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            () = tokio::time::sleep_until(end().into()) => {}
        }
        // What came in the meantime adds to the time.
        if Instant::now() >= end() {
            break;
        }
    }
    match place.take() {
        Some(_) => Ok(late()),
        None => answer.await,
    }
}

fn late<R: Default>() -> http::Response<R> {
    status::late().into_http()
}

/// A service without permits, whose handlers begin to answer as soon as they have the message. What takes longer is a caller
/// that sends its message slowly, or never: it must not keep what it has sent, nor a stopping server.
#[derive(Clone)]
pub(super) struct Prompt<S> {
    inner: S,
    patience: Duration,
}

impl<S> Prompt<S> {
    pub const fn new(inner: S) -> Self {
        Self { inner, patience: MESSAGE }
    }
}

impl<S: NamedService> NamedService for Prompt<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B, R> Service<http::Request<B>> for Prompt<S>
where
    S: Service<http::Request<B>, Response = http::Response<R>, Error = Infallible>,
    S::Future: Send + 'static,
    R: Default + 'static,
{
    type Response = http::Response<R>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let (answer, patience) = (self.inner.call(request), self.patience);
        Box::pin(async move { tokio::time::timeout(patience, answer).await.unwrap_or_else(|_| Ok(late())) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::SLOWEST;
    use prefix_scheduler::call::Admission;

    fn place(admission: &Admission) -> Place {
        Place(Arc::new(Mutex::new(Some(
            admission.admit(Terms::default(), prefix_scheduler::call::Place::Generator).unwrap(),
        ))))
    }

    #[tokio::test]
    async fn a_message_that_never_ends_gives_its_place_back() {
        let admission = Admission::new(1);
        let never = std::future::pending::<Result<http::Response<()>, Infallible>>();
        let answer = complete(never, place(&admission), Received::default(), Duration::from_millis(5)).await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "4");
        assert_eq!(admission.in_flight(), 0);
    }

    /// Health and `ModelService` waited for the rest of a message for ever, and nobody needs a token for health.
    #[tokio::test]
    async fn a_service_without_permits_waits_no_longer() {
        #[derive(Clone)]
        struct Never;
        impl Service<http::Request<()>> for Never {
            type Response = http::Response<()>;
            type Error = Infallible;
            type Future = std::future::Pending<Result<http::Response<()>, Infallible>>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, _: http::Request<()>) -> Self::Future {
                std::future::pending()
            }
        }
        let mut service = Prompt { inner: Never, patience: Duration::from_millis(5) };
        let answer = service.call(http::Request::new(())).await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "4");
    }

    /// A large message over a slow line was cut off after ten seconds, however steadily it came.
    #[tokio::test]
    async fn a_message_that_comes_steadily_has_longer() {
        let admission = Admission::new(1);
        let received = Received::of(SLOWEST);
        let slow = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok(http::Response::new(7))
        };
        let answer = complete(slow, place(&admission), received, Duration::from_millis(5)).await.unwrap();
        assert_eq!(*answer.body(), 7);
    }

    #[tokio::test]
    async fn a_call_that_was_taken_runs_on() {
        let admission = Admission::new(1);
        let place = place(&admission);
        let call = place.take().unwrap();
        let work = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(call);
            Ok(http::Response::new(7))
        };
        let answer = complete(work, place, Received::default(), Duration::from_millis(5)).await.unwrap();
        assert_eq!(*answer.body(), 7);
    }
}
