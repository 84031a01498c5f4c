//! Requests over HTTP/2 that the library refuses by itself: it resets their stream, and no service hears of them.
//!
//! h2 has no hook for them, so the frames that are written are read: a RST_STREAM tells of such a request by its code.

use std::sync::Arc;

use super::seldom::Seldom;

/// The reason why a request was refused before it reached the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unserved {
    /// Its header, or a frame of it, is not valid.
    Malformed,
    /// Its connection has as many requests in progress as it may have.
    TooMany,
}

impl Unserved {
    /// The reason in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooMany => "too_many",
        }
    }

    /// The reason of a reset with this code (RFC 9113, section 7); `None` for a request that was served, or whose caller left.
    const fn of(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::Malformed),
            7 => Some(Self::TooMany),
            _ => None,
        }
    }
}

/// Hears of every request that was refused before it reached the service.
pub type Listen = Arc<dyn Fn(Unserved) + Send + Sync>;

/// Of all connections: a client without a token may send thousands of such requests.
static MALFORMED: Seldom = Seldom::new();

/// Bytes of a frame's header: the length of its content, its type, its flags, its stream.
const HEADER: usize = 9;

/// Bytes of a RST_STREAM's content: the code.
const CODE: usize = 4;

const RST_STREAM: u8 = 3;

/// Follows the frames that are written to a connection.
pub(super) struct Resets {
    listen: Listen,
    /// The frame's header, and the code behind that of a RST_STREAM, as far as they were written.
    begun: [u8; HEADER + CODE],
    held: usize,
    /// Bytes of the content that are still to be written, and of no interest.
    skip: usize,
}

impl Resets {
    pub fn new(listen: Listen) -> Self {
        Self { listen, begun: [0; HEADER + CODE], held: 0, skip: 0 }
    }

    /// Takes bytes that were written.
    pub fn see(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let is_reset = self.held >= HEADER && self.begun[3] == RST_STREAM;
            let wanted = if is_reset { HEADER + CODE } else { HEADER };
            let taken = (wanted - self.held).min(bytes.len());
            self.begun[self.held..self.held + taken].copy_from_slice(&bytes[..taken]);
            self.held += taken;
            bytes = &bytes[taken..];
            if self.held == wanted {
                self.complete();
            }
        }
    }

    /// Goes on to the next frame, or to the code of a RST_STREAM.
    fn complete(&mut self) {
        let [high, middle, low, kind, .., a, b, c, d] = self.begun;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        if kind == RST_STREAM && length == CODE {
            if self.held == HEADER {
                return;
            }
            if let Some(reason) = Unserved::of(u32::from_be_bytes([a, b, c, d])) {
                self.tell(reason);
            }
        } else {
            self.skip = length;
        }
        self.held = 0;
    }

    fn tell(&self, reason: Unserved) {
        (self.listen)(reason);
        if reason == Unserved::Malformed
            && let Some(untold) = MALFORMED.is_due()
        {
            let advice = "grpcio with a list of addresses needs the channel option grpc.default_authority";
            tracing::warn!(untold, advice, "a request with an invalid header was refused: stream reset");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
        let [_, length @ ..] = u32::try_from(content.len()).unwrap().to_be_bytes();
        [&length[..], &[kind, 0, 0, 0, 0, 7], content].concat()
    }

    fn reset(code: u32) -> Vec<u8> {
        frame(RST_STREAM, &code.to_be_bytes())
    }

    /// However the bytes are cut into writes, and whatever the other frames hold.
    #[test]
    fn resets_are_found_between_other_frames() {
        let within = frame(0, &[reset(1), vec![3; 300]].concat());
        let written =
            [frame(4, &[]), reset(1), within, reset(0), reset(8), reset(7), frame(6, &[3; 8]), reset(1)].concat();
        for size in 1..=written.len() {
            let heard = Arc::new(Mutex::new(Vec::new()));
            let told = Arc::clone(&heard);
            let mut resets = Resets::new(Arc::new(move |reason| told.lock().unwrap().push(reason)));
            for part in written.chunks(size) {
                resets.see(part);
            }
            let expected = [Unserved::Malformed, Unserved::TooMany, Unserved::Malformed];
            assert_eq!(*heard.lock().unwrap(), expected, "{size} bytes a write");
        }
    }
}
