//! Hand-worked lists, properties, and the parser. tests/golden/metrics.rs has values of independent programs.

use super::*;

fn metric(name: &str) -> Metric {
    name.parse().unwrap()
}

fn value(name: &str, ranking: &Ranking) -> f64 {
    metric(name).of(ranking, Grading::TREC).unwrap()
}

fn near(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-12, "{left} {right}");
}

/// Relevant at ranks 2 and 4 of five, rank 3 judged not relevant, another relevant one not found.
fn five() -> Ranking {
    Ranking::new(vec![None, Some(1.0), Some(0.0), Some(2.0), None], vec![1.0, 0.0, 2.0, 1.0])
}

#[test]
fn hand_worked_list() {
    let list = five();
    near(value("P@5", &list), 0.4);
    near(value("P@10", &list), 0.2);
    near(value("R@2", &list), 1.0 / 3.0);
    near(value("AP", &list), (0.5 + 0.5) / 3.0);
    near(value("RR", &list), 0.5);
    near(value("RR@1", &list), 0.0);
    near(value("Success@1", &list), 0.0);
    near(value("Success@2", &list), 1.0);
    near(value("Rprec", &list), 1.0 / 3.0);
    let ideal = 2.0 + 1.0 / 3.0_f64.log2() + 0.5;
    let gained = 1.0 / 3.0_f64.log2() + 2.0 / 5.0_f64.log2();
    near(value("nDCG", &list), gained / ideal);
    near(value("nDCG@2", &list), (1.0 / 3.0_f64.log2()) / (2.0 + 1.0 / 3.0_f64.log2()));
    near(value("nDCG(ideal='list')@5", &list), gained / (2.0 + 1.0 / 3.0_f64.log2()));
    // One of the two judged misses is above the second relevant document.
    near(value("Bpref", &list), 1.0 / 3.0);
    near(value("Judged@4", &list), 0.75);
    near(value("P(rel=2)@5", &list), 0.2);
    near(value("P(judged_only=True)@3", &list), 2.0 / 3.0);
    near(value("SetF", &list), 2.0 * 0.4 * (2.0 / 3.0) / (0.4 + 2.0 / 3.0));
    near(value("IPrec@0.3", &list), 0.5);
    near(value("RBP(p=0.5)", &list), 0.5 * (0.5 + 0.125));
    near(value("T(alpha=0.25)@5", &list), 0.75 * 2.0 - 0.25 * 3.0 / 5.0);
    near(value("F(alpha=0.5)@5", &list), 2.0 / (2.5 + 1.5));
    assert_eq!(metric("Fe@5").of(&list, Grading::TREC), None);
    near(value("Fe@2", &list), 1.0 / (1.0 + 1.0));
}

#[test]
fn graded_labels_are_meant_and_maximised() {
    let list = Ranking::of_labels(&[0.2, 0.9, 0.4]);
    let of = |name: &str| metric(name).of(&list, Grading::ERAG).unwrap();
    near(of("P@2"), 0.55);
    near(of("P@6"), 0.25);
    near(of("P(rel=0.4)@3"), 2.0 / 3.0);
    near(of("Success@3"), 0.9);
    near(of("RR"), 0.5);
    near(of("nDCG"), (0.2 + 0.9 / 3.0_f64.log2() + 0.2) / (0.9 + 0.4 / 3.0_f64.log2() + 0.1));
}

/// A label below 0 counted as pooled but not judged, so the more harmful list scored better.
#[test]
fn labels_below_zero_mean_harm_where_labels_are_graded() {
    let (harm, none) = (Ranking::of_labels(&[-0.5, 0.8]), Ranking::of_labels(&[0.0, 0.8]));
    for name in ["Bpref", "AP(judged_only=True)", "infAP", "AP"] {
        let of = |list: &Ranking, grading| metric(name).of(list, grading).unwrap();
        near(of(&harm, Grading::ERAG), of(&none, Grading::ERAG));
        let judged = Ranking::new(vec![Some(-1.0), Some(1.0)], vec![-1.0, 1.0]);
        assert!(name == "AP" || of(&judged, Grading::TREC) > of(&none, Grading::ERAG), "{name}");
    }
}

#[test]
fn lists_without_documents_or_positives_score_zero() {
    let names =
        ["P@5", "R@5", "AP", "RR", "nDCG@5", "Success@5", "Rprec", "Bpref", "infAP", "SetF", "IPrec@0.5", "ERR@5"];
    for name in names {
        near(value(name, &Ranking::default()), 0.0);
        near(value(name, &Ranking::new(vec![None, Some(0.0)], vec![0.0])), 0.0);
        near(value(name, &Ranking::new(Vec::new(), vec![1.0])), 0.0);
    }
    assert_eq!(metric("AP").aggregate(&[]), None);
}

