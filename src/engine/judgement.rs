//! The prompt that asks whether a passage helps: the judgement of relevance that eRAG is compared with (`evaluate`), and the
//! ranking method `yes-no`.
//!
//! ```text
//! [opening: chat frame, instruction] [passage] [question, closing of the frame, "Yes or No:"] [" Yes" or " No", scored]
//! ```

use crate::engine::prompt::Language;
use crate::plan::{Segment, Token};

const INSTRUCTION: &str = "Decide whether the document helps to answer the question.\n\n";
const VERDICTS: [&str; 2] = [" Yes", " No"];

fn cue(language: &Language, question: &[Token]) -> Vec<Token> {
    let (lead, ask) = (language.text("Question:"), language.text("\nDoes the document help to answer the question?"));
    [&lead[..], question, &ask, language.closing(), &language.text("Yes or No:")].concat()
}

/// Tokens of the prompt that are neither passage nor question.
pub(super) fn overhead(language: &Language) -> usize {
    let verdict = VERDICTS.iter().map(|verdict| language.text(verdict).len()).max().unwrap_or(0);
    language.opening(INSTRUCTION).tokens.len() + cue(language, &[]).len() + verdict
}

/// The parts of the prompt for one question.
pub(super) struct JudgementPrompt {
    opening: Segment,
    cue: Segment,
    verdicts: [Segment; 2],
}

impl JudgementPrompt {
    /// The prompt for a tokenised question ([`Language::query`]).
    pub fn new(language: &Language, question: &[Token]) -> Self {
        Self {
            opening: language.opening(INSTRUCTION),
            cue: Segment::context(cue(language, question)),
            verdicts: VERDICTS.map(|verdict| Segment::scored(language.text(verdict), 0)),
        }
    }

    /// The two prompts for a passage: up to a scored Yes, and up to a scored No.
    pub fn verdicts(&self, passage: &Segment) -> [Vec<Segment>; 2] {
        let prompt = |verdict: &Segment| vec![self.opening.clone(), passage.clone(), self.cue.clone(), verdict.clone()];
        [prompt(&self.verdicts[0]), prompt(&self.verdicts[1])]
    }
}
