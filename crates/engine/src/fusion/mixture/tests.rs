use super::*;
use crate::types::{Learnt, ScoreParts};

fn request(scores: &[Option<f64>]) -> RerankRequest {
    let passage = |(index, score): (usize, &Option<f64>)| Passage {
        id: index.to_string(),
        text: if index == 1 { "the mill wheel".into() } else { "a weir".into() },
        retriever_score: *score,
        ..Passage::default()
    };
    let passages = scores.iter().enumerate().map(passage).collect();
    RerankRequest { query: "which mill?".into(), passages, ..RerankRequest::default() }
}

#[test]
fn the_retrievers_scores_or_bm25() {
    let given = Fusion::of(&request(&[Some(3.0), Some(2.0), Some(1.0)]));
    assert_eq!((given.report.source, given.warning), (Source::Retriever, None));
    let one_missing = Fusion::of(&request(&[Some(3.0), Some(2.0), None]));
    assert_eq!(one_missing.scores, [3.0, 2.0, 2.0]);
    assert!(one_missing.warning.unwrap().starts_with("some passages"));
    let most_missing = Fusion::of(&request(&[Some(3.0), None, None]));
    assert_eq!((most_missing.report.source, most_missing.order()[0]), (Source::Bm25, 1));
    assert!(most_missing.warning.is_some());
    assert_eq!(Fusion::of(&request(&[None, None])).warning, None, "no score at all is nothing to warn of");
}

#[test]
fn an_embedding_model_is_a_part_of_the_other_side() {
    let fusion = Fusion::of(&request(&[Some(3.0), Some(2.0), Some(1.0)]))
        .with_embedding((&[0.2, 0.4, 0.6], &[]), &FusionOptions::default());
    // The cosines' variance is (3 · 0.08 / 3 + 2/9 · 0.165²) / (3 + 2/9) = 0.026705, their deviation 0.163417:
    // The mean of the scores is (3 · 2 / 3 + 2/9 · 0.9²) / (3 + 2/9) = 0.676552, their deviation 0.822528:
    // 0.6 · (-1.22386, 0, 1.22386) + 0.4 · (1.21576, 0, -1.21576)
    let expected = [-0.248_011, 0.0, 0.248_011];
    let close = |(one, other): (&f64, f64)| (one - other).abs() < 1e-5;
    assert!(fusion.scores.iter().zip(expected).all(close), "{:?}", fusion.scores);
    assert_eq!((fusion.report.weight, fusion.report.embedding), (0.35, Some(0.6)));
    let lexical = Fusion::of(&request(&[None; 3])).with_embedding((&[0.2, 0.4, 0.6], &[]), &FusionOptions::default());
    assert_eq!((lexical.report.weight, lexical.report.embedding), (0.4, Some(0.7)));
    assert_eq!(fusion.order(), [2, 1, 0]);
    // Equal cosines leave the first-stage order.
    let asked = FusionOptions { weight: Some(0.9), ..FusionOptions::default() };
    let flat = Fusion::of(&request(&[Some(3.0), Some(2.0), Some(1.0)])).with_embedding((&[0.5; 3], &[]), &asked);
    assert_eq!((flat.order(), flat.report.weight), (vec![0, 1, 2], 0.9));
}

