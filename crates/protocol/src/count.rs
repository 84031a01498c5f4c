//! Fields of an encoded message, as far as prost would decode it.
//!
//! Counted are the fields of a message, of the messages in it, and deeper those of messages that hold lists. The shapes say which
//! fields are messages, so that a text is one field whatever its bytes. The walk must not end before prost does, or what follows
//! is decoded without having been counted. It therefore reads on beyond the end of a nested message where a field in it is
//! longer, and steps over groups that nobody knows, as prost does; it ends early only where prost finds the fault, too.

use super::shape::Shape;

/// prost refuses messages that nest deeper.
const DEEPEST: usize = 100;

/// Why a walk ends early.
#[derive(Debug, PartialEq)]
enum Stop {
    TooMany,
    /// prost ends here, too.
    Malformed,
}

/// Whether a message has more fields than `most`. Without a shape those inside other messages are not counted.
pub(super) fn exceeds(wire: &[u8], shape: Option<&Shape>, most: usize) -> bool {
    walk(wire, shape, most) == Err(Stop::TooMany)
}

/// The number of fields.
fn walk(wire: &[u8], shape: Option<&Shape>, most: usize) -> Result<usize, Stop> {
    let mut walk = Walk { rest: wire, left: most };
    walk.message(0, shape, 0)?;
    Ok(most - walk.left)
}

struct Walk<'a> {
    rest: &'a [u8],
    /// Fields that may follow.
    left: usize,
}

