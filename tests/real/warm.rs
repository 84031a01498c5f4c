//! Cached passages of the default generator: the cost of later requests, and the change of their scores.

use std::sync::Arc;

use crate::common;
use common::scripted::Observed;
use engine::Engine;
use engine::methods;
use engine::types::{Passage, RerankRequest, Reranked, SampleOptions, UtilityRequest};
use protocol::v1;
use protocol::v1::model_service_client::ModelServiceClient;
use rerankd::config::Config;

/// Largest difference of a utility, in nats, between a cached passage and the same passage read for the first time:
/// about twice the largest seen with F16. The steps hold other rows, so the kernels round differently.
const TOLERANCE: f64 = 0.06;

const QUERIES: [&str; 3] = [
    "Which river drove the looms of Harrowgate?",
    "When did the station close?",
    "How is rye bread kept from tearing in the oven?",
];

async fn engine(memory_bytes: &str) -> Engine {
    engine_with(&[("passage_cache.memory_bytes", memory_bytes)]).await
}

async fn engine_with(settings: &[(&str, &str)]) -> Engine {
    let mut flags = common::settings_of_16_bits();
    flags.extend(settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    rerankd::app::engine(&Config::load(None, &flags).unwrap()).await.unwrap()
}

fn texts() -> Vec<String> {
    let subjects = ["looms", "rye flour", "the station", "signal lamps", "the weir"];
    let text = |(number, subject): (usize, &&str)| {
        format!(
            "Report {number} on {subject}. The looms of Harrowgate were driven by water from the River Senn, led over a weir \
             above the town in 18{number}4. Rye flour absorbs more water than wheat, and a long rest keeps the crust of the \
             bread from tearing. The station of Harrowgate closed in 19{number}4 and houses a museum of {subject}."
        )
    };
    subjects.iter().enumerate().map(text).collect()
}

fn request(query: &str, method: &str) -> RerankRequest {
    let passage = |(index, text): (usize, String)| Passage { id: format!("p{index}"), text, ..Passage::default() };
    RerankRequest {
        query: query.to_owned(),
        passages: texts().into_iter().enumerate().map(passage).collect(),
        method: methods::find(method),
        ..RerankRequest::default()
    }
}

async fn rerank(engine: &Engine, request: &RerankRequest) -> Reranked {
    engine.reranker.rerank(&common::call(), request.clone(), None).await.unwrap()
}

fn utilities(answer: &Reranked) -> Vec<f64> {
    let mut by_index = vec![0.0; answer.passages.len()];
    for passage in &answer.passages {
        by_index[passage.index] = passage.utility;
    }
    by_index
}

fn difference(left: &Reranked, right: &Reranked) -> f64 {
    utilities(left).iter().zip(utilities(right)).map(|(left, right)| (left - right).abs()).fold(0.0, f64::max)
}

#[tokio::test]
async fn a_list_asked_twice_evaluates_only_the_query() {
    let (warm, cold) = (engine("536870912").await, engine("off").await);
    for method in ["query-generation", "moi", "long-llm-lingua", "cascade", "listwise-bayes", "bayes-saliency"] {
        for (turn, query) in QUERIES.iter().enumerate() {
            let request = request(query, method);
            let (restored, evaluated) = (rerank(&warm, &request).await, rerank(&cold, &request).await);
            let moved = difference(&restored, &evaluated);
            println!(
                "{method} {turn}: {moved:.4} nats, {} + {} tokens",
                restored.usage.tokens, restored.usage.cached_tokens
            );
            assert!(moved < TOLERANCE, "{method}, {query}: {moved} nats");
            if method == "query-generation" && turn > 0 {
                let served = common::generator(&warm);
                let tokens = served.language.query(query).len();
                // The cue's last token and the query but for its last token, after each passage and after none.
                assert_eq!(restored.usage.tokens, 6 * tokens);
                assert_eq!(restored.usage.tokens + restored.usage.cached_tokens, evaluated.usage.tokens);
            }
            if method == "bayes-saliency" && turn > 0 {
                let tokens = common::generator(&warm).language.query(query).len();
                assert_eq!(restored.usage.tokens, 5 * tokens, "the passages' scores are cached with their states");
            }
        }
    }
}

#[tokio::test]
async fn eviction_at_a_tiny_bound_stays_correct() {
    // One passage of some 90 tokens takes about 2 MiB.
    let (tiny, cold) = (engine("5000000").await, engine("off").await);
    for query in QUERIES.iter().cycle().take(6) {
        let request = request(query, "query-generation");
        let (restored, evaluated) = (rerank(&tiny, &request).await, rerank(&cold, &request).await);
        assert!(difference(&restored, &evaluated) < TOLERANCE);
    }
    let figures = common::generator(&tiny).scheduler.store().unwrap().figures();
    assert!(figures.bytes <= 5_000_000 && figures.hits > 0 && figures.misses > 11, "{figures:?}");
}

#[tokio::test]
async fn states_on_disk_survive_a_restart_and_damage() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("warm");
    let mut flags = common::settings_of_16_bits();
    flags.push(("passage_cache.disk".to_owned(), folder.to_str().unwrap().to_owned()));
    let config = Config::load(None, &flags).unwrap();
    let start = || async { rerankd::app::engine(&config).await.unwrap() };
    let request = request(QUERIES[0], "query-generation");
    let first = rerank(&start().await, &request).await;
    let files = || -> Vec<_> { std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect() };
    assert_eq!(files().len(), 11);
    // One file is cut off, one has a flipped bit in the middle, one belongs to another state.
    let (damaged, bytes) = (files(), |path: &std::path::Path| std::fs::read(path).unwrap());
    std::fs::write(&damaged[0], &bytes(&damaged[0])[..100]).unwrap();
    let mut flipped = bytes(&damaged[1]);
    let middle = flipped.len() / 2;
    flipped[middle] ^= 16;
    std::fs::write(&damaged[1], flipped).unwrap();
    std::fs::copy(&damaged[3], &damaged[2]).unwrap();
    let engine = start().await;
    let second = rerank(&engine, &request).await;
    assert!(difference(&first, &second) < TOLERANCE);
    assert!(second.usage.cached_tokens > 0 && second.usage.cached_tokens < first.usage.tokens);
    let figures = common::generator(&engine).scheduler.store().unwrap().figures();
    assert_eq!((figures.read, figures.states), (8, 11));
}

