//! Distance between orders of the same passages, by the first token of the answer (Lee et al., *Inference Scaling for
//! Bridging Retrieval and Augmented Generation*, appendix B, Eq. 11 and Fig. 7).
//!
//! `d(π1, π2) = Σ_y |P(y | π1) − P(y | π2)|` over the vocabulary: the L1 distance, 0 for equal distributions and 2 for
//! distributions without a common token. The paper groups all orders by their first passage, represents a group by the
//! rotation that begins with this passage, and finds orders of one group closer than orders of two.
//!
//! The orders here are all rotations of the first-stage order and of random orders. Every passage is then at every
//! position equally often, so every position can be analysed like the first.

use serde::{Deserialize, Serialize};

use super::readings::{Side, UNJUDGED, at_least, difference, percent, question_seed, side, signed};
use super::{About, Analysis, Answer, Asking, Context, Need, Settings, kept, values};
use crate::study::StudyError;
use crate::study::chart::{self, Axes, Series};
use crate::study::data::Question;
use crate::study::mean::{Mean, mean_of};
use crate::study::report::{Report, Table};
use engine::contexts::{ContextReading, ContextsRequest};
use engine::types::EngineError;
use moi::FitError;
use moi::design::{self, Design};
use numeric::real;
use prefix_scheduler::call::Call;

/// Orders that begin with the same passage; fewer if fewer exist.
const EACH: usize = 4;

/// See the module.
pub(super) struct OrderDistance;

/// Measurements of one question: means over pairs of orders; `None` without such pairs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Distances {
    orders: usize,
    /// For each position, over the pairs with the same passage there.
    same: Vec<Option<f64>>,
    /// For each position, over the other pairs.
    other: Vec<Option<f64>>,
    /// By the number of leading passages that two orders share, from 0.
    by_beginning: Vec<Option<f64>>,
    /// Between an order and the rotation of the first-stage order that begins with the same passage.
    representative: Option<f64>,
    /// Between an order and the other rotations.
    others: Option<f64>,
    /// Share of the orders whose nearest rotation begins with the same passage.
    nearest: Option<f64>,
}

impl Analysis for OrderDistance {
    fn about(&self) -> About {
        About::new(
            "order-distance",
            "How far apart two orders of the passages are (MOI, Eq. 11 and Fig. 7)",
            &[Need::Engine],
        )
        .least(3)
    }

    fn ask<'a>(&'a self, question: &'a Question, context: &'a Context<'a>) -> Asking<'a> {
        Box::pin(async move {
            let (engine, settings) = (context.engine()?, context.settings);
            let passages = context.passages(question);
            at_least(&passages, 3, "for two orders to begin alike")?;
            let contexts = orders(passages.len(), settings.seed, &question.id).map_err(EngineError::from)?;
            let request = ContextsRequest {
                question: question.list.question.clone(),
                passages,
                contexts: contexts.clone(),
                first_token: true,
                passage_tokens: settings.passage_tokens,
                ..ContextsRequest::default()
            };
            let call = Call::local();
            let readings = engine.contexts.read(&call, request).await?;
            let measured = call.compute(move |_| {
                let probabilities = |log: &f32| f64::from(*log).exp();
                let of =
                    |reading: &ContextReading| -> Vec<f64> { reading.first_token.iter().map(probabilities).collect() };
                let distributions: Vec<Vec<f64>> = readings.iter().map(of).collect();
                Ok::<_, EngineError>(measure(&contexts, |left, right| l1(&distributions[left], &distributions[right])))
            });
            kept(measured.await?)
        })
    }

