//! A quality gate: bounds on the metrics of an evaluation or a comparison, and on their drop since a baseline.
//!
//! - [`Gate::floors`]: the mean over questions must reach the bound.
//! - [`Gate::drops`]: fails if the bootstrap interval of the mean paired difference, new minus baseline, lies wholly below
//!   the negative bound. A drop within noise therefore passes, and so does a real drop that too few questions show.
//!   It also fails if a question with a value in the baseline has none now.
//!
//! [`Gate::check`] refuses a baseline of other questions, metrics or methods before the first question is asked.
//! [`Checked::judge`] then applies the bounds to the measured values.

mod baseline;
mod render;
#[cfg(test)]
mod tests;

use rag_metrics::rank::Metric;
use rag_metrics::resample::Statistics;
use serde_json::{Map, Value};

pub use self::baseline::Baseline;
use crate::study::StudyError;
use crate::study::mean::{Gain, mean_of};
use engine::types::Annotator;
use numeric::mean;

/// Fewer differences cannot be told from noise: their bootstrap intervals are too narrow.
const LEAST_QUESTIONS: usize = 10;

/// Differences of sums in floating point that do not count.
const ROUNDING: f64 = 1e-12;

/// A bound on a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// `METRIC`, `ANNOTATOR/METRIC`, or either after `SYSTEM:`; empty for the main metric.
    pub name: String,
    pub value: f64,
}

impl Bound {
    /// Reads `[[SYSTEM:]METRIC=]VALUE`.
    ///
    /// # Errors
    /// The value is not a finite number.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, value) = text.rsplit_once('=').unwrap_or(("", text));
        let value = value.trim().parse::<f64>().ok().filter(|value| value.is_finite());
        let value = value.ok_or_else(|| "must end in a number, as in nDCG@10=0.8".to_owned())?;
        Ok(Self { name: name.trim().to_owned(), value })
    }

    /// The rank metric that it names, which an evaluation must compute; `None` for scores of answers.
    pub fn metric(&self) -> Option<Metric> {
        self.name.rsplit([':', '/']).next().and_then(metric)
    }
}

/// A rank metric by any of its names. The names of annotators are not read as metrics.
fn metric(name: &str) -> Option<Metric> {
    let annotates = Annotator::ALL.iter().any(|annotator| annotator.name() == name);
    name.parse().ok().filter(|_| !annotates)
}

/// The bounds.
#[derive(Debug, Default)]
pub struct Gate {
    /// Least means.
    pub floors: Vec<Bound>,
    /// Largest drops since the baseline. Without any, the main metric must not drop.
    pub drops: Vec<Bound>,
    pub baseline: Option<Baseline>,
    /// Intervals of differences.
    pub statistics: Statistics,
}

/// One number per question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    pub system: String,
    /// `METRIC`, or `ANNOTATOR/METRIC` if several annotators label the passages.
    pub metric: String,
    /// True if bounds that name no system hold for it.
    pub bounded: bool,
    /// True if bounds that name no metric hold for it.
    pub main: bool,
}

/// Everything about a study that is known before its first question.
#[derive(Debug)]
pub struct Subject {
    /// The manifest of its results.
    pub settings: Map<String, Value>,
    /// Ids of the questions.
    pub questions: Vec<String>,
    /// Fingerprint of the questions and their references, without the passages that were retrieved for them.
    pub fingerprint: String,
    pub series: Vec<Series>,
    /// The annotator of metrics that are named without one.
    pub annotator: Option<&'static str>,
}

/// A bound on one series.
#[derive(Debug)]
struct Rule {
    series: usize,
    limit: Limit,
}

#[derive(Debug)]
enum Limit {
    Least(f64),
    Drop { most: f64, before: Vec<Option<f64>> },
}

/// A gate whose bounds and baseline fit the study.
#[derive(Debug)]
pub struct Checked {
    subject: Subject,
    rules: Vec<Rule>,
    changes: Vec<String>,
    statistics: Statistics,
}

