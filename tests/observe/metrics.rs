//! The page of metrics of a running server, before, during and after requests of each outcome.

use std::time::Duration;

use crate::{common, page};
use common::scripted::Fault;
use common::{Scripted, wire};
use page::{Observable, Page, get, observable, observable_with};
use prefix_scheduler::model::Capacity;
use protocol::v1;
use protocol::v1::belief_service_client::BeliefServiceClient;
use protocol::v1::rerank_service_client::RerankServiceClient;
use protocol::v1::utility_service_client::UtilityServiceClient;
use server::rpc::server::ServerOptions;
use server::transport::Bounds;
use tonic::transport::Channel;
use tonic::{Code, Request};

const PASSAGES: [&str; 4] = ["alpha beta", "gamma delta", "epsilon zeta", "eta theta"];
const RERANK: [(&str, &str); 2] = [("grpc_service", "rerankd.v1.RerankService"), ("grpc_method", "Rerank")];

async fn start(scripted: Scripted) -> Observable {
    let (engine, observed, queue_length) = scripted.engine().await;
    observable(engine, observed, queue_length).await
}

fn handled(page: &Page, code: &str) -> f64 {
    page.sum("grpc_server_handled_total", &[RERANK[0], RERANK[1], ("grpc_code", code)])
}

fn refused(page: &Page, reason: &str) -> f64 {
    page.sum("rerankd_requests_refused_total", &[("reason", reason)])
}

