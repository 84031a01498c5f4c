//! The utility of retrieval: how far passages move the generator's belief toward the reference answers, or how much surer
//! they make it where there are none.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;

use super::belief::report::{self, BeliefReport, Response, Verdicts};
use super::belief::{Answer, BeliefEvent, BeliefRequest, MeasureOptions, SampleOptions, Sampled, check_orders};
use super::rerank::{Passage, Usage};
use super::{Engine, EngineError, milliseconds};
use crate::belief::Measured;
use crate::call::Call;

/// What is measured of a list of passages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// The whole list, in its order.
    List,
    /// Passage `i` alone.
    Passage(usize),
    /// The first so many passages.
    Prefix(usize),
    /// The list without passage `i`.
    Without(usize),
    /// Subset `i` of the request.
    Subset(usize),
}

/// A question, its passages, and what is to be measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UtilityRequest {
    /// The question.
    pub question: String,
    /// The passages, in the order of reading.
    pub passages: Vec<Passage>,
    /// Reference answers; without them only entropies are measured.
    pub references: Vec<String>,
    /// Measure the whole list.
    pub list: bool,
    /// Measure each passage alone.
    pub each: bool,
    /// Measure every growing prefix of the list.
    pub prefixes: bool,
    /// Measure the list without each passage.
    pub leave_one_out: bool,
    /// Measure these subsets, by index.
    pub subsets: Vec<Vec<usize>>,
    /// How answers are sampled.
    pub sampling: SampleOptions,
    /// How they are measured.
    pub measure: MeasureOptions,
    /// Most tokens of a passage; no bound but the context where `None`.
    pub passage_tokens: Option<usize>,
    /// Whether passages may be cut to fit; the server's default where `None`.
    pub truncate: Option<bool>,
    /// Most tokens to evaluate; the server's limit where `None`.
    pub token_budget: Option<usize>,
}

/// A belief with context and what the context changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Utility {
    /// Which context.
    pub of: Of,
    /// Its passages.
    pub indices: Vec<usize>,
    /// The belief with it.
    pub belief: BeliefReport,
    /// The answers it rests on.
    pub answers: Vec<Answer>,
    /// SePer with context less SePer without, soft.
    pub delta_soft: Option<Measured>,
    /// The same, hard.
    pub delta_hard: Option<Measured>,
    /// Semantic entropy without context less that with it, in nats.
    pub semantic_entropy_reduction: Measured,
    /// The same of the clusters' counts.
    pub semantic_entropy_count_reduction: Measured,
    /// Predictive entropy without context less that with it, in nats.
    pub predictive_entropy_reduction: Measured,
}

/// The measured utilities.
#[derive(Debug, Clone, PartialEq)]
pub struct UtilityReport {
    /// The belief without context.
    pub without: BeliefReport,
    /// The answers it rests on.
    pub without_answers: Vec<Answer>,
    /// One a context, in the order: list, each, prefixes, leave-one-out, subsets.
    pub utilities: Vec<Utility>,
    /// What the generator did.
    pub usage: Usage,
    /// Pairs that the entailment model judged.
    pub judged_pairs: usize,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// What a belief without context depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct WithoutKey(String, String);

impl UtilityRequest {
    fn contexts(&self) -> Vec<(Of, Vec<usize>)> {
        let n = self.passages.len();
        let mut contexts = Vec::new();
        if self.list {
            contexts.push((Of::List, (0..n).collect()));
        }
        if self.each {
            contexts.extend((0..n).map(|i| (Of::Passage(i), vec![i])));
        }
        if self.prefixes {
            contexts.extend((1..=n).map(|length| (Of::Prefix(length), (0..length).collect())));
        }
        if self.leave_one_out {
            contexts.extend((0..n).map(|out| (Of::Without(out), (0..n).filter(|i| *i != out).collect())));
        }
        contexts.extend(self.subsets.iter().enumerate().map(|(number, subset)| (Of::Subset(number), subset.clone())));
        contexts
    }

    /// The same contexts, to be sampled without being measured.
    pub(super) fn belief(&self) -> BeliefRequest {
        BeliefRequest {
            question: self.question.clone(),
            passages: self.passages.clone(),
            contexts: self.contexts().into_iter().map(|(_, indices)| indices).collect(),
            options: self.sampling.clone(),
            passage_tokens: self.passage_tokens,
            truncate: self.truncate,
            token_budget: self.token_budget,
        }
    }

    fn without_key(&self) -> WithoutKey {
        WithoutKey(self.question.clone(), format!("{:?}", self.sampling))
    }