/// A learnt share applies only with the other side that it was learnt with.
#[test]
fn learnt_shares_are_mixed() {
    let of = |learnt, weight| FusionOptions { weight, learnt, ..FusionOptions::default() };
    let report = |options: &FusionOptions| {
        let request = RerankRequest { fusion: options.clone(), ..request(&[Some(3.0), Some(2.0), Some(1.0)]) };
        let alone = Fusion::of(&request);
        (alone.report.weight, alone.with_embedding((&[0.2, 0.4, 0.6], &[]), options).report)
    };
    let (alone, beside) = report(&of(Learnt { alone: Some(0.7), with_embedding: None }, None));
    assert_eq!((alone, beside.weight, beside.embedding), (0.7, 0.35, Some(0.6)));
    let learnt = Learnt { alone: None, with_embedding: Some(Shares { weight: 0.2, embedding: 1.0 }) };
    let (alone, beside) = report(&of(learnt, None));
    assert_eq!((alone, beside.weight, beside.embedding), (WEIGHT, 0.2, Some(1.0)));
    let (_, beside) = report(&of(learnt, Some(0.9)));
    assert_eq!((beside.weight, beside.embedding), (0.9, Some(1.0)));
    // The request's own values come first.
    let asked = FusionOptions { embedding: Some(0.1), ..of(learnt, None) };
    let (_, beside) = report(&asked);
    assert_eq!(
        (beside.weight, beside.embedding, asked.is_left_to(RerankRequest::default().method())),
        (0.2, Some(0.1), false)
    );
    let beyond = FusionOptions { embedding: Some(1.1), ..FusionOptions::default() };
    assert!(beyond.check().unwrap_err().to_string().starts_with("fusion.embedding_weight"));
    // With the standardised sides of the test above, only the cosines count.
    let mixed = Fusion::of(&request(&[Some(3.0), Some(2.0), Some(1.0)]));
    let mixed = mixed.with_embedding((&[0.2, 0.4, 0.6], &[]), &of(learnt, None));
    let close = |(one, other): (&f64, f64)| (one - other).abs() < 1e-5;
    assert!(mixed.scores.iter().zip([-1.223_86, 0.0, 1.223_86]).all(close), "{:?}", mixed.scores);
}

/// Worked by hand: the first two cosines as in the test above, 0.1 and -0.1 from their mean of 0.3. Their variance is (2 · 0.01 + 0.5 ·
/// 0.165²) / 2.5 = 0.013445, their deviation 0.115953; that of the scores 3 and 2 is (2 · 0.25 + 0.5 · 0.9²) / 2.5 = 0.362, 0.601664.
/// 0.6 · (0.1 / 0.115953, -0.1 / 0.115953) + 0.4 · (-0.5 / 0.601664, 0.5 / 0.601664)
#[test]
fn passages_without_a_cosine_come_after_the_others_in_their_own_order() {
    let scores = [Some(1.5), Some(2.0), Some(3.0), Some(1.0)];
    let fusion =
        Fusion::of(&request(&scores)).with_embedding((&[f64::NAN, 0.4, 0.2, f64::NAN], &[]), &FusionOptions::default());
    assert!((fusion.scores[1] - 0.185_041).abs() < 1e-5, "{:?}", fusion.scores);
    assert!((fusion.scores[2] + 0.185_041).abs() < 1e-5, "{:?}", fusion.scores);
    assert_eq!((fusion.order(), fusion.comparable), (vec![1, 2, 0, 3], 2));
    let known = fusion.score_parts(&[f64::NAN; 4], true, 10.0);
    assert_eq!(known.iter().map(|one| one.embedding.is_some()).collect::<Vec<_>>(), [false, true, true, false]);
    assert!(known.iter().all(|one| one.model.is_none() && one.source.is_some() == one.embedding.is_some()));
    let all = Fusion::of(&request(&scores)).with_embedding((&[0.1, 0.4, 0.2, 0.3], &[]), &FusionOptions::default());
    assert_eq!(all.comparable, 4);
}

