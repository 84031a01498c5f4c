//! Numbers outside their domain, in every request that has numbers: the answer names the field.

use crate::common;
use common::{Scripted, wire};
use protocol::v1;
use protocol::v1::belief_service_client::BeliefServiceClient;
use protocol::v1::metrics_service_client::MetricsServiceClient;
use protocol::v1::utility_service_client::UtilityServiceClient;
use tonic::{Code, Status};
use tonic_types::StatusExt;

const NAN: f64 = f64::NAN;
const INFINITE: f64 = f64::INFINITY;

fn named<T>(answer: Result<T, Status>, expected: &str) {
    let status = answer.err().unwrap_or_else(|| panic!("{expected} was accepted"));
    let field = status.get_details_bad_request().map(|details| details.field_violations[0].field.clone());
    assert_eq!((status.code(), field.as_deref()), (Code::InvalidArgument, Some(expected)), "{status}");
}

fn passages() -> Vec<v1::Passage> {
    wire("q", &["aaaa", "bbbb"]).passages
}

/// Sampling options with one number that is wrong, and the name of its field.
fn samplings() -> Vec<(&'static str, v1::SamplingOptions)> {
    let base = v1::SamplingOptions::default;
    let mut cases = vec![
        ("samples", v1::SamplingOptions { samples: 101, ..base() }),
        ("max_tokens", v1::SamplingOptions { max_tokens: 513, ..base() }),
    ];
    for wrong in [-0.1, 101.0, NAN, INFINITE] {
        cases.push(("temperature", v1::SamplingOptions { temperature: Some(wrong), ..base() }));
    }
    for wrong in [-0.1, 0.0, 1.1, NAN] {
        cases.push(("top_p", v1::SamplingOptions { top_p: Some(wrong), ..base() }));
    }
    for wrong in [-0.1, 1.1, NAN] {
        cases.push(("min_p", v1::SamplingOptions { min_p: wrong, ..base() }));
    }
    cases
}

/// Entailment thresholds that are not probabilities.
const THRESHOLDS: [f64; 4] = [-0.5, 0.0, 1.5, NAN];

#[tokio::test]
async fn of_a_reranking() {
    let server = Scripted::default().serve().await;
    let mut client = server.client().await;
    let good = || wire("who?", &["alpha", "beta"]);
    let moi = v1::MoiOptions::default;
    let mut cases: Vec<(&str, v1::RerankRequest)> = Vec::new();
    for wrong in [-0.1, 1.1, NAN, INFINITE] {
        let fusion = v1::Fusion { weight: Some(wrong), ..v1::Fusion::default() };
        cases.push(("fusion.weight", v1::RerankRequest { fusion: Some(fusion), ..good() }));
        let fusion = v1::Fusion { embedding_weight: Some(wrong), ..v1::Fusion::default() };
        cases.push(("fusion.embedding_weight", v1::RerankRequest { fusion: Some(fusion), ..good() }));
        cases.push(("score_threshold", v1::RerankRequest { score_threshold: Some(wrong), ..good() }));
        let compression = v1::Compression { ratio: Some(wrong), ..v1::Compression::default() };
        cases.push(("compression.ratio", v1::RerankRequest { compression: Some(compression), ..good() }));
        let compression = v1::Compression { ratio_spread: Some(wrong), ratio: Some(0.5), ..v1::Compression::default() };
        cases.push(("compression.ratio_spread", v1::RerankRequest { compression: Some(compression), ..good() }));
    }
    for wrong in [0.0, -1.0, NAN, INFINITE] {
        cases.push(("latency_budget_ms", v1::RerankRequest { latency_budget_ms: Some(wrong), ..good() }));
    }
    let background = v1::Background { documents: 10, frequencies: [("who".to_owned(), 11)].into() };
    let fusion = v1::Fusion { background: Some(background), ..v1::Fusion::default() };
    cases.push(("fusion.background.frequencies[\"who\"]", v1::RerankRequest { fusion: Some(fusion), ..good() }));
    for (field, number) in [("samples", 101), ("max_tokens", 513)] {
        let utility = v1::InlineUtility { references: vec!["a".into()], ..v1::InlineUtility::default() };
        let utility = if field == "samples" {
            v1::InlineUtility { samples: number, ..utility }
        } else {
            v1::InlineUtility { max_tokens: number, ..utility }
        };
        let field = if field == "samples" { "utility.samples" } else { "utility.max_tokens" };
        cases.push((field, v1::RerankRequest { utility: Some(utility), ..good() }));
    }
    // Wrong with every method, even if the method does not use them.
    for method in [v1::Method::Moi, v1::Method::Cascade, v1::Method::QueryGeneration] {
        let with = |moi| v1::RerankRequest { moi: Some(moi), method: method.into(), ..good() };
        for wrong in [-0.5, 0.0, 1.0, 2.0, NAN] {
            cases.push(("moi.sigma2", with(v1::MoiOptions { sigma2: Some(wrong), ..moi() })));
            cases.push(("moi.settle_probability", with(v1::MoiOptions { settle_probability: Some(wrong), ..moi() })));
        }
        for wrong in [-0.5, 0.0, NAN, INFINITE] {
            let options = v1::MoiOptions { softmax_temperature: Some(wrong), ..moi() };
            cases.push(("moi.softmax_temperature", with(options)));
        }
        for wrong in [vec![1.5, -0.5], vec![0.9, 0.9], vec![NAN, 1.0], vec![INFINITE, 0.0]] {
            cases.push(("moi.position_prior", with(v1::MoiOptions { position_prior: wrong, ..moi() })));
        }
        cases.push(("moi.rounds", with(v1::MoiOptions { rounds: 65, ..moi() })));
    }
    for wrong in [NAN, INFINITE] {
        let mut request = good();
        request.passages[1].retriever_score = Some(wrong);
        cases.push(("passages[1].retriever_score", request));
    }
    for (field, request) in cases {
        named(client.rerank(request).await, field);
    }
    server.stop().await;
}

