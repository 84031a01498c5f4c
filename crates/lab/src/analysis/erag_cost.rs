//! Cost of passage labels and of the answer from the whole list (Salemi and Zamani, *Evaluating Retrieval Quality in
//! Retrieval-Augmented Generation*, Table 2).
//!
//! For each list size k three ways are measured in one run: one call per passage (the paper's document level), one call
//! for the k passages (its query level), and one answer from the k passages in one prompt (end to end).
//!
//! - Tokens are those evaluated without a cache of earlier calls. They are the same in every run.
//! - Seconds are the engine's, and differ between runs.
//! - Memory is arithmetic: each evaluated token takes a KV-cache cell of layers x key-value heads x (key + value)
//!   numbers. A call counts the cells of all its prompts and answers at once; the largest call counts.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::coefficient::{cutoffs, resampled};
use super::{About, Analysis, Answer, Asking, Context, Need, Settings, TIMES, values};
use crate::study::StudyError;
use crate::study::backend::Refusal;
use crate::study::chart::{self, Axes, Point, Series};
use crate::study::data::Question;
use crate::study::mean::{Mean, mean_of};
use crate::study::report::{Report, Table};
use engine::Engine;
use engine::types::{BeliefRequest, Passage, SampleOptions};
use numeric::real;
use prefix_scheduler::call::Call;

/// Least list size that is compared, unless the lists are shorter.
const LEAST: usize = 5;
const MEBIBYTE: f64 = 1_048_576.0;

/// See the module.
pub(super) struct EragCost;

/// Cost of one way.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Work {
    tokens: usize,
    /// Cells of its largest call.
    cells: usize,
    /// Tokens of passages that were cut to fit the context.
    #[serde(default)]
    cut: usize,
    /// Stored in another file than the rest.
    #[serde(skip)]
    seconds: f64,
}

/// The three ways at one list size.
#[derive(Debug, Serialize, Deserialize)]
struct Size {
    passages: usize,
    document: Work,
    query: Work,
    whole: Work,
}

/// The stored result of a question.
#[derive(Debug, Deserialize)]
struct Cost {
    /// Bytes of a cell; `None` if the generator's file does not state it.
    cell_bytes: Option<usize>,
    /// Ascending.
    sizes: Vec<Size>,
    /// Seconds per size in the order document, query, whole; empty if their file is lost.
    #[serde(default)]
    times: Vec<[f64; 3]>,
}

impl Work {
    /// The sum of two calls, one after the other.
    fn and(self, other: Self) -> Self {
        Self {
            tokens: self.tokens + other.tokens,
            cells: self.cells.max(other.cells),
            cut: self.cut + other.cut,
            seconds: self.seconds + other.seconds,
        }
    }
}

/// Answers in each of the contexts, in one call.
async fn answered(
    engine: &Engine,
    question: &Question,
    passages: &[Passage],
    contexts: Vec<Vec<usize>>,
    settings: &Settings,
) -> Result<Work, Refusal> {
    let request = BeliefRequest {
        question: question.list.question.clone(),
        passages: passages.to_vec(),
        contexts,
        task: settings.task.clone(),
        options: SampleOptions { max_tokens: Some(settings.answer_tokens()), ..SampleOptions::greedy() },
        passage_tokens: settings.passage_tokens,
        ..BeliefRequest::default()
    };
    let sampled = engine.sampler.sample(&Call::local(), request, None).await?;
    let (usage, cut) = (sampled.usage, sampled.cut.iter().sum());
    // Cached tokens also count, so that a question's cost does not depend on earlier questions.
    let tokens = usage.tokens + usage.cached_tokens;
    Ok(Work { tokens, cells: tokens, cut, seconds: usage.total_ms / 1e3 })
}

impl Analysis for EragCost {
    fn about(&self) -> About {
        About::new(
            "erag-cost",
            "Cost of passage labels and of the answer from the whole list (eRAG, Table 2)",
            &[Need::Engine, Need::Task],
        )
        .passages(20)
    }

