//! The arithmetic of MetricsService over the wire, and its errors.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    clippy::items_after_statements,
    clippy::similar_names,
    missing_docs,
    reason = "a test or benchmark that fails says where; its numbers are small"
)]

mod common;

use std::time::{Duration, Instant};

use common::{Running, Scripted, fields};
use prost::Message;
use protocol::v1;
use protocol::v1::metrics_service_client::MetricsServiceClient;
use server::rpc::server::ServerOptions;
use tonic::Code;
use tonic::transport::Channel;

async fn metrics(server: &Running) -> MetricsServiceClient<Channel> {
    MetricsServiceClient::new(server.channel().await)
}

fn document(id: &str, score: f64) -> v1::RankedDocument {
    v1::RankedDocument { id: id.into(), score: Some(score), label: None }
}

#[tokio::test]
async fn rankings_are_evaluated_by_id_by_label_and_by_tie_rule() {
    let server = Scripted::default().serve().await;
    let by_id = v1::RankedQuery {
        id: "q1".into(),
        documents: vec![document("a", 0.5), document("b", 0.5), document("c", 0.9)],
        judgements: [("b".to_owned(), 1.0), ("z".to_owned(), 1.0)].into(),
        missed_labels: Vec::new(),
    };
    let labelled = |label: Option<f64>| v1::RankedDocument { label, ..v1::RankedDocument::default() };
    let by_label = v1::RankedQuery {
        id: "q2".into(),
        documents: vec![labelled(Some(0.0)), labelled(None), labelled(Some(2.0))],
        missed_labels: vec![1.0],
        ..v1::RankedQuery::default()
    };
    let empty = v1::RankedQuery { id: "q3".into(), ..v1::RankedQuery::default() };
    let mut asked = v1::EvaluateRankingRequest {
        queries: vec![by_id, by_label, empty],
        metrics: ["RR", "recall@3", "num_rel"].map(str::to_owned).to_vec(),
        ..v1::EvaluateRankingRequest::default()
    };
    let of = |answer: &v1::EvaluateRankingResponse, at: usize| {
        answer.queries.iter().map(|query| query.values[at].value.unwrap()).collect::<Vec<f64>>()
    };
    let answer = metrics(&server).await.evaluate_ranking(asked.clone()).await.unwrap().into_inner();
    assert_eq!(of(&answer, 0), [1.0 / 3.0, 1.0 / 3.0, 0.0]);
    assert_eq!(of(&answer, 1), [0.5, 0.5, 0.0]);
    assert_eq!(answer.tie_rule(), v1::TieRule::InputOrder);
    let summary = &answer.summary;
    assert!(summary[1].interval.is_some() && summary[1].queries == 3);
    assert!(summary[2].value == Some(4.0) && summary[2].interval.is_none(), "a count is summed");
    asked.tie_rule = v1::TieRule::TrecEval.into();
    asked.resampling = Some(v1::Resampling { resamples: Some(0), ..v1::Resampling::default() });
    // Ids decide ties, so they must differ.
    asked.queries.truncate(1);
    let answer = metrics(&server).await.evaluate_ranking(asked).await.unwrap().into_inner();
    assert_eq!(of(&answer, 0), [0.5], "b and a tie; b sorts last, so it comes first");
    assert_eq!(answer.summary[0].interval, None);
    let documents = [0.2, 0.7].map(|label| labelled(Some(label))).to_vec();
    let graded = v1::EvaluateRankingRequest {
        queries: vec![v1::RankedQuery { documents, ..v1::RankedQuery::default() }],
        metrics: vec!["RR".to_owned()],
        graded: true,
        ..v1::EvaluateRankingRequest::default()
    };
    let answer = metrics(&server).await.evaluate_ranking(graded).await.unwrap().into_inner();
    assert_eq!(of(&answer, 0), [0.5], "labels from one half on count as relevant");
    server.stop().await;
}

