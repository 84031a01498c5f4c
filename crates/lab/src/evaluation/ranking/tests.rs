use super::*;
use engine::fusion::mixture;
use engine::types::{
    Arrangement, ContextOrder, FusionReport, Ground, Passage, Ranked, RankingStage, Reranked, Scaling, Source, Usage,
};

/// The model's share, and the built-in one of the cosines.
fn shares(weight: f64) -> Shares {
    Shares { weight, ..mixture::embedding_shares(Source::Retriever) }
}

/// A list whose passages have these utilities and retriever scores; the labels are 1 and 0.
fn list(rows: &[(f64, f64, bool)], fuses: bool) -> Observed {
    list_beside(rows, fuses, None)
}

/// [`list`] with an embedding model that gives these cosines.
fn list_beside(rows: &[(f64, f64, bool)], fuses: bool, cosines: Option<Vec<f64>>) -> Observed {
    let given = rows
        .iter()
        .enumerate()
        .map(|(index, row)| Passage {
            id: index.to_string(),
            text: "x".into(),
            retriever_score: Some(row.1),
            ..Passage::default()
        })
        .collect();
    let request = RerankRequest { query: "y".into(), passages: given, ..RerankRequest::default() };
    let ranked = |(index, row): (usize, &(f64, f64, bool))| Ranked {
        index,
        score: 0.5,
        utility: row.0,
        alone: row.0,
        standard_error: None,
        outranks_next: None,
        tokens_cut: 0,
        stage: RankingStage::Alone,
        score_parts: None,
        duplicates: Vec::new(),
    };
    let mut passages: Vec<Ranked> = rows.iter().enumerate().map(ranked).collect();
    passages.sort_by(|left, right| right.utility.total_cmp(&left.utility));
    let report =
        FusionReport { source: Source::Retriever, scaling: Scaling::Floor, weight: mixture::WEIGHT, embedding: None };
    let answer = Reranked {
        passages,
        unit: 2.0,
        fusion: fuses.then_some(report),
        none_helps: Some(false),
        none_relevant: None,
        score_calibrated: false,
        fit: None,
        arrangement: Arrangement { order: Vec::new(), applied: ContextOrder::Descending, ground: Ground::Requested },
        inline: None,
        compression: None,
        usage: Usage::default(),
        warnings: Vec::new(),
        model: prefix_scheduler::model::GeneratorInfo::default(),
    };
    let labels: Vec<f64> = rows.iter().map(|row| f64::from(u8::from(row.2))).collect();
    let unreadable = vec![false; rows.len()];
    let cosines = cosines.map(|scores| Cosines { scores, unreadable });
    Observed::new(&request, &answer, cosines, &labels, 0.5)
}

fn answers(lists: Vec<Observed>) -> Answers {
    Answers {
        method: engine::methods::find("cascade").unwrap(),
        observed: lists,
        embedding: None,
        model: None,
        without: None,
    }
}

fn only(answers: &Answers) -> Fitted {
    let (fitted, problems) = answers.fit();
    assert!(fitted.len() == 1 && problems.is_empty(), "{problems:?}");
    fitted[0].clone()
}

/// Lists in which the retriever is right and the model is wrong, and the reverse.
fn lists(model_is_right: bool) -> Vec<Observed> {
    let one = |number: usize| {
        let noise = real(number % 5) / 10.0;
        let (good, bad) = (8.0 + noise, 1.0 + noise);
        if model_is_right {
            list(&[(bad, good, false), (good, bad, true), (bad, 0.5, false)], true)
        } else {
            list(&[(good, bad, false), (bad, good, true), (bad, 0.5, false)], true)
        }
    };
    (0..20).map(one).collect()
}

#[test]
fn the_weight_goes_to_the_side_that_is_right() {
    let model = only(&answers(lists(true)));
    // The built-in weight already ranks these lists perfectly, so it stays.
    assert!((model.calibration.mix.unwrap().weight - mixture::WEIGHT).abs() < 1e-12, "{model:?}");
    assert!(model.worth.error_after.unwrap() < model.worth.error_before.unwrap());
    let retriever = only(&answers(lists(false)));
    let weight = retriever.calibration.mix.unwrap().weight;
    // At one half the two sides cancel out, and the retriever breaks the tie.
    assert!(weight < 0.51, "{weight}");
    assert!(retriever.worth.ndcg_after.unwrap() > retriever.worth.ndcg_before.unwrap() + 0.1, "{retriever:?}");
    assert_eq!((retriever.calibration.lists, retriever.calibration.passages), (20, 60));
}