#[tokio::test]
async fn a_server_that_was_asked_nothing_shows_zeros() {
    let observable = start(Scripted::default()).await;
    let page = observable.scrape().await;
    let unary = [RERANK[0], RERANK[1], ("grpc_type", "unary")];
    assert!(
        page.samples
            .keys()
            .any(|series| series.starts_with("grpc_server_started_total") && series.contains("\"Rerank\""))
    );
    assert_eq!((page.sum("grpc_server_started_total", &unary), handled(&page, "OK")), (0.0, 0.0));
    // A rate needs an initial zero, or alerts miss the first burst of faults.
    let shown = |name: &str, code: &str, method: &str| {
        let holds = |series: &&String| series.starts_with(name) && series.contains(code) && series.contains(method);
        page.samples.keys().any(|series| holds(&series))
    };
    for code in ["Internal", "Unavailable", "Unknown"].map(|code| format!("grpc_code=\"{code}\"")) {
        assert!(shown("grpc_server_handled_total", &code, "\"Rerank\""), "{code}");
        assert!(shown("rerankd_stream_questions_total", &code, "\"RerankStream\""), "{code}");
    }
    assert_eq!(page.sum("rerankd_model_ready", &[("model", "scripted"), ("role", "generator")]), 1.0);
    assert_eq!(page.sum("rerankd_model_info", &[("name", "scripted"), ("encoding", "as shipped")]), 1.0);
    assert_eq!(page.sum("rerankd_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
    assert_eq!(page.sum("rerankd_batch_tokens", &[]), 64.0);
    assert!(!page.samples.keys().any(|series| series.contains("grpc.health") || series.contains("reflection")));
    if cfg!(target_os = "linux") {
        for metric in ["process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds"] {
            assert!(page.sum(metric, &[]) > 0.0, "{metric}");
        }
        assert!(page.has("process_cpu_seconds_total"));
    }
}

#[tokio::test]
async fn cut_passages_are_counted() {
    let observable = start(Scripted::default()).await;
    let truncation = v1::Truncation { max_passage_tokens: 4, ..v1::Truncation::default() };
    let method = v1::Method::QueryGeneration.into();
    let request = v1::RerankRequest { method, truncation: Some(truncation), ..wire("alpha gamma?", &PASSAGES) };
    let answer = observable.server.client().await.rerank(request).await.unwrap().into_inner();
    let cut = answer.results.iter().filter(|result| result.tokens_cut > 0).count();
    assert!(cut > 0);
    let page = observable.scrape_until("it is counted", |page| page.sum("rerankd_passages_cut_total", &[]) > 0.0).await;
    assert_eq!(page.sum("rerankd_passages_cut_total", &[]), cut as f64);
}

#[tokio::test]
async fn an_answered_request_counts_once_with_its_stages_and_tokens() {
    let observable = start(Scripted::default()).await;
    let request = v1::RerankRequest { method: v1::Method::Moi.into(), ..wire("alpha gamma?", &PASSAGES) };
    let usage = observable.server.client().await.rerank(request).await.unwrap().into_inner().usage.unwrap();
    let page = observable.scrape_until("the call ended", |page| page.sum("rerankd_fits_total", &[]) > 0.0).await;
    assert_eq!((page.sum("grpc_server_started_total", &RERANK), handled(&page, "OK")), (1.0, 1.0));
    assert_eq!(page.sum("grpc_server_handling_seconds_count", &RERANK), 1.0);
    for stage in ["tokenise", "queue", "score", "fit"] {
        let count = format!("rerankd_request_{stage}_seconds_count");
        assert_eq!(page.sum(&count, &[("method", "moi"), ("model", "scripted")]), 1.0, "{stage}");
    }
    let tokens = |kind| page.sum("rerankd_tokens_total", &[("kind", kind), ("model", "scripted")]);
    assert_eq!(tokens("evaluated"), usage.tokens as f64);
    assert_eq!(tokens("naive"), usage.naive_tokens as f64);
    assert_eq!(tokens("cached"), 0.0);
    assert_eq!(page.sum("rerankd_step_tokens_sum", &[]), usage.tokens as f64);
    assert_eq!(page.sum("rerankd_step_tokens_count", &[]), f64::from(usage.steps));
    assert_eq!(page.sum("rerankd_step_tokens_bucket", &[("le", "64")]), f64::from(usage.steps), "a batch has 64");
    assert_eq!(page.sum("rerankd_request_passages_bucket", &[("le", "4")]), 1.0);
    assert_eq!(page.sum("rerankd_request_passages_bucket", &[("le", "2")]), 0.0);
    assert!(page.sum("rerankd_model_busy_seconds_total", &[]) > 0.0);
}

#[tokio::test]
async fn a_running_request_is_visible_and_a_second_one_is_refused() {
    let observable = start(Scripted { queue_length: 1, delay: Duration::from_millis(2), ..Scripted::default() }).await;
    let mut client = observable.server.client().await;
    let running = tokio::spawn(async move { client.rerank(wire("who?", &PASSAGES)).await });
    let busy = |page: &Page| page.sum("rerankd_requests_running", &[]) == 1.0;
    let page = observable.scrape_until("the request runs", busy).await;
    assert_eq!((page.sum("grpc_server_started_total", &RERANK), handled(&page, "OK")), (1.0, 0.0));
    assert!(page.sum("rerankd_backlog_tokens", &[]) > 0.0);
    let held = |page: &Page| page.sum("rerankd_kv_cache_used_ratio", &[]) > 0.0;
    observable.scrape_until("cells are held", held).await;
    let status = observable.server.client().await.rerank(wire("who?", &PASSAGES)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let page = observable.scrape().await;
    assert_eq!((refused(&page, "queue_full"), handled(&page, "ResourceExhausted")), (1.0, 1.0));
    running.await.unwrap().unwrap();
    let idle = |page: &Page| page.sum("rerankd_requests_running", &[]) == 0.0;
    let page = observable.scrape_until("the request ended", idle).await;
    assert_eq!((handled(&page, "OK"), page.sum("rerankd_backlog_tokens", &[])), (1.0, 0.0));
}

/// The gauge counts granted cells, not filled ones, because granted cells make the next request wait.
#[tokio::test]
async fn cells_count_as_used_when_they_are_granted() {
    let observable = start(Scripted { delay: Duration::from_millis(2), ..Scripted::default() }).await;
    let mut client = observable.server.client().await;
    let long = wire("who?", &["x".repeat(1_000).as_str()]);
    let request = v1::RerankRequest { method: v1::Method::QueryGeneration.into(), ..long };
    let running = tokio::spawn(async move { client.rerank(request).await });
    let busy = |page: &Page| page.sum("rerankd_requests_running", &[]) == 1.0;
    let page = observable.scrape_until("the request runs", busy).await;
    // The passage takes two seconds to read, in a cache of 4,096 cells.
    assert!(page.sum("rerankd_kv_cache_used_ratio", &[]) > 1_000.0 / 4_096.0, "{:#?}", page.samples);
    running.abort();
    let free = |page: &Page| page.sum("rerankd_kv_cache_used_ratio", &[]) == 0.0;
    observable.scrape_until("the cells are free", free).await;
}

/// A plan that needs more than half of the cells waits for another one, although two fifths are free.
#[tokio::test]
async fn the_cache_is_full_when_the_next_plan_does_not_fit() {
    let capacity = Capacity { cells: 2_000, sequences: 64, batch: 64 };
    let observable = start(Scripted { delay: Duration::from_millis(4), capacity, ..Scripted::default() }).await;
    let full = |page: &Page| page.sum("rerankd_kv_cache_full", &[]);
    let ask = |mut client: RerankServiceClient<Channel>, priority: &'static str| {
        let long = wire("who?", &["x".repeat(1_000).as_str()]);
        let mut request = Request::new(v1::RerankRequest { method: v1::Method::QueryGeneration.into(), ..long });
        request.metadata_mut().insert("rerankd-priority", priority.parse().unwrap());
        tokio::spawn(async move { client.rerank(request).await })
    };
    let first = ask(observable.server.client().await, "normal");
    let busy = |page: &Page| page.sum("rerankd_requests_running", &[]) == 1.0;
    let page = observable.scrape_until("the first one runs", busy).await;
    assert_eq!(full(&page), 0.0, "nobody waits");
    let second = ask(observable.server.client().await, "high");
    let page = observable.scrape_until("the second one waits", |page| full(page) == 1.0).await;
    let used = page.sum("rerankd_kv_cache_used_ratio", &[]);
    assert!(used > 0.5 && used < 0.7, "{used}");
    second.abort();
    observable.scrape_until("nobody waits any more", |page| full(page) == 0.0).await;
    first.abort();
}

#[tokio::test]
async fn an_invalid_request_and_one_beyond_its_budget_are_refused_for_their_reasons() {
    let observable = start(Scripted::default()).await;
    let mut client = observable.server.client().await;
    assert_eq!(client.rerank(wire("", &PASSAGES)).await.unwrap_err().code(), Code::InvalidArgument);
    let expensive = v1::RerankRequest { token_budget: 1, ..wire("who?", &PASSAGES) };
    let status = client.rerank(expensive).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let page = observable.scrape().await;
    assert_eq!((refused(&page, "invalid"), refused(&page, "budget"), refused(&page, "queue_full")), (1.0, 1.0, 0.0));
    assert_eq!((handled(&page, "InvalidArgument"), handled(&page, "OK")), (1.0, 0.0));
    assert_eq!(page.sum("rerankd_request_score_seconds_count", &[]), 0.0, "the generator did not work");
}

#[tokio::test]
async fn a_caller_that_leaves_is_counted_as_cancelled_and_abandoned() {
    let observable = start(Scripted { delay: Duration::from_millis(2), ..Scripted::default() }).await;
    let mut client = observable.server.client().await;
    let gone = tokio::spawn(async move { client.rerank(wire("who?", &PASSAGES)).await });
    observable.scrape_until("it runs", |page| page.sum("rerankd_requests_running", &[]) == 1.0).await;
    gone.abort();
    let page = observable
        .scrape_until("it was abandoned", |page| page.sum("rerankd_requests_abandoned_total", &[]) == 1.0)
        .await;
    assert_eq!((handled(&page, "Canceled"), handled(&page, "OK")), (1.0, 0.0));
    assert_eq!(page.sum("rerankd_requests_refused_total", &[]), 0.0, "a caller that leaves is not a refusal");
}

#[tokio::test]
async fn a_passed_deadline_is_a_refusal_only_if_nothing_was_evaluated() {
    let observable = start(Scripted { delay: Duration::from_millis(4), ..Scripted::default() }).await;
    let ask = async |timeout: Duration| {
        let mut request = Request::new(wire("who?", &PASSAGES));
        request.set_timeout(timeout);
        observable.server.client().await.rerank(request).await.unwrap_err().code()
    };
    assert_eq!(ask(Duration::from_millis(400)).await, Code::DeadlineExceeded);
    let page = observable
        .scrape_until("it was abandoned", |page| page.sum("rerankd_requests_abandoned_total", &[]) == 1.0)
        .await;
    assert_eq!((handled(&page, "DeadlineExceeded"), refused(&page, "deadline")), (1.0, 0.0));
    // The speed is known now, and the work surely takes longer than this.
    assert_eq!(ask(Duration::from_millis(30)).await, Code::DeadlineExceeded);
    let page = observable.scrape().await;
    assert_eq!((handled(&page, "DeadlineExceeded"), refused(&page, "deadline")), (2.0, 1.0));
}

#[tokio::test]
async fn a_lost_model_is_counted() {
    let observable = start(Scripted { fault: Some(Fault::Panic(1)), ..Scripted::default() }).await;
    assert!(observable.server.client().await.rerank(wire("who?", &PASSAGES)).await.is_err());
    let restarted = |page: &Page| page.sum("rerankd_worker_restarts_total", &[("role", "generator")]) == 1.0;
    observable.scrape_until("the model was lost", restarted).await;
    observable.scrape_until("it is back", |page| page.sum("rerankd_model_ready", &[]) == 1.0).await;
}

#[tokio::test]
async fn a_lost_cross_encoder_is_counted_and_its_work_is_its_own() {
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let observable = observable(common::with_scripted_reranker(&engine, "cross"), observed, queue_length).await;
    let request = |query: &str| v1::RerankRequest { method: v1::Method::CrossEncoder.into(), ..wire(query, &PASSAGES) };
    let own = [("model", "cross"), ("role", "reranker")];
    let page = observable.scrape().await;
    assert_eq!((page.sum("rerankd_worker_restarts_total", &own), page.sum("rerankd_model_ready", &own)), (0.0, 1.0));
    let mut client = observable.server.client().await;
    client.rerank(request("who?")).await.unwrap();
    // The labels of the stages name this model; the generator did not work.
    let stage = [("method", "cross_encoder"), ("model", "cross")];
    let staged = |page: &Page| page.sum("rerankd_request_tokenise_seconds_count", &stage) == 1.0;
    let page = observable.scrape_until("the call ended", staged).await;
    assert_eq!(page.sum("rerankd_passages_scored_total", &own), 4.0);
    assert_eq!(page.sum("rerankd_model_info", &[("name", "cross"), ("role", "reranker")]), 1.0);
    // A query of five words makes it panic.
    client.rerank(request("a b c d e")).await.unwrap_err();
    let lost = |page: &Page| page.sum("rerankd_worker_restarts_total", &own) == 1.0;
    observable.scrape_until("the model was lost", lost).await;
}

#[tokio::test]
async fn states_of_passages_are_counted() {
    let warm = prefix_scheduler::warm::Options { memory_bytes: 1 << 20, disk: None };
    let observable = start(Scripted { warm, ..Scripted::default() }).await;
    let request = v1::RerankRequest { method: v1::Method::QueryGeneration.into(), ..wire("who?", &PASSAGES) };
    let own = [("model", "scripted")];
    let lookups = |page: &Page, result| page.sum("rerankd_passage_cache_lookups_total", &[own[0], ("result", result)]);
    let mut client = observable.server.client().await;
    client.rerank(request.clone()).await.unwrap();
    let page = observable.scrape().await;
    let states = page.sum("rerankd_passage_cache_entries", &own);
    assert!(states >= 4.0 && lookups(&page, "miss") >= 4.0 && lookups(&page, "hit") == 0.0, "{:#?}", page.samples);
    assert!(page.sum("rerankd_passage_cache_bytes", &own) > 0.0);
    assert_eq!(page.sum("rerankd_passage_cache_limit_bytes", &own), f64::from(1 << 20));
    client.rerank(request).await.unwrap();
    let page = observable.scrape().await;
    assert!(lookups(&page, "hit") >= 4.0);
    let gone = ["rerankd_passage_cache_evictions_total", "rerankd_passage_cache_disk_reads_total"];
    assert!(gone.iter().all(|metric| page.has(metric) && page.sum(metric, &own) == 0.0));
    let without = start(Scripted::default()).await.scrape().await;
    assert!(!without.has("rerankd_passage_cache_entries"), "there is no cache");
}

#[tokio::test]
async fn pairs_are_counted_by_the_source_of_their_verdict() {
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let (engine, _) = common::with_scripted_judge(&engine, Duration::ZERO);
    let observable = observable(engine, observed, queue_length).await;
    let mut client = BeliefServiceClient::new(observable.server.channel().await);
    let pair = |premise: &str| v1::EntailmentPair { premise: premise.into(), hypothesis: "a b".into() };
    for _ in 0..2 {
        let request = v1::EntailRequest { pairs: vec![pair("a b c"), pair("d")], ..v1::EntailRequest::default() };
        client.entail(request).await.unwrap();
    }
    let page = observable.scrape().await;
    let pairs = |source| page.sum("rerankd_entailment_pairs_total", &[("source", source)]);
    assert_eq!((pairs("model"), pairs("cache")), (2.0, 2.0));
    // No file existed at the start.
    let file = [("role", "entailment"), ("sha256", &"1".repeat(64))];
    assert_eq!(page.sum("rerankd_model_info", &file), 1.0);
}

#[tokio::test]
async fn questions_of_a_stream_are_refused_one_by_one() {
    let observable = start(Scripted::default()).await;
    let mut client = UtilityServiceClient::new(observable.server.channel().await);
    let question = |id: &str| v1::MeasureUtilityStreamRequest { id: id.into(), request: None };
    let questions = tokio_stream::iter([question("a"), question("b")]);
    let mut answers = client.measure_utility_stream(questions).await.unwrap().into_inner();
    while answers.message().await.unwrap().is_some() {}
    let page = observable.scrape().await;
    assert_eq!(refused(&page, "invalid"), 2.0);
    let questions = |code| {
        let labels = [("grpc_method", "MeasureUtilityStream"), ("grpc_code", code)];
        page.sum("rerankd_stream_questions_total", &labels)
    };
    assert_eq!((questions("InvalidArgument"), questions("OK")), (2.0, 0.0));
    let stream = [("grpc_method", "MeasureUtilityStream"), ("grpc_type", "bidi_stream"), ("grpc_code", "OK")];
    let answered = |page: &Page| page.sum("grpc_server_handled_total", &stream) == 1.0;
    observable.scrape_until("the stream was answered", answered).await;
}

/// Every request that was read is answered, so the end of the stream is not a refusal.
#[tokio::test]
async fn a_stream_that_ends_with_its_old_connection_refuses_nothing() {
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let bounds = Bounds { age: Some(Duration::from_millis(300)), ..Bounds::default() };
    let options = ServerOptions { bounds, ..ServerOptions::default() };
    let observable = observable_with(engine, observed, queue_length, options).await;
    // The caller keeps its side open.
    let (_questions, receiver) = tokio::sync::mpsc::channel::<v1::RerankStreamRequest>(1);
    let questions = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut answers = observable.server.client().await.rerank_stream(questions).await.unwrap().into_inner();
    let end = tokio::time::timeout(Duration::from_secs(20), answers.message()).await.expect("the stream goes on");
    assert_eq!(end.unwrap_err().code(), Code::Unavailable);
    let stream = [("grpc_method", "RerankStream"), ("grpc_code", "Unavailable")];
    let ended = |page: &Page| page.sum("grpc_server_handled_total", &stream) == 1.0;
    let page = observable.scrape_until("the stream ended", ended).await;
    assert_eq!((refused(&page, "unavailable"), refused(&page, "draining")), (0.0, 0.0));
}

/// The stream ends well, so its failed questions need a separate counter.
#[tokio::test]
async fn a_question_that_fails_is_counted_by_its_code() {
    let observable = start(Scripted { fault: Some(Fault::Error(1)), ..Scripted::default() }).await;
    let mut client = observable.server.client().await;
    for code in ["Internal", "OK"] {
        let question = v1::RerankStreamRequest { request_id: "a".into(), request: Some(wire("who?", &PASSAGES)) };
        let mut answers = client.rerank_stream(tokio_stream::iter([question])).await.unwrap().into_inner();
        while answers.message().await.unwrap().is_some() {}
        let own = [("grpc_method", "RerankStream"), ("grpc_code", code)];
        assert_eq!(observable.scrape().await.sum("rerankd_stream_questions_total", &own), 1.0, "{code}");
    }
    let stream = [("grpc_method", "RerankStream"), ("grpc_code", "OK")];
    let ended = |page: &Page| page.sum("grpc_server_handled_total", &stream) == 2.0;
    observable.scrape_until("the streams ended well", ended).await;
}

/// The path of a request is the caller's text: it must not become a label.
#[tokio::test]
async fn an_unknown_method_makes_no_series() {
    let observable = start(Scripted::default()).await;
    let mut client = tonic::client::Grpc::new(observable.server.channel().await);
    client.ready().await.unwrap();
    let path = tonic::codegen::http::uri::PathAndQuery::from_static("/secret.Service/Text");
    let codec = tonic_prost::ProstCodec::<v1::RerankRequest, v1::RerankResponse>::default();
    let status = client.unary(Request::new(wire("who?", &PASSAGES)), path, codec).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let page = observable.scrape().await;
    assert_eq!(
        page.sum("grpc_server_handled_total", &[("grpc_method", "unknown"), ("grpc_code", "Unimplemented")]),
        1.0
    );
    assert!(!page.samples.keys().any(|series| series.contains("secret")));
}

#[tokio::test]
async fn the_port_answers_probes_and_nothing_else() {
    let observable = start(Scripted::default()).await;
    for (path, status) in [("/healthz", "200"), ("/readyz", "200"), ("/", "404"), ("/metrics/x", "404")] {
        let (head, _) = get(&observable.page, path).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {head}");
    }
}
