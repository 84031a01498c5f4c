//! Arrangement and position-bias profiles over the wire: learning, storing, requesting and showing them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common;
use common::{Running, Scripted, wire};
use engine::calibrate::Labelled;
use engine::position_bias::{Keeper, PositionBias};
use engine::types::Passage;
use moi::profile::{Profiles, Subject};
use prefix_scheduler::call::Call;
use protocol::v1;
use protocol::v1::model_service_client::ModelServiceClient;
use rerankd::app::profile_file::Origin;
use rerankd::config::Config;

const PASSAGES: [&str; 4] = ["zzzz yyyy", "the question is here", "wwww", "question question"];

async fn with(position_bias: PositionBias) -> Running {
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    common::serve(common::with_position_bias(&engine, position_bias), observed, queue_length).await
}

/// Observations equal `values`, except the first position, which is alternately 0.25 above and below.
fn profiles(subject: Subject, values: &[f64], times: usize) -> Profiles {
    let mut profiles = Profiles::default();
    for index in 0..times {
        let mut row = values.to_vec();
        row[0] += if index % 2 == 0 { 0.25 } else { -0.25 };
        assert!(profiles.observe(subject, &row));
    }
    profiles
}

fn calibrated(profiles: Profiles) -> PositionBias {
    PositionBias::new(profiles, Profiles::default(), Box::new(|_| Ok(())), vec!["a.json: is damaged".into()])
}

fn stored(position_bias: &PositionBias, origin: Origin) -> Profiles {
    position_bias.profiles().into_iter().find(|(of, _)| *of == origin).unwrap().1
}

async fn ask(server: &Running, order: v1::ContextOrder, top_n: u32) -> (Vec<u32>, v1::Arrangement) {
    let request = v1::RerankRequest { context_order: order.into(), top_n, ..wire("question", &PASSAGES) };
    let answer = server.client().await.rerank(request).await.unwrap().into_inner();
    (answer.results.iter().map(|result| result.original_index).collect(), answer.context_order.unwrap())
}

#[tokio::test]
async fn without_a_profile_the_best_comes_first_and_asking_for_one_is_refused() {
    let server = Scripted::default().serve().await;
    let (ranking, arranged) = ask(&server, v1::ContextOrder::Unspecified, 0).await;
    assert_eq!((&arranged.original_indices, arranged.order()), (&ranking, v1::ContextOrder::Descending));
    assert_eq!(arranged.ground(), v1::ArrangementGround::NoProfile);
    let (_, arranged) = ask(&server, v1::ContextOrder::Reverse, 2).await;
    assert_eq!(arranged.original_indices, vec![ranking[1], ranking[0]]);
    assert_eq!(arranged.ground(), v1::ArrangementGround::Requested);
    let (_, arranged) = ask(&server, v1::ContextOrder::Given, 3).await;
    assert!(arranged.original_indices.is_sorted() && arranged.original_indices.len() == 3);
    let strict = v1::ContextOrder::ByPositionBias.into();
    let before = server.observed.steps.load(std::sync::atomic::Ordering::SeqCst);
    let refused = v1::RerankRequest { context_order: strict, ..wire("question", &PASSAGES) };
    let status = server.client().await.rerank(refused).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
    assert!(status.message().contains("rerankd calibrate"), "{}", status.message());
    assert_eq!(before, server.observed.steps.load(std::sync::atomic::Ordering::SeqCst), "refused before any work");
    let unknown = v1::RerankRequest { context_order: 99, ..wire("question", &PASSAGES) };
    assert!(server.client().await.rerank(unknown).await.unwrap_err().message().contains("context_order"));
    server.stop().await;
}

