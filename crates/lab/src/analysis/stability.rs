//! Dependence of an MOI ranking on its seed, by design (Lee et al., *Inference Scaling for Bridging Retrieval and
//! Augmented Generation*, section 3.2).
//!
//! Section 3.2.1 draws 3N orders at random; section 3.2.2 takes the rotations of one order instead. The paper reports
//! one draw of each. Its only average over permutations is the row "Random" (section 4.1), of answers and not of
//! rankings. Here each design ranks the same list with several seeds, and the rankings are compared.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::readings::{UNJUDGED, at_least, by_side, difference, over_pairs, permutation, signed};
use super::{About, Analysis, Answer, Asking, Context, Settings, kept, values};
use crate::study::StudyError;
use crate::study::backend::Refusal;
use crate::study::chart::{self, Axes, Series};
use crate::study::data::Question;
use crate::study::mean::{Mean, mean_of};
use crate::study::report::Report;
use engine::methods;
use engine::types::{EngineError, MoiOptions, Passage, RerankRequest, Scheme};
use moi::design::{Design, orders};
use numeric::{mean, real};
use rag_metrics::agreement::Correlation;
use rag_metrics::rank::{Grading, Metric, Ranking};

/// The designs, with their names in tables.
const DESIGNS: [(&str, Scheme); 5] = [
    ("random", Scheme::Random),
    ("cyclic", Scheme::Cyclic),
    ("latin", Scheme::Latin),
    ("prefix", Scheme::Prefix),
    ("adaptive", Scheme::Adaptive),
];

/// See the module.
pub(super) struct Stability;

/// The rankings of one question by one design.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Ranked {
    /// Indices of passages, best first, one ranking per seed.
    rankings: Vec<Vec<usize>>,
    /// Tokens of one ranking, the mean over the seeds; cached tokens count.
    tokens: f64,
}

type Asked = BTreeMap<String, Ranked>;

impl Analysis for Stability {
    fn about(&self) -> About {
        About::new("stability", "How much a ranking depends on the seed of its design (MOI, section 3.2)", &[]).least(2)
    }

    fn ask<'a>(&'a self, question: &'a Question, context: &'a Context<'a>) -> Asking<'a> {
        Box::pin(async move {
            let passages = context.passages(question);
            at_least(&passages, 2, "for a ranking")?;
            let mut asked = Asked::new();
            for (name, scheme) in DESIGNS {
                let mut ranked = Ranked::default();
                for repeat in 0..context.settings.repeats {
                    let seed = context.settings.seed.wrapping_add(repeat as u64);
                    let (ranking, tokens) = rank(question, context, &passages, scheme, (seed, repeat > 0)).await?;
                    ranked.rankings.push(ranking);
                    ranked.tokens += tokens / real(context.settings.repeats);
                }
                asked.insert(name.to_owned(), ranked);
            }
            kept(asked)
        })
    }

