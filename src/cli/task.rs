//! Options for the generator's task.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};

use engine::types::{Task, TaskKind};
use protocol::v1;

/// The generator's task; shared by `utility`, `evaluate` and `analyse`.
#[derive(Debug, Args)]
pub(super) struct TaskArgs {
    /// The generator's task for each question and its passages.
    #[arg(long, value_name = "TASK", default_value = TaskKind::default().name(), value_parser = kinds())]
    task: TaskKind,
    /// Allowed answers, separated by commas: for classification, and for fact verification in place of SUPPORTS, REFUTES,
    /// NOT ENOUGH INFO.
    #[arg(long, value_name = "LABELS", value_delimiter = ',')]
    labels: Vec<String>,
}

fn kinds() -> impl TypedValueParser<Value = TaskKind> {
    let summary = |kind: TaskKind| match kind {
        TaskKind::ShortAnswer => "a few words answer the question",
        TaskKind::FactVerification => "the question is a claim, the answer one of the labels",
        TaskKind::Dialogue => "the question is a conversation, the answer its next turn",
        TaskKind::LongAnswer => "a few sentences answer the question and cite the passages by number",
        TaskKind::Classification => "the question is a text, the answer one of the labels",
    };
    PossibleValuesParser::new(TaskKind::ALL.map(|kind| PossibleValue::new(kind.name()).help(summary(kind)))).try_map(
        |name| {
            let kind = TaskKind::ALL.into_iter().find(|kind| kind.name() == name);
            kind.ok_or_else(|| format!("{name:?} is not a task"))
        },
    )
}

impl TaskArgs {
    pub fn task(&self) -> Task {
        let labels = self.labels.iter().map(|label| label.trim().to_owned()).collect();
        Task { kind: self.task, labels }
    }
}

/// The labels of a context as JSON; an empty list for tasks without labels.
pub(super) fn probabilities(labels: &[v1::LabelProbability]) -> Value {
    labels.iter().map(|one| json!({ "label": one.label, "probability": one.probability })).collect()
}
