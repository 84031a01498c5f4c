//! The prompt that shows a list of labelled passages and asks for their order (RankGPT, Sun et al., 2023; the
//! wording of rank_llm). The query comes last, so that several queries about one list cost a suffix each.
//!
//! ```text
//! [prompt prefix: chat template, instruction] ([label, as "[A] "] [passage])* [cue: query, task, end of the chat template, "["] [labels]
//! ```

use std::sync::Arc;

use super::super::Task;
use super::windows::WINDOW;
use crate::prompt::Language;
use crate::types::EngineError;
use prefix_scheduler::plan::{Segment, Token};

/// How the passages of a list are labelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Labels {
    /// A, B, C and so on.
    Letters,
    /// 1, 2, 3 and so on.
    Numbers,
}

impl Labels {
    /// The label of a position, from 0.
    fn of(self, place: usize) -> String {
        match self {
            Self::Letters => ('A'..='Z').nth(place).unwrap_or('?').to_string(),
            Self::Numbers => (place + 1).to_string(),
        }
    }

    /// The labels of a window.
    pub fn tokens(self, language: &Language) -> Vec<Vec<Token>> {
        (0..WINDOW).map(|place| language.text(&self.of(place))).collect()
    }

    fn instruction(self) -> &'static str {
        match self {
            Self::Letters => {
                "I will provide you with passages, each indicated by an alphabetical identifier []. Rank the passages based on \
                 their relevance to the search query that follows them.\n\n"
            }
            Self::Numbers => {
                "I will provide you with passages, each indicated by a numerical identifier []. Rank the passages based on \
                 their relevance to the search query that follows them.\n\n"
            }
        }
    }

    fn task(self) -> &'static str {
        match self {
            Self::Letters => {
                "\nRank the passages above based on their relevance to the search query. All the passages should be included \
                 and listed using identifiers, in descending order of relevance. The output format should be [] > [], e.g., \
                 [B] > [A]. Only respond with the ranking results, do not say any word or explain.\n"
            }
            Self::Numbers => {
                "\nRank the passages above based on their relevance to the search query. All the passages should be included \
                 and listed using identifiers, in descending order of relevance. The output format should be [] > [], e.g., \
                 [2] > [1]. Only respond with the ranking results, do not say any word or explain.\n"
            }
        }
    }

    /// The segment that asks about a tokenised query and opens the first bracket of the answer.
    pub fn cue(self, language: &Language, query: &[Token]) -> Segment {
        let (lead, task, bracket) = (language.text("Search Query:"), language.text(self.task()), language.text("["));
        Segment::context([&lead[..], query, &task, language.closing(), &bracket].concat())
    }

    /// Tokens of a prompt that are neither passage nor query, up to the cue.
    pub fn overhead(self, language: &Language, passages: usize) -> usize {
        let leads: usize = (0..passages.min(WINDOW)).map(|place| self.lead(language, place).len()).sum();
        language.prefix(self.instruction()).tokens.len() + leads + self.cue(language, &[]).tokens.len()
    }

    fn lead(self, language: &Language, place: usize) -> Vec<Token> {
        language.text(&format!("[{}] ", self.of(place)))
    }
}

/// The part of the prompt with the list.
pub(super) struct ListPrompt {
    task: Arc<Task>,
    prefix: Segment,
    leads: Vec<Segment>,
}

impl ListPrompt {
    pub fn new(task: Arc<Task>, labels: Labels) -> Result<Self, EngineError> {
        let language = task.language()?;
        let prefix = language.prefix(labels.instruction());
        let leads = (0..WINDOW).map(|place| Segment::context(labels.lead(language, place))).collect();
        Ok(Self { task, prefix, leads })
    }

    /// Prompt prefix and labelled passages of at most a window, in this order.
    pub fn segments(&self, order: &[usize]) -> Vec<Segment> {
        let passage = |&index: &usize| Segment::context(Arc::clone(&self.task.passages[index]));
        let labelled = self.leads.iter().cloned().zip(order.iter().map(passage));
        std::iter::once(self.prefix.clone()).chain(labelled.flat_map(|(lead, passage)| [lead, passage])).collect()
    }
}
