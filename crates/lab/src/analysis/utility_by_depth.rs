//! Utility of the first passages of a list, by their number and order (Dai et al., *SePer*, Fig. 5 (a) and (c),
//! sections 5.3 and 5.5).
//!
//! For every k, or every k of `depths`, the first k passages are a context: once in the first-stage order, once in the
//! order of the server's default method. DeltaSePer of each is SePer in the context minus SePer without passages. All
//! contexts of a question draw the same random numbers, so differences are paired by sample and by question.

use serde::{Deserialize, Serialize};

use super::readings::{Side, UNJUDGED, permutation, question_seed, side, signed};
use super::sampled::{self, Both, Kind};
use super::{About, Analysis, Answer, Asking, Context, Need, Settings, kept, values};
use crate::study::StudyError;
use crate::study::backend::Refusal;
use crate::study::chart::{self, Axes, Point, Series};
use crate::study::data::Question;
use crate::study::mean::{Mean, mean_of};
use crate::study::report::Report;
use engine::types::{MoiOptions, Passage, RerankRequest, UtilityRequest};
use numeric::real;

/// See the module.
pub(super) struct UtilityByDepth;

/// DeltaSePer of one question, by [`numbers`] of passages.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Curves {
    retriever: Vec<Both>,
    reranked: Vec<Both>,
}

impl Analysis for UtilityByDepth {
    fn about(&self) -> About {
        About::new(
            "utility-by-depth",
            "How many passages help, and in which order (SePer, Fig. 5 a and c)",
            &[Need::References, Need::Entailment, Need::Task, Need::Depths],
        )
        .passages(10)
    }

    fn ask<'a>(&'a self, question: &'a Question, context: &'a Context<'a>) -> Asking<'a> {
        Box::pin(async move {
            let passages = context.passages(question);
            let order = reranked(question, context, &passages).await?;
            let count = passages.len();
            let numbers: Vec<usize> = numbers(context.settings, count).collect();
            let given = numbers.iter().map(|&k| (0..k).collect());
            let subsets: Vec<Vec<usize>> = given.chain(numbers.iter().map(|&k| order[..k].to_vec())).collect();
            let request = UtilityRequest { subsets, ..sampled::request(question, context, passages) };
            let answer = context.backend.client.utility(&request, false).await?;
            let deltas: Vec<Both> = answer.utilities.iter().map(Both::delta).collect();
            let wanted = 2 * numbers.len();
            if deltas.len() != wanted {
                return Err(Refusal::Question(format!("{} contexts of {wanted} were measured", deltas.len())));
            }
            let (retriever, reranked) = deltas.split_at(numbers.len());
            kept(Curves { retriever: retriever.to_vec(), reranked: reranked.to_vec() })
        })
    }

