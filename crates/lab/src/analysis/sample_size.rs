//! How many answers SePer needs (Dai et al., *SePer*, section 4.2, Fig. 3).
//!
//! The answers of a question are drawn once. Estimates of the first 1, 2, 3, 5, 10 … answers are compared with that of
//! all: their mean absolute deviation, and their correlation over questions. Two more correlations show the use of an
//! estimate: DeltaSePer of single passages with their labels (the paper's figure), and SePer of the list with the
//! quality of the generator's answer from it. The answer is greedy, or the likeliest label for a task with labels.

use serde::{Deserialize, Serialize};

use super::coefficient::{Pairs, coefficient};
use super::sampled::{self, Both, Kind};
use super::{About, Analysis, Answer, Asking, Context, Need, Settings, kept, values};
use crate::study::StudyError;
use crate::study::backend::Refusal;
use crate::study::chart::{self, Axes, Chart, Point, Series};
use crate::study::data::Question;
use crate::study::mean::{Mean, mean_of};
use crate::study::report::Report;
use engine::Engine;
use engine::contexts::ContextsRequest;
use engine::sampling::measure_answers;
use engine::types::{MeasureInput, Response, UtilityReport, UtilityRequest};
use numeric::real;
use prefix_scheduler::call::Call;
use rag_metrics::agreement::Correlation;
use rag_metrics::belief::Pairing;
use rag_metrics::lexical;

/// Numbers of answers, smaller than the number of all.
const SIZES: [usize; 8] = [1, 2, 3, 5, 10, 15, 20, 50];

/// See the module.
pub(super) struct SampleSize;

/// The estimates of one question.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Drawn {
    /// By ascending number of answers; the last has all of them.
    estimates: Vec<Partial>,
    /// Token F1 of the answer from the list.
    f1: f64,
}

/// The estimate of the first answers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Partial {
    samples: usize,
    /// SePer of the list.
    seper: Both,
    /// DeltaSePer of the list.
    delta: Both,
    /// DeltaSePer of each single passage.
    passages: Vec<Both>,
}

/// Quality of an estimate of one size.
struct Worth {
    samples: usize,
    /// Mean absolute deviation of SePer, then of DeltaSePer, from the estimate of all answers.
    deviations: [Mean; 2],
    /// Correlations over questions of SePer with the estimate of all answers.
    with_all: [Mean; 2],
    /// Correlation over passages of DeltaSePer with their labels.
    with_labels: Mean,
    /// Correlations over questions of SePer with the answer's F1.
    with_f1: [Mean; 2],
}

/// Rank correlation, then linear correlation.
const CORRELATIONS: [Correlation; 2] = [Correlation::KendallB, Correlation::Pearson];

impl Analysis for SampleSize {
    fn about(&self) -> About {
        About::new(
            "sample-size",
            "How many answers SePer needs (SePer, Fig. 3)",
            &[Need::References, Need::Entailment, Need::Engine, Need::Task],
        )
    }

    fn ask<'a>(&'a self, question: &'a Question, context: &'a Context<'a>) -> Asking<'a> {
        Box::pin(async move {
            let engine = context.engine()?;
            let passages = context.passages(question);
            let request =
                UtilityRequest { list: true, each: true, ..sampled::request(question, context, passages.clone()) };
            let report = engine.utility.measure(&Call::local(), request.clone(), None).await?;
            let mut estimates = Vec::new();
            for samples in sizes(context.settings.samples) {
                estimates.push(estimate(engine, &request, &report, samples).await?);
            }
            let whole = ContextsRequest {
                question: request.question.clone(),
                task: request.task.clone(),
                contexts: vec![(0..passages.len()).collect()],
                passages,
                answer_tokens: Some(context.settings.answer_tokens()),
                passage_tokens: request.passage_tokens,
                ..ContextsRequest::default()
            };
            let readings = engine.contexts.read(&Call::local(), whole).await?;
            let text = readings.first().and_then(|reading| reading.answer.as_deref()).unwrap_or_default();
            kept(Drawn { estimates, f1: lexical::token_f1(text, &request.references) })
        })
    }