#[tokio::test]
async fn bad_arithmetic_is_refused_by_field() {
    let server = Scripted::default().serve().await;
    let list = |documents: Vec<v1::RankedDocument>| v1::EvaluateRankingRequest {
        queries: vec![v1::RankedQuery {
            documents,
            judgements: [("a".to_owned(), 1.0)].into(),
            ..v1::RankedQuery::default()
        }],
        metrics: vec!["AP".into()],
        ..v1::EvaluateRankingRequest::default()
    };
    let good = list(vec![document("a", 1.0)]);
    let mut both = good.clone();
    both.queries[0].documents[0].label = Some(1.0);
    let cases = [
        ("queries", v1::EvaluateRankingRequest { queries: Vec::new(), ..good.clone() }),
        ("metrics", v1::EvaluateRankingRequest { metrics: Vec::new(), ..good.clone() }),
        ("metrics[0]", v1::EvaluateRankingRequest { metrics: vec!["P@0".into()], ..good.clone() }),
        ("tie_rule", v1::EvaluateRankingRequest { tie_rule: 9, ..good.clone() }),
        ("queries[0].documents[1].id", list(vec![document("a", 1.0), document("a", 2.0)])),
        ("queries[0].documents[0].score", list(vec![document("a", f64::NAN)])),
        (
            "queries[0].documents[1].score",
            list(vec![document("a", 1.0), v1::RankedDocument { id: "b".into(), ..Default::default() }]),
        ),
        ("queries[0].judgements", both),
        (
            "resampling.confidence",
            v1::EvaluateRankingRequest {
                resampling: Some(v1::Resampling { confidence: Some(1.0), ..Default::default() }),
                ..good.clone()
            },
        ),
    ];
    for (field, asked) in cases {
        let status = metrics(&server).await.evaluate_ranking(asked).await.unwrap_err();
        assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec![field.to_owned()]), "{status}");
    }
    let series = |values: &[f64]| v1::CorrelateRequest {
        target: vec![1.0, 2.0, 3.0],
        series: vec![v1::Series { name: "s".into(), values: values.to_vec() }],
        ..v1::CorrelateRequest::default()
    };
    for (field, asked) in [
        ("target", v1::CorrelateRequest { target: vec![1.0], ..series(&[1.0]) }),
        ("series", v1::CorrelateRequest { series: Vec::new(), ..series(&[]) }),
        ("series[0].values", series(&[1.0])),
        ("series[0].values[2]", series(&[1.0, 2.0, f64::INFINITY])),
        ("kinds[0]", v1::CorrelateRequest { kinds: vec![0], ..series(&[1.0, 2.0, 3.0]) }),
    ] {
        let status = metrics(&server).await.correlate(asked).await.unwrap_err();
        assert_eq!(fields(&status), [field], "{status}");
    }
    server.stop().await;
}

#[tokio::test]
async fn series_are_correlated_and_alpha_is_chosen() {
    let server = Scripted::default().serve().await;
    let asked = v1::CorrelateRequest {
        target: vec![1.0, 2.0, 3.0, 4.0],
        series: vec![
            v1::Series { name: "like".into(), values: vec![1.0, 3.0, 2.0, 4.0] },
            v1::Series { name: "flat".into(), values: vec![1.0; 4] },
        ],
        ..v1::CorrelateRequest::default()
    };
    let found = metrics(&server).await.correlate(asked).await.unwrap().into_inner().correlations;
    assert_eq!(found.len(), 6);
    assert_eq!(found[0].kind(), v1::CorrelationKind::KendallB);
    assert!(
        (found[0].value.unwrap() - 2.0 / 3.0).abs() < 1e-12 && (found[0].p_value.unwrap() - 1.0 / 3.0).abs() < 1e-12
    );
    assert!(found[3..].iter().all(|one| one.series == "flat" && one.value.is_none() && one.p_value.is_none()));
    let list = |relevant: &[bool], cutoff: u32, response_score: f64| v1::ScoredList {
        relevant: relevant.to_vec(),
        cutoff,
        positives: None,
        response_score,
    };
    let mut asked = v1::ChooseAlphaRequest {
        lists: vec![list(&[true, false], 2, 2.0), list(&[true, true], 2, 5.0), list(&[false, false], 2, 1.0)],
        ..v1::ChooseAlphaRequest::default()
    };
    let chosen = metrics(&server).await.choose_alpha(asked.clone()).await.unwrap().into_inner();
    assert!(chosen.correlation > 0.999 && chosen.lists == 3 && chosen.alpha < 1e-12, "{chosen:?}");
    asked.measure = v1::AlphaMeasure::F.into();
    let status = metrics(&server).await.choose_alpha(asked).await.unwrap_err();
    assert_eq!(fields(&status), ["lists[0].positives"]);
    server.stop().await;
}

