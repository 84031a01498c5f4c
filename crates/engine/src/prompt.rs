//! Common parts of all prompts: the chat template, and the tokens of passages and queries.
//!
//! Each prompt's text is in the module that uses it: `methods` for scores of the query, `task` for answers,
//! `judgement` for Yes and No. Segments are tokenised separately and concatenated. A passage therefore has the same
//! tokens at every position, and many orders can share segments. Control tokens in the caller's text are not
//! parsed. Only the chat template may contain control tokens.

use std::sync::Arc;

use crate::types::{CutSide, read_as, unmarked};
use prefix_scheduler::model::Tokenizer;
pub use prefix_scheduler::model::{PromptFormat, YesNoPrompt};
use prefix_scheduler::plan::{Segment, Token};

/// Version of all prompt texts. Position-bias profiles and stored evaluations are only valid for the version that
/// they were made with.
pub const TEMPLATE_VERSION: &str = "rerankd-2";

/// Version of everything in the code that decides a ranking besides prompts: the built-in weights and scales of
/// [`crate::fusion`], and the methods. Stored results of comparisons and evaluations depend on it, so any such
/// change needs a new version.
pub const RANKING_VERSION: &str = "ranking-3";

/// A generator's tokenizer and the chat template of its prompts.
#[derive(Clone)]
pub struct Language {
    /// Tokenizer of the generator.
    pub tokenizer: Arc<dyn Tokenizer>,
    before: Vec<Token>,
    after: Vec<Token>,
    /// True if only the beginning of the sequence precedes a prompt's first text.
    bare: bool,
    yes_no: YesNoPrompt,
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
    /// Uses the model's chat template if it has one, else only the beginning-of-sequence token.
    #[must_use]
    pub fn new(tokenizer: Arc<dyn Tokenizer>, frame: PromptFormat) -> Self {
        let template = tokenizer.chat_frame(frame).ok().flatten();
        Self::framed(tokenizer, template)
    }

    /// [`Language::new`] with the texts before and after the user's message.
    pub(super) fn framed(tokenizer: Arc<dyn Tokenizer>, template: Option<(String, String)>) -> Self {
        let (before, after) = template.unwrap_or_default();
        let (before, after) = (tokenizer.template(&before, true), tokenizer.template(&after, false));
        let bare = before == tokenizer.template("", true);
        Self { tokenizer, before, after, bare, yes_no: YesNoPrompt::Generic }
    }

    /// This language for a model that was trained with the prompt `yes_no`.
    #[must_use]
    pub fn with_yes_no(self, yes_no: YesNoPrompt) -> Self {
        Self { yes_no, ..self }
    }

    /// The prompt of the method `yes-no`.
    #[must_use]
    pub const fn yes_no(&self) -> YesNoPrompt {
        self.yes_no
    }

    /// Tokenises text without parsing control tokens.
    #[must_use]
    pub fn text(&self, text: &str) -> Vec<Token> {
        self.tokenizer.text(text)
    }

    /// First segment of a prompt: the chat template before the user's message, then the instruction. Context only.
    #[must_use]
    pub fn prefix(&self, instruction: &str) -> Segment {
        let text = if self.bare { self.tokenizer.first_text(instruction) } else { self.text(instruction) };
        Segment::context([self.before.clone(), text].concat())
    }

    /// The chat template between the user's message and the model's answer; may be empty.
    #[must_use]
    pub fn closing(&self) -> &[Token] {
        &self.after
    }

    /// Tokens of a trimmed query with a leading space, as it follows a cue such as `Question:`.
    #[must_use]
    pub fn query(&self, query: &str) -> Vec<Token> {
        self.text(&format!(" {}", unmarked(query).trim()))
    }
}

/// The form of a passage in a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PassageForm {
    /// `Document: (title) text` and an empty line.
    #[default]
    Labelled,
    /// Title and text, each after a space: the prompt says what they are.
    Bare,
}

/// Tokens of a passage: head (label and title), body (text, may be truncated) and tail (separator).
#[derive(Debug, Clone)]
pub struct PassageTokens {
    head: Vec<Token>,
    body: Vec<Token>,
    tail: Vec<Token>,
}

impl PassageTokens {
    /// Tokenises a passage. A blank title is omitted, and a title without text counts as text. A passage without
    /// either has no tokens.
    #[must_use]
    pub fn new(tokenizer: &dyn Tokenizer, title: &str, text: &str) -> Self {
        Self::formed(PassageForm::Labelled, tokenizer, title, text)
    }