impl Walk<'_> {
    /// A message behind which so many bytes remain.
    fn message(&mut self, behind: usize, shape: Option<&Shape>, depth: usize) -> Result<(), Stop> {
        while self.rest.len() > behind {
            let (number, kind) = self.key()?;
            let inner = shape.and_then(|shape| shape.field(number));
            // prost does not look at the wire type of a map: whatever it is, an entry with a length follows.
            let kind = if kind < 6 && inner.is_some_and(|inner| inner.is_entry) { 2 } else { kind };
            match kind {
                2 => {
                    let length = self.length()?;
                    // Deeper messages without lists are no more than a few fields for each element of a list.
                    match inner.filter(|inner| depth == 0 || inner.holds_lists) {
                        Some(_) if depth == DEEPEST => return Err(Stop::Malformed),
                        Some(inner) => self.message(self.rest.len() - length, Some(inner), depth + 1)?,
                        None => self.skip(length)?,
                    }
                }
                3 => self.group()?,
                // The end of a group that has not begun.
                4 => return Err(Stop::Malformed),
                _ => self.scalar(kind)?,
            }
        }
        if self.rest.len() == behind { Ok(()) } else { Err(Stop::Malformed) }
    }

    /// The rest of a group, and the groups in it. prost looks into no message there.
    fn group(&mut self) -> Result<(), Stop> {
        let mut open = 1_usize;
        while open > 0 {
            match self.key()?.1 {
                2 => {
                    let length = self.length()?;
                    self.skip(length)?;
                }
                3 => open += 1,
                4 => open -= 1,
                kind => self.scalar(kind)?,
            }
        }
        Ok(())
    }

    /// Number and wire type of a field, which is counted.
    fn key(&mut self) -> Result<(u64, u64), Stop> {
        let key = self.varint()?;
        if key < 8 {
            return Err(Stop::Malformed);
        }
        self.left = self.left.checked_sub(1).ok_or(Stop::TooMany)?;
        Ok((key >> 3, key & 7))
    }

    fn scalar(&mut self, kind: u64) -> Result<(), Stop> {
        match kind {
            0 => self.varint().map(drop),
            1 => self.skip(8),
            5 => self.skip(4),
            _ => Err(Stop::Malformed),
        }
    }

    /// A length that the rest of the whole message has.
    fn length(&mut self) -> Result<usize, Stop> {
        let length = usize::try_from(self.varint()?).map_err(|_| Stop::Malformed)?;
        if length > self.rest.len() { Err(Stop::Malformed) } else { Ok(length) }
    }

    fn skip(&mut self, bytes: usize) -> Result<(), Stop> {
        self.rest = self.rest.get(bytes..).ok_or(Stop::Malformed)?;
        Ok(())
    }

    /// A base-128 number of at most ten bytes.
    fn varint(&mut self) -> Result<u64, Stop> {
        let mut value = 0_u64;
        for (index, byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.skip(index + 1)?;
                return Ok(value);
            }
        }
        Err(Stop::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::{Message, Name};

    use super::super::v1;
    use super::*;

    fn counted<M: Message + Name>(request: &M, most: usize) -> Option<usize> {
        counted_bytes::<M>(&request.encode_to_vec(), most)
    }

    fn counted_bytes<M: Name>(wire: &[u8], most: usize) -> Option<usize> {
        match walk(wire, Shape::of(&M::full_name()), most) {
            Ok(fields) => Some(fields),
            Err(stop) => {
                assert_eq!(stop, Stop::TooMany);
                None
            }
        }
    }

    #[test]
    fn lists_are_counted_two_levels_deep() {
        let passage = v1::Passage { id: "a".into(), text: "b".into(), ..v1::Passage::default() };
        let request =
            v1::RerankRequest { query: "q".into(), passages: vec![passage; 3], ..v1::RerankRequest::default() };
        assert_eq!(counted(&request, 100), Some(1 + 3 * (1 + 2)));
        let document = v1::RankedDocument { id: "d".into(), score: Some(2.0), label: None };
        let queries = vec![v1::RankedQuery { documents: vec![document; 40], ..Default::default() }; 5];
        let hostile = v1::EvaluateRankingRequest { queries, ..Default::default() };
        assert_eq!(counted(&hostile, 1_000), Some(5 * 41));
        assert_eq!(counted(&hostile, 205), Some(5 * 41));
        assert_eq!(counted(&hostile, 204), None);
    }

    /// Lists that lie deeper: the words of a background are four levels down on a watched request.
    #[test]
    fn lists_are_counted_however_deep_they_lie() {
        let request = words(40);
        assert_eq!(counted_bytes::<v1::RerankRequest>(&request, 100), Some(1 + 1 + 40));
        assert_eq!(counted_bytes::<v1::RerankRequest>(&request, 41), None);
        let watched = delimited(1, &request);
        assert_eq!(counted_bytes::<v1::WatchRerankRequest>(&watched, 100), Some(1 + 1 + 1 + 40));
    }

    /// The bytes of a text may read as fields: a `c` or a `t` as a whole one, the beginning or end of a group.
    #[test]
    fn a_text_is_one_field() {
        let printed = (b' '..=b'~').map(|byte| char::from(byte).to_string());
        let others = ["\n", "\t", "Middlemarch appeared in eight parts. ", "Der Roman erschien in acht B\u{e4}nden. "];
        for text in printed.chain(others.map(str::to_owned)) {
            let query = text.repeat(1_000);
            let passage = v1::Passage { text: query.clone(), ..v1::Passage::default() };
            let request = v1::RerankRequest { query, passages: vec![passage], ..v1::RerankRequest::default() };
            assert_eq!(counted(&request, 100), Some(1 + 2), "{text}");
        }
    }

    /// A request with words of a background, encoded.
    fn words(count: u64) -> Vec<u8> {
        let frequencies = (0..count).map(|word| (word.to_string(), word)).collect();
        let background = v1::Background { frequencies, ..v1::Background::default() };
        let fusion = v1::Fusion { background: Some(background), ..v1::Fusion::default() };
        v1::RerankRequest { fusion: Some(fusion), ..v1::RerankRequest::default() }.encode_to_vec()
    }

    fn delimited(number: u8, content: &[u8]) -> Vec<u8> {
        let mut length = Vec::new();
        prost::encoding::encode_varint(content.len() as u64, &mut length);
        [&[number << 3 | 2], &length[..], content].concat()
    }

    /// Ways to hide fields from the count: a group that nobody knows, a fault that prost does not look for, a fault behind
    /// them, and a message in a shorter one.
    #[test]
    fn nothing_that_prost_decodes_is_hidden() {
        let request = delimited(1, &words(40));
        let group = [0xfb, 0x01, 0xfc, 0x01];
        // In a group, number 1 is no request, and what is no message there is no fault.
        let opaque = [&[0xfb, 0x01][..], &delimited(1, &[0x07]), &[0xfc, 0x01]].concat();
        for before in [&[][..], &group, &opaque] {
            let wire = [before, &request].concat();
            v1::WatchRerankRequest::decode(&wire[..]).unwrap();
            let added = counted_bytes::<v1::WatchRerankRequest>(before, 9).unwrap();
            assert_eq!(counted_bytes::<v1::WatchRerankRequest>(&wire, 99), Some(added + 43));
            let nested = delimited(1, &[before, &words(40)].concat());
            v1::WatchRerankRequest::decode(&nested[..]).unwrap();
            assert_eq!(counted_bytes::<v1::WatchRerankRequest>(&nested, 99), Some(added + 43));
            for faulty in [[&wire[..], &[0x07]].concat(), [&nested[..], &[0xff]].concat()] {
                v1::WatchRerankRequest::decode(&faulty[..]).unwrap_err();
                assert_eq!(counted_bytes::<v1::WatchRerankRequest>(&faulty, 42), None);
            }
        }
        // Entries of a map under another wire type.
        for kind in [0, 1, 3, 4, 5] {
            let entries = [2 << 3 | kind, 3, 0x0a, 1, b'a'].repeat(40);
            let request = delimited(11, &delimited(4, &entries));
            v1::RerankRequest::decode(&request[..]).unwrap();
            assert_eq!(counted_bytes::<v1::RerankRequest>(&request, 100), Some(1 + 1 + 40), "{kind}");
        }
        // The request says that it has one byte; prost reads its fusion to the end before it notices.
        let mut short = words(40);
        short.splice(0..0, [0x0a, 1]);
        assert_eq!(counted_bytes::<v1::WatchRerankRequest>(&short, 42), None);
        assert_eq!(walk(&short, Shape::of("rerankd.v1.WatchRerankRequest"), 43), Err(Stop::Malformed));
    }

    proptest! {
        /// Whatever the bytes: no panic, and no more fields than bytes.
        #[test]
        fn any_bytes(wire in proptest::collection::vec(any::<u8>(), 0..400)) {
            let shape = Shape::of("rerankd.v1.WatchRerankRequest");
            prop_assert!(walk(&wire, shape, wire.len()) != Err(Stop::TooMany));
        }

        /// What prost decodes is walked to its end, whatever bytes were changed.
        #[test]
        fn what_is_decoded_is_walked(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let passage = v1::Passage { text: "George Eliot".into(), ..v1::Passage::default() };
            let rest = v1::RerankRequest { passages: vec![passage; 3], ..v1::RerankRequest::default() };
            let mut wire = delimited(1, &[words(3), rest.encode_to_vec()].concat());
            for (at, byte) in changes {
                let at = at.index(wire.len());
                wire[at] = byte;
            }
            if v1::WatchRerankRequest::decode(&wire[..]).is_ok() {
                prop_assert!(walk(&wire, Shape::of("rerankd.v1.WatchRerankRequest"), 999).is_ok());
            }
        }

        /// Whatever the texts: the query, and a title and a text of every passage.
        #[test]
        fn any_texts(texts in proptest::collection::vec((".+", ".+"), 0..9)) {
            let passage = |(title, text)| v1::Passage { title, text, ..v1::Passage::default() };
            let passages: Vec<v1::Passage> = texts.into_iter().map(passage).collect();
            let (query, expected) = ("who wrote it?".to_owned(), 1 + 3 * passages.len());
            let request = v1::RerankRequest { query, passages, ..v1::RerankRequest::default() };
            prop_assert_eq!(counted(&request, expected), Some(expected));
        }
    }
}