    fn report(&self, answers: &[Answer<'_>], settings: &Settings) -> Result<Report, StudyError> {
        let asked = values::<Distances>(answers)?;
        let mut report = Report::default();
        let column = |of: &dyn Fn(&Distances) -> Option<f64>| asked.iter().map(of).collect::<Vec<Option<f64>>>();
        let mut lengths: Vec<usize> = asked.iter().map(|one| one.same.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut curves = Vec::new();
        for &length in lengths.iter().rev() {
            let mut rows = Vec::new();
            let mut closer = Vec::new();
            for position in 0..length {
                let of_length = |one: &Distances| one.same.len() == length;
                let same = column(&|one| one.same.get(position).copied().flatten().filter(|_| of_length(one)));
                let other = column(&|one| one.other.get(position).copied().flatten().filter(|_| of_length(one)));
                let gap = difference(&other, &same, &settings.statistics);
                closer.push(gap.value.unwrap_or(0.0));
                let name = |what: &str| format!("{what} at position {}, {length} passages", position + 1);
                rows.push(vec![
                    (position + 1).to_string(),
                    report.number(name("same passage"), "L1", mean_of(&same, &settings.statistics)),
                    report.number(name("other passage"), "L1", mean_of(&other, &settings.statistics)),
                    report.number(name("closer by"), "L1", gap),
                ]);
            }
            curves.push(Series::ranked(format!("{length} passages"), &closer));
            report.table(
                format!(
                    "Distance of two orders with the same passage at a position, and of all others, {length} passages"
                ),
                ["position", "same passage", "other passage", "closer by"],
                rows,
            );
        }
        let table = by_beginning(&mut report, &asked, settings);
        report.tables.push(table);
        let within = column(&|one| one.same.first().copied().flatten());
        let between = column(&|one| one.other.first().copied().flatten());
        let gap = difference(&between, &within, &settings.statistics);
        let groups = [
            ("orders that begin alike (within a group)", "L1", mean_of(&within, &settings.statistics)),
            ("orders that do not (between groups)", "L1", mean_of(&between, &settings.statistics)),
            ("between − within", "L1", gap),
            (
                "an order and its group's rotation",
                "L1",
                mean_of(column(&|one| one.representative), &settings.statistics),
            ),
            ("an order and another rotation", "L1", mean_of(column(&|one| one.others), &settings.statistics)),
            ("its group's rotation is the nearest", "share", mean_of(column(&|one| one.nearest), &settings.statistics)),
        ];
        let rows = report.rows(groups, str::to_owned);
        let head = ["pairs", "mean"];
        report.tables.insert(0, Table::new("Groups of orders by their first passage", head, rows));
        let chance = asked.iter().map(|one| Some(1.0 / real(one.same.len().max(1)))).collect::<Vec<_>>();
        let nearest = mean_of(column(&|one| one.nearest), &settings.statistics);
        let ratio = ratio(&within, &between);
        report.verdict = verdict(&gap, ratio, &nearest, mean_of(&chance, &settings.statistics).value, asked.len());
        let axes = Axes::new(
            "How much closer two orders are that have the same passage at a position",
            "position",
            "closer by, L1",
        );
        report.charts.push(chart::lines(axes, &curves)?);
        report.notes = notes();
        Ok(report)
    }
}

/// The rotations of the first-stage order, then of the question's random orders: at most [`EACH`] orders begin with the
/// same passage.
fn orders(n: usize, seed: u64, id: &str) -> Result<Vec<Vec<usize>>, FitError> {
    // Orders that are not rotations of each other: all begin with passage 0.
    let rest = design::orders(Design::Random, n - 1, EACH, question_seed(seed, id), &|| false)?;
    let first = |rest: Vec<usize>| std::iter::once(0).chain(rest.into_iter().map(|p| p + 1)).collect::<Vec<usize>>();
    let given: Vec<usize> = (0..n).collect();
    let drawn = rest.into_iter().map(first).filter(|order| *order != given).take(EACH - 1);
    let bases: Vec<Vec<usize>> = std::iter::once(given.clone()).chain(drawn).collect();
    Ok(bases.iter().flat_map(|base| (0..n).map(move |by| [&base[by..], &base[..by]].concat())).collect())
}

/// Eq. 11 over two distributions of one vocabulary.
fn l1(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| (left - right).abs()).sum()
}

/// A running mean.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    total: f64,
    count: usize,
}

impl Sum {
    fn add(&mut self, value: f64) {
        self.total += value;
        self.count += 1;
    }

    fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.total / real(self.count))
    }
}

