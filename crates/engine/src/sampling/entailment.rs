//! The caller's texts and answers, judged by the entailment model.

use super::measure::{self, Verdicts};
use super::texts::Texts;
use crate::models::Models;
use crate::types::{BeliefReport, EngineError, Limits, MeasureInput};
use prefix_scheduler::call::Call;
use prefix_scheduler::model::entailment::TextPair;
use prefix_scheduler::scheduler::entailment::{Judge, Judged};
use rag_metrics::belief::cluster::Clusters;
use rag_metrics::belief::{Pairing, Rule};

/// Most pairs in one request.
const MOST_PAIRS: usize = 10_000;
/// Most texts to cluster at once.
const MOST_TEXTS: usize = 1_000;

/// Judges and measures texts with the entailment model.
#[derive(Debug, Clone)]
pub struct BeliefMeter {
    pub(crate) models: Models,
    pub(crate) limits: Limits,
}

impl BeliefMeter {
    /// Judges pairs of texts. `question` precedes every text unless it is empty.
    ///
    /// # Errors
    /// [`EngineError`]: no pairs or too many, or an entailment model that is not configured or cannot be loaded.
    pub async fn entail(&self, call: &Call, pairs: Vec<TextPair>, question: &str) -> Result<Judged, EngineError> {
        if pairs.is_empty() || pairs.len() > MOST_PAIRS {
            let problem = format!("{} given, 1 to {MOST_PAIRS} allowed", pairs.len());
            return Err(EngineError::invalid("pairs", problem));
        }
        for (index, pair) in pairs.iter().enumerate() {
            self.check_text(&format!("pairs[{index}].premise"), &pair.premise)?;
            self.check_text(&format!("pairs[{index}].hypothesis"), &pair.hypothesis)?;
        }
        if pairs.len() > self.limits.pairs {
            return Err(EngineError::Pairs { allowed: self.limits.pairs });
        }
        let judge = self.models.judge()?;
        let mut texts = self.conditioned(question)?;
        let condition = move |_: &Call| {
            let pair = |pair: &TextPair| {
                let (premise, hypothesis) = (texts.number(&pair.premise)?, texts.number(&pair.hypothesis)?);
                Ok::<_, EngineError>(texts.pair((premise, hypothesis)))
            };
            pairs.iter().map(pair).collect::<Result<Vec<_>, _>>()
        };
        Ok(judge.judge(call.compute(condition).await?, call).await?)
    }

    /// Clusters texts. `question` precedes every text unless it is empty. Also returns the number of pairs judged.
    ///
    /// # Errors
    /// As [`BeliefMeter::entail`].
    pub async fn cluster(
        &self,
        call: &Call,
        texts: &[String],
        question: &str,
        rule: Rule,
    ) -> Result<(Clusters, usize), EngineError> {
        if texts.is_empty() || texts.len() > MOST_TEXTS {
            let problem = format!("{} given, 1 to {MOST_TEXTS} allowed", texts.len());
            return Err(EngineError::invalid("texts", problem));
        }
        for (index, text) in texts.iter().enumerate() {
            self.check_text(&format!("texts[{index}]"), text)?;
        }
        if let Rule::Threshold(least) = rule
            && !(least > 0.0 && least <= 1.0)
        {
            return Err(EngineError::invalid("threshold", "must be above 0 and at most 1"));
        }
        let texts_of = self.conditioned(question)?;
        self.models.judge()?;
        let mut verdicts = Verdicts::new(self.models.judge_if_any(), texts_of, call, self.limits.pairs);
        let clusters = measure::cluster(&mut verdicts, texts, rule).await?;
        Ok((clusters, verdicts.judged))
    }

    /// Texts after the caller's question, without one if it is empty.
    fn conditioned(&self, question: &str) -> Result<Texts, EngineError> {
        if question.len() > self.limits.query_bytes {
            let problem = format!("{} bytes given, at most {} allowed", question.len(), self.limits.query_bytes);
            return Err(EngineError::invalid("question", problem));
        }
        Ok(Texts::after(Some(question).filter(|question| !question.trim().is_empty())))
    }

    fn check_text(&self, field: &str, text: &str) -> Result<(), EngineError> {
        if text.len() > self.limits.passage_bytes {
            let problem = format!("{} bytes given, at most {} allowed", text.len(), self.limits.passage_bytes);
            return Err(EngineError::invalid(field, problem));
        }
        Ok(())
    }
}

/// Measures answers sampled by the caller. Returns the belief with context, the context-free one, and the number of
/// pairs that the model judged.
///
/// # Errors
/// [`EngineError`] with the field at fault. [`EngineError::Precondition`] if a verdict is missing and there is no entailment
/// model.
pub async fn measure_answers(
    call: &Call,
    input: &MeasureInput,
    judge: Option<&Judge>,
) -> Result<(BeliefReport, Option<BeliefReport>, usize), EngineError> {
    input.check()?;
    let question = Some(input.question.as_str()).filter(|text| input.options.conditioned && !text.trim().is_empty());
    let mut verdicts = Verdicts::new(judge, Texts::after(question), call, usize::MAX);
    for (premise, hypothesis, verdict) in &input.verdicts {
        verdicts.insert(premise, hypothesis, *verdict)?;
    }
    let with_context = measure::measure(&mut verdicts, &input.with_context, &input.references, &input.options).await?;
    let context_free = match &input.context_free[..] {
        [] => None,
        responses => Some(measure::measure(&mut verdicts, responses, &input.references, &input.options).await?),
    };
    Ok((with_context, context_free, verdicts.judged))
}

impl MeasureInput {
    fn check(&self) -> Result<(), EngineError> {
        self.options.check()?;
        if let Some(index) = self.references.iter().position(|reference| reference.trim().is_empty()) {
            return Err(EngineError::invalid(format!("references[{index}]"), "must not be empty"));
        }
        if self.with_context.is_empty() {
            return Err(EngineError::invalid("with", "must hold at least one answer"));
        }
        let (with, without) = (self.with_context.len(), self.context_free.len());
        if self.pairing == Pairing::Paired && without > 0 && with != without {
            let problem = format!("{without} answers given, paired answers need {with}");
            return Err(EngineError::invalid("without", problem));
        }
        for (field, responses) in [("with", &self.with_context), ("without", &self.context_free)] {
            for (index, response) in responses.iter().enumerate() {
                let sum = response.likelihood.sum;
                if !(sum.is_finite() && sum <= 0.0) {
                    let problem = format!("is {sum}, but a log-likelihood is a finite number of at most 0");
                    return Err(EngineError::invalid(format!("{field}[{index}].log_likelihood"), problem));
                }
                if response.likelihood.tokens == 0 {
                    return Err(EngineError::invalid(format!("{field}[{index}].tokens"), "must be at least 1"));
                }
            }
        }
        for (index, (_, _, verdict)) in self.verdicts.iter().enumerate() {
            let parts = [verdict.entailment, verdict.neutral, verdict.contradiction];
            let sum: f64 = parts.iter().sum();
            if !parts.iter().all(|part| (0.0..=1.0).contains(part)) || (sum - 1.0).abs() > 1e-3 {
                let problem = "must be three probabilities that sum to 1";
                return Err(EngineError::invalid(format!("verdicts[{index}]"), problem));
            }
        }
        Ok(())
    }
}
