//! How much work a list is, before the model has read it.

use super::List;
use super::work::of_batch;
use crate::scheduler::backlog::Size;

/// Bytes counted for a token of a text that is cut.
const BYTES_PER_TOKEN: usize = 4;

/// Bytes counted for what stands around a pair of texts.
const FRAME: usize = 16;

/// Bytes of texts of which the model reads so many tokens at most.
fn bytes<'a>(texts: impl Iterator<Item = &'a str>, tokens: usize) -> usize {
    let most = tokens.saturating_mul(BYTES_PER_TOKEN);
    texts.map(|text| text.len().min(most)).fold(0, usize::saturating_add)
}

impl List {
    /// Its size for a model that reads `read` tokens of a pair and has such a batch. The query counts beside each passage.
    pub(super) fn size(&self, read: usize, batch: usize) -> Size {
        let cut = self.shortening.passage_tokens.unwrap_or(usize::MAX).min(read);
        let passages = bytes(self.passages.iter().map(String::as_str), cut);
        let beside = bytes(std::iter::once(&*self.query), read).saturating_add(FRAME);
        let bytes = passages.saturating_add(beside.saturating_mul(self.passages.len()));
        let (turn, tokens) = of_batch(batch);
        Size {
            bytes,
            most: self.tokens,
            turns: self.passages.len().div_ceil(turn),
            turn: tokens,
            refusable: true,
            partial: !self.preferred.is_empty(),
        }
    }
}
