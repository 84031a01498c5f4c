//! `rerankd evaluate` against a scripted server: the passage order of its end-to-end answers.

use crate::{common, program};
use program::{arguments, error, run, succeeded};
use serde_json::{Value, json};

/// Serves the scripted generator. If `calibrated`, its profile says that passages at the end of the prompt help most.
fn scripted_server(runtime: &tokio::runtime::Runtime, calibrated: bool) -> common::Running {
    use engine::position_bias::PositionBias;
    use moi::profile::{Profiles, Subject};
    runtime.block_on(async {
        let mut profiles = Profiles::default();
        let shifts: &[f64] = if calibrated { &[0.1, -0.1].repeat(5) } else { &[] };
        for shift in shifts {
            assert!(profiles.observe(Subject::Answer, &[-2.0 + shift, 0.0, 2.0]));
        }
        let position_bias = PositionBias::new(profiles, Profiles::default(), Box::new(|_| Ok(())), Vec::new());
        let (engine, observed, queue_length) = common::Scripted::default().engine().await;
        common::serve(common::with_position_bias(&engine, position_bias), observed, queue_length).await
    })
}

/// The answer comes from the context order, the metrics from the ranking.
#[test]
fn an_end_to_end_answer_is_read_from_the_context_order() {
    use protocol::v1;
    use protocol::v1::utility_service_client::UtilityServiceClient;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = scripted_server(&runtime, true);
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("q.jsonl"), folder.path().join("out"));
    // The scripted generator repeats the letter of the first passage.
    let texts = ["q", "z", "j"].map(|letter| letter.repeat(200));
    let texts = texts.each_ref().map(String::as_str);
    let passages: Vec<Value> =
        texts.iter().enumerate().map(|(index, text)| json!({ "text": text, "supporting": index == 1 })).collect();
    let line = json!({ "id": "q0", "question": "zzj", "answers": ["zzz"], "passages": passages });
    std::fs::write(&file, format!("{line}\n")).unwrap();
    let (file, place) = (file.to_str().unwrap(), out.to_str().unwrap());
    let asked = [
        arguments(file, place),
        vec!["--server", &server.address, "--annotators", "token-f1,provenance"],
        vec!["--method", "given", "--method", "query-generation"],
    ];
    let document = succeeded(&run(&asked.concat()));
    let result: Value =
        serde_json::from_str(std::fs::read_to_string(out.join("results.jsonl")).unwrap().trim()).unwrap();

    let reranked = v1::RerankRequest { method: v1::Method::QueryGeneration.into(), ..common::wire("zzj", &texts) };
    let reranked = runtime.block_on(async { server.client().await.rerank(reranked).await.unwrap().into_inner() });
    let ranking: Vec<u32> = reranked.results.iter().map(|result| result.original_index).collect();
    let context = reranked.context_order.unwrap().original_indices;
    assert_ne!(ranking, context, "the profile must arrange");
    // The server's answer from the passages in this order.
    let answer = |order: &[u32]| {
        let request = v1::EvaluateRetrievalRequest {
            question: "zzj".into(),
            passages: common::wire("", &texts).passages,
            references: vec!["zzz".into()],
            annotators: vec![v1::Annotator::TokenF1.into()],
            rankings: vec![v1::PassageSubset { indices: order.to_vec() }],
            end_to_end: true,
            answer_tokens: 12,
            return_answers: true,
            ..v1::EvaluateRetrievalRequest::default()
        };
        let channel = runtime.block_on(server.channel());
        let answer = runtime.block_on(UtilityServiceClient::new(channel).evaluate_retrieval(request)).unwrap();
        answer.into_inner().rankings[0].answer.clone().unwrap().text
    };
    assert_ne!(answer(&ranking), answer(&context), "the answer must depend on the order");
    let system = &result["value"]["systems"]["query-generation"];
    assert_eq!(system["ranking"], json!(ranking));
    assert_eq!(system["answer"], json!(answer(&context)));
    assert_eq!((&system["context"], &system["context_order"]), (&json!(context), &json!("by position bias")));
    let given = &result["value"]["systems"]["given"];
    assert_eq!((&given["answer"], &given["context_order"]), (&json!(answer(&[0, 1, 2])), &json!("given")));
    let rank = ranking.iter().position(|index| *index == 1).unwrap();
    assert_eq!(system["metrics"]["provenance"]["RR"], json!(1.0 / (rank as f64 + 1.0)), "metrics are over the ranking");
    let contexts = json!([{ "order": "by position bias", "questions": 1, "differing": 1 }]);
    assert_eq!(document["summary"]["systems"][1]["contexts"], contexts);
    assert!(std::fs::read_to_string(out.join("report.html")).unwrap().contains("by position bias"));
    // Results of another version are not continued.
    let manifest = out.join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("rerankd study 1", "rerankd study 0")).unwrap();
    let refused = run(&asked.concat());
    assert_eq!(refused.status.code(), Some(2));
    let said = error(&refused);
    assert!(
        said.contains("format (stored \"rerankd study 0\", now \"rerankd study 1\")") && said.contains("--restart"),
        "{said}"
    );
    succeeded(&run(&[asked.concat(), vec!["--restart"]].concat()));
    runtime.block_on(server.stop());
}

/// A calibration changes the context order, so a continued evaluation would mix two kinds of order.
#[test]
fn answers_from_before_a_calibration_are_not_continued() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("q.jsonl");
    let passages = json!([{ "text": "qqq", "supporting": true }, { "text": "zzz" }, { "text": "jjj" }]);
    std::fs::write(&file, format!("{}\n", json!({ "question": "zzj", "answers": ["zzz"], "passages": passages })))
        .unwrap();
    let asked = |server: &common::Running, method: &str| {
        let out = folder.path().join(method);
        let short = arguments(file.to_str().unwrap(), out.to_str().unwrap());
        let more = ["--server", &server.address, "--annotators", "token-f1", "--method", method];
        run(&[short, more.to_vec()].concat())
    };
    let (before, after) = (scripted_server(&runtime, false), scripted_server(&runtime, true));
    succeeded(&asked(&before, "query-generation"));
    succeeded(&asked(&before, "query-generation"));
    let refused = asked(&after, "query-generation");
    assert_eq!(refused.status.code(), Some(2));
    assert!(error(&refused).contains("position_profiles (stored [], now "), "{}", error(&refused));
    // The input order is never rearranged.
    succeeded(&asked(&before, "given"));
    succeeded(&asked(&after, "given"));
    runtime.block_on(async { tokio::join!(before.stop(), after.stop()) });
}