#[tokio::test]
async fn a_profile_decides_the_context_but_not_the_ranking() {
    let plain = Scripted::default().serve().await;
    let (expected, _) = ask(&plain, v1::ContextOrder::Unspecified, 0).await;
    plain.stop().await;
    let server = with(calibrated(profiles(Subject::Answer, &[0.5, -1.0, -0.5, 1.0], 8))).await;
    let (ranking, arranged) = ask(&server, v1::ContextOrder::Unspecified, 0).await;
    assert_eq!(ranking, expected);
    assert_eq!(arranged.original_indices, vec![ranking[1], ranking[3], ranking[2], ranking[0]]);
    assert_eq!(arranged.ground(), v1::ArrangementGround::AnswerProfile);
    assert_eq!((arranged.profile_passages, arranged.profile_observations), (4, 8));
    assert_eq!(arranged.profile_origin(), v1::ProfileOrigin::Calibrated);
    assert_eq!(arranged.profile_subject(), v1::ProfileSubject::Answer);
    let shown = ModelServiceClient::new(server.channel().await)
        .get_position_bias(v1::GetPositionBiasRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(shown.profiles.len(), 1);
    assert_eq!(shown.profiles[0].means, vec![0.5, -1.0, -0.5, 1.0]);
    assert_eq!(shown.profiles[0].standard_errors[1..], vec![0.0; 3]);
    assert_eq!(shown.profiles[0].origin(), v1::ProfileOrigin::Calibrated);
    assert_eq!(shown.problems, vec!["a.json: is damaged"]);
    let none = v1::GetPositionBiasRequest { passages: 5, ..v1::GetPositionBiasRequest::default() };
    let shown = ModelServiceClient::new(server.channel().await).get_position_bias(none).await.unwrap().into_inner();
    assert!(shown.profiles.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_built_in_profile_says_that_it_is_one() {
    let profile = profiles(Subject::Answer, &[0.5, -1.0, -0.5, 1.0], 8);
    let server = with(PositionBias::default().with_built_in(profile)).await;
    let (ranking, arranged) = ask(&server, v1::ContextOrder::Unspecified, 0).await;
    assert_eq!(arranged.original_indices, vec![ranking[1], ranking[3], ranking[2], ranking[0]]);
    assert_eq!(arranged.ground(), v1::ArrangementGround::AnswerProfile);
    assert_eq!(arranged.profile_origin(), v1::ProfileOrigin::BuiltIn);
    let mut models = ModelServiceClient::new(server.channel().await);
    let shown = models.get_position_bias(v1::GetPositionBiasRequest::default()).await.unwrap().into_inner();
    assert_eq!((shown.profiles.len(), shown.profiles[0].origin()), (1, v1::ProfileOrigin::BuiltIn));
    server.stop().await;
}

/// A calibrated profile within its error keeps the best passage first. A learnt profile does not change the default
/// order.
#[tokio::test]
async fn neither_noise_nor_other_callers_change_an_order() {
    let server = with(calibrated(profiles(Subject::Answer, &[0.0, 0.06, -0.06, 0.0], 8))).await;
    for order in [v1::ContextOrder::Unspecified, v1::ContextOrder::ByPositionBias] {
        let (ranking, arranged) = ask(&server, order, 0).await;
        assert_eq!((&arranged.original_indices, arranged.order()), (&ranking, v1::ContextOrder::Descending));
        assert_eq!(arranged.ground(), v1::ArrangementGround::EffectWithinError);
        assert_eq!((arranged.profile_passages, arranged.profile_observations), (4, 8));
    }
    server.stop().await;
    let learnt = profiles(Subject::Question, &[0.25, 0.5, 1.0, 2.0], 40);
    let server = with(PositionBias::new(Profiles::default(), learnt, Box::new(|_| Ok(())), Vec::new())).await;
    let (ranking, arranged) = ask(&server, v1::ContextOrder::Unspecified, 0).await;
    assert_eq!((&arranged.original_indices, arranged.ground()), (&ranking, v1::ArrangementGround::NoProfile));
    let (_, arranged) = ask(&server, v1::ContextOrder::ByPositionBias, 0).await;
    assert!(arranged.original_indices.iter().eq(ranking.iter().rev()));
    assert_eq!(arranged.ground(), v1::ArrangementGround::QuestionProfile);
    assert_eq!(arranged.profile_origin(), v1::ProfileOrigin::Learnt);
    server.engine.generator().unwrap().position_bias.set_use_learnt(true);
    let (_, arranged) = ask(&server, v1::ContextOrder::Unspecified, 0).await;
    assert_eq!(arranged.profile_origin(), v1::ProfileOrigin::Learnt);
    let (_, arranged) = ask(&server, v1::ContextOrder::Unspecified, 1).await;
    assert_eq!(arranged.ground(), v1::ArrangementGround::NoProfile, "one passage has no order");
    server.stop().await;
}

#[tokio::test]
async fn served_requests_are_learnt_from_and_stored() {
    let written: Arc<Mutex<Vec<Profiles>>> = Arc::default();
    let seen = Arc::clone(&written);
    let keeper: Keeper = Box::new(move |profiles| {
        seen.lock().unwrap().push(profiles.clone());
        Ok(())
    });
    let server = with(PositionBias::new(Profiles::default(), Profiles::default(), keeper, Vec::new())).await;
    ask(&server, v1::ContextOrder::Unspecified, 0).await;
    let generator = server.engine.generator().unwrap();
    let position_bias = &generator.position_bias;
    assert!(stored(position_bias, Origin::Learnt).is_empty(), "learning is off until the server serves");
    position_bias.set_learning(true);
    let passages = PASSAGES.map(|text| format!("{text} question"));
    let other: Vec<&str> = passages.iter().map(String::as_str).collect();
    for texts in [&PASSAGES[..], &PASSAGES, &other, &other, &PASSAGES] {
        let request = v1::RerankRequest { method: v1::Method::Moi.into(), ..wire("question", texts) };
        server.client().await.rerank(request).await.unwrap();
    }
    position_bias.save();
    let profiles = stored(position_bias, Origin::Learnt);
    let (subject, length, profile) = profiles.iter().next().unwrap();
    assert_eq!((subject, length, profile.count()), (Subject::Question, 2, 2), "a repeated request counts once");
    assert!(profile.means().iter().sum::<f64>().abs() < 1e-9, "the means sum to 0");
    assert_eq!(written.lock().unwrap().last(), Some(&profiles));
    assert!(stored(position_bias, Origin::Calibrated).is_empty());
    let cyclic = Some(v1::MoiOptions { design: v1::Design::Cyclic.into(), ..v1::MoiOptions::default() });
    for query in ["question", "here", "is"] {
        server
            .client()
            .await
            .rerank(v1::RerankRequest { moi: cyclic.clone(), ..wire(query, &PASSAGES) })
            .await
            .unwrap();
    }
    assert_eq!(
        stored(position_bias, Origin::Learnt),
        profiles,
        "rotations teach nothing: the prior decides their weights"
    );
    server.stop().await;
}

/// The scripted model favours early occurrences, so the answering passage is worth most in front.
#[tokio::test]
async fn an_answer_profile_finds_the_position_that_the_model_favours() {
    let (engine, _, _) = Scripted::default().engine().await;
    let texts = ["zzzz zzzz", "the looms", "wwww wwww", "yyyy yyyy"];
    let passage = |(index, text): (usize, &&str)| Passage {
        id: index.to_string(),
        text: (*text).to_owned(),
        ..Passage::default()
    };
    let task = Labelled {
        question: "xx".into(),
        answer: "looms".into(),
        passages: texts.iter().enumerate().map(passage).collect(),
        gold: vec![false, true, false, false],
        passage_tokens: None,
    };
    let profile = engine.positions.profile(&Call::local(), &task).await.unwrap();
    assert!(profile.iter().sum::<f64>().abs() < 1e-9);
    assert!(profile.windows(2).all(|pair| pair[0] > pair[1]), "{profile:?}");
    for (broken, field) in [
        (Labelled { gold: vec![false; 4], ..task.clone() }, "passages"),
        (Labelled { answer: " ".into(), ..task.clone() }, "answer"),
        (Labelled { question: String::new(), ..task.clone() }, "question"),
        (Labelled { passages: task.passages[..1].to_vec(), ..task.clone() }, "passages"),
    ] {
        assert!(engine.positions.profile(&Call::local(), &broken).await.unwrap_err().to_string().starts_with(field));
    }
}

#[tokio::test]
async fn a_running_server_reloads_a_calibration_and_refuses_a_damaged_one() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("[models]\nstore = {:?}", folder.path());
    let config = folder.path().join("config.toml");
    std::fs::write(&config, text).unwrap();
    let store = Config::load(Some(&config), &[]).unwrap().store;
    let server = Scripted::default().serve().await;
    let file = rerankd::app::profile_file(&store, "scripted", Origin::Calibrated);
    let following = tokio::spawn(rerankd::app::follow_calibration(
        server.engine.generator().unwrap(),
        file.clone(),
        Duration::from_millis(5),
    ));
    let strict = || ask(&server, v1::ContextOrder::ByPositionBias, 0);
    file.save(&profiles(Subject::Answer, &[-2.0, 0.0, 1.0, 2.0], 8)).unwrap();
    let generator = server.engine.generator().unwrap();
    let position_bias = &generator.position_bias;
    wait_until(|| !stored(position_bias, Origin::Calibrated).is_empty()).await;
    let (ranking, arranged) = strict().await;
    assert!(arranged.original_indices.iter().eq(ranking.iter().rev()), "best last, at the profile's highest position");
    std::fs::write(file.path(), "{").unwrap();
    wait_until(|| !position_bias.problems().is_empty()).await;
    assert!(position_bias.problems()[0].contains("set aside"), "{:?}", position_bias.problems());
    // The next poll finds no file, because it was set aside. The profiles stay.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(strict().await.1.original_indices, arranged.original_indices, "the earlier profiles stay in use");
    // A reload by the operator keeps them, too, and loads a good file.
    let files = (file.clone(), rerankd::app::calibration_file(&store, "scripted"));
    rerankd::app::reload_calibration(&generator, &files);
    assert_eq!(strict().await.1.original_indices, arranged.original_indices, "dropped on SIGHUP");
    file.save(&profiles(Subject::Answer, &[2.0, 0.0, -1.0, -2.0], 8)).unwrap();
    rerankd::app::reload_calibration(&generator, &files);
    let (ranking, arranged) = strict().await;
    assert!(arranged.original_indices.iter().eq(ranking.iter()), "best first, now the profile's highest position");
    // The follower loads this file and sees its removal.
    let third = profiles(Subject::Answer, &[-2.0, 0.0, 1.0, 3.0], 8);
    file.save(&third).unwrap();
    wait_until(|| stored(position_bias, Origin::Calibrated) == third).await;
    std::fs::remove_file(file.path()).unwrap();
    wait_until(|| stored(position_bias, Origin::Calibrated).is_empty()).await;
    following.abort();
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
