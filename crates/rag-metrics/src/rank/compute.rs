//! The formulas of the metrics.

use std::borrow::Cow;

use super::{Grading, Kind, Metric, Ranking};
use crate::recall;
use numeric::{Interrupt, real};

/// ERR's highest label, as in gdeval.
const HIGHEST: f64 = 4.0;
/// infAP's smoothing, as in trec_eval.
const EPSILON: f64 = 1e-5;

/// A list as seen by the metrics of one [`Group`].
struct View<'a> {
    labels: Cow<'a, [Option<f64>]>,
    /// Least label of a relevant document.
    least: f64,
    /// True if labels below 0 mean harm, as for DeltaSePer, and not pooled but not judged.
    harms: bool,
    /// Relevant documents of the query.
    relevant: usize,
    /// Ranks of the relevant documents in the list, from 1, ascending.
    hits: Vec<usize>,
}

/// Metrics with the same view of a list: the same threshold, with or without documents that were not judged.
#[derive(Debug)]
pub(super) struct Group {
    least: f64,
    judged_only: bool,
    /// Indices of the metrics.
    metrics: Vec<usize>,
}

/// Groups metrics by their view of a list.
pub(super) fn groups(metrics: &[Metric], grading: Grading) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, metric) in metrics.iter().enumerate() {
        let (least, judged_only) = (metric.rel.unwrap_or(grading.threshold), metric.judged_only);
        let same = |group: &&mut Group| group.least.to_bits() == least.to_bits() && group.judged_only == judged_only;
        match groups.iter_mut().find(same) {
            Some(group) => group.metrics.push(index),
            None => groups.push(Group { least, judged_only, metrics: vec![index] }),
        }
    }
    groups
}

/// All metrics of one list, in their order. A view can be as large as the list, so only one exists at a time.
/// Metrics left out by an interrupt are `None`.
pub(super) fn values(
    metrics: &[Metric],
    groups: &[Group],
    ranking: &Ranking,
    grading: Grading,
    interrupt: Interrupt<'_>,
) -> Vec<Option<f64>> {
    let mut values = vec![None; metrics.len()];
    for group in groups {
        if interrupt() {
            break;
        }
        let view = View::new(ranking, group, grading);
        for &index in &group.metrics {
            // One metric of a million labels takes milliseconds, and a group may have hundreds.
            if interrupt() {
                return values;
            }
            // Adding 0 turns -0, the value of an empty sum, into 0.
            values[index] = of(&metrics[index], &view, ranking, grading).map(|value| value + 0.0);
        }
    }
    values
}

fn of(metric: &Metric, view: &View<'_>, ranking: &Ranking, grading: Grading) -> Option<f64> {
    let k = metric.cutoff.unwrap_or(view.labels.len());
    let graded = grading.graded && metric.rel.is_none();
    let labels = || view.labels.iter().take(k).map(|label| label.unwrap_or(0.0));
    // Labels below 0 gain nothing. As judgements they mean pooled but not judged; as DeltaSePer they mean harm.
    let gains = || labels().map(|label| label.max(0.0));
    let found = || real(view.found(k));
    Some(match metric.kind {
        Kind::P if graded => ratio(labels().sum(), real(k)),
        Kind::Success if graded => labels().reduce(f64::max).unwrap_or(0.0),
        Kind::P => ratio(found(), real(k)),
        Kind::R | Kind::SetR => ratio(found(), real(view.relevant)),
        Kind::Ap | Kind::GmAp => view.average_precision(k),
        Kind::Rr => view.hits(k).next().map_or(0.0, |rank| 1.0 / real(rank)),
        Kind::Ndcg { exponential, within_list } => {
            // A level leaves out lower labels, in the list and in the ideal one.
            let kept = |label: f64| if metric.rel.is_some_and(|least| label < least) { 0.0 } else { label.max(0.0) };
            let gains = || labels().map(kept);
            let mut ideal: Vec<f64> = if within_list {
                gains().collect()
            } else {
                // Without a cut-off the ideal list holds every judged document, for any length of the list.
                ranking.judged.iter().take(metric.cutoff.unwrap_or(usize::MAX)).map(|label| kept(*label)).collect()
            };
            ideal.sort_by(|left, right| right.total_cmp(left));
            // The ratio does not depend on the scale of the gains. Very large labels would have infinite gains.
            let largest = gains().chain(ideal.first().copied()).fold(0.0, f64::max);
            let shift = if largest > 500.0 { largest } else { 0.0 };
            let gain = |label: f64| match exponential {
                true => (label - shift).exp2() - (-shift).exp2(),
                false if shift > 0.0 => label / shift,
                false => label,
            };
            ratio(discounted(gains().map(gain)), discounted(ideal.into_iter().map(gain)))
        }
        Kind::Success => f64::from(u8::from(view.found(k) > 0)),
        Kind::Hits => found(),
        Kind::Rprec => ratio(real(view.found(view.relevant)), real(view.relevant)),
        Kind::Bpref => view.binary_preference(&ranking.judged),
        Kind::InfAp => view.inferred_average_precision(),
        Kind::IPrec(recall) => view.interpolated(recall),
        Kind::ElevenPoint => (0..=10).map(|tenth| view.interpolated(real(tenth) / 10.0)).sum::<f64>() / 11.0,
        Kind::SetP => ratio(found(), real(view.labels.len())),
        Kind::SetF(beta) => {
            let (p, r) = (ratio(found(), real(view.labels.len())), ratio(found(), real(view.relevant)));
            ratio((1.0 + beta) * p * r, beta * p + r)
        }
        Kind::SetAp => ratio(found() * found(), real(view.labels.len() * view.relevant)),
        Kind::Judged => {
            let judged = view.labels.iter().take(k).filter(|label| label.is_some()).count();
            ratio(real(judged), real(k.min(view.labels.len())))
        }
        Kind::Err => {
            let (mut sum, mut unsatisfied) = (0.0, 1.0);
            for (rank, label) in gains().enumerate() {
                let satisfied = (label.min(HIGHEST).exp2() - 1.0) / HIGHEST.exp2();
                sum += unsatisfied * satisfied / real(rank + 1);
                unsatisfied *= 1.0 - satisfied;
            }
            sum
        }
        Kind::Rbp(persistence) => {
            let hits = view.hits(k).map(|rank| persistence.powf(real(rank - 1)));
            (1.0 - persistence) * hits.sum::<f64>()
        }
        Kind::F(alpha) => return recall::f_alpha(view.found(k), k, view.relevant, alpha),
        Kind::Fe(alpha) => return recall::fe(&view.marks(), k, alpha),
        Kind::T(alpha) => return recall::t(view.found(k), k, alpha),
        Kind::TPrime(alpha) => return Some(recall::t_prime(view.found(k), k, alpha)),
        Kind::NumQ => 1.0,
        Kind::NumRet => real(view.labels.len()),
        Kind::NumRel => real(view.relevant),
        Kind::NumRelRet => real(view.found(usize::MAX)),
    })
}

