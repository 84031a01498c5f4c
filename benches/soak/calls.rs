//! One client: calls of every kind, drawn with a seed, on connections that are closed after some calls.

use std::time::{Duration, Instant};

use protocol::tei_v1;
use protocol::tei_v1::rerank_client::RerankClient;
use protocol::v1;
use protocol::v1::belief_service_client::BeliefServiceClient;
use protocol::v1::metrics_service_client::MetricsServiceClient;
use protocol::v1::model_service_client::ModelServiceClient;
use protocol::v1::rerank_service_client::RerankServiceClient;
use protocol::v1::utility_service_client::UtilityServiceClient;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio_stream::StreamExt;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::Outcomes;

/// Addresses of the server.
pub struct Target {
    pub grpc: String,
    pub http: u16,
    pub metrics: u16,
}

const KINDS: [&str; 16] = [
    "default",
    "default",
    "default",
    "query generation",
    "moi",
    "stream",
    "left",
    "utility",
    "retrieval",
    "sample",
    "tei",
    "http",
    "invalid",
    "late",
    "metrics of a ranking",
    "pages",
];

const WORDS: [&str; 24] = [
    "mill", "weir", "wheel", "river", "grain", "stone", "turns", "slowly", "under", "the", "old", "bridge", "and",
    "every", "autumn", "water", "carries", "leaves", "past", "a", "quiet", "village", "of", "farmers",
];

fn text(random: &mut ChaCha8Rng, words: usize) -> String {
    let words: Vec<&str> = (0..words).map(|_| WORDS[random.random_range(0..WORDS.len())]).collect();
    words.join(" ")
}

/// Half of the passages are drawn from a hundred repeated ones.
fn passages(random: &mut ChaCha8Rng) -> Vec<v1::Passage> {
    let count = random.random_range(2..8);
    let passage = |index: usize| {
        let words = random.random_range(10..60);
        let text = if random.random_bool(0.5) {
            text(&mut ChaCha8Rng::seed_from_u64(random.random_range(0..100)), 40)
        } else {
            text(random, words)
        };
        v1::Passage { id: index.to_string(), text, ..v1::Passage::default() }
    };
    (0..count).map(passage).collect()
}

fn rerank(random: &mut ChaCha8Rng, method: v1::Method) -> v1::RerankRequest {
    v1::RerankRequest {
        query: text(random, 6),
        passages: passages(random),
        method: method.into(),
        ..v1::RerankRequest::default()
    }
}

fn sampling(random: &mut ChaCha8Rng) -> v1::SamplingOptions {
    v1::SamplingOptions { samples: 3, max_tokens: 8, seed: random.random(), ..v1::SamplingOptions::default() }
}