#[tokio::test]
async fn of_samples_and_measures() {
    let (server, _) = super::belief::server(Scripted::default()).await;
    let mut beliefs = BeliefServiceClient::new(server.channel().await);
    let mut utilities = UtilityServiceClient::new(server.channel().await);
    let sample = || v1::SampleRequest { question: "q".into(), passages: passages(), ..v1::SampleRequest::default() };
    let evaluate = || v1::EvaluateRetrievalRequest {
        question: "q".into(),
        passages: passages(),
        references: vec!["aaaa".into()],
        ..v1::EvaluateRetrievalRequest::default()
    };
    for (field, sampling) in samplings() {
        let field = format!("sampling.{field}");
        let sampling = Some(sampling);
        let request = v1::SampleRequest { sampling: sampling.clone(), ..sample() };
        // A stream reports it as its first message.
        let answer = match beliefs.sample(request).await {
            Ok(stream) => stream.into_inner().message().await.map(|_| ()),
            Err(status) => Err(status),
        };
        named(answer, &field);
        let request = v1::MeasureUtilityRequest { sampling: sampling.clone(), ..super::belief::request() };
        named(utilities.measure_utility(request).await, &field);
        named(utilities.evaluate_retrieval(v1::EvaluateRetrievalRequest { sampling, ..evaluate() }).await, &field);
    }
    for wrong in THRESHOLDS {
        for rule in [v1::EquivalenceRule::Unspecified, v1::EquivalenceRule::Threshold] {
            let request = v1::ClusterRequest {
                texts: vec!["a".into()],
                rule: rule.into(),
                threshold: Some(wrong),
                ..v1::ClusterRequest::default()
            };
            named(beliefs.cluster(request).await, "threshold");
            let measure = v1::MeasureOptions { rule: rule.into(), threshold: Some(wrong), ..Default::default() };
            let request = v1::MeasureUtilityRequest { measure: Some(measure), ..super::belief::request() };
            named(utilities.measure_utility(request).await, "measure.threshold");
            let request = v1::EvaluateRetrievalRequest { measure: Some(measure), ..evaluate() };
            named(utilities.evaluate_retrieval(request).await, "measure.threshold");
        }
        let request = v1::CheckCitationsRequest {
            answer: "It rained [1].".into(),
            passages: passages(),
            threshold: Some(wrong),
            ..v1::CheckCitationsRequest::default()
        };
        named(beliefs.check_citations(request).await, "threshold");
    }
    for wrong in [-1.0, NAN, INFINITE] {
        let request = v1::EvaluateRetrievalRequest {
            annotators: vec![v1::Annotator::Provenance.into()],
            provenance: vec![1.0, wrong],
            ..evaluate()
        };
        named(utilities.evaluate_retrieval(request).await, "provenance[1]");
    }
    for wrong in [NAN, INFINITE] {
        let request = v1::EvaluateRetrievalRequest { threshold: Some(wrong), ..evaluate() };
        named(utilities.evaluate_retrieval(request).await, "threshold");
        let mut request = super::belief::request();
        request.passages[0].retriever_score = Some(wrong);
        named(utilities.measure_utility(request).await, "passages[0].retriever_score");
    }
    named(
        utilities.evaluate_retrieval(v1::EvaluateRetrievalRequest { answer_tokens: 513, ..evaluate() }).await,
        "answer_tokens",
    );
    server.stop().await;
}