/// The quotient; 0 if the divisor is 0.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn discounted(gains: impl Iterator<Item = f64>) -> f64 {
    gains.enumerate().map(|(index, gain)| gain / real(index + 2).log2()).sum()
}

impl<'a> View<'a> {
    fn new(ranking: &'a Ranking, group: &Group, grading: Grading) -> Self {
        let (least, harms) = (group.least, grading.graded);
        let labels: Cow<'_, [Option<f64>]> = if group.judged_only {
            ranking.retrieved.iter().copied().filter(|label| label.is_some_and(|label| label >= 0.0 || harms)).collect()
        } else {
            Cow::Borrowed(&ranking.retrieved)
        };
        let is_hit = |label: &Option<f64>| label.is_some_and(|label| label >= least);
        let hits = labels.iter().enumerate().filter(|(_, label)| is_hit(label)).map(|(index, _)| index + 1).collect();
        let relevant = ranking.judged.iter().filter(|label| **label >= least).count();
        Self { labels, least, harms, relevant, hits }
    }

    fn marks(&self) -> Vec<bool> {
        self.labels.iter().map(|label| self.is_hit(*label)).collect()
    }

    fn is_hit(&self, label: Option<f64>) -> bool {
        label.is_some_and(|label| label >= self.least)
    }

    /// Relevant documents among the first k.
    fn found(&self, k: usize) -> usize {
        self.hits.partition_point(|rank| *rank <= k)
    }

    /// Ranks of the relevant documents among the first k, from 1.
    fn hits(&self, k: usize) -> impl Iterator<Item = usize> {
        self.hits[..self.found(k)].iter().copied()
    }

    fn average_precision(&self, k: usize) -> f64 {
        let precisions = self.hits(k).enumerate().map(|(before, rank)| real(before + 1) / real(rank));
        ratio(precisions.sum(), real(self.relevant))
    }

    /// True if a document was judged not relevant.
    fn is_miss(&self, label: Option<f64>) -> bool {
        label.is_some_and(|label| label < self.least && (label >= 0.0 || self.harms))
    }

    fn binary_preference(&self, judged: &[f64]) -> f64 {
        let misses = judged.iter().filter(|label| self.is_miss(Some(**label))).count();
        let (mut above, mut sum) = (0, 0.0);
        for label in &*self.labels {
            if self.is_hit(*label) {
                let penalty = ratio(real(above.min(self.relevant)), real(misses.min(self.relevant)));
                sum += 1.0 - penalty;
            } else if self.is_miss(*label) {
                above += 1;
            }
        }
        ratio(sum, real(self.relevant))
    }

    fn inferred_average_precision(&self) -> f64 {
        let (mut hits, mut misses, mut pooled, mut sum) = (0, 0, 0, 0.0);
        for (above, label) in self.labels.iter().enumerate() {
            if self.is_hit(*label) {
                let share = ratio(real(hits + misses + pooled), real(above));
                let precision = (real(hits) + EPSILON) / (real(hits + misses) + 2.0 * EPSILON);
                sum += (1.0 + real(above) * share * precision) / real(above + 1);
                hits += 1;
            } else if self.is_miss(*label) {
                misses += 1;
            } else if label.is_some() {
                pooled += 1;
            }
        }
        ratio(sum, real(self.relevant))
    }

    /// The highest precision at or below the first rank with at least this recall.
    fn interpolated(&self, recall: f64) -> f64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "trec_eval's own rounding of a count"
        )]
        let needed = (recall * real(self.relevant) + 0.9) as usize;
        let at_hits: Vec<f64> =
            self.hits(usize::MAX).enumerate().map(|(before, rank)| real(before + 1) / real(rank)).collect();
        // Precision falls between two relevant documents, so its maximum is at one of them.
        at_hits.get(needed.saturating_sub(1)..).unwrap_or_default().iter().copied().fold(0.0, f64::max)
    }
}
