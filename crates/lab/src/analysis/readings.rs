//! Shared by several analyses: the quality of the answer from a context, random orders, means of differences, and
//! phrases for them.

use serde::{Deserialize, Serialize};

use super::Settings;
use crate::study::backend::Refusal;
use crate::study::data::Question;
use crate::study::mean::{Mean, mean_of};
use engine::Engine;
use engine::contexts::{ContextReading, ContextsRequest};
use engine::types::{EngineError, Passage};
use moi::design::{Design, orders};
use numeric::{mean, real};
use prefix_scheduler::call::Call;
use protocol::v1;
use rag_metrics::lexical::{contains, token_f1};
use rag_metrics::resample::Statistics;

/// Random orders whose mean is the baseline; fewer if fewer exist.
pub(super) const RANDOM: usize = 5;

/// The measures of [`Quality`] with their units.
pub(super) const MEASURES: [(&str, &str); 3] =
    [("log P(reference) a token", "nats"), ("token F1", "F1"), ("answer contains reference", "share")];

/// Quality of the answer from one context.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Quality {
    /// Mean log-probability of the tokens of the first reference, in nats.
    pub likelihood: f64,
    /// Token F1 of the answer with the best reference.
    pub f1: f64,
    /// 1 if the answer contains a reference, otherwise 0.
    pub contains: f64,
}

impl Quality {
    /// By index into [`MEASURES`].
    pub fn measure(self, number: usize) -> f64 {
        [self.likelihood, self.f1, self.contains][number]
    }

    /// The mean of several; `None` for none.
    pub fn mean(several: &[Self]) -> Option<Self> {
        let of = |number: usize| mean(&several.iter().map(|one| one.measure(number)).collect::<Vec<f64>>());
        (!several.is_empty()).then(|| Self { likelihood: of(0), f1: of(1), contains: of(2) })
    }
}

/// The quality of the answer from each context.
pub(super) async fn qualities(
    engine: &Engine,
    question: &Question,
    passages: &[Passage],
    contexts: Vec<Vec<usize>>,
    settings: &Settings,
) -> Result<Vec<Quality>, Refusal> {
    let references = &question.list.answers;
    let request = ContextsRequest {
        question: question.list.question.clone(),
        passages: passages.to_vec(),
        contexts,
        reference: references.first().cloned(),
        answer_tokens: Some(settings.answer_tokens()),
        task: settings.task.clone(),
        first_token: false,
        passage_tokens: settings.passage_tokens,
    };
    let readings = engine.contexts.read(&Call::local(), request).await?;
    let quality = |reading: ContextReading| {
        let text = reading.answer.unwrap_or_default();
        let likelihood = reading.reference?;
        Some(Quality { likelihood, f1: token_f1(&text, references), contains: contains(&text, references) })
    };
    let missing = || Refusal::Question("answers: there is no reference answer".to_owned());
    readings.into_iter().map(|reading| quality(reading).ok_or_else(missing)).collect()
}

/// The seed of a question's designs: a seed, mixed with the question's id. If all questions shared a few orders,
/// their luck would not average out.
pub(super) fn question_seed(seed: u64, id: &str) -> u64 {
    // FNV-1a.
    let hash = id
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    seed ^ hash
}

/// Distinct random orders of `n` passages, by the seed of the settings and the question's id.
pub(super) fn random_orders(n: usize, id: &str, settings: &Settings) -> Result<Vec<Vec<usize>>, Refusal> {
    // Different from the seed of the designs, which would draw the same first orders.
    let seed = question_seed(settings.seed.wrapping_add(0x5261_6e64), id);
    Ok(orders(Design::Random, n, RANDOM, seed, &|| false).map_err(EngineError::from)?)
}

/// The indices of the results. They must name every passage once.
pub(super) fn permutation(answer: &v1::RerankResponse, count: usize) -> Result<Vec<usize>, Refusal> {
    let index = |result: &v1::RankedPassage| usize::try_from(result.original_index).ok();
    let order: Vec<usize> = answer.results.iter().filter_map(index).collect();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    let complete = sorted.into_iter().eq(0..count);
    if complete { Ok(order) } else { Err(Refusal::Question("the answer does not rank every passage once".to_owned())) }
}

/// Refuses a list that is too short, by the field's name.
pub(super) fn at_least(passages: &[Passage], least: usize, what: &str) -> Result<(), Refusal> {
    let given = passages.len();
    if given < least {
        return Err(Refusal::Question(format!("passages: {given} given, at least {least} are needed {what}")));
    }
    Ok(())
}

/// The mean of `left - right` over the questions that have both.
pub(super) fn difference(left: &[Option<f64>], right: &[Option<f64>], statistics: &Statistics) -> Mean {
    let paired = left.iter().zip(right).map(|(left, right)| Some((*left)? - (*right)?));
    mean_of(paired, statistics)
}

/// Fewest questions whose interval can decide a side. Six differences of one sign have p < 0.05 by the sign test;
/// with fewer, a percentile interval excludes 0 by chance far too often.
pub(super) const LEAST_QUESTIONS: usize = 6;

/// Words for [`Side::Unknown`].
pub(super) const UNJUDGED: &str = "with too few questions, or no interval, to judge it by";

/// Position of a difference's interval relative to 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Above,
    Below,
    /// The interval holds 0.
    Within,
    /// No interval, or one of fewer than [`LEAST_QUESTIONS`].
    Unknown,
}

