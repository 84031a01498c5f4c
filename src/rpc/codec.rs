//! Messages are counted before they are decoded.
//!
//! A message of `server.message_bytes` may hold millions of empty messages: two bytes each on the wire, a hundred in memory.
//! The codec walks the fields of a request two levels deep, which is as deep as lists nest in this protocol, and refuses one
//! with more than [`MOST_ELEMENTS`] before anything is allocated for it. What cannot be decoded is the caller's fault, too:
//! INVALID_ARGUMENT. build.rs puts this codec in the place of prost's.

use std::sync::{Mutex, PoisonError};

use prost::Message;
use prost::bytes::Buf;
use tokio::runtime::{Handle, RuntimeFlavor};
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::status;

/// Fields of one request, nested ones included. A hundred passages are a few hundred; `EvaluateRanking` of 250 queries with a
/// thousand documents each, the largest by far, has a million. Decoded, a million empty messages take 100 MB.
const MOST_ELEMENTS: usize = 1_000_000;

/// A message of more bytes takes the reactor's thread for more than a millisecond.
const LARGE: usize = 256 << 10;

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
    U: Message + Default + Send + 'static,
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
        CountingDecoder { inner: self.0.decoder(), counts: std::any::type_name::<U>().ends_with("Request") }
    }
}

/// prost's decoder behind the count.
#[derive(Debug)]
pub struct CountingDecoder<D> {
    inner: D,
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
            if elements(wire, MOST_ELEMENTS).is_none() {
                let problem = format!("more than {MOST_ELEMENTS} fields given");
                return Err(status::bad_field(format!("message: {problem}"), "message", &problem));
            }
        }
        self.inner.decode(source).map_err(|status| match status.code() {
            Code::Internal if self.counts => Status::invalid_argument(format!("message: {}", status.message())),
            _ => status,
        })
    }
}

/// Runs the decoding of a large message: one at a time, so that many leave cores to what else the server does, and on a
/// thread that the reactor gave up, so that small requests and health checks are not behind it.
fn beside_the_reactor<T>(decode: impl FnOnce() -> T) -> T {
    static ONE: Mutex<()> = Mutex::new(());
    let alone = || {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        decode()
    };
    // A reactor of one thread, as in tests, has no other thread to hand over to.
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(alone),
        _ => alone(),
    }
}

/// Fields of a message and of the messages in it; `None` where they are more than `most`.
fn elements(wire: &[u8], most: usize) -> Option<usize> {
    let mut total = 0;
    let mut rest = wire;
    while let Some((field, after)) = next_field(rest) {
        rest = after;
        // The bytes of a text may read as fields. That overcounts by at most half its length, and by far less for text in
        // any language: a field takes the bytes of its number, and the first byte that begins none ends the count.
        let inside = field.map_or(0, fields);
        total += 1 + inside;
        if total > most {
            return None;
        }
    }
    Some(total)
}

/// Fields of a nested message, up to the first that is none: prost keeps those before it until it finds the fault.
fn fields(wire: &[u8]) -> usize {
    let (mut count, mut rest) = (0, wire);
    while let Some((_, after)) = next_field(rest) {
        count += 1;
        rest = after;
    }
    count
}

/// A field with its payload, where it is length-delimited, and what follows. `None` at the end and for what is no field.
fn next_field(wire: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (tag, rest) = varint(wire)?;
    if tag < 8 {
        return None;
    }
    match tag & 7 {
        0 => Some((None, varint(rest)?.1)),
        1 => Some((None, rest.get(8..)?)),
        2 => {
            let (length, rest) = varint(rest)?;
            let length = usize::try_from(length).ok()?;
            Some((Some(rest.get(..length)?), rest.get(length..)?))
        }
        // The beginning and the end of a group, which prost steps over; what is inside counts as fields of the message.
        3 | 4 => Some((None, rest)),
        5 => Some((None, rest.get(4..)?)),
        _ => None,
    }
}

/// A base-128 number of at most ten bytes.
fn varint(wire: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (index, byte) in wire.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, &wire[index + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::v1;
    use super::*;

    #[test]
    fn lists_are_counted_two_levels_deep() {
        let passage = v1::Passage { id: "a".into(), text: "b".into(), ..v1::Passage::default() };
        let request =
            v1::RerankRequest { query: "q".into(), passages: vec![passage; 3], ..v1::RerankRequest::default() };
        assert_eq!(elements(&request.encode_to_vec(), 100), Some(1 + 3 * (1 + 2)));
        let queries =
            vec![v1::RankedQuery { documents: vec![v1::RankedDocument::default(); 40], ..Default::default() }; 5];
        let hostile = v1::EvaluateRankingRequest { queries, ..Default::default() }.encode_to_vec();
        assert_eq!(elements(&hostile, 1_000), Some(5 * 41));
        assert_eq!(elements(&hostile, 204), None);
    }

    #[test]
    fn ordinary_texts_are_few_fields() {
        let texts = [
            "Middlemarch appeared in eight parts, and George Eliot wrote it in 1871. ",
            "Der Roman erschien in acht B\u{e4}nden. ",
            "\u{5c0f}\u{8aac}\u{306f}\u{516b}\u{5dfb}\u{3067}\u{51fa}\u{7248}\u{3055}\u{308c}\u{305f}\u{3002}",
            "let x = vec![0; 16]; // ((((\n\t",
            "\n\n\n\n",
        ];
        for text in texts {
            let request = v1::RerankRequest { query: text.repeat(1_000), ..v1::RerankRequest::default() };
            assert!(elements(&request.encode_to_vec(), MOST_ELEMENTS).is_some(), "{text}");
        }
    }

    /// A group that nobody knows, or a wrong byte at the end, hid all fields of a message from the count.
    #[test]
    fn neither_groups_nor_a_wrong_end_hide_fields() {
        let query = v1::RankedQuery { documents: vec![v1::RankedDocument::default(); 40], ..Default::default() };
        let group = [0xfb, 0x01, 0xfc, 0x01];
        let mut wire = group.to_vec();
        for tail in [&group[..], &[0x07]] {
            let nested = [query.encode_to_vec(), tail.to_vec()].concat();
            wire.extend([0x0a, u8::try_from(nested.len()).unwrap()]);
            wire.extend(nested);
        }
        assert!(elements(&wire, 1_000).unwrap() >= 2 + 2 * 41);
        assert_eq!(elements(&wire, 82), None);
    }

    proptest! {
        /// Whatever the bytes: no panic, and no more fields than half the bytes.
        #[test]
        fn any_bytes(wire in proptest::collection::vec(any::<u8>(), 0..400)) {
            let counted = elements(&wire, usize::MAX).unwrap();
            prop_assert!(counted <= wire.len());
        }
    }
}