#[test]
fn names_of_three_programs_mean_the_same() {
    for names in [
        ["nDCG@10", "ndcg_cut_10", "ndcg@10"],
        ["P@5", "P_5", "precision@5"],
        ["AP", "map", "MAP"],
        ["AP@100", "map_cut_100", "map@100"],
        ["RR", "recip_rank", "mrr"],
        ["R@5", "recall_5", "recall@5"],
        ["Success@1", "success_1", "hit_rate@1"],
        ["Rprec", "Rprec", "r-precision"],
        ["IPrec@0.1", "iprec_at_recall_0.10", "IPrec(recall=0.1)@0.1"],
        ["RBP(p=0.95)", "rbp.95", "RBP(p=.95)"],
        ["P(rel=2)@5", "precision@5-l2", "P(rel=2)@5"],
        ["nDCG(dcg='exp-log2')@3", "ndcg_burges@3", "nDCG(dcg=exp-log2)@3"],
        ["F(alpha=0.5)@5", "f1@5", "F(beta=1)@5"],
        ["NumRelRet", "num_rel_ret", "numrelret"],
        ["T'(alpha=0.5)@5", "Tprime@5", "T'@5"],
    ] {
        for name in names {
            assert_eq!(metric(name).to_string(), names[0], "{name}");
            assert_eq!(metric(&metric(name).to_string()), metric(name));
        }
    }
    assert_eq!(Metric::parse_all("P.5,10").unwrap(), [metric("P@5"), metric("P@10")]);
    assert_eq!(Metric::parse_all("ndcg_cut").unwrap().len(), 9);
    assert_eq!(Metric::parse_all("official").unwrap().len(), 9 + 11 + 9);
}

#[test]
fn a_wrong_name_is_refused_with_its_fault() {
    for (name, problem) in [
        ("", "is no metric"),
        ("nDGC@10", "metrics are P, R, AP"),
        ("P@0", "whole number from 1"),
        ("P@-5", "whole number from 1"),
        ("P@ten", "whole number from 1"),
        ("P(rel=2@5", "not closed"),
        ("P(rel)@5", "key=value"),
        ("P(rel=nan)@5", "rel must be a number"),
        ("P(beta=2)@5", "no parameter \"beta\""),
        ("nDCG(dcg='ln')@5", "'log2' or 'exp-log2'"),
        ("T(alpha=1.5)@5", "from 0 to 1"),
        ("IPrec", "needs a recall"),
        ("IPrec@1.5", "from 0 to 1"),
        ("Fe", "needs a cut-off"),
        ("Rprec@5", "takes no cut-off"),
        ("rbp.x", "p must be digits"),
        // It was 10,000 at the first rank.
        ("rbp.1e5", "p must be digits"),
    ] {
        let error = name.parse::<Metric>().unwrap_err().to_string();
        assert!(error.contains(problem), "{name}: {error}");
    }
}

proptest::proptest! {
    #[test]
    fn bounded_and_best_when_sorted(labels in proptest::collection::vec(0..4_i32, 1..30), missed in 0..5_usize) {
        let labels: Vec<f64> = labels.into_iter().map(f64::from).collect();
        let judged: Vec<f64> = labels.iter().copied().chain(std::iter::repeat_n(1.0, missed)).collect();
        let list = |labels: &[f64]| Ranking::new(labels.iter().copied().map(Some).collect(), judged.clone());
        let mut sorted = labels.clone();
        sorted.sort_by(|left, right| right.total_cmp(left));
        for name in ["P@5", "R@5", "AP", "RR", "nDCG@5", "nDCG", "Bpref", "ERR@10", "RBP(p=0.8)", "infAP", "IPrec@0.5"] {
            let (as_given, best) = (value(name, &list(&labels)), value(name, &list(&sorted)));
            proptest::prop_assert!((0.0..=1.0 + 1e-9).contains(&as_given), "{} {}", name, as_given);
            proptest::prop_assert!(as_given <= best + 1e-9, "{} {} {}", name, as_given, best);
        }
        // Documents below the cut-off do not matter.
        let longer: Vec<f64> = labels.iter().copied().chain([0.0]).collect();
        proptest::prop_assert!((value("P@1", &list(&labels)) - value("P@1", &list(&longer))).abs() < 1e-12);
    }
}

/// Their gains overflow; the quotient was not a number.
#[test]
fn ndcg_of_large_labels_is_a_number() {
    let of = |labels: [f64; 2], name: &str| {
        let judged = labels.to_vec();
        value(name, &Ranking::new(labels.iter().rev().map(|label| Some(*label)).collect(), judged))
    };
    let turned = 1.0 / 3.0_f64.log2();
    for name in ["nDCG(dcg='exp-log2')", "nDCG(dcg='exp-log2',ideal='list')"] {
        near(of([1_100.0, 1.0], name), turned);
        near(of([2_000.0, 2_000.0], name), 1.0);
    }
    near(of([1e308, 1.0], "nDCG"), turned);
    let missed = Ranking::new(vec![Some(1.0), Some(0.0)], vec![1.0, 0.0, 2_000.0]);
    near(value("nDCG(dcg='exp-log2',ideal='list')", &missed), 1.0);
    near(of([1e308, 1e308], "nDCG"), 1.0);
}

#[test]
fn families_have_the_cut_offs_of_trec_eval() {
    let names = |family: &str| Metric::parse_all(family).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names("success"), ["Success@1", "Success@5", "Success@10"]);
    assert_eq!((names("P").len(), names("recall").len()), (9, 9));
}
