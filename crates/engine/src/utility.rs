//! The utility of retrieval: by how much passages move the generator's belief toward the reference answers, or
//! reduce its entropy if there are no references.
//!
//! All contexts of a question get the same number of samples, and sample `i` uses the same random numbers in each
//! ([`SampleOptions::seed`](crate::types::SampleOptions::seed)). Differences between contexts therefore have paired
//! standard errors.

mod bounds;
mod context_free;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use bounds::check_answers;
use context_free::{ContextFreeCache, Drawn};
use tokio::sync::mpsc::UnboundedSender;

use crate::checks::{check_orders, check_references, check_texts};
use crate::sampling::Sampler;
use crate::sampling::measure::{self, Verdicts};
use crate::sampling::texts::Texts;
use crate::types::{
    BeliefEvent, BeliefReport, BeliefRequest, ContextKind, EngineError, Limits, Response, Sampled, Utility,
    UtilityReport, UtilityRequest, milliseconds,
};
use prefix_scheduler::call::Call;
use rag_metrics::belief::{Estimate, Pairing};

impl UtilityRequest {
    fn check(&self, limits: &Limits) -> Result<(), EngineError> {
        // First, because the contexts grow with the square of the list's length.
        check_texts(&self.question, &self.passages, limits)?;
        check_references(&self.references, limits)?;
        // Counted before they are built: a message may hold very many subsets.
        let number = self.number_of_contexts();
        // The context-free one is drawn as well.
        let most = limits.orders.saturating_sub(1);
        if number > most {
            let field = if self.subsets.is_empty() { "measure_list" } else { "subsets" };
            return Err(EngineError::invalid(field, format!("{number} contexts to measure, at most {most} allowed")));
        }
        check_orders("subsets", &self.subsets, self.passages.len())?;
        if number == 0 {
            return Err(EngineError::invalid("measure_list", "no context to measure"));
        }
        // Before the options become part of a key.
        self.check_settings()
    }

    /// Refuses invalid settings that all questions share.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the field.
    pub fn check_settings(&self) -> Result<(), EngineError> {
        self.task.check()?;
        self.sampling.check()?;
        self.measure.check()
    }
}

/// Measures the utility of passages. Context-free answers are cached.
#[derive(Debug, Clone)]
pub struct UtilityMeter {
    pub(crate) sampler: Sampler,
    context_free: Arc<ContextFreeCache>,
}

impl UtilityMeter {
    pub(crate) fn new(sampler: Sampler) -> Self {
        Self { sampler, context_free: Arc::default() }
    }

    /// This meter without cached answers.
    pub(crate) fn without_cache(self) -> Self {
        Self { context_free: Arc::new(ContextFreeCache::none()), ..self }
    }

    /// Refuses a request that [`UtilityMeter::measure`] would refuse without a model. For requests that must wait
    /// for a slot.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the field at fault.
    pub fn check(&self, request: &UtilityRequest) -> Result<(), EngineError> {
        request.check(&self.sampler.limits)
    }

