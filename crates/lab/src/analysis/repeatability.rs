//! Variation of SePer between draws (Dai et al., *SePer*, Table 4, appendix A.2).
//!
//! Every question is measured several times, each time with another seed. Its standard deviation σ over the draws
//! divides by their number; its coefficient of variation is σ over the mean. Both are then averaged over questions.
//! Two more rows show how much a whole evaluation varies (the mean over questions), and how much a comparison with
//! judgements varies (the correlation of DeltaSePer of single passages with their labels).

use serde::{Deserialize, Serialize};

use super::sampled::{self, Both, Kind};
use super::{About, Analysis, Answer, Asking, Context, Need, Settings, kept, values};
use crate::study::StudyError;
use crate::study::backend::Refusal;
use crate::study::chart::{self, Axes, Chart};
use crate::study::data::Question;
use crate::study::mean::{Mean, mean_of};
use crate::study::report::Report;
use engine::types::UtilityRequest;
use numeric::{mean, pearson, real, standard_deviation};
use protocol::v1;

/// Bars of the histogram.
const BARS: usize = 12;

/// See the module.
pub(super) struct Repeatability;

/// One measurement of a question.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Draw {
    /// SePer of the whole list.
    seper: Both,
    /// DeltaSePer of the whole list.
    delta: Both,
    /// DeltaSePer of each single passage.
    passages: Vec<Both>,
}

/// Selects a value of a draw.
type Place = fn(&Draw) -> &Both;

/// A quantity of the table.
struct Quantity {
    name: String,
    of: Place,
    kind: Kind,
}

impl Analysis for Repeatability {
    fn about(&self) -> About {
        About::new(
            "repeatability",
            "How much SePer varies from draw to draw (SePer, Table 4)",
            &[Need::References, Need::Entailment, Need::Task],
        )
    }

    fn ask<'a>(&'a self, question: &'a Question, context: &'a Context<'a>) -> Asking<'a> {
        Box::pin(async move {
            let mut draws = Vec::with_capacity(context.settings.repeats);
            for repeat in 0..context.settings.repeats {
                let mut request = UtilityRequest {
                    list: true,
                    each: true,
                    ..sampled::request(question, context, context.passages(question))
                };
                // The seed is mixed with the question and the sample's number, so neighbouring seeds share no draws.
                request.sampling.seed = context.settings.seed.wrapping_add(repeat as u64);
                draws.push(draw(&context.backend.client.utility(&request, false).await?)?);
            }
            kept(draws)
        })
    }

