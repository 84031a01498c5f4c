//! The loss of MOI's cheaper designs, and the effect of the relevant passage's position (Lee et al., *Inference Scaling
//! for Bridging Retrieval and Augmented Generation*, section 4.3 with Table 6, section 5 with Table 7).
//!
//! Table 6 replaces the random complete orders by rotations of the first-stage order, then prunes these, then prunes
//! them by the first-stage scores. Table 7 compares the MRR of each ranking with the answer from it, and with the
//! answers with the gold passage at a given position.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::readings::{
    MEASURES, Quality, UNJUDGED, at_least, by_side, difference, percent, permutation, qualities, question_seed,
    random_orders, signed,
};
use super::stability::{in_list, ndcg};
use super::{About, Analysis, Answer, Asking, Context, Need, Settings, kept, values};
use crate::study::StudyError;
use crate::study::backend::Refusal;
use crate::study::chart::{self, Axes, Series};
use crate::study::data::{Data, Question};
use crate::study::mean::{Mean, mean_of};
use crate::study::report::{Report, Table};
use engine::methods;
use engine::types::{MoiOptions, Passage, RerankRequest, Scheme};
use numeric::{mean, real};

const COMPLETE: &str = "complete";
const VARIABLE: &str = "variable pruning";
const RETRIEVER: &str = "retriever";
const RANDOM: &str = "random orders";

/// The designs, with their names in tables: those of Table 6, then the default of `moi`.
const DESIGNS: [(&str, Scheme, bool); 5] = [
    (COMPLETE, Scheme::Random, false),
    ("cyclic", Scheme::Cyclic, false),
    ("pruned", Scheme::Pruned, false),
    (VARIABLE, Scheme::Pruned, true),
    ("prefix", Scheme::Prefix, false),
];
/// Positions of the relevant passage; the paper's Table 7 has the second to the fourth.
const PLACES: usize = 4;

/// See the module.
pub(super) struct Designs;

/// Cost of a ranking.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Cost {
    /// Evaluated tokens, including cached ones.
    tokens: f64,
    /// Tokens of all prompts without prefix sharing.
    naive: f64,
}

/// One question.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Asked {
    /// Orders by row, indices of passages; several for the random ones.
    orders: BTreeMap<String, Vec<Vec<usize>>>,
    /// By design.
    costs: BTreeMap<String, Cost>,
    /// By row; empty without reference answers.
    quality: BTreeMap<String, Quality>,
}

/// All rows, in the order of the tables.
fn names() -> Vec<String> {
    let designs = DESIGNS.map(|(name, ..)| name.to_owned());
    let orders = [RETRIEVER, RANDOM].map(str::to_owned);
    designs.into_iter().chain(orders).chain((1..=PLACES).map(relevant_at)).collect()
}

fn relevant_at(place: usize) -> String {
    format!("relevant passage at place {place}")
}

/// Selects a number of a cost.
type OfCost = fn(&Cost) -> f64;

/// The two costs, compared with those of the complete design.
const COSTS: [(&str, OfCost); 2] = [("tokens", |cost| cost.tokens), ("unshared tokens", |cost| cost.naive)];

impl Analysis for Designs {
    fn about(&self) -> About {
        About::new("designs", "Losses of cheaper designs (MOI, Tables 6 and 7)", &[Need::Task]).least(2)
    }

    /// Answers are read from explicit orders, which the protocol does not carry.
    fn local(&self, data: &Data) -> bool {
        data.questions.iter().any(|question| !question.list.answers.is_empty())
    }

    fn ask<'a>(&'a self, question: &'a Question, context: &'a Context<'a>) -> Asking<'a> {
        Box::pin(async move {
            let (list, settings) = (&question.list, context.settings);
            let passages = context.passages(question);
            at_least(&passages, 2, "for a ranking")?;
            let labels = &list.labels[..passages.len()];
            let relevant = labels.iter().position(|label| *label >= settings.threshold);
            if relevant.is_none() && list.answers.is_empty() {
                let problem =
                    "labels: no passage that is read is relevant, and answers is empty: rankings cannot be compared";
                return Err(Refusal::Question(problem.to_owned()));
            }
            let mut asked = Asked::default();
            let scored = passages.iter().all(|passage| passage.retriever_score.is_some());
            for (name, scheme, variable) in DESIGNS.into_iter().filter(|(_, _, variable)| scored || !variable) {
                let (ranking, cost) = rank(question, context, &passages, scheme, variable).await?;
                asked.orders.insert(name.to_owned(), vec![ranking]);
                asked.costs.insert(name.to_owned(), cost);
            }
            let n = passages.len();
            asked.orders.insert(RETRIEVER.to_owned(), vec![(0..n).collect()]);
            asked.orders.insert(RANDOM.to_owned(), random_orders(n, &question.id, settings)?);
            if let Some(relevant) = relevant {
                let at = |place| (relevant_at(place + 1), vec![moved(n, relevant, place)]);
                asked.orders.extend((0..PLACES.min(n)).map(at));
            }
            if !list.answers.is_empty() {
                let engine = context.engine()?;
                let contexts: Vec<Vec<usize>> = asked.orders.values().flatten().cloned().collect();
                let mut measured = qualities(engine, question, &passages, contexts, settings).await?.into_iter();
                for (name, orders) in &asked.orders {
                    let of_row: Vec<Quality> = measured.by_ref().take(orders.len()).collect();
                    asked.quality.extend(Quality::mean(&of_row).map(|quality| (name.clone(), quality)));
                }
            }
            kept(asked)
        })
    }