    fn ask<'a>(&'a self, question: &'a Question, context: &'a Context<'a>) -> Asking<'a> {
        /// The first call of a process reads the model's weights into memory, so its time does not count.
        static BEGUN: AtomicBool = AtomicBool::new(false);
        Box::pin(async move {
            let (engine, settings) = (context.engine()?, context.settings);
            let passages = context.passages(question);
            if !BEGUN.swap(true, Ordering::Relaxed) {
                answered(engine, question, &passages[..passages.len().min(1)], vec![vec![0]], settings).await?;
            }
            let mut alone = Vec::with_capacity(passages.len());
            for passage in &passages {
                alone.push(answered(engine, question, std::slice::from_ref(passage), vec![vec![0]], settings).await?);
            }
            let mut sizes = Vec::new();
            for size in cutoffs(passages.len()).into_iter().filter(|size| *size >= LEAST.min(passages.len())) {
                let first = &passages[..size];
                sizes.push(Size {
                    passages: size,
                    document: alone[..size].iter().copied().fold(Work::default(), Work::and),
                    query: answered(engine, question, first, (0..size).map(|one| vec![one]).collect(), settings)
                        .await?,
                    whole: answered(engine, question, first, vec![(0..size).collect()], settings).await?,
                });
            }
            let seconds = |size: &Size| [size.document.seconds, size.query.seconds, size.whole.seconds];
            let times: Vec<[f64; 3]> = sizes.iter().map(seconds).collect();
            let cell_bytes = engine.generator()?.info.cell_bytes;
            Ok(json!({ "cell_bytes": cell_bytes, "sizes": sizes, (TIMES): times }))
        })
    }

