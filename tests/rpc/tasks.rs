//! Prompts by task over the wire: labels and their probabilities, lengths of answers, numbered passages, and bad fields.

use std::sync::Arc;
use std::time::Duration;

use crate::common;
use common::scripted::{END, Observed, Script, ScriptedGenerator, overlap_script};
use common::{LIMITS, Running, Scripted, fields, real_engine, wire};
use engine::position_bias::PositionBias;
use prefix_scheduler::model::Capacity;
use prefix_scheduler::plan::Token;
use prefix_scheduler::scheduler::Status;
use prefix_scheduler::scheduler::generator::{Scheduler, SchedulerOptions};
use protocol::v1;
use protocol::v1::belief_service_client::BeliefServiceClient;
use protocol::v1::sample_response::Event;
use protocol::v1::utility_service_client::UtilityServiceClient;
use protocol::v1::{Annotator, Task};
use rag_metrics::lexical;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic::transport::Channel;

const PASSAGES: [&str; 3] = ["aaaa SUPPORTS", "REFUTES REFUTES", "dddd aaaa"];
const FEVER: [&str; 3] = ["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"];

async fn server() -> Running {
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let (engine, _) = common::with_scripted_judge(&engine, Duration::ZERO);
    common::serve(engine, observed, queue_length).await
}

async fn utilities(server: &Running) -> UtilityServiceClient<Channel> {
    UtilityServiceClient::new(server.channel().await)
}

fn request(task: Task) -> v1::MeasureUtilityRequest {
    v1::MeasureUtilityRequest {
        question: "which".into(),
        passages: wire("q", &PASSAGES).passages,
        references: vec!["SUPPORTS".into()],
        measure_list: true,
        measure_each: true,
        sampling: Some(v1::SamplingOptions { samples: 2, max_tokens: 6, ..v1::SamplingOptions::default() }),
        return_answers: true,
        task: task.into(),
        ..v1::MeasureUtilityRequest::default()
    }
}

fn evaluation(task: Task, annotators: &[Annotator]) -> v1::EvaluateRetrievalRequest {
    v1::EvaluateRetrievalRequest {
        question: "which".into(),
        passages: wire("q", &PASSAGES).passages,
        references: vec!["REFUTES".into()],
        annotators: annotators.iter().map(|annotator| (*annotator).into()).collect(),
        end_to_end: true,
        return_answers: true,
        task: task.into(),
        ..v1::EvaluateRetrievalRequest::default()
    }
}

async fn sampled(server: &Running, request: v1::SampleRequest) -> (Vec<v1::Answer>, v1::SamplesDone) {
    let mut client = BeliefServiceClient::new(server.channel().await);
    let mut events = client.sample(request).await.unwrap().into_inner();
    let (mut answers, mut done) = (Vec::new(), None);
    while let Some(event) = events.next().await {
        match event.unwrap().event.unwrap() {
            Event::Sampled(one) => answers.extend(one.answer),
            Event::Progress(_) => {}
            Event::Done(end) => done = Some(end),
        }
    }
    (answers, done.unwrap())
}