/// The score parts of a passage are the inputs of its place, whatever part of the list was evaluated.
#[test]
fn signals_add_up_to_the_value_that_orders_the_list() {
    let cosines = [0.1, 0.4, 0.2, 0.3];
    let request = request(&[Some(1.5), Some(2.0), Some(3.0), Some(1.0)]);
    let utilities = [3.0, -1.0, 4.0, 0.5];
    let sum = |one: &ScoreParts| [one.model, one.embedding, one.source].into_iter().flatten().sum::<f64>();
    for (cosines, scaling) in
        [(true, None), (false, Some(Scaling::MinMax)), (false, None), (false, Some(Scaling::Standard))]
    {
        let options = FusionOptions { scaling, ..FusionOptions::default() };
        let mut fusion = Fusion::of(&RerankRequest { fusion: options.clone(), ..request.clone() });
        if cosines {
            fusion = fusion.with_embedding((&[0.1, 0.4, 0.2, 0.3], &[]), &options);
        }
        let (values, _) = fusion.values(&utilities, true, 5.0);
        let score_parts = fusion.score_parts(&utilities, true, 5.0);
        let sums: Vec<f64> = score_parts.iter().map(sum).collect();
        assert_eq!(descending(&sums), descending(&values), "{cosines} {scaling:?}");
        // Values are a linear function of the sums.
        let slope = (values[0] - values[1]) / (sums[0] - sums[1]);
        for passage in 1..4 {
            let expected = values[0] + slope * (sums[passage] - sums[0]);
            assert!((values[passage] - expected).abs() < 1e-9, "{cosines} {scaling:?}: {values:?} {sums:?}");
        }
        assert!(score_parts.iter().all(|one| one.model.is_some() && one.embedding.is_some() == cosines));
    }
    // The model did not evaluate the last one: its other parts are on the same scale.
    let fusion = Fusion::of(&request).with_embedding((&cosines, &[]), &FusionOptions::default());
    let part = fusion.score_parts(&[3.0, -1.0, 4.0, f64::NAN], true, 5.0);
    assert!(part[3].model.is_none(), "{part:?}");
    let apart = |one: usize, other: usize| {
        let of = |passage: usize| part[passage].embedding.unwrap();
        (of(one) - of(other)) / (cosines[one] - cosines[other])
    };
    assert!(apart(3, 0) > 0.0 && (apart(3, 0) - apart(1, 0)).abs() < 1e-9, "{part:?}");
    // With another scaling, cosines and the retriever's scores are one side.
    let ranks = FusionOptions { scaling: Some(Scaling::ReciprocalRank), ..FusionOptions::default() };
    let ranked =
        Fusion::of(&RerankRequest { fusion: ranks.clone(), ..request }).with_embedding((&cosines, &[]), &ranks);
    assert!(ranked.score_parts(&utilities, true, 5.0).is_empty());
}

/// The model prefers the first by 45 nats, the other side the second by nearly as much: almost a tie. The values
/// were -50.9 and -90.9.
#[test]
fn a_tie_of_two_sides_is_a_tie() {
    let mut fusion = Fusion::of(&request(&[Some(1.0), Some(2.0)]));
    fusion.scores = vec![-0.3925, 0.3925];
    fusion.report.embedding = Some(0.6);
    fusion.has_floor = false;
    fusion.report.weight = 0.4;
    let (values, _) = fusion.values(&[20.0, -25.0], true, 10.0);
    // Utilities less their mean -2.5, over √((2 · 22.5² + 2/4 · 5.5²) / 2.5) = 20.274: ±1.1098, zero at 0.4 · 2.5 / 20.274 =
    // 0.0493. The others over √((2 · 0.3925² + 2/4 · 0.94²) / 2.5) = 0.5477: ∓0.7167. f = ±(0.4439 - 0.4300) = ±0.0139.
    // A nat is 0.4 / 20.274 = 0.01973 of f.
    let expected = [-1.79, -3.21];
    assert!(values.iter().zip(expected).all(|(one, other)| (one - other).abs() < 0.05), "{values:?}");
}

/// The best of a long list are evaluated. All lie above the list's mean, and are still standardised.
#[test]
fn a_part_of_a_list_beside_an_embedding_model_is_standardised() {
    let mut fusion = Fusion::of(&request(&[Some(9.0), Some(8.0), Some(7.0)]));
    fusion.scores = vec![1.5, 0.9, 0.3];
    fusion.report.embedding = Some(0.6);
    fusion.has_floor = false;
    fusion.report.weight = 0.5;
    let (values, report) = fusion.values(&[6.0, -2.0, -1.0], true, 1.0);
    assert_eq!(report.scaling, Scaling::Standard);
    // Utilities less their mean 1 over 3.4371: 1.4547, -0.8728, -0.5819, zero at -0.2909. The others over 0.5333: ±1.1251 and 0.
    // f = 1.2899, -0.4364, -0.8535, and -0.1455 at the zero: values 6 · (1, -0.2027, -0.4933).
    let expected = [6.0, -1.2162, -2.9596];
    assert!(values.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-3), "{values:?}");
    // A best passage near the zero neither stretches the list nor makes the others its equals. Utilities are
    // clipped at 1.1 below it: 0.01, -1.09 and -1.09 deviate by 0.52078, two of which are the worth of a usual
    // range of 4. The deviation of all is 3.8936: f = 1.2911, -0.3002, -0.9911.
    let (near, _) = fusion.values(&[0.01, -8.0, -9.0], true, 1.0);
    let expected = [0.01, 0.01 - 0.260_39 * 1.5913, 0.01 - 0.260_39 * 2.2822];
    assert!(near.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-3), "{near:?}");
    // A best passage just below the zero has the same effect.
    let (below, _) = fusion.values(&[-0.01, -8.02, -9.02], true, 1.0);
    assert!(near.iter().zip(&below).all(|(one, other)| (one - other - 0.02).abs() < 1e-9), "{near:?} {below:?}");
    // Equal utilities have no spread: only the other side decides between them.
    let (flat, _) = fusion.values(&[2.0; 3], true, 1.0);
    assert_eq!(descending(&flat), [0, 1, 2]);
    assert!(flat.iter().all(|value| value.is_finite()), "{flat:?}");
}

