//! Every prompt of the server, in one place.
//!
//! A prompt is tokenised segment by segment and concatenated, so a passage is the same tokens wherever it stands and the
//! segments of many orders can be shared. Text of the caller is tokenised with control tokens inert; only the frame of the
//! chat template may hold them.
//!
//! ```text
//! [opening: chat frame, instruction] [passage]* [cue: closing of the frame, "Question:"] [query, scored]
//! [opening: chat frame, instruction] [passage]* [question, closing of the frame, "Short answer:"] [answer, scored or sampled]
//! [opening: chat frame, instruction] [passage] [question, closing of the frame, "Yes or No:"] [" Yes" or " No", scored]
//! ```

use std::sync::Arc;

use crate::model::Tokenizer;
use crate::plan::{Segment, Token};

/// Version of the prompts below. It is part of what a position-bias profile or a cached score belongs to.
pub const TEMPLATE_VERSION: &str = "rerankd-1";

/// Asks for the question that the passages answer (question generation; Sachan et al., 2022).
const INSTRUCTION: &str = "Read the documents and write the question that they answer.\n\n";

/// Asks for the answer to a question.
const ANSWER_INSTRUCTION: &str = "Answer the question with a few words from the documents.\n\n";

/// Asks for a judgement of relevance, as the annotator that eRAG is compared with does.
const JUDGE_INSTRUCTION: &str = "Decide whether the document helps to answer the question.\n\n";

/// The parts of a prompt that do not depend on the request.
#[derive(Debug, Clone)]
pub struct Template {
    opening: Arc<[Token]>,
    cue: Vec<Token>,
    answer_opening: Arc<[Token]>,
    question_lead: Vec<Token>,
    answer_cue: Vec<Token>,
    judge_opening: Arc<[Token]>,
    judge_cue: Vec<Token>,
    yes: Arc<[Token]>,
    no: Arc<[Token]>,
}

impl Template {
    /// Reads the model's chat frame, or the plain frame for a model without one (or with `plain` set).
    #[must_use]
    pub fn new(tokenizer: &dyn Tokenizer, plain: bool) -> Self {
        let frame = if plain { None } else { tokenizer.chat_frame() };
        let (before, after) = frame.unwrap_or_default();
        let opening = |instruction: &str| -> Arc<[Token]> {
            [tokenizer.template(&before, true), tokenizer.text(instruction)].concat().into()
        };
        let closing = tokenizer.template(&after, false);
        Self {
            opening: opening(INSTRUCTION),
            cue: [closing.clone(), tokenizer.text("Question:")].concat(),
            answer_opening: opening(ANSWER_INSTRUCTION),
            question_lead: tokenizer.text("Question:"),
            answer_cue: [tokenizer.text("\n"), closing.clone(), tokenizer.text("Short answer:")].concat(),
            judge_opening: opening(JUDGE_INSTRUCTION),
            judge_cue: [
                tokenizer.text("\nDoes the document help to answer the question?"),
                closing,
                tokenizer.text("Yes or No:"),
            ]
            .concat(),
            yes: tokenizer.text(" Yes").into(),
            no: tokenizer.text(" No").into(),
        }
    }

    /// The segment that prompts for an answer begin with.
    #[must_use]
    pub fn answer_opening(&self) -> Segment {
        Segment::context(Arc::clone(&self.answer_opening))
    }

    /// The question and the cue after which the answer stands.
    #[must_use]
    pub fn answer_cue(&self, question: &[Token]) -> Segment {
        Segment::context([&self.question_lead, question, &self.answer_cue].concat())
    }

    /// The two prompts that ask whether a passage helps: up to a scored Yes, and up to a scored No.
    #[must_use]
    pub fn judgements(&self, passage: &Segment, question: &[Token]) -> [Vec<Segment>; 2] {
        let cue = Segment::context([&self.question_lead, question, &self.judge_cue].concat());
        [&self.yes, &self.no].map(|verdict| {
            let opening = Segment::context(Arc::clone(&self.judge_opening));
            vec![opening, passage.clone(), cue.clone(), Segment::scored(Arc::clone(verdict), 0)]
        })
    }

    /// Tokens of a judgement that are neither passage nor question.
    #[must_use]
    pub fn judgement_overhead(&self) -> usize {
        let verdict = self.yes.len().max(self.no.len());
        self.judge_opening.len() + self.question_lead.len() + self.judge_cue.len() + verdict
    }

    /// Tokens of a prompt for an answer that are neither passage nor question.
    #[must_use]
    pub fn answer_overhead(&self) -> usize {
        self.answer_opening.len() + self.question_lead.len() + self.answer_cue.len()
    }

    /// The segment every prompt begins with.
    #[must_use]
    pub fn opening(&self) -> Segment {
        Segment::context(Arc::clone(&self.opening))
    }

    /// The query after the cue; only the query's own tokens are scored.
    #[must_use]
    pub fn query(&self, query: &[Token]) -> Segment {
        let tokens: Vec<Token> = self.cue.iter().chain(query).copied().collect();
        Segment::scored(tokens, self.cue.len())
    }

    /// Tokens of a prompt that are neither passage nor query.
    #[must_use]
    pub fn overhead(&self) -> usize {
        self.opening.len() + self.cue.len()
    }
}

/// Tokens of a query as it stands after the cue.
#[must_use]
pub fn query_tokens(tokenizer: &dyn Tokenizer, query: &str) -> Vec<Token> {
    tokenizer.text(&format!(" {}", query.trim()))
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
    fn only_the_query_is_scored() {
        let template = Template::new(&ByteTokenizer::default(), false);
        let query = query_tokens(&ByteTokenizer::default(), "who?");
        let segment = template.query(&query);
        assert_eq!(segment.tokens.len() - segment.scored_from.unwrap(), " who?".len());
    }

    #[test]
    fn cutting_keeps_the_frame() {
        let passage = PassageTokens::new(&ByteTokenizer::default(), "", "abcdef");
        let (tokens, dropped) = passage.cut(passage.len() - 2);
        assert_eq!((tokens.len(), dropped), (passage.len() - 2, 2));
        assert!(ByteTokenizer::default().detokenize(&tokens).ends_with("abcd\n\n"));
        assert_eq!(passage.cut(usize::MAX).1, 0);
    }
}
