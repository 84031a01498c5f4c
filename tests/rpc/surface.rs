//! Promises of the protocol other than errors: order, options, events, health, reflection, compression.

use crate::common;
use common::{Scripted, wire};
use protocol::v1;
use protocol::v1::model_service_client::ModelServiceClient;
use protocol::v1::watch_rerank_response::Event;
use tokio_stream::StreamExt;
use tonic::codec::CompressionEncoding;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const PASSAGES: [&str; 4] = ["zzzz yyyy", "the question is here", "wwww", "question question"];

#[tokio::test]
async fn results_are_sorted_named_and_bounded() {
    let server = Scripted::default().serve().await;
    let request = v1::RerankRequest { return_passages: true, ..wire("question", &PASSAGES) };
    let answer = server.client().await.rerank(request.clone()).await.unwrap().into_inner();
    assert_eq!(answer.results.len(), 4);
    for (rank, result) in answer.results.iter().enumerate() {
        assert_eq!(result.rank as usize, rank);
        assert_eq!(result.id, format!("p{}", result.original_index));
        assert_eq!(result.passage.as_ref().unwrap().text, PASSAGES[result.original_index as usize]);
        assert!(result.score > 0.0 && result.score < 1.0);
        assert_eq!(result.outranks_next.is_some(), rank < 3);
    }
    assert!(answer.results.windows(2).all(|pair| pair[0].score >= pair[1].score));
    let usage = answer.usage.unwrap();
    assert!(usage.tokens > 0 && usage.tokens < usage.naive_tokens && usage.total_ms >= usage.score_ms);
    let best = answer.results[0].clone();
    let two = v1::RerankRequest { top_n: 2, return_passages: false, ..request.clone() };
    let short = server.client().await.rerank(two).await.unwrap().into_inner();
    assert_eq!(short.results.len(), 2);
    assert_eq!(short.results[0].passage, None);
    let strict = v1::RerankRequest { score_threshold: Some(best.score), ..request };
    let strict = server.client().await.rerank(strict).await.unwrap().into_inner();
    assert_eq!(strict.results.iter().map(|result| &result.id).collect::<Vec<_>>(), vec![&best.id]);
    server.stop().await;
}

#[tokio::test]
async fn passages_without_ids_take_their_index_and_equal_requests_equal_answers() {
    let server = Scripted::default().serve().await;
    let mut request = wire("question", &PASSAGES);
    for passage in &mut request.passages {
        passage.id.clear();
    }
    let ask = || async { server.client().await.rerank(request.clone()).await.unwrap().into_inner() };
    let (first, second) = (ask().await, ask().await);
    assert_eq!(first.results, second.results);
    assert!(first.results.iter().all(|result| result.id == result.original_index.to_string()));
    server.stop().await;
}

#[tokio::test]
async fn every_method_ranks() {
    let server = Scripted::default().serve().await;
    for method in [
        v1::Method::QueryGeneration,
        v1::Method::BayesSaliency,
        v1::Method::LongLlmLingua,
        v1::Method::Retriever,
        v1::Method::Moi,
    ] {
        let request = v1::RerankRequest { method: method.into(), ..wire("question", &PASSAGES) };
        let answer = server.client().await.rerank(request).await.unwrap().into_inner();
        assert_eq!(answer.results.len(), 4, "{method:?}");
        assert_eq!(answer.diagnostics.is_some(), method == v1::Method::Moi, "{method:?}");
        let order: Vec<u32> = answer.results.iter().map(|result| result.original_index).collect();
        match method {
            v1::Method::Retriever => assert_eq!(order, vec![0, 1, 2, 3]),
            v1::Method::QueryGeneration => assert_eq!(order[0], 3),
            _ => {}
        }
    }
    let mut scored = wire("question", &PASSAGES);
    scored.method = v1::Method::Retriever.into();
    for (index, passage) in scored.passages.iter_mut().enumerate() {
        passage.retriever_score = Some([0.1, 0.9, 0.9, 0.2][index]);
    }
    let answer = server.client().await.rerank(scored).await.unwrap().into_inner();
    let order: Vec<u32> = answer.results.iter().map(|result| result.original_index).collect();
    assert_eq!(order, vec![1, 2, 3, 0]);
    server.stop().await;
}