    fn report(&self, answers: &[Answer<'_>], settings: &Settings) -> Result<Report, StudyError> {
        let mut costs = values::<Cost>(answers)?;
        for cost in &mut costs {
            for (size, seconds) in cost.sizes.iter_mut().zip(std::mem::take(&mut cost.times)) {
                [size.document.seconds, size.query.seconds, size.whole.seconds] = seconds;
            }
        }
        let mut report = Report::default();
        let mut sizes: Vec<usize> = costs.iter().flat_map(|cost| cost.sizes.iter().map(|size| size.passages)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let largest = sizes.last().copied().unwrap_or_default();
        let mut curves = Vec::new();
        for measure in MEASURES {
            let head = [
                "passages",
                "end to end",
                "labels, one call",
                "labels, a call each",
                "ratio, one call",
                "ratio, a call each",
                "questions",
            ];
            let mut table = Table::new(
                format!("{} per question; ratios are labels over end to end", measure.name),
                head,
                Vec::new(),
            );
            let mut ratios = [
                Series { name: format!("{}, one call", measure.name), points: Vec::new() },
                Series { name: format!("{}, a call each", measure.name), points: Vec::new() },
            ];
            for size in &sizes {
                let of_size: Vec<[Option<f64>; 3]> = costs.iter().filter_map(|cost| measure.of(cost, *size)).collect();
                let column = |at: usize| -> Vec<Option<f64>> { of_size.iter().map(|ways| ways[at]).collect() };
                let mut row = vec![size.to_string()];
                for (at, way) in [(2, "end to end"), (1, "labels, one call"), (0, "labels, a call each")] {
                    let mean = mean_of(column(at), &settings.statistics);
                    row.push(report.number(format!("{way}, {size} passages: {}", measure.name), measure.unit, mean));
                }
                for (at, curve) in [1, 0].into_iter().zip(&mut ratios) {
                    let mean = ratio(&column(at), &column(2), settings);
                    curve.points.extend(Point::of(real(*size), &mean));
                    row.push(report.number(format!("{} over end to end, {size} passages", curve.name), "", mean));
                }
                row.push(of_size.len().to_string());
                table.rows.push(row);
            }
            report.tables.push(table);
            // A ratio of bytes equals that of cells.
            curves.extend(ratios.into_iter().filter(|_| measure.unit != "MiB"));
        }
        report.charts.push(chart::lines(
            Axes::new("Cost of labels over the cost of the answer from the whole list", "passages", "times end to end"),
            &curves,
        )?);
        let questions = costs.iter().filter(|cost| cost.sizes.iter().any(|size| size.passages == largest)).count();
        report.verdict = verdict(&curves, (largest, questions));
        report.notes = notes(settings);
        // The passages of one prompt share its context, so they may be cut more than single passages.
        let unlike = |size: &Size| size.whole.cut > size.document.cut;
        let unlike = costs.iter().filter(|cost| cost.sizes.iter().any(unlike)).count();
        if unlike > 0 {
            report.notes.push(format!(
                "On {unlike} questions the whole list does not fit the context: its passages were cut more than those of the labels, \
                 so the ratios of these sizes are too high. Give --passage-tokens, or a larger generator.context_tokens."
            ));
        }
        Ok(report)
    }
}

/// A compared cost.
struct Measure {
    name: &'static str,
    unit: &'static str,
    of: fn(&Work, Option<usize>) -> Option<f64>,
}

const MEASURES: [Measure; 4] = [
    Measure { name: "Tokens", unit: "tokens", of: |work, _| Some(real(work.tokens)) },
    Measure { name: "Seconds", unit: "s", of: |work, _| (work.seconds > 0.0).then_some(work.seconds) },
    Measure { name: "Cells of the cache", unit: "cells", of: |work, _| Some(real(work.cells)) },
    Measure {
        name: "MiB of the cache",
        unit: "MiB",
        of: |work, bytes| Some(real(work.cells) * real(bytes?) / MEBIBYTE),
    },
];

impl Measure {
    /// Its values for document, query and whole; `None` for a shorter list.
    fn of(&self, cost: &Cost, size: usize) -> Option<[Option<f64>; 3]> {
        let size = cost.sizes.iter().find(|one| one.passages == size)?;
        Some([&size.document, &size.query, &size.whole].map(|work| (self.of)(work, cost.cell_bytes)))
    }
}

/// The sum of the first over the sum of the second, over the questions that have both.
fn ratio(first: &[Option<f64>], second: &[Option<f64>], settings: &Settings) -> Mean {
    let both: Vec<(f64, f64)> = first.iter().zip(second).filter_map(|(first, second)| first.zip(*second)).collect();
    resampled(both.len(), &settings.statistics, |drawn| {
        let sum = |side: fn(&(f64, f64)) -> f64| drawn.iter().map(|&one| side(&both[one])).sum::<f64>();
        let (first, second) = (sum(|pair| pair.0), sum(|pair| pair.1));
        (second > 0.0).then(|| first / second)
    })
}

/// `curves` are the ratios of tokens, seconds and cells, each in one call and in a call each.
fn verdict(curves: &[Series], (size, questions): (usize, usize)) -> String {
    let last = |at: usize| {
        let at_size = curves.get(at)?.points.last().filter(|point| (point.x - real(size)).abs() < 0.5);
        at_size.map(|point| format!("{:.2}", point.y))
    };
    let times = |at: usize| last(at).unwrap_or_else(|| "an unknown number of".to_owned());
    format!(
        "Labels of {size} passages in one call per question take {} times the tokens, {} times the seconds and {} times the memory of \
         one answer from all of them; with one call per passage they take {} times the tokens, {} times the seconds and {} times \
         the memory ({questions} questions).",
        times(0),
        times(2),
        times(4),
        times(1),
        times(3),
        times(5)
    )
}

fn notes(settings: &Settings) -> Vec<String> {
    vec![
        format!(
            "Greedy answers of at most {} tokens. A ratio is of the sums over questions; below 1 labels cost less.",
            settings.answer_tokens()
        ),
        "Tokens are those evaluated without a cache of earlier calls. In one call the common prompt prefix is \
         evaluated once."
            .to_owned(),
        "Seconds are those of this machine in this run, and are not in results.jsonl. The engine evaluates the prompts of a call \
         together as far as its steps hold them; the paper takes the largest batch that fits its GPU."
            .to_owned(),
        "Memory is arithmetic, not a measurement: the tokens of a call, all held at once, times the bytes of a cell (layers x key-value \
         heads x key and value). The engine may hold fewer, because it drops answered prompts. Weights and buffers are left out; \
         the paper gives the highest readings of a GPU, which include them."
            .to_owned(),
        "The paper's generator (T5-small with Fusion-in-Decoder) pads every passage, and its decoder reads all of them; this one reads \
         a prompt once, so labels save attention over long prompts, but need one answer per passage."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rag_metrics::resample::Statistics;

    fn settings() -> Settings {
        Settings {
            task: engine::types::Task::default(),
            passages: None,
            passage_tokens: None,
            samples: 5,
            repeats: 3,
            depths: Vec::new(),
            threshold: 0.5,
            seed: 0,
            statistics: Statistics { resamples: 50, ..Statistics::default() },
        }
    }

    fn size(passages: usize, [document, query, whole]: [(usize, usize); 3]) -> serde_json::Value {
        let work = |(tokens, cells): (usize, usize)| json!({ "tokens": tokens, "cells": cells });
        json!({ "passages": passages, "document": work(document), "query": work(query), "whole": work(whole) })
    }

    fn report(values: &[serde_json::Value]) -> Report {
        let question = Question::default();
        let answers: Vec<Answer<'_>> =
            values.iter().map(|value| Answer { question: &question, value: value.clone() }).collect();
        EragCost.report(&answers, &settings()).unwrap()
    }

    fn figure(report: &Report, name: &str) -> Option<f64> {
        report.figures.iter().find(|figure| figure.name == name).unwrap_or_else(|| panic!("{name}")).mean.value
    }

    #[test]
    fn ratios_are_of_sums_over_questions() {
        let five = |scale: usize| size(5, [(600 * scale, 150), (400, 400), (200 * scale, 200)]);
        let report = report(&[
            json!({ "cell_bytes": 1_048_576, "sizes": [five(1)], "times": [[3.0, 2.0, 1.0]] }),
            json!({ "cell_bytes": 1_048_576, "sizes": [five(3), size(10, [(2_000, 160), (1_500, 1_500), (1_000, 1_000)])],
                "times": [[5.0, 2.0, 3.0], [9.0, 8.0, 4.0]] }),
        ]);
        assert_eq!(figure(&report, "end to end, 5 passages: Tokens"), Some(400.0));
        // 800 tokens over 200 + 600; the mean of the ratios would be 4/3.
        assert_eq!(figure(&report, "Tokens, one call over end to end, 5 passages"), Some(1.0));
        assert_eq!(figure(&report, "Tokens, a call each over end to end, 5 passages"), Some(3.0));
        assert_eq!(figure(&report, "Seconds, one call over end to end, 5 passages"), Some(1.0));
        for memory in ["Cells", "MiB"] {
            let name = format!("{memory} of the cache, a call each over end to end, 5 passages");
            assert_eq!(figure(&report, &name), Some(0.75));
        }
        assert_eq!(figure(&report, "labels, one call, 10 passages: MiB of the cache"), Some(1_500.0));
        assert_eq!(
            report.verdict,
            "Labels of 10 passages in one call per question take 1.50 times the tokens, 2.00 times the seconds and 1.50 times the memory \
             of one answer from all of them; with one call per passage they take 2.00 times the tokens, 2.25 times the seconds and \
             0.16 times the memory (1 questions)."
        );
        assert_eq!(report.tables[0].rows[0].last().unwrap(), "2");
    }

    #[test]
    fn unknown_values_are_left_out() {
        let report = report(&[json!({ "cell_bytes": null, "sizes": [size(5, [(6, 2), (4, 4), (2, 2)])] })]);
        assert_eq!(figure(&report, "Tokens, one call over end to end, 5 passages"), Some(2.0));
        assert_eq!(figure(&report, "Seconds, one call over end to end, 5 passages"), None);
        assert_eq!(figure(&report, "end to end, 5 passages: MiB of the cache"), None);
        assert_eq!(figure(&report, "end to end, 5 passages: Cells of the cache"), Some(2.0));
        assert!(report.verdict.contains("an unknown number of times the seconds"), "{}", report.verdict);
    }

    #[test]
    fn calls_follow_each_other_and_the_longest_counts() {
        let work = |tokens: usize| Work { cut: 0, tokens, cells: tokens, seconds: 1.0 };
        let both = [work(30), work(50), work(20)].into_iter().fold(Work::default(), Work::and);
        assert_eq!((both.tokens, both.cells), (100, 50));
        assert!((both.seconds - 3.0).abs() < 1e-12);
    }
}