/// The retriever ranks all lists together better than the built-in mix, by more than the standard error. But this
/// comes from lists at even places, and on one of the others it loses.
#[test]
fn a_mix_that_gains_nothing_on_the_other_half_is_not_taken() {
    let of = |first: (f64, f64, bool), second| list(&[first, second, (1.0, 0.5, false)], true);
    let one = |number: usize| match number {
        0 | 2 | 4 | 6 | 8 | 10 => of((8.0, 1.0, false), (1.0, 8.0, true)),
        1 => of((1.0, 8.0, false), (8.0, 1.0, true)),
        _ => of((8.0, 8.0, true), (1.0, 1.0, false)),
    };
    let many: Vec<Observed> = (0..24).map(one).collect();
    let lists: Vec<&Observed> = many.iter().collect();
    let learnt = best(&lists, &tried(&lists));
    assert!(learnt.weight < 0.51, "{learnt:?}");
    let fitted = only(&answers(many));
    assert!((fitted.calibration.mix.unwrap().weight - mixture::WEIGHT).abs() < 1e-12);
    assert!(fitted.worth.ndcg_after < fitted.worth.ndcg_before, "{:?}", fitted.worth);
}

#[test]
fn a_method_that_does_not_fuse_has_no_weight() {
    let lists = (0..12).map(|_| list(&[(4.0, 1.0, true), (1.0, 2.0, false)], false)).collect();
    let fitted = only(&answers(lists));
    assert_eq!(fitted.calibration.mix, None);
    // Utilities of 4 and 1 over a unit of 2.
    let platt = fitted.calibration.score;
    assert!(platt.probability(2.0) > 0.9 && platt.probability(0.5) < 0.1, "{platt:?}");
    let none = fitted.worth.none_relevant.unwrap();
    assert_eq!((none.auc, none.true_positive_rate, none.false_positive_rate), (1.0, 1.0, 0.0));
}

/// In every list the relevant passage is first and the other two are not relevant: each list has one pair, in the right
/// order.
#[test]
fn the_slope_of_outranks_next_is_learnt_from_neighbours() {
    let many = || [lists(true), lists(true)].concat();
    let fitted = only(&answers(many()));
    let learnt = fitted.calibration.outranks_per_nat.unwrap();
    assert!(learnt > certainty::PER_NAT && learnt.is_finite(), "{learnt}");
    let order = fitted.worth.order.unwrap();
    assert_eq!(order.pairs, 40);
    assert!(order.error_after.unwrap() < order.error_before, "{order:?}");
    // Each half has too few neighbours for a slope, so none could be tried. The built-in one is still measured.
    let few = only(&answers([lists(true), lists(true)[..10].to_vec()].concat()));
    let order = few.worth.order.unwrap();
    assert_eq!((few.calibration.outranks_per_nat, order.pairs, order.error_after), (None, 30, None));
    // The probabilities of other methods do not follow from the difference of two values.
    let other = Answers { method: engine::methods::find("query-generation").unwrap(), ..answers(many()) };
    let other = only(&other);
    assert_eq!((other.calibration.outranks_per_nat, other.worth.order), (None, None));
}

/// A gain within its standard error gives no slope: as many lists favour a steeper slope as a flatter one.
#[test]
fn a_slope_that_gains_no_more_than_its_error_is_not_learnt() {
    let one = |number: usize| list(&[(4.0, 0.0, number % 20 < 13), (1.0, 0.0, number % 20 >= 13)], false);
    let many: Vec<Observed> = (0..80).map(one).collect();
    let fitted = only(&answers(many));
    // Of gaps of 3 nats, 0.65 are in the right order; the built-in slope predicts 1 / (1 + exp(-0.6)) = 0.646.
    let order = fitted.worth.order.unwrap();
    assert_eq!((fitted.calibration.outranks_per_nat, order.pairs, order.error_after), (None, 80, None));
}

