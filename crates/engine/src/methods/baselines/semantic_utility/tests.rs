//! Answers with given entailment, without a model.

use proptest::prelude::*;

use super::*;

/// Equally likely answers.
fn answers(texts: &[&str]) -> Vec<Answer> {
    let likelihood = Likelihood { sum: -2.0, tokens: 2 };
    texts.iter().map(|text| Answer { text: (*text).to_owned(), likelihood }).collect()
}

/// Answers of one token with these likelihoods, times a constant.
fn weighed(answers: &[(&str, f64)]) -> Vec<Answer> {
    let likelihood = |weight: f64| Likelihood { sum: (weight / 100.0).ln(), tokens: 1 };
    answers.iter().map(|(text, weight)| Answer { text: (*text).to_owned(), likelihood: likelihood(*weight) }).collect()
}

/// Judges all requested pairs by the texts after the question.
fn measure(contexts: &[Vec<Answer>], entails: impl Fn(&str, &str) -> f64) -> (Scored, Vec<(String, String)>) {
    judged(contexts, |premise, hypothesis| {
        let entailment = entails(premise, hypothesis);
        Verdict { entailment, neutral: 1.0 - entailment, contradiction: 0.0 }
    })
}

/// The semantic utility with whole verdicts.
fn judged(contexts: &[Vec<Answer>], verdict: impl Fn(&str, &str) -> Verdict) -> (Scored, Vec<(String, String)>) {
    let mut judging = Judging::new("who", contexts).unwrap().unwrap();
    let (mut asked, passages) = (Vec::new(), contexts.len() - FIRST);
    loop {
        let open = judging.open();
        if open.is_empty() {
            return (judging.scored(passages).unwrap(), asked);
        }
        let bare = |text: &str| text.strip_prefix("who? ").unwrap().to_owned();
        let judge = |pair| {
            let pair = judging.texts.pair(pair);
            let (premise, hypothesis) = (bare(&pair.premise), bare(&pair.hypothesis));
            let verdict = verdict(&premise, &hypothesis);
            asked.push((premise, hypothesis));
            verdict
        };
        let verdicts: Vec<Verdict> = open.into_iter().map(judge).collect();
        judging.absorb(&verdicts);
    }
}

/// Texts with the same first letter mean the same.
fn alike(premise: &str, hypothesis: &str) -> f64 {
    f64::from(u8::from(premise[..1] == hypothesis[..1]))
}

/// With all passages: a twice in two forms (weights 2 and 1), b once, and one empty answer, so a weighs 3/4 and b
/// 1/4. The first passage gives a, b and an empty answer with weights 2, 1 and 1: 1/2 · 3/4 + 1/4 · 1/4 = 7/16.
/// None gives b, c and an empty answer with weights 1, 1 and 2: 1/4 · 1/4 = 1/16. The second passage gives only c.
///
/// Left out one after the other: with the first passage 3, 12 and 14, without 0, 2 and 3, in 24ths. The differences
/// 3, 10 and 11 deviate from their mean by -5, 2 and 3, so the squared error is 2/3 · 38/24² = 19/432. As
/// independent sets it would be 2/3 · (206/3 + 14/3)/24² = 55/648. The second passage shows no deviation; its error
/// is the error of none, 2/3 · (14/3)/24² = 7/1296.
#[test]
fn by_hand() {
    let contexts = [
        weighed(&[("b", 1.0), ("c", 1.0), ("", 2.0)]),
        weighed(&[("a", 2.0), ("ax", 1.0), ("b", 1.0), ("", 4.0)]),
        weighed(&[("a", 2.0), ("b", 1.0), ("", 1.0)]),
        weighed(&[("c", 3.0), ("c", 1.0), ("c", 1.0)]),
    ];
    let (scored, asked) = measure(&contexts, alike);
    assert!((scored.utilities[0] - 6.0 / 16.0).abs() < 1e-12 && (scored.utilities[1] + 1.0 / 16.0).abs() < 1e-12);
    assert_eq!((scored.ranking, scored.unit, scored.has_zero), (vec![0, 1], 1.0, true));
    let squared: Vec<f64> = scored.standard_errors.unwrap().iter().map(|error| error * error).collect();
    assert!((squared[0] - 19.0 / 432.0).abs() < 1e-12 && (squared[1] - 7.0 / 1_296.0).abs() < 1e-12, "{squared:?}");
    // Clusters: ax with a, then b with a, in both directions. Then a, b and c against a and b, except known pairs.
    let texts = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(left, right)| ((*left).to_owned(), (*right).to_owned())).collect()
    };
    let mut expected = texts(&[("ax", "a"), ("a", "ax"), ("b", "a"), ("a", "b")]);
    expected.extend(texts(&[("a", "a"), ("b", "b"), ("c", "a"), ("c", "b")]));
    let sorted = |mut pairs: Vec<(String, String)>| {
        pairs.sort();
        pairs
    };
    assert_eq!(sorted(asked), sorted(expected));
}

