//! The position-bias curve over questions (Lee et al., *Inference Scaling for Bridging Retrieval and Augmented Generation*, section 5 and Fig. 6).
//!
//! Each question's passages are scored in random orders, as in the paper. A fit then gives the weight of each position.
//! The weights of a question sum to 1; without bias each is 1 over the number of passages.
//!
//! Two fits are shown. The paper's fit uses whole orders only. They predict the same scores with utilities and weights
//! reversed, and the fit takes the solution nearest a prior for one end of the prompt, so the curve leans to that end.
//! The other fit also uses the prefixes of the orders, which determine the direction. Its prior is equal weights.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::readings::{UNJUDGED, at_least, by_side, difference, question_seed, signed};
use super::{About, Analysis, Answer, Asking, Context, Settings, kept, values};
use crate::study::StudyError;
use crate::study::backend::Refusal;
use crate::study::chart::{self, Axes, Series};
use crate::study::data::Question;
use crate::study::mean::{Mean, mean_of};
use crate::study::report::Report;
use engine::methods;
use engine::types::{MoiOptions, MoiOutcome, Passage, RerankRequest, Scheme};
use numeric::{mean, real};
use protocol::v1::RerankResponse;

/// Random orders per passage of a question (section 3.2.1 of the paper: \|S\| = 3N).
const ORDERS: usize = 3;

/// See the module.
pub(super) struct PositionBias;

/// Fits of one question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Asked {
    /// By position, of the fit with prefixes.
    weights: Vec<f64>,
    /// By position, of the paper's fit.
    published: Vec<f64>,
    /// Share of the variance of the scores that the first fit explains, with each order predicted from the others.
    explained: Option<f64>,
}

impl Analysis for PositionBias {
    fn about(&self) -> About {
        About::new("position-bias", "How much each position weighs (MOI, Fig. 6)", &[]).least(2)
    }

    fn ask<'a>(&'a self, question: &'a Question, context: &'a Context<'a>) -> Asking<'a> {
        Box::pin(async move {
            let passages = context.passages(question);
            at_least(&passages, 2, "for positions to compare")?;
            let plain = whole_orders(question, passages.len(), context.settings);
            let published = MoiOptions { paper_objective: true, outcome: MoiOutcome::Joint, ..plain.clone() };
            let beginnings = MoiOptions { depth: Some(passages.len()), ..plain };
            let answer = ask(question, context, &passages, beginnings).await?;
            let explained = answer.diagnostics.as_ref().and_then(|fit| fit.loo_r2);
            let weights = whole_weights(answer, passages.len())?;
            let published = ask(question, context, &passages, published).await?;
            let published = whole_weights(published, passages.len())?;
            let asked = Asked { weights, published, explained };
            kept(asked)
        })
    }

