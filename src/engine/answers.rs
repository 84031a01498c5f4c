//! Prompts that ask for the answer to a question, with any of its passages in any order.

use std::sync::Arc;

use super::rerank::Passage;
use super::{Engine, EngineError, truncate};
use crate::engine::prompt::{PassageTokens, query_tokens};
use crate::plan::{Segment, Token};

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
pub(super) struct AnswerPrompts {
    opening: Segment,
    passages: Vec<Segment>,
    cue: Segment,
    /// Tokens cut from the end of each passage.
    pub cut: Vec<usize>,
}

impl AnswerPrompts {
    /// `longest` is the number of passages in the longest prompt, `room` the tokens that an answer may take.
    pub fn new(engine: &Engine, asked: Asked<'_>, longest: usize, room: usize) -> Result<Self, EngineError> {
        let tokenizer = engine.tokenizer.as_ref();
        let question = query_tokens(tokenizer, asked.question);
        let texts: Vec<PassageTokens> =
            asked.passages.iter().map(|passage| PassageTokens::new(tokenizer, &passage.title, &passage.text)).collect();
        let frame = engine.template.answer_overhead() + question.len() + room;
        let context = engine.context()?;
        let Some(available) = context.checked_sub(frame) else {
            let available = context.saturating_sub(frame - question.len());
            return Err(EngineError::TooLong { field: "question".into(), needed: question.len(), available });
        };
        let bounded: Vec<usize> =
            texts.iter().map(|text| text.len().min(asked.passage_tokens.unwrap_or(usize::MAX))).collect();
        let cap = if asked.truncate.unwrap_or(engine.limits.truncate) {
            let least: Vec<usize> = texts.iter().map(PassageTokens::least).collect();
            truncate::common_cap(&bounded, &least, longest, available).ok_or_else(|| EngineError::TooLong {
                field: "passages".into(),
                needed: least.iter().sum(),
                available,
            })?
        } else {
            truncate::refuse_long(&bounded, longest, available)?;
            usize::MAX
        };
        let mut cut = Vec::with_capacity(texts.len());
        let mut passages = Vec::with_capacity(texts.len());
        for (text, bound) in texts.iter().zip(&bounded) {
            let (tokens, dropped): (Vec<Token>, usize) = text.cut(cap.min(*bound));
            passages.push(Segment::context(Arc::<[Token]>::from(tokens)));
            cut.push(dropped);
        }
        let cue = engine.template.answer_cue(&question);
        Ok(Self { opening: engine.template.answer_opening(), passages, cue, cut })
    }

    /// A passage as it stands in prompts.
    pub fn passage(&self, index: usize) -> &Segment {
        &self.passages[index]
    }

    /// The segments of a prompt with these passages, in this order.
    pub fn prompt(&self, order: &[usize]) -> Vec<Segment> {
        let passages = order.iter().map(|&index| self.passages[index].clone());
        std::iter::once(self.opening.clone()).chain(passages).chain(std::iter::once(self.cue.clone())).collect()
    }
}
