//! Agreement of decisions and scores with people's verdicts.

use std::collections::BTreeMap;

use crate::analysis::Answer;
use crate::analysis::readings::{Side, UNJUDGED, by_side, side};
use crate::study::mean::{Mean, NONE};
use crate::study::report::{Report, Table};
use numeric::real;
use rag_metrics::agreement::Correlation;
use rag_metrics::never;
use rag_metrics::probability::auc;
use rag_metrics::resample::{Resampling, Statistics, interval};

/// Most systems with separate columns.
const MOST_SYSTEMS: usize = 8;

/// A measure of one candidate answer, and people's verdict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Judged {
    pub score: f64,
    pub decision: bool,
    pub equivalent: bool,
}

/// Agreement of a measure with people.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quality {
    pub accuracy: Mean,
    pub f1: Mean,
    pub auc: Mean,
    pub pearson: Mean,
    pub spearman: Mean,
}

impl Quality {
    pub const NAMES: [&'static str; 5] = ["accuracy", "F1", "AUC", "Pearson's r", "Spearman's rho"];

    pub fn named(&self) -> [(&'static str, Mean); 5] {
        let means = [self.accuracy, self.f1, self.auc, self.pearson, self.spearman];
        std::array::from_fn(|at| (Self::NAMES[at], means[at]))
    }
}

/// A measure on the candidates of every question. Intervals draw whole questions, because candidates of one
/// question are not independent.
pub(super) fn quality(questions: &[Vec<Judged>], statistics: &Statistics) -> Quality {
    let over = |of: fn(&[Judged]) -> Option<f64>, how: Option<Resampling>| estimate(questions, of, how);
    // Statistics that sort have fewer resamples.
    let (fast, slow) = (statistics.intervals(), statistics.correlation_intervals());
    Quality {
        accuracy: over(accuracy, fast),
        f1: over(f1, fast),
        auc: over(|all| auc(&scores(all), &all.iter().map(|one| one.equivalent).collect::<Vec<_>>()), slow),
        pearson: over(|all| correlation(Correlation::Pearson, all), fast),
        spearman: over(|all| correlation(Correlation::Spearman, all), slow),
    }
}

fn estimate(questions: &[Vec<Judged>], of: fn(&[Judged]) -> Option<f64>, how: Option<Resampling>) -> Mean {
    let drawn =
        |indices: &[usize]| of(&indices.iter().flat_map(|index| questions[*index].iter().copied()).collect::<Vec<_>>());
    let ends = how.and_then(|how| interval(questions.len(), how, &never, drawn));
    Mean::new(of(&questions.concat()), ends, questions.len())
}

fn scores(all: &[Judged]) -> Vec<f64> {
    all.iter().map(|one| one.score).collect()
}

/// Share of decisions that equal people's verdicts; `None` for none.
fn accuracy(all: &[Judged]) -> Option<f64> {
    let right = all.iter().filter(|one| one.decision == one.equivalent).count();
    (!all.is_empty()).then(|| real(right) / real(all.len()))
}

/// F1 of the decision, with equivalent as positive; `None` if nothing is equivalent and nothing was decided so.
fn f1(all: &[Judged]) -> Option<f64> {
    let both = all.iter().filter(|one| one.decision && one.equivalent).count();
    let either = all.iter().map(|one| usize::from(one.decision) + usize::from(one.equivalent)).sum::<usize>();
    (either > 0).then(|| 2.0 * real(both) / real(either))
}

fn correlation(kind: Correlation, all: &[Judged]) -> Option<f64> {
    let labels: Vec<f64> = all.iter().map(|one| f64::from(u8::from(one.equivalent))).collect();
    Some(kind.of(&scores(all), &labels)?.value)
}

/// F1 and accuracy of every measure by answering system, as in the paper. `None` if the data name no system, one,
/// or too many.
pub(super) fn by_system(
    answers: &[Answer<'_>],
    measures: &[(&'static str, Vec<Vec<Judged>>)],
    report: &mut Report,
) -> Option<Table> {
    let mut places: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
    for (question, answer) in answers.iter().enumerate() {
        for (at, passage) in answer.question.list.passages.iter().enumerate() {
            places.entry(&passage.title).or_default().push((question, at));
        }
    }
    places.remove("");
    if !(2..=MOST_SYSTEMS).contains(&places.len()) {
        return None;
    }
    let mut figure = |name: String, value: Option<f64>, count: usize| {
        report.number(name, "share", Mean::new(value, None, count));
        value.map_or_else(|| NONE.to_owned(), |value| format!("{:.1}", 100.0 * value))
    };
    let row = |(name, judged): &(&'static str, Vec<Vec<Judged>>)| {
        let mut cells = vec![(*name).to_owned()];
        for (system, places) in &places {
            let of_it: Vec<Judged> =
                places.iter().filter_map(|(question, at)| judged.get(*question)?.get(*at).copied()).collect();
            let first = figure(format!("{name}, {system}, F1"), f1(&of_it), of_it.len());
            cells.push(format!(
                "{first} / {}",
                figure(format!("{name}, {system}, accuracy"), accuracy(&of_it), of_it.len())
            ));
        }
        cells
    };
    let rows = measures.iter().map(row).collect();
    let systems = places.keys().map(|system| format!("{system}, F1 / accuracy"));
    Some(Table::new(
        "F1 and accuracy by answering system, in per cent",
        std::iter::once("measure".to_owned()).chain(systems),
        rows,
    ))
}

/// Entailment against the best lexical measure, by accuracy.
pub(super) fn verdict(
    measures: &[(&'static str, Vec<Vec<Judged>>)],
    qualities: &[(&'static str, Quality)],
    (count, statistics): (usize, &Statistics),
) -> String {
    let words = ["exact match", "containment", "token F1", "ROUGE-L"];
    let value = |at: &usize| qualities[*at].1.accuracy.value.unwrap_or(f64::NEG_INFINITY);
    let best = (0..qualities.len())
        .filter(|at| words.contains(&qualities[*at].0))
        .max_by(|l, r| value(l).total_cmp(&value(r)));
    let Some((best, (_, own))) = best.zip(qualities.first()) else { return "There is nothing to compare.".to_owned() };
    let percent = |mean: &Mean| mean.value.map_or_else(|| "–".to_owned(), |value| format!("{:.1} %", 100.0 * value));
    // The decisions of both on the same candidates: 1 if only entailment is right, -1 if only the other is.
    let pairs = measures[0].1.iter().zip(&measures[best].1).map(|(own, other)| {
        let right = |one: &Judged| f64::from(u8::from(one.decision == one.equivalent));
        let less = |(own, other): (&Judged, &Judged)| Judged { score: right(own) - right(other), ..*own };
        own.iter().zip(other).map(less).collect::<Vec<_>>()
    });
    let mean_score = |all: &[Judged]| (!all.is_empty()).then(|| scores(all).iter().sum::<f64>() / real(all.len()));
    let difference = estimate(&pairs.collect::<Vec<_>>(), mean_score, statistics.intervals());
    let beyond = by_side(&difference, ["more than", "less than", "within the error of", "against"]);
    let unjudged = if side(&difference) == Side::Unknown { format!(", {UNJUDGED}") } else { String::new() };
    let auc = own.auc.value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"));
    format!(
        "The entailment model agrees with people on {} of {count} answers (AUC {auc}), {beyond} the best lexical measure, {}, with {}{unjudged}.",
        percent(&own.accuracy),
        qualities[best].0,
        percent(&qualities[best].1.accuracy)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(score: f64, equivalent: bool) -> Judged {
        Judged { score, decision: score >= 0.5, equivalent }
    }

    #[test]
    fn undefined_agreement_is_absent() {
        let statistics = Statistics { resamples: 0, ..Statistics::default() };
        let found = quality(&[vec![judged(0.1, false), judged(0.2, false)]], &statistics);
        assert_eq!(found.accuracy.value, Some(1.0));
        assert_eq!((found.f1.value, found.auc.value, found.pearson.value), (None, None, None));
    }

    /// Every question has one right and one wrong decision, so every resample of questions has them, too.
    #[test]
    fn intervals_draw_whole_questions() {
        let questions = vec![vec![judged(0.9, true), judged(0.9, false)]; 20];
        let found = quality(&questions, &Statistics { resamples: 200, ..Statistics::default() });
        assert_eq!((found.accuracy.value, found.accuracy.low, found.accuracy.high), (Some(0.5), Some(0.5), Some(0.5)));
    }

    /// A percentile interval of two questions excludes 0 if both differ alike.
    #[test]
    fn few_questions_do_not_decide() {
        let sentence = |questions: usize| {
            let own = vec![vec![judged(0.9, true), judged(0.1, false)]; questions];
            let words = vec![vec![judged(0.1, true), judged(0.1, false)]; questions];
            let statistics = Statistics::default();
            let qualities = [("entailment", quality(&own, &statistics)), ("exact match", quality(&words, &statistics))];
            verdict(&[("entailment", own), ("exact match", words)], &qualities, (2 * questions, &statistics))
        };
        let (few, enough) = (sentence(2), sentence(6));
        assert!(few.contains("against the best lexical measure") && few.ends_with(&format!(", {UNJUDGED}.")), "{few}");
        assert!(enough.contains("more than the best lexical measure"), "{enough}");
    }
}