    fn report(&self, answers: &[Answer<'_>], settings: &Settings) -> Result<Report, StudyError> {
        let curves: Vec<Curves> = values(answers)?;
        let mut report = Report::default();
        for kind in Kind::ALL {
            let depths = depths(&curves, kind, settings);
            if depths.is_empty() {
                report.notes.push("The entailment model is two-way, so there is no hard DeltaSePer.".to_owned());
                continue;
            }
            let series = [("retriever's order", 0), ("reranked", 1)].map(|(name, at)| {
                let point = |(k, means): (usize, &[Mean; 4])| {
                    let mean = &means[at];
                    Point::of(real(number(settings, k)), mean)
                };
                Series { name: name.to_owned(), points: depths.iter().enumerate().filter_map(point).collect() }
            });
            let axes =
                Axes::new(format!("{} DeltaSePer of the first passages", capital(kind)), "passages", "DeltaSePer");
            report.charts.push(chart::lines(axes, &series)?);
            if report.verdict.is_empty() {
                report.verdict = verdict(&depths, kind, settings);
            }
            let name = kind.name();
            let rows = depths.into_iter().enumerate().map(|(k, [given, reranked, difference, _])| {
                let (k, questions) = (number(settings, k), given.questions);
                let mut cell =
                    |what: &str, mean| report.number(format!("{name}, {what}, {k} passages"), "probability", mean);
                let cells = [
                    cell("retriever's order", given),
                    cell("reranked", reranked),
                    cell("reranked less retriever's", difference),
                ];
                [vec![k.to_string(), questions.to_string()], cells.to_vec()].concat()
            });
            let rows = rows.collect();
            report.table(
                format!("{} DeltaSePer of the first passages, in probability", capital(kind)),
                ["passages", "questions", "retriever's order", "reranked", "reranked less retriever's"],
                rows,
            );
        }
        report.notes.push(format!(
            "DeltaSePer is SePer with the passages less SePer without any, over {} answers of at most {} tokens each.",
            settings.samples,
            settings.answer_tokens()
        ));
        report.notes.push(
"The server's default method ranks the same passages, so in a row of all of them the two contexts differ by their order alone. The paper has a cross-encoder choose 5 of 20: --passages 20 --depths 5."
                .to_owned(),
        );
        Ok(report)
    }
}

/// The numbers of first passages up to `count`.
fn numbers(settings: &Settings, count: usize) -> impl Iterator<Item = usize> {
    (0..).map(|at| number(settings, at)).take_while(move |k| *k <= count)
}

/// The number at this index; above every count after the last one.
fn number(settings: &Settings, at: usize) -> usize {
    if settings.depths.is_empty() { at + 1 } else { settings.depths.get(at).copied().unwrap_or(usize::MAX) }
}

/// The passages in the order of the server's default method, best first.
async fn reranked(question: &Question, context: &Context<'_>, passages: &[Passage]) -> Result<Vec<usize>, Refusal> {
    let request = RerankRequest {
        moi: MoiOptions { seed: question_seed(context.settings.seed, &question.id), ..MoiOptions::default() },
        ..context.rerank_request(question, passages.to_vec())
    };
    permutation(&context.backend.client.rerank(&request).await?, passages.len())
}

/// Per number of passages: the mean in the first-stage order, the mean of the reranked order, the mean difference, and
/// in the first-stage order the mean difference from the least number. Empty if no question has this kind.
fn depths(curves: &[Curves], kind: Kind, settings: &Settings) -> Vec<[Mean; 4]> {
    let deepest = curves.iter().map(|one| one.retriever.len()).max().unwrap_or(0);
    let at = |k: usize| {
        let both = curves.iter().map(|one| {
            let value = |side: &[Both]| side.get(k).and_then(|both| both.of(kind));
            (value(&one.retriever), value(&one.reranked))
        });
        let (given, reranked) = sampled::pairs(both);
        let difference: Vec<Option<f64>> = reranked.iter().zip(&given).map(|(r, g)| Some(r - g)).collect();
        let mean = |values: Vec<f64>| mean_of(values.into_iter().map(Some), &settings.statistics);
        let gain = curves.iter().map(|one| {
            let at = |k: usize| one.retriever.get(k).and_then(|both| both.of(kind));
            Some(at(k)? - at(0)?)
        });
        let gain = mean_of(gain, &settings.statistics);
        [mean(given), mean(reranked), mean_of(&difference, &settings.statistics), gain]
    };
    (0..deepest).map(at).take_while(|means| means[0].questions > 0).collect()
}

fn capital(kind: Kind) -> &'static str {
    match kind {
        Kind::Soft => "Soft",
        Kind::Hard => "Hard",
    }
}