    fn report(&self, answers: &[Answer<'_>], settings: &Settings) -> Result<Report, StudyError> {
        let asked = values::<Asked>(answers)?;
        let asked: Vec<(&[f64], Asked)> =
            answers.iter().map(|answer| &answer.question.list.labels[..]).zip(asked).collect();
        let found = Found { asked: &asked, settings };
        let mut report = Report::default();
        let tables = [found.rows(&mut report), found.differences(&mut report)];
        report.tables.extend(tables);
        let points = DESIGNS.iter().filter_map(|(name, ..)| {
            let (gain, tokens) = (found.mean(&found.gains(name, "nDCG@10")), found.mean(&found.tokens(name)));
            Series::lone(*name, tokens.value?, &gain)
        });
        let points: Vec<Series> = points.collect();
        if !points.is_empty() {
            let axes = Axes::new("nDCG@10 by tokens of a ranking", "tokens of a ranking", "nDCG@10");
            report.charts.push(chart::scatter(axes, &points)?);
        }
        report.verdict = found.verdict();
        let without = asked.iter().filter(|(_, one)| !one.orders.contains_key(VARIABLE)).count();
        report.notes = notes(without);
        Ok(report)
    }
}

/// The options of a design, with the question's seed.
fn options(question: &Question, (scheme, variable_pruning): (Scheme, bool), settings: &Settings) -> MoiOptions {
    let seed = question_seed(settings.seed, &question.id);
    MoiOptions { scheme: Some(scheme), variable_pruning, seed, ..MoiOptions::default() }
}

/// A ranking by one design, and its cost.
async fn rank(
    question: &Question,
    context: &Context<'_>,
    passages: &[Passage],
    scheme: Scheme,
    variable_pruning: bool,
) -> Result<(Vec<usize>, Cost), Refusal> {
    let request = RerankRequest {
        method: methods::find("moi"),
        moi: options(question, (scheme, variable_pruning), context.settings),
        ..context.rerank_request(question, passages.to_vec())
    };
    let answer = context.backend.client.rerank(&request).await?;
    let ranking = permutation(&answer, passages.len())?;
    let usage = answer.usage.unwrap_or_default();
    let count = |tokens: u64| real(usize::try_from(tokens).unwrap_or(usize::MAX));
    Ok((ranking, Cost { tokens: count(usage.tokens + usage.cached_tokens), naive: count(usage.naive_tokens) }))
}

/// The first-stage order of `n` passages with one of them moved to another position, from 0.
fn moved(n: usize, passage: usize, place: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).filter(|index| *index != passage).collect();
    order.insert(place.min(order.len()), passage);
    order
}

/// All questions, with the numbers computed from them.
struct Found<'a> {
    /// Labels and answers.
    asked: &'a [(&'a [f64], Asked)],
    settings: &'a Settings,
}

