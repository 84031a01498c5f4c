//! Yes-or-No prompts about a passage: does it help to answer (`evaluate`, and the ranking method `yes-no`), and is
//! it relevant (`evaluate`)?
//!
//! ```text
//! [prompt prefix: chat template, instruction] [passage] [question, end of the chat template, "Yes or No:"] [" Yes" or " No", scored]
//! ```

use crate::prompt::Language;
use prefix_scheduler::plan::{Segment, Token};

const VERDICTS: [&str; 2] = [" Yes", " No"];

/// A question about a passage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// Does it help to answer the question?
    Helps,
    /// Is it relevant to the query? The judgement that eRAG is compared with. The paper (section 3.1) has a model
    /// annotate each document, "determining whether it is relevant to the query or not", and gives no prompt; the
    /// rest of the text is ours.
    Relevant,
}

impl Asks {
    const fn instruction(self) -> &'static str {
        match self {
            Self::Helps => "Decide whether the document helps to answer the question.\n\n",
            Self::Relevant => "Decide whether the document is relevant to the query or not.\n\n",
        }
    }

    /// The text before the question and after it.
    const fn around(self) -> (&'static str, &'static str) {
        match self {
            Self::Helps => ("Question:", "\nDoes the document help to answer the question?"),
            Self::Relevant => ("Query:", "\nIs the document relevant to the query?"),
        }
    }

    fn cue(self, language: &Language, question: &[Token]) -> Vec<Token> {
        let (lead, ask) = self.around();
        let (lead, ask) = (language.text(lead), language.text(ask));
        [&lead[..], question, &ask, language.closing(), &language.text("Yes or No:")].concat()
    }

    /// Tokens of the prompt that are neither passage nor question.
    pub fn overhead(self, language: &Language) -> usize {
        let verdict = VERDICTS.iter().map(|verdict| language.text(verdict).len()).max().unwrap_or(0);
        language.prefix(self.instruction()).tokens.len() + self.cue(language, &[]).len() + verdict
    }
}

/// The parts of the prompt for one question.
pub(super) struct JudgementPrompt {
    prefix: Segment,
    cue: Segment,
    verdicts: [Segment; 2],
}

impl JudgementPrompt {
    /// The prompt for a tokenised question ([`Language::query`]).
    pub fn new(asks: Asks, language: &Language, question: &[Token]) -> Self {
        Self {
            prefix: language.prefix(asks.instruction()),
            cue: Segment::context(asks.cue(language, question)),
            verdicts: VERDICTS.map(|verdict| Segment::scored(language.text(verdict), 0)),
        }
    }

    /// The two prompts for a passage: one ends in a scored Yes, the other in a scored No.
    pub fn verdicts(&self, passage: &Segment) -> [Vec<Segment>; 2] {
        let prompt = |verdict: &Segment| vec![self.prefix.clone(), passage.clone(), self.cue.clone(), verdict.clone()];
        [prompt(&self.verdicts[0]), prompt(&self.verdicts[1])]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use prefix_scheduler::model::PromptFormat;
    use prefix_scheduler::scripted::ByteTokenizer;

    #[test]
    fn the_prompts_by_word() {
        let language = Language::new(Arc::new(ByteTokenizer::default()), PromptFormat::Plain);
        let passage = Segment::context(language.text("Document: a\n\n"));
        let text = |asks: Asks| {
            let [yes, no] = JudgementPrompt::new(asks, &language, &language.query("who?")).verdicts(&passage);
            let tokens = |prompt: &[Segment]| prompt.iter().flat_map(|one| one.tokens.to_vec()).collect::<Vec<Token>>();
            assert!(tokens(&yes).len() <= asks.overhead(&language) + passage.tokens.len() + " who?".len());
            let [yes, no] = [yes, no].map(|prompt| language.tokenizer.detokenize(&tokens(&prompt)));
            assert_eq!(yes.strip_suffix(" Yes"), no.strip_suffix(" No"));
            yes
        };
        let relevant = "Decide whether the document is relevant to the query or not.\n\nDocument: a\n\nQuery: who?\n\
                        Is the document relevant to the query?Yes or No: Yes";
        assert_eq!(text(Asks::Relevant), relevant);
        let helps = "Decide whether the document helps to answer the question.\n\nDocument: a\n\nQuestion: who?\n\
                     Does the document help to answer the question?Yes or No: Yes";
        assert_eq!(text(Asks::Helps), helps);
    }
}
