//! Prompts that ask for the answer to a question, with any of its passages in any order.
//!
//! ```text
//! [opening: chat frame, instruction] [passage]* [question, closing of the frame, "Short answer:"] [answer, scored or sampled]
//! ```

use std::sync::Arc;

use super::models::ServedGenerator;
use super::prompt::{CutSide, Language};
use super::rerank::Passage;
use super::truncate::{Fit, FittedPassages, fit_passages};
use super::{EngineError, Limits};
use crate::call::Call;
use crate::plan::{Segment, Token};

/// Asks for the answer to a question with passages.
const INSTRUCTION: &str = "Answer the question with a few words from the documents.\n\n";

/// The same where there are no passages: a prompt that speaks of documents and shows none would measure the generator's
/// confusion, not its belief.
const CONTEXT_FREE_INSTRUCTION: &str = "Answer the question with a few words.\n\n";

/// Tokens of the prompt that are neither passage nor question.
pub(super) fn overhead(language: &Language) -> usize {
    let opening =
        language.opening(INSTRUCTION).tokens.len().max(language.opening(CONTEXT_FREE_INSTRUCTION).tokens.len());
    opening + cue(language, &[]).tokens.len()
}

/// Asks a tokenised question ([`Language::query`]) after the passages.
fn cue(language: &Language, question: &[Token]) -> Segment {
    let (lead, end, answer) = (language.text("Question:"), language.text("\n"), language.text("Short answer:"));
    Segment::context([&lead[..], question, &end, language.closing(), &answer].concat())
}

/// A question and its passages, as they go into prompts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub question: &'a str,
    pub passages: &'a [Passage],
    /// Most tokens of a passage; no bound but the context where `None`.
    pub passage_tokens: Option<usize>,
    /// Whether passages may be cut to fit; the server's default where `None`.
    pub truncate: Option<bool>,
}

/// A question with its passages, tokenised and cut to fit.
#[derive(Debug, Clone)]
pub(super) struct AnswerPrompts {
    opening: Segment,
    context_free_opening: Segment,
    passages: Vec<Segment>,
    cue: Segment,
}

impl AnswerPrompts {
    /// From a question ([`Language::query`]) and passages that are tokenised and fit already.
    pub fn new(language: &Language, question: &[Token], passages: impl IntoIterator<Item = Arc<[Token]>>) -> Self {
        Self {
            opening: language.opening(INSTRUCTION),
            context_free_opening: language.opening(CONTEXT_FREE_INSTRUCTION),
            passages: passages.into_iter().map(Segment::context).collect(),
            cue: cue(language, question),
        }
    }

    /// Tokenises and cuts to fit. `longest` is the number of passages in the longest prompt, `room` the tokens that an
    /// answer may take. Also returns how many tokens were cut from the end of each passage.
    pub fn fitted(
        model: &ServedGenerator,
        limits: &Limits,
        call: &Call,
        asked: Asked<'_>,
        longest: usize,
        room: usize,
    ) -> Result<(Self, Vec<usize>), EngineError> {
        let language = &model.language;
        let question = language.query(asked.question);
        let frame = overhead(language) + question.len() + room;
        let context = model.context()?;
        let Some(available) = context.checked_sub(frame) else {
            let available = context.saturating_sub(frame - question.len());
            return Err(EngineError::TooLong { field: "question".into(), needed: question.len(), available });
        };
        let truncate = asked.truncate.unwrap_or(limits.truncate);
        let fit = Fit { available, longest, passage_tokens: asked.passage_tokens, truncate, side: CutSide::End };
        let FittedPassages { tokens, cut } = fit_passages(language, asked.passages, fit, call)?;
        Ok((Self::new(language, &question, tokens), cut))
    }

    /// A passage as it stands in prompts.
    pub fn passage(&self, index: usize) -> &Segment {
        &self.passages[index]
    }

    /// The segments of a prompt with these passages, in this order.
    pub fn prompt(&self, order: &[usize]) -> Vec<Segment> {
        let opening = if order.is_empty() { &self.context_free_opening } else { &self.opening };
        let passages = order.iter().map(|&index| self.passages[index].clone());
        std::iter::once(opening.clone()).chain(passages).chain(std::iter::once(self.cue.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::ByteTokenizer;

    /// Letter (f): a prompt without passages asked for words "from the documents".
    #[test]
    fn a_prompt_without_passages_does_not_speak_of_documents() {
        let language = Language::new(Arc::new(ByteTokenizer::default()), false);
        let passage = language.text("Document: a\n\n").into();
        let prompts = AnswerPrompts::new(&language, &language.query("who?"), [passage]);
        let text = |order: &[usize]| {
            let tokens: Vec<Token> =
                prompts.prompt(order).iter().flat_map(|segment| segment.tokens.iter().copied()).collect();
            language.tokenizer.detokenize(&tokens)
        };
        assert!(!text(&[]).to_lowercase().contains("document"), "{}", text(&[]));
        assert!(text(&[0]).contains("from the documents"));
        assert!(text(&[]).ends_with("Question: who?\nShort answer:"));
    }
}