    fn report(&self, answers: &[Answer<'_>], settings: &Settings) -> Result<Report, StudyError> {
        let asked = values::<Asked>(answers)?;
        let mut report = Report::default();
        // The most frequent list length comes first, and the verdict is about it.
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for one in &asked {
            *counts.entry(one.weights.len()).or_default() += 1;
        }
        let mut lengths: Vec<(usize, usize)> = counts.into_iter().map(|(length, count)| (count, length)).collect();
        lengths.sort_unstable();
        for &(_, length) in lengths.iter().rev() {
            let of_length: Vec<&Asked> = asked.iter().filter(|one| one.weights.len() == length).collect();
            let column = |of: &dyn Fn(&Asked) -> Option<f64>| of_length.iter().map(|one| of(one)).collect::<Vec<_>>();
            let at = |position: usize| column(&|one| one.weights.get(position).copied());
            let fair = 1.0 / real(length);
            let (mut rows, mut curve, mut printed) = (Vec::new(), Vec::new(), Vec::new());
            for position in 0..length {
                let mean = mean_of(at(position), &settings.statistics);
                let of_paper = column(&|one| one.published.get(position).copied());
                let of_paper = mean_of(&of_paper, &settings.statistics);
                curve.extend(mean.value);
                printed.extend(of_paper.value);
                let times = mean.value.map_or_else(|| "–".to_owned(), |value| format!("{:.2}", value / fair));
                let name = format!("position {}, {length} passages", position + 1);
                rows.push(vec![
                    (position + 1).to_string(),
                    report.number(&name, "weight", mean),
                    times,
                    report.number(format!("{name}, as published"), "weight", of_paper),
                ]);
            }
            report.table(
                format!("Weight of each position, {length} passages, {} questions", of_length.len()),
                ["position", "weight", "times the fair share", "weight, as published"],
                rows,
            );
            let ends = difference(&at(0), &at(length - 1), &settings.statistics);
            let middle = mean_of(column(&|one| ends_less_middle(&one.weights)), &settings.statistics);
            if report.verdict.is_empty() {
                report.verdict = verdict(&curve, &ends, of_length.len());
            }
            let explained = mean_of(column(&|one| one.explained), &settings.statistics);
            let shape = [
                ("first − last", "weight", ends),
                ("ends − middle", "weight", middle),
                ("explained share of the scores' variance", "share", explained),
            ];
            let rows = report.rows(shape, |what| format!("{what}, {length} passages"));
            report.table(format!("The shape of the curve, {length} passages"), ["number", "mean"], rows);
            let curves = [("with prefixes", curve), ("as published", printed), ("no bias", vec![fair; length])];
            let curves = curves.map(|(name, values)| Series::ranked(name, &values));
            let axes = Axes::new(format!("Mean weight of each position, {length} passages"), "position", "weight");
            report.charts.push(chart::lines(axes, &curves)?);
        }
        report.notes = notes();
        Ok(report)
    }
}

/// Random orders of all passages, with the question's seed.
fn whole_orders(question: &Question, passages: usize, settings: &Settings) -> MoiOptions {
    MoiOptions {
        scheme: Some(Scheme::Random),
        orders: Some(ORDERS * passages),
        seed: question_seed(settings.seed, &question.id),
        ..MoiOptions::default()
    }
}

async fn ask(
    question: &Question,
    context: &Context<'_>,
    passages: &[Passage],
    moi: MoiOptions,
) -> Result<RerankResponse, Refusal> {
    let request =
        RerankRequest { method: methods::find("moi"), moi, ..context.rerank_request(question, passages.to_vec()) };
    Ok(context.backend.client.rerank(&request).await?)
}

/// The weights of the longest prompts, which hold all passages.
fn whole_weights(answer: RerankResponse, passages: usize) -> Result<Vec<f64>, Refusal> {
    let longest = answer.position_bias.into_iter().next_back().map(|bias| bias.weights);
    let whole = longest.filter(|weights| weights.len() == passages);
    whole.ok_or_else(|| Refusal::Question("the answer has no position bias of all passages".to_owned()))
}

/// Mean weight of the first and the last position minus that of the positions between; `None` for fewer than three
/// positions.
fn ends_less_middle(weights: &[f64]) -> Option<f64> {
    let (first, rest) = weights.split_first()?;
    let (last, middle) = rest.split_last()?;
    (!middle.is_empty()).then(|| f64::midpoint(*first, *last) - mean(middle))
}

/// Compares both ends of the prompt. This is one comparison, chosen beforehand: the largest of several positions
/// would also exceed the noise.
fn verdict(curve: &[f64], ends: &Mean, questions: usize) -> String {
    let (Some(first), Some(last)) = (curve.first(), curve.last()) else {
        return "There is nothing to compare.".to_owned();
    };
    let (count, fair) = (curve.len(), 1.0 / real(curve.len()));
    let found = by_side(
        ends,
        ["early passages count more", "late passages count more", "their difference is within the error", UNJUDGED],
    );
    format!(
        "The first of {count} positions weighs {:.2} times its share and the last {:.2} times: {found} (first − last {}, {questions} questions).",
        first / fair,
        last / fair,
        signed(ends)
    )
}

fn notes() -> Vec<String> {
    vec![
        "Each question's passages were scored in its own random orders, three per passage (fewer if fewer exist).".to_owned(),
        "Weight: MOI's regularised fit of log P(query | order) to these orders and all their prefixes, which determine the direction of the bias. Its prior is equal weights, so a weak bias comes out weaker.".to_owned(),
        "As published: the paper's objective on log P(query, order) (Eq. 3) of whole orders only. They leave the direction open: the fit takes the solution nearest a prior for one end, and the scores of single passages choose the end.".to_owned(),
        "The paper shows the mean coefficients of several models on HotpotQA, which fall from the first position to the last; \"no bias\" is its dashed line.".to_owned(),
        "The explained share is over orders that the fit did not see; near 0 or below, the weights are noise.".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::readings::tests::settings;
    use super::*;

    fn report(weights: &[&[f64]]) -> Report {
        let question = Question::default();
        let asked = |weights: &[f64]| {
            let published = weights.iter().rev().copied().collect();
            json!(Asked { weights: weights.to_vec(), published, explained: Some(0.5) })
        };
        let answers: Vec<Answer<'_>> =
            weights.iter().map(|weights| Answer { question: &question, value: asked(weights) }).collect();
        PositionBias.report(&answers, &settings()).unwrap()
    }

    #[test]
    fn weights_of_lists_of_one_length_are_averaged() {
        let report = report(&[&[0.5, 0.3, 0.2], &[0.7, 0.1, 0.2], &[0.9, 0.1]]);
        let of = |name: &str| report.figures.iter().find(|figure| figure.name == name).unwrap().mean.value.unwrap();
        for (position, expected) in [0.6, 0.2, 0.2].into_iter().enumerate() {
            assert!((of(&format!("position {}, 3 passages", position + 1)) - expected).abs() < 1e-12);
        }
        assert!((of("position 1, 3 passages, as published") - 0.2).abs() < 1e-12);
        assert!((of("position 1, 2 passages") - 0.9).abs() < 1e-12);
        // 0.3 and 0.5; then (0.7 / 2 - 0.3 + 0.9 / 2 - 0.1) / 2.
        assert!((of("first − last, 3 passages") - 0.4).abs() < 1e-12);
        assert!((of("ends − middle, 3 passages") - 0.2).abs() < 1e-12);
        assert!(report.verdict.starts_with("The first of 3 positions weighs 1.80 times its share and the last 0.60"));
        assert!(report.verdict.contains("too few questions"), "{}", report.verdict);
        assert_eq!((report.tables.len(), report.charts.len()), (4, 2));
        assert_eq!(report.tables[0].rows[0][2], "1.80");
        assert!(report.charts[0].svg.contains("no bias"));
    }

    #[test]
    fn equal_early_and_late_weights_are_distinguished() {
        let equal = report(&[&[0.5, 0.5][..]; 6]).verdict;
        assert!(equal.contains("within the error"), "{equal}");
        let early = report(&[&[0.8, 0.2][..]; 6]).verdict;
        assert!(early.contains("early passages count more"), "{early}");
        let late = report(&[&[0.2, 0.8], &[0.3, 0.7], &[0.2, 0.8], &[0.3, 0.7], &[0.2, 0.8], &[0.3, 0.7]]).verdict;
        assert!(late.contains("late passages count more"), "{late}");
        assert_eq!(ends_less_middle(&[0.5, 0.5]), None);
    }

    #[test]
    fn the_verdict_is_about_the_length_of_most_questions() {
        let report = report(&[&[0.5, 0.3, 0.2], &[0.9, 0.1], &[0.7, 0.3]]);
        assert!(report.verdict.starts_with("The first of 2 positions weighs 1.60 times"), "{}", report.verdict);
        assert!(report.tables[0].caption.contains("2 passages, 2 questions"), "{}", report.tables[0].caption);
    }

    #[test]
    fn each_question_has_its_own_orders() {
        let seed = |id: &str| whole_orders(&Question { id: id.into(), ..Question::default() }, 4, &settings()).seed;
        assert_ne!(seed("q1"), seed("q2"));
        assert_eq!(seed("q1"), seed("q1"), "an interrupted analysis continues with the same");
    }

    #[test]
    fn only_the_weights_of_all_passages_count() {
        use protocol::v1::PositionBias as Weights;
        let answer = |lengths: &[usize]| RerankResponse {
            position_bias: lengths
                .iter()
                .map(|&length| Weights { weights: vec![1.0 / real(length); length] })
                .collect(),
            ..RerankResponse::default()
        };
        assert_eq!(whole_weights(answer(&[1, 2]), 2).unwrap(), vec![0.5; 2]);
        assert!(whole_weights(answer(&[1]), 2).is_err() && whole_weights(answer(&[]), 2).is_err());
    }
}
