//! Fits every design to collected scores, and reports how well it ranks gold passages and how many tokens it needs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader};

use moi::design::{Design, orders, prefixes, pruned};
use moi::{Objective, Observation, Settings, estimate};
use numeric::descending;

use super::collect::{PRUNED, Record, TRIE};
use super::plot::{self, Row};
use super::report::Line;

/// A named ranking variant.
type Ranker = Box<dyn Fn(&Record, &Scores) -> Option<Ranking>>;

/// Creates the orders of a design for a number of passages.
type Count = fn(usize) -> usize;

/// Result of a ranking variant, and the prompts that it needs.
struct Ranking {
    order: Vec<usize>,
    prompts: Vec<Vec<usize>>,
}

/// Scores by prompt.
struct Scores {
    query: HashMap<Vec<usize>, f64>,
    passages: HashMap<Vec<usize>, f64>,
}

impl Scores {
    fn of(record: &Record) -> Self {
        let query = record.scores.iter().map(|(order, score, _)| (order.clone(), *score)).collect();
        let passages = record.scores.iter().filter_map(|(order, _, joint)| Some((order.clone(), (*joint)?))).collect();
        Self { query, passages }
    }

    fn anchor(&self, n: usize) -> Option<Vec<f64>> {
        (0..n).map(|p| self.query.get(&vec![p]).copied()).collect()
    }
}

/// Fits the prompts; `None` if a score is missing.
fn fitted(
    record: &Record,
    scores: &Scores,
    prompts: &[Vec<usize>],
    joint: bool,
    settings: &Settings,
    anchored: bool,
) -> Option<Ranking> {
    let n = record.gold.len();
    let observations: Option<Vec<Observation>> = prompts
        .iter()
        .map(|order| {
            let passages = if joint { *scores.passages.get(order)? } else { 0.0 };
            Some(Observation { order: order.clone(), score: scores.query.get(order)? + passages })
        })
        .collect();
    let anchor = scores.anchor(n).filter(|_| anchored);
    let estimate = estimate(n, &observations?, anchor.as_deref(), settings, &|| false).ok()?;
    let alone = (0..n).map(|p| vec![p]).filter(|_| anchored);
    let prompts = prompts.iter().cloned().chain(alone).collect();
    Some(Ranking { order: estimate.ranking, prompts })
}

fn rankers() -> Vec<(String, Ranker)> {
    let mut all: Vec<(String, Ranker)> = Vec::new();
    let mut add = |name: &str, ranker: Ranker| all.push((name.to_owned(), ranker));
    add(
        "given order",
        Box::new(|record, _| Some(Ranking { order: (0..record.gold.len()).collect(), prompts: vec![] })),
    );
    add(
        "query generation",
        Box::new(|record, scores| {
            let n = record.gold.len();
            Some(Ranking { order: descending(&scores.anchor(n)?), prompts: (0..n).map(|p| vec![p]).collect() })
        }),
    );
    for depth in [2, 3, 4, 5, 7, 10] {
        let ranker: Ranker = Box::new(move |record, scores| {
            let n = record.gold.len();
            let prompts = prefixes(&orders(Design::Latin, n, n, 0, &|| false).ok()?, depth);
            fitted(record, scores, &prompts, false, &Settings::default(), false)
        });
        add(&format!("prefix, depth {depth}"), ranker);
    }
    let families: [(&str, Design, Count); 5] = [
        ("random N", Design::Random, |n| n),
        ("random 3N", Design::Random, |n| 3 * n),
        ("cyclic", Design::Cyclic, |n| n),
        ("latin", Design::Latin, |n| n),
        ("trie, 5 columns shared", TRIE, |n| 3 * n),
    ];
    for (name, design, count) in families {
        for (outcome, joint) in [("query likelihood", false), ("joint", true)] {
            for (way, anchored, objective) in [
                ("direction by one-passage scores", true, Objective::Regularised),
                ("primacy prior", false, Objective::Regularised),
                ("paper objective, direction by one-passage scores", true, Objective::Paper),
            ] {
                let ranker: Ranker = Box::new(move |record, scores| {
                    let n = record.gold.len();
                    let prompts = orders(design, n, count(n), 0, &|| false).ok()?;
                    let settings = Settings { objective, ..Settings::default() };
                    fitted(record, scores, &prompts, joint, &settings, anchored)
                });
                add(&format!("{name}, {outcome}, {way}"), ranker);
            }
        }
    }
    add(
        "pruned to 5, query likelihood, direction by one-passage scores",
        Box::new(|record, scores| {
            fitted(record, scores, &pruned(record.gold.len(), PRUNED, None), false, &Settings::default(), true)
        }),
    );
    all
}

