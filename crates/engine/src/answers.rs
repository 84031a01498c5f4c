//! Prompts that ask for the answer to a question, with any of its passages in any order. Module `task` has their
//! words.
//!
//! ```text
//! [prompt prefix: chat template, instruction] [passage]* [question, end of the chat template, cue] [answer or label, scored or sampled]
//! ```

use std::collections::HashSet;
use std::sync::Arc;

use super::prompt::Language;
use super::task::Wording;
use super::truncate::{Fit, FittedPassages, fit_passages};
use crate::types::{CutSide, EngineError, Limits, Passage, Task};
use prefix_scheduler::call::Call;
use prefix_scheduler::plan::{Segment, Token};

/// Tokens of the prompt of a short answer that are neither passage nor question.
pub(super) fn overhead(language: &Language) -> usize {
    overhead_of(language, &Task::default().wording())
}

/// Tokens of a prompt that are neither passage with its number nor question.
pub(super) fn overhead_of(language: &Language, wording: &Wording) -> usize {
    let prefix = |instruction: &str| language.prefix(instruction).tokens.len();
    let prefix = prefix(&wording.instruction).max(prefix(&wording.context_free));
    prefix + cue(language, wording, &[]).tokens.len()
}

/// Asks a tokenised question ([`Language::query`]) after the passages.
fn cue(language: &Language, wording: &Wording, question: &[Token]) -> Segment {
    let (lead, end, answer) = (language.text(wording.asks), language.text("\n"), language.text(wording.answers));
    Segment::context([&lead[..], question, &end, language.closing(), &answer].concat())
}

/// Numbers before the passages of a prompt, first to last; empty for prompts without numbers.
fn numbers(language: &Language, wording: &Wording, count: usize) -> Vec<Vec<Token>> {
    let count = if wording.numbered { count } else { 0 };
    (1..=count).map(|number| language.text(&format!("[{number}] "))).collect()
}

/// A question and its passages, as they go into prompts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// The task.
    pub task: &'a Task,
    pub question: &'a str,
    pub passages: &'a [Passage],
    /// Most tokens of a passage; `None` if only the context bounds it.
    pub passage_tokens: Option<usize>,
    /// True if passages may be cut to fit; `None` for the server's default.
    pub truncate: Option<bool>,
    /// Answers that are to be scored.
    pub references: &'a [String],
}

/// A question with its passages, tokenised and cut to fit.
#[derive(Debug, Clone)]
pub(super) struct AnswerPrompts {
    prefix: Segment,
    context_free_prefix: Segment,
    passages: Vec<Segment>,
    /// Precede the passages of a prompt; empty if passages have no numbers.
    numbers: Vec<Vec<Token>>,
    cue: Segment,
    /// The answers of a task with labels; scored.
    labels: Vec<Segment>,
    /// The references; scored.
    references: Vec<Segment>,
}

/// An answer whose tokens are scored.
fn scored(language: &Language, answer: &str) -> Segment {
    Segment::scored(language.query(answer), 0)
}

impl AnswerPrompts {
    /// For short answers. The question ([`Language::query`]) and the passages are tokenised already, and fit.
    pub fn new(language: &Language, question: &[Token], passages: impl IntoIterator<Item = Arc<[Token]>>) -> Self {
        Self::for_task(language, &Task::default(), question, passages, Vec::new())
    }

    fn for_task(
        language: &Language,
        task: &Task,
        question: &[Token],
        passages: impl IntoIterator<Item = Arc<[Token]>>,
        references: Vec<Segment>,
    ) -> Self {
        let wording = task.wording();
        let passages: Vec<Segment> = passages.into_iter().map(Segment::context).collect();
        Self {
            prefix: language.prefix(&wording.instruction),
            context_free_prefix: language.prefix(&wording.context_free),
            numbers: numbers(language, &wording, passages.len()),
            passages,
            cue: cue(language, &wording, question),
            labels: task.labels().iter().map(|label| scored(language, label)).collect(),
            references,
        }
    }

