//! Cost of reversing a ranking, for the answer (Lee et al., *Inference Scaling for Bridging Retrieval and Augmented
//! Generation*, section 5 and Table 8).
//!
//! The paper judges a ranking by its reverse: if MOI has found the best order for the generator, the reverse is the
//! worst, and the drop is large. If the reverse does as well, the ranking does not matter to the generator.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::readings::{
    MEASURES, Quality, UNJUDGED, at_least, by_side, difference, qualities, question_seed, random_orders, signed,
};
use super::{About, Analysis, Answer, Asking, Context, Need, Settings, kept, values};
use crate::study::StudyError;
use crate::study::chart::{self, Axes, Series};
use crate::study::data::Question;
use crate::study::mean::{Mean, mean_of};
use crate::study::report::Report;
use engine::preferences::{PreferenceRequest, Preferences, Scored};
use engine::types::{EngineError, Passage};
use moi::{self, Anchors, FitError, Objective, Observation};
use prefix_scheduler::call::Call;

/// Random orders per passage of a question (section 3.2.1 of the paper: \|S\| = 3N).
const ORDERS: usize = 3;

const MOI: &str = "MOI";
const PUBLISHED: &str = "MOI as published";
const RETRIEVER: &str = "retriever";
const RANDOM: &str = "random orders";

/// See the module.
pub(super) struct ReversedRanking;

/// Measurements of one question: the answer from each order, by the order's name.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    quality: BTreeMap<String, Quality>,
}

fn reversed(name: &str) -> String {
    format!("{name}, reversed")
}

/// All orders, in the order of the tables.
fn names() -> Vec<String> {
    let both = |name: &str| [name.to_owned(), reversed(name)];
    [MOI, PUBLISHED, RETRIEVER].into_iter().flat_map(both).chain([RANDOM.to_owned()]).collect()
}

impl Analysis for ReversedRanking {
    fn about(&self) -> About {
        About::new(
            "reversed-ranking",
            "Cost of reversing a ranking, for the answer (MOI, Table 8)",
            &[Need::References, Need::Engine, Need::Task],
        )
        .least(2)
    }

    fn ask<'a>(&'a self, question: &'a Question, context: &'a Context<'a>) -> Asking<'a> {
        Box::pin(async move {
            let (engine, settings) = (context.engine()?, context.settings);
            let passages = context.passages(question);
            at_least(&passages, 2, "for an order to have a reverse")?;
            let n = passages.len();
            let call = Call::local();
            let scores = engine.preferences.score(&call, request(question, &passages, settings)).await?;
            let fitted = call.compute(move |call| rankings(&scores, &|| call.is_stopped()).map_err(EngineError::from));
            let [moi, published] = fitted.await?;
            let mut contexts: Vec<Vec<usize>> = Vec::new();
            for order in [moi, published, (0..n).collect()] {
                contexts.push(order.clone());
                contexts.push(order.into_iter().rev().collect());
            }
            let ordered = contexts.len();
            contexts.extend(random_orders(n, &question.id, settings)?);
            let measured = qualities(engine, question, &passages, contexts, settings).await?;
            let (ordered, random) = measured.split_at(ordered);
            let quality = ordered.iter().copied().chain(Quality::mean(random));
            let asked = Asked { quality: names().into_iter().zip(quality).collect() };
            kept(asked)
        })
    }