#[test]
fn a_passage_that_says_what_the_list_says_has_the_whole_difference() {
    let contexts = [answers(&["c", "d"]), answers(&["a", "a"]), answers(&["a", "a"]), answers(&["c", "d"])];
    let (scored, _) = measure(&contexts, alike);
    assert_eq!((scored.utilities, scored.standard_errors.unwrap()), (vec![1.0, 0.0], vec![0.0, 0.0]));
    assert!(Judging::new("who", &[answers(&["c"]), answers(&[""]), answers(&["a"])]).unwrap().is_none());
}

/// The answers that give the meanings differ from the judged ones, also for a list of one passage: an answer with a
/// unique meaning does not support itself.
#[test]
fn no_answer_is_judged_against_its_own_meaning() {
    let (scored, _) = measure(&[answers(&["c", "c"]), answers(&["a", "b"]), answers(&["d", "e"])], alike);
    assert_eq!(scored.utilities, [0.0]);
    let (scored, _) = measure(&[answers(&["c", "a"]), answers(&["a", "a"]), answers(&["a", "a"])], alike);
    assert_eq!(scored.utilities, [0.5]);
    for passages in [1, 3] {
        let seeds = seeds(passages);
        assert_eq!((seeds.len(), contexts(passages)[WHOLE].len()), (passages + 2, passages));
        let judged = [&[NONE][..], &(FIRST..passages + 2).collect::<Vec<_>>()].concat();
        assert!(judged.iter().all(|&context| seeds[context] == seeds[NONE]), "paired");
        assert!(seeds[WHOLE].iter().all(|seed| !seeds[NONE].contains(seed)));
    }
}

/// Answers of the default generator and verdicts of the default entailment model, both computed by an independent
/// program, and its utilities from them (tests/golden/generator/semantic_utility.py).
#[test]
fn utilities_agree_with_an_independent_program() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/generator/semantic_utility.json");
    let golden: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let example = &golden["example"];
    let numbers = |value: &serde_json::Value| -> Vec<f64> { serde_json::from_value(value.clone()).unwrap() };
    let answer = |answer: &serde_json::Value| {
        let logs = numbers(&answer["token_log_probabilities"]);
        let likelihood = Likelihood { sum: logs.iter().sum(), tokens: logs.len() };
        Answer { text: answer["text"].as_str().unwrap().to_owned(), likelihood }
    };
    let contexts: Vec<Vec<Answer>> = example["contexts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|context| context.as_array().unwrap().iter().map(answer).collect())
        .collect();
    let verdicts: HashMap<(&str, &str), Vec<f64>> = example["verdicts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let text = |name: &str| row[name].as_str().unwrap();
            ((text("premise"), text("hypothesis")), numbers(&row["probabilities"]))
        })
        .collect();
    let (scored, _) = judged(&contexts, |premise, hypothesis| {
        // The program asks nothing more about an answer that has found its cluster.
        let row = verdicts.get(&(premise, hypothesis)).map_or(&[0.0, 1.0, 0.0][..], Vec::as_slice);
        Verdict { entailment: row[0], neutral: row[1], contradiction: row[2] }
    });
    let near = |ours: &[f64], theirs: &[f64]| {
        assert!(ours.len() == theirs.len() && theirs.iter().any(|value| value.abs() > 0.01), "{theirs:?}");
        assert!(ours.iter().zip(theirs).all(|(ours, theirs)| (ours - theirs).abs() < 1e-9), "{ours:?} {theirs:?}");
    };
    near(&scored.utilities, &numbers(&example["utilities"]));
    near(&scored.standard_errors.unwrap(), &numbers(&example["standard_errors"]));
}

/// The seeds of the answers of each context.
fn seeds(passages: usize) -> Vec<Vec<u64>> {
    let language = Language::new(
        Arc::new(prefix_scheduler::scripted::ByteTokenizer::default()),
        prefix_scheduler::model::PromptFormat::Plain,
    );
    let query = language.query("who");
    let request = RerankRequest { query: "who".to_owned(), ..RerankRequest::default() };
    let task = Task {
        request,
        language: Some(language),
        passages: vec![vec![1, 2].into(); passages],
        query,
        mixed_model: None,
    };
    let (task, count) = (Arc::new(task), options(&RerankRequest::default()).count());
    let stop = options(&task.request).text_stop(task.language().unwrap());
    let drawing = Measuring { task, stop, step: Step::Draw }.drawing().unwrap();
    let seed = |prompt: &Prompt| prompt.grow.as_ref().unwrap().seed;
    drawing.chunks(count).map(|context| context.iter().map(seed).collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// For any answers and verdicts: between -1 and 1.
    #[test]
    fn bounded(
        picks in proptest::collection::vec(proptest::collection::vec(0_usize..6, 3..4), 4..7),
        table in proptest::collection::vec(0.0_f64..1.0, 25),
    ) {
        let texts = ["a", "b", "c", "d", "e", ""];
        let mut contexts: Vec<Vec<Answer>> =
            picks.iter().map(|row| answers(&row.iter().map(|&pick| texts[pick]).collect::<Vec<_>>())).collect();
        contexts[WHOLE][0].text = "a".into();
        let place = |text: &str| texts.iter().position(|known| *known == text).unwrap();
        let (scored, _) = measure(&contexts, |left, right| table[5 * place(left) + place(right)]);
        prop_assert!(scored.utilities.iter().all(|utility| utility.abs() < 1.0 + 1e-12), "{:?}", scored.utilities);
    }
}