impl Found<'_> {
    fn mean(&self, values: &[Option<f64>]) -> Mean {
        mean_of(values, &self.settings.statistics)
    }

    /// A rank metric of a row over the labels in the list: the mean over its orders.
    fn gains(&self, name: &str, metric: &str) -> Vec<Option<f64>> {
        let of = |order: &Vec<usize>, labels: &[f64]| match metric {
            "nDCG@10" => ndcg(order, labels, self.settings.threshold),
            other => in_list(other, order, labels, self.settings.threshold),
        };
        let one = |(labels, asked): &(&[f64], Asked)| {
            let gains: Vec<f64> =
                asked.orders.get(name)?.iter().map(|order| of(order, labels)).collect::<Option<_>>()?;
            (!gains.is_empty()).then(|| mean(&gains))
        };
        self.asked.iter().map(one).collect()
    }

    fn quality(&self, name: &str, measure: usize) -> Vec<Option<f64>> {
        self.asked.iter().map(|(_, asked)| Some(asked.quality.get(name)?.measure(measure))).collect()
    }

    fn tokens(&self, name: &str) -> Vec<Option<f64>> {
        self.asked.iter().map(|(_, asked)| Some(asked.costs.get(name)?.tokens)).collect()
    }

    /// A design's cost as a share of the complete design's, per question.
    fn shares(&self, name: &str, of: fn(&Cost) -> f64) -> Vec<Option<f64>> {
        let share = |asked: &Asked| Some(of(asked.costs.get(name)?) / of(asked.costs.get(COMPLETE)?));
        self.asked.iter().map(|(_, asked)| share(asked).filter(|share| share.is_finite())).collect()
    }

    /// One row per ranking: metrics, answers and cost.
    fn rows(&self, report: &mut Report) -> Table {
        let mut rows = Vec::new();
        for name in
            names().into_iter().filter(|name| self.asked.iter().any(|(_, asked)| asked.orders.contains_key(name)))
        {
            let mut row = vec![name.clone()];
            for metric in ["nDCG@10", "RR"] {
                row.push(report.number(format!("{name}: {metric}"), metric, self.mean(&self.gains(&name, metric))));
            }
            for (number, (measure, unit)) in MEASURES.into_iter().enumerate() {
                row.push(report.number(format!("{name}: {measure}"), unit, self.mean(&self.quality(&name, number))));
            }
            let tokens = self.mean(&self.tokens(&name));
            row.push(tokens.value.map_or_else(|| "–".to_owned(), |tokens| format!("{tokens:.0}")));
            for (what, of) in COSTS {
                let share = self.mean(&self.shares(&name, of));
                row.push(share.value.map_or_else(|| "–".to_owned(), percent));
                if share.value.is_some() {
                    report.number(format!("{name}: {what} over the complete design's"), "share", share);
                }
            }
            rows.push(row);
        }
        let head = ["order", "nDCG@10", "RR"].into_iter().chain(MEASURES.map(|(measure, _)| measure));
        let costs = ["tokens", "share of complete", "share without prefix sharing"];
        Table::new(
            format!("Rankings, their answers and their cost, {} questions", self.asked.len()),
            head.chain(costs).map(str::to_owned),
            rows,
        )
    }

    /// A row minus the complete design, in nDCG@10 and in the reference's likelihood.
    fn against_complete(&self, name: &str) -> [Mean; 2] {
        let statistics = &self.settings.statistics;
        [
            difference(&self.gains(name, "nDCG@10"), &self.gains(COMPLETE, "nDCG@10"), statistics),
            difference(&self.quality(name, 0), &self.quality(COMPLETE, 0), statistics),
        ]
    }

    fn differences(&self, report: &mut Report) -> Table {
        let mut rows = Vec::new();
        for name in names().into_iter().filter(|name| name != COMPLETE) {
            let [gain, likelihood] = self.against_complete(&name);
            if gain.value.is_none() && likelihood.value.is_none() {
                continue;
            }
            let title = format!("{name} − {COMPLETE}");
            let (measure, unit) = MEASURES[0];
            rows.push(vec![
                name,
                report.number(format!("{title}: nDCG@10"), "nDCG", gain),
                report.number(format!("{title}: {measure}"), unit, likelihood),
            ]);
        }
        Table::new("Paired differences from the complete design", ["order", "nDCG@10", MEASURES[0].0], rows)
    }

    /// The cheapest design of Table 6, and its loss.
    fn verdict(&self) -> String {
        let cheaper = DESIGNS.iter().filter(|(name, scheme, _)| *name != COMPLETE && *scheme != Scheme::Prefix);
        let costed =
            cheaper.filter_map(|(name, ..)| Some((*name, self.mean(&self.shares(name, |cost| cost.tokens)).value?)));
        let Some((name, share)) = costed.min_by(|left, right| left.1.total_cmp(&right.1)) else {
            return "There is nothing to compare.".to_owned();
        };
        let [gain, likelihood] = self.against_complete(name);
        let (number, what) =
            if gain.value.is_some() { (gain, "nDCG@10") } else { (likelihood, "log P(reference) a token") };
        if number.value.is_none() {
            return "There is nothing to compare.".to_owned();
        }
        let outcome = by_side(
            &number,
            [
                "is better, by".to_owned(),
                "is worse, by".to_owned(),
                "differs within the error, by".to_owned(),
                format!("differs, {UNJUDGED}, by"),
            ],
        );
        format!(
            "The paper's cheapest design, {name}, takes {} of the tokens of complete orders; its {what} {outcome} {}, over {} questions.",
            percent(share),
            signed(&number),
            number.questions
        )
    }
}

fn notes(without_scores: usize) -> Vec<String> {
    let mut notes = vec![
        "Complete: 3N random whole orders, the paper's row \"MoI\". Cyclic: the N rotations of the retriever's order. Pruned: these, cut to half of the passages. Variable pruning: these, cut by the mass of the retriever's scores (the paper gives no formula; this one is ours). Prefix: the default of moi, which is not in the paper.".to_owned(),
        "The answers are from all passages in the order of the ranking. Random orders are the baseline of Table 6. Rows with the relevant passage at a place repeat Table 7: the first relevant passage is moved there, and the others keep the retriever's order.".to_owned(),
        "The paper gives savings against calls without shared prefixes, as the last column does. Here a common prompt prefix is evaluated once, so whole orders cost less and pruning saves less.".to_owned(),
        "The paper states the share of the gain over random orders that a design keeps. A ratio of two small differences has no useful interval over few questions, so the differences themselves are given.".to_owned(),
        "nDCG@10 and RR are over the labels of the list's own passages; a difference below 0 is a loss.".to_owned(),
    ];
    if without_scores > 0 {
        notes.push(format!("{without_scores} questions have no variable pruning: a passage has no retriever score."));
    }
    notes
}

#[cfg(test)]
mod tests;