    fn report(&self, answers: &[Answer<'_>], settings: &Settings) -> Result<Report, StudyError> {
        let asked = values::<Asked>(answers)?;
        let values = |name: &str, measure: usize| -> Vec<Option<f64>> {
            asked.iter().map(|one| Some(one.quality.get(name)?.measure(measure))).collect()
        };
        let mut report = Report::default();
        let (mut rows, mut points) = (Vec::new(), Vec::new());
        for name in names() {
            let mut row = vec![name.clone()];
            for (number, (measure, unit)) in MEASURES.into_iter().enumerate() {
                let mean = mean_of(values(&name, number), &settings.statistics);
                if number == 0 {
                    points.extend(Series::lone(&name, 0.0, &mean));
                }
                row.push(report.number(format!("{name}: {measure}"), unit, mean));
            }
            rows.push(row);
        }
        let head = |first| std::iter::once(first).chain(MEASURES.map(|(name, _)| name));
        report.table("The answer from each order", head("order"), rows);
        let of = |left: &str, right: &str, measure: usize| {
            difference(&values(left, measure), &values(right, measure), &settings.statistics)
        };
        let mut rows = Vec::new();
        let pairs = [MOI, PUBLISHED, RETRIEVER].map(|name| (name.to_owned(), reversed(name)));
        let others = [(MOI, RETRIEVER), (MOI, RANDOM), (PUBLISHED, RANDOM)];
        let others = others.map(|(left, right)| (left.to_owned(), right.to_owned()));
        for (left, right) in pairs.into_iter().chain(others) {
            let name = format!("{left} − {right}");
            let mut row = vec![name.clone()];
            for (number, (measure, unit)) in MEASURES.into_iter().enumerate() {
                row.push(report.number(format!("{name}: {measure}"), unit, of(&left, &right, number)));
            }
            rows.push(row);
        }
        let mut row = vec!["drop of MOI − drop of retriever".to_owned()];
        let mut drops = None;
        for (number, (measure, unit)) in MEASURES.into_iter().enumerate() {
            let drop = |name: &str| -> Vec<Option<f64>> {
                let pairs = values(name, number).into_iter().zip(values(&reversed(name), number));
                pairs.map(|(order, reverse)| Some(order? - reverse?)).collect()
            };
            let mean = difference(&drop(MOI), &drop(RETRIEVER), &settings.statistics);
            if number == 0 {
                drops = Some(mean);
            }
            row.push(report.number(format!("drop of MOI − drop of retriever: {measure}"), unit, mean));
        }
        rows.push(row);
        let caption = "Paired differences; the drop of a ranking is itself less its reverse";
        report.table(caption, head("difference"), rows);
        let axes = Axes::new("The reference answer's likelihood from each order", "log P(reference) a token, nats", "");
        report.charts.push(chart::intervals(axes, &points)?);
        report.verdict =
            drops.map_or_else(String::new, |drops| verdict(&of(MOI, &reversed(MOI), 0), &drops, asked.len()));
        report.notes = notes();
        Ok(report)
    }
}

/// The request for the scores that MOI is fitted to: random orders, with the question's seed.
fn request(question: &Question, passages: &[Passage], settings: &Settings) -> PreferenceRequest {
    PreferenceRequest {
        query: question.list.question.clone(),
        passages: passages.to_vec(),
        passage_tokens: settings.passage_tokens,
        scored: Scored::Orders(ORDERS * passages.len()),
        seed: question_seed(settings.seed, &question.id),
    }
}

/// The rankings by MOI: the regularised fit of log P(query | order), and the paper's objective on its joint outcome (Eq. 3).
fn rankings(scores: &Preferences, interrupt: &(dyn Fn() -> bool + Sync)) -> Result<[Vec<usize>; 2], FitError> {
    let n = scores.passages.len();
    let fitted = |outcomes: Vec<f64>, settings: &moi::Settings| {
        let observe = |(order, score): (&Vec<usize>, f64)| Observation { order: order.clone(), score };
        let observations: Vec<Observation> = scores.orders.iter().zip(outcomes).map(observe).collect();
        moi::estimate(n, &observations, Some(&scores.query_after_passage), settings, interrupt).map(|fit| fit.ranking)
    };
    let joint = scores.query_after_order.iter().zip(&scores.passages_in_order).map(|(query, order)| query + order);
    let paper = moi::Settings { objective: Objective::Paper, anchors: Anchors::Direction, ..moi::Settings::default() };
    Ok([fitted(scores.query_after_order.clone(), &moi::Settings::default())?, fitted(joint.collect(), &paper)?])
}

/// `moi` is MOI's ranking minus its reverse; `drops` subtracts the same difference of the first-stage order.
fn verdict(moi: &Mean, drops: &Mean, questions: usize) -> String {
    let what = by_side(moi, ["the reverse is worse", "the reverse is better", "within the error", UNJUDGED]);
    let (more, judged) = by_side(
        drops,
        [
            ("more than", String::new()),
            ("less than", String::new()),
            ("as much within the error as", String::new()),
            ("more or less than", format!(", {UNJUDGED}")),
        ],
    );
    format!(
        "MOI's ranking less its reverse: {} nats per token of the reference answer ({what}); reversing it costs {more} reversing the retriever's order (difference {}{judged}), over {questions} questions.",
        signed(moi),
        signed(drops)
    )
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "MOI is the regularised fit of log P(query | order) over {ORDERS} random orders per passage; \"{PUBLISHED}\" is the paper's objective on log P(query, order) (Eq. 3), from the same prompts."
        ),
        "An order is the reading order of the prompt, best first. A difference is an order minus its reverse: above 0 the order is better.".to_owned(),
        format!("Random orders: the mean of {} per question; the paper's row \"Random\" is the mean of 30.", super::readings::RANDOM),
        "The paper takes ROUGE-L (its column is headed EM and holds the values of its Table 1) and GPT-4's judgement; here it is the likelihood of the first reference, token F1 and containment of the answer: a greedy one of at most 24 tokens, or for a task with labels the likeliest label. A likelihood shows differences that right-or-wrong answers to few questions do not show.".to_owned(),
        "For comparison the paper reverses RankGPT's ranking; here it is the retriever's order. The paper reads ten passages. Fewer passages move less, and the middle one of an odd number keeps its place.".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::readings::tests::settings;
    use super::*;