#[tokio::test]
async fn the_server_reports_its_cache() {
    let engine = engine("536870912").await;
    let server = common::serve(engine, Arc::new(Observed::default()), 8).await;
    let texts = texts();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    for query in &QUERIES[..2] {
        let mut wanted = common::wire(query, &texts);
        wanted.method = v1::Method::QueryGeneration.into();
        server.client().await.rerank(wanted).await.unwrap();
    }
    let mut models = ModelServiceClient::new(server.channel().await);
    let info = models.get_server_info(v1::GetServerInfoRequest {}).await.unwrap().into_inner();
    let warm = info.warm.unwrap();
    // Five passages, the cue after each and after none.
    assert_eq!((warm.states, warm.hits, warm.misses, warm.evictions), (11, 11, 11, 0));
    assert!(warm.bytes > 4_000_000 && warm.bytes < warm.bytes_limit);
    assert_eq!(warm.bytes_limit, 536_870_912);
    server.stop().await;
}

/// With `generator.reproducible`, answers under load equal those of a fresh server bit for bit.
#[tokio::test]
async fn reproducible_scores_do_not_depend_on_the_load() {
    let settings = [("generator.reproducible", "true")];
    let (busy, fresh) = (engine_with(&settings).await, engine_with(&settings).await);
    let short = |number: usize| RerankRequest {
        passage_tokens: Some(24),
        ..request(QUERIES[number % 3], ["query-generation", "cascade", "moi"][number / 3 % 3])
    };
    let requests: Vec<RerankRequest> = (0..16).map(short).collect();
    let together = requests.iter().cloned().map(|request| {
        let engine = busy.clone();
        tokio::spawn(async move { rerank(&engine, &request).await })
    });
    let together: Vec<_> = together.collect();
    for (request, answer) in requests.iter().zip(together) {
        let (beside, alone) = (answer.await.unwrap(), rerank(&fresh, request).await);
        let bits = |answer: &Reranked| utilities(answer).iter().map(|utility| utility.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&beside), bits(&alone), "{}", request.query);
        assert_eq!(beside.usage.cached_tokens, 0);
    }
}

/// Cached context-free answers would replace answers that are drawn with the other contexts and differ in their last
/// digits.
#[tokio::test]
async fn reproducible_beliefs_do_not_depend_on_what_was_asked_before() {
    let settings = [("generator.reproducible", "true")];
    let (asked, fresh) = (engine_with(&settings).await, engine_with(&settings).await);
    let request = |from: usize| UtilityRequest {
        question: QUERIES[0].to_owned(),
        passages: request(QUERIES[0], "cascade").passages[from..from + 2].to_vec(),
        references: vec!["River Senn".to_owned()],
        list: true,
        sampling: SampleOptions { samples: Some(3), max_tokens: Some(8), ..SampleOptions::default() },
        ..UtilityRequest::default()
    };
    let bits = async |engine: &Engine, from: usize| {
        let report = engine.utility.measure(&common::call(), request(from), None).await.unwrap();
        let answers = report.context_free_answers.iter().chain(&report.utilities[0].answers);
        let scores = answers.flat_map(|answer| &answer.log_probabilities).map(|value| value.to_bits());
        let beliefs = [&report.context_free, &report.utilities[0].belief];
        let beliefs = beliefs.map(|belief| belief.seper_soft.as_ref().map(|measured| measured.value.to_bits()));
        (scores.collect::<Vec<_>>(), beliefs)
    };
    bits(&asked, 2).await;
    let first = bits(&asked, 0).await;
    assert_eq!(first, bits(&fresh, 0).await);
    assert_eq!(first, bits(&asked, 0).await);
}

/// Cells of other types serve the same requests. The tolerances are about twice the largest change that was observed.
#[tokio::test]
async fn states_are_kept_in_cells_of_every_type() {
    let half = engine("536870912").await;
    for (cells, tolerance) in [("bf16", 0.25), ("q8_0", 0.8)] {
        let other = engine_with(&[("generator.cache_type", cells)]).await;
        let mut bytes = Vec::new();
        for (turn, query) in QUERIES.iter().enumerate() {
            let request = request(query, "query-generation");
            let (expected, found) = (rerank(&half, &request).await, rerank(&other, &request).await);
            let moved = difference(&expected, &found);
            println!("{cells} {turn}: {moved:.4} nats");
            assert!(moved < tolerance, "{cells}: {moved} nats");
            assert!(turn == 0 || found.usage.cached_tokens > found.usage.tokens);
            bytes =
                [&half, &other].map(|each| common::generator(each).scheduler.store().unwrap().figures().bytes).to_vec();
        }
        let expected = if cells == "q8_0" { 34.0 / 64.0 } else { 1.0 };
        let ratio = bytes[1] as f64 / bytes[0] as f64;
        assert!((ratio - expected).abs() < 0.02, "{cells}: {bytes:?}");
    }
}