/// `orders` begins with the rotations of the first-stage order; `distance` takes the indices of two orders.
fn measure(orders: &[Vec<usize>], distance: impl Fn(usize, usize) -> f64) -> Distances {
    let n = orders.first().map_or(0, Vec::len);
    let (mut same, mut other) = (vec![Sum::default(); n], vec![Sum::default(); n]);
    let mut by_beginning = vec![Sum::default(); n];
    let (mut representative, mut others, mut nearest) = (Sum::default(), Sum::default(), Sum::default());
    for (number, order) in orders.iter().enumerate() {
        for (earlier, before) in orders[..number].iter().enumerate() {
            let apart = distance(earlier, number);
            for (position, (left, right)) in before.iter().zip(order).enumerate() {
                let sum = if left == right { &mut same } else { &mut other };
                sum[position].add(apart);
            }
            let shared = order.iter().zip(before).take_while(|(left, right)| left == right).count();
            by_beginning[shared.min(n - 1)].add(apart);
        }
        if number < n {
            continue;
        }
        // Rotation k begins with passage k.
        let own = distance(order[0], number);
        representative.add(own);
        let mut least = f64::INFINITY;
        for rotation in (0..n).filter(|rotation| *rotation != order[0]) {
            let apart = distance(rotation, number);
            others.add(apart);
            least = least.min(apart);
        }
        nearest.add(f64::from(u8::from(own <= least)));
    }
    let means = |sums: Vec<Sum>| sums.into_iter().map(Sum::mean).collect();
    Distances {
        orders: orders.len(),
        same: means(same),
        other: means(other),
        by_beginning: means(by_beginning),
        representative: representative.mean(),
        others: others.mean(),
        nearest: nearest.mean(),
    }
}

/// The table of distances by the number of leading passages that two orders share.
fn by_beginning(report: &mut Report, asked: &[Distances], settings: &Settings) -> Table {
    let most = asked.iter().map(|one| one.by_beginning.len()).max().unwrap_or(0);
    let mut rows = Vec::new();
    for shared in 0..most {
        let of = |one: &Distances| one.by_beginning.get(shared).copied().flatten();
        let mean = mean_of(asked.iter().map(of), &settings.statistics);
        if mean.value.is_some() {
            let cell = report.number(format!("{shared} leading passages shared"), "L1", mean);
            rows.push(vec![shared.to_string(), cell, mean.questions.to_string()]);
        }
    }
    Table::new("Distance by the number of leading passages that two orders share", ["shared", "L1", "questions"], rows)
}

/// The sum of the first over the sum of the second, over the questions that have both.
fn ratio(within: &[Option<f64>], between: &[Option<f64>]) -> Option<f64> {
    let both = within.iter().zip(between).filter_map(|(within, between)| within.zip(*between));
    let (within, between) = both.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (between > 0.0).then(|| within / between)
}

fn verdict(gap: &Mean, ratio: Option<f64>, nearest: &Mean, chance: Option<f64>, questions: usize) -> String {
    let ratio = ratio.map_or_else(String::new, |ratio| format!("within / between {ratio:.2}, "));
    let apart = format!("{ratio}between − within {} of at most 2", signed(gap));
    let found = match side(gap) {
        Side::Above => format!("Orders that begin with the same passage are closer than others ({apart})"),
        Side::Below => format!("Orders that begin with the same passage are further apart than others ({apart})"),
        Side::Within => {
            format!("Orders that begin with the same passage are as close as others within the error ({apart})")
        }
        Side::Unknown => {
            format!("Orders that begin with the same passage were compared with others {UNJUDGED} ({apart})")
        }
    };
    let rotation = match (nearest.value, chance) {
        (Some(share), Some(chance)) => {
            format!(
                "; the rotation that begins alike is the nearest one in {}, by chance in {}",
                percent(share),
                percent(chance)
            )
        }
        _ => String::new(),
    };
    format!("{found}{rotation}, over {questions} questions.")
}