/// The side of 0 on which the interval lies.
pub(super) fn side(mean: &Mean) -> Side {
    match mean.low.zip(mean.high).filter(|_| mean.questions >= LEAST_QUESTIONS) {
        Some((low, _)) if low > 0.0 => Side::Above,
        Some((_, high)) if high < 0.0 => Side::Below,
        Some(_) => Side::Within,
        None => Side::Unknown,
    }
}

/// The element for a difference above 0, below it, around it, or unknown.
pub(super) fn by_side<T>(mean: &Mean, [above, below, within, unknown]: [T; 4]) -> T {
    match side(mean) {
        Side::Above => above,
        Side::Below => below,
        Side::Within => within,
        Side::Unknown => unknown,
    }
}

/// A number with its sign and its interval, for sentences.
pub(super) fn signed(mean: &Mean) -> String {
    let value = mean.value.unwrap_or(f64::NAN);
    match mean.low.zip(mean.high) {
        Some((low, high)) => format!("{value:+.3} [{low:+.3}, {high:+.3}]"),
        None => format!("{value:+.3}"),
    }
}

/// A share as a whole percentage.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// The mean over pairs of elements; `None` for fewer than two.
pub(super) fn over_pairs<T>(several: &[T], measure: impl Fn(&T, &T) -> Option<f64>) -> Option<f64> {
    let (mut sum, mut pairs) = (0.0, 0);
    for (number, left) in several.iter().enumerate() {
        for value in several[number + 1..].iter().filter_map(|right| measure(left, right)) {
            sum += value;
            pairs += 1;
        }
    }
    (pairs > 0).then(|| sum / real(pairs))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Settings of reports in tests.
    pub fn settings() -> Settings {
        Settings {
            task: engine::types::Task::default(),
            passages: None,
            passage_tokens: None,
            samples: 5,
            repeats: 3,
            depths: Vec::new(),
            threshold: 0.5,
            seed: 0,
            statistics: Statistics::default(),
        }
    }

    #[test]
    fn differences_are_over_questions_with_both() {
        let mean =
            difference(&[Some(3.0), None, Some(1.0)], &[Some(1.0), Some(9.0), Some(2.0)], &Statistics::default());
        assert!((mean.value.unwrap() - 0.5).abs() < 1e-12);
        assert_eq!(mean.questions, 2);
        let of = |low, high| Mean { value: Some(0.0), low, high, questions: LEAST_QUESTIONS };
        assert_eq!(side(&of(Some(0.1), Some(0.2))), Side::Above);
        assert_eq!(side(&of(Some(-0.2), Some(-0.1))), Side::Below);
        assert_eq!(side(&of(Some(-0.2), Some(0.1))), Side::Within);
        assert_eq!(side(&of(None, None)), Side::Unknown);
        let few = Mean { questions: LEAST_QUESTIONS - 1, ..of(Some(0.1), Some(0.2)) };
        assert_eq!(side(&few), Side::Unknown, "five questions are too few");
        assert_eq!(
            signed(&Mean { value: Some(0.5), low: Some(-0.25), high: Some(1.0), questions: 1 }),
            "+0.500 [-0.250, +1.000]"
        );
    }

    #[test]
    fn pairs_and_qualities_have_means() {
        // |1 - 2|, |1 - 4|, |2 - 4|.
        let apart = |left: &f64, right: &f64| Some((left - right).abs());
        assert!((over_pairs(&[1.0, 2.0, 4.0], apart).unwrap() - 2.0).abs() < 1e-12);
        assert_eq!(over_pairs(&[1.0], apart), None);
        let quality = |likelihood, f1, contains| Quality { likelihood, f1, contains };
        let mean = Quality::mean(&[quality(-1.0, 0.5, 1.0), quality(-3.0, 0.0, 0.0)]).unwrap();
        assert_eq!(mean, quality(-2.0, 0.25, 0.5));
        assert_eq!(Quality::mean(&[]), None);
    }

    #[test]
    fn the_seed_of_a_question_follows_from_both() {
        let seeds: std::collections::HashSet<u64> = [(0, "q1"), (0, "q2"), (1, "q1"), (1, "q2")]
            .into_iter()
            .map(|(seed, id)| question_seed(seed, id))
            .collect();
        assert_eq!(seeds.len(), 4);
        assert_eq!(question_seed(7, "q1"), question_seed(7, "q1"));
    }

    #[test]
    fn random_orders_repeat_and_are_distinct() {
        let drawn = random_orders(6, "q1", &settings()).unwrap();
        assert_eq!(drawn.len(), RANDOM);
        assert_eq!(drawn, random_orders(6, "q1", &settings()).unwrap());
        assert_ne!(drawn, random_orders(6, "q2", &settings()).unwrap(), "each question has its own");
        assert_eq!(random_orders(2, "q1", &settings()).unwrap().len(), 2, "there are only two");
        let other = Settings { seed: 1, ..settings() };
        assert_ne!(drawn, random_orders(6, "q1", &other).unwrap());
    }

    #[test]
    fn short_lists_are_refused_by_name() {
        let one = [Passage::untitled(0, "x".into())];
        let refusal = at_least(&one, 2, "to be reversed").unwrap_err();
        assert!(
            matches!(refusal, Refusal::Question(problem) if problem == "passages: 1 given, at least 2 are needed to be reversed")
        );
        assert!(at_least(&one, 1, "").is_ok());
    }
}
