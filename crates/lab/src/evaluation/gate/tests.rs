use rag_metrics::rank::{Grading, Kind, Ranking};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use super::*;
use numeric::descending;

const STATISTICS: Statistics = Statistics {
    resamples: 100,
    test_resamples: 500,
    confidence: 0.95,
    test: rag_metrics::resample::Test::Randomisation,
    seed: 0,
};

fn subject(questions: usize) -> Subject {
    let series = |system: &str, metric: &str, bounded| Series {
        system: system.to_owned(),
        metric: metric.to_owned(),
        bounded,
        main: metric == "nDCG@10",
    };
    Subject {
        settings: json!({ "study": "compare", "generator_sha256": "ab", "task": "short-answer", "methods": ["moi"] })
            .as_object()
            .cloned()
            .unwrap(),
        questions: (0..questions).map(|number| format!("q{number}")).collect(),
        fingerprint: "of the questions".to_owned(),
        series: vec![series("given", "nDCG@10", false), series("moi", "nDCG@10", true), series("moi", "MRR", true)],
        annotator: None,
    }
}

fn some(values: &[f64]) -> Vec<Option<f64>> {
    values.iter().copied().map(Some).collect()
}

fn bound(text: &str) -> Bound {
    Bound::parse(text).unwrap()
}

/// The failures of the values of "moi nDCG@10" under these bounds.
fn failures(floors: &[&str], drops: &[&str], before: Option<&[Option<f64>]>, now: &[Option<f64>]) -> Vec<String> {
    let all = |values: &[Option<f64>]| vec![values.to_vec(); 3];
    let gate = Gate {
        floors: floors.iter().map(|text| bound(text)).collect(),
        drops: drops.iter().map(|text| bound(text)).collect(),
        baseline: before.map(|before| Baseline::of(&subject(before.len()), &all(before))),
        statistics: STATISTICS,
    };
    let judged = gate.check(subject(now.len())).unwrap().judge(&all(now));
    judged.checks.into_iter().filter_map(|check| check.failure).collect()
}

#[test]
fn a_mean_must_reach_its_bound() {
    let now = [Some(0.2), None, Some(0.1)];
    assert!(failures(&["nDCG@10=0.15"], &[], None, &now).is_empty());
    assert_eq!(failures(&["ndcg_cut_10=0.16"], &[], None, &now), ["moi nDCG@10 is 0.150, below 0.16"]);
    assert_eq!(failures(&["nDCG@10=0.8"], &[], None, &[Some(0.79999)]), ["moi nDCG@10 is 0.79999, below 0.8"]);
    assert_eq!(failures(&["MRR=0"], &[], None, &[None, None]), ["moi MRR has no value on any question"]);
}

/// All differences are -0.1, so the interval has no width.
#[test]
fn a_drop_may_reach_its_bound() {
    let (before, now) = (some(&[0.9, 0.8, 0.7].repeat(4)), some(&[0.8, 0.7, 0.6].repeat(4)));
    let of = |drops: &[&str]| failures(&[], drops, Some(&before), &now);
    let said = "moi nDCG@10 fell from 0.800 to 0.700, more than 0.05 beyond noise: -0.100 [-0.100, -0.100]";
    assert_eq!(of(&["nDCG@10=0.05"]), [said]);
    assert!(of(&["nDCG@10=0.1"]).is_empty() && of(&["0.2"]).is_empty());
    // Without a bound the main metric must not drop.
    assert_eq!(of(&[]), [said.replace("0.05", "0")]);
    assert!(failures(&[], &[], Some(&now), &before).is_empty(), "a rise");
    // The other values are better, so their mean hides the lost ones.
    let none = failures(&[], &[], Some(&now), &[&[None; 2][..], &before[2..]].concat());
    assert_eq!(none, ["moi nDCG@10 has no value on 2 questions that had one"]);
    assert!(failures(&[], &[], Some(&[&[None][..], &now[1..]].concat()), &before).is_empty(), "a new value");
}

#[test]
fn bounds_name_metrics_of_every_system_or_of_one() {
    let mut subject = subject(2);
    subject.series[0].system = "run:7".to_owned();
    let select = |name: &str| subject.select("--fail-under", name).map_err(|error| error.to_string());
    assert_eq!(select("nDCG@10"), Ok(vec![1]), "the first-stage order is not bounded");
    assert_eq!((select("run:7:ndcg@10"), select("moi:RR"), select("")), (Ok(vec![0]), Ok(vec![2]), Ok(vec![1])));
    let said = "--fail-under: \"nDCG@5\" is not measured; metrics are MRR, nDCG@10; systems are moi, run:7";
    assert_eq!(select("nDCG@5"), Err(said.to_owned()));
    let labels = ["provenance/nDCG@10", "token-f1/nDCG@10", "token-f1"];
    let series = labels.map(|metric| Series { metric: metric.to_owned(), ..subject.series[1].clone() });
    let labelled = |annotator| Subject { series: series.to_vec(), annotator, ..self::subject(2) };
    let select = |annotator, name| labelled(annotator).select("", name).ok();
    assert_eq!(select(Some("provenance"), "nDCG@10"), Some(vec![0]));
    assert_eq!(select(None, "nDCG@10"), None, "either annotator may be meant");
    assert_eq!((select(None, "token-f1/ndcg@10"), select(None, "token-f1")), (Some(vec![1]), Some(vec![2])));
    assert_eq!((bound("token-f1=1").metric(), bound("accuracy=1").metric()), (None, None));
    assert_eq!(bound("moi:provenance/ndcg@5=1").metric(), "nDCG@5".parse().ok());
    let gate = Gate { floors: vec![bound("gm_map=0.1")], ..Gate::default() };
    let refused = gate.metrics().unwrap_err().to_string();
    assert!(refused.starts_with("--fail-under: GMAP is not a mean"), "{refused}");
}

