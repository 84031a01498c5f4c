//! Retrieval on live traffic with the default generator and entailment model.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common;
use common::scripted::Observed;
use common::wire;
use engine::live::{LiveOptions, Skip};

#[tokio::test]
async fn a_ranking_is_measured_once_the_server_is_idle() {
    let _alone = common::alone().await;
    let engine = common::with_judge(&common::real_engine().await, common::real_judge(0));
    let server = common::serve(engine.clone(), Arc::new(Observed::default()), 4).await;
    let (live, admission) = (engine.live.clone(), server.admission.clone());
    let options = LiveOptions { sample_ratio: 1.0, passages: 1 };
    let measuring = tokio::spawn(async move { live.run(options, &admission).await });
    tokio::task::yield_now().await;
    let passages =
        ["Rye flour absorbs more water than wheat.", "The looms of Harrowgate were driven by the River Senn."];
    server.client().await.rerank(wire("Which river drove the looms of Harrowgate?", &passages)).await.unwrap();
    let end = Instant::now() + Duration::from_mins(2);
    while engine.live.figures().measured() == 0 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let figures = engine.live.figures();
    assert_eq!((figures.measured(), figures.skipped), (1, [0; Skip::ALL.len()]));
    // Ten answers have an entropy between 0 and ln 10. Its sign is noise for one ranking and this small generator.
    assert!(figures.sum != 0.0 && figures.sum.abs() <= 10_f64.ln(), "{figures:?}");
    measuring.abort();
    server.stop().await;
}
