//! Additional measures over the wire: the generator as a judge, perplexity and lexical similarity.

use crate::common;
use crate::evaluate::{numbers, server, utilities};
use common::scripted::{ByteTokenizer, overlap_script};
use common::wire;
use numeric::sigmoid;
use prefix_scheduler::model::Tokenizer;
use protocol::v1;
use protocol::v1::Annotator;
use rag_metrics::lexical::rouge_l;
use std::sync::atomic::Ordering;
use tonic::Code;

const PASSAGES: [&str; 4] = ["aaaa bbbb", "cccc", "dddd aaaa", "an answer stands here"];

fn request(annotators: &[Annotator]) -> v1::EvaluateRetrievalRequest {
    v1::EvaluateRetrievalRequest {
        question: "which".into(),
        passages: wire("q", &PASSAGES).passages,
        references: vec!["an answer".into()],
        annotators: numbers(annotators),
        answer_tokens: 6,
        return_answers: true,
        ..v1::EvaluateRetrievalRequest::default()
    }
}

/// The generator's log-odds of the first ending against the second.
fn log_odds(prompt: &str, endings: [&str; 2]) -> f64 {
    let script = overlap_script();
    let [yes, no] = endings.map(|ending| {
        let mut history = ByteTokenizer::default().template(prompt, true);
        let of_byte = |byte: u8| {
            let score = script(&history, byte.into());
            history.push(byte.into());
            score
        };
        ending.bytes().map(of_byte).sum::<f64>()
    });
    yes - no
}

#[tokio::test]
async fn the_generator_judges_its_answers_by_the_papers_prompt() {
    let server = server().await;
    let annotators = [Annotator::AnswerJudgement, Annotator::TokenF1];
    // The scripted generator repeats the letter of the first passage.
    let texts = ["q", "z", "j", "v"].map(|letter| letter.repeat(200));
    let asked = v1::EvaluateRetrievalRequest {
        passages: wire("q", &texts.each_ref().map(String::as_str)).passages,
        references: vec!["an answer".into(), "\"q\"".into()],
        end_to_end: true,
        ..request(&annotators)
    };
    let answer = utilities(&server).await.evaluate_retrieval(asked.clone()).await.unwrap().into_inner();
    let task = "# Task:\nYou are given a Question, a model Prediction, and a list of Ground Truth answers, judge whether the \
                model Prediction matches any answer from the list of Ground Truth answers. Follow the instructions step by step \
                to make a judgement.\n1. If the model prediction matches any provided answers from the Ground Truth Answer \
                list, \"Accuracy\" should be \"True\"; otherwise, \"Accuracy\" should be \"False.\"\n2. If the model prediction \
                says that it couldn't answer the question or it doesn't have enough information, \"Accuracy\" should always be \
                \"False.\"\n3. If the Ground Truth is \"invalid question,\" \"Accuracy\" is \"True\" only if the model prediction \
                is exactly \"invalid question.\"\n# Output:\nRespond with only a single JSON string with an \"Accuracy\" field \
                which is \"True\" or \"False.\"\n\n";
    let expected = |answer: &str| {
        let fields = "Question: which\nGround-truth: [\"an answer\",\"\\\"q\\\"\"]\nPrediction: ";
        sigmoid(log_odds(&format!("{task}{fields}{answer}\n{{\"Accuracy\": \""), ["True", "False"]))
    };
    for (one, label) in answer.passage_answers.iter().zip(&answer.labels[0].labels) {
        assert!(!one.text.is_empty() && (label - expected(&one.text)).abs() < 1e-9, "{label} of {:?}", one.text);
    }
    let whole = &answer.rankings[0];
    let judged = whole.scores[0].end_to_end.unwrap();
    assert!((judged - expected(&whole.answer.as_ref().unwrap().text)).abs() < 1e-9);
    // Without the judgement the answers cost less. Its tokens count in the budget and in the bound before it.
    let plain = v1::EvaluateRetrievalRequest { annotators: numbers(&[Annotator::TokenF1]), ..asked.clone() };
    let plain = utilities(&server).await.evaluate_retrieval(plain).await.unwrap().into_inner();
    assert_eq!(plain.passage_answers, answer.passage_answers);
    let (with, without) = (answer.usage.unwrap(), plain.usage.unwrap());
    assert!(with.tokens > without.tokens + 900 && with.naive_tokens > without.naive_tokens + 4_000, "{with:?}");
    let before = server.observed.tokens.load(Ordering::SeqCst);
    let small = v1::EvaluateRetrievalRequest { token_budget: without.tokens + 500, ..asked };
    let status = utilities(&server).await.evaluate_retrieval(small).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(server.observed.tokens.load(Ordering::SeqCst), before, "refused before anything is evaluated");
    server.stop().await;
}

