//! Calibrated scores and fusion weights over a real channel, with a scripted generator and real files.

use std::time::Duration;

use crate::common;
use common::passage_models::{changed, folder, serve, serve_model};
use common::{Running, Scripted, wire};
use engine::fusion::calibration::{Calibration, Mix};
use engine::fusion::platt::Platt;
use engine::types::{Role, Source};
use protocol::v1;
use protocol::v1::model_service_client::ModelServiceClient;
use rag_metrics::cut::best_cut;
use rerankd::app::calibration_file::CalibrationFile;
use rerankd::config::Config;

fn request() -> v1::RerankRequest {
    let mut request = wire("which mill race?", &["the weir", "the mill race", "the sluice", "bread"]);
    for (index, passage) in request.passages.iter_mut().enumerate() {
        passage.retriever_score = Some(9.0 - index as f64);
    }
    request
}

/// [`request`] in words that the tiny embedding model knows.
fn readable() -> v1::RerankRequest {
    let mut request = request();
    request.query = "what makes the tide".into();
    for (passage, text) in request.passages.iter_mut().zip(["the sea", "the moon makes the tide", "salt", "bread"]) {
        passage.text = text.into();
    }
    request
}

fn calibration(method: &str, mix: Option<Mix>) -> Calibration {
    let score = Platt { intercept: -2.0, slope: 3.0 };
    Calibration {
        method: method.into(),
        mix,
        embedding: None,
        model: None,
        score,
        lists: 40,
        passages: 800,
        outranks_per_nat: None,
        calibration_error: Some(0.04),
    }
}

async fn ask(server: &Running, request: v1::RerankRequest) -> v1::RerankResponse {
    server.client().await.rerank(request).await.unwrap().into_inner()
}

/// A calibration file in a new store, and the store's folder.
fn own_file() -> (tempfile::TempDir, CalibrationFile) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    std::fs::write(&config, format!("[models]\nstore = \"{}\"\n", folder.path().display())).unwrap();
    let store = Config::load(Some(&config), &[]).unwrap().store;
    (folder, rerankd::app::calibration_file(&store, "scripted"))
}

fn logit(score: f64) -> f64 {
    (score / (1.0 - score)).ln()
}

#[tokio::test]
async fn a_calibration_is_loaded_and_turns_scores_into_probabilities() {
    let (_folder, file) = own_file();
    let server = Scripted::default().serve().await;
    let generator = server.engine.generator().unwrap();
    let following =
        tokio::spawn(rerankd::app::follow_calibration(generator.clone(), file.clone(), Duration::from_millis(5)));
    let alone = v1::RerankRequest { method: v1::Method::QueryGeneration.into(), ..request() };
    let (mixed_before, alone_before) = (ask(&server, request()).await, ask(&server, alone.clone()).await);
    assert!(!mixed_before.score_calibrated && !alone_before.score_calibrated);

    let mix = Mix { source: Source::Retriever, weight: 0.85, embedding: None };
    file.save(&[calibration("cascade", Some(mix)), calibration("query-generation", None)]).unwrap();
    wait_until(|| generator.calibrations.all().len() == 2).await;
    let (mixed, alone_after) = (ask(&server, request()).await, ask(&server, alone).await);
    assert!(mixed.score_calibrated && alone_after.score_calibrated);
    for answer in [&mixed, &alone_after] {
        let none: f64 = answer.results.iter().map(|result| 1.0 - result.score).product();
        assert!((answer.none_relevant.unwrap() - none).abs() < 1e-12);
        assert_eq!(answer.none_helps, Some(none >= 0.5));
    }
    assert_eq!((alone_before.none_relevant, alone_before.none_helps), (None, Some(false)));
    assert_eq!(mixed.fusion.as_ref().unwrap().weight, 0.85);
    for (before, after) in alone_before.results.iter().zip(&alone_after.results) {
        assert_eq!((&before.id, before.utility), (&after.id, after.utility), "utilities stay the model's own");
        assert!((logit(after.score) - (3.0 * logit(before.score) - 2.0)).abs() < 1e-9);
    }
    let info = ModelServiceClient::new(server.channel().await);
    let info = { info }.get_server_info(v1::GetServerInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.calibrations.len(), 2);
    let told = &info.calibrations[0];
    assert_eq!(
        (told.method.as_str(), told.fused_with.as_str(), told.fusion_weight),
        ("cascade", "retriever", Some(0.85))
    );
    assert_eq!((told.intercept, told.slope, told.lists, told.passages), (-2.0, 3.0, 40, 800));

    // The caller's fusion differs from the calibrated one.
    let own = v1::Fusion { weight: Some(0.85), ..v1::Fusion::default() };
    let answer = ask(&server, v1::RerankRequest { fusion: Some(own), ..request() }).await;
    assert!(!answer.score_calibrated);
    let mut unscored = request();
    unscored.passages.iter_mut().for_each(|passage| passage.retriever_score = None);
    assert!(!ask(&server, unscored).await.score_calibrated, "the calibration is not for BM25");

    // The threshold applies to probabilities.
    let bound = mixed.results[1].score;
    let cut = ask(&server, v1::RerankRequest { score_threshold: Some(bound), ..request() }).await;
    assert_eq!(cut.results.len(), 2);
    assert_eq!(cut.none_relevant, mixed.none_relevant, "of all passages");

    std::fs::write(file.path(), "{").unwrap();
    wait_until(|| !file.path().exists()).await;
    assert!(ask(&server, request()).await.score_calibrated, "the earlier calibration stays in use");
    following.abort();
    server.stop().await;
}

