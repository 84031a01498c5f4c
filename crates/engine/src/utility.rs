//! The utility of retrieval: by how much passages move the generator's belief toward the reference answers, or reduce its
//! entropy where there are none.
//!
//! All contexts of a question are sampled with the same number of samples, and sample `i` draws the same random numbers in
//! each ([`SampleOptions::seed`]). Differences between contexts therefore have paired standard errors.

mod bounds;
mod context_free;

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use bounds::check_answers;
pub(super) use context_free::ContextFreeCache;
use context_free::Drawn;
use tokio::sync::mpsc::UnboundedSender;

use super::belief::report::{self, BeliefReport, Response, Verdicts};
use super::belief::texts::Texts;
use super::belief::{
    Answer, BeliefEvent, BeliefRequest, MeasureOptions, SampleOptions, Sampled, check_orders, check_references,
    check_texts,
};
use super::rerank::{Passage, Usage};
use super::task::{LabelProbability, Task, TaskKind};
use super::{Engine, EngineError, Limits, milliseconds};
use prefix_scheduler::call::Call;
use rag_metrics::belief::{Estimate, Measured, Pairing};

/// Which passages of a request a context holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextKind {
    /// The whole list, in its order.
    List,
    /// Passage `i` alone.
    Passage(usize),
    /// The first so many passages.
    Prefix(usize),
    /// The list except passage `i`.
    LeaveOneOut(usize),
    /// Subset `i` of the request.
    Subset(usize),
}

/// A question, its passages, and the contexts to measure.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UtilityRequest {
    /// The question.
    pub question: String,
    /// The passages, in the order of reading.
    pub passages: Vec<Passage>,
    /// Reference answers, at most 64. If there are none, only entropies are measured.
    pub references: Vec<String>,
    /// Measure the whole list.
    pub list: bool,
    /// Measure each passage alone.
    pub each: bool,
    /// Measure every growing prefix of the list.
    pub prefixes: bool,
    /// Measure the list with each passage left out.
    pub leave_one_out: bool,
    /// Measure these subsets, by index.
    pub subsets: Vec<Vec<usize>>,
    /// Whether the references are scored as answers, too.
    pub score_references: bool,
    /// What the generator is asked to do.
    pub task: Task,
    /// How answers are sampled.
    pub sampling: SampleOptions,
    /// How they are measured.
    pub measure: MeasureOptions,
    /// Most tokens of a passage; bounded by the context only if `None`.
    pub passage_tokens: Option<usize>,
    /// Whether passages may be cut to fit; the server's default if `None`.
    pub truncate: Option<bool>,
    /// Most tokens to evaluate; the server's limit if `None`.
    pub token_budget: Option<usize>,
    /// Most pairs that the entailment model is asked about; the server's limit if `None`. No field of the protocol: what a
    /// ranking leaves to its inline utility.
    pub pair_budget: Option<usize>,
}

/// The belief in one context, and its difference to the context-free belief.
#[derive(Debug, Clone, PartialEq)]
pub struct Utility {
    /// Which context.
    pub kind: ContextKind,
    /// Its passages.
    pub indices: Vec<usize>,
    /// The belief in it.
    pub belief: BeliefReport,
    /// The answers that were measured.
    pub answers: Vec<Answer>,
    /// The task's labels with their probabilities; empty for tasks without labels.
    pub labels: Vec<LabelProbability>,
    /// log P(reference | context, question) of each reference, in nats, the sum over its tokens; empty unless they were scored.
    pub references: Vec<f64>,
    /// DeltaSePer: soft SePer in this context minus context-free, in [-1, 1].
    pub delta_soft: Option<Measured>,
    /// The same for hard SePer.
    pub delta_hard: Option<Measured>,
    /// Context-free semantic entropy minus that in this context, in nats.
    pub semantic_entropy_reduction: Measured,
    /// The same over the counts of the clusters.
    pub semantic_entropy_count_reduction: Measured,
    /// The same corrected for clusters that were not drawn; absent for fewer than two samples.
    pub semantic_entropy_corrected_reduction: Option<Measured>,
    /// Context-free predictive entropy minus that in this context, in nats.
    pub predictive_entropy_reduction: Measured,
    /// Context-free perplexity minus that in this context; absent where either is.
    pub perplexity_reduction: Option<Measured>,
    /// Lexical similarity of the answers in this context minus that of the context-free ones; absent for fewer than two
    /// samples.
    pub lexical_similarity_increase: Option<Measured>,
}

/// The measured utilities.
#[derive(Debug, Clone, PartialEq)]
pub struct UtilityReport {
    /// The belief without passages.
    pub context_free: BeliefReport,
    /// Its answers.
    pub context_free_answers: Vec<Answer>,
    /// The task's labels without passages, with their probabilities; empty for tasks without labels.
    pub context_free_labels: Vec<LabelProbability>,
    /// log P(reference | question) of each reference, in nats; empty unless they were scored.
    pub context_free_references: Vec<f64>,
    /// The task that was asked.
    pub task: TaskKind,
    /// One for each context, in the order: list, each, prefixes, leave-one-out, subsets.
    pub utilities: Vec<Utility>,
    /// Cost of the generator.
    pub usage: Usage,
    /// Number of pairs that the entailment model judged.
    pub judged_pairs: usize,
    /// Passages that were cut to fit the prompts.
    pub shortened: usize,
    /// What is said of pairs that the entailment model may not have read to their end; also one of the remarks.
    pub(crate) too_long: Option<String>,
    /// Remarks for the caller.
    pub warnings: Vec<String>,
}

