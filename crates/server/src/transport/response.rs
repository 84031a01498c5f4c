//! Response bodies that do not fill the memory if a client does not read them.

use std::io::{Error, ErrorKind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Largest part of a response that is passed to HTTP/2 at once. HTTP/2 buffers everything that it gets, even if the
/// client does not read.
const PART: usize = 16 << 10;

/// A response body, part by part.
pub(super) struct Parts(Option<mpsc::Receiver<Result<Frame<Bytes>, BoxError>>>);

impl Parts {
    /// Reads `body` in a task, which ends when the client has read the last part or has disconnected. It also ends when
    /// the client leaves a part unread for `unread`; the response is then dropped. `counted` is dropped at the end.
    pub fn of<B>(body: B, unread: Duration, counted: impl Send + 'static) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        // An empty response is sent as headers only. gRPC clients rely on that.
        if body.is_end_stream() {
            return Self(None);
        }
        let (sender, parts) = mpsc::channel(2);
        tokio::spawn(async move {
            let _counted = counted;
            // Reserved for the error: the channel is full if the client does not read.
            let Ok(error) = sender.clone().reserve_owned().await else { return };
            tokio::select! {
                () = sender.closed() => {}
                outcome = pump(body, &sender, unread) => {
                    if let Err(problem) = outcome {
                        tracing::debug!(%problem, "response not sent completely");
                        error.send(Err(problem));
                    }
                }
            }
        });
        Self(Some(parts))
    }
}

type Sender = mpsc::Sender<Result<Frame<Bytes>, BoxError>>;

/// Sends the frames of `body`, data in parts of at most [`PART`] bytes.
async fn pump<B>(body: B, parts: &Sender, unread: Duration) -> Result<(), BoxError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(body.map_err(Into::<BoxError>::into));
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(mut data) => {
                while !data.is_empty() {
                    offer(Frame::data(data.split_to(data.len().min(PART))), parts, unread).await?;
                }
            }
            Err(trailers) => offer(trailers, parts, unread).await?,
        }
    }
    Ok(())
}

/// Waits at most `unread` for room for a frame.
async fn offer(frame: Frame<Bytes>, parts: &Sender, unread: Duration) -> Result<(), BoxError> {
    match tokio::time::timeout(unread, parts.send(Ok(frame))).await {
        Ok(sent) => Ok(sent?),
        Err(_) => Err(Error::new(ErrorKind::TimedOut, "the client did not read its response").into()),
    }
}

impl Body for Parts {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Some(parts) => parts.poll_recv(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;
    use crate::transport::InFlight;

    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn a_response_comes_in_parts_and_whole() {
        let open = InFlight::default();
        let text = Bytes::from(vec![7; 3 * PART + 1]);
        let mut parts = Parts::of(Full::new(text.clone()), SHORT, open.begin());
        let mut read = Vec::new();
        while let Some(frame) = parts.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() <= PART);
            read.extend_from_slice(&data);
        }
        assert_eq!(read, text);
        open.none().await;
        assert!(Parts::of(Full::new(Bytes::new()), SHORT, ()).is_end_stream());
    }

    #[tokio::test]
    async fn a_response_that_is_not_read_is_dropped() {
        let open = InFlight::default();
        let mut parts = Parts::of(Full::new(Bytes::from(vec![7; 9 * PART])), SHORT, open.begin());
        open.none().await;
        // A client that reads again must see that the response is incomplete.
        assert!(parts.frame().await.unwrap().is_ok());
        assert!(parts.frame().await.unwrap().is_err());
    }

    #[tokio::test]
    async fn a_client_that_leaves_ends_its_response() {
        let open = InFlight::default();
        drop(Parts::of(Full::new(Bytes::from(vec![7; 9 * PART])), SHORT * 1_000, open.begin()));
        open.none().await;
    }
}