/// One bound, applied.
#[derive(Debug, Clone)]
pub struct Check {
    pub system: String,
    pub metric: String,
    /// "at least 0.8".
    pub bound: String,
    /// The mean or the difference with its interval.
    pub found: String,
    /// The reason why it fails; `None` if it holds.
    pub failure: Option<String>,
}

/// The bounds of a study, applied, and its own baseline.
#[derive(Debug)]
pub struct Judged {
    /// The command.
    pub study: String,
    pub checks: Vec<Check>,
    /// Models, settings and program that differ from the baseline's.
    pub changes: Vec<String>,
    /// The values of this study.
    pub baseline: Baseline,
}

/// The value with three digits, or with as many as show that it is below the bound.
fn shown_below(value: f64, least: f64) -> String {
    let mut texts = (3..16_usize).map(|digits| format!("{value:.digits$}"));
    texts.find(|text| text.parse::<f64>().is_ok_and(|shown| shown < least)).unwrap_or_else(|| value.to_string())
}

fn refused<T>(option: &str, problem: &str) -> Result<T, StudyError> {
    Err(StudyError::Input(format!("{option}: {problem}")))
}

impl Subject {
    /// The metric's name as in [`Series::metric`].
    fn canonical(&self, name: &str) -> String {
        let (annotator, own) = name.split_once('/').map_or((None, name), |(annotator, own)| (Some(annotator), own));
        match (metric(own), annotator.or(self.annotator)) {
            (Some(metric), Some(annotator)) => format!("{annotator}/{metric}"),
            (Some(metric), None) => metric.to_string(),
            (None, _) => name.to_owned(),
        }
    }

    /// The series that a bound holds for.
    fn select(&self, option: &str, name: &str) -> Result<Vec<usize>, StudyError> {
        let of = |holds: &dyn Fn(&Series) -> bool| -> Vec<usize> {
            (0..self.series.len()).filter(|&at| holds(&self.series[at])).collect()
        };
        let same = |one: &Series, name: &str| self.canonical(&one.metric) == self.canonical(name);
        let every = of(&|one| one.bounded && if name.is_empty() { one.main } else { same(one, name) });
        // A system's name may hold a colon.
        let of_one = name.match_indices(':').map(|(at, _)| {
            let (system, metric) = (&name[..at], &name[at + 1..]);
            of(&|one| one.system == system && same(one, metric))
        });
        if let Some(found) = std::iter::once(every).chain(of_one).find(|found| !found.is_empty()) {
            return Ok(found);
        }
        if name.is_empty() {
            return refused("--baseline", "this run has no method or system to compare: name one with --method");
        }
        let names = |of: fn(&Series) -> &String| {
            let mut names: Vec<&str> = self.series.iter().map(|one| of(one).as_str()).collect();
            names.sort_unstable();
            names.dedup();
            names.join(", ")
        };
        let (metrics, systems) = (names(|one| &one.metric), names(|one| &one.system));
        refused(option, &format!("{name:?} is not measured; metrics are {metrics}; systems are {systems}"))
    }
}

impl Gate {
    /// The rank metrics that the bounds name.
    ///
    /// # Errors
    /// [`StudyError::Input`] if a metric is not a mean over questions.
    pub fn metrics(&self) -> Result<Vec<Metric>, StudyError> {
        let mut metrics = Vec::new();
        for (option, bounds) in [("--fail-under", &self.floors), ("--max-drop", &self.drops)] {
            for metric in bounds.iter().filter_map(Bound::metric) {
                if !metric.is_mean() {
                    return refused(
                        option,
                        &format!("{metric} is not a mean over questions: `rerankd metrics` has it"),
                    );
                }
                metrics.push(metric);
            }
        }
        Ok(metrics)
    }

    /// True if there is something to check.
    pub const fn has_bounds(&self) -> bool {
        !self.floors.is_empty() || self.baseline.is_some()
    }