impl UtilityRequest {
    /// Length of [`UtilityRequest::contexts`].
    fn number_of_contexts(&self) -> usize {
        let n = self.passages.len();
        let times = [self.each, self.prefixes, self.leave_one_out].into_iter().filter(|kind| *kind).count();
        n.saturating_mul(times).saturating_add(self.subsets.len()).saturating_add(usize::from(self.list))
    }

    fn contexts(&self) -> Vec<(ContextKind, Vec<usize>)> {
        let n = self.passages.len();
        let mut contexts = Vec::new();
        if self.list {
            contexts.push((ContextKind::List, (0..n).collect()));
        }
        if self.each {
            contexts.extend((0..n).map(|i| (ContextKind::Passage(i), vec![i])));
        }
        if self.prefixes {
            contexts.extend((1..=n).map(|length| (ContextKind::Prefix(length), (0..length).collect())));
        }
        if self.leave_one_out {
            contexts.extend((0..n).map(|out| (ContextKind::LeaveOneOut(out), (0..n).filter(|i| *i != out).collect())));
        }
        contexts.extend(
            self.subsets.iter().enumerate().map(|(number, subset)| (ContextKind::Subset(number), subset.clone())),
        );
        contexts
    }

    /// The references that are scored as answers.
    fn scored_references(&self) -> Vec<String> {
        if self.score_references { self.references.clone() } else { Vec::new() }
    }

    /// The same contexts, to be sampled only.
    pub(super) fn belief(&self) -> BeliefRequest {
        BeliefRequest {
            question: self.question.clone(),
            passages: self.passages.clone(),
            contexts: self.contexts().into_iter().map(|(_, indices)| indices).collect(),
            task: self.task.clone(),
            options: self.sampling.clone(),
            passage_tokens: self.passage_tokens,
            truncate: self.truncate,
            token_budget: self.token_budget,
            references: self.scored_references(),
        }
    }

    fn check(&self, limits: &Limits) -> Result<(), EngineError> {
        // First, because the contexts of a list take the square of its length.
        check_texts(&self.question, &self.passages, limits)?;
        check_references(&self.references, limits)?;
        // Before any of them is made: subsets may be as many as the fields of a message.
        let number = self.number_of_contexts();
        // The context-free one is drawn beside them.
        let most = limits.orders.saturating_sub(1);
        if number > most {
            let field = if self.subsets.is_empty() { "measure_list" } else { "subsets" };
            return Err(EngineError::invalid(field, format!("{number} contexts to measure, at most {most} allowed")));
        }
        check_orders("subsets", &self.subsets, self.passages.len())?;
        if number == 0 {
            return Err(EngineError::invalid("measure_list", "no context to measure"));
        }
        // Before the options become a part of a key.
        self.check_settings()
    }

    /// Refuses settings that hold for every question.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the field.
    pub fn check_settings(&self) -> Result<(), EngineError> {
        self.task.check()?;
        self.sampling.check()?;
        self.measure.check()
    }
}

impl Engine {
    /// Refuses a request that [`Engine::utility`] would refuse without a model. For one that has to wait for its permit.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the field at fault.
    pub fn check_utility(&self, request: &UtilityRequest) -> Result<(), EngineError> {
        request.check(&self.limits)
    }

    /// Measures utilities. One plan samples in all contexts. Context-free answers are cached for later requests with the same
    /// question and sampling options.
    ///
    /// # Errors
    /// [`EngineError`] with the field at fault, before any work where that is possible.
    pub async fn utility(
        &self,
        call: &Call,
        request: UtilityRequest,
        listener: Option<UnboundedSender<BeliefEvent>>,
    ) -> Result<UtilityReport, EngineError> {
        let started = Instant::now();
        request.check(&self.limits)?;
        // Answers are drawn first: a model that cannot be loaded, or cannot do it, must not cost them.
        request.measure.check_model(&self.models().judge()?.load(call).await?)?;
        let contexts = request.contexts();
        let key = context_free::Key::of(&request);
        let cached = self.context_free.get(&key);
        // Equal contexts, for example a list of one passage and that passage alone, are sampled once.
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
            if distinct.is_empty() { Sampled::default() } else { self.sample(call, belief, listener).await? };
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
        self.settle(call);
        check_answers(&contexts, &by_context)?;
        let question = request.measure.conditioned.then_some(request.question.as_str());
        let texts = Texts::after(question);
        let allowed = self.limits().pairs.min(request.pair_budget.unwrap_or(usize::MAX));
        let mut verdicts = Verdicts::new(self.models().judge_if_any(), texts, call, allowed);
        let mut measured: HashMap<&[usize], BeliefReport> = HashMap::new();
        for (indices, drawn) in &by_context {
            let responses: Vec<Response> = drawn.answers.iter().map(|one| Response::of(one, &request.task)).collect();
            let report = report::measure(&mut verdicts, &responses, &request.references, &request.measure).await?;
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

    /// Subsets may be as many as the fields of a message. Each of them had a copy of all answers.
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
        // It was found after the models were asked for, and after a key was made of it.
        let mut long = request(vec![Vec::new()], true);
        long.sampling.stop = Some(vec!["x".repeat(257)]);
        assert!(long.check(&limits).unwrap_err().to_string().starts_with("sampling.stop: "));
        let refused = request(vec![Vec::new(); 8], true).check(&limits).unwrap_err();
        assert_eq!(refused.to_string(), "subsets: 10 contexts to measure, at most 9 allowed");
        let all = UtilityRequest { list: true, prefixes: true, leave_one_out: true, ..request(vec![vec![1]], true) };
        assert_eq!(all.number_of_contexts(), all.contexts().len());
    }
}