fn softmax(request: &mut v1::FitMoiRequest, temperature: f64) {
    request.score_domain = v1::ScoreDomain::Softmax.into();
    request.softmax_temperature = Some(temperature);
}

#[tokio::test]
async fn a_moi_fit_needs_no_model() {
    let server = Scripted::default().serve().await;
    let text = include_str!("../crates/moi/tests/golden/06_p1_noisy_n5_m15.json");
    let golden: serde_json::Value = serde_json::from_str(text).unwrap();
    let order = |(order, score): (&serde_json::Value, &serde_json::Value)| v1::ScoredOrder {
        passages: order.as_array().unwrap().iter().map(|p| u32::try_from(p.as_u64().unwrap()).unwrap()).collect(),
        score: score.as_f64().unwrap(),
    };
    let rows = golden["permutations"].as_array().unwrap().iter().zip(golden["scores"].as_array().unwrap());
    let reals = |value: &serde_json::Value| value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    let asked = v1::FitMoiRequest {
        passages: 5,
        orders: rows.map(order).collect(),
        lam: golden["lam"].as_f64(),
        rho: golden["rho"].as_f64(),
        position_prior: reals(&golden["a0"]),
        ..v1::FitMoiRequest::default()
    };
    let fitted = metrics(&server).await.fit_moi(asked.clone()).await.unwrap().into_inner();
    let ranking: Vec<u64> = fitted.ranking.iter().map(|index| u64::from(*index)).collect();
    assert_eq!(serde_json::json!(ranking), golden["ranking"]);
    let gap = fitted.diagnostics.unwrap().objective - golden["objective_star"].as_f64().unwrap();
    assert!(gap.abs() < 1e-8, "{gap}");
    type Change = fn(&mut v1::FitMoiRequest);
    let cases: [(&str, Change); 10] = [
        ("passages", |r| r.passages = 0),
        ("orders", |r| r.orders.clear()),
        ("orders[1]", |r| r.orders[1].passages.truncate(2)),
        ("orders[2].passages[0]", |r| r.orders[2].passages[0] = 77),
        ("orders[3].score", |r| r.orders[3].score = f64::NAN),
        ("position_prior", |r| r.position_prior = vec![0.2; 5]),
        ("sigma2", |r| r.sigma2 = Some(2.0)),
        ("orders[0]", |r| {
            r.position_prior.clear();
            r.orders.iter_mut().for_each(|order| order.passages.clear());
        }),
        ("softmax_temperature", |r| softmax(r, 0.0)),
        // A negative temperature would reverse the ranking.
        ("softmax_temperature", |r| softmax(r, -1.0)),
    ];
    for (field, change) in cases {
        let mut bad = asked.clone();
        change(&mut bad);
        let status = metrics(&server).await.fit_moi(bad).await.unwrap_err();
        assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec![field.to_owned()]), "{status}");
    }
    server.stop().await;
}

/// Tests that measure the memory of the process run one after the other.
static MEASURES: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// The process's highest resident memory since [`reset_peak`], in bytes; 0 if unknown.
fn peak_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok()).unwrap_or(0) * 1024
}

fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Sends a request that must be refused at once. Checks the field, the message, the time and the memory.
async fn refused_at_once<T>(
    what: &str,
    expected: (&str, &str),
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) {
    reset_peak();
    let (before, started) = (peak_memory(), Instant::now());
    let status = call.await.map(|_| ()).unwrap_err();
    let (taken, grown) = (started.elapsed(), peak_memory().saturating_sub(before) >> 20);
    eprintln!("{what}: {taken:?}, {grown} MiB more; {status}");
    assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec![expected.0.to_owned()]), "{what}");
    assert!(status.message().contains(expected.1), "{what}: {status}");
    assert!(status.message().len() < 500, "{what}: {} bytes of message", status.message().len());
    // Milliseconds in a release build on an idle machine; without the check it takes half a minute.
    assert!(taken < Duration::from_secs(5), "{what}: {taken:?}");
    assert!(grown < 200, "{what}: {grown} MiB");
}