/// Tokens that the prompts take when leading blocks are shared, as a plan counts them.
pub fn shared_tokens(record: &Record, prompts: &[Vec<usize>]) -> usize {
    if prompts.is_empty() {
        return 0;
    }
    let distinct: HashSet<&Vec<usize>> = prompts.iter().collect();
    let blocks: HashSet<&[usize]> = distinct.iter().flat_map(|order| (1..=order.len()).map(|l| &order[..l])).collect();
    let passages: usize = blocks.iter().map(|block| record.lengths[block[block.len() - 1]]).sum();
    passages + record.frame + distinct.len() * record.query_tokens
}

/// Tokens of the naive program: 3 N complete orders, each evaluated from its beginning.
fn naive_tokens(record: &Record) -> usize {
    3 * record.gold.len() * (record.frame + record.query_tokens + record.lengths.iter().sum::<usize>())
}

/// Share of (gold, other) pairs in the right order.
pub fn auc(gold: &[bool], order: &[usize]) -> f64 {
    let place = |p: usize| order.iter().position(|q| *q == p).unwrap_or(order.len());
    let (mut right, mut pairs) = (0.0, 0.0);
    for p in (0..gold.len()).filter(|p| gold[*p]) {
        for q in (0..gold.len()).filter(|q| !gold[*q]) {
            right += f64::from(u8::from(place(p) < place(q)));
            pairs += 1.0;
        }
    }
    right / pairs
}

pub fn reciprocal_rank(gold: &[bool], order: &[usize]) -> f64 {
    order.iter().position(|p| gold[*p]).map_or(0.0, |place| 1.0 / (place as f64 + 1.0))
}

pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let out = super::data::option(arguments, "out");
    let mut files: BTreeMap<String, BTreeMap<String, Record>> = BTreeMap::new();
    let values: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    for path in values.into_iter().filter(|path| Some(path.as_str()) != out) {
        for line in BufReader::new(std::fs::File::open(path)?).lines() {
            let record: Record = serde_json::from_str(&line?)?;
            let known = files.entry(record.file.clone()).or_default();
            // Scores of one question may come from several runs.
            match known.get_mut(&record.id) {
                Some(earlier) => {
                    anyhow::ensure!(earlier.model == record.model, "{path}: scores of two models for {}", record.id);
                    earlier.scores.extend(record.scores);
                }
                None => drop(known.insert(record.id.clone(), record)),
            }
        }
    }
    let mut table: Vec<Row> = Vec::new();
    for (file, records) in &files {
        for (name, ranker) in rankers() {
            let mut rows = Vec::new();
            for record in records.values() {
                let scores = Scores::of(record);
                if let Some(ranking) = ranker(record, &scores) {
                    let tokens = shared_tokens(record, &ranking.prompts) as f64;
                    let share = tokens / naive_tokens(record) as f64;
                    rows.push((
                        auc(&record.gold, &ranking.order),
                        reciprocal_rank(&record.gold, &ranking.order),
                        tokens,
                        share,
                    ));
                }
            }
            if rows.is_empty() {
                continue;
            }
            let mean = |pick: fn(&(f64, f64, f64, f64)) -> f64| rows.iter().map(pick).sum::<f64>() / rows.len() as f64;
            let place = format!("{file}, {} questions: {name}", rows.len());
            table.push(Row {
                file: file.clone(),
                questions: rows.len(),
                name: name.clone(),
                auc: mean(|row| row.0),
                mrr: mean(|row| row.1),
                tokens: mean(|row| row.2),
            });
            Line::new(&format!("{place}: AUC"), mean(|row| row.0), "").print();
            Line::new(&format!("{place}: MRR"), mean(|row| row.1), "").print();
            Line::new(&format!("{place}: tokens"), mean(|row| row.2), "tokens a question")
                .ratio(mean(|row| row.3))
                .print();
        }
    }
    match out {
        Some(folder) => plot::write(std::path::Path::new(folder), &table),
        None => Ok(()),
    }
}