/// Two neighbours with equal labels give no pair.
#[test]
fn neighbours_by_hand() {
    let rows = [(3.0, 0.0, true), (9.0, 0.0, false), (1.0, 0.0, false), (1.0, 0.0, true)];
    // 9 is before 3, which is relevant; 3 before 1; 1 and 1 are equal.
    assert_eq!(list(&rows, false).neighbours(shares(0.5)), [(6.0, false), (2.0, true), (0.0, false)]);
    // Places refined together stay first, for any values of the others. Passages that were not evaluated come last,
    // by the retriever's scores.
    let mut staged = list(&[(3.0, 0.0, false), (9.0, 0.0, true), (0.0, 1.0, false), (0.0, 2.0, true)], true);
    staged.stages = vec![RankingStage::Together, RankingStage::Alone, RankingStage::Retriever, RankingStage::Retriever];
    let pairs: Vec<(bool, bool)> =
        staged.neighbours(shares(0.6)).iter().map(|(gap, right)| (*gap > 0.0, *right)).collect();
    assert_eq!(pairs, [(false, false), (false, true)]);
}

/// `listwise-bayes` by hand: A is chosen first; given A, C gains more and B nothing. The server ranks by choice.
#[test]
fn an_order_of_choice_is_judged_as_it_is_served() {
    let mut chosen = list(&[(0.5, 0.0, true), (0.1, 0.0, false), (0.8, 0.0, false)], false);
    chosen.ranking = vec![0, 2, 1];
    assert_eq!(chosen.ndcg(shares(0.5)), Some(1.0));
    assert_eq!(chosen.logits(shares(0.5)), [0.25, 0.05, 0.25]);
    assert!(chosen.f1_by_number(shares(0.5)).unwrap()[0] > 0.999);
    assert_eq!(chosen.without_relevant().logits(shares(0.5)), [0.05, 0.4], "the choice without the first");
}

/// The refinement put two passages first that another mix would not have refined, so mixes are compared without it.
#[test]
fn mixes_are_compared_before_the_refinement() {
    let mut staged = list(&[(9.0, 1.0, false), (8.0, 2.0, false), (1.0, 9.0, true)], true);
    staged.stages[..2].fill(RankingStage::Together);
    assert_eq!(staged.ndcg(shares(0.0)), Some(1.0), "the retriever alone has the relevant one first");
    assert_eq!(staged.ndcg(shares(1.0)), Some(0.5));
    assert!(staged.f1_by_number(shares(0.0)).unwrap()[0] > 0.9 && staged.logits(shares(0.0))[2] > 0.0);
    assert!(staged.f1_by_number(shares(mixture::WEIGHT)).unwrap()[0] < 0.1, "as it is served");
}

/// Refined utilities of the first places do not apply to the others, which keep the values that placed them.
#[test]
fn unrefined_passages_keep_the_values_that_placed_them() {
    let mut staged = list(&[(34.0, 10.0, true), (20.0, 9.9, false), (12.0, 2.0, false), (6.0, 9.0, false)], true);
    staged.stages[..2].fill(RankingStage::Together);
    staged.alone[..2].copy_from_slice(&[20.0, 19.8]);
    // Before the refinement: 20 · (0.6 · u / 20 + 0.4 · r / 10) over 1.
    let alone = |u: f64, r: f64| 20.0 * (0.6 * u / 20.0 + 0.4 * r / 10.0);
    let logits = staged.logits(shares(0.6));
    assert!((logits[2] - alone(12.0, 2.0) / 2.0).abs() < 1e-9, "{logits:?}");
    assert!((logits[3] - alone(6.0, 9.0) / 2.0).abs() < 1e-9, "{logits:?}");
}

/// The model and the retriever are wrong, the cosines are right: 0.6 of the other side.
#[test]
fn cosines_are_a_part_of_the_other_side() {
    let rows = [(8.0, 9.0, false), (1.0, 1.0, true), (1.5, 0.5, false)];
    let beside = |_| list_beside(&rows, true, Some(vec![0.1, 0.9, 0.1]));
    let mut some = answers((0..20).map(beside).collect());
    some.embedding = Some("ab".into());
    // The fit without cosines fails, but the other fit succeeds.
    let (fitted, problems) = some.fit();
    assert_eq!((fitted.len(), problems.len()), (1, 1), "{problems:?}");
    let (calibration, worth) = (&fitted[0].calibration, &fitted[0].worth);
    let weight = calibration.mix.unwrap().weight;
    assert!(weight < 0.35, "{weight}");
    assert!(worth.ndcg_after.unwrap() > worth.ndcg_before.unwrap(), "{worth:?}");
    assert_eq!(calibration.embedding.as_deref(), Some("ab"));

    // Both fits work; a list of one passage needs no cosines.
    let right = [(6.0, 2.0, true), (1.0, 9.0, false), (0.5, 0.5, false)];
    let beside_right = |_| list_beside(&right, true, Some(vec![0.9, 0.1, 0.1]));
    some.observed = (0..20).map(beside_right).chain([list(&[(3.0, 1.0, true)], true)]).collect();
    let (fitted, problems) = some.fit();
    let kinds: Vec<_> =
        fitted.iter().map(|one| (one.calibration.embedding.as_deref(), one.calibration.lists)).collect();
    assert_eq!(kinds, [(Some("ab"), 20), (None, 21)], "{problems:?}");
    // The cosines of the remaining passages are equal, so the retriever decides.
    let left = beside(0).without_relevant();
    assert!(left.logits(shares(0.0))[0] > left.logits(shares(0.0))[1], "the retriever alone");
    assert!(left.has_cosines());
}