    /// Tokenises and cuts to fit. `longest` is the number of passages in the longest prompt, `room` the most tokens
    /// of an answer. Also returns how many tokens were cut from the end of each passage.
    pub fn fitted(
        (language, context): (&Language, usize),
        limits: &Limits,
        call: &Call,
        asked: Asked<'_>,
        longest: usize,
        room: usize,
    ) -> Result<(Self, Vec<usize>), EngineError> {
        let (question, wording) = (language.query(asked.question), asked.task.wording());
        let labels = asked.task.labels().iter().map(|label| language.query(label).len()).max().unwrap_or(0);
        let references: Vec<Segment> = asked.references.iter().map(|reference| scored(language, reference)).collect();
        let needed = references.iter().map(|reference| reference.tokens.len()).max().unwrap_or(0);
        let numbers: usize = numbers(language, &wording, longest).iter().map(Vec::len).sum();
        let (before, room) = (overhead_of(language, &wording) + numbers + question.len(), room.max(labels));
        let Some(left) = context.checked_sub(before).filter(|left| *left >= room) else {
            let available = context.saturating_sub(before + room - question.len());
            return Err(EngineError::TooLong { field: "question".into(), needed: question.len(), available });
        };
        let Some(available) = left.checked_sub(room.max(needed)) else {
            let longest = references.iter().position(|reference| reference.tokens.len() == needed).unwrap_or(0);
            return Err(EngineError::TooLong { field: format!("references[{longest}]"), needed, available: left });
        };
        let truncate = asked.truncate.unwrap_or(limits.truncate);
        let fit = Fit { available, longest, passage_tokens: asked.passage_tokens, truncate, side: CutSide::End };
        let FittedPassages { tokens, cut } = fit_passages(language, asked.passages, fit, call)?;
        Ok((Self::for_task(language, asked.task, &question, tokens, references), cut))
    }

    /// A passage without its number, as prompts hold it.
    pub fn passage(&self, index: usize) -> &Segment {
        &self.passages[index]
    }

    /// The segments of a prompt with these passages, in this order. A passage without text is left out, but its
    /// number is used.
    pub fn prompt(&self, order: &[usize]) -> Vec<Segment> {
        let is_read = |index: &usize| !self.passages[*index].tokens.is_empty();
        let prefix = if order.iter().any(is_read) { &self.prefix } else { &self.context_free_prefix };
        let passage = |(position, &index): (usize, &usize)| match self.numbers.get(position) {
            Some(number) => Segment::context([&number[..], &self.passages[index].tokens].concat()),
            None => self.passages[index].clone(),
        };
        let passages = order.iter().enumerate().filter(|(_, index)| is_read(index)).map(passage);
        std::iter::once(prefix.clone()).chain(passages).chain(std::iter::once(self.cue.clone())).collect()
    }

    /// The prompts that end in a scored label, one per label; none for tasks without labels.
    pub fn labelled(&self, order: &[usize]) -> Vec<Vec<Segment>> {
        self.answered(order, &self.labels)
    }

    /// The prompts that end in a scored reference, one per reference.
    pub fn referenced(&self, order: &[usize]) -> Vec<Vec<Segment>> {
        self.answered(order, &self.references)
    }

    /// Tokens that the references add to each prompt. The last token of each is predicted, not evaluated. Equal
    /// references count once.
    pub fn reference_tokens(&self) -> usize {
        let distinct: HashSet<&[Token]> = self.references.iter().map(|reference| &*reference.tokens).collect();
        distinct.into_iter().map(|tokens| tokens.len().saturating_sub(1)).sum()
    }