/// Standardised without typical deviations, two scores are always one deviation from their mean: the sign of a
/// difference of 0.001 between cosines then outweighed fifty nats.
#[test]
fn in_a_short_list_the_size_of_differences_counts() {
    let order = |scores: &[f64], cosines: &[f64], utilities: &[f64]| {
        let scores: Vec<_> = scores.iter().copied().map(Some).collect();
        let fusion = Fusion::of(&request(&scores)).with_embedding((cosines, &[]), &FusionOptions::default());
        descending(&fusion.values(utilities, true, 10.0).0)
    };
    assert_eq!(order(&[3.0, 2.0], &[0.500, 0.501], &[40.0, -10.0]), [0, 1]);
    assert_eq!(order(&[2.5, 3.0], &[0.500, 0.501], &[40.0, -10.0]), [0, 1]);
    assert_eq!(order(&[3.0, 2.0, 1.0], &[0.50, 0.51, 0.50], &[40.0, -10.0, -10.0])[0], 0);
    // A retriever's scores may be as close to each other.
    assert_eq!(order(&[3.0, 3.000_000_1], &[0.5, 0.5], &[17.0, 10.0]), [0, 1]);
    assert_eq!(order(&[3.000_000_1, 3.0], &[0.5, 0.5], &[10.0, 17.0]), [1, 0]);
    // A tenth of a nat is as small; the cosines' usual difference then decides.
    assert_eq!(order(&[2.0, 3.0], &[0.2, 0.5], &[10.1, 10.0]), [1, 0]);
}

/// Three copies of one helpful passage: the other side orders them, and none loses value.
#[test]
fn passages_that_are_alike_have_like_values() {
    let fusion = Fusion::of(&request(&[Some(-1.0), Some(-2.0), Some(-3.0)]));
    for utilities in [[5.0; 3], [5.0, 5.0 + 1e-7, 5.0]] {
        let (values, report) = fusion.values(&utilities, true, 10.0);
        assert_eq!(report.scaling, Scaling::Standard);
        assert!(values.iter().all(|value| (value - 5.0).abs() < 1e-4), "{values:?}");
    }
    assert_eq!(descending(&fusion.values(&[5.0; 3], true, 10.0).0), [0, 1, 2]);
    let (harmful, _) = fusion.values(&[-5.0; 3], true, 10.0);
    assert!(harmful.iter().all(|value| *value <= -5.0), "{harmful:?}");
}

/// Only the first passages are evaluated: their scores by themselves had a floor although the list has none.
#[test]
fn a_part_of_a_list_has_the_floor_of_the_list() {
    let list = Fusion::of(&request(&[Some(3.0), Some(1.0), Some(-2.0)]));
    let part = Fusion { scores: vec![3.0, 1.0], ..list };
    assert_eq!(part.values(&[5.0, 2.0], true, 1.0).1.scaling, Scaling::Standard);
    let all_above = Fusion::of(&request(&[Some(3.0), Some(1.0), Some(0.0)]));
    assert_eq!(all_above.values(&[5.0, 2.0, 1.0], true, 1.0).1.scaling, Scaling::Floor);
}

#[test]
fn values_keep_the_unit_and_the_fused_order() {
    let fusion = Fusion::of(&request(&[Some(12.0), Some(9.0), Some(3.0)]));
    let (values, report) = fusion.values(&[2.0, 5.0, 3.0], true, 1.0);
    assert_eq!(report.scaling, Scaling::Floor);
    // f = 0.6 · (0.4, 1, 0.6) + 0.4 · (1, 0.75, 0.25) = 0.64, 0.9, 0.46
    assert!((values[1] - 5.0).abs() < 1e-12 && (values[0] - 5.0 * 0.64 / 0.9).abs() < 1e-12, "{values:?}");
    let (harmful, _) = fusion.values(&[-2.0, -5.0, -3.0], true, 1.0);
    assert_eq!(descending(&harmful), [0, 1, 2]);
    assert!(harmful.iter().all(|value| *value <= -2.0), "{harmful:?}");
    // Without a floor the lowest value is 0, not a negative number from the scaling.
    let (standard, report) = fusion.values(&[2.0, 5.0, 3.0], false, 1.0);
    assert_eq!(report.scaling, Scaling::Standard);
    assert!(standard.iter().all(|value| (0.0..=5.0).contains(value)), "{standard:?}");
}