#[test]
fn unlike_things_are_not_compared_and_changes_are_named() {
    let baseline = Baseline::of(&subject(12), &vec![some(&[0.5; 12]); 3]);
    let gate = |drops: &[&str], baseline: Baseline| Gate {
        drops: drops.iter().map(|text| bound(text)).collect(),
        baseline: Some(baseline),
        statistics: STATISTICS,
        ..Gate::default()
    };
    let with = |key: &str, value: &str, mut now: Subject| {
        now.settings.insert(key.to_owned(), json!(value));
        now
    };
    let refused = |now: Subject| gate(&[], baseline.clone()).check(now).unwrap_err().to_string();
    assert_eq!(
        refused(with("study", "evaluate", subject(12))),
        "--baseline: is of the command \"compare\", this one is \"evaluate\""
    );
    let other = |questions| Subject { fingerprint: "of others".to_owned(), ..subject(questions) };
    assert_eq!(refused(other(3)), "--baseline: has other questions: 12 instead of 3");
    assert!(refused(other(12)).contains("the ids are equal, but texts"));
    let mut renamed = other(12);
    renamed.questions[1] = "x".to_owned();
    assert!(refused(renamed).ends_with("\"q1\" instead of \"x\""));
    let task = refused(with("task", "dialogue", subject(12)));
    assert_eq!(task, "--baseline: its metrics mean something else: task (stored \"short-answer\", now \"dialogue\")");
    let mut method = subject(12);
    method.series[1].system = "cascade".to_owned();
    assert_eq!(refused(method), "--baseline: has no system \"cascade\", only given, moi");
    let mut metric = subject(12);
    metric.series[1].metric = "nDCG@5".to_owned();
    assert_eq!(refused(metric), "--baseline: has no metric \"nDCG@5\", only MRR, nDCG@10");
    let without = Gate { statistics: Statistics { resamples: 0, ..STATISTICS }, ..gate(&[], baseline.clone()) };
    assert!(without.check(subject(12)).unwrap_err().to_string().contains("--baseline: needs intervals"));
    // A value on nine of twelve questions.
    let few = Baseline::of(&subject(12), &vec![[vec![None; 3], some(&[0.5; 9])].concat(); 3]);
    let said = "--baseline: moi nDCG@10 has a value on 9 questions, at least 10 are needed";
    assert_eq!(gate(&[], few).check(subject(12)).unwrap_err().to_string(), said);
    // Another model, program or list of methods is what a gate is for.
    let now = with("methods", "moi, cascade", with("generator_sha256", "cd", subject(12)));
    let old = serde_json::to_string(&baseline).unwrap().replace(env!("CARGO_PKG_VERSION"), "0.0.0");
    let judged = gate(&[], serde_json::from_str(&old).unwrap()).check(now).unwrap().judge(&vec![some(&[0.5; 12]); 3]);
    assert_eq!(judged.changes[0], "generator_sha256 (stored \"ab\", now \"cd\")");
    assert!(judged.changes[1].starts_with("program (stored \"rerankd 0.0.0\", now "), "{:?}", judged.changes);
    assert_eq!((judged.passed(), judged.changes.len()), (true, 2));
}

#[test]
fn a_file_holds_the_values_exactly_and_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("baseline.json");
    let values = vec![vec![Some(1.0 / 3.0), None], vec![Some(0.1 + 0.2), Some(1.0)], some(&[1e-300, 0.0])];
    let baseline = Baseline::of(&subject(2), &values);
    baseline.write(&path).unwrap();
    assert_eq!(Baseline::read(&path).unwrap(), baseline);
    let text = std::fs::read_to_string(&path).unwrap();
    let refused = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let error = Baseline::read(&path).unwrap_err().to_string();
        assert!(error.starts_with("--baseline: ") && error.ends_with("write one with --save-baseline"), "{error}");
        error
    };
    assert!(refused(&text.replace("baseline 1", "baseline 0")).contains("its format is \"rerankd baseline 0\""));
    assert!(refused(&text.replace("[\"q0\",\"q1\"]", "[\"q0\"]")).contains("a value for each question"));
    assert!(refused("{").contains("invalid JSON"));
    std::fs::remove_file(&path).unwrap();
    assert!(Baseline::read(&path).unwrap_err().to_string().contains("baseline.json"));
}

