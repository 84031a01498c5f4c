//! Warnings about unread text: questions too long for the entailment model, and passages cut from samples.

use crate::belief::{beliefs, options, request, server, utilities};
use crate::common::{Scripted, wire};
use protocol::v1;
use protocol::v1::sample_response::Event;
use tokio_stream::StreamExt;

/// A question that leaves the entailment model no room for whole answers, and cut passages.
#[tokio::test]
async fn unread_text_is_reported() {
    let (server, _) = server(Scripted::default()).await;
    let long = v1::MeasureUtilityRequest { question: "which ".repeat(150), ..request() };
    let report = utilities(&server).await.measure_utility(long).await.unwrap().into_inner();
    assert!(
        report.warnings.iter().any(|warning| warning.contains("the entailment model reads")),
        "{:?}",
        report.warnings
    );
    let report = utilities(&server).await.measure_utility(request()).await.unwrap().into_inner();
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
    let cut = ["aaaa ".repeat(2_000), "bbbb ".repeat(2_000)];
    let passages = wire("q", &[&*cut[0], &*cut[1]]).passages;
    let sample = v1::SampleRequest {
        question: "which".into(),
        passages,
        sampling: Some(options(1, 0)),
        ..v1::SampleRequest::default()
    };
    let mut events = beliefs(&server).await.sample(sample).await.unwrap().into_inner();
    let mut warnings = Vec::new();
    while let Some(event) = events.next().await {
        if let Some(Event::Done(done)) = event.unwrap().event {
            warnings = done.warnings;
        }
    }
    assert_eq!(warnings, ["2 passages were cut to fit"]);
    server.stop().await;
}