/// The cosines are right when the retriever is wrong, and the generator is neutral: only a mix of nearly all
/// cosines ranks these lists.
#[test]
fn the_share_of_the_cosines_is_learnt() {
    let rows = [(1.0, 9.0, false), (1.0, 1.0, true), (1.0, 1.0, false)];
    let one = |number: usize| {
        let noise = real(number % 5) / 100.0;
        list_beside(&rows, true, Some(vec![0.4 + noise, 0.5 + noise, 0.3 + noise]))
    };
    let mut some = answers((0..20).map(one).collect());
    some.embedding = Some("ab".into());
    let fitted = some.fit().0.remove(0);
    let (mix, worth) = (fitted.calibration.mix.unwrap(), &fitted.worth);
    assert!(mix.embedding.unwrap() > mixture::embedding_shares(Source::Retriever).embedding, "{mix:?}");
    assert!(worth.ndcg_after.unwrap() > worth.ndcg_before.unwrap() + 0.1, "{worth:?}");
    // The built-in shares, then 21 shares of the model times 11 of the cosines.
    assert_eq!((fitted.tried.len(), fitted.tried[0].shares), (1 + 21 * 11, shares(0.35)));
    let learnt = |tried: &&TriedMix| (tried.shares.weight, Some(tried.shares.embedding)) == (mix.weight, mix.embedding);
    let learnt = fitted.tried.iter().find(learnt).unwrap();
    assert!((learnt.ndcg - 1.0).abs() < 1e-12 && learnt.ndcg > fitted.tried[0].ndcg);
    // Without cosines they have no share.
    let alone = only(&answers(lists(true)));
    assert_eq!((alone.calibration.mix.unwrap().embedding, alone.tried.len()), (None, 1 + 21));
}

#[test]
fn failed_fits_have_reasons() {
    let problem = |lists: Vec<Observed>| answers(lists).fit().1[0].to_string();
    assert!(problem(lists(true)[..9].to_vec()).contains("cascade: 9 lists, at least 10"));
    let wrong: Vec<Observed> = (0..12).map(|_| list(&[(4.0, 1.0, false), (1.0, 2.0, true)], false)).collect();
    assert!(problem(wrong).contains("higher scores are not more relevant"));
    let mut mixed = lists(true);
    mixed.push(list(&[(4.0, 1.0, true), (1.0, 2.0, false)], false));
    assert!(problem(mixed).contains("some lists have retriever scores"));
}

/// Places that were chosen by cosines and then refined must not affect the fit without cosines.
#[test]
fn without_cosines_no_place_is_refined_by_them() {
    let rows = [(8.0, 9.0, false), (1.0, 1.0, true), (1.5, 0.5, false), (7.0, 8.0, false)];
    let refined = |cosines: Option<Vec<f64>>| {
        let mut one = list_beside(&rows, true, cosines);
        one.stages[..3].fill(RankingStage::Together);
        one
    };
    let plain = Shares { weight: mixture::WEIGHT, embedding: 0.0 };
    let beside = refined(Some(vec![0.1, 0.9, 0.1, 0.1])).without_cosines();
    assert_eq!(beside.logits(plain), list(&rows, true).logits(plain));
    let best = refined(None);
    assert_eq!(best.stages[..3], [RankingStage::Together; 3]);
    assert_ne!(best.without_cosines().logits(plain), list(&rows, true).logits(plain), "it was refined without cosines");
}