    fn answered(&self, order: &[usize], answers: &[Segment]) -> Vec<Vec<Segment>> {
        let prompt = self.prompt(order);
        answers.iter().map(|answer| [&prompt[..], std::slice::from_ref(answer)].concat()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TaskKind;
    use prefix_scheduler::model::PromptFormat;
    use prefix_scheduler::scripted::ByteTokenizer;

    fn text(language: &Language, segments: &[Segment]) -> String {
        let tokens: Vec<Token> = segments.iter().flat_map(|segment| segment.tokens.iter().copied()).collect();
        language.tokenizer.detokenize(&tokens)
    }

    /// Letter (f): a prompt without passages asked for words "from the documents".
    #[test]
    fn a_prompt_without_passages_does_not_speak_of_documents() {
        let language = Language::new(Arc::new(ByteTokenizer::default()), PromptFormat::Plain);
        let passage = language.text("Document: a\n\n").into();
        let prompts = AnswerPrompts::new(&language, &language.query("who?"), [passage]);
        let text = |order: &[usize]| text(&language, &prompts.prompt(order));
        assert!(!text(&[]).to_lowercase().contains("document"), "{}", text(&[]));
        assert!(text(&[0]).contains("from the documents"));
        assert!(text(&[]).ends_with("Question: who?\nShort answer:"));
    }

    #[test]
    fn a_passage_without_text_leaves_the_prompt_as_it_is_without_it() {
        let language = Language::new(Arc::new(ByteTokenizer::default()), PromptFormat::Plain);
        let of = |kind: TaskKind| {
            let passages = ["", "Document: a\n\n"].map(|passage| language.text(passage).into());
            let task = Task { kind, labels: Vec::new() };
            AnswerPrompts::for_task(&language, &task, &language.query("who?"), passages, Vec::new())
        };
        let shown = |kind: TaskKind, order: &[usize]| text(&language, &of(kind).prompt(order));
        for kind in [TaskKind::default(), TaskKind::LongAnswer] {
            assert_eq!(shown(kind, &[0]), shown(kind, &[]));
        }
        assert_eq!(shown(TaskKind::default(), &[0, 1]), shown(TaskKind::default(), &[1]));
        let long = shown(TaskKind::LongAnswer, &[0, 1]);
        assert!(long.contains("numbers, as in [1] or [2][3].\n\n[2] Document: a"), "{long}");
    }

    /// All stored results depend on these texts: change them only together with `TEMPLATE_VERSION`.
    #[test]
    fn the_prompt_of_a_short_answer_keeps_its_text() {
        let language = Language::new(Arc::new(ByteTokenizer::default()), PromptFormat::Plain);
        let passages = ["Document: a\n\n", "Document: (t) b\n\n"].map(|passage| language.text(passage).into());
        let prompts = AnswerPrompts::new(&language, &language.query("who?"), passages);
        assert_eq!(
            text(&language, &prompts.prompt(&[1, 0])),
            "Answer the question with a few words from the documents.\n\nDocument: (t) b\n\nDocument: a\n\nQuestion: \
             who?\nShort answer:"
        );
        assert_eq!(
            text(&language, &prompts.prompt(&[])),
            "Answer the question with a few words.\n\nQuestion: who?\nShort answer:"
        );
        assert!(prompts.labelled(&[0]).is_empty());
    }

    #[test]
    fn long_answers_number_passages_by_their_place_and_tasks_with_labels_score_them() {
        let language = Language::new(Arc::new(ByteTokenizer::default()), PromptFormat::Plain);
        let of = |kind: TaskKind| {
            let passages = ["Document: a\n\n", "Document: b\n\n"].map(|passage| language.text(passage).into());
            let task = Task { kind, labels: Vec::new() };
            AnswerPrompts::for_task(&language, &task, &language.query("who?"), passages, Vec::new())
        };
        let long = of(TaskKind::LongAnswer);
        let shown = text(&language, &long.prompt(&[1, 0]));
        assert!(shown.ends_with("[1] Document: b\n\n[2] Document: a\n\nQuestion: who?\nAnswer:"), "{shown}");
        assert_eq!(text(&language, &[long.passage(1).clone()]), "Document: b\n\n", "other prompts show no numbers");
        let fever = of(TaskKind::FactVerification);
        let scored = fever.labelled(&[]);
        assert_eq!(scored.len(), 3);
        let shown = text(&language, &scored[2]);
        assert!(shown.ends_with("Claim: who?\nLabel: NOT ENOUGH INFO"), "{shown}");
        assert_eq!(*scored[2][2].tokens, *language.text(" NOT ENOUGH INFO"));
    }
}
