//! Shared by the analyses of SePer: sampling of answers, and reading and comparing results.

use serde::{Deserialize, Serialize};

use super::Context;
use super::readings::{Side, side};
use crate::study::data::Question;
use crate::study::mean::Mean;
use engine::types::{Passage, SampleOptions, UtilityRequest};
use numeric::rounded;
use protocol::v1;
use rag_metrics::agreement::Correlation;
use rag_metrics::input::correlated;
use rag_metrics::never;
use rag_metrics::resample::Statistics;

/// The two kinds of SePer (Algorithm 1 of the paper).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Soft,
    Hard,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::Soft, Self::Hard];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::Hard => "hard",
        }
    }
}

/// A value of each kind. Hard SePer is absent with a two-way entailment model.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Both {
    pub soft: Option<f64>,
    pub hard: Option<f64>,
}

impl Both {
    pub const fn of(&self, kind: Kind) -> Option<f64> {
        match kind {
            Kind::Soft => self.soft,
            Kind::Hard => self.hard,
        }
    }

    /// DeltaSePer of a context.
    pub fn delta(utility: &v1::Utility) -> Self {
        let value = |measured: &Option<v1::Measured>| measured.as_ref().map(|one| one.value);
        Self { soft: value(&utility.delta_seper_soft), hard: value(&utility.delta_seper_hard) }
    }
}

/// A request to measure these passages. The caller chooses the contexts.
pub(super) fn request(question: &Question, context: &Context<'_>, passages: Vec<Passage>) -> UtilityRequest {
    UtilityRequest {
        question: question.list.question.clone(),
        task: context.settings.task.clone(),
        passages,
        references: question.list.answers.clone(),
        sampling: SampleOptions {
            samples: Some(context.settings.samples),
            max_tokens: Some(context.settings.answer_tokens()),
            seed: context.settings.seed,
            ..SampleOptions::default()
        },
        passage_tokens: context.settings.passage_tokens,
        ..UtilityRequest::default()
    }
}

/// The correlation of two lists with one number per question.
pub(super) fn correlation(kind: Correlation, left: &[f64], right: &[f64], statistics: &Statistics) -> Mean {
    let found = correlated(kind, left, right, statistics.correlation_intervals(), &never);
    Mean::new(found.agreement.map(|agreement| agreement.value), found.interval, left.len())
}

/// The pairs with both numbers. Numbers that differ only by rounding become ties.
pub(super) fn pairs(both: impl Iterator<Item = (Option<f64>, Option<f64>)>) -> (Vec<f64>, Vec<f64>) {
    both.filter_map(|(left, right)| Some((rounded(left?), rounded(right?)))).unzip()
}

/// True if the interval of a difference lies above 0, over enough questions ([`side`]).
pub(super) fn above(mean: &Mean) -> bool {
    side(mean) == Side::Above
}

/// True if it lies below 0.
pub(super) fn below(mean: &Mean) -> bool {
    side(mean) == Side::Below
}

/// A signed number for a sentence; a dash for none.
pub(super) fn signed(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:+.3}"))
}

/// Numbers for a sentence: `1, 2 and 3`; `none` for none.
pub(super) fn listed(numbers: &[usize]) -> String {
    let texts: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    match texts.split_last() {
        None => "none".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{} and {last}", before.join(", ")),
    }
}

/// Settings of the tests of these analyses: no intervals, so that cells are bare numbers.
#[cfg(test)]
pub(super) fn bare_settings() -> super::Settings {
    super::Settings {
        task: engine::types::Task::default(),
        passages: None,
        passage_tokens: None,
        samples: 10,
        repeats: 3,
        depths: Vec::new(),
        threshold: 0.5,
        seed: 0,
        statistics: Statistics { resamples: 0, ..Statistics::default() },
    }
}

/// The value of the figure with this name.
#[cfg(test)]
pub(super) fn figure(report: &crate::study::report::Report, name: &str) -> f64 {
    let found = report.figures.iter().find(|figure| figure.name == name);
    let names: Vec<&str> = report.figures.iter().map(|figure| figure.name.as_str()).collect();
    found.unwrap_or_else(|| panic!("{name:?} is not among {names:#?}")).mean.value.unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_sentences() {
        assert_eq!([listed(&[]), listed(&[2]), listed(&[1, 2, 5])], ["none", "2", "1, 2 and 5"]);
        assert_eq!([signed(Some(0.25)), signed(Some(-0.0314)), signed(None)], ["+0.250", "-0.031", "–"]);
    }

    #[test]
    fn an_interval_lies_on_one_side_of_zero_or_on_none() {
        let mean = |low, high| Mean { value: Some(0.1), low, high, questions: 6 };
        let sides = |mean: &Mean| (above(mean), below(mean));
        assert_eq!(sides(&mean(Some(0.01), Some(0.2))), (true, false));
        assert_eq!(sides(&mean(Some(-0.2), Some(-0.01))), (false, true));
        assert_eq!(sides(&mean(Some(-0.1), Some(0.2))), (false, false));
        let few = Mean { questions: 5, ..mean(Some(0.01), Some(0.2)) };
        assert_eq!(sides(&few), (false, false), "five questions are too few");
        assert_eq!(sides(&mean(None, None)), (false, false), "without an interval nothing is beyond the error");
    }
}