    /// [`PassageTokens::new`] in another form.
    pub(super) fn formed(form: PassageForm, tokenizer: &dyn Tokenizer, title: &str, text: &str) -> Self {
        let (title, text) = read_as(title, text);
        let title = title.trim();
        if text.trim().is_empty() {
            return Self { head: Vec::new(), body: Vec::new(), tail: Vec::new() };
        }
        let (head, tail) = match form {
            PassageForm::Labelled if title.is_empty() => ("Document:".to_owned(), "\n\n"),
            PassageForm::Labelled => (format!("Document: ({title})"), "\n\n"),
            PassageForm::Bare if title.is_empty() => (String::new(), ""),
            PassageForm::Bare => (format!(" {title}"), ""),
        };
        Self {
            head: tokenizer.text(&head),
            body: tokenizer.text(&format!(" {}", text.trim())),
            tail: tokenizer.text(tail),
        }
    }

    /// Length in tokens without truncation.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.head.len() + self.body.len() + self.tail.len()
    }

    /// Length in tokens within a bound, with at least one token of the text.
    #[must_use]
    pub fn len_within(&self, most: Option<usize>) -> usize {
        self.len().min(most.map_or(usize::MAX, |most| most.max(self.least())))
    }

    /// True if the passage has no tokens.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Minimum length in tokens after truncation: head, one token of the body, tail.
    #[must_use]
    pub fn least(&self) -> usize {
        self.head.len() + self.body.len().min(1) + self.tail.len()
    }

    /// Tokens truncated to at most `limit` at the end of the body, and the number of dropped tokens. Head and tail are
    /// never dropped.
    #[must_use]
    pub fn cut(&self, limit: usize) -> (Vec<Token>, usize) {
        self.cut_at(limit, CutSide::End)
    }

    /// Length of the body in tokens without truncation.
    #[must_use]
    pub const fn body_len(&self) -> usize {
        self.body.len()
    }

    /// The range of the body in the tokens of a passage that was truncated to `length` tokens.
    #[must_use]
    pub fn body_in(&self, length: usize) -> std::ops::Range<usize> {
        let end = length.saturating_sub(self.tail.len());
        self.head.len().min(end)..end
    }

    /// The tokens of the text, not truncated. They follow a space.
    #[must_use]
    pub fn into_body(self) -> Vec<Token> {
        self.body
    }

    /// [`PassageTokens::cut`] at one side of the body.
    #[must_use]
    pub fn cut_at(&self, limit: usize, side: CutSide) -> (Vec<Token>, usize) {
        let keep = self.body.len().min(limit.saturating_sub(self.head.len() + self.tail.len()));
        let dropped = self.body.len() - keep;
        let body = match side {
            CutSide::End => &self.body[..keep],
            CutSide::Beginning => &self.body[dropped..],
        };
        ([self.head.as_slice(), body, &self.tail].concat(), dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prefix_scheduler::scripted::ByteTokenizer;

    #[test]
    fn cutting_keeps_the_frame() {
        let passage = PassageTokens::new(&ByteTokenizer::default(), "", "abcdef");
        let (tokens, dropped) = passage.cut(passage.len() - 2);
        assert_eq!((tokens.len(), dropped), (passage.len() - 2, 2));
        assert!(ByteTokenizer::default().detokenize(&tokens).ends_with("abcd\n\n"));
        let (tokens, dropped) = passage.cut_at(passage.len() - 2, CutSide::Beginning);
        assert_eq!(dropped, 2);
        // The body is the text after a space, so the first two tokens are the space and the "a".
        assert_eq!(ByteTokenizer::default().detokenize(&tokens), "Document:bcdef\n\n");
        assert_eq!(passage.cut(usize::MAX).1, 0);
    }

    #[test]
    fn the_chat_frame_surrounds_the_message_where_it_is_wanted() {
        let tokenizer = Arc::new(ByteTokenizer { frame: Some(("<u>".into(), "</u>".into())) });
        let text = |tokens: &[Token]| ByteTokenizer::default().detokenize(tokens);
        let chat = Language::new(tokenizer.clone(), PromptFormat::Chat);
        assert_eq!((text(&chat.prefix("Read.").tokens), text(chat.closing())), ("<u>Read.".into(), "</u>".into()));
        let plain = Language::new(tokenizer, PromptFormat::Plain);
        assert_eq!((text(&plain.prefix("Read.").tokens), text(plain.closing())), ("Read.".into(), String::new()));
    }
}
