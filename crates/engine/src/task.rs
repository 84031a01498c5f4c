//! The words of the prompts of each task.
//!
//! ```text
//! [prompt prefix: chat template, instruction] [passage]* ["Question:" question, end of the chat template, "Short answer:"] [answer]
//! ```
//!
//! | task | data sets of eRAG and SePer | answer |
//! |---|---|---|
//! | [`TaskKind::ShortAnswer`] | NQ, `TriviaQA`, `HotpotQA` | a few words |
//! | [`TaskKind::FactVerification`] | FEVER | one of the labels |
//! | [`TaskKind::Dialogue`] | Wizard of Wikipedia | the next turn |
//! | [`TaskKind::LongAnswer`] | ASQA, ELI5 (of ALCE) | sentences that cite passages by number |
//! | [`TaskKind::Classification`] | | one of the labels |
//!
//! Every task has two instructions, because a prompt that mentions documents and shows none would measure the
//! generator's confusion, not its belief. [`super::prompt::TEMPLATE_VERSION`] covers the words of the short answer;
//! results of another task are stored with its name.

use std::borrow::Cow;

use crate::types::{FEVER, Task, TaskKind};

/// The words of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wording {
    /// Instruction before passages.
    pub instruction: Cow<'static, str>,
    /// Instruction of a prompt without passages.
    pub context_free: Cow<'static, str>,
    /// Precedes the question.
    pub asks: &'static str,
    /// Precedes the answer.
    pub answers: &'static str,
    /// True if passages are numbered from 1, in the order of the prompt.
    pub numbered: bool,
}

