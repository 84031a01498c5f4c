//! Dependence of a query's score on the shapes of steps, for equal passages and queries.
//!
//! A prompt holds only a passage and a query. A score is the sum of the log-probabilities of the query's tokens, as a
//! method reads it.

use models::catalog::Role;
use prefix_scheduler::model::{Batch, Generator, Row};
use prefix_scheduler::plan::{Reads, Token};
use rerankd::config::Config;

use crate::report::Line;
use crate::texts::Texts;

const PASSAGE: usize = 110;
const QUERY: usize = 17;
const PASSAGES: u64 = 12;

type Tokens = Vec<Token>;

/// Rows of `tokens` from position `from` of `sequence`, every one with its successor as the target if `read`.
fn rows(batch: &mut Batch, sequence: usize, from: usize, tokens: &[Token], read: bool) {
    for (index, &token) in tokens.iter().enumerate() {
        let start = batch.targets.len();
        if read && let Some(&next) = tokens.get(index + 1) {
            batch.targets.push((next, Reads::LogProbability));
        }
        batch.rows.push(Row {
            token,
            position: from + index,
            sequence,
            targets: start..batch.targets.len(),
            draws: 0..0,
        });
    }
}

fn step(generator: &mut dyn Generator, parts: &[(usize, usize, &[Token], bool)]) -> Vec<f64> {
    let mut batch = Batch::default();
    for &(sequence, from, tokens, read) in parts {
        rows(&mut batch, sequence, from, tokens, read);
    }
    generator.decode(&batch).unwrap().scores
}

/// The sums of the queries' log-probabilities: the scores of `each` targets belong together.
fn sums(scores: &[f64], each: usize) -> Vec<f64> {
    scores.chunks(each).map(|chunk| chunk.iter().sum()).collect()
}

fn release(generator: &mut dyn Generator, sequences: std::ops::Range<usize>) {
    for sequence in sequences {
        generator.release(sequence).unwrap();
    }
}

/// Every passage and its query in separate steps: first the rows of the passage, then those of the query.
fn alone(generator: &mut dyn Generator, passages: &[Tokens], query: &[Token], sequence: usize) -> Vec<f64> {
    let mut scores = Vec::new();
    for passage in passages {
        step(generator, &[(sequence, 0, passage, false)]);
        scores.extend(step(generator, &[(sequence, passage.len(), query, true)]));
        release(generator, sequence..sequence + 1);
    }
    sums(&scores, query.len() - 1)
}

fn report(name: &str, reference: &[f64], scores: &[f64]) {
    let moved = reference.iter().zip(scores).map(|(left, right)| (left - right).abs());
    let equal = reference.iter().zip(scores).filter(|(left, right)| left == right).count();
    Line::new(&format!("shapes, {name}"), moved.fold(0.0, f64::max), "nats").print();
    Line::new(&format!("shapes, {name}: bit-equal scores"), equal as f64 / reference.len() as f64, "of all").print();
}

fn compare(generator: &mut dyn Generator, passages: &[Tokens], query: &[Token]) {
    let each = query.len() - 1;
    let count = passages.len();
    let reference = alone(generator, passages, query, 0);
    report("the same steps again", &reference, &alone(generator, passages, query, 0));
    // Cells of other sequences come before those of the passage.
    let other: Tokens = passages[0].iter().rev().copied().collect();
    for sequence in 20..30 {
        step(generator, &[(sequence, 0, &other, false)]);
    }
    report("other sequences in the cache", &reference, &alone(generator, passages, query, 0));
    release(generator, 20..30);
    // Queries of all passages in one step; passages in separate steps.
    for (sequence, passage) in passages.iter().enumerate() {
        step(generator, &[(sequence, 0, passage, false)]);
    }
    let parts: Vec<_> = passages.iter().enumerate().map(|(at, passage)| (at, passage.len(), query, true)).collect();
    let together = sums(&step(generator, &parts), each);
    report("queries in one step", &reference, &together);
    release(generator, 0..count);
    // Passages four to a step; queries in separate steps.
    let mut grouped = Vec::new();
    for group in passages.chunks(4) {
        let parts: Vec<_> = group.iter().enumerate().map(|(at, passage)| (at, 0, passage.as_slice(), false)).collect();
        step(generator, &parts);
        for (sequence, passage) in group.iter().enumerate() {
            grouped.extend(step(generator, &[(sequence, passage.len(), query, true)]));
        }
        release(generator, 0..group.len());
    }
    report("passages four to a step", &reference, &sums(&grouped, each));
    let mut whole = Vec::new();
    for passage in passages {
        whole.extend(step(generator, &[(0, 0, passage, false), (0, passage.len(), query, true)]));
        release(generator, 0..1);
    }
    report("passage and query in one step", &reference, &sums(&whole, each));
    let mut halves = Vec::new();
    for passage in passages {
        let (first, second) = passage.split_at(passage.len() / 2);
        step(generator, &[(0, 0, first, false)]);
        step(generator, &[(0, first.len(), second, false)]);
        halves.extend(step(generator, &[(0, passage.len(), query, true)]));
        release(generator, 0..1);
    }
    report("passages in two steps", &reference, &sums(&halves, each));
}

pub fn run(model: Option<&str>, texts: &Texts) -> anyhow::Result<()> {
    let flags: Vec<(String, String)> =
        model.map(|model| ("generator.model".to_owned(), model.to_owned())).into_iter().collect();
    let config = Config::load(None, &flags)?;
    let located = config.store.locate(&config.generator.model, Role::Generator)?;
    let tokens = |text: String| texts.language.query(&text);
    let passages: Vec<Tokens> = (0..PASSAGES).map(|seed| tokens(texts.passage(6_000_000 + seed, PASSAGE))).collect();
    let query = tokens(texts.query(6_000_000, QUERY));
    let settings = config.generator.settings(located.path);
    models::llama::with_model(&settings, &mut |generator| compare(generator, &passages, &query))?;
    Ok(())
}