fn notes() -> Vec<String> {
    vec![
        "The distance is the paper's Eq. 11: the L1 distance of the distributions of the answer's first token over the whole vocabulary, at temperature 1; 0 is the same, 2 is no token in common.".to_owned(),
        format!("Orders: all rotations of the retriever's order and of {} random orders (fewer of three passages). The paper groups all N! orders.", EACH - 1),
        "The paper analyses the first position only. If another position brings orders closer than the first does, cyclic orders represent their groups badly.".to_owned(),
        "The prompt ends in \"Short answer:\", so the first token belongs to the answer itself, not to an introduction.".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::readings::tests::settings;
    use super::*;

    #[test]
    fn eq_11_by_hand() {
        // |0.5 - 0.2| + |0.5 - 0.3| + |0 - 0.5| = 1.
        assert!((l1(&[0.5, 0.5, 0.0], &[0.2, 0.3, 0.5]) - 1.0).abs() < 1e-12);
        assert!((l1(&[1.0, 0.0], &[0.0, 1.0]) - 2.0).abs() < 1e-12, "nothing in common");
        assert!(l1(&[0.25; 4], &[0.25; 4]) < 1e-12);
    }

    proptest! {
        #[test]
        fn a_distance_of_distributions_is_a_metric_within_0_and_2(
            raw in prop::array::uniform3(prop::collection::vec(1e-6..1.0_f64, 5))
        ) {
            let [a, b, c] = raw.map(|raw| {
                let total: f64 = raw.iter().sum();
                raw.into_iter().map(|value| value / total).collect::<Vec<f64>>()
            });
            let (ab, bc, ac) = (l1(&a, &b), l1(&b, &c), l1(&a, &c));
            prop_assert!((0.0..=2.0 + 1e-12).contains(&ab));
            prop_assert!((ab - l1(&b, &a)).abs() < 1e-12 && l1(&a, &a) < 1e-12);
            prop_assert!(ac <= ab + bc + 1e-12);
        }
    }

    #[test]
    fn every_passage_is_at_every_position_equally_often() {
        for n in [3, 4, 5, 7] {
            let drawn = orders(n, 3, "q1").unwrap();
            let each = drawn.len() / n;
            // Three passages have two orders that are not rotations of each other.
            assert_eq!(each, if n == 3 { 2 } else { EACH });
            for position in 0..n {
                assert!((0..n).all(|p| drawn.iter().filter(|order| order[position] == p).count() == each), "{n}");
            }
            let distinct: std::collections::HashSet<_> = drawn.iter().collect();
            assert_eq!(distinct.len(), drawn.len());
            assert!(
                (0..n).all(|k| drawn[k][0] == k && drawn[k][1] == (k + 1) % n),
                "the rotations of the retriever's order"
            );
        }
        assert_ne!(orders(7, 0, "q1").unwrap(), orders(7, 0, "q2").unwrap(), "each question has its own");
    }

    #[test]
    fn groups_by_hand() {
        let orders = orders(3, 0, "q1").unwrap();
        // Orders that begin with the same passage are 1 apart, others 2.
        let measured = measure(&orders, |left, right| if orders[left][0] == orders[right][0] { 1.0 } else { 2.0 });
        assert_eq!((measured.orders, measured.same[0], measured.other[0]), (6, Some(1.0), Some(2.0)));
        assert_eq!((measured.representative, measured.others, measured.nearest), (Some(1.0), Some(2.0), Some(1.0)));
        // Orders of three passages that share the first two are equal.
        assert_eq!(measured.by_beginning, vec![Some(2.0), Some(1.0), None]);
        // No two orders with the same second passage share a prefix.
        assert_eq!((measured.same[1], measured.same[2]), (Some(2.0), Some(2.0)));
        // 3 pairs share a prefix, of 12 with different second passages: (3 + 9 · 2) / 12.
        assert!((measured.other[1].unwrap() - 1.75).abs() < 1e-12);
    }

    fn verdict_for(first: f64, other: f64) -> String {
        let question = Question::default();
        let orders = orders(4, 0, "q1").unwrap();
        let measured = measure(&orders, |left, right| if orders[left][0] == orders[right][0] { first } else { other });
        let answer = || Answer { question: &question, value: json!(measured) };
        let answers: Vec<Answer<'_>> = (0..6).map(|_| answer()).collect();
        let report = OrderDistance.report(&answers, &settings()).unwrap();
        let few = OrderDistance.report(&answers[..2], &settings()).unwrap();
        assert!(few.verdict.contains("with too few questions"), "{}", few.verdict);
        let gap = report.figures.iter().find(|figure| figure.name == "between − within").unwrap();
        assert!((gap.mean.value.unwrap() - (other - first)).abs() < 1e-12);
        assert_eq!(report.tables[0].rows.len(), 6);
        assert_eq!(report.tables[1].rows.len(), 4);
        report.verdict
    }

    #[test]
    fn the_verdict_follows_the_gap() {
        assert!(
            verdict_for(0.5, 1.0).starts_with("Orders that begin with the same passage are closer"),
            "{}",
            verdict_for(0.5, 1.0)
        );
        assert!(verdict_for(0.5, 1.0).contains("nearest one in 100 %, by chance in 25 %"));
        assert!(verdict_for(1.0, 0.5).contains("further apart"));
        assert!(
            verdict_for(0.5, 1.0).contains("within / between 0.50, between − within +0.500"),
            "{}",
            verdict_for(0.5, 1.0)
        );
        assert!(verdict_for(1.0, 1.0).contains("as close as others within the error"));
        assert_eq!(ratio(&[Some(1.0), None, Some(2.0)], &[Some(3.0), Some(9.0), Some(3.0)]), Some(0.5));
        assert_eq!(ratio(&[None], &[Some(1.0)]), None);
    }
}
