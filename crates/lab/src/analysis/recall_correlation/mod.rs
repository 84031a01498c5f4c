//! Does a measure of retrieval need the number of relevant documents (Schwartz, Vasilyev and Sawaya, *How important is
//! Recall for Measuring Retrieval Quality?*, sections 2 and 3)?
//!
//! The generator answers from the first K passages, for every K. The measures of the top K (`metrics::recall`) are
//! correlated with the quality of the answers, over lists and cut-offs, at every alpha. F and recall need N, the
//! number of relevant documents in the whole collection (`relevant` of a list); Fe needs a list of 2K; T, T', nDCG
//! and precision need neither.

mod pool;
mod show;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use self::pool::Listed;
use super::ANSWER_TOKENS;
use super::{About, Analysis, Answer, Asking, Context, Need, Settings, kept, values};
use crate::study::StudyError;
use crate::study::backend::Refusal;
use crate::study::data::Question;
use crate::study::report::Report;
use engine::calibrate::Labelled;
use engine::types::{BeliefRequest, SampleOptions};
use numeric::real;
use prefix_scheduler::call::Call;
use rag_metrics::lexical::token_f1;
use rag_metrics::recall::Sample;

/// See the module.
pub(super) struct RecallCorrelation;

/// The stored result of a question: the qualities of the answers from the first 1, 2, 3, … passages.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answered {
    /// F1 of the words of the greedy answer, the best over the reference answers.
    token_f1: Vec<f64>,
    /// log P(first reference answer) in nats per token.
    log_likelihood: Vec<f64>,
}

/// The quality of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quality {
    TokenF1,
    LogLikelihood,
}

impl Quality {
    /// All of them. The verdict takes the first.
    const ALL: [Self; 2] = [Self::TokenF1, Self::LogLikelihood];

    const fn name(self) -> &'static str {
        match self {
            Self::TokenF1 => "token F1",
            Self::LogLikelihood => "log P(reference)",
        }
    }

    fn of(self, answered: &Answered) -> &[f64] {
        match self {
            Self::TokenF1 => &answered.token_f1,
            Self::LogLikelihood => &answered.log_likelihood,
        }
    }
}

impl Analysis for RecallCorrelation {
    fn about(&self) -> About {
        About::new(
            "recall-correlation",
            "Does a measure of retrieval need the number of relevant documents? (Recall, Fig. 2 to 18)",
            &[Need::References, Need::Engine],
        )
        .passages(10)
    }

    fn ask<'a>(&'a self, question: &'a Question, context: &'a Context<'a>) -> Asking<'a> {
        Box::pin(async move {
            let engine = context.engine()?;
            let passages = context.passages(question);
            let list = &question.list;
            let Some(reference) = list.answers.first() else {
                return Err(Refusal::Question("answers: must not be empty".to_owned()));
            };
            // All contexts are prefixes of the longest, which is evaluated once.
            let contexts: Vec<Vec<usize>> = (1..=passages.len()).map(|k| (0..k).collect()).collect();
            let task = Labelled {
                question: list.question.clone(),
                answer: reference.clone(),
                passages: passages.clone(),
                gold: Vec::new(),
                passage_tokens: context.settings.passage_tokens,
            };
            let likelihoods = engine.positions.likelihoods(&Call::local(), &task, &contexts).await?;
            let tokens = engine.generator()?.language.query(reference).len().max(1);
            let request = BeliefRequest {
                question: list.question.clone(),
                passages,
                contexts,
                options: SampleOptions { max_tokens: Some(ANSWER_TOKENS), ..SampleOptions::greedy() },
                passage_tokens: context.settings.passage_tokens,
                ..BeliefRequest::default()
            };
            let sampled = engine.sampler.sample(&Call::local(), request, None).await?;
            let f1 = sampled.answers.iter().map(|answers| {
                let text = answers.first().map_or("", |answer| answer.text.as_str());
                token_f1(text, &list.answers)
            });
            let log_likelihood: Vec<f64> = likelihoods.iter().map(|sum| sum / real(tokens)).collect();
            if log_likelihood.iter().any(|value| !value.is_finite()) {
                return Err(Refusal::Question("answers: the first has no finite likelihood".to_owned()));
            }
            let answered = Answered { token_f1: f1.collect(), log_likelihood };
            kept(answered)
        })
    }

    fn report(&self, answers: &[Answer<'_>], settings: &Settings) -> Result<Report, StudyError> {
        let mut report = Report::default();
        let answered = values::<Answered>(answers)?;
        for quality in Quality::ALL {
            let listed = answers.iter().zip(&answered).map(|(answer, answered)| {
                let marks: Vec<bool> = answer.question.list.labels.iter().map(|l| *l >= settings.threshold).collect();
                let sample = |(at, response): (usize, &f64)| Sample {
                    marks: marks.clone(),
                    k: at + 1,
                    all: answer.question.list.relevant,
                    response: *response,
                };
                quality.of(answered).iter().enumerate().map(sample).collect()
            });
            let lists: Vec<Listed> = listed.collect();
            show::add(&mut report, quality, &lists, &settings.statistics)?;
        }
        report.notes = show::notes();
        Ok(report)
    }
}