/// The probabilities of the scripted generator, computed from the text of the prompt.
fn expected(prompt: &str, labels: &[&str]) -> Vec<f64> {
    let script = overlap_script();
    let weight = |label: &&str| {
        let mut history: Vec<Token> = std::iter::once(256).chain(prompt.bytes().map(Token::from)).collect();
        let mut sum = 0.0;
        for token in format!(" {label}").bytes().map(Token::from) {
            sum += script(&history, token);
            history.push(token);
        }
        sum.exp()
    };
    let weights: Vec<f64> = labels.iter().map(weight).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

fn near(found: &[v1::LabelProbability], labels: &[&str], prompt: &str) {
    assert_eq!(found.iter().map(|one| one.label.as_str()).collect::<Vec<_>>(), labels);
    for (one, expected) in found.iter().zip(expected(prompt, labels)) {
        assert!((one.probability - expected).abs() < 1e-9, "{one:?}, expected {expected}");
    }
    assert!((found.iter().map(|one| one.probability).sum::<f64>() - 1.0).abs() < 1e-9);
}

#[tokio::test]
async fn labels_have_their_probabilities_in_every_context() {
    let server = server().await;
    // The short-answer task runs first: its cached context-free answers must not be used for this task.
    let short = utilities(&server).await.measure_utility(request(Task::Unspecified)).await.unwrap().into_inner();
    assert!(short.label_probabilities_without_context.is_empty() && short.task() == Task::ShortAnswer);
    assert!(short.utilities.iter().all(|utility| utility.label_probabilities.is_empty()));
    let answer = utilities(&server).await.measure_utility(request(Task::FactVerification)).await.unwrap().into_inner();
    assert_eq!(answer.task(), Task::FactVerification);
    let labels = "Answer with one of the labels: SUPPORTS, REFUTES, NOT ENOUGH INFO.\n\n";
    let without = format!("Verify the claim. {labels}Claim: which\nLabel:");
    near(&answer.label_probabilities_without_context, &FEVER, &without);
    let with = |passages: &[&str]| {
        let passages = passages.iter().map(|passage| format!("Document: {passage}\n\n")).collect::<Vec<_>>().concat();
        format!("Verify the claim with the documents. {labels}{passages}Claim: which\nLabel:")
    };
    near(&answer.utilities[0].label_probabilities, &FEVER, &with(&PASSAGES));
    for (index, passage) in PASSAGES.iter().enumerate() {
        near(&answer.utilities[index + 1].label_probabilities, &FEVER, &with(&[passage]));
    }
    // The second time the context-free labels come from the cache.
    let again = utilities(&server).await.measure_utility(request(Task::FactVerification)).await.unwrap().into_inner();
    assert_eq!(again.label_probabilities_without_context, answer.label_probabilities_without_context);
    let sample = v1::SampleRequest {
        question: "which".into(),
        passages: wire("q", &PASSAGES).passages,
        sampling: Some(v1::SamplingOptions { samples: 1, max_tokens: 4, ..v1::SamplingOptions::default() }),
        task: Task::FactVerification.into(),
        ..v1::SampleRequest::default()
    };
    let (_, done) = sampled(&server, sample.clone()).await;
    assert_eq!(done.label_probabilities, answer.utilities[0].label_probabilities);
    let own = v1::SampleRequest {
        task: Task::Classification.into(),
        labels: vec!["sports".into(), "politics".into()],
        ..sample.clone()
    };
    let (_, done) = sampled(&server, own).await;
    let passages = PASSAGES.iter().map(|passage| format!("Document: {passage}\n\n")).collect::<Vec<_>>().concat();
    let prompt = format!(
        "Classify the text with the help of the documents. Answer with one of the labels: sports, politics.\n\n\
         {passages}Text: which\nLabel:"
    );
    near(&done.label_probabilities, &["sports", "politics"], &prompt);
    let (_, done) = sampled(&server, v1::SampleRequest { task: Task::Dialogue.into(), ..sample }).await;
    assert!(done.label_probabilities.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn the_answer_of_a_task_with_labels_is_its_likeliest_label() {
    let server = server().await;
    let annotators = [Annotator::Accuracy, Annotator::ExactMatch, Annotator::SeperSoft];
    let asked = evaluation(Task::FactVerification, &annotators);
    let answer = utilities(&server).await.evaluate_retrieval(asked).await.unwrap().into_inner();
    assert_eq!((answer.task(), answer.passage_answers.len()), (Task::FactVerification, 3));
    let likeliest = |labels: &[v1::LabelProbability]| {
        labels.iter().max_by(|left, right| left.probability.total_cmp(&right.probability)).unwrap().label.clone()
    };
    for (index, labels) in answer.passage_label_probabilities.iter().enumerate() {
        let text = &answer.passage_answers[index].text;
        assert_eq!(*text, likeliest(&labels.labels));
        assert_eq!(answer.labels[0].labels[index], lexical::accuracy(text, &["REFUTES".to_owned()]));
        assert_eq!(answer.labels[0].labels[index], answer.labels[1].labels[index]);
    }
    let whole = &answer.rankings[0];
    assert_eq!(whole.answer.as_ref().unwrap().text, likeliest(&whole.label_probabilities));
    assert!(whole.scores[0].end_to_end.is_some());
    // Accuracy needs no samples, only the tokens of the labels.
    let alone = evaluation(Task::FactVerification, &[]);
    let alone = utilities(&server).await.evaluate_retrieval(alone).await.unwrap().into_inner();
    assert_eq!(alone.labels, answer.labels[..1], "accuracy is the default");
    assert!(alone.usage.unwrap().tokens < answer.usage.unwrap().tokens);
    let usage = alone.usage.unwrap();
    assert!(usage.tokens < usage.naive_tokens, "labels share their prompt: {usage:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_task_chooses_the_annotator_and_the_length_of_answers() {
    let server = server().await;
    for (task, annotator) in [
        (Task::Unspecified, Annotator::ExactMatch),
        (Task::ShortAnswer, Annotator::ExactMatch),
        (Task::Dialogue, Annotator::TokenF1),
        (Task::LongAnswer, Annotator::RougeL),
    ] {
        let asked = v1::EvaluateRetrievalRequest { answer_tokens: 3, ..evaluation(task, &[]) };
        let answer = utilities(&server).await.evaluate_retrieval(asked).await.unwrap().into_inner();
        assert_eq!(answer.labels[0].annotator(), annotator, "{task:?}");
        assert!(answer.passage_label_probabilities.is_empty());
    }
    // The greedy scripted generator repeats a letter until its answer is full.
    let greedy = v1::SamplingOptions { samples: 1, temperature: Some(0.0), ..v1::SamplingOptions::default() };
    for (task, given, tokens) in
        [(Task::ShortAnswer, 0, 64), (Task::Dialogue, 0, 128), (Task::LongAnswer, 0, 300), (Task::LongAnswer, 70, 70)]
    {
        let request = v1::SampleRequest {
            question: "z".repeat(400),
            sampling: Some(v1::SamplingOptions { max_tokens: given, ..greedy.clone() }),
            task: task.into(),
            ..v1::SampleRequest::default()
        };
        let (answers, _) = sampled(&server, request).await;
        assert_eq!(answers[0].token_log_probabilities.len(), tokens, "{task:?}: {answers:?}");
    }
    server.stop().await;
}

/// An answer with citations, and its text without them.
const CITING: &str = "iron and rye [1][2]. salt [3].";
const CITED: &str = "iron and rye. salt.";

/// A server whose generator says [`CITING`] after the cue of a long answer or of a dialogue.
async fn citing() -> Running {
    let script: Arc<Script> = Arc::new(|history: &[Token], token: Token| {
        let text: Vec<u8> = history.iter().filter_map(|token| u8::try_from(*token).ok()).collect();
        let text = String::from_utf8_lossy(&text).into_owned();
        let said = ["Answer:", "Reply:"].into_iter().filter_map(|cue| Some(text.rsplit_once(cue)?.1.len())).min();
        let wanted = format!(" {CITING}").bytes().nth(said.unwrap_or(0)).map_or(END, Token::from);
        if token == wanted { 0.0 } else { -30.0 }
    });
    let observed: Arc<Observed> = Arc::default();
    let seen = Arc::clone(&observed);
    let loader = Box::new(move |serve: &mut dyn FnMut(&mut dyn prefix_scheduler::model::Generator)| {
        let capacity = Capacity { cells: 4_096, sequences: 64, batch: 64 };
        serve(&mut ScriptedGenerator::new(capacity, Arc::clone(&script), Arc::clone(&seen)));
        Ok(())
    });
    let scheduler = Scheduler::start(SchedulerOptions::default(), loader).unwrap();
    scheduler.status().wait_for(|status| matches!(status, Status::Ready(_))).await.unwrap();
    let info = common::generator(&Scripted::default().engine().await.0).info.clone();
    let engine = common::engine_of(scheduler, info, PositionBias::default(), LIMITS);
    let (engine, _) = common::with_scripted_judge(&engine, Duration::ZERO);
    common::serve(engine, observed, 8).await
}

/// Measures ignore the numbers of citations; the answers keep them.
#[tokio::test]
async fn citations_are_no_words_of_a_long_answer() {
    let server = citing().await;
    let annotators = [
        Annotator::ExactMatch,
        Annotator::TokenF1,
        Annotator::RougeL,
        Annotator::Containment,
        Annotator::Bleu,
        Annotator::SeperSoft,
    ];
    for (task, least, most) in [(Task::LongAnswer, 0.8, 1.0 + 1e-9), (Task::Dialogue, 0.0, 0.99)] {
        let asked = v1::EvaluateRetrievalRequest {
            references: vec![CITED.into()],
            answer_tokens: 64,
            ..evaluation(task, &annotators)
        };
        let answer = utilities(&server).await.evaluate_retrieval(asked).await.unwrap().into_inner();
        assert_eq!(answer.passage_answers[0].text, CITING, "{task:?}");
        assert_eq!(answer.rankings[0].answer.as_ref().unwrap().text, CITING, "{task:?}");
        for labels in &answer.labels {
            let label = labels.labels[0];
            assert!((least..=most).contains(&label), "{task:?} {:?}: {label}", labels.annotator());
        }
        for scores in &answer.rankings[0].scores {
            let score = scores.end_to_end.unwrap();
            assert!((least..=most).contains(&score), "{task:?} {:?}: {score}", scores.annotator());
        }
    }
    let sampling = v1::SamplingOptions { samples: 2, max_tokens: 64, ..v1::SamplingOptions::default() };
    let soft = |task: Task| {
        let asked = v1::MeasureUtilityRequest {
            references: vec![CITED.into()],
            sampling: Some(sampling.clone()),
            ..request(task)
        };
        let server = &server;
        async move {
            let answer = utilities(server).await.measure_utility(asked).await.unwrap().into_inner();
            let belief = answer.utilities[0].belief.as_ref().unwrap();
            assert_eq!(belief.answers[0].text, CITING);
            belief.seper_soft.as_ref().unwrap().value
        }
    };
    assert!(soft(Task::LongAnswer).await > 0.8);
    assert!(soft(Task::Dialogue).await < 0.5);
    server.stop().await;
}

/// Numbers before passages count when a prompt is cut to fit.
#[tokio::test]
async fn numbered_passages_are_cut_to_fit() {
    let server = server().await;
    let texts: Vec<String> = ["a", "b", "c"].map(|letter| letter.repeat(3_000)).to_vec();
    let request = v1::SampleRequest {
        passages: wire("q", &texts.iter().map(String::as_str).collect::<Vec<_>>()).passages,
        question: "which".into(),
        sampling: Some(v1::SamplingOptions { samples: 1, max_tokens: 4, ..v1::SamplingOptions::default() }),
        task: Task::LongAnswer.into(),
        ..v1::SampleRequest::default()
    };
    let (answers, done) = sampled(&server, request).await;
    assert_eq!(answers.len(), 1);
    assert!(done.usage.unwrap().tokens > 3_900, "the context is full: {:?}", done.usage);
    server.stop().await;
}

#[tokio::test]
async fn bad_tasks_are_refused_by_field() {
    let server = server().await;
    let many: Vec<String> = (0..65).map(|number| number.to_string()).collect();
    let own = |labels: &[&str]| labels.iter().map(|&label| label.to_owned()).collect::<Vec<String>>();
    let classes = Task::Classification as i32;
    let cases: [(i32, Vec<String>, &str); 10] = [
        (99, vec![], "task"),
        (classes, vec![], "labels"),
        (classes, own(&["a"]), "labels"),
        (classes, many, "labels"),
        (classes, own(&["a", " "]), "labels[1]"),
        (classes, own(&["a", "b", "A!"]), "labels[2]"),
        (classes, own(&["a", &"b".repeat(1_000_000)]), "labels[1]"),
        (Task::FactVerification as i32, own(&["a", "b\nc"]), "labels[1]"),
        (Task::LongAnswer as i32, own(&["a", "b"]), "labels"),
        (0, own(&["a", "b"]), "labels"),
    ];
    for (task, labels, field) in cases {
        let asked = v1::MeasureUtilityRequest { task, labels: labels.clone(), ..request(Task::Unspecified) };
        let status = utilities(&server).await.measure_utility(asked).await.unwrap_err();
        assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec![field.to_owned()]), "{status}");
        let asked = v1::EvaluateRetrievalRequest { task, labels: labels.clone(), ..evaluation(Task::Unspecified, &[]) };
        let status = utilities(&server).await.evaluate_retrieval(asked).await.unwrap_err();
        assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec![field.to_owned()]), "{status}");
        let asked = v1::SampleRequest { question: "q".into(), task, labels, ..v1::SampleRequest::default() };
        // A stream that has begun ends with its error.
        let status = match BeliefServiceClient::new(server.channel().await).sample(asked).await {
            Err(status) => status,
            Ok(events) => events.into_inner().next().await.unwrap().unwrap_err(),
        };
        assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec![field.to_owned()]), "{status}");
    }
    // Accuracy would be 0 for every passage.
    let asked = v1::EvaluateRetrievalRequest {
        references: vec!["refutes.".into(), "REFUTED".into()],
        ..evaluation(Task::FactVerification, &[Annotator::Accuracy])
    };
    let status = utilities(&server).await.evaluate_retrieval(asked.clone()).await.unwrap_err();
    assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec!["references[1]".to_owned()]));
    let free = v1::EvaluateRetrievalRequest { annotators: vec![Annotator::TokenF1.into()], ..asked };
    utilities(&server).await.evaluate_retrieval(free).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn the_real_generator_answers_every_task() {
    let _alone = common::alone().await;
    let server = common::serve(real_engine().await, std::sync::Arc::default(), 8).await;
    let passages = [
        "The lighthouse of Arden was built of grey granite in 1871 by the engineer Moira Kell.",
        "The lighthouse of Arden was closed in 1964 and is a museum today.",
    ];
    for (task, labels, question) in [
        (Task::ShortAnswer, vec![], "Who built the lighthouse of Arden?"),
        (Task::FactVerification, vec![], "The lighthouse of Arden was built in 1871."),
        (Task::Dialogue, vec![], "A: I was in Arden last week.\nB: Did you see the lighthouse?"),
        (Task::LongAnswer, vec![], "What is known about the lighthouse of Arden?"),
        (Task::Classification, vec!["building", "animal"], "The lighthouse stands on a rock."),
    ] {
        let request = v1::SampleRequest {
            question: question.into(),
            passages: wire("q", &passages).passages,
            sampling: Some(v1::SamplingOptions { samples: 1, temperature: Some(0.0), ..Default::default() }),
            task: task.into(),
            labels: labels.into_iter().map(str::to_owned).collect(),
            ..v1::SampleRequest::default()
        };
        let (answers, done) = sampled(&server, request.clone()).await;
        println!("{task:?}: {:?} {:?}", answers[0].text, done.label_probabilities);
        assert!(!answers[0].text.is_empty(), "{task:?}");
        if !done.label_probabilities.is_empty() {
            let sum: f64 = done.label_probabilities.iter().map(|one| one.probability).sum();
            assert!((sum - 1.0).abs() < 1e-9);
        }
        assert_eq!(sampled(&server, request).await.1.label_probabilities, done.label_probabilities);
    }
    server.stop().await;
}
