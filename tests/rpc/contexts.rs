//! Readings of contexts for analyses, with a scripted generator.

use engine::contexts::ContextsRequest;
use engine::types::{Passage, Task, TaskKind};
use prefix_scheduler::call::Call;
use prefix_scheduler::model::Capacity;

use crate::common::Scripted;

/// An evaluation takes the likeliest label, so an analysis must not take the greedy text.
#[tokio::test]
async fn a_context_of_a_task_with_labels_is_answered_with_one() {
    let server = Scripted::default().serve().await;
    let text = |label: &str| [label; 9].join(" ");
    let asked = ContextsRequest {
        question: "which".into(),
        task: Task { kind: TaskKind::FactVerification, labels: Vec::new() },
        passages: vec![Passage::untitled(0, text("REFUTES")), Passage::untitled(1, text("SUPPORTS"))],
        contexts: vec![vec![0], vec![1], vec![0]],
        answer_tokens: Some(6),
        ..ContextsRequest::default()
    };
    let read = server.engine.contexts.read(&Call::local(), asked.clone()).await.unwrap();
    let answers: Vec<_> = read.iter().map(|one| one.answer.as_deref().unwrap()).collect();
    assert_eq!(answers, ["REFUTES", "SUPPORTS", "REFUTES"]);
    // A task without labels has a free answer. With labels the first token is available, too.
    let short = ContextsRequest { task: Task::default(), ..asked.clone() };
    let read = server.engine.contexts.read(&Call::local(), short).await.unwrap();
    assert!(read[0].answer.is_some());
    let drawn = ContextsRequest { first_token: true, ..asked };
    let read = server.engine.contexts.read(&Call::local(), drawn.clone()).await.unwrap();
    assert!(read[0].answer.as_deref() == Some("REFUTES") && !read[0].first_token.is_empty());
    server.stop().await;
    // A label is scored, so it needs no room for `answer_tokens` tokens.
    let capacity = Capacity { cells: 512, sequences: 64, batch: 64 };
    let server = Scripted { capacity, ..Scripted::default() }.serve().await;
    let read = server.engine.contexts.read(&Call::local(), ContextsRequest { answer_tokens: Some(512), ..drawn }).await;
    assert_eq!(read.unwrap()[1].answer.as_deref(), Some("SUPPORTS"));
    server.stop().await;
}