/// One server of a store sets a damaged file aside. The others find no file and must keep their calibrations.
#[tokio::test]
async fn a_file_that_another_server_sets_aside_is_not_gone() {
    let (_folder, file) = own_file();
    let server = Scripted::default().serve().await;
    let generator = server.engine.generator().unwrap();
    let following =
        tokio::spawn(rerankd::app::follow_calibration(generator.clone(), file.clone(), Duration::from_millis(50)));
    file.save(&[calibration("query-generation", None)]).unwrap();
    wait_until(|| generator.calibrations.all().len() == 1).await;
    // Loads the damaged file as another server does.
    std::fs::write(file.path(), "{").unwrap();
    assert!(file.load().is_err() && !file.path().exists());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(generator.calibrations.all().len(), 1, "the earlier calibration stays in use");
    file.save(&[]).unwrap();
    wait_until(|| generator.calibrations.all().is_empty()).await;
    following.abort();
    server.stop().await;
}

/// The probability of outranking the next result follows from the difference of their values by a slope, which a
/// calibration can learn.
#[tokio::test]
async fn a_learnt_slope_changes_the_probability_of_outranking_the_next() {
    let server = Scripted::default().serve().await;
    let generator = server.engine.generator().unwrap();
    let mix = Some(Mix { source: Source::Retriever, weight: 0.85, embedding: None });
    let cascade = |outranks_per_nat| Calibration { outranks_per_nat, ..calibration("cascade", mix) };
    generator.calibrations.replace(vec![cascade(None)]);
    let before = ask(&server, request()).await;
    generator.calibrations.replace(vec![cascade(Some(0.6))]);
    let after = ask(&server, request()).await;
    let mut told = 0;
    for (before, after) in before.results.iter().zip(&after.results) {
        assert_eq!((&before.id, before.score), (&after.id, after.score));
        let (Some(before), Some(after)) = (before.outranks_next, after.outranks_next) else { continue };
        assert!((logit(after) - 3.0 * logit(before)).abs() < 1e-9, "{before} {after}");
        told += usize::from(before > 0.5);
    }
    assert!(told > 0);
    assert!(after.results.last().unwrap().outranks_next.is_none());
    // Another fusion than the calibrated one uses the built-in slope, here on equal values.
    let own = v1::Fusion { weight: Some(0.85), ..v1::Fusion::default() };
    let own = ask(&server, v1::RerankRequest { fusion: Some(own), ..request() }).await;
    let told = |answer: &v1::RerankResponse| answer.results.iter().map(|one| one.outranks_next).collect::<Vec<_>>();
    assert_eq!(told(&own), told(&before));
    let mut client = ModelServiceClient::new(server.channel().await);
    let info = client.get_server_info(v1::GetServerInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.calibrations[0].outranks_per_nat, Some(0.6));
    server.stop().await;
}