    fn report(&self, answers: &[Answer<'_>], settings: &Settings) -> Result<Report, StudyError> {
        let questions: Vec<Vec<Draw>> = values(answers)?;
        let mut report = Report::default();
        let (mut each, mut whole) = (Vec::new(), Vec::new());
        let mut spreads: Vec<(f64, f64)> = Vec::new();
        for quantity in quantities() {
            // One row per question, one column per draw.
            let values: Vec<Vec<f64>> = questions.iter().filter_map(|draws| quantity.values(draws)).collect();
            if values.is_empty() {
                continue;
            }
            let name = &quantity.name;
            let over = |of: &dyn Fn(&[f64]) -> Option<f64>| {
                mean_of(values.iter().map(|draws| of(draws)), &settings.statistics)
            };
            let varied = over(&|draws| variation(draws));
            each.push(vec![
                name.clone(),
                report.number(format!("{name}, mean"), "probability", over(&|draws| Some(mean(draws)))),
                report.number(
                    format!("{name}, standard deviation of a question"),
                    "probability",
                    over(&|draws| Some(standard_deviation(draws))),
                ),
                varied.questions.to_string(),
                report.number(format!("{name}, coefficient of variation of a question"), "share", varied),
            ]);
            let means = by_draw(&values);
            whole.push(spread(&mut report, &format!("{name}, mean over questions"), &means));
            spreads.push((
                mean(&values.iter().map(|draws| standard_deviation(draws)).collect::<Vec<_>>()),
                standard_deviation(&means),
            ));
            if report.charts.is_empty() {
                let all: Vec<f64> = values.iter().map(|draws| standard_deviation(draws)).collect();
                report.charts.push(histogram(name, &all)?);
            }
        }
        for kind in Kind::ALL {
            let correlations = correlations(answers, &questions, kind, settings.threshold);
            if !correlations.is_empty() {
                let name = format!("Pearson's r of DeltaSePer {} of a passage with its label", kind.name());
                whole.push(spread(&mut report, &name, &correlations));
            }
        }
        report.table(
            format!("Per question, over {} draws of {} answers", settings.repeats, settings.samples),
            ["measure", "mean", "standard deviation", "questions with a mean above 0", "coefficient of variation"],
            each,
        );
        report.table(
            format!("All {} questions together, over the draws", questions.len()),
            ["measure", "mean", "standard deviation", "coefficient of variation"],
            whole,
        );
        report.verdict = spreads.first().map_or_else(
            || "There is nothing to compare.".to_owned(),
            |(question, all)| {
                format!(
                    "With {} answers SePer (soft) of one question varies by {question:.3} from draw to draw (standard deviation), \
                     and its mean over {} questions by {all:.3}.",
                    settings.samples,
                    questions.len()
                )
            },
        );
        report.notes = notes(settings);
        Ok(report)
    }
}

fn notes(settings: &Settings) -> Vec<String> {
    vec![
        format!(
            "{} independent draws of {} answers of at most {} tokens, with the seeds {} and following. Standard deviations divide by the number of draws.",
            settings.repeats,
            settings.samples,
            settings.answer_tokens(),
            settings.seed
        ),
"A coefficient of variation is not defined if the mean is 0, and is large if it is nearly 0: read it together with the mean. For DeltaSePer it takes the mean's absolute value."
            .to_owned(),
"The paper does not state over which values it takes its coefficient. In three of its four data sets it is smaller than the standard deviation, which is impossible within one question, because values are at most 1: compare it with the rows of all questions together."
            .to_owned(),
    ]
}

fn draw(answer: &v1::MeasureUtilityResponse) -> Result<Draw, Refusal> {
    let missing = || Refusal::Question("the answer lacks the list".to_owned());
    let (list, passages) = answer.utilities.split_first().ok_or_else(missing)?;
    let belief = list.belief.as_ref().ok_or_else(missing)?;
    let value = |measured: &Option<v1::Measured>| measured.as_ref().map(|one| one.value);
    Ok(Draw {
        seper: Both { soft: value(&belief.seper_soft), hard: value(&belief.seper_hard) },
        delta: Both::delta(list),
        passages: passages.iter().map(Both::delta).collect(),
    })
}

fn quantities() -> impl Iterator<Item = Quantity> {
    let of: [(&str, Place); 2] = [("SePer", |draw| &draw.seper), ("DeltaSePer", |draw| &draw.delta)];
    of.into_iter().flat_map(|(name, of)| {
        Kind::ALL.into_iter().map(move |kind| Quantity { name: format!("{name} {}", kind.name()), of, kind })
    })
}

impl Quantity {
    /// One value per draw; `None` if one is missing.
    fn values(&self, draws: &[Draw]) -> Option<Vec<f64>> {
        draws.iter().map(|draw| (self.of)(draw).of(self.kind)).collect()
    }
}

/// The coefficient of variation; `None` for a mean of 0.
fn variation(values: &[f64]) -> Option<f64> {
    let centre = mean(values).abs();
    (centre > 1e-9).then(|| standard_deviation(values) / centre)
}

/// The mean over questions of every draw.
fn by_draw(questions: &[Vec<f64>]) -> Vec<f64> {
    let draws = questions.iter().map(Vec::len).min().unwrap_or(0);
    (0..draws).map(|at| mean(&questions.iter().map(|values| values[at]).collect::<Vec<_>>())).collect()
}

/// Mean, standard deviation and coefficient of variation of one number per draw. There are no intervals, because draws
/// are few.
fn spread(report: &mut Report, name: &str, draws: &[f64]) -> Vec<String> {
    let number = |value: Option<f64>| Mean::new(value, None, draws.len());
    vec![
        name.to_owned(),
        report.number(format!("{name}, all questions"), "", number(Some(mean(draws)))),
        report.number(format!("{name}, standard deviation"), "", number(Some(standard_deviation(draws)))),
        report.number(format!("{name}, coefficient of variation"), "share", number(variation(draws))),
    ]
}

/// Pearson's r over the passages of all questions, per draw. Empty if undefined.
fn correlations(answers: &[Answer<'_>], questions: &[Vec<Draw>], kind: Kind, threshold: f64) -> Vec<f64> {
    let draws = questions.iter().map(Vec::len).min().unwrap_or(0);
    let of = |at: usize| {
        let both = answers.iter().zip(questions).flat_map(|(answer, draws)| {
            let labels = answer.question.list.labels.iter().map(|label| Some(f64::from(u8::from(*label >= threshold))));
            draws[at].passages.iter().map(|both| both.of(kind)).zip(labels)
        });
        let (deltas, labels) = sampled::pairs(both);
        pearson(&deltas, &labels)
    };
    (0..draws).map(of).collect::<Option<Vec<f64>>>().unwrap_or_default()
}

fn histogram(name: &str, values: &[f64]) -> Result<Chart, StudyError> {
    let most = values.iter().copied().fold(0.0, f64::max).max(0.01);
    let edges: Vec<f64> = (0..=BARS).map(|at| most * real(at) / real(BARS)).collect();
    let mut counts = vec![0; BARS];
    for value in values {
        // The last bar holds the largest value.
        let bar = edges[1..].iter().position(|edge| value < edge).unwrap_or(BARS - 1);
        counts[bar] += 1;
    }
    let caption = format!("Standard deviation of {name}, by question");
    chart::bars(Axes::new(caption, "standard deviation over draws", "questions"), &edges, &counts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sampled::{bare_settings, figure};
    use super::*;
    use files::labelled::LabelledList;

    fn draw_of(seper: f64, delta: f64, passages: &[f64]) -> Draw {
        let both = |soft: f64| Both { soft: Some(soft), hard: None };
        Draw { seper: both(seper), delta: both(delta), passages: passages.iter().copied().map(both).collect() }
    }

    fn question(labels: &[f64]) -> Question {
        Question { list: LabelledList { labels: labels.to_vec(), ..LabelledList::default() }, ..Question::default() }
    }

    /// Draws 0.2 and 0.4 deviate by 0.1 from 0.3. Draws 0 and 0 do not deviate, and have no coefficient. The means of
    /// the draws are 0.1 and 0.2: they deviate by 0.05 from 0.15.
    #[test]
    fn deviations_by_hand() {
        let question = question(&[1.0, 0.0]);
        let answers = [
            Answer {
                question: &question,
                value: json!([draw_of(0.2, -0.1, &[0.5, 0.0]), draw_of(0.4, -0.3, &[0.0, 0.5])]),
            },
            Answer {
                question: &question,
                value: json!([draw_of(0.0, 0.0, &[0.5, 0.0]), draw_of(0.0, 0.0, &[0.0, 0.5])]),
            },
        ];
        let report = Repeatability.report(&answers, &bare_settings()).unwrap();
        let near = |name: &str, expected: f64| {
            let value = figure(&report, name);
            assert!((value - expected).abs() < 1e-12, "{name}: {value}");
        };
        near("SePer soft, mean", 0.15);
        near("SePer soft, standard deviation of a question", 0.05);
        near("SePer soft, coefficient of variation of a question", 1.0 / 3.0);
        near("SePer soft, mean over questions, standard deviation", 0.05);
        near("SePer soft, mean over questions, coefficient of variation", 1.0 / 3.0);
        near("DeltaSePer soft, coefficient of variation of a question", 0.5);
        // The first draw finds the labels in both questions, the second their opposite: r is 1, then -1.
        near("Pearson's r of DeltaSePer soft of a passage with its label, all questions", 0.0);
        near("Pearson's r of DeltaSePer soft of a passage with its label, standard deviation", 1.0);
        assert_eq!(report.tables[0].rows.len(), 2, "a two-way model has no hard SePer");
        assert_eq!(report.tables[0].rows[0][3], "1");
        assert!(
            report.verdict.contains("varies by 0.050") && report.verdict.ends_with("by 0.050."),
            "{}",
            report.verdict
        );
    }

    #[test]
    fn a_histogram_counts_every_question() {
        assert!(histogram("SePer", &[0.0, 0.05, 0.1]).is_ok());
        assert!(histogram("SePer", &[0.0]).is_ok(), "no spread at all");
    }
}