    fn check(&self) -> Result<(), EngineError> {
        if let Some(index) = self.references.iter().position(|reference| reference.trim().is_empty()) {
            return Err(EngineError::invalid(format!("references[{index}]"), "must not be empty"));
        }
        if self.references.len() > 64 {
            return Err(EngineError::invalid("references", format!("are {}, the limit is 64", self.references.len())));
        }
        check_orders("subsets", &self.subsets, self.passages.len())?;
        if self.contexts().is_empty() {
            return Err(EngineError::invalid("measure_list", "nothing is to be measured"));
        }
        self.measure.check()
    }
}

impl Engine {
    /// Measures utilities. One plan samples in all contexts; the answers without context are kept for the next request about
    /// the same question.
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
        request.check()?;
        self.models().judge()?;
        let contexts = request.contexts();
        let key = request.without_key();
        let kept = self.context_free.get(&key);
        // Contexts that are equal (a list of one passage and that passage alone) are sampled once.
        let mut distinct: Vec<Vec<usize>> = contexts.iter().map(|(_, indices)| indices.clone()).collect();
        if kept.is_some() {
            distinct.retain(|indices| !indices.is_empty());
        } else {
            distinct.push(Vec::new());
        }
        distinct.sort();
        distinct.dedup();
        let belief = BeliefRequest { contexts: distinct.clone(), ..request.belief() };
        let sampled =
            if distinct.is_empty() { Sampled::default() } else { self.sample(call, belief, listener).await? };
        let mut by_context: BTreeMap<Vec<usize>, Vec<Answer>> = distinct.into_iter().zip(sampled.answers).collect();
        let without_answers = match kept {
            Some(kept) => kept,
            None => {
                let answers = by_context.get(&Vec::new()).cloned().unwrap_or_default();
                self.context_free.keep(key, answers.clone());
                answers
            }
        };
        by_context.insert(Vec::new(), without_answers.clone());
        let question = request.measure.conditioned.then_some(request.question.as_str());
        let mut verdicts = Verdicts::new(self.models().judge_if_any(), question, call);
        let mut measured: HashMap<&[usize], BeliefReport> = HashMap::new();
        for (indices, answers) in &by_context {
            let responses = responses(answers);
            let report = report::measure(&mut verdicts, &responses, &request.references, &request.measure).await?;
            measured.insert(indices, report);
        }
        let nothing = || EngineError::Internal("a context was not measured".into());
        let without = measured.get(&[][..]).cloned().ok_or_else(nothing)?;
        let mut utilities = Vec::with_capacity(contexts.len());
        for (of, indices) in contexts {
            let belief = measured.get(&indices[..]).cloned().ok_or_else(nothing)?;
            let answers = by_context[&indices].clone();
            utilities.push(utility(of, indices, belief, answers, &without));
        }
        let mut warnings = Vec::new();
        let shortened = sampled.cut.iter().filter(|dropped| **dropped > 0).count();
        if shortened > 0 {
            warnings.push(format!("{shortened} passages were cut to fit"));
        }
        if request.references.is_empty() {
            warnings.push("no references: only entropies are measured".to_owned());
        } else if without.seper_hard.is_none() {
            warnings.push("the entailment model is two-way: hard SePer is not measured".to_owned());
        }
        let mut usage = sampled.usage;
        usage.total_ms = milliseconds(started);
        let judged_pairs = verdicts.judged;
        Ok(UtilityReport { without, without_answers, utilities, usage, judged_pairs, warnings })
    }
}

fn responses(answers: &[Answer]) -> Vec<Response> {
    answers.iter().map(|answer| Response { text: answer.text.clone(), likelihood: answer.likelihood() }).collect()
}

fn utility(of: Of, indices: Vec<usize>, belief: BeliefReport, answers: Vec<Answer>, without: &BeliefReport) -> Utility {
    let delta = |with: &Option<Measured>, without: &Option<Measured>| Some(with.as_ref()?.minus(without.as_ref()?));
    Utility {
        delta_soft: delta(&belief.seper_soft, &without.seper_soft),
        delta_hard: delta(&belief.seper_hard, &without.seper_hard),
        semantic_entropy_reduction: without.semantic_entropy.minus(&belief.semantic_entropy),
        semantic_entropy_count_reduction: without.semantic_entropy_count.minus(&belief.semantic_entropy_count),
        predictive_entropy_reduction: without.predictive_entropy.minus(&belief.predictive_entropy),
        of,
        indices,
        belief,
        answers,
    }
}

/// Answers without context that were sampled before, the latest few hundred questions.
pub(super) struct ContextFree(std::sync::Mutex<lru::LruCache<WithoutKey, Vec<Answer>>>);

impl Default for ContextFree {
    fn default() -> Self {
        const QUESTIONS: std::num::NonZeroUsize = std::num::NonZeroUsize::MIN.saturating_add(511);
        Self(std::sync::Mutex::new(lru::LruCache::new(QUESTIONS)))
    }
}

impl ContextFree {
    fn get(&self, key: &WithoutKey) -> Option<Vec<Answer>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(key).cloned()
    }

    fn keep(&self, key: WithoutKey, answers: Vec<Answer>) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).put(key, answers);
    }
}
