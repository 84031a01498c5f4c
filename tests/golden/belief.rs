//! Entailment and belief measures against an independent program (golden/belief/reference.py), and faults of the real
//! network. Measures agree within 1e-6. Probabilities, and measures of them, agree within 0.05: 8-bit kernels round
//! differently on other CPUs, by 0.03 at most so far. Kernels that overflow were off by 0.74.

use std::path::Path;

use crate::common;
use common::real_judge;
use engine::sampling::measure_answers;
use engine::types::{BeliefReport, EngineError, MeasureInput, MeasureOptions, Response};
use models::onnx;
use prefix_scheduler::model::entailment::TextPair;
use prefix_scheduler::scheduler::ScheduleError;
use prefix_scheduler::scheduler::entailment::{ConfiguredModel, EntailmentOptions, Judge};
use rag_metrics::belief::{Likelihood, Pairing, Rule, Verdict, Weighting};
use serde_json::Value;

fn cases() -> Vec<Value> {
    serde_json::from_str(include_str!("belief/cases.json")).unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn input(case: &Value, weighting: Weighting, either: bool, with_verdicts: bool) -> MeasureInput {
    let response = |answer: &Value| {
        let tokens: Vec<f64> =
            answer["token_log_probabilities"].as_array().unwrap().iter().map(|l| l.as_f64().unwrap()).collect();
        let likelihood = Likelihood { sum: tokens.iter().sum(), tokens: tokens.len() };
        Response { text: text(&answer["text"]), likelihood }
    };
    let verdict = |row: &Value| {
        let p = |class: usize| row["probabilities"][class].as_f64().unwrap();
        let verdict = Verdict { entailment: p(0), neutral: p(1), contradiction: p(2) };
        (text(&row["premise"]), text(&row["hypothesis"]), verdict)
    };
    MeasureInput {
        question: text(&case["question"]),
        references: vec![text(&case["reference"])],
        with_context: case["answers"].as_array().unwrap().iter().map(response).collect(),
        context_free: Vec::new(),
        pairing: Pairing::Independent,
        verdicts: if with_verdicts {
            case["verdicts"].as_array().unwrap().iter().map(verdict).collect()
        } else {
            vec![]
        },
        options: MeasureOptions { weighting, either_direction: either, ..MeasureOptions::default() },
    }
}

fn compare(report: &BeliefReport, golden: &Value, either: bool, tolerance: f64) {
    let near = |value: f64, key: &str| {
        let expected = golden[key].as_f64().unwrap();
        assert!((value - expected).abs() <= tolerance, "{key}: {value} against {expected}");
    };
    let (soft, hard) = (report.seper_soft.as_ref().unwrap(), report.seper_hard.as_ref().unwrap());
    near(soft.value, if either { "seper_soft_either" } else { "seper_soft" });
    near(hard.value, "seper_hard");
    if let (Some(error), false) = (soft.standard_error, either) {
        near(error, "seper_soft_error");
        near(hard.standard_error.unwrap(), "seper_hard_error");
    }
    near(report.semantic_entropy.value, "semantic_entropy");
    near(report.semantic_entropy_count.value, "semantic_entropy_count");
    near(report.predictive_entropy.value, "predictive_entropy");
    let founders: Vec<u64> = golden["founders"].as_array().unwrap().iter().map(|f| f.as_u64().unwrap()).collect();
    assert_eq!(report.clusters.founders.iter().map(|f| *f as u64).collect::<Vec<_>>(), founders);
    for (weight, expected) in report.weights.iter().zip(golden["weights"].as_array().unwrap()) {
        assert!((weight - expected.as_f64().unwrap()).abs() <= 1e-9);
    }
}

/// Largest difference of a probability, or of a measure of probabilities.
const ROUNDED: f64 = 0.05;

const WEIGHTINGS: [(Weighting, &str); 3] =
    [(Weighting::Mean, "mean"), (Weighting::Sum, "sum"), (Weighting::Frequency, "frequency")];

#[tokio::test]
async fn measures_are_those_of_the_independent_program() {
    for case in cases() {
        for (weighting, name) in WEIGHTINGS {
            for either in [false, true] {
                let input = input(&case, weighting, either, true);
                let (report, context_free, judged) = measure_answers(&common::call(), &input, None).await.unwrap();
                assert!(context_free.is_none() && judged == 0);
                compare(&report, &case["measures"][name], either, 1e-6);
            }
        }
    }
}

#[tokio::test]
async fn the_network_gives_the_probabilities_of_the_independent_program() {
    let judge = real_judge(0);
    for case in cases() {
        let question = text(&case["question"]);
        let question = if question.ends_with('?') { question } else { format!("{question}?") };
        let rows = case["verdicts"].as_array().unwrap();
        let after = |value: &Value| format!("{question} {}", text(value)).trim_end().to_owned();
        let pair = |row: &Value| TextPair {
            question: question.len(),
            ..TextPair::new(after(&row["premise"]), after(&row["hypothesis"]))
        };
        let judged = judge.judge(rows.iter().map(pair).collect(), &common::call()).await.unwrap();
        assert!(judged.model.three_way);
        for (row, verdict) in rows.iter().zip(judged.verdicts) {
            for (class, p) in [verdict.entailment, verdict.neutral, verdict.contradiction].into_iter().enumerate() {
                let expected = row["probabilities"][class].as_f64().unwrap();
                assert!((p - expected).abs() < ROUNDED, "{row}: {verdict:?}");
            }
        }
        let (report, _, judged) =
            measure_answers(&common::call(), &input(&case, Weighting::Mean, false, false), Some(&judge)).await.unwrap();
        compare(&report, &case["measures"]["mean"], false, ROUNDED);
        assert_eq!(judged, 0, "every pair was judged above and is cached");
    }
}

#[tokio::test]
async fn a_missing_verdict_without_a_model_is_an_error_and_not_zero() {
    let mut input = input(&cases()[0], Weighting::Mean, false, true);
    input.verdicts.pop();
    input.verdicts.truncate(3);
    let error = measure_answers(&common::call(), &input, None).await.unwrap_err();
    assert!(matches!(error, EngineError::Precondition(_)), "{error}");
    input.context_free = input.with_context[1..].to_vec();
    input.pairing = Pairing::Paired;
    assert!(
        measure_answers(&common::call(), &input, None).await.unwrap_err().to_string().starts_with("without: "),
        "not pairs"
    );
    input.context_free.clear();
    input.verdicts[1].2.entailment = 1.5;
    assert!(measure_answers(&common::call(), &input, None).await.unwrap_err().to_string().starts_with("verdicts[1]: "));
    input.references.push(" ".into());
    let blank = measure_answers(&common::call(), &input, None).await.unwrap_err().to_string();
    assert_eq!(blank, "references[1]: must not be empty", "nearly every answer entails it");
    input.references.pop();
    input.verdicts.clear();
    input.with_context[2].likelihood.sum = f64::NAN;
    assert!(
        measure_answers(&common::call(), &input, None)
            .await
            .unwrap_err()
            .to_string()
            .starts_with("with[2].log_likelihood: ")
    );
    input.with_context.clear();
    assert!(measure_answers(&common::call(), &input, None).await.unwrap_err().to_string().starts_with("with: "));
}

fn pair(premise: &str, hypothesis: &str) -> TextPair {
    TextPair::new(premise, hypothesis)
}

#[tokio::test]
async fn a_verdict_does_not_depend_on_the_other_pairs() {
    let alone = real_judge(0)
        .judge(vec![pair("The tower was painted red.", "The tower is red.")], &common::call())
        .await
        .unwrap();
    let crowd: Vec<TextPair> = (0..40)
        .map(|i| pair(&"It rained for a long time. ".repeat(i % 7 + 1), &format!("It was wet {i}.")))
        .chain([pair("The tower was painted red.", "The tower is red.")])
        .collect();
    let among = real_judge(0).judge(crowd, &common::call()).await.unwrap();
    assert_eq!(among.verdicts.last(), alone.verdicts.last());
    let sure = alone.verdicts[0];
    assert!(sure.entailment > sure.neutral.max(sure.contradiction));
}

#[tokio::test]
async fn a_long_premise_is_cut_and_the_hypothesis_is_not() {
    let judge = real_judge(0);
    let long = format!("The tower was painted red. {}", "It rained and rained. ".repeat(2_000));
    let judged = judge
        .judge(vec![pair(&long, "The tower is red."), pair(&long, "The tower is green.")], &common::call())
        .await
        .unwrap();
    assert!(judged.verdicts[0].entailment > judged.verdicts[1].entailment + 0.3, "{:?}", judged.verdicts);
    let both =
        judge.judge(vec![pair("It rained.", &long), pair("", ""), pair(&long, &long)], &common::call()).await.unwrap();
    assert_eq!(both.verdicts.len(), 3);
}

/// The question precedes both texts, so a plain cut of the premise would keep its end instead of the answer.
#[tokio::test]
async fn a_long_question_is_cut_and_the_answers_are_not() {
    let judge = real_judge(0);
    for sentences in [0, 60, 110, 2_000] {
        let question = format!("{}Who repaired the tower clock?", "It rained and rained. ".repeat(sentences));
        let pair = |premise: &str, hypothesis: &str| TextPair {
            question: question.len(),
            ..TextPair::new(format!("{question} {premise}"), format!("{question} {hypothesis}"))
        };
        let pairs = ["Jonas Falk, the smith", "Marta Lind"].map(|premise| pair(premise, "Jonas Falk"));
        let judged = judge.judge(pairs.to_vec(), &common::call()).await.unwrap();
        let [right, wrong] = [0, 1].map(|index| judged.verdicts[index].entailment);
        assert!(right > wrong + 0.3, "{sentences} sentences: {right} and {wrong}");
    }
    // A long answer loses its end and keeps a short question. If the other text has no room, the question is dropped.
    let long = "The tower was painted red. ".repeat(100);
    let bare = [TextPair::new(long.as_str(), "It is red."), TextPair::new("It is red.", long.as_str())];
    let question = "What colour?";
    let after = bare.clone().map(|pair| TextPair {
        question: question.len(),
        ..TextPair::new(format!("{question} {}", pair.premise), format!("{question} {}", pair.hypothesis))
    });
    let unmarked = after.clone().map(|pair| TextPair { question: 0, ..pair });
    let [bare, after, unmarked] = [bare.to_vec(), after.to_vec(), unmarked.to_vec()];
    let bare = judge.judge(bare, &common::call()).await.unwrap();
    let after = judge.judge(after, &common::call()).await.unwrap();
    let unmarked = judge.judge(unmarked, &common::call()).await.unwrap();
    assert_eq!((after.verdicts[0], after.verdicts[1]), (unmarked.verdicts[0], bare.verdicts[1]));
    assert!(bare.long && after.long);
}

/// Empty answers entail nothing, so they support no reference, and the model does not judge them.
#[tokio::test]
async fn answers_without_a_word_support_nothing() {
    let mut input = input(&cases()[0], Weighting::Mean, true, false);
    for (answer, text) in input.with_context.iter_mut().zip(["", " ", "\n"].into_iter().cycle()) {
        text.clone_into(&mut answer.text);
    }
    for rule in [Rule::Strict, Rule::Loose, Rule::Threshold(0.1)] {
        input.options.rule = rule;
        let (report, _, judged) = measure_answers(&common::call(), &input, None).await.unwrap();
        let (soft, hard) = (report.seper_soft.unwrap().value, report.seper_hard.unwrap().value);
        assert_eq!((soft, hard, judged, report.clusters.founders.len()), (0.0, 0.0, 0, 1), "{rule:?}");
        assert_eq!(report.empty, input.with_context.len());
    }
}

/// A network above two gigabytes has its weights in other files, next to the network.
#[tokio::test]
async fn weights_may_lie_in_another_file() {
    let config = common::real_config();
    let library = config.store.locate("onnxruntime", models::catalog::Role::Library).unwrap().path;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/rerankers/three");
    let mut verdicts = Vec::new();
    for network in ["model.onnx", "external.onnx"] {
        let judge = broken(&folder.join(network), &library);
        let judged = judge.judge(vec![pair("who was far", "the sea")], &common::call()).await.unwrap();
        verdicts.push(judged.verdicts[0]);
    }
    assert_eq!(verdicts[0], verdicts[1]);
}

fn broken(network: &Path, library: &Path) -> Judge {
    let settings = onnx::Settings {
        network: network.to_owned(),
        name: "broken".into(),
        sha256: "0".repeat(64),
        library: library.to_owned(),
        threads: 1,
        batch: 0,
    };
    let loader = Box::new(move |serve: &mut dyn FnMut(&mut dyn prefix_scheduler::model::entailment::Entailment)| {
        onnx::with_model(&settings, serve)
    });
    Judge::start(EntailmentOptions { cache_entries: 10 }, ConfiguredModel::default(), loader).unwrap()
}

/// Each fault names its file, and the process continues.
#[tokio::test]
async fn faults_of_the_model_name_the_file() {
    let config = common::real_config();
    let located = config.store.locate("deberta-v3-xsmall-nli", models::catalog::Role::Entailment).unwrap();
    let library = config.store.locate("onnxruntime", models::catalog::Role::Library).unwrap().path;
    let folder = tempfile::tempdir().unwrap();
    let network = folder.path().join("net.onnx");
    let judge = |network: &Path, library: &Path| broken(network, library);
    let problem = |judge: Judge| async move {
        match judge.judge(vec![pair("a", "b")], &common::call()).await.unwrap_err() {
            ScheduleError::Model(error) => error.to_string(),
            other => other.to_string(),
        }
    };
    assert!(problem(judge(&network, &library)).await.contains("net.onnx: "), "no file");
    std::fs::copy(&located.path, &network).unwrap();
    assert!(problem(judge(&network, &library)).await.contains("config.json: "), "not the network of the head");
    for (config, expected) in [
        (r#"{"id2label":{"0":"good","1":"bad","2":"ugly"}}"#, "id2label: "),
        ("{", "config.json: "),
        (r#"{"id2label":{"0":"entailment","1":"neutral","2":"contradiction"}}"#, "tokenizer.json: "),
    ] {
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        let found = problem(judge(&network, &library)).await;
        assert!(found.contains(expected), "{found}");
    }
    std::fs::copy(located.path.with_file_name("tokenizer.json"), folder.path().join("tokenizer.json")).unwrap();
    let found = problem(judge(&network, &library)).await;
    assert!(found.contains("net.onnx: "), "two outputs for three labels: {found}");
    std::fs::write(&network, b"this is no network").unwrap();
    assert!(problem(judge(&network, &library)).await.contains("net.onnx: "));
}

/// Perplexity by numpy, ROUGE-L by Google's rouge_score 0.1.2 (tests/golden/belief/uncertainty.py).
#[tokio::test]
async fn perplexity_and_lexical_similarity_are_those_of_independent_programs() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("belief/uncertainty.json")).unwrap();
    assert_eq!(cases.len(), 40);
    for mut case in cases {
        (case["question"], case["reference"]) = ("".into(), "".into());
        let mut input = input(&case, Weighting::Sum, false, false);
        input.references.clear();
        // Every pair has a verdict, so no model is needed.
        let texts: Vec<String> = input.with_context.iter().map(|response| response.text.clone()).collect();
        let neutral = Verdict { entailment: 0.0, neutral: 1.0, contradiction: 0.0 };
        let pair = |left: &String| texts.iter().map(|right| (left.clone(), right.clone(), neutral)).collect::<Vec<_>>();
        input.verdicts = texts.iter().flat_map(pair).collect();
        let (report, ..) = measure_answers(&common::call(), &input, None).await.unwrap();
        let near = |value: f64, key: &str| {
            let expected = case[key].as_f64().unwrap();
            assert!((value - expected).abs() < 1e-9 * expected.max(1.0), "{key}: {value} against {expected}");
        };
        let perplexity = report.perplexity.unwrap();
        near(perplexity.value, "perplexity");
        near(perplexity.standard_error.unwrap(), "perplexity_error");
        near(report.lexical_similarity.unwrap().value, "lexical_similarity");
    }
}
