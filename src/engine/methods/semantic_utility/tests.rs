//! Answers whose entailment is given, without a model.

use proptest::prelude::*;

use super::*;

/// Equally likely answers.
fn answers(texts: &[&str]) -> Vec<Answer> {
    let likelihood = Likelihood { sum: -2.0, tokens: 2 };
    texts.iter().map(|text| Answer { text: (*text).to_owned(), likelihood }).collect()
}

/// Judges everything that is asked for by the texts after the question.
fn measure(contexts: &[Vec<Answer>], entails: impl Fn(&str, &str) -> f64) -> (Scored, Vec<(String, String)>) {
    let mut judging = Judging::new("who", contexts).unwrap().unwrap();
    let (mut asked, passages) = (Vec::new(), (contexts.len() - 2).max(1));
    loop {
        let open = judging.open();
        if open.is_empty() {
            return (judging.scored(passages).unwrap(), asked);
        }
        let bare = |text: &str| text.strip_prefix("who? ").unwrap().to_owned();
        let judge = |pair| {
            let pair = judging.texts.pair(pair);
            let (premise, hypothesis) = (bare(&pair.premise), bare(&pair.hypothesis));
            let entailment = entails(&premise, &hypothesis);
            asked.push((premise, hypothesis));
            Verdict { entailment, neutral: 1.0 - entailment, contradiction: 0.0 }
        };
        let verdicts: Vec<Verdict> = open.into_iter().map(judge).collect();
        judging.absorb(&verdicts);
    }
}

/// Texts with the same first letter mean the same.
fn alike(premise: &str, hypothesis: &str) -> f64 {
    f64::from(u8::from(premise[..1] == hypothesis[..1]))
}

/// With all passages: a twice in two forms, b once, and one empty answer, so a weighs 2/3 and b 1/3. The first passage
/// alone gives a, a, b and nothing: (2/3 + 2/3 + 1/3) / 4 = 5/12. None gives c, c, b and nothing: 1/12. The second gives
/// nothing but c.
#[test]
fn by_hand() {
    let contexts = [
        answers(&["c", "c", "b", ""]),
        answers(&["a", "ax", "b", ""]),
        answers(&["a", "a", "b", ""]),
        answers(&["c", "c", "c", "c"]),
    ];
    let (scored, asked) = measure(&contexts, alike);
    assert!((scored.utilities[0] - 4.0 / 12.0).abs() < 1e-12 && (scored.utilities[1] + 1.0 / 12.0).abs() < 1e-12);
    assert_eq!((scored.ranking, scored.unit, scored.has_zero), (vec![0, 1], 1.0, true));
    assert!(scored.standard_errors.unwrap().iter().all(|error| *error > 0.0));
    // Clusters: ax with a, then b with a, in both directions. Then a, b and c against a and b, less what is known.
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
    // One passage is the whole list, and is measured with its answers.
    let (scored, _) = measure(&[answers(&["c", "a"]), answers(&["a", "a"])], alike);
    assert_eq!(scored.utilities, [0.5]);
    assert!(Judging::new("who", &[answers(&["c"]), answers(&[""])]).unwrap().is_none());
    assert_eq!(contexts_of(1), (2, vec![0]));
    assert_eq!(contexts_of(3), (5, vec![0, 1, 2]));
}

fn contexts_of(passages: usize) -> (usize, Vec<usize>) {
    let contexts = contexts(passages);
    (contexts.len(), contexts[WHOLE].clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever the answers and the verdicts: between -1 and 1.
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
