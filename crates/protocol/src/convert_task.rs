//! Conversions of tasks and labels between messages and engine types.

use super::convert_parts::known;
use super::v1;
use engine::types::{EngineError, LabelProbability, Task, TaskKind};

pub(super) fn task(wire: i32, labels: Vec<String>) -> Result<Task, EngineError> {
    let kind = match known("task", wire)? {
        v1::Task::Unspecified | v1::Task::ShortAnswer => TaskKind::ShortAnswer,
        v1::Task::FactVerification => TaskKind::FactVerification,
        v1::Task::Dialogue => TaskKind::Dialogue,
        v1::Task::LongAnswer => TaskKind::LongAnswer,
        v1::Task::Classification => TaskKind::Classification,
    };
    Ok(Task { kind, labels })
}

#[must_use]
pub fn kind_to_wire(kind: TaskKind) -> v1::Task {
    match kind {
        TaskKind::ShortAnswer => v1::Task::ShortAnswer,
        TaskKind::FactVerification => v1::Task::FactVerification,
        TaskKind::Dialogue => v1::Task::Dialogue,
        TaskKind::LongAnswer => v1::Task::LongAnswer,
        TaskKind::Classification => v1::Task::Classification,
    }
}

pub fn probabilities(labels: &[LabelProbability]) -> Vec<v1::LabelProbability> {
    let each = |(label, probability): &LabelProbability| v1::LabelProbability {
        label: label.clone(),
        probability: *probability,
    };
    labels.iter().map(each).collect()
}