    /// Measures utilities. One plan samples in all contexts. Context-free answers are cached for later requests with the same
    /// question and sampling options.
    ///
    /// # Errors
    /// [`EngineError`] with the field at fault, before any work if possible.
    pub async fn measure(
        &self,
        call: &Call,
        request: UtilityRequest,
        listener: Option<UnboundedSender<BeliefEvent>>,
    ) -> Result<UtilityReport, EngineError> {
        let started = Instant::now();
        request.check(&self.sampler.limits)?;
        // Checked before answers are drawn: a model that cannot be loaded, or is unsuitable, must not waste them.
        request.measure.check_model(&self.sampler.models.judge()?.load(call).await?)?;
        let contexts = request.contexts();
        let key = context_free::Key::of(&request);
        let cached = self.context_free.get(&key);
        // Equal contexts, such as a list of one passage and that single passage, are sampled once.
        let mut distinct: Vec<Vec<usize>> = contexts.iter().map(|(_, indices)| indices.clone()).collect();
        if cached.is_some() {
            distinct.retain(|indices| !indices.is_empty());
        } else {
            distinct.push(Vec::new());
        }
        distinct.sort();
        distinct.dedup();
        let belief = BeliefRequest { contexts: distinct.clone(), ..request.belief() };
        let sampled =
            if distinct.is_empty() { Sampled::default() } else { self.sampler.sample(call, belief, listener).await? };
        let (shortened, cut) = (sampled.shortened(), sampled.warnings());
        let drawn = sampled.answers.into_iter().zip(sampled.labels).zip(sampled.references);
        let drawn = drawn.map(|((answers, labels), references)| Drawn { answers, labels, references });
        let mut by_context: BTreeMap<Vec<usize>, Drawn> = distinct.into_iter().zip(drawn).collect();
        let context_free_drawn = match cached {
            Some(cached) => cached,
            None => {
                let drawn = by_context.get(&Vec::new()).cloned().unwrap_or_default();
                self.context_free.put(key, drawn.clone());
                drawn
            }
        };
        by_context.insert(Vec::new(), context_free_drawn.clone());
        self.sampler.models.release_generator(call);
        check_answers(&contexts, &by_context)?;
        let question = request.measure.conditioned.then_some(request.question.as_str());
        let texts = Texts::after(question);
        let allowed = self.sampler.limits.pairs.min(request.pair_budget.unwrap_or(usize::MAX));
        let mut verdicts = Verdicts::new(self.sampler.models.judge_if_any(), texts, call, allowed);
        let mut measured: HashMap<&[usize], BeliefReport> = HashMap::new();
        for (indices, drawn) in &by_context {
            let responses: Vec<Response> = drawn.answers.iter().map(|one| Response::of(one, &request.task)).collect();
            let report = measure::measure(&mut verdicts, &responses, &request.references, &request.measure).await?;
            measured.insert(indices, report);
        }
        let missing = || EngineError::Internal("a context was not measured".into());
        let context_free = measured.get(&[][..]).cloned().ok_or_else(missing)?;
        let mut utilities = Vec::with_capacity(contexts.len());
        for (kind, indices) in contexts {
            let belief = measured.get(&indices[..]).cloned().ok_or_else(missing)?;
            let drawn = by_context[&indices].clone();
            utilities.push(utility(kind, indices, belief, drawn, &context_free));
        }
        let mut warnings = Vec::new();
        warnings.extend(cut);
        if request.references.is_empty() {
            warnings.push("no references: only entropies are measured".to_owned());
        } else if context_free.seper_hard.is_none() {
            warnings.push("the entailment model is two-way: hard SePer is not measured".to_owned());
        }
        let too_long = verdicts.warning();
        warnings.extend(too_long.clone());
        let mut usage = sampled.usage;
        usage.total_ms = milliseconds(started);
        Ok(UtilityReport {
            context_free,
            context_free_answers: context_free_drawn.answers,
            context_free_labels: context_free_drawn.labels,
            context_free_references: context_free_drawn.references,
            task: request.task.kind,
            utilities,
            usage,
            judged_pairs: verdicts.judged,
            shortened,
            too_long,
            warnings,
        })
    }
}

fn utility(
    kind: ContextKind,
    indices: Vec<usize>,
    belief: BeliefReport,
    drawn: Drawn,
    context_free: &BeliefReport,
) -> Utility {
    let difference = |left: &Estimate, right: &Estimate| left.minus(right, Pairing::Paired);
    let of_both = |left: &Option<Estimate>, right: &Option<Estimate>| Some(difference(left.as_ref()?, right.as_ref()?));
    Utility {
        delta_soft: of_both(&belief.seper_soft, &context_free.seper_soft),
        delta_hard: of_both(&belief.seper_hard, &context_free.seper_hard),
        semantic_entropy_reduction: difference(&context_free.semantic_entropy, &belief.semantic_entropy),
        semantic_entropy_count_reduction: difference(
            &context_free.semantic_entropy_count,
            &belief.semantic_entropy_count,
        ),
        semantic_entropy_corrected_reduction: of_both(
            &context_free.semantic_entropy_corrected,
            &belief.semantic_entropy_corrected,
        ),
        predictive_entropy_reduction: difference(&context_free.predictive_entropy, &belief.predictive_entropy),
        perplexity_reduction: of_both(&context_free.perplexity, &belief.perplexity),
        lexical_similarity_increase: of_both(&belief.lexical_similarity, &context_free.lexical_similarity),
        kind,
        indices,
        belief,
        answers: drawn.answers,
        labels: drawn.labels,
        references: drawn.references,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Passage;

    /// A message may hold very many subsets. Each had a copy of all answers.
    #[test]
    fn contexts_are_counted_before_they_are_made() {
        let limits = Limits { orders: 10, ..Limits::WIDE };
        let passages = vec![Passage::untitled(0, "a".into()), Passage::untitled(1, "b".into())];
        let request = |subsets, each| UtilityRequest {
            question: "q".into(),
            passages: passages.clone(),
            subsets,
            each,
            ..UtilityRequest::default()
        };
        assert_eq!(request(vec![Vec::new(); 7], true).check(&limits), Ok(()));
        // The error came only after the models were asked, and after a key was built from it.
        let mut long = request(vec![Vec::new()], true);
        long.sampling.stop = Some(vec!["x".repeat(257)]);
        assert!(long.check(&limits).unwrap_err().to_string().starts_with("sampling.stop: "));
        let refused = request(vec![Vec::new(); 8], true).check(&limits).unwrap_err();
        assert_eq!(refused.to_string(), "subsets: 10 contexts to measure, at most 9 allowed");
        let all = UtilityRequest { list: true, prefixes: true, leave_one_out: true, ..request(vec![vec![1]], true) };
        assert_eq!(all.number_of_contexts(), all.contexts().len());
    }
}