/// Sends calls until `end`.
pub async fn run(target: Target, client: u64, end: Instant, outcomes: Outcomes) -> anyhow::Result<()> {
    let mut random = ChaCha8Rng::seed_from_u64(client);
    let web = reqwest::Client::new();
    while Instant::now() < end {
        let channel = Channel::from_shared(format!("http://{}", target.grpc))?.connect().await?;
        for _ in 0..random.random_range(1..30) {
            let kind = KINDS[random.random_range(0..KINDS.len())];
            let outcome = match kind {
                "http" | "pages" => page(&target, &web, kind, &mut random).await?,
                _ => call(&channel, kind, &mut random)
                    .await
                    .map_or_else(|status| format!("{:?}", status.code()), |()| "Ok".to_owned()),
            };
            // Like a client that honours RetryInfo.
            if outcome == "ResourceExhausted" || outcome == "429" {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            *outcomes.lock().unwrap().entry((kind, outcome)).or_default() += 1;
            if Instant::now() >= end {
                break;
            }
        }
    }
    Ok(())
}

async fn page(target: &Target, web: &reqwest::Client, kind: &str, random: &mut ChaCha8Rng) -> anyhow::Result<String> {
    let request = if kind == "pages" {
        web.get(format!("http://127.0.0.1:{}/metrics", target.metrics))
    } else {
        let documents: Vec<String> = passages(random).into_iter().map(|passage| passage.text).collect();
        let body = serde_json::json!({ "query": text(random, 6), "documents": documents });
        web.post(format!("http://127.0.0.1:{}/v1/rerank", target.http)).body(body.to_string())
    };
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    answer.bytes().await?;
    Ok(status.to_string())
}

async fn call(channel: &Channel, kind: &str, random: &mut ChaCha8Rng) -> Result<(), Status> {
    let channel = channel.clone();
    let mut reranking = RerankServiceClient::new(channel.clone());
    match kind {
        "default" => drop(reranking.rerank(rerank(random, v1::Method::Unspecified)).await?),
        "query generation" => drop(reranking.rerank(rerank(random, v1::Method::QueryGeneration)).await?),
        "moi" => drop(reranking.rerank(rerank(random, v1::Method::Moi)).await?),
        "invalid" => {
            drop(
                reranking.rerank(v1::RerankRequest { query: String::new(), ..rerank(random, v1::Method::Moi) }).await?,
            );
        }
        "late" => {
            let mut request = Request::new(rerank(random, v1::Method::Moi));
            request.set_timeout(Duration::from_millis(random.random_range(1..400)));
            drop(reranking.rerank(request).await?);
        }
        "left" => {
            let asked = reranking.rerank(rerank(random, v1::Method::Moi));
            let _ = tokio::time::timeout(Duration::from_millis(random.random_range(1..300)), asked).await;
        }
        "stream" => {
            let ask = |number: u32| v1::RerankStreamRequest {
                request_id: number.to_string(),
                request: Some(rerank(&mut ChaCha8Rng::seed_from_u64(number.into()), v1::Method::Unspecified)),
            };
            let asked: Vec<_> = (0..random.random_range(1..5)).map(ask).collect();
            let mut answers = reranking.rerank_stream(tokio_stream::iter(asked)).await?.into_inner();
            // Some callers leave in the middle.
            let most = random.random_range(1..8);
            for _ in 0..most {
                match answers.next().await {
                    Some(answer) => drop(answer?),
                    None => break,
                }
            }
        }
        "utility" => {
            let request = v1::MeasureUtilityRequest {
                question: text(random, 6),
                passages: passages(random),
                references: vec![text(random, 2)],
                sampling: Some(sampling(random)),
                ..v1::MeasureUtilityRequest::default()
            };
            drop(UtilityServiceClient::new(channel).measure_utility(request).await?);
        }
        "retrieval" => {
            let request = v1::EvaluateRetrievalRequest {
                question: text(random, 6),
                passages: passages(random),
                references: vec![text(random, 2)],
                answer_tokens: 6,
                end_to_end: true,
                ..v1::EvaluateRetrievalRequest::default()
            };
            drop(UtilityServiceClient::new(channel).evaluate_retrieval(request).await?);
        }
        "sample" => {
            let request = v1::SampleRequest {
                question: text(random, 6),
                passages: passages(random),
                sampling: Some(sampling(random)),
                ..v1::SampleRequest::default()
            };
            let mut events = BeliefServiceClient::new(channel).sample(request).await?.into_inner();
            while let Some(event) = events.next().await {
                event?;
            }
        }
        "tei" => {
            let texts = passages(random).into_iter().map(|passage| passage.text).collect();
            let request = tei_v1::RerankRequest { query: text(random, 6), texts, ..tei_v1::RerankRequest::default() };
            drop(RerankClient::new(channel).rerank(request).await?);
        }
        _ => {
            let documents = (0..50).map(|at| v1::RankedDocument {
                id: at.to_string(),
                score: Some(random.random()),
                ..v1::RankedDocument::default()
            });
            let query = v1::RankedQuery {
                documents: documents.collect(),
                judgements: (0..9).map(|at| (at.to_string(), 1.0)).collect(),
                ..v1::RankedQuery::default()
            };
            let request = v1::EvaluateRankingRequest {
                queries: vec![query; 20],
                metrics: vec!["nDCG@10".into(), "AP".into()],
                ..v1::EvaluateRankingRequest::default()
            };
            drop(MetricsServiceClient::new(channel.clone()).evaluate_ranking(request).await?);
            drop(ModelServiceClient::new(channel).get_server_info(v1::GetServerInfoRequest {}).await?);
        }
    }
    Ok(())
}
