//! Messages are counted before they are decoded.
//!
//! A message of `server.message_bytes` may hold millions of empty messages: two bytes each on the wire, a hundred in memory.
//! The codec counts the fields of a request (`count`) and refuses one with more than [`MOST_ELEMENTS`] before anything is
//! allocated for it. What cannot be decoded is the caller's fault, too: INVALID_ARGUMENT. build.rs puts this codec in the
//! place of prost's.

use prost::bytes::Buf;
use prost::{Message, Name};
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::count::exceeds;
use super::shape::Shape;
use prefix_scheduler::call::{LARGE, beside_the_reactor};

/// Fields of one request, nested ones included. A hundred passages are a few hundred; `EvaluateRanking` of 250 queries with a
/// thousand documents each, the largest by far, has a million. Decoded, a million empty messages take 100 MB.
const MOST_ELEMENTS: usize = 1_000_000;

/// prost's codec behind the count.
#[derive(Debug)]
pub struct CountingCodec<T, U>(ProstCodec<T, U>);

impl<T, U> Default for CountingCodec<T, U> {
    fn default() -> Self {
        Self(ProstCodec::new())
    }
}

impl<T, U> Codec for CountingCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Name + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = CountingDecoder<<ProstCodec<T, U> as Codec>::Decoder>;

    fn encoder(&mut self) -> Self::Encoder {
        self.0.encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        // Our own client decodes responses with the same codec; what a server answers is not bounded here.
        let counts = U::NAME.ends_with("Request");
        CountingDecoder { inner: self.0.decoder(), shape: counts.then(|| Shape::of(&U::full_name())).flatten(), counts }
    }
}

/// prost's decoder behind the count.
#[derive(Debug)]
pub struct CountingDecoder<D> {
    inner: D,
    shape: Option<&'static Shape>,
    counts: bool,
}

impl<D: Decoder<Error = Status>> Decoder for CountingDecoder<D> {
    type Item = D::Item;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        if self.counts && Buf::remaining(source) > LARGE {
            return beside_the_reactor(|| self.checked(source));
        }
        self.checked(source)
    }
}

impl<D: Decoder<Error = Status>> CountingDecoder<D> {
    fn checked(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<D::Item>, Status> {
        if self.counts {
            let wire = Buf::chunk(source);
            if exceeds(wire, self.shape, MOST_ELEMENTS) {
                let problem = format!("more than {MOST_ELEMENTS} fields given");
                return Err(bad_field(format!("message: {problem}"), "message", &problem));
            }
        }
        self.inner.decode(source).map_err(|status| match status.code() {
            Code::Internal if self.counts => {
                bad_field(format!("message: {}", status.message()), "message", status.message())
            }
            _ => status,
        })
    }
}

fn bad_field(message: String, field: &str, problem: &str) -> Status {
    let details = tonic_types::ErrorDetails::with_bad_request_violation(field, problem);
    <Status as tonic_types::StatusExt>::with_error_details(tonic::Code::InvalidArgument, message, details)
}
