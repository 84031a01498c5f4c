//! The position-bias curve over questions (Lee et al., *Mixture of Interventions*, Fig. 6).
//!
//! Each question's passages are scored in random orders, as in the paper, and the fit of MOI (section 3.2) says how much each
//! position weighs. The weights of a question sum to 1; without bias each is 1 over the number of passages.

use serde_json::json;

use super::report::{Chart, Report, Table};
use super::{Analysis, Answer, Asking, Context, Settings};
use crate::backend::Refusal;
use crate::engine::methods;
use crate::engine::rerank::{MoiOptions, RerankRequest, Scheme};
use crate::evaluation::EvaluationError;
use crate::evaluation::charts::{self, Axes, Curve};
use crate::evaluation::compare::data::Question;
use crate::evaluation::summary::{Mean, mean_of};
use crate::numeric::real;

/// Random orders of a question for each passage (section 3.2.1 of the paper: \|S\| = 3N).
const ORDERS: usize = 3;

/// See the module.
pub(super) struct PositionBias;

impl Analysis for PositionBias {
    fn name(&self) -> &'static str {
        "position-bias"
    }

    fn title(&self) -> &'static str {
        "How much each position weighs (MOI, Fig. 6)"
    }

    fn ask<'a>(&'a self, question: &'a Question, context: &'a Context<'a>) -> Asking<'a> {
        Box::pin(async move {
            let passages = context.passages(self, question);
            let request = RerankRequest {
                query: question.list.question.clone(),
                method: methods::find("moi"),
                moi: MoiOptions {
                    scheme: Some(Scheme::Random),
                    orders: Some(ORDERS * passages.len()),
                    seed: context.settings.seed,
                    ..MoiOptions::default()
                },
                passages,
                passage_tokens: context.settings.passage_tokens,
                ..RerankRequest::default()
            };
            if request.passages.len() < 2 {
                return Err(Refusal::Question("a list of one passage has no positions to compare".to_owned()));
            }
            let answer = context.backend.rerank(&request).await?;
            let weights = answer.position_bias.into_iter().next().map(|bias| bias.weights);
            let weights = weights.ok_or_else(|| Refusal::Question("the answer has no position bias".to_owned()))?;
            Ok(json!({ "weights": weights, "r2": answer.diagnostics.and_then(|fit| fit.r2) }))
        })
    }

    fn report(&self, answers: &[Answer<'_>], settings: &Settings) -> Result<Report, EvaluationError> {
        let mut report = Report::default();
        let of = |answer: &Answer<'_>| {
            let weights = answer.value["weights"].as_array();
            weights.map(|weights| weights.iter().filter_map(serde_json::Value::as_f64).collect::<Vec<f64>>())
        };
        let curves: Vec<Vec<f64>> = answers.iter().filter_map(of).collect();
        let mut lengths: Vec<usize> = curves.iter().map(Vec::len).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut lines = Vec::new();
        for &length in lengths.iter().rev() {
            let of_length: Vec<&Vec<f64>> = curves.iter().filter(|curve| curve.len() == length).collect();
            let at = |position: usize| {
                let weights: Vec<Option<f64>> = of_length.iter().map(|curve| curve.get(position).copied()).collect();
                mean_of(&weights, &settings.statistics)
            };
            let means: Vec<Mean> = (0..length).map(at).collect();
            let fair = 1.0 / real(length);
            if report.verdict.is_empty() {
                report.verdict = verdict(&means, fair, of_length.len());
            }
            lines.push(Curve {
                name: format!("{length} passages"),
                values: means.iter().filter_map(|m| m.value).collect(),
            });
            let rows = means.into_iter().enumerate().map(|(position, mean)| {
                let times = mean.value.map_or_else(|| "–".to_owned(), |value| format!("{:.2}", value / fair));
                let cell = report.number(format!("position {}, {length} passages", position + 1), "weight", mean);
                vec![(position + 1).to_string(), cell, times]
            });
            let rows = rows.collect();
            report.tables.push(Table {
                caption: format!("Weight of each position, {length} passages, {} questions", of_length.len()),
                head: ["position", "weight", "times the fair share"].map(str::to_owned).to_vec(),
                rows,
            });
        }
        let svg = charts::lines(&lines, &Axes { x: "position", y: "weight" })?;
        report.charts.push(Chart { caption: "Mean weight of each position".to_owned(), svg });
        report.notes.push(
"Each question's passages were scored in random orders, three times as many as passages (fewer where fewer exist), and MOI's fit gave the weights."
                .to_owned(),
        );
        Ok(report)
    }
}

/// Which position weighs most, and whether that is more than its share.
fn verdict(means: &[Mean], fair: f64, questions: usize) -> String {
    let value = |mean: &Mean| mean.value.unwrap_or(f64::NEG_INFINITY);
    let best = means.iter().enumerate().max_by(|left, right| value(left.1).total_cmp(&value(right.1)));
    let Some((position, most)) = best else { return "There is nothing to compare.".to_owned() };
    let (count, place) = (means.len(), position + 1);
    match most.low {
        Some(low) if low > fair => format!(
            "Position {place} of {count} weighs {:.2} times its share over {questions} questions, and its interval lies above it.",
            value(most) / fair
        ),
        _ => format!(
            "No position of {count} weighs more than its share beyond the error over {questions} questions; the most is \
             {:.2} times, at position {place}.",
            value(most) / fair
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::resample::Statistics;

    fn settings() -> Settings {
        Settings {
            passages: None,
            passage_tokens: None,
            samples: 5,
            repeats: 3,
            threshold: 0.5,
            seed: 0,
            statistics: Statistics::default(),
        }
    }

    #[test]
    fn weights_of_lists_of_one_length_are_averaged() {
        let question = Question::default();
        let answer = |weights: &[f64]| Answer { question: &question, value: json!({ "weights": weights }) };
        let answers = [answer(&[0.5, 0.3, 0.2]), answer(&[0.7, 0.1, 0.2]), answer(&[0.9, 0.1])];
        let report = PositionBias.report(&answers, &settings()).unwrap();
        let values: Vec<f64> = report.figures.iter().filter_map(|figure| figure.mean.value).collect();
        let expected = [0.6, 0.2, 0.2, 0.9, 0.1];
        assert!(values.iter().zip(expected).all(|(value, expected)| (value - expected).abs() < 1e-12), "{values:?}");
        assert!(report.verdict.starts_with("Position 1 of 3 weighs 1.80 times its share"), "{}", report.verdict);
        assert_eq!(report.tables.len(), 2);
        assert_eq!(report.tables[0].rows[0][2], "1.80");
    }

    #[test]
    fn equal_weights_are_no_bias() {
        let question = Question::default();
        let answers = [Answer { question: &question, value: json!({ "weights": [0.5, 0.5] }) }];
        let report = PositionBias.report(&answers, &settings()).unwrap();
        assert!(report.verdict.starts_with("No position of 2 weighs more"), "{}", report.verdict);
    }
}