fn named(count: usize, metrics: impl Iterator<Item = String>) -> v1::EvaluateRankingRequest {
    let query = |number: usize| v1::RankedQuery { id: format!("query-{number:020}"), ..v1::RankedQuery::default() };
    v1::EvaluateRankingRequest {
        queries: (0..count).map(query).collect(),
        metrics: metrics.collect(),
        resampling: Some(v1::Resampling { resamples: Some(0), ..v1::Resampling::default() }),
        ..v1::EvaluateRankingRequest::default()
    }
}

/// Two bytes of a message become a struct of a hundred. `server.message_bytes` bounds the sum.
#[tokio::test]
async fn the_largest_message_of_empty_messages_takes_bounded_memory() {
    let _alone = MEASURES.lock().await;
    let most = ServerOptions::default().message_bytes;
    let grown = |decode: &dyn Fn() -> usize| {
        reset_peak();
        let before = peak_memory();
        assert_eq!(decode(), most / 2);
        peak_memory().saturating_sub(before) >> 20
    };
    let queries = [0x0a, 0].repeat(most / 2);
    let queries = grown(&|| v1::EvaluateRankingRequest::decode(&queries[..]).unwrap().queries.len());
    let passages = [0x12, 0].repeat(most / 2);
    let passages = grown(&|| v1::RerankRequest::decode(&passages[..]).unwrap().passages.len());
    eprintln!("queries: {queries} MiB more; passages: {passages} MiB more");
    assert!(queries.max(passages) < 400, "{queries} MiB, {passages} MiB");
}

/// Messages within server.message_bytes that ask for far more than they hold.
#[tokio::test]
async fn messages_that_ask_for_more_than_they_hold_are_refused_at_once() {
    let _alone = MEASURES.lock().await;
    let server = Scripted::default().serve().await;
    let cutoffs = |count: usize| (1..=count).map(|cutoff| format!("P@{cutoff}"));
    let asked = named(100_000, cutoffs(256));
    let expected = ("queries", "100000 with 256 metrics are 25600000 values, at most 1000000 allowed");
    refused_at_once("values", expected, metrics(&server).await.evaluate_ranking(asked)).await;
    let asked = named(1, std::iter::repeat_n("P".to_owned(), 100_000));
    let expected = ("metrics", "100000 given, at most 256 allowed");
    refused_at_once("metrics", expected, metrics(&server).await.evaluate_ranking(asked)).await;
    let mut asked = named(1, cutoffs(1));
    asked.queries[0].documents = vec![v1::RankedDocument::default(); 1_000_001];
    let expected = ("queries", "1000001 documents, judgements and missed labels given, at most 1000000 allowed");
    refused_at_once("rows", expected, metrics(&server).await.evaluate_ranking(asked)).await;
    let long = |count: usize| (1..=count).map(|cutoff| format!("P(rel=0.12345678,judged_only=True)@{cutoff}"));
    let expected = ("queries", "the response may need");
    refused_at_once("response", expected, metrics(&server).await.evaluate_ranking(named(9_000, long(100)))).await;
    let expected = ("metrics[0]", "metric \"");
    // Read as a message, every `t` of the name would be a field.
    let asked = named(1, std::iter::once("t".repeat(2 << 20)));
    refused_at_once("name", expected, metrics(&server).await.evaluate_ranking(asked)).await;
    let mut asked = named(1, cutoffs(1));
    let id = "d".repeat(1 << 20);
    asked.queries[0].documents = vec![document(&id, 1.0), document(&id, 2.0)];
    asked.tie_rule = v1::TieRule::TrecEval.into();
    let expected = ("queries[0].documents[1].id", "twice");
    refused_at_once("id", expected, metrics(&server).await.evaluate_ranking(asked)).await;

    let series = |count: usize, kinds: Vec<i32>| v1::CorrelateRequest {
        target: vec![1.0, 2.0],
        series: vec![v1::Series { name: String::new(), values: vec![1.0, 2.0] }; count],
        kinds,
        resampling: Some(v1::Resampling { resamples: Some(0), ..v1::Resampling::default() }),
    };
    let expected = ("kinds", "4000000 given, at most 4 allowed");
    refused_at_once("kinds", expected, metrics(&server).await.correlate(series(1, vec![1; 4_000_000]))).await;
    let expected = ("series", "100000 with 3 kinds are 300000 correlations, at most 100000 allowed");
    refused_at_once("series", expected, metrics(&server).await.correlate(series(100_000, Vec::new()))).await;
    let mut asked = series(2, vec![1, 2, 3, 4]);
    asked.series[1].name = "s".repeat(3 << 20);
    refused_at_once("names", ("series", "the response may need"), metrics(&server).await.correlate(asked)).await;
    let lists = vec![v1::ScoredList { cutoff: 1, ..v1::ScoredList::default() }; 400_000];
    let asked = v1::ChooseAlphaRequest { lists, ..v1::ChooseAlphaRequest::default() };
    let expected = ("lists", "400000 given, must be 2 to 100000");
    refused_at_once("lists", expected, metrics(&server).await.choose_alpha(asked)).await;
    server.stop().await;
}

