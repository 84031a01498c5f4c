//! `/readyz` and `/healthz` over the life of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::{common, page};
use common::scripted::{Observed, Script, ScriptedGenerator, overlap_script};
use common::{LIMITS, Scripted, engine_of, wait_for, wire};
use engine::Engine;
use engine::position_bias::PositionBias;
use prefix_scheduler::model::Capacity;
use prefix_scheduler::scheduler::Status;
use prefix_scheduler::scheduler::generator::{Scheduler, SchedulerOptions};
use protocol::v1::rerank_service_client::RerankServiceClient;
use rerankd::app::{self, Control, Listeners, Operator};
use rerankd::config::Config;
use server::rpc::server::Ended;
use server::transport::Access;
use tokio::net::TcpListener;

/// Status codes of `/readyz`, `/healthz` and the `/health` of HTTP/JSON.
async fn codes(metrics: &str, json: &str) -> [String; 3] {
    let code = async |address: &str, path: &str| {
        let (head, _) = page::get(address, path).await;
        head.split(' ').nth(1).unwrap().to_owned()
    };
    [code(metrics, "/readyz").await, code(metrics, "/healthz").await, code(json, "/health").await]
}

async fn until(metrics: &str, json: &str, expected: [&str; 3]) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let codes = codes(metrics, json).await;
        if codes == expected {
            return;
        }
        assert!(Instant::now() < end, "{codes:?}, {expected:?} expected");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// An engine whose generator scores by a script.
async fn engine(script: Arc<Script>, observed: Arc<Observed>) -> Engine {
    let loader = Box::new(move |serve: &mut dyn FnMut(&mut dyn prefix_scheduler::model::Generator)| {
        let capacity = Capacity { cells: 4_096, sequences: 64, batch: 64 };
        serve(&mut ScriptedGenerator::new(capacity, Arc::clone(&script), Arc::clone(&observed)));
        Ok(())
    });
    let scheduler = Scheduler::start(SchedulerOptions::default(), loader).unwrap();
    scheduler.status().wait_for(|status| matches!(status, Status::Ready(_))).await.unwrap();
    let info = common::generator(&Scripted::default().engine().await.0).info.clone();
    engine_of(scheduler, info, PositionBias::default(), LIMITS)
}

/// A server with all of its ports.
struct Whole {
    grpc: String,
    json: String,
    metrics: String,
    operator: Operator,
    serving: tokio::task::JoinHandle<Ended>,
}

async fn serve(engine: Engine) -> Whole {
    // The page accepts no open listener, so it gets a port that was free a moment ago.
    let metrics = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let config = Config::from_parts(None, &[], &[("metrics.listen".to_owned(), metrics.clone())]).unwrap();
    let (grpc, http) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (address, json) = (format!("http://{}", grpc.local_addr().unwrap()), http.local_addr().unwrap().to_string());
    let (operator, control) = Control::new();
    let serving = tokio::spawn(async move {
        app::serve(&config, engine, Access::default(), Listeners { grpc, http: Some(http) }, control).await.unwrap()
    });
    let end = Instant::now() + Duration::from_secs(20);
    while tokio::net::TcpStream::connect(&metrics).await.is_err() {
        assert!(Instant::now() < end, "the page is not served");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Whole { grpc: address, json, metrics, operator, serving }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_waits_for_the_trial_and_ends_with_the_stop() {
    // The generator scores while this is open.
    let open = Arc::new(AtomicBool::new(false));
    let (gate, inner) = (Arc::clone(&open), overlap_script());
    let script = Arc::new(move |history: &[prefix_scheduler::plan::Token], target| {
        while !gate.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        inner(history, target)
    });
    let engine = engine(script, Arc::default()).await;
    let Whole { grpc, json, metrics, operator, serving } = serve(engine.clone()).await;

    assert_eq!(codes(&metrics, &json).await, ["503", "200", "503"], "the generator is being tried");
    open.store(true, Ordering::SeqCst);
    until(&metrics, &json, ["200", "200", "200"]).await;

    // A call that cannot end keeps the server in its drain.
    open.store(false, Ordering::SeqCst);
    let mut client = RerankServiceClient::connect(grpc).await.unwrap();
    let call = tokio::spawn(async move { client.rerank(wire("ab", &["ab", "cd"])).await });
    let scheduler = common::generator(&engine).scheduler.clone();
    wait_for("the call runs", || scheduler.stats().active.load(Ordering::SeqCst) == 1).await;
    operator.stop();
    let end = Instant::now() + Duration::from_secs(15);
    while page::get(&metrics, "/readyz").await.0.contains(" 200 ") {
        assert!(Instant::now() < end, "a server that stops says it is ready");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(page::get(&metrics, "/healthz").await.0.contains(" 200 "), "the process lives");
    open.store(true, Ordering::SeqCst);
    call.await.unwrap().unwrap();
    assert_eq!(serving.await.unwrap(), Ended::Answered);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generator_that_does_not_score_is_tried_until_it_does() {
    let broken = Arc::new(AtomicBool::new(true));
    let (gate, inner) = (Arc::clone(&broken), overlap_script());
    let script = Arc::new(
        move |history: &[prefix_scheduler::plan::Token], target| {
            if gate.load(Ordering::SeqCst) { f64::NAN } else { inner(history, target) }
        },
    );
    let observed = Arc::new(Observed::default());
    let engine = engine(script, Arc::clone(&observed)).await;
    let scheduler = common::generator(&engine).scheduler.clone();
    let Whole { json, metrics, operator, serving, .. } = serve(engine).await;
    let steps = || observed.steps.load(Ordering::SeqCst);
    for trial in 0..2 {
        let before = steps();
        wait_for("the generator is tried", || steps() > before || (trial == 0 && before > 0)).await;
        wait_for("the trial ends", || scheduler.stats().active.load(Ordering::SeqCst) == 0).await;
        assert_eq!(codes(&metrics, &json).await, ["503", "200", "503"], "trial {trial}");
    }
    broken.store(false, Ordering::SeqCst);
    until(&metrics, &json, ["200", "200", "200"]).await;
    operator.stop();
    assert_eq!(serving.await.unwrap(), Ended::Answered);
}
