//! The report of a comparison, verdict first.

use serde_json::{Map, Value, json};

use super::notes;
use super::row::{MEASURES, NDCG, Row, SECONDS, TOKENS};
use super::rows::MethodRow;
use super::settings::{BM25, GIVEN, Settings};
use super::summary::{Group, Summary};
use crate::study::chart::{self, Axes, Chart, Point, Series};
use crate::study::identity::ModelIdentity;
use crate::study::mean::{Gain, Mean, NONE};
use crate::study::report::{Figure, Report, Section, Table, model};
use crate::study::{StudyError, warned};
use rag_metrics::resample::format_p_value;

/// Heads of the cells of a difference.
const DIFFERENCE: [&str; 3] = ["difference", "p, p after Holm", "wins, ties, losses"];

pub(super) fn report(
    settings: &Settings,
    summary: &Summary,
    manifest: Map<String, Value>,
    models: &ModelIdentity,
) -> Result<Report, StudyError> {
    let verdict = summary.groups.first().map(|group| group.verdict.sentence.clone());
    let mut report = Report {
        title: "Ranking methods compared".to_owned(),
        verdict: verdict.unwrap_or_default(),
        notes: notes::of(settings, summary, models),
        model: model(models, None, true),
        settings: manifest,
        ..Report::default()
    };
    for group in &summary.groups {
        let mut writer = Writer { group, models, figures: &mut report.figures };
        let section = writer.section(report.sections.is_empty())?;
        report.sections.push(section);
    }
    report.sections.extend(Section::refused("Questions that a method refused", &summary.failed));
    Ok(report)
}

/// Tables and figures of a group.
struct Writer<'a> {
    group: &'a Group,
    models: &'a ModelIdentity,
    figures: &'a mut Vec<Figure>,
}