#[tokio::test]
async fn metrics_and_kinds_are_given_once() {
    let server = Scripted::default().serve().await;
    let asked = named(1, ["AP", "P@5", "map"].map(str::to_owned).into_iter());
    let status = metrics(&server).await.evaluate_ranking(asked).await.unwrap_err();
    assert_eq!(status.message(), "metrics[2]: AP given twice, first as metrics[0]");
    let asked = v1::CorrelateRequest {
        target: vec![1.0, 2.0],
        series: vec![v1::Series { name: "s".into(), values: vec![1.0, 2.0] }],
        kinds: vec![3, 1, 3],
        resampling: None,
    };
    let status = metrics(&server).await.correlate(asked).await.unwrap_err();
    assert_eq!(status.message(), "kinds[2]: Spearman's rho given twice, first as kinds[0]");
    server.stop().await;
}

/// Every threshold needs a list of relevant ranks, but only one at a time.
#[tokio::test]
async fn metrics_of_many_thresholds_do_not_pile_up() {
    let _alone = MEASURES.lock().await;
    let server = Scripted::default().serve().await;
    let thresholds = (1..=256).map(|number| format!("P(rel=0.{number:03},judged_only=True)@5"));
    let mut asked = named(1, thresholds);
    asked.queries[0].documents =
        vec![v1::RankedDocument { label: Some(1.0), ..v1::RankedDocument::default() }; 100_000];
    reset_peak();
    let before = peak_memory();
    let answer = metrics(&server).await.evaluate_ranking(asked).await.unwrap().into_inner();
    let grown = peak_memory().saturating_sub(before) >> 20;
    eprintln!("{grown} MiB more");
    assert!(answer.summary.iter().all(|one| one.value == Some(1.0)));
    assert!(grown < 200, "{grown} MiB");
    server.stop().await;
}

#[tokio::test]
async fn no_cutoff_is_too_large() {
    let server = Scripted::default().serve().await;
    let asked = named(1, ["Fe@9223372036854775808", "P@18446744073709551615"].map(str::to_owned).into_iter());
    let answer = metrics(&server).await.evaluate_ranking(asked).await.unwrap().into_inner();
    assert_eq!(answer.queries[0].values[0].value, None, "no list holds 2K documents");
    server.stop().await;
}

/// A caller who leaves ends the work: the next call need not wait for it.
#[tokio::test]
async fn arithmetic_ends_when_its_caller_leaves() {
    let server = Scripted::default().serve().await;
    let target: Vec<f64> = (0..10_000).map(f64::from).collect();
    let asked = v1::CorrelateRequest {
        series: vec![v1::Series { name: "s".into(), values: target.iter().rev().copied().collect() }],
        target,
        kinds: vec![v1::CorrelationKind::KendallB.into()],
        resampling: Some(v1::Resampling { resamples: Some(10_000), ..v1::Resampling::default() }),
    };
    let callers = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..callers {
        let mut client = metrics(&server).await;
        let call = client.correlate(asked.clone());
        assert!(tokio::time::timeout(Duration::from_millis(300), call).await.is_err(), "the work must last");
    }
    let started = Instant::now();
    metrics(&server).await.evaluate_ranking(named(2, std::iter::once("P@1".to_owned()))).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    server.stop().await;
}
