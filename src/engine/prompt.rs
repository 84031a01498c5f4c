//! What all prompts share: the frame of the chat template, passages and queries as tokens.
//!
//! The text of a prompt stands where the prompt is used: `methods` for scores of the query, `answers` for answers,
//! `evaluate::judgement` for Yes and No. A prompt is tokenised segment by segment and concatenated, so a passage is the same
//! tokens wherever it stands and the segments of many orders can be shared. Text of the caller is tokenised with control tokens
//! inert; only the frame of the chat template may hold them.

use std::sync::Arc;

use crate::model::Tokenizer;
use crate::plan::{Segment, Token};

/// Version of all prompts. It is part of what a position-bias profile or a stored evaluation belongs to.
pub const TEMPLATE_VERSION: &str = "rerankd-2";

/// A generator's vocabulary and the frame of its prompts.
#[derive(Clone)]
pub struct Language {
    /// The vocabulary.
    pub tokenizer: Arc<dyn Tokenizer>,
    before: Vec<Token>,
    after: Vec<Token>,
}

impl std::fmt::Debug for Language {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Language")
            .field("before", &self.before)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

impl Language {
    /// Takes the model's chat frame where `chat` is set and the model has one, else the plain frame: the beginning-of-sequence
    /// token alone.
    #[must_use]
    pub fn new(tokenizer: Arc<dyn Tokenizer>, chat: bool) -> Self {
        let frame = if chat { tokenizer.chat_frame() } else { None };
        let (before, after) = frame.unwrap_or_default();
        let (before, after) = (tokenizer.template(&before, true), tokenizer.template(&after, false));
        Self { tokenizer, before, after }
    }

    /// Tokens of text.
    #[must_use]
    pub fn text(&self, text: &str) -> Vec<Token> {
        self.tokenizer.text(text)
    }

    /// What a prompt begins with: the frame before the user's message, and an instruction.
    #[must_use]
    pub fn opening(&self, instruction: &str) -> Segment {
        Segment::context([self.before.clone(), self.text(instruction)].concat())
    }

    /// The frame after the user's message, which the model's answer follows.
    #[must_use]
    pub fn closing(&self) -> &[Token] {
        &self.after
    }

    /// Tokens of a query as it stands after a cue.
    #[must_use]
    pub fn query(&self, query: &str) -> Vec<Token> {
        self.text(&format!(" {}", query.trim()))
    }
}

/// A passage's tokens: what must stay, what may be cut at its end, and what closes it.
#[derive(Debug, Clone)]
pub struct PassageTokens {
    head: Vec<Token>,
    body: Vec<Token>,
    tail: Vec<Token>,
}

impl PassageTokens {
    /// Tokenises a passage under its title, if it has one.
    #[must_use]
    pub fn new(tokenizer: &dyn Tokenizer, title: &str, text: &str) -> Self {
        let head =
            if title.trim().is_empty() { "Document:".to_owned() } else { format!("Document: ({})", title.trim()) };
        Self {
            head: tokenizer.text(&head),
            body: tokenizer.text(&format!(" {}", text.trim())),
            tail: tokenizer.text("\n\n"),
        }
    }

    /// Length in tokens, uncut.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.head.len() + self.body.len() + self.tail.len()
    }

    /// Whether there are no tokens at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The least length it can be cut to: the frame and one token of the text.
    #[must_use]
    pub fn least(&self) -> usize {
        self.head.len() + self.body.len().min(1) + self.tail.len()
    }

    /// The tokens cut to at most `limit` by dropping the end of the text, and how many were dropped.
    #[must_use]
    pub fn cut(&self, limit: usize) -> (Vec<Token>, usize) {
        let keep = self.body.len().min(limit.saturating_sub(self.head.len() + self.tail.len()));
        let tokens = [self.head.as_slice(), &self.body[..keep], &self.tail].concat();
        (tokens, self.body.len() - keep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::ByteTokenizer;

    #[test]
    fn cutting_keeps_the_frame() {
        let passage = PassageTokens::new(&ByteTokenizer::default(), "", "abcdef");
        let (tokens, dropped) = passage.cut(passage.len() - 2);
        assert_eq!((tokens.len(), dropped), (passage.len() - 2, 2));
        assert!(ByteTokenizer::default().detokenize(&tokens).ends_with("abcd\n\n"));
        assert_eq!(passage.cut(usize::MAX).1, 0);
    }

    #[test]
    fn the_chat_frame_surrounds_the_message_where_it_is_wanted() {
        let tokenizer = Arc::new(ByteTokenizer { frame: Some(("<u>".into(), "</u>".into())) });
        let text = |tokens: &[Token]| ByteTokenizer::default().detokenize(tokens);
        let chat = Language::new(tokenizer.clone(), true);
        assert_eq!((text(&chat.opening("Read.").tokens), text(chat.closing())), ("<u>Read.".into(), "</u>".into()));
        let plain = Language::new(tokenizer, false);
        assert_eq!((text(&plain.opening("Read.").tokens), text(plain.closing())), ("Read.".into(), String::new()));
    }
}
