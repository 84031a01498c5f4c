//! A comparison as JSON lines, one a figure, in the form of the benchmarks.

use serde_json::{Value, json};

use super::gains::Gain;
use super::rows::MethodRow;
use super::summary::{Group, MEASURES, NDCG, Row, Summary};
use super::tables::machine;
use crate::evaluation::summary::Mean;
use protocol::backend::ModelIdentity;

/// Context that every line has.
struct Lines<'a> {
    group: &'a Group,
    models: &'a ModelIdentity,
    lines: Vec<Value>,
}

/// The figures of all groups, a line each. The ratio is that of a measure to another row's; its goal is 1, and it is met if the
/// difference is also significant after Holm's adjustment at the level of 5 %.
pub fn text(summary: &Summary, models: &ModelIdentity) -> String {
    let mut text = String::new();
    for group in &summary.groups {
        let mut lines = Lines { group, models, lines: Vec::new() };
        for row in &group.rows {
            lines.row(row);
        }
        let verdict = &group.verdict;
        let more = json!({ "value": verdict.choice, "unit": "ranking", "sentence": verdict.sentence });
        lines.push(None, "verdict", more);
        if let Some(sentence) = &group.prompts {
            lines.push(None, "verdict on prompts", json!({ "unit": "frame", "sentence": sentence }));
        }
        if let Some(sentence) = &group.scorer {
            lines.push(None, "verdict on the scorer", json!({ "unit": "scorer", "sentence": sentence }));
        }
        for (at, one) in group.warned.iter().enumerate() {
            let row = group.rows.iter().find(|row| row.name == one.ranking);
            let rank = group.warned[..=at].iter().filter(|other| other.ranking == one.ranking).count();
            lines.push(
                row,
                &format!("warning {rank}"),
                json!({ "value": one.questions, "unit": "questions", "sentence": one.warning }),
            );
        }
        for line in &lines.lines {
            text.push_str(&format!("{line}\n"));
        }
    }
    text
}

impl Lines<'_> {
    /// A line of a row, or of the whole group.
    fn push(&mut self, row: Option<&Row>, measure: &str, more: Value) {
        let asked = row.and_then(|row| row.asked);
        // Of a row without a model, or of the whole group, the configured ones are named.
        let by_scorer = asked.is_none_or(MethodRow::is_scored_by_scorer);
        let (frame, row) = (row.and_then(Row::frame), row.map_or("", |row| row.name.as_str()));
        let name = [self.group.name.as_str(), row, measure].into_iter().filter(|part| !part.is_empty());
        let name = name.collect::<Vec<_>>().join(" ");
        let mut line = json!({
            "name": name, "value": null, "unit": null, "standard_error": null, "ratio": null, "goal": null, "met": null,
            "low": null, "high": null, "data": self.group.name, "ranking": row, "measure": measure,
            "machine": machine(),
            "model": { "model": self.models.name, "sha256": self.models.generator, "encoding": self.models.encoding },
        });
        if let Some(frame) = frame.or(self.models.frame) {
            line["model"]["frame"] = json!(frame.name());
        }
        if self.group.concurrency > 1 {
            line["concurrency"] = json!(self.group.concurrency);
        }
        if let Some(adapter) = &self.models.adapter {
            line["model"]["adapter"] = json!(adapter);
        }
        if let Some(scorer) = self.models.scorer.as_ref().filter(|_| by_scorer) {
            line["model"]["scorer"] = json!(scorer);
            if let Some(frame) = self.models.scorer_frame {
                line["model"]["scorer_frame"] = json!(frame.name());
            }
        }
        if let (Some(line), Value::Object(more)) = (line.as_object_mut(), more) {
            line.extend(more);
        }
        self.lines.push(line);
    }

    fn mean(&mut self, row: &Row, measure: &str, unit: &str, mean: &Mean) {
        let more = json!({
            "value": mean.value, "unit": unit, "low": mean.low, "high": mean.high, "questions": mean.questions,
        });
        self.push(Some(row), measure, more);
    }

    /// A difference in a measure, by its name and its position in [`MEASURES`], from the row `base`.
    fn gain(&mut self, row: &Row, (measure, at): (&str, usize), base: &str, gain: &Gain) {
        let of_base = self.group.rows.iter().find(|other| other.name == base);
        // What is not tested has no goal.
        let goal = gain.p_value.map(|_| 1.0);
        let met = gain.difference > 0.0 && gain.adjusted.is_some_and(|p| p <= 0.05);
        let more = json!({
            "value": gain.difference, "unit": MEASURES[at].unit, "low": gain.low, "high": gain.high,
            "ratio": of_base.and_then(|base| ratio(row.of(at), base.of(at))), "goal": goal, "met": goal.map(|_| met),
            "p_value": gain.p_value, "p_value_holm": gain.adjusted,
            "wins": gain.wins, "ties": gain.ties, "losses": gain.losses,
        });
        self.push(Some(row), &format!("{measure} over {base}"), more);
    }

    fn row(&mut self, row: &Row) {
        for (measure, mean) in MEASURES.iter().zip(&row.measures) {
            self.mean(row, measure.name, measure.unit, mean);
        }
        let same_method = row.asked.map_or("", |asked| asked.method.name());
        for (base, gain) in
            [(super::GIVEN, &row.over_given), (super::BM25, &row.over_bm25), (same_method, &row.over_base)]
        {
            if let Some(gain) = gain {
                self.gain(row, ("nDCG@10", NDCG), base, gain);
            }
        }
        for one in &row.others {
            for (base, gain) in [(super::GIVEN, &one.over_given), (super::BM25, &one.over_bm25)] {
                if let Some(gain) = gain {
                    self.gain(row, (MEASURES[one.measure].name, one.measure), base, gain);
                }
            }
        }
        if let Some(quality) = &row.quality {
            self.mean(row, "calibration error", "probability", &quality.calibration_error);
            self.mean(row, "AUC", "share", &quality.auc);
            if let Some(order) = &quality.order {
                self.mean(row, "outranks_next", "probability", &order.predicted);
                self.mean(row, "neighbours that stand right", "share", &order.right);
                self.mean(row, "calibration error of outranks_next", "probability", &order.calibration_error);
            }
            if let Some(tau) = &quality.tau {
                self.mean(row, "expected_tau", "Kendall's tau", &tau.expected);
                self.mean(row, "Kendall's tau with labels", "Kendall's tau", &tau.found);
                self.mean(row, "expected_tau and Kendall's tau with labels", "Spearman's rho", &tau.agreement);
            }
        }
    }
}

/// A row's mean over that of another row, on the questions that both ranked, as their difference is; `None` where the other's is not
/// above 0.
fn ratio(own: &[Option<f64>], base: &[Option<f64>]) -> Option<f64> {
    let both = own.iter().zip(base).filter_map(|(own, base)| own.zip(*base));
    let (own, base) = both.fold((0.0, 0.0), |sums, both| (sums.0 + both.0, sums.1 + both.1));
    (base > 0.0).then(|| own / base)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row that refused the hard questions stood above one that had answered them.
    #[test]
    fn a_ratio_is_of_the_questions_that_both_ranked() {
        let given = [Some(1.0), Some(0.8), Some(0.2), Some(0.2)];
        let near = ratio(&[Some(0.9), Some(0.72), None, None], &given).unwrap();
        assert!((near - 0.9).abs() < 1e-12, "{near}");
        assert_eq!(ratio(&[Some(0.5), None], &[Some(0.0), Some(1.0)]), None);
        assert_eq!(ratio(&[], &[]), None);
    }
}