    fn quality(likelihood: f64, f1: f64) -> Quality {
        Quality { likelihood, f1, contains: 0.0 }
    }

    /// Likelihoods in the order of [`names`].
    fn value(likelihoods: [f64; 7]) -> serde_json::Value {
        let quality = likelihoods.map(|likelihood| quality(likelihood, likelihood.exp()));
        json!(Asked { quality: names().into_iter().zip(quality).collect() })
    }

    fn figure(report: &Report, name: &str) -> f64 {
        report.figures.iter().find(|figure| figure.name == name).and_then(|figure| figure.mean.value).unwrap()
    }

    #[test]
    fn drops_are_paired_by_question() {
        let question = Question::default();
        let answer = |likelihoods| Answer { question: &question, value: value(likelihoods) };
        let answers =
            [answer([-1.0, -2.0, -1.5, -1.5, -1.25, -1.5, -1.5]), answer([-2.0, -3.5, -2.0, -2.5, -2.0, -2.25, -3.0])];
        let report = ReversedRanking.report(&answers, &settings()).unwrap();
        let of = |name: &str| figure(&report, &format!("{name}: log P(reference) a token"));
        assert!((of("MOI") + 1.5).abs() < 1e-12);
        // Drops of 1 and 1.5; the retriever's are 0.25 each.
        assert!((of("MOI − MOI, reversed") - 1.25).abs() < 1e-12);
        assert!((of("drop of MOI − drop of retriever") - 1.0).abs() < 1e-12);
        assert!((of("MOI − random orders") - 0.75).abs() < 1e-12);
        assert_eq!((report.tables[0].rows.len(), report.tables[1].rows.len()), (7, 7));
        assert!(
            report.verdict.starts_with("MOI's ranking less its reverse: +1.250")
                && report.verdict.contains("with too few questions"),
            "{}",
            report.verdict
        );
        assert!(report.charts[0].svg.contains("retriever"));
    }

    #[test]
    fn the_verdict_follows_the_drops() {
        let question = Question::default();
        let of = |forth: f64, back: f64| {
            let answer = || Answer { question: &question, value: value([forth, back, -1.0, -1.0, -1.0, -1.0, -1.0]) };
            let answers: Vec<Answer<'_>> = (0..6).map(|_| answer()).collect();
            ReversedRanking.report(&answers, &settings()).unwrap().verdict
        };
        // The first-stage order is as good as its reverse.
        let says = |verdict: &str, what: &str, more: &str| {
            assert!(verdict.contains(&format!("({what})")), "{verdict}");
            assert!(verdict.contains(&format!("costs {more} reversing the retriever's")), "{verdict}");
        };
        says(&of(-1.0, -2.0), "the reverse is worse", "more than");
        says(&of(-2.0, -1.0), "the reverse is better", "less than");
        says(&of(-1.0, -1.0), "within the error", "as much within the error as");
    }

    #[test]
    fn each_question_has_its_own_orders() {
        let asked = |id: &str| request(&Question { id: id.into(), ..Question::default() }, &[], &settings());
        assert_ne!(asked("q1").seed, asked("q2").seed);
        assert_eq!(asked("q1"), asked("q1"), "an interrupted analysis continues with the same");
    }

    #[test]
    fn both_fits_rank_by_the_scores() {
        // Passage 2 helps most and passage 0 least; the first place counts most. The joint outcome adds a constant.
        let utilities = [0.0, 1.0, 3.0];
        let orders = vec![vec![0, 1, 2], vec![0, 2, 1], vec![1, 0, 2], vec![1, 2, 0], vec![2, 0, 1], vec![2, 1, 0]];
        let weights = [0.6, 0.3, 0.1];
        let score = |order: &Vec<usize>| order.iter().zip(weights).map(|(&p, a)| a * utilities[p]).sum::<f64>();
        let scores = Preferences {
            query: vec![1],
            passages: vec![vec![1].into(), vec![2].into(), vec![3].into()],
            cut: vec![0; 3],
            query_after_order: orders.iter().map(score).collect(),
            passages_in_order: vec![-10.0; orders.len()],
            orders,
            query_after_passage: utilities.to_vec(),
            query_alone: Some(0.0),
        };
        let [moi, published] = rankings(&scores, &|| false).unwrap();
        assert_eq!((moi, published), (vec![2, 1, 0], vec![2, 1, 0]));
    }
}