#[tokio::test]
async fn of_metrics() {
    let server = Scripted::default().serve().await;
    let mut client = MetricsServiceClient::new(server.channel().await);
    let ranking = |document: v1::RankedDocument| v1::EvaluateRankingRequest {
        queries: vec![v1::RankedQuery { documents: vec![document], ..v1::RankedQuery::default() }],
        metrics: vec!["P@1".into()],
        ..v1::EvaluateRankingRequest::default()
    };
    let labelled = || v1::RankedDocument { label: Some(1.0), ..v1::RankedDocument::default() };
    let correlate = || v1::CorrelateRequest {
        target: vec![1.0, 2.0],
        series: vec![v1::Series { name: "s".into(), values: vec![1.0, 2.0] }],
        ..v1::CorrelateRequest::default()
    };
    let list = |response_score: f64| v1::ScoredList {
        relevant: vec![true, false],
        cutoff: 1,
        positives: Some(1),
        response_score,
    };
    for wrong in [NAN, INFINITE] {
        let document = v1::RankedDocument { score: Some(wrong), ..labelled() };
        named(client.evaluate_ranking(ranking(document)).await, "queries[0].documents[0].score");
        let document = v1::RankedDocument { label: Some(wrong), ..labelled() };
        named(client.evaluate_ranking(ranking(document)).await, "queries[0].documents[0].label");
        let mut request = ranking(labelled());
        request.queries[0].missed_labels = vec![0.0, wrong];
        named(client.evaluate_ranking(request).await, "queries[0].missed_labels[1]");
        let mut request = ranking(v1::RankedDocument::default());
        request.queries[0].judgements = [("a".to_owned(), wrong)].into();
        named(client.evaluate_ranking(request).await, "queries[0].judgements[\"a\"]");
        let request = v1::EvaluateRankingRequest { threshold: Some(wrong), ..ranking(labelled()) };
        named(client.evaluate_ranking(request).await, "threshold");
        named(client.correlate(v1::CorrelateRequest { target: vec![1.0, wrong], ..correlate() }).await, "target[1]");
        let series = vec![v1::Series { name: "s".into(), values: vec![wrong, 1.0] }];
        named(client.correlate(v1::CorrelateRequest { series, ..correlate() }).await, "series[0].values[0]");
        let lists = vec![list(1.0), list(wrong)];
        let request = v1::ChooseAlphaRequest { lists, ..v1::ChooseAlphaRequest::default() };
        named(client.choose_alpha(request).await, "lists[1].response_score");
    }
    for wrong in [-0.1, 0.0, 1.0, NAN] {
        let resampling = Some(v1::Resampling { confidence: Some(wrong), ..v1::Resampling::default() });
        let request = v1::EvaluateRankingRequest { resampling, ..ranking(labelled()) };
        named(client.evaluate_ranking(request).await, "resampling.confidence");
        named(client.correlate(v1::CorrelateRequest { resampling, ..correlate() }).await, "resampling.confidence");
    }
    for (field, wrong) in [
        ("lists[0].cutoff", v1::ScoredList { cutoff: 0, ..list(1.0) }),
        ("lists[0].positives", v1::ScoredList { positives: Some(0), ..list(1.0) }),
    ] {
        let request = v1::ChooseAlphaRequest { lists: vec![wrong, list(2.0)], ..v1::ChooseAlphaRequest::default() };
        named(client.choose_alpha(request).await, field);
    }
    server.stop().await;
}

#[tokio::test]
async fn of_a_fit() {
    let server = Scripted::default().serve().await;
    let mut client = MetricsServiceClient::new(server.channel().await);
    let orders = |score: f64| {
        let order = |passages: [u32; 2], score: f64| v1::ScoredOrder { passages: passages.to_vec(), score };
        vec![order([0, 1], -1.0), order([1, 0], score)]
    };
    let good = || v1::FitMoiRequest { passages: 2, orders: orders(-2.0), ..v1::FitMoiRequest::default() };
    let mut cases: Vec<(&str, v1::FitMoiRequest)> = vec![("passages", v1::FitMoiRequest { passages: 0, ..good() })];
    for wrong in [NAN, INFINITE] {
        cases.push(("orders[1].score", v1::FitMoiRequest { orders: orders(wrong), ..good() }));
        cases.push(("one_passage_scores", v1::FitMoiRequest { one_passage_scores: vec![-1.0, wrong], ..good() }));
    }
    for wrong in [-1.0, NAN, INFINITE] {
        cases.push(("lam", v1::FitMoiRequest { lam: Some(wrong), ..good() }));
        cases.push(("rho", v1::FitMoiRequest { rho: Some(wrong), ..good() }));
    }
    for wrong in [-0.5, 0.0, 1.0, NAN] {
        cases.push(("sigma2", v1::FitMoiRequest { sigma2: Some(wrong), ..good() }));
    }
    for wrong in [-1.0, 0.0, NAN, INFINITE] {
        cases.push(("softmax_temperature", v1::FitMoiRequest { softmax_temperature: Some(wrong), ..good() }));
    }
    for wrong in [vec![1.5, -0.5], vec![0.9, 0.9], vec![NAN, 1.0]] {
        cases.push(("position_prior", v1::FitMoiRequest { position_prior: wrong, ..good() }));
    }
    for (field, request) in cases {
        named(client.fit_moi(request).await, field);
    }
    // Scores may be any finite numbers; other measures may exceed 0.
    let above = v1::FitMoiRequest { orders: orders(3.0), ..good() };
    assert!(client.fit_moi(above).await.is_ok());
    server.stop().await;
}