/// The gain from passages, the best number of them, and the depths at which the orders differ beyond the error.
/// Depths that some lists do not reach are means over other questions, so they are not compared.
fn verdict(depths: &[[Mean; 4]], kind: Kind, settings: &Settings) -> String {
    let value = |mean: &Mean| mean.value.unwrap_or(f64::NEG_INFINITY);
    let reached = depths.iter().take_while(|means| means[0].questions == depths[0][0].questions).count();
    let best = (0..reached).max_by(|l, r| value(&depths[*l][0]).total_cmp(&value(&depths[*r][0])).then(r.cmp(l)));
    let Some(best) = best else { return "There is nothing to compare.".to_owned() };
    let where_is = |holds: fn(&Mean) -> bool| {
        let places = depths.iter().enumerate().filter(|(_, means)| holds(&means[2]));
        sampled::listed(&places.map(|(k, _)| number(settings, k)).collect::<Vec<_>>())
    };
    let gain = &depths[best][3];
    let least = match number(settings, 0) {
        1 => "the first alone".to_owned(),
        least => format!("the first {least}"),
    };
    let more = match side(gain) {
        _ if best == 0 => String::new(),
        Side::Above => format!(", more than {least} by {}", signed(gain)),
        Side::Below => format!(", less than {least} by {}", signed(gain)),
        Side::Within => format!(", within the error of {least}, {}", signed(gain)),
        Side::Unknown => format!(", {} to {least}, {UNJUDGED}", signed(gain)),
    };
    let orders = if depths.iter().all(|means| side(&means[2]) == Side::Unknown) {
        "there are too few questions, or no intervals, to judge the reranked order by".to_owned()
    } else {
        format!(
            "the reranked order is better beyond the error at these numbers of passages: {}, and worse at: {}",
            where_is(sampled::above),
            where_is(sampled::below)
        )
    };
    let most = format!("{} {} DeltaSePer{more}", sampled::signed(depths[best][0].value), kind.name());
    let (first, last) = (number(settings, best), number(settings, reached - 1));
    if reached == 1 && !settings.depths.is_empty() {
        let passages = if first == 1 { "passage has" } else { "passages have" };
        format!("In the retriever's order the first {first} {passages} {most}; {orders}.")
    } else if settings.depths.is_empty() {
        format!(
            "In the retriever's order {first} of the {last} passages that all lists have help most ({most}); {orders}."
        )
    } else {
        format!(
            "In the retriever's order the first {first} help most, of the numbers read, up to {last}, that all lists have ({most}); {orders}."
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sampled::{bare_settings, figure};
    use super::*;
    use protocol::v1;

    fn both(soft: f64) -> Both {
        Both { soft: Some(soft), hard: None }
    }

    fn answers<'a>(question: &'a Question, curves: &[(&[f64], &[f64])]) -> Vec<Answer<'a>> {
        let side = |values: &[f64]| values.iter().copied().map(both).collect();
        let one = |(given, reranked): &(&[f64], &[f64])| {
            let value = json!(Curves { retriever: side(given), reranked: side(reranked) });
            Answer { question, value }
        };
        curves.iter().map(one).collect()
    }

    /// The shorter list counts at the depths that it reaches.
    #[test]
    fn means_are_over_the_questions_that_reach_a_depth() {
        let question = Question::default();
        let answers = answers(&question, &[(&[0.1, 0.3], &[0.3, 0.3]), (&[0.0], &[0.0])]);
        let report = UtilityByDepth.report(&answers, &bare_settings()).unwrap();
        let near = |name: &str, expected: f64| assert!((figure(&report, name) - expected).abs() < 1e-12, "{name}");
        near("soft, retriever's order, 1 passages", 0.05);
        near("soft, reranked, 1 passages", 0.15);
        near("soft, reranked less retriever's, 1 passages", 0.1);
        near("soft, reranked less retriever's, 2 passages", 0.0);
        assert_eq!(report.tables[0].rows.iter().map(|row| row[1].as_str()).collect::<Vec<_>>(), ["2", "1"]);
        assert_eq!(report.tables.len(), 1, "a two-way model has no hard DeltaSePer");
        assert!(
            report
                .verdict
                .starts_with("In the retriever's order 1 of the 1 passages that all lists have help most (+0.050"),
            "{}",
            report.verdict
        );
        assert!(report.verdict.ends_with("or no intervals, to judge the reranked order by."), "{}", report.verdict);
    }

    /// Ten questions that all gain 0.2 at the first passage: the interval has no width.
    #[test]
    fn a_difference_beyond_the_error_is_said() {
        let question = Question::default();
        let both = answers(&question, &[(&[0.1, 0.3][..], &[0.3, 0.2][..]); 10]);
        let statistics = rag_metrics::resample::Statistics { resamples: 100, ..Default::default() };
        let report = UtilityByDepth.report(&both, &Settings { statistics, ..bare_settings() }).unwrap();
        assert!(report.verdict.ends_with("numbers of passages: 1, and worse at: 2."), "{}", report.verdict);
        assert!(report.verdict.contains("2 of the 2 passages"), "{}", report.verdict);
        assert!(report.verdict.contains("more than the first alone by +0.200 [+0.200, +0.200]"), "{}", report.verdict);
        let settings = Settings { depths: vec![2, 5, 9], statistics, ..bare_settings() };
        let report = UtilityByDepth.report(&both, &settings).unwrap();
        assert!(report.verdict.contains("the first 5 help most, of the numbers read, up to 5,"), "{}", report.verdict);
        assert!(report.verdict.contains("more than the first 2 by +0.200"), "{}", report.verdict);
        assert!(report.verdict.ends_with("numbers of passages: 2, and worse at: 5."), "{}", report.verdict);
        assert!((figure(&report, "soft, reranked, 5 passages") - 0.2).abs() < 1e-12);
        let one = answers(&question, &[(&[0.1][..], &[0.3][..]); 10]);
        let report = UtilityByDepth.report(&one, &Settings { depths: vec![5], ..settings }).unwrap();
        let expected =
            "In the retriever's order the first 5 passages have +0.100 soft DeltaSePer; the reranked order is better";
        assert!(report.verdict.starts_with(expected), "{}", report.verdict);
    }

    #[test]
    fn a_list_has_the_numbers_that_it_reaches() {
        let of = |depths: &[usize], count| {
            numbers(&Settings { depths: depths.to_vec(), ..bare_settings() }, count).collect::<Vec<_>>()
        };
        assert_eq!(of(&[], 3), [1, 2, 3]);
        assert_eq!(of(&[1, 5, 10], 9), [1, 5]);
        assert_eq!(of(&[5, 10], 4), [0_usize; 0]);
    }

    #[test]
    fn an_answer_must_rank_every_passage_once() {
        let answer = |indices: &[u32]| {
            let result = |index: &u32| v1::RankedPassage { original_index: *index, ..Default::default() };
            v1::RerankResponse { results: indices.iter().map(result).collect(), ..Default::default() }
        };
        assert_eq!(permutation(&answer(&[2, 0, 1]), 3).unwrap(), [2, 0, 1]);
        for bad in [&[0, 1][..], &[0, 1, 1], &[0, 1, 3], &[0, 1, 2, 2]] {
            assert!(permutation(&answer(bad), 3).is_err(), "{bad:?}");
        }
    }
}