    fn report(&self, answers: &[Answer<'_>], settings: &Settings) -> Result<Report, StudyError> {
        let asked = values::<Asked>(answers)?;
        let labels: Vec<&[f64]> = answers.iter().map(|answer| &answer.question.list.labels[..]).collect();
        let mut report = Report::default();
        let (mut rows, mut points) = (Vec::new(), Vec::new());
        for (name, _) in DESIGNS {
            let answered: Vec<(&Ranked, &[f64])> =
                asked.iter().zip(&labels).filter_map(|(one, labels)| Some((one.get(name)?, *labels))).collect();
            let over = |of: &dyn Fn(&Ranked, &[f64]) -> Option<f64>| {
                let values: Vec<Option<f64>> = answered.iter().map(|(ranked, labels)| of(ranked, labels)).collect();
                mean_of(&values, &settings.statistics)
            };
            let agreed = over(&|ranked, _| agreement(ranked));
            let first = over(&|ranked, _| over_pairs(&ranked.rankings, |left, right| same_first(left, right)));
            let gains = |ranked: &Ranked, labels: &[f64]| -> Option<Vec<f64>> {
                ranked.rankings.iter().map(|ranking| ndcg(ranking, labels, settings.threshold)).collect()
            };
            let level = over(&|ranked, labels| Some(mean(&gains(ranked, labels)?)));
            let width = over(&|ranked, labels| Some(spread(&gains(ranked, labels)?)));
            let tokens = over(&|ranked, _| Some(ranked.tokens));
            points.extend(tokens.value.and_then(|x| Series::lone(name, x, &agreed)));
            rows.push(vec![
                name.to_owned(),
                report.number(format!("{name}: Kendall's tau of two seeds"), "tau", agreed),
                report.number(format!("{name}: same first passage"), "share", first),
                report.number(format!("{name}: nDCG@10, mean over seeds"), "nDCG", level),
                report.number(format!("{name}: nDCG@10, largest less smallest"), "nDCG", width),
                Mean { low: None, high: None, ..tokens }.cell(0),
            ]);
            report.number(format!("{name}: tokens of a ranking"), "tokens", tokens);
        }
        let head = [
            "design",
            "Kendall's tau of two seeds",
            "same first passage",
            "nDCG@10",
            "nDCG@10, largest − smallest",
            "tokens",
        ];
        report.table(format!("Rankings of {} seeds, {} questions", settings.repeats, asked.len()), head, rows);
        let axes = Axes::new(
            "Agreement of two seeds by tokens of a ranking",
            "tokens of a ranking",
            "Kendall's tau of two seeds",
        );
        report.charts.push(chart::scatter(axes, &points)?);
        let of =
            |name: &str| -> Vec<Option<f64>> { asked.iter().map(|one| one.get(name).and_then(agreement)).collect() };
        report.verdict = verdict(&of("prefix"), &of("random"), settings);
        report.notes = notes(settings);
        Ok(report)
    }
}

/// A ranking by one design, and its tokens. With `shuffled`, a design that rotates an input order rotates a random one.
async fn rank(
    question: &Question,
    context: &Context<'_>,
    passages: &[Passage],
    scheme: Scheme,
    (seed, shuffled): (u64, bool),
) -> Result<(Vec<usize>, f64), Refusal> {
    let n = passages.len();
    let mut sent: Vec<usize> = (0..n).collect();
    if shuffled && scheme == Scheme::Cyclic {
        let drawn = orders(Design::Random, n, 1, seed, &|| false).map_err(EngineError::from)?;
        sent = drawn.into_iter().next().unwrap_or(sent);
    }
    let request = RerankRequest {
        method: methods::find("moi"),
        moi: MoiOptions { scheme: Some(scheme), seed, ..MoiOptions::default() },
        ..context.rerank_request(question, sent.iter().map(|&index| passages[index].clone()).collect())
    };
    let answer = context.backend.client.rerank(&request).await?;
    let ranking = permutation(&answer, n)?.into_iter().map(|index| sent[index]).collect();
    let tokens = answer.usage.map_or(0, |usage| usage.tokens + usage.cached_tokens);
    Ok((ranking, real(usize::try_from(tokens).unwrap_or(usize::MAX))))
}

/// Kendall's tau of two seeds, the mean over their pairs.
fn agreement(ranked: &Ranked) -> Option<f64> {
    over_pairs(&ranked.rankings, |left, right| tau(left, right))
}

/// Kendall's tau of two rankings of the same passages.
fn tau(left: &[usize], right: &[usize]) -> Option<f64> {
    let ranks = |ranking: &[usize]| {
        let mut ranks = vec![0.0; ranking.len()];
        for (rank, &passage) in ranking.iter().enumerate() {
            *ranks.get_mut(passage)? = real(rank);
        }
        Some(ranks)
    };
    Some(Correlation::KendallB.of(&ranks(left)?, &ranks(right)?)?.value)
}

/// 1 if two rankings have the same first passage.
fn same_first(left: &[usize], right: &[usize]) -> Option<f64> {
    Some(f64::from(u8::from(left.first()? == right.first()?)))
}

/// nDCG@10 of a ranking within its own passages; `None` if none of them is relevant.
pub(super) fn ndcg(ranking: &[usize], labels: &[f64], threshold: f64) -> Option<f64> {
    in_list("nDCG@10", ranking, labels, threshold)
}

/// A rank metric over the labels of the ranked passages; `None` if none of them is relevant.
pub(super) fn in_list(metric: &str, ranking: &[usize], labels: &[f64], threshold: f64) -> Option<f64> {
    let ranked: Vec<f64> = ranking.iter().map(|&passage| labels.get(passage).copied()).collect::<Option<_>>()?;
    if !ranked.iter().any(|label| *label >= threshold) {
        return None;
    }
    let metric: Metric = metric.parse().ok()?;
    metric.of(&Ranking::of_labels(&ranked), Grading { threshold, graded: true })
}

fn spread(values: &[f64]) -> f64 {
    let ends = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v)));
    if values.is_empty() { 0.0 } else { ends.1 - ends.0 }
}