impl Writer<'_> {
    /// The verdict of the first group is above all sections.
    fn section(&mut self, is_first: bool) -> Result<Section, StudyError> {
        let group = self.group;
        let verdict = (!is_first).then(|| group.verdict.sentence.clone());
        let mut text = vec![format!(
            "{} questions with {} passages. {} of them have no relevant passage in their list and are left out of nDCG@10 in the \
             list. In the other measures of rankings they count 0 if the collection has relevant passages.",
            group.questions,
            group.passages,
            group.questions - group.ranked
        )];
        text.extend(verdict.into_iter().chain(group.advice().map(str::to_owned)));
        let mut tables = vec![self.measures(), self.differences(), self.others(GIVEN), self.others(BM25)];
        tables.extend([self.variants(), self.scores(), self.orders(), self.taus()]);
        tables.retain(|table| !table.rows.is_empty());
        tables.extend(warned::section(&group.warned).into_iter().flat_map(|section| section.tables));
        self.sentences();
        Ok(Section { title: group.name.clone(), text, charts: vec![chart(group)?], tables })
    }

    /// A figure of a row, or of the whole group.
    fn push(&mut self, row: Option<&Row>, measure: &str, unit: &'static str, mean: Mean, more: &Value) {
        let row_name = row.map_or("", |row| row.name.as_str());
        let name = [self.group.name.as_str(), row_name, measure].into_iter().filter(|part| !part.is_empty());
        let name = name.collect::<Vec<_>>().join(" ");
        let mut members = json!({ "data": self.group.name, "ranking": row_name, "measure": measure });
        if self.group.concurrency > 1 {
            members["concurrency"] = json!(self.group.concurrency);
        }
        if let Some(row) = row {
            // A row without a model gets the configured models.
            let by_scorer = row.asked.is_none_or(MethodRow::is_scored_by_scorer);
            members["model"] = model(self.models, row.frame(), by_scorer);
        }
        let mut all = members.as_object().cloned().unwrap_or_default();
        all.extend(more.as_object().cloned().unwrap_or_default());
        self.figures.push(Figure { name, unit, mean, more: all });
    }

    /// A figure, and its cell.
    fn mean(&mut self, row: &Row, measure: &str, unit: &'static str, mean: Mean, digits: usize) -> String {
        self.push(Some(row), measure, unit, mean, &Value::Null);
        mean.cell(digits)
    }

    /// A difference from the row `base` in a measure, which is identified by its name and its position in
    /// [`MEASURES`]: a figure, and its cells. The ratio compares the two rows. Its goal is 1, and is met if the
    /// difference is also significant after Holm's adjustment at the 5 % level. An untested difference has no goal.
    fn gain(&mut self, row: &Row, (measure, at): (&str, usize), base: &str, gain: Option<&Gain>) -> [String; 3] {
        let Some(gain) = gain else { return [NONE; 3].map(str::to_owned) };
        let of_base = self.group.rows.iter().find(|other| other.name == base);
        let goal = gain.p_value.map(|_| 1.0);
        let more = json!({
            "ratio": of_base.and_then(|base| ratio(row.of(at), base.of(at))), "goal": goal,
            "met": goal.map(|_| gain.is_significant(0.05, 1.0)), "p_value": gain.p_value, "p_value_holm": gain.adjusted,
            "wins": gain.wins, "ties": gain.ties, "losses": gain.losses,
        });
        self.push(Some(row), &format!("{measure} over {base}"), MEASURES[at].unit, gain.mean(), &more);
        let [p, adjusted] = [gain.p_value, gain.adjusted].map(format_p_value);
        [gain.cell(), format!("{p}, {adjusted}"), format!("{}, {}, {}", gain.wins, gain.ties, gain.losses)]
    }

    /// A table with the rows that have cells. The first cell is the row's name.
    fn table<'h>(
        &mut self,
        caption: &str,
        head: impl IntoIterator<Item = &'h str>,
        cells: impl Fn(&mut Self, &Row) -> Option<Vec<String>>,
    ) -> Table {
        let group = self.group;
        let mut row = |row: &Row| Some([vec![row.name.clone()], cells(self, row)?].concat());
        let rows = group.rows.iter().filter_map(&mut row).collect();
        Table::new(caption, std::iter::once("ranking").chain(head), rows)
    }

    fn measures(&mut self) -> Table {
        let head = MEASURES.iter().map(|measure| measure.name);
        self.table("Rankings and their cost per question", head, |writer, row| {
            let cell = |(mean, at): (&Mean, usize)| {
                let measure = MEASURES[at];
                let cell = writer.mean(row, measure.name, measure.unit, *mean, measure.digits);
                // The input order costs nothing, but that is not a measurement.
                if row.name == GIVEN && at == SECONDS { "0".to_owned() } else { cell }
            };
            Some(row.measures.iter().zip(0..).map(cell).collect())
        })
    }

    fn differences(&mut self) -> Table {
        let [_, p, counts] = DIFFERENCE;
        let head = ["over given", p, counts, "over bm25", p, counts];
        self.table("Differences in nDCG@10 in the list, on the same questions", head, |writer, row| {
            let bases = [(GIVEN, &row.over_given), (BM25, &row.over_bm25)];
            let cells = bases.map(|(base, gain)| writer.gain(row, ("nDCG@10", NDCG), base, gain.as_ref()));
            (row.name != GIVEN).then(|| cells.concat())
        })
    }

    fn others(&mut self, base: &str) -> Table {
        let caption = format!("Differences from {base} in other measures of rankings");
        let p = DIFFERENCE[1];
        self.table(&caption, ["MRR", p, "recall@3", p, "recall@5", p], |writer, row| {
            let mut cells = Vec::new();
            for one in &row.others {
                let gain = if base == GIVEN { &one.over_given } else { &one.over_bm25 };
                let measure = (MEASURES[one.measure].name, one.measure);
                cells.extend(writer.gain(row, measure, base, Some(gain.as_ref()?)).into_iter().take(2));
            }
            (!cells.is_empty()).then_some(cells)
        })
    }

    fn variants(&mut self) -> Table {
        self.table(
            "Differences in nDCG@10 in the list from the same method as configured",
            DIFFERENCE,
            |writer, row| {
                let base = row.asked?.method.name();
                Some(writer.gain(row, ("nDCG@10", NDCG), base, Some(row.over_base.as_ref()?)).to_vec())
            },
        )
    }

    fn scores(&mut self) -> Table {
        let head = ["calibration error", "AUC", "passages"];
        self.table("Score as a probability of being relevant, over all passages", head, |writer, row| {
            let quality = row.quality.as_ref()?;
            Some(vec![
                writer.mean(row, "calibration error", "probability", quality.calibration_error, 3),
                writer.mean(row, "AUC", "share", quality.auc, 3),
                quality.passages.to_string(),
            ])
        })
    }

    fn orders(&mut self) -> Table {
        let head = ["predicted", "stand right", "calibration error", "pairs"];
        self.table("`outranks_next` of two neighbours, one relevant and one not", head, |writer, row| {
            let order = row.quality.as_ref()?.order.as_ref()?;
            let error = "calibration error of outranks_next";
            Some(vec![
                writer.mean(row, "outranks_next", "probability", order.predicted, 3),
                writer.mean(row, "neighbours that stand right", "share", order.right, 3),
                writer.mean(row, error, "probability", order.calibration_error, 3),
                order.pairs.to_string(),
            ])
        })
    }

    fn taus(&mut self) -> Table {
        let head = ["expected", "with labels", "Spearman's rho of both", "questions"];
        self.table("`expected_tau`, and Kendall's tau of the ranking with the labels", head, |writer, row| {
            let tau = row.quality.as_ref()?.tau.as_ref()?;
            let both = "expected_tau and Kendall's tau with labels";
            Some(vec![
                writer.mean(row, "expected_tau", "Kendall's tau", tau.expected, 3),
                writer.mean(row, "Kendall's tau with labels", "Kendall's tau", tau.found, 3),
                writer.mean(row, both, "Spearman's rho", tau.agreement, 3),
                tau.found.questions.to_string(),
            ])
        })
    }

    /// Verdicts and warnings as figures.
    fn sentences(&mut self) {
        let group = self.group;
        let sentence_of = |sentence: &str| json!({ "sentence": sentence });
        let verdict = json!({ "value": group.verdict.choice, "sentence": group.verdict.sentence });
        self.push(None, "verdict", "ranking", Mean::default(), &verdict);
        if let Some(sentence) = &group.prompts {
            self.push(None, "verdict on prompts", "frame", Mean::default(), &sentence_of(sentence));
        }
        if let Some(sentence) = &group.scorer {
            self.push(None, "verdict on the scorer", "scorer", Mean::default(), &sentence_of(sentence));
        }
        for (at, one) in group.warned.iter().enumerate() {
            let row = group.rows.iter().find(|row| row.name == one.ranking);
            let rank = group.warned[..=at].iter().filter(|other| other.ranking == one.ranking).count();
            let more = json!({ "value": one.questions, "sentence": one.warning });
            self.push(row, &format!("warning {rank}"), "questions", Mean::default(), &more);
        }
    }
}

