//! `/score` with many queries, one list per query: admitted as a whole, and scored together.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::{common, http};
use common::{LIMITS, Scripted};
use engine::types::Limits;
use http::{alone, serve_engine};
use prefix_scheduler::model::Capacity;
use serde_json::{Value, json};

const LISTS: usize = 12;

/// A pair for each of these queries.
fn body(queries: usize, text: &str) -> Value {
    let first: Vec<String> = (0..queries).map(|number| format!("question {number}")).collect();
    let second: Vec<String> = (0..queries).map(|number| format!("{text} {number}")).collect();
    json!({ "text_1": first, "text_2": second })
}

fn scores(body: &Value) -> Vec<f64> {
    body["data"].as_array().unwrap().iter().map(|pair| pair["score"].as_f64().unwrap()).collect()
}

#[tokio::test]
async fn lists_share_the_steps_of_the_generator_and_keep_their_order() {
    let scripted = Scripted {
        capacity: Capacity { cells: 16_384, sequences: 64, batch: 4_096 },
        delay: Duration::from_micros(200),
        ..Scripted::default()
    };
    let (engine, observed, _) = scripted.engine().await;
    let server = serve_engine(engine, 8, alone()).await;
    let mut apart = Vec::new();
    let whole = body(LISTS, "an answer");
    for number in 0..LISTS {
        let pair = json!({ "text_1": whole["text_1"][number], "text_2": whole["text_2"][number] });
        apart.extend(scores(&server.post("/score", &pair).await.body));
    }
    let before = observed.steps.load(Ordering::SeqCst);
    let answer = server.post("/score", &whole).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    assert_eq!(scores(&answer.body), apart);
    let steps = observed.steps.load(Ordering::SeqCst) - before;
    assert!(steps < LISTS, "{steps} steps for {LISTS} lists");
    common::wait_for("the slots are free", || server.admission.in_flight() == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn a_request_is_admitted_or_refused_as_a_whole() {
    let scripted = Scripted { delay: Duration::from_millis(2), ..Scripted::default() };
    let (engine, observed, _) = scripted.engine().await;
    let server = serve_engine(engine, 8, alone()).await;
    let text = "word ".repeat(60);
    // One list measures the tokens of such a list and the speed of the generator: 500 tokens per second.
    assert_eq!(server.post("/score", &body(1, &text)).await.status, 200);
    let before = observed.tokens.load(Ordering::SeqCst);
    let timeout = [("x-request-timeout-ms", "1000")];
    let answer = server.send("/score", &timeout, body(LISTS, &text).to_string()).await;
    assert_eq!(answer.status, 504, "{:?}", answer.body);
    assert_eq!(observed.tokens.load(Ordering::SeqCst), before, "nothing was evaluated for it");
    let scheduler = common::generator(&server.engine).scheduler.clone();
    common::wait_for("nothing is reserved any more", || scheduler.ledger().total() == 0).await;
    server.stop().await;
}

/// The limit of one request applies to all its lists together.
#[tokio::test]
async fn the_tokens_of_all_lists_count_together() {
    let limits = Limits { tokens: 700, ..LIMITS };
    let (engine, _, _) = Scripted { limits, ..Scripted::default() }.engine().await;
    let server = serve_engine(engine, 8, alone()).await;
    let text = "word ".repeat(40);
    assert_eq!(server.post("/score", &body(1, &text)).await.status, 200);
    let answer = server.post("/score", &body(LISTS, &text)).await;
    assert_eq!(answer.status, 422, "{:?}", answer.body);
    assert!(answer.body["detail"].as_str().unwrap().contains("700"), "{:?}", answer.body);
    let scheduler = common::generator(&server.engine).scheduler.clone();
    common::wait_for("its lists are cancelled", || scheduler.stats().active.load(Ordering::SeqCst) == 0).await;
    assert_eq!(server.post("/score", &body(1, &text)).await.status, 200);
    server.stop().await;
}