#[tokio::test]
async fn relevance_uses_the_prompt_of_erag() {
    let server = server().await;
    let asked = v1::EvaluateRetrievalRequest {
        references: Vec::new(),
        ..request(&[Annotator::EragJudgement, Annotator::LlmJudgement])
    };
    let answer = utilities(&server).await.evaluate_retrieval(asked).await.unwrap().into_inner();
    for (index, passage) in PASSAGES.iter().enumerate() {
        let relevant = format!(
            "Decide whether the document is relevant to the query or not.\n\nDocument: {passage}\n\nQuery: which\nIs the \
             document relevant to the query?Yes or No:"
        );
        let helps = format!(
            "Decide whether the document helps to answer the question.\n\nDocument: {passage}\n\nQuestion: which\nDoes the \
             document help to answer the question?Yes or No:"
        );
        for (labels, prompt) in answer.labels.iter().zip([relevant, helps]) {
            let expected = sigmoid(log_odds(&prompt, [" Yes", " No"]));
            assert!((labels.labels[index] - expected).abs() < 1e-9, "{:?} of {passage:?}", labels.annotator());
        }
    }
    assert!(answer.passage_answers.is_empty(), "nothing is answered");
    server.stop().await;
}

fn measured(samples: u32) -> v1::MeasureUtilityRequest {
    v1::MeasureUtilityRequest {
        question: "which".into(),
        passages: wire("q", &PASSAGES).passages,
        measure_list: true,
        measure_each: true,
        subsets: vec![v1::PassageSubset::default()],
        sampling: Some(v1::SamplingOptions { samples, max_tokens: 6, seed: 1, ..v1::SamplingOptions::default() }),
        return_answers: true,
        ..v1::MeasureUtilityRequest::default()
    }
}

#[tokio::test]
async fn perplexity_and_lexical_similarity_are_those_of_the_answers_that_come_back() {
    let server = server().await;
    let answer = utilities(&server).await.measure_utility(measured(4)).await.unwrap().into_inner();
    let context_free = answer.without_context.as_ref().unwrap();
    assert_eq!(answer.utilities.len(), 6);
    for utility in &answer.utilities {
        let belief = utility.belief.as_ref().unwrap();
        let perplexities = belief.answers.iter().map(|answer| {
            let tokens = &answer.token_log_probabilities;
            (-tokens.iter().sum::<f64>() / tokens.len() as f64).exp()
        });
        let perplexity = belief.perplexity.unwrap().value;
        assert!(perplexity >= 1.0 && (perplexity - perplexities.sum::<f64>() / 4.0).abs() < 1e-9 * perplexity);
        let texts: Vec<&String> = belief.answers.iter().map(|answer| &answer.text).collect();
        let pairs = (0..4).flat_map(|left| (left + 1..4).map(move |right| (left, right)));
        let alike: f64 = pairs.map(|(left, right)| rouge_l(texts[left], std::slice::from_ref(texts[right]))).sum();
        let similarity = belief.lexical_similarity.unwrap().value;
        assert!((similarity - alike / 6.0).abs() < 1e-12);
        let fall = context_free.perplexity.unwrap().value - perplexity;
        assert!((utility.perplexity_reduction.unwrap().value - fall).abs() < 1e-9 * perplexity);
        let rise = similarity - context_free.lexical_similarity.unwrap().value;
        assert!((utility.lexical_similarity_increase.unwrap().value - rise).abs() < 1e-12);
    }
    // Both sides of the empty subset are the same samples, so their difference is exactly 0.
    let zero = Some(v1::Measured { value: 0.0, standard_error: Some(0.0) });
    let empty = &answer.utilities[5];
    assert_eq!((empty.perplexity_reduction, empty.lexical_similarity_increase), (zero, zero));
    server.stop().await;
}

#[tokio::test]
async fn one_answer_has_a_perplexity_and_no_pair() {
    let server = server().await;
    let answer = utilities(&server).await.measure_utility(measured(1)).await.unwrap().into_inner();
    let belief = answer.utilities[0].belief.as_ref().unwrap();
    assert!(belief.lexical_similarity.is_none() && belief.perplexity.unwrap().standard_error.is_none());
    assert!(answer.utilities[0].lexical_similarity_increase.is_none());
    assert!(answer.utilities[0].perplexity_reduction.is_some());
    server.stop().await;
}