/// `auto_k` needs probabilities. Without them it is refused before any work.
#[tokio::test]
async fn auto_k_maximises_the_expected_f1_of_calibrated_scores() {
    let server = Scripted::default().serve().await;
    let generator = server.engine.generator().unwrap();
    let auto = || v1::RerankRequest { auto_k: true, ..request() };
    let refused = |request: v1::RerankRequest| async {
        let status = server.client().await.rerank(request).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::FailedPrecondition);
        status.message().to_owned()
    };
    assert!(refused(auto()).await.contains("auto_k needs scores that are probabilities"), "nothing is calibrated");
    let mix = Mix { source: Source::Retriever, weight: 0.85, embedding: None };
    generator.calibrations.replace(vec![calibration("cascade", Some(mix))]);
    let whole = ask(&server, request()).await;
    let probabilities: Vec<f64> = whole.results.iter().map(|result| result.score).collect();
    let expected = best_cut(&probabilities);
    assert!((1..4).contains(&expected), "{probabilities:?}");
    let cut = ask(&server, auto()).await;
    let ids = |answer: &v1::RerankResponse| answer.results.iter().map(|one| one.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&cut), ids(&whole)[..expected]);
    assert_eq!(cut.context_order.unwrap().original_indices.len(), expected, "omitted results are not arranged");
    // The smaller of `auto_k` and `top_n` holds.
    assert_eq!(ask(&server, v1::RerankRequest { top_n: 4, ..auto() }).await.results.len(), expected);
    assert_eq!(ask(&server, v1::RerankRequest { top_n: 1, ..auto() }).await.results.len(), 1);
    let own = v1::Fusion { weight: Some(0.85), ..v1::Fusion::default() };
    assert!(refused(v1::RerankRequest { fusion: Some(own), ..auto() }).await.contains("sets the fusion"));
    assert!(refused(v1::RerankRequest { instruction: "Read.".into(), ..auto() }).await.contains("an instruction"));
    let other = v1::RerankRequest { method: v1::Method::YesNo.into(), ..auto() };
    assert!(refused(other).await.contains("yes-no is not calibrated"));
    let mut unscored = auto();
    unscored.passages.iter_mut().for_each(|passage| passage.retriever_score = None);
    let why = refused(unscored).await;
    assert!(why.contains("is calibrated for lists with retriever, and for this list bm25 is mixed in"), "{why}");
    server.stop().await;
}

async fn wait_until(done: impl Fn() -> bool) {
    let done = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), done).await.expect("the condition holds within 20 seconds");
}