#[tokio::test]
async fn both_outcomes_and_all_domains_and_objectives_fit() {
    let server = Scripted::default().serve().await;
    for outcome in [v1::Outcome::QueryLikelihood, v1::Outcome::Joint] {
        for score_domain in [1, 2, 3, 4] {
            for objective in [v1::Objective::Regularised, v1::Objective::Paper] {
                let moi = v1::MoiOptions {
                    design: v1::Design::Random.into(),
                    outcome: outcome.into(),
                    score_domain,
                    objective: objective.into(),
                    ..v1::MoiOptions::default()
                };
                let request = v1::RerankRequest { moi: Some(moi), ..wire("question", &PASSAGES) };
                let answer = server.client().await.rerank(request).await.unwrap().into_inner();
                let bias = &answer.position_bias[0].weights;
                assert!((bias.iter().sum::<f64>() - 1.0).abs() < 1e-6 && bias.len() == 4);
                assert!(answer.results.iter().all(|result| result.utility.is_finite()));
            }
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_budget_picks_the_deepest_design_that_fits() {
    let server = Scripted::default().serve().await;
    let ask = |token_budget, policy: v1::BudgetPolicy| {
        let budget_policy = policy.into();
        let moi = Some(v1::MoiOptions { budget_policy, depth: 4, ..v1::MoiOptions::default() });
        v1::RerankRequest { token_budget, moi, ..wire("question", &PASSAGES) }
    };
    let mut depths = Vec::new();
    for budget in [100_000, 900, 650] {
        let answer = server.client().await.rerank(ask(budget, v1::BudgetPolicy::Fit)).await.unwrap().into_inner();
        assert!(answer.usage.unwrap().tokens <= budget);
        depths.push(answer.design.unwrap().depth);
    }
    assert!(depths[0] == 4 && depths.windows(2).all(|pair| pair[0] >= pair[1]), "{depths:?}");
    assert!(depths[2] < 4, "{depths:?}");
    for policy in [v1::BudgetPolicy::Refuse, v1::BudgetPolicy::Fit] {
        let status = server.client().await.rerank(ask(10, policy)).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    }
    server.stop().await;
}

#[tokio::test]
async fn events_come_in_order_and_the_last_is_the_answer() {
    // Interim orders are computed during the scoring, which must take some time.
    let server = Scripted { delay: std::time::Duration::from_micros(100), ..Scripted::default() }.serve().await;
    let moi = Some(v1::MoiOptions { design: v1::Design::Random.into(), ..v1::MoiOptions::default() });
    let request = v1::RerankRequest { moi, ..wire("question", &PASSAGES) };
    let watched = v1::WatchRerankRequest { request: Some(request.clone()) };
    let mut stream = server.client().await.watch_rerank(watched).await.unwrap().into_inner();
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event.unwrap().event.unwrap());
    }
    assert!(matches!(events[0], Event::Planned(_)));
    assert!(events.iter().any(|event| matches!(event, Event::Interim(order) if order.original_indices.len() == 4)));
    let done: Vec<u64> = events
        .iter()
        .filter_map(|event| if let Event::Progress(p) = event { Some(p.tokens_done) } else { None })
        .collect();
    assert!(done.windows(2).all(|pair| pair[0] <= pair[1]) && !done.is_empty());
    let Some(Event::Final(last)) = events.last() else { panic!("the last event is not the answer") };
    let unary = server.client().await.rerank(request.clone()).await.unwrap().into_inner();
    assert_eq!(last.results, unary.results);
    // Fusion follows the scoring, so it has no interim orders.
    let fusion = v1::Fusion { mode: v1::FusionMode::On.into(), weight: Some(0.0), ..v1::Fusion::default() };
    let watched = v1::WatchRerankRequest { request: Some(v1::RerankRequest { fusion: Some(fusion), ..request }) };
    let mut stream = server.client().await.watch_rerank(watched).await.unwrap().into_inner();
    let mut told = 0;
    while let Some(event) = stream.next().await {
        let event = event.unwrap().event.unwrap();
        told += usize::from(matches!(event, Event::Progress(_)));
        assert!(!matches!(event, Event::Interim(_)), "{event:?}");
    }
    assert!(told > 0);
    server.stop().await;
}

#[tokio::test]
async fn health_info_reflection_and_gzip_answer() {
    let server = Scripted::default().serve().await;
    let channel = server.channel().await;
    for service in ["", "rerankd.v1.RerankService", "rerankd.v1.ModelService"] {
        let request = HealthCheckRequest { service: service.into() };
        let answer = HealthClient::new(channel.clone()).check(request).await.unwrap().into_inner();
        assert_eq!(answer.status, 1, "{service}");
    }
    let mut models = ModelServiceClient::new(channel.clone());
    let info = models.get_server_info(v1::GetServerInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.generator.unwrap().name, "scripted");
    assert_eq!(info.limits.unwrap().passages, 20);
    assert!(info.worker.unwrap().ready);
    assert_eq!(info.entailment, None, "none is configured here");
    let gzip = server.client().await.send_compressed(CompressionEncoding::Gzip);
    let answer = gzip.accept_compressed(CompressionEncoding::Gzip).rerank(wire("question", &PASSAGES)).await.unwrap();
    assert_eq!(answer.metadata().get("grpc-encoding").unwrap(), "gzip");
    use tonic_reflection::pb::{v1 as new, v1alpha as old};
    let ask = new::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(new::server_reflection_request::MessageRequest::ListServices(String::new())),
    };
    let mut client = new::server_reflection_client::ServerReflectionClient::new(channel.clone());
    let answer = client.server_reflection_info(tokio_stream::once(ask)).await.unwrap().into_inner().next().await;
    assert!(format!("{answer:?}").contains("rerankd.v1.RerankService"));
    let ask = old::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(old::server_reflection_request::MessageRequest::ListServices(String::new())),
    };
    let mut client = old::server_reflection_client::ServerReflectionClient::new(channel);
    let answer = client.server_reflection_info(tokio_stream::once(ask)).await.unwrap().into_inner().next().await;
    assert!(format!("{answer:?}").contains("rerankd.v1.ModelService"));
    server.stop().await;
}

#[tokio::test]
async fn a_stopping_server_finishes_calls_in_flight() {
    let slow = Scripted { delay: std::time::Duration::from_micros(200), ..Scripted::default() };
    let server = slow.serve().await;
    let mut client = server.client().await;
    let call = tokio::spawn(async move { client.rerank(wire("question", &PASSAGES)).await });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    server.stop().await;
    assert_eq!(call.await.unwrap().unwrap().into_inner().results.len(), 4);
}
