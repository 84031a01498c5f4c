//! Agreement of passage labels with the answer from the whole list (Salemi and Zamani, *Evaluating Retrieval Quality in
//! Retrieval-Augmented Generation*, Table 1 and Fig. 1).
//!
//! The generator answers from each passage separately and from the first k passages. A passage's label by a measure
//! is that measure of its answer (Eq. 1). Metrics over the labels of the first k passages are then correlated, over
//! questions, with the measure of the answer from the first k. The paper's baselines are: the passage contains the
//! answer, the labels in the data, and the generator's judgement of the passage's relevance.

mod show;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use self::show::Study;
use super::coefficient::cutoffs;
use super::{About, Analysis, Answer, Asking, Context, Need, Settings, kept, values};
use crate::study::StudyError;
use crate::study::backend::Refusal;
use crate::study::data::Question;
use crate::study::report::Report;
use engine::types::{Annotator, EvaluateRequest, default_metrics};
use numeric::rounded;
use rag_metrics::rank::{Grading, Metric, Ranking};

/// Annotators: eRAG's measures of answers, then the paper's baselines.
const ANNOTATORS: [Annotator; 7] = [
    Annotator::ExactMatch,
    Annotator::TokenF1,
    Annotator::RougeL,
    Annotator::Containment,
    Annotator::ContainsAnswer,
    Annotator::Provenance,
    Annotator::EragJudgement,
];

/// Measures of the answer from the whole list that labels are compared with. The verdict takes the first.
const QUALITIES: [Annotator; 3] = [Annotator::TokenF1, Annotator::Containment, Annotator::ExactMatch];

/// See the module.
pub(super) struct EragCorrelation;

/// The stored result of a question.
#[derive(Debug, Serialize, Deserialize)]
struct Labelled {
    /// Number of passages per answer, ascending; the last is the whole list.
    cutoffs: Vec<usize>,
    /// Labels by annotator, one per passage.
    labels: BTreeMap<String, Vec<f64>>,
    /// Measures of the answer from the first passages, one per cut-off.
    quality: BTreeMap<String, Vec<f64>>,
}

impl Labelled {
    /// Index of a cut-off; of the whole list for `None`.
    fn at(&self, cutoff: Option<usize>) -> Option<usize> {
        match cutoff {
            Some(cutoff) => self.cutoffs.iter().position(|one| *one == cutoff),
            None => self.cutoffs.len().checked_sub(1),
        }
    }

    /// A metric over an annotator's labels of the first passages. `threshold` is the least label of a relevant passage in the
    /// data.
    fn metric(&self, annotator: Annotator, metric: &Metric, cutoff: Option<usize>, threshold: f64) -> Option<f64> {
        let first = *self.cutoffs.get(self.at(cutoff)?)?;
        let labels = self.labels.get(annotator.name())?.get(..first)?;
        // Provenance has the data's grades. The labels of the other annotators lie in [0, 1].
        let threshold = if annotator == Annotator::Provenance { threshold } else { Grading::ERAG.threshold };
        metric.of(&Ranking::of_labels(labels), Grading { threshold, graded: true }).map(rounded)
    }

    /// A measure of the answer from the first passages.
    fn quality(&self, measure: Annotator, cutoff: Option<usize>) -> Option<f64> {
        self.quality.get(measure.name())?.get(self.at(cutoff)?).copied().map(rounded)
    }
}

impl Analysis for EragCorrelation {
    fn about(&self) -> About {
        About::new(
            "erag-correlation",
            "Agreement of labels with the answer from the whole list (eRAG, Table 1 and Fig. 1)",
            &[Need::References, Need::Task],
        )
        .passages(10)
    }

    fn ask<'a>(&'a self, question: &'a Question, context: &'a Context<'a>) -> Asking<'a> {
        Box::pin(async move {
            let passages = context.passages(question);
            let cutoffs = cutoffs(passages.len());
            let request = EvaluateRequest {
                question: question.list.question.clone(),
                references: question.list.answers.clone(),
                provenance: question.list.labels.iter().take(passages.len()).copied().collect(),
                annotators: ANNOTATORS.to_vec(),
                rankings: cutoffs.iter().map(|cutoff| (0..*cutoff).collect()).collect(),
                end_to_end: true,
                answer_tokens: Some(context.settings.answer_tokens()),
                task: context.settings.task.clone(),
                passage_tokens: context.settings.passage_tokens,
                threshold: context.settings.threshold,
                passages,
                ..EvaluateRequest::default()
            };
            let answer = context.backend.client.evaluate(&request, false).await?;
            if answer.labels.len() != ANNOTATORS.len() || answer.rankings.len() != cutoffs.len() {
                let problem = "the answer lacks labels or rankings that were asked for";
                return Err(Refusal::Fatal(StudyError::Other(anyhow::anyhow!(problem))));
            }
            let named = ANNOTATORS.iter().map(|annotator| annotator.name().to_owned());
            let quality = |(at, annotator): (usize, &Annotator)| {
                let scores = answer.rankings.iter().map(|ranking| ranking.scores.get(at)?.end_to_end);
                Some((annotator.name().to_owned(), scores.collect::<Option<Vec<f64>>>()?))
            };
            let labelled = Labelled {
                quality: ANNOTATORS.iter().enumerate().filter_map(quality).collect(),
                labels: named.zip(answer.labels.iter().map(|labels| labels.labels.clone())).collect(),
                cutoffs,
            };
            kept(labelled)
        })
    }

    fn report(&self, answers: &[Answer<'_>], settings: &Settings) -> Result<Report, StudyError> {
        let questions = values::<Labelled>(answers)?;
        Study { questions, metrics: default_metrics(), settings }.report()
    }
}
