//! Tables, chart and verdict.

use super::{ANNOTATORS, Labelled, QUALITIES};
use crate::analysis::Settings;
use crate::analysis::coefficient::{Pairs, coefficient, difference, paired};
use crate::analysis::readings::by_side;
use crate::study::StudyError;
use crate::study::chart::{self, Axes, Point, Series};
use crate::study::mean::Mean;
use crate::study::report::{Report, Table};
use engine::types::Annotator;
use numeric::real;
use rag_metrics::agreement::Correlation;
use rag_metrics::rank::{Grading, Metric};

/// Coefficients of the tables, each with its name in figures.
const KINDS: [(Correlation, &str); 2] = [(Correlation::KendallB, "tau-b"), (Correlation::Spearman, "rho")];

/// The labelled questions.
pub(super) struct Study<'a> {
    pub questions: Vec<Labelled>,
    pub metrics: Vec<Metric>,
    pub settings: &'a Settings,
}

/// An annotator's metric with the highest tau-b over whole lists.
struct Best {
    annotator: Annotator,
    metric: Metric,
    tau: Mean,
}

impl Best {
    fn name(&self) -> String {
        format!("{}, {}", self.annotator.name(), self.metric)
    }
}

impl Study<'_> {
    pub fn report(&self) -> Result<Report, StudyError> {
        let mut report = Report::default();
        for quality in QUALITIES {
            for (kind, sign) in KINDS {
                self.table(&mut report, quality, (kind, sign));
            }
        }
        let best: Vec<Best> = ANNOTATORS.iter().filter_map(|annotator| self.best(*annotator)).collect();
        self.over_cutoffs(&mut report, &best)?;
        report.verdict = self.verdict(&mut report, &best);
        report.notes = vec![
            format!(
                "The generator answered greedily, in at most {} tokens, from each passage alone and from the first k \
                 passages in one prompt. The paper's Table 1 takes a T5-small with Fusion-in-Decoder trained for each data set, and \
                 50 passages; its Fig. 3 has prompts like these.",
                self.settings.answer_tokens()
            ),
            "The judge is the same generator (its probability of Yes against No that the passage is relevant to the query); the paper's is Mistral 7B.".to_owned(),
            format!(
                "P is the mean of the labels, Success their maximum, and nDCG takes them as gains; the other metrics count labels of at least {}, and the \
                 data's own (provenance) of at least {}. R and the ideal of nDCG are over the first k passages, as in the paper, so R \
                 only says if any of them counts.",
                Grading::ERAG.threshold,
                self.settings.threshold
            ),
            "The chart shows, per annotator, the metric with the highest tau-b over whole lists, as in the paper's Fig. 1. It is \
             chosen and shown on the same questions, which flatters each a little."
                .to_owned(),
            "– means that one side is the same for every question. Intervals of coefficients take a fifth of the resamples, and \
             leave out resamples with a constant side: over few questions with ties they say little."
                .to_owned(),
        ];
        let varies = |quality: &Annotator| {
            let values: Vec<Option<f64>> = self.questions.iter().map(|one| one.quality(*quality, None)).collect();
            values.windows(2).any(|pair| pair[0] != pair[1])
        };
        let constant: Vec<&str> = QUALITIES.iter().filter(|one| !varies(one)).map(|one| one.name()).collect();
        if !constant.is_empty() {
            let problem = "the same for every question, so there are no tables";
            report.notes.push(format!("{} of the answers from the whole lists: {problem}.", constant.join(", ")));
        }
        Ok(report)
    }

    fn pairs(&self, (annotator, metric): (Annotator, &Metric), quality: Annotator, cutoff: Option<usize>) -> Pairs {
        let threshold = self.settings.threshold;
        let metric = |one: &Labelled| one.metric(annotator, metric, cutoff, threshold);
        let left: Vec<Option<f64>> = self.questions.iter().map(metric).collect();
        let right: Vec<Option<f64>> = self.questions.iter().map(|one| one.quality(quality, cutoff)).collect();
        paired(&left, &right)
    }

    fn table(&self, report: &mut Report, quality: Annotator, (kind, sign): (Correlation, &str)) {
        let rows = ANNOTATORS.iter().map(|annotator| {
            let cells = self.metrics.iter().map(|metric| {
                let pairs = self.pairs((*annotator, metric), quality, None);
                let mean = coefficient(kind, &pairs, &self.settings.statistics);
                report.number(format!("{sign} of {metric} by {} with {}", annotator.name(), quality.name()), "", mean)
            });
            std::iter::once(annotator.name().to_owned()).chain(cells).collect()
        });
        let rows: Vec<Vec<String>> = rows.collect();
        let head = std::iter::once("labels".to_owned()).chain(self.metrics.iter().map(ToString::to_string));
        let caption = format!("{kind} with the {} of the answer from the whole list", quality.name());
        let table = Table::new(caption, head, rows);
        if !table.is_empty() {
            report.tables.push(table);
        }
    }

    fn best(&self, annotator: Annotator) -> Option<Best> {
        let tau = |metric: &Metric| {
            let pairs = self.pairs((annotator, metric), QUALITIES[0], None);
            let tau = coefficient(Correlation::KendallB, &pairs, &self.settings.statistics);
            tau.value.is_some().then_some(Best { annotator, metric: *metric, tau })
        };
        let value = |best: &Best| best.tau.value.unwrap_or(f64::NEG_INFINITY);
        // The first of equal metrics.
        let better = |best: Best, one: Best| if value(&one) > value(&best) { one } else { best };
        self.metrics.iter().filter_map(tau).reduce(better)
    }

    /// The paper's figure over the number of passages.
    fn over_cutoffs(&self, report: &mut Report, best: &[Best]) -> Result<(), StudyError> {
        let mut cutoffs: Vec<usize> = self.questions.iter().flat_map(|one| one.cutoffs.iter().copied()).collect();
        cutoffs.sort_unstable();
        cutoffs.dedup();
        let quality = QUALITIES[0];
        let mut curves: Vec<Series> = best.iter().map(|one| Series { name: one.name(), points: Vec::new() }).collect();
        let mut rows = Vec::with_capacity(cutoffs.len());
        for cutoff in cutoffs {
            let mut row = vec![cutoff.to_string()];
            for (one, curve) in best.iter().zip(&mut curves) {
                let pairs = self.pairs((one.annotator, &one.metric), quality, Some(cutoff));
                let mean = coefficient(Correlation::KendallB, &pairs, &self.settings.statistics);
                curve.points.extend(Point::of(real(cutoff), &mean));
                row.push(report.number(format!("tau-b of {} over {cutoff} passages", one.name()), "", mean));
            }
            let lists = self.questions.iter().filter(|one| one.at(Some(cutoff)).is_some()).count();
            row.push(lists.to_string());
            rows.push(row);
        }
        let head = std::iter::once("passages".to_owned()).chain(best.iter().map(Best::name));
        report.table(
            format!("{} with the {} of the answer from the first passages", Correlation::KendallB, quality.name()),
            head.chain(std::iter::once("questions".to_owned())),
            rows,
        );
        report.charts.push(chart::lines(
            Axes::new(
                format!("Agreement with the {} of the answer, over the number of passages", quality.name()),
                "passages",
                "tau-b",
            ),
            &curves,
        )?);
        Ok(())
    }

    /// Compares labels by the generator's answers with the baselines.
    fn verdict(&self, report: &mut Report, best: &[Best]) -> String {
        let (quality, questions) = (QUALITIES[0], self.questions.len());
        let own = best.iter().find(|one| one.annotator == quality);
        let value = |one: &&Best| one.tau.value.unwrap_or(f64::NEG_INFINITY);
        let baselines = best.iter().filter(|one| !one.annotator.scores_answers());
        let baseline = baselines.max_by(|left, right| value(left).total_cmp(&value(right)));
        let Some(own) = own else {
            return format!(
                "Nothing can be compared: over {questions} questions the {0} of the answers from the whole lists, or the labels by \
                 {0}, do not vary.",
                quality.name()
            );
        };
        let begin = format!(
            "Labels by the {0} of the generator's own answers agree with the {0} of the answer from the whole list to a tau-b of {1} \
             ({2} over the labels, {questions} questions)",
            quality.name(),
            own.tau.cell(3),
            own.metric
        );
        let Some(baseline) = baseline else { return format!("{begin}; no baseline varies.") };
        let pairs = |one: &Best| self.pairs((one.annotator, &one.metric), quality, None);
        let statistics = &self.settings.statistics;
        let less = difference(Correlation::KendallB, &pairs(own), &pairs(baseline), statistics);
        let what = by_side(&less, ["more than", "less than", "within the error of", "against"]);
        let less = report.number(format!("tau-b of {} less that of {}", own.name(), baseline.name()), "", less);
        format!(
            "{begin}, {what} the {} of the best baseline ({} over {}; difference {less}).",
            baseline.tau.cell(3),
            baseline.metric,
            baseline.annotator.name()
        )
    }
}