    /// Matches bounds and baseline with a study.
    ///
    /// # Errors
    /// [`StudyError::Input`] if a bound names something that is not measured, or if the baseline is of something else.
    pub fn check(&self, subject: Subject) -> Result<Checked, StudyError> {
        let mut rules = Vec::new();
        for bound in &self.floors {
            let series = subject.select("--fail-under", &bound.name)?;
            rules.extend(series.into_iter().map(|series| Rule { series, limit: Limit::Least(bound.value) }));
        }
        let mut changes = Vec::new();
        if let Some(baseline) = &self.baseline {
            if self.statistics.intervals().is_none() || self.statistics.test_resamples == 0 {
                return refused("--baseline", "needs intervals: leave out --resamples 0 and --test-resamples 0");
            }
            changes = baseline.check(&subject)?;
            let unnamed = [Bound { name: String::new(), value: 0.0 }];
            for bound in if self.drops.is_empty() { &unnamed } else { &self.drops[..] } {
                for series in subject.select("--max-drop", &bound.name)? {
                    let Series { system, metric, .. } = &subject.series[series];
                    let before = baseline.values_of(&subject.series[series])?.to_vec();
                    let count = before.iter().flatten().count();
                    if count < LEAST_QUESTIONS {
                        let problem = format!("{system} {metric} has a value on {count} questions");
                        return refused("--baseline", &format!("{problem}, at least {LEAST_QUESTIONS} are needed"));
                    }
                    rules.push(Rule { series, limit: Limit::Drop { most: bound.value, before } });
                }
            }
        }
        Ok(Checked { subject, rules, changes, statistics: self.statistics })
    }
}

impl Checked {
    /// Applies the bounds to the values of each series, by question.
    pub fn judge(self, values: &[Vec<Option<f64>>]) -> Judged {
        let checks = self.rules.iter().map(|rule| self.applied(rule, &values[rule.series])).collect();
        let study = self.subject.settings.get("study").and_then(Value::as_str).unwrap_or_default().to_owned();
        let baseline = Baseline::of(&self.subject, values);
        Judged { study, checks, changes: self.changes, baseline }
    }

    fn applied(&self, rule: &Rule, now: &[Option<f64>]) -> Check {
        let Series { system, metric, .. } = &self.subject.series[rule.series];
        let name = format!("{system} {metric}");
        let (bound, found, failure) = match &rule.limit {
            Limit::Least(least) => {
                let found = mean_of(now, &self.statistics);
                let failure = match found.value {
                    None => Some(format!("{name} has no value on any question")),
                    Some(value) if value < least - ROUNDING => {
                        Some(format!("{name} is {}, below {least}", shown_below(value, *least)))
                    }
                    Some(_) => None,
                };
                (format!("at least {least}"), found.cell(3), failure)
            }
            Limit::Drop { most, before } => {
                let lost = before.iter().zip(now).filter(|(before, now)| before.is_some() && now.is_none()).count();
                let both = before.iter().zip(now).filter_map(|(before, now)| before.zip(*now));
                let (before, now): (Vec<f64>, Vec<f64>) = both.unzip();
                let compared = self.statistics.compare(&before, &now);
                let cell = Gain::new(&compared, None).cell();
                let failure = match compared.interval {
                    _ if lost > 0 => Some(format!("{name} has no value on {lost} questions that had one")),
                    None => Some(format!("{name} cannot be compared: its difference has no interval")),
                    Some(interval) if interval.high < -most - ROUNDING => Some(format!(
                        "{name} fell from {:.3} to {:.3}, more than {most} beyond noise: {cell}",
                        mean(&before),
                        mean(&now)
                    )),
                    Some(_) => None,
                };
                (format!("drop of at most {most}"), cell, failure)
            }
        };
        Check { system: system.clone(), metric: metric.clone(), bound, found, failure }
    }
}

impl Judged {
    /// True if every bound holds.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.failure.is_none())
    }

    /// The outcome in one sentence.
    pub fn sentence(&self) -> String {
        let failures: Vec<&str> = self.checks.iter().filter_map(|check| check.failure.as_deref()).collect();
        match (failures.as_slice(), self.checks.len()) {
            ([], 1) => "quality gate passed: 1 check".to_owned(),
            ([], all) => format!("quality gate passed: {all} checks"),
            (failures, _) => format!("quality gate failed: {}", failures.join("; ")),
        }
    }
}