fn chart(group: &Group) -> Result<Chart, StudyError> {
    // Tokens of two models are not comparable. The unit is milliseconds, because the axis begins at 1.
    let (cost, unit, head, x) = match group.scorer {
        Some(_) => (SECONDS, 1e3, "milliseconds", "milliseconds per question"),
        None => (TOKENS, 1.0, "tokens", "tokens of the generator per question, median"),
    };
    let caption = format!("Gain in nDCG@10 over the given order, by {head} per question");
    chart::scatter(Axes { caption, x, y: "nDCG@10 over given" }, &points(&group.rows, cost, unit))
}

/// `unit` converts a `cost` to the axis.
fn points(rows: &[Row], cost: usize, unit: f64) -> Vec<Series> {
    let point = |row: &Row| {
        row.measures.get(NDCG).and_then(|mean| mean.value)?;
        let x = row.measures.get(cost)?.value? * unit;
        let none = Point { x, y: 0.0, bounds: None };
        let point = row.over_given.as_ref().and_then(|gain| Point::of(x, &gain.mean())).unwrap_or(none);
        Some(Series { name: row.name.clone(), points: vec![point] })
    };
    rows.iter().filter_map(point).collect()
}

/// A row's mean divided by another row's, on the questions that both ranked, as for their difference; `None` if the
/// other mean is not above 0.
fn ratio(own: &[Option<f64>], base: &[Option<f64>]) -> Option<f64> {
    let both = own.iter().zip(base).filter_map(|(own, base)| own.zip(*base));
    let (own, base) = both.fold((0.0, 0.0), |sums, both| (sums.0 + both.0, sums.1 + both.1));
    (base > 0.0).then(|| own / base)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row must not gain by refusing hard questions.
    #[test]
    fn a_ratio_is_of_the_questions_that_both_ranked() {
        let given = [Some(1.0), Some(0.8), Some(0.2), Some(0.2)];
        let near = ratio(&[Some(0.9), Some(0.72), None, None], &given).unwrap();
        assert!((near - 0.9).abs() < 1e-12, "{near}");
        assert_eq!(ratio(&[Some(0.5), None], &[Some(0.0), Some(1.0)]), None);
        assert_eq!(ratio(&[], &[]), None);
    }

    /// Values below 1 are drawn at the left end of the axis. In seconds, these would be all rows of a fast model.
    #[test]
    fn rows_of_less_than_a_second_are_distinguished() {
        let row = |name: &str, seconds: f64| {
            let of = |value: f64| Mean { value: Some(value), low: None, high: None, questions: 40 };
            let mut measures = vec![of(0.5); MEASURES.len()];
            measures[SECONDS] = of(seconds);
            Row { measures, ..Row::named(name) }
        };
        let points = points(&[row("a", 0.05), row("a+generator", 0.9)], SECONDS, 1e3);
        let svg = chart::scatter(Axes { caption: String::new(), x: "", y: "" }, &points).unwrap().svg;
        // The legend repeats each circle.
        let circles = svg.split("<circle cx=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        let places: std::collections::BTreeSet<&str> = circles.collect();
        assert_eq!(places.len(), 3, "two places and that of the legend: {svg}");
    }
}