    fn report(&self, answers: &[Answer<'_>], settings: &Settings) -> Result<Report, StudyError> {
        let questions: Vec<Drawn> = values(answers)?;
        let mut report = Report::default();
        for kind in Kind::ALL {
            let worths: Vec<Worth> = sizes(settings.samples)
                .enumerate()
                .filter_map(|(at, n)| worth(answers, &questions, (at, n), kind, settings))
                .collect();
            if worths.is_empty() {
                report.notes.push("The entailment model is two-way, so there is no hard SePer.".to_owned());
                continue;
            }
            if report.verdict.is_empty() {
                report.verdict = verdict(&worths, questions.len());
                report.charts = drawn_lines(&worths)?;
            }
            let name = kind.name();
            let rows = worths.iter().map(|worth| {
                let n = worth.samples;
                let mut cells = vec![n.to_string()];
                let mut number = |what: &str, unit, mean: &Mean| {
                    cells.push(report.number(format!("{name}, {n} answers, {what}"), unit, *mean));
                };
                number("deviation of SePer", "probability", &worth.deviations[0]);
                number("deviation of DeltaSePer", "probability", &worth.deviations[1]);
                for (kind, mean) in CORRELATIONS.iter().zip(&worth.with_all) {
                    number(&format!("{kind} with the estimate of all"), "correlation", mean);
                }
                number("Pearson's r with labels", "correlation", &worth.with_labels);
                for (kind, mean) in CORRELATIONS.iter().zip(&worth.with_f1) {
                    number(&format!("{kind} with F1"), "correlation", mean);
                }
                cells
            });
            let rows = rows.collect();
            report.table(
                format!(
                    "SePer ({name}) of the first answers and of all {}, {} questions",
                    settings.samples,
                    questions.len()
                ),
                [
                    "answers",
                    "|SePer − all|",
                    "|DeltaSePer − all|",
                    "tau-b with all",
                    "r with all",
                    "r of DeltaSePer with labels",
                    "tau-b with F1",
                    "r with F1",
                ],
                rows,
            );
        }
        report.notes.push(format!(
            "Answers of at most {} tokens, drawn once. The first of them are part of all of them, so deviations are smaller than between independent draws (see `repeatability`), and the last row agrees with itself.",
            settings.answer_tokens()
        ));
        report.notes.push(
"\"With labels\" is the paper's measure: Pearson's r over passages between DeltaSePer of the passage alone and whether it is relevant. Its intervals draw questions with all their passages. \"With F1\" is over questions: SePer of the list and token F1 of the answer from it (greedy, or the likeliest label for a task with labels)."
                .to_owned(),
        );
        Ok(report)
    }
}

/// Ascending; the last is all.
fn sizes(all: usize) -> impl Iterator<Item = usize> {
    SIZES.into_iter().filter(move |size| *size < all).chain([all])
}

/// Measures the first answers of every context. Earlier verdicts are in the entailment model's cache.
async fn estimate(
    engine: &Engine,
    request: &UtilityRequest,
    report: &UtilityReport,
    samples: usize,
) -> Result<Partial, Refusal> {
    let first = |answers: &[engine::types::Answer]| {
        let response = |one: &engine::types::Answer| Response {
            text: request.task.measured(&one.text),
            likelihood: one.likelihood(),
        };
        answers.iter().take(samples).map(response).collect::<Vec<_>>()
    };
    let (mut seper, mut deltas) = (Both::default(), Vec::new());
    for (at, utility) in report.utilities.iter().enumerate() {
        let input = MeasureInput {
            question: request.question.clone(),
            references: request.references.clone(),
            with_context: first(&utility.answers),
            context_free: first(&report.context_free_answers),
            pairing: Pairing::Paired,
            ..MeasureInput::default()
        };
        let (with, free, _) = measure_answers(&Call::local(), &input, engine.models().judge_if_any()).await?;
        let value = |estimate: &Option<rag_metrics::belief::Estimate>| estimate.as_ref().map(|one| one.value);
        let both = |soft, hard| Both { soft, hard };
        let inside = both(value(&with.seper_soft), value(&with.seper_hard));
        let outside = free.map_or_else(Both::default, |free| both(value(&free.seper_soft), value(&free.seper_hard)));
        let less = |kind| Some(inside.of(kind)? - outside.of(kind)?);
        deltas.push(both(less(Kind::Soft), less(Kind::Hard)));
        if at == 0 {
            seper = inside;
        }
    }
    let missing = || Refusal::Question("the list was not measured".to_owned());
    let (delta, passages) = deltas.split_first().ok_or_else(missing)?;
    Ok(Partial { samples, seper, delta: *delta, passages: passages.to_vec() })
}

/// `None` if no question has this kind.
fn worth(
    answers: &[Answer<'_>],
    questions: &[Drawn],
    (at, samples): (usize, usize),
    kind: Kind,
    settings: &Settings,
) -> Option<Worth> {
    let statistics = &settings.statistics;
    let beside = |of: fn(&Partial) -> &Both| {
        let value = |partial: Option<&Partial>| partial.and_then(|partial| of(partial).of(kind));
        sampled::pairs(questions.iter().map(|one| (value(one.estimates.get(at)), value(one.estimates.last()))))
    };
    let deviation = |(some, all): &(Vec<f64>, Vec<f64>)| {
        let far: Vec<Option<f64>> = some.iter().zip(all).map(|(some, all)| Some((some - all).abs())).collect();
        mean_of(&far, statistics)
    };
    let (sepers, deltas) = (beside(|partial| &partial.seper), beside(|partial| &partial.delta));
    if sepers.0.is_empty() {
        return None;
    }
    let labelled = answers.iter().zip(questions).map(|(answer, one)| {
        let passages = one.estimates.get(at).map_or(&[][..], |partial| partial.passages.as_slice());
        let labels = answer.question.list.labels.iter();
        let labels = labels.map(|label| f64::from(u8::from(*label >= settings.threshold)));
        passages.iter().zip(labels).filter_map(|(both, label)| Some((both.of(kind)?, label))).collect()
    });
    let labelled: Pairs = labelled.collect();
    let quality =
        questions.iter().map(|one| (one.estimates.get(at).and_then(|partial| partial.seper.of(kind)), Some(one.f1)));
    let (beliefs, f1) = sampled::pairs(quality);
    Some(Worth {
        samples,
        deviations: [deviation(&sepers), deviation(&deltas)],
        with_all: CORRELATIONS.map(|kind| sampled::correlation(kind, &sepers.0, &sepers.1, statistics)),
        with_labels: coefficient(Correlation::Pearson, &labelled, statistics),
        with_f1: CORRELATIONS.map(|kind| sampled::correlation(kind, &beliefs, &f1, statistics)),
    })
}

fn drawn_lines(worths: &[Worth]) -> Result<Vec<Chart>, StudyError> {
    let line = |name: &str, of: &dyn Fn(&Worth) -> Mean| {
        let point = |worth: &Worth| Point::of(real(worth.samples), &of(worth));
        Series { name: name.to_owned(), points: worths.iter().filter_map(point).collect() }
    };
    let agreement = [
        line("SePer with all answers' SePer", &|worth| worth.with_all[1]),
        line("DeltaSePer of passages with labels", &|worth| worth.with_labels),
        line("SePer with F1 of the answer", &|worth| worth.with_f1[1]),
    ];
    let far = [line("SePer", &|worth| worth.deviations[0]), line("DeltaSePer", &|worth| worth.deviations[1])];
    Ok(vec![
        chart::lines(
            Axes::new("Pearson's r of the estimate of the first answers", "answers", "Pearson's r"),
            &agreement,
        )?,
        chart::lines(
            Axes::new("Mean absolute deviation from the estimate of all answers", "answers", "deviation"),
            &far,
        )?,
    ])
}

/// The result of half of the answers, or of the nearest number below it.
fn verdict(worths: &[Worth], questions: usize) -> String {
    let Some((all, before)) = worths.split_last().filter(|(_, before)| !before.is_empty()) else {
        return "There is nothing to compare with one number of answers; give --count 2 or more.".to_owned();
    };
    let half = before.iter().rev().find(|worth| 2 * worth.samples <= all.samples).unwrap_or(&before[0]);
    let number = |mean: &Mean| mean.value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"));
    let (n, first) = (half.samples, before[0].samples);
    format!(
        "Over {questions} questions SePer (soft) of {n} answers differs from that of {} by {} in the mean (tau-b {}); that of {first} \
         answer{} by {} (tau-b {}).",
        all.samples,
        number(&half.deviations[0]),
        number(&half.with_all[0]),
        if first == 1 { "" } else { "s" },
        number(&before[0].deviations[0]),
        number(&before[0].with_all[0]),
    )
}

#[cfg(test)]
mod tests;