/// Scores of an embedding model or a cross-encoder have a calibration, too, which belongs to the model's file.
#[tokio::test]
async fn a_method_without_the_generator_has_a_calibration() {
    let request = readable;
    let server = serve_model("embedding", &folder("embedding")).await;
    let own = server.engine.models().scorer(Role::Embedding).unwrap().scores_sha256();
    let generator = server.engine.generator().unwrap();
    let of = |model: &str| Calibration { model: Some(model.into()), ..calibration("embedding", None) };
    let asked = || v1::RerankRequest { method: v1::Method::Embedding.into(), ..request() };
    let before = ask(&server, asked()).await;
    assert!(!before.score_calibrated && before.warnings.iter().all(|one| !one.contains("calibrat")));
    generator.calibrations.replace(vec![of("of another file")]);
    let other = ask(&server, asked()).await;
    assert!(!other.score_calibrated);
    assert!(other.warnings.iter().any(|one| one.contains("another model")), "{:?}", other.warnings);
    generator.calibrations.replace(vec![of("of another file"), of(&own)]);
    let after = ask(&server, v1::RerankRequest { auto_k: true, ..asked() }).await;
    assert!(after.score_calibrated && after.none_relevant.is_some());
    assert!(after.results.iter().all(|result| result.score != before.results[0].score));
    let info = ModelServiceClient::new(server.channel().await)
        .get_server_info(v1::GetServerInfoRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(info.calibrations[1].model_sha256, own);
    server.stop().await;
}

/// The cascade with an embedding model has a separate calibration, which belongs to that model's file and settings.
#[tokio::test]
async fn a_cascade_with_an_embedding_model_has_its_calibration() {
    let request = readable;
    let server = serve_model("embedding", &folder("embedding")).await;
    let sha256 = server.engine.models().scorer(Role::Embedding).unwrap().scores_sha256();
    assert_eq!(sha256.len(), 64);
    let generator = server.engine.generator().unwrap();
    let mix = |weight, embedding| Some(Mix { source: Source::Retriever, weight, embedding });
    let plain = calibration("cascade", mix(0.85, None));
    let learnt = |sha256: &str, share| {
        let embedding = Some(sha256.to_owned());
        Calibration { embedding, ..calibration("cascade", mix(0.15, share)) }
    };
    let beside = |sha256: &str| learnt(sha256, Some(0.9));
    generator.calibrations.replace(vec![plain.clone(), beside("of another file")]);
    let before = ask(&server, request()).await;
    assert!(!before.score_calibrated && before.fusion.unwrap().embedding_weight.is_some());
    assert!(before.warnings.iter().any(|one| one.contains("calibrate --ranking")), "{:?}", before.warnings);
    generator.calibrations.replace(vec![plain.clone(), beside(&sha256)]);
    let after = ask(&server, request()).await;
    assert!(after.score_calibrated);
    let fusion = after.fusion.unwrap();
    assert_eq!((fusion.weight, fusion.embedding_weight), (0.15, Some(0.9)));
    let mut client = ModelServiceClient::new(server.channel().await);
    let info = client.get_server_info(v1::GetServerInfoRequest {}).await.unwrap().into_inner();
    let told: Vec<&str> = info.calibrations.iter().map(|one| one.embedding_sha256.as_str()).collect();
    assert_eq!(told, ["", &sha256]);
    let told: Vec<_> = info.calibrations.iter().map(|one| one.embedding_weight).collect();
    assert_eq!(told, [None, Some(0.9)]);
    assert_eq!(info.embedding.unwrap().scores_sha256, sha256);
    // The caller's share differs from the calibrated one.
    let own = |mode: v1::FusionMode| {
        let own = v1::Fusion { mode: mode.into(), embedding_weight: Some(0.25), ..v1::Fusion::default() };
        v1::RerankRequest { fusion: Some(own), ..request() }
    };
    let answer = ask(&server, own(v1::FusionMode::Unspecified)).await;
    assert_eq!((answer.score_calibrated, answer.fusion.unwrap().embedding_weight), (false, Some(0.25)));
    let answer = ask(&server, own(v1::FusionMode::On)).await;
    let told = |one: &String| one.starts_with("fusion.embedding_weight had no effect: no cosines were mixed in");
    assert!(answer.warnings.iter().any(told), "{:?}", answer.warnings);
    // A method that does not fuse gets only this warning, because nothing else was set.
    let method = v1::Method::QueryGeneration.into();
    let answer = ask(&server, v1::RerankRequest { method, ..own(v1::FusionMode::Unspecified) }).await;
    assert!(answer.warnings.iter().any(told) && answer.warnings.len() == 1, "{:?}", answer.warnings);
    let own = v1::Fusion { weight: Some(0.5), ..v1::Fusion::default() };
    let answer = ask(&server, v1::RerankRequest { method, fusion: Some(own), ..request() }).await;
    let told = |one: &String| one.contains("had no effect but that they turn the calibration off");
    assert!(answer.warnings.iter().any(told) && answer.warnings.len() == 1, "{:?}", answer.warnings);
    // A list of one passage has no cosines to fuse, so it is answered as without the embedding model.
    generator.calibrations.replace(vec![learnt(&sha256, None)]);
    let mut lone = v1::RerankRequest { auto_k: true, ..request() };
    lone.passages.truncate(1);
    let answer = ask(&server, lone).await;
    assert_eq!((answer.results.len(), answer.score_calibrated), (1, false));
    assert!(answer.warnings.iter().any(|one| one.starts_with("auto_k had no effect")), "{:?}", answer.warnings);
    generator.calibrations.replace(Vec::new());
    let refused = server.client().await.rerank(v1::RerankRequest { auto_k: true, ..request() }).await.unwrap_err();
    assert!(refused.message().contains("is not calibrated"), "{}", refused.message());
    server.stop().await;

    // Other prefixes give other cosines with the same file.
    let model = folder("embedding");
    let server = serve(&[("embedding.model", model.to_str().unwrap()), ("embedding.query_prefix", "query: ")]).await;
    let generator = server.engine.generator().unwrap();
    generator.calibrations.replace(vec![plain.clone(), beside(&sha256)]);
    let other = ask(&server, request()).await;
    assert!(!other.score_calibrated && other.fusion.unwrap().embedding_weight.is_some());
    assert!(other.warnings.iter().any(|one| one.contains("calibrate --ranking")), "{:?}", other.warnings);
    let own = server.engine.models().scorer(Role::Embedding).unwrap().scores_sha256();
    assert!(own.len() == 64 && own != sha256, "{own}");
    generator.calibrations.replace(vec![plain.clone(), beside(&own)]);
    assert!(ask(&server, request()).await.score_calibrated);
    server.stop().await;

    // If the embedding model cannot be used, the calibration without it applies.
    let copy = changed("embedding", "modules.json", |text| text.replace("Pooling", "Dense"));
    let server = serve_model("embedding", copy.path()).await;
    let generator = server.engine.generator().unwrap();
    generator.calibrations.replace(vec![beside(&sha256)]);
    let alone = ask(&server, request()).await;
    let fusion = alone.fusion.unwrap();
    assert_eq!((alone.score_calibrated, fusion.embedding_weight), (false, None));
    assert!(fusion.weight > 0.5, "{}", fusion.weight);
    generator.calibrations.replace(vec![plain, beside(&sha256)]);
    let alone = ask(&server, request()).await;
    assert_eq!((alone.score_calibrated, alone.fusion.unwrap().weight), (true, 0.85));
    server.stop().await;
}
