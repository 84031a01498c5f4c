//! The estimated work of a list, before tokenisation.

use super::List;
use crate::scheduler::estimate::BYTES_PER_TOKEN;
use crate::scheduler::turns::Size;

/// Approximate bytes of the prompt format around a pair of texts.
const FORMAT: usize = 16;

/// Bytes of texts, at most those of `tokens` tokens each.
fn bytes<'a>(texts: impl Iterator<Item = &'a str>, tokens: usize) -> usize {
    let most = tokens.saturating_mul(BYTES_PER_TOKEN);
    texts.map(|text| text.len().min(most)).fold(0, usize::saturating_add)
}

impl List {
    /// Its size for a model that reads `read` tokens of a pair. The query counts with each passage.
    pub(super) fn size(&self, read: usize) -> Size {
        let cut = self.shortening.passage_tokens.unwrap_or(usize::MAX).min(read);
        let passages = bytes(self.passages.iter().map(String::as_str), cut);
        let query = bytes(std::iter::once(&*self.query), read).saturating_add(FORMAT);
        let bytes = passages.saturating_add(query.saturating_mul(self.passages.len()));
        Size { bytes, most: self.tokens }
    }
}