impl Task {
    /// The words of its prompt.
    pub(super) fn wording(&self) -> Wording {
        let plain = |instruction: &'static str, context_free: &'static str, asks, answers| Wording {
            instruction: Cow::Borrowed(instruction),
            context_free: Cow::Borrowed(context_free),
            asks,
            answers,
            numbered: false,
        };
        let labelled = |with: &str, without: &str, asks| {
            let labels: Vec<&str> = self.labels.iter().map(|label| label.trim()).collect();
            let labels = if labels.is_empty() { FEVER.join(", ") } else { labels.join(", ") };
            let sentence = |start: &str| Cow::Owned(format!("{start} Answer with one of the labels: {labels}.\n\n"));
            let (instruction, context_free) = (sentence(with), sentence(without));
            Wording { instruction, context_free, asks, answers: "Label:", numbered: false }
        };
        match self.kind {
            TaskKind::ShortAnswer => plain(
                "Answer the question with a few words from the documents.\n\n",
                "Answer the question with a few words.\n\n",
                "Question:",
                "Short answer:",
            ),
            TaskKind::FactVerification => {
                labelled("Verify the claim with the documents.", "Verify the claim.", "Claim:")
            }
            TaskKind::Dialogue => plain(
                "Write the next turn of the conversation with the help of the documents.\n\n",
                "Write the next turn of the conversation.\n\n",
                "Conversation:",
                "Reply:",
            ),
            TaskKind::LongAnswer => Wording {
                numbered: true,
                ..plain(
                    "Answer the question in a few sentences from the numbered documents. At the end of each sentence cite \
                     the documents that support it by their numbers, as in [1] or [2][3].\n\n",
                    "Answer the question in a few sentences.\n\n",
                    "Question:",
                    "Answer:",
                )
            },
            TaskKind::Classification => {
                labelled("Classify the text with the help of the documents.", "Classify the text.", "Text:")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::SampleOptions;
    use rag_metrics::lexical;

    fn task(kind: TaskKind, labels: &[&str]) -> Task {
        Task { kind, labels: labels.iter().map(|&label| label.to_owned()).collect() }
    }

    #[test]
    fn a_prompt_without_passages_does_not_speak_of_documents() {
        for kind in TaskKind::ALL {
            let wording = task(kind, &["a", "b"]).wording();
            assert!(wording.instruction.contains("documents"), "{kind:?}");
            for text in [&wording.context_free, wording.asks, wording.answers] {
                assert!(!text.to_lowercase().contains("document") && !text.contains('['), "{kind:?}: {text}");
            }
            assert!(wording.instruction.ends_with("\n\n") && wording.context_free.ends_with("\n\n"));
        }
    }

    #[test]
    fn labels_stand_in_both_instructions() {
        let fever = task(TaskKind::FactVerification, &[]);
        assert_eq!(fever.labels().as_ref(), FEVER.map(str::to_owned));
        for text in [fever.wording().instruction, fever.wording().context_free] {
            assert!(text.contains("SUPPORTS, REFUTES, NOT ENOUGH INFO."), "{text}");
        }
        let own = task(TaskKind::FactVerification, &["true ", "false"]);
        assert!(own.wording().context_free.contains("labels: true, false."));
        assert!(own.is_label("True.") && !own.is_label("SUPPORTS"));
        assert!(task(TaskKind::Dialogue, &[]).labels().is_empty());
    }

    #[test]
    fn labels_are_checked_by_field() {
        let refused = |kind, labels: &[&str]| task(kind, labels).check().unwrap_err().to_string();
        let classes = TaskKind::Classification;
        assert_eq!(refused(classes, &[]), "labels: 0 given, 2 to 64 allowed");
        assert_eq!(refused(TaskKind::FactVerification, &["a"]), "labels: 1 given, 2 to 64 allowed");
        let many: Vec<String> = (0..65).map(|number| number.to_string()).collect();
        assert!(refused(classes, &many.iter().map(String::as_str).collect::<Vec<_>>()).starts_with("labels: 65"));
        assert_eq!(refused(classes, &["a", " "]), "labels[1]: must not be empty");
        assert_eq!(refused(classes, &["a", &"b".repeat(129)]), "labels[1]: 129 bytes given, at most 128 allowed");
        assert!(refused(classes, &["a", "b\nc"]).starts_with("labels[1]: must not hold line breaks"));
        assert!(refused(classes, &["a", "b", "A."]).starts_with("labels[2]: is the same as labels[0]"));
        for kind in [TaskKind::ShortAnswer, TaskKind::Dialogue, TaskKind::LongAnswer] {
            assert!(refused(kind, &["a", "b"]).starts_with("labels: are for"), "{kind:?}");
            assert!(task(kind, &[]).check().is_ok());
        }
        assert!(task(classes, &["+", "-"]).check().is_ok(), "labels of punctuation alone");
        assert!(task(TaskKind::FactVerification, &[]).check().is_ok());
    }

    /// The marks of citations counted as words: ROUGE-L of an answer with the words of its reference was below 1.
    #[test]
    fn citations_are_no_words_of_a_long_answer() {
        let (answer, reference) =
            ("The mill is old [1][2]. It has a weir [3].", ["the mill is old, it has a weir".to_owned()]);
        let score = |kind| lexical::rouge_l(&task(kind, &[]).measured(answer), &reference);
        assert!((score(TaskKind::LongAnswer) - 1.0).abs() < 1e-12);
        // In a dialogue a number in brackets is part of the text.
        assert!(score(TaskKind::Dialogue) < 0.95 && score(TaskKind::ShortAnswer) < 0.95);
    }

    #[test]
    fn only_some_tasks_lengthen_answers() {
        let tokens = |kind, given| {
            let options = SampleOptions { max_tokens: given, ..SampleOptions::default() };
            task(kind, &[]).sampling(options).max_tokens
        };
        assert_eq!(tokens(TaskKind::ShortAnswer, None), None, "stored evaluations keep their options");
        assert_eq!((tokens(TaskKind::LongAnswer, None), tokens(TaskKind::LongAnswer, Some(9))), (Some(300), Some(9)));
        assert!(TaskKind::ALL.iter().all(|kind| kind.answer_tokens() <= Some(crate::types::MOST_TOKENS)));
    }
}
