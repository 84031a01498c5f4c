//! The task of a generator: what to do with a question and its passages.

use super::{EngineError, SampleOptions};
use rag_metrics::citation::without_marks;
use rag_metrics::lexical;
use std::borrow::Cow;

/// FEVER's labels (Thorne et al., 2018).
pub(crate) const FEVER: [&str; 3] = ["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"];

/// Fewest labels of a task.
const LEAST_LABELS: usize = 2;

/// Most labels of a task. Each context is scored once per label.
const MOST_LABELS: usize = 64;

/// Most bytes of a label. The instruction holds all labels.
const LABEL_BYTES: usize = 128;

/// A kind of task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TaskKind {
    /// A few words answer the question.
    #[default]
    ShortAnswer,
    /// The question is a claim; the answer says if it holds.
    FactVerification,
    /// The question is a conversation; the answer is its next turn.
    Dialogue,
    /// A few sentences answer the question and cite the passages.
    LongAnswer,
    /// The question is a text; the answer is its class.
    Classification,
}

impl TaskKind {
    /// All kinds, in the order of the protocol.
    pub const ALL: [Self; 5] =
        [Self::ShortAnswer, Self::FactVerification, Self::Dialogue, Self::LongAnswer, Self::Classification];

    /// Its name on the command line and in manifests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ShortAnswer => "short-answer",
            Self::FactVerification => "fact-verification",
            Self::Dialogue => "dialogue",
            Self::LongAnswer => "long-answer",
            Self::Classification => "classification",
        }
    }

    /// True if the answer is one of several labels.
    #[must_use]
    pub const fn has_labels(self) -> bool {
        matches!(self, Self::FactVerification | Self::Classification)
    }

    /// Most tokens of an answer if the caller sets none; `None` for the default of [`SampleOptions`]. Long answers
    /// have the 300 of ALCE's program.
    #[must_use]
    pub const fn answer_tokens(self) -> Option<usize> {
        match self {
            Self::ShortAnswer | Self::FactVerification | Self::Classification => None,
            Self::Dialogue => Some(128),
            Self::LongAnswer => Some(300),
        }
    }
}

/// A task with its labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Task {
    /// Its kind.
    pub kind: TaskKind,
    /// The caller's labels; empty for FEVER's, or for none.
    pub labels: Vec<String>,
}

impl Task {
    /// The possible answers; empty for tasks without labels.
    #[must_use]
    pub fn labels(&self) -> Cow<'_, [String]> {
        if self.kind == TaskKind::FactVerification && self.labels.is_empty() {
            return Cow::Owned(FEVER.map(str::to_owned).to_vec());
        }
        Cow::Borrowed(&self.labels)
    }

    /// Refuses labels for a task that uses none, and ambiguous labels.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] for `labels`.
    pub fn check(&self) -> Result<(), EngineError> {
        let count = self.labels.len();
        if !self.kind.has_labels() {
            let problem = "are for fact verification and classification only";
            return if count == 0 { Ok(()) } else { Err(EngineError::invalid("labels", problem)) };
        }
        let required = self.kind == TaskKind::Classification || count > 0;
        if required && !(LEAST_LABELS..=MOST_LABELS).contains(&count) {
            let problem = format!("{count} given, {LEAST_LABELS} to {MOST_LABELS} allowed");
            return Err(EngineError::invalid("labels", problem));
        }
        for (index, label) in self.labels.iter().enumerate() {
            let invalid = |problem: String| Err(EngineError::invalid(format!("labels[{index}]"), problem));
            if label.trim().is_empty() {
                return invalid("must not be empty".into());
            }
            if label.len() > LABEL_BYTES {
                return invalid(format!("{} bytes given, at most {LABEL_BYTES} allowed", label.len()));
            }
            if label.contains(char::is_control) {
                return invalid("must not hold line breaks or control characters".into());
            }
            if let Some(other) = self.labels[..index].iter().position(|other| same(other, label)) {
                return invalid(format!("is the same as labels[{other}] but for case and outer punctuation"));
            }
        }
        Ok(())
    }

    /// True if a text is one of the labels, as the annotator of accuracy compares them.
    pub(crate) fn is_label(&self, text: &str) -> bool {
        lexical::accuracy(text, &self.labels()) > 0.5
    }

    /// Options of sampling, with the task's answer length if they set none.
    pub(crate) fn sampling(&self, options: SampleOptions) -> SampleOptions {
        SampleOptions { max_tokens: options.max_tokens.or(self.kind.answer_tokens()), ..options }
    }

    /// An answer as measures read it. The citation numbers of a long answer are removed: only the measures of
    /// citations read them.
    #[must_use]
    pub fn measured(&self, answer: &str) -> String {
        if self.kind == TaskKind::LongAnswer { without_marks(answer) } else { answer.to_owned() }
    }
}

/// A label with the generator's probability of it among all labels.
pub type LabelProbability = (String, f64);

/// True if the annotator of accuracy takes two labels for the same.
fn same(left: &str, right: &str) -> bool {
    lexical::accuracy(left, &[right.to_owned()]) > 0.5
}