/// A passage eight nats worse than the best had a score of 0.5, and outranked it with a probability of 0.5.
#[test]
fn differences_count_where_the_best_passage_hardly_helps() {
    let scored = request(&[Some(3.0), Some(2.0), Some(1.0)]);
    let scaled = |scaling| {
        let fusion = FusionOptions { scaling: Some(scaling), ..FusionOptions::default() };
        Fusion::of(&RerankRequest { fusion, ..scored.clone() })
    };
    let fusions = [
        Fusion::of(&scored).with_embedding((&[0.6, 0.5, 0.4], &[]), &FusionOptions::default()),
        Fusion::of(&scored),
        Fusion::of(&request(&[Some(-1.0), Some(-2.0), Some(-3.0)])),
        scaled(Scaling::MinMax),
        scaled(Scaling::ReciprocalRank),
    ];
    for fusion in fusions {
        for best in [0.1, 1e-9, 0.0, -1e-9, -0.1] {
            let (values, report) = fusion.values(&[best, -8.0, -9.0], true, 10.0);
            assert!(values[0] <= best && values[0] - values[1] > 1.0, "{report:?} {best} {values:?}");
            assert!(values[0] - values[2] > 2.0, "{report:?} {best} {values:?}");
        }
    }
    // One passage, and many without a spread, stay what they are.
    let one = Fusion::of(&request(&[Some(3.0)])).with_embedding((&[0.5], &[]), &FusionOptions::default());
    for utility in [4.0, 0.0, -4.0] {
        assert_eq!(one.values(&[utility], true, 10.0).0, [utility]);
    }
    let none = Fusion::of(&request(&[Some(-1.0); 3])).values(&[0.0; 3], true, 10.0).0;
    assert_eq!(none, [0.0; 3]);
}

/// The second passage helps nearly as much as the first. A very harmful third passage turned its value negative.
#[test]
fn a_harmful_passage_takes_little_from_the_others() {
    let scored = request(&[Some(12.0), Some(9.0), Some(3.0)]);
    // f = 1, 0.888 and 0.1. 5, 4.9 and -3 deviate by 3.7479, and down to twice 5.5 below the best, 5, 4.9 and -6, by 5.1620.
    for (harm, deviation) in [(-3.0, 3.7479), (-30.0, 5.1620), (-300.0, 5.1620)] {
        let (values, _) = Fusion::of(&scored).values(&[5.0, 4.9, harm], true, 10.0);
        let expected = 5.0 - 0.112 * 2.0 * deviation;
        assert!((values[0] - 5.0).abs() < 1e-12 && (values[1] - expected).abs() < 1e-3, "{values:?} {expected}");
    }
    // Nothing is near zero here, so the least worth does not apply.
    let (values, _) = Fusion::of(&scored).values(&[5.0, 1.0, 0.0], true, 10.0);
    assert!((values[1] - 5.0 * 0.42).abs() < 1e-12, "{values:?}");
}

/// The first passage's cosine is the highest, but meaningless.
#[test]
fn a_passage_that_the_embedding_model_cannot_read_counts_as_average() {
    let scores = [Some(1.0), Some(1.0), Some(1.0), Some(1.0)];
    let mixed = |cosines: &[f64], unreadable: &[bool]| {
        Fusion::of(&request(&scores[..cosines.len()])).with_embedding((cosines, unreadable), &FusionOptions::default())
    };
    let found = mixed(&[0.9, 0.1, 0.25, 0.3], &[true, false, false, false]);
    let alone = mixed(&[0.1, 0.25, 0.3], &[]);
    assert_eq!(found.order(), [3, 2, 0, 1]);
    assert_eq!(found.scores[1..], alone.scores);
    assert_eq!((found.comparable, found.scores[0].abs() < 1e-12), (4, true));
}