/// Any text in names and messages.
#[test]
fn the_files_of_continuous_integration_are_well_formed() {
    let system = "a<b>&\"'|\u{1}\u{ffff}é".to_owned();
    let check = |failure: Option<&str>| Check {
        system: system.clone(),
        metric: "nDCG@10".to_owned(),
        bound: "at least 0.8".to_owned(),
        found: "0.700 [0.600, 0.800]".to_owned(),
        failure: failure.map(str::to_owned),
    };
    let checks = vec![check(Some("a<b> is \"0.7\" & below")), check(None)];
    let baseline = Baseline::of(&subject(0), &vec![Vec::new(); 3]);
    let judged = Judged { study: "compare".to_owned(), checks, changes: vec!["x".to_owned()], baseline };
    let junit = judged.junit();
    let document = roxmltree::Document::parse(&junit).unwrap();
    let node = |name: &str| document.descendants().find(|node| node.has_tag_name(name)).unwrap();
    let suite = node("testsuite");
    assert_eq!((suite.attribute("tests"), suite.attribute("failures")), (Some("2"), Some("1")));
    assert_eq!(node("failure").attribute("message"), Some("a<b> is \"0.7\" & below"));
    assert_eq!(node("testcase").attribute("classname"), Some("a<b>&\"'|é"));
    assert_eq!(node("system-out").text(), Some("0.700 [0.600, 0.800]"));
    let summary = judged.summary();
    assert!(
        summary.starts_with("## rerankd compare\n\nquality gate failed: a\\<b> is \"0.7\" & below.\n\n| system |"),
        "{summary}"
    );
    assert_eq!(summary.lines().filter(|line| line.starts_with("| a\\<b>&\"'\\|")).count(), 2, "{summary}");
    assert!(summary.ends_with("\nChanged since the baseline: x.\n\n"));
}

/// nDCG@10 of lists of ten passages, one or two of them relevant. The score of a passage is its label times `signal`, plus
/// noise that two rankers share, plus the ranker's own noise.
struct Lists {
    random: ChaCha8Rng,
    /// Per question and passage: the label and the shared noise.
    passages: Vec<[(f64, f64); 10]>,
}

impl Lists {
    fn new(seed: u64, questions: usize) -> Self {
        let mut lists = Self { random: ChaCha8Rng::seed_from_u64(seed), passages: Vec::new() };
        for question in 0..questions {
            let relevant = 1 + question % 2;
            let passage = |at: usize| (f64::from(u8::from(at < relevant)), lists.normal());
            let all: Vec<(f64, f64)> = (0..10).map(passage).collect();
            lists.passages.push(all.try_into().unwrap());
        }
        lists
    }

    /// About normal: a sum of twelve uniform numbers.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random.random::<f64>()).sum::<f64>() - 6.0
    }

    fn ranked(&mut self, signal: f64) -> Vec<Option<f64>> {
        let metric = Metric {
            kind: Kind::Ndcg { exponential: false, within_list: false },
            cutoff: Some(10),
            rel: None,
            judged_only: false,
        };
        let lists = self.passages.clone();
        let value = |list: &[(f64, f64); 10]| {
            let scores: Vec<f64> =
                list.iter().map(|(label, shared)| signal * label + shared + 0.5 * self.normal()).collect();
            let labels: Vec<f64> = descending(&scores).into_iter().map(|at| list[at].0).collect();
            metric.of(&Ranking::of_labels(&labels), Grading { threshold: 0.5, graded: false })
        };
        lists.iter().map(value).collect()
    }
}

/// Of 200 runs on 100 questions each: how many fail with a weaker signal, and how many with only another noise.
#[test]
fn a_regression_is_caught_and_a_reshuffle_within_noise_is_not() {
    let (mut caught, mut tolerated, mut strict, mut naive) = (0, 0, 0, 0);
    let mut drops = Vec::new();
    for seed in 0..200 {
        let mut lists = Lists::new(seed, 100);
        let (before, reshuffled, worse) = (lists.ranked(2.0), lists.ranked(2.0), lists.ranked(1.4));
        let failed =
            |now: &[Option<f64>], most: &str| usize::from(!failures(&[], &[most], Some(&before), now).is_empty());
        let average = |values: &[Option<f64>]| mean(&values.iter().flatten().copied().collect::<Vec<_>>());
        drops.push(average(&before) - average(&worse));
        caught += failed(&worse, "nDCG@10=0.02");
        tolerated += failed(&reshuffled, "nDCG@10=0.02");
        strict += failed(&reshuffled, "nDCG@10=0");
        naive += usize::from(average(&reshuffled) < average(&before));
    }
    println!(
        "mean drop {:.3}; of 200: caught {caught}, false {tolerated}, strict {strict}, naive {naive}",
        mean(&drops)
    );
    assert!(caught >= 185, "{caught} of 200 regressions were caught");
    assert!(tolerated <= 2, "{tolerated} of 200 reshuffles failed");
    // 2.5 % are expected, 5 of 200; 13 or more have a chance of 0.2 %.
    assert!(strict <= 12, "{strict} of 200 reshuffles failed without tolerance");
    assert!(naive >= 60, "the means alone would fail about half: {naive}");
}