/// Compares the seed dependence of the prefix design with that of random orders. This is one comparison, chosen
/// beforehand: the highest of five means would also exceed the noise.
fn verdict(prefix: &[Option<f64>], random: &[Option<f64>], settings: &Settings) -> String {
    let gap = difference(prefix, random, &settings.statistics);
    let mean = |side: &[Option<f64>]| mean_of(side, &settings.statistics).value;
    let (Some(prefix), Some(random), Some(_)) = (mean(prefix), mean(random), gap.value) else {
        return "There is nothing to compare.".to_owned();
    };
    let found = by_side(
        &gap,
        [
            "prefix depends less on its seed",
            "prefix depends more on its seed",
            "the difference is within the error",
            UNJUDGED,
        ],
    );
    format!(
        "Two seeds of the prefix design agree with Kendall's tau {prefix:.2}, two of random orders, the paper's design, with {random:.2}: {found} (prefix − random {}, {} questions).",
        signed(&gap),
        gap.questions
    )
}

fn notes(settings: &Settings) -> Vec<String> {
    vec![
        format!("Every design ranks each list under {} seeds; tau and the same first passage are means over the pairs of seeds.", settings.repeats),
        "All questions share the designs of a seed, so a lucky or unlucky design does not average out over questions; --seed draws others.".to_owned(),
        "Two random rankings agree with tau 0, and have the same first passage in one of N cases.".to_owned(),
        "Cyclic orders have no seed: the first ranking rotates the retriever's order, the others rotate random ones. The paper calls that order the referential one (Eq. 8) and takes the retriever's.".to_owned(),
        "A stable ranking need not be good: see nDCG@10, over the labels of the list's own passages, of lists with a relevant one.".to_owned(),
        "Tokens are those that one ranking evaluates without a cache. The paper reports one draw of each design and no number to compare with these.".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::readings::tests::settings;
    use super::*;

    #[test]
    fn rankings_are_compared_by_hand() {
        // One of three pairs is reversed: (2 - 1) / 3.
        assert!((tau(&[0, 1, 2], &[1, 0, 2]).unwrap() - 1.0 / 3.0).abs() < 1e-12);
        assert!((tau(&[0, 1, 2], &[2, 1, 0]).unwrap() + 1.0).abs() < 1e-12);
        assert_eq!(same_first(&[0, 1], &[0, 1]), Some(1.0));
        assert_eq!(same_first(&[0, 1], &[1, 0]), Some(0.0));
        // The relevant passage at the second place: 1 / log2(3).
        assert!((ndcg(&[1, 0], &[1.0, 0.0], 0.5).unwrap() - 1.0 / 3.0_f64.log2()).abs() < 1e-12);
        assert_eq!(ndcg(&[1, 0], &[0.0, 0.0], 0.5), None);
        assert_eq!(ndcg(&[0, 5], &[1.0], 0.5), None, "a passage without a label");
        assert!((in_list("RR", &[2, 1, 0], &[0.0, 1.0, 0.0], 0.5).unwrap() - 0.5).abs() < 1e-12);
        assert!((spread(&[0.5, 0.25, 1.0]) - 0.75).abs() < 1e-12);
    }

    #[test]
    fn designs_are_reported_side_by_side() {
        let mut question = Question::default();
        question.list.labels = vec![1.0, 0.0];
        let value = |stable: &str| {
            let of = |name: &str| {
                let second = if name == stable { vec![0, 1] } else { vec![1, 0] };
                (name.to_owned(), Ranked { rankings: vec![vec![0, 1], second], tokens: 100.0 })
            };
            json!(DESIGNS.map(|(name, _)| of(name)).into_iter().collect::<Asked>())
        };
        let answer = || Answer { question: &question, value: value("prefix") };
        let answers: Vec<Answer<'_>> = (0..6).map(|_| answer()).collect();
        let report = Stability.report(&answers, &settings()).unwrap();
        let few = Stability.report(&answers[..5], &settings()).unwrap();
        assert!(few.verdict.contains("with too few questions"), "{}", few.verdict);
        let of = |name: &str| report.figures.iter().find(|figure| figure.name == name).unwrap().mean.value.unwrap();
        assert!((of("prefix: Kendall's tau of two seeds") - 1.0).abs() < 1e-12);
        assert!((of("random: Kendall's tau of two seeds") + 1.0).abs() < 1e-12);
        assert!(of("random: same first passage").abs() < 1e-12);
        let gain = 1.0 / 3.0_f64.log2();
        assert!((of("random: nDCG@10, mean over seeds") - f64::midpoint(1.0, gain)).abs() < 1e-12);
        assert!((of("random: nDCG@10, largest less smallest") - (1.0 - gain)).abs() < 1e-12);
        assert!(of("prefix: nDCG@10, largest less smallest").abs() < 1e-12);
        assert!(
            report.verdict.contains("prefix depends less on its seed (prefix − random +2.000"),
            "{}",
            report.verdict
        );
        let notes = report.notes.concat();
        assert!(notes.contains("share the designs of a seed"), "{notes}");
        assert_eq!(report.tables[0].rows.len(), DESIGNS.len());
    }
}
