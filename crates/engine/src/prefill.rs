//! Evaluates passages without a query, so that a later request finds them in the KV cache.
//!
//! The prompt is the one of question generation, with which the default method, `moi`, `query-generation` and
//! `listwise-bayes` begin. Cached passages are skipped, so a broken-off run continues where it ended.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::estimate;
use super::methods::query_prompt::{QueryPrompt, overhead};
use super::models::{Models, ServedGenerator};
use super::truncate::{Fit, fit_passages};
use crate::types::{CutSide, EngineError, Limits, Passage};
use prefix_scheduler::call::{Call, Lane};
use prefix_scheduler::plan::{NodeId, Plan, Segment, Token};
use prefix_scheduler::scheduler::generator::Keys;
use prefix_scheduler::scheduler::pace::Kind;

/// Most passages of a request.
pub const MOST_PASSAGES: usize = 10_000;

/// Passages evaluated between two reports.
const GROUP: usize = 16;

/// After this many consecutive passages without room, cached ones not counted, the cache is full.
const IN_VAIN: usize = 4 * GROUP;

/// Progress over the passages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefillProgress {
    /// Passages done.
    pub done: usize,
    /// Passages that were cached before.
    pub present: usize,
    /// Passages that were evaluated and are cached now.
    pub kept: usize,
    /// Tokens evaluated.
    pub tokens: usize,
}

/// Evaluates passages ahead of requests.
#[derive(Debug, Clone)]
pub struct Prefiller {
    pub(crate) models: Models,
    pub(crate) limits: Limits,
}

impl Prefiller {
    /// Evaluates passages with the generator that scores by default, and caches them. Ends early when the cache is
    /// full: `done` is then less than the number of passages. Reports each group of passages to the listener.
    ///
    /// # Errors
    /// [`EngineError`], which names the field at fault; [`EngineError::Precondition`] if there is no cache.
    pub async fn prefill(
        &self,
        call: &Call,
        passages: Vec<Passage>,
        listener: Option<UnboundedSender<PrefillProgress>>,
    ) -> Result<PrefillProgress, EngineError> {
        self.check(&passages)?;
        let generator = self.models.scorer_by_default()?;
        call.tally().set_subject("warm_passages", &generator.info.name);
        if generator.scheduler.store().is_none() {
            let problem = "no passages are cached: set passage_cache.memory_bytes to a number, and generator.reproducible to false";
            return Err(EngineError::Precondition(problem.into()));
        }
        // Only one group at a time is ahead of other requests, and cached passages cost nothing.
        let bytes = |group: &[Passage]| group.iter().map(|passage| passage.text.len() + passage.title.len()).sum();
        let first = estimate::tokens_of_text(passages.chunks(GROUP).next().map_or(0, bytes));
        // Longer passages are cut.
        generator.scheduler.admit(call, first.min(self.limits.tokens), Kind::Reads)?;
        let (mut progress, mut in_vain) = (PrefillProgress::default(), 0);
        let passages: Arc<[Passage]> = passages.into();
        for start in (0..passages.len()).step_by(GROUP) {
            let range = start..passages.len().min(start + GROUP);
            let (model, all, truncate) = (Arc::clone(&generator), Arc::clone(&passages), self.limits.truncate);
            // Looks for files, so it runs in a separate lane.
            let missing = call
                .compute_in(Lane::Disk, move |call| {
                    let tokens = tokens(&model, &all[range.clone()], truncate, call)
                        .map_err(|error| error.at_passage(|index| Some(index + range.start)))?;
                    Ok::<_, EngineError>(missing(&model, &tokens))
                })
                .await?;
            let group = passages.len().min(start + GROUP) - start;
            let read = missing.nodes.len();
            let mut kept = 0;
            if read > 0 {
                let filled = generator.scheduler.fill(Arc::clone(&missing.plan), missing.keys.clone(), call).await?;
                progress.tokens += filled.tokens;
                written(&generator, &missing.keys, call).await?;
                let model = Arc::clone(&generator);
                let count =
                    move |_: &Call| Ok::<_, EngineError>(missing.kept(&model).into_iter().filter(|kept| *kept).count());
                kept = call.compute_in(Lane::Disk, count).await?;
            }
            // A passage may be too long to be cached. If a whole group was refused, or so many in a row, the cache
            // is full.
            in_vain = if kept > 0 { 0 } else { in_vain + read };
            if read == group && kept == 0 || in_vain >= IN_VAIN {
                break;
            }
            progress.present += group - read;
            progress.kept += kept;
            progress.done += group;
            if let Some(listener) = &listener {
                let _ = listener.send(progress);
            }
        }
        tracing::info!(done = progress.done, present = progress.present, tokens = progress.tokens, "passages read");
        Ok(progress)
    }

    /// True if the cache is also on disk: the folder is configured and usable.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] while there is no generator.
    pub fn keeps_on_disk(&self) -> Result<bool, EngineError> {
        let generator = self.models.scorer_by_default()?;
        let Some(store) = generator.scheduler.store() else { return Ok(false) };
        Ok(store.writes())
    }

    fn check(&self, passages: &[Passage]) -> Result<(), EngineError> {
        if passages.len() > MOST_PASSAGES {
            let problem = format!("{} given, at most {MOST_PASSAGES} allowed", passages.len());
            return Err(EngineError::invalid("passages", problem));
        }
        for (index, passage) in passages.iter().enumerate() {
            let bytes = passage.text.len() + passage.title.len();
            if bytes > self.limits.passage_bytes {
                let problem = format!("{bytes} bytes given, at most {} allowed", self.limits.passage_bytes);
                return Err(EngineError::invalid(format!("passages[{index}].text"), problem));
            }
        }
        Ok(())
    }
}

/// The passages of a group in the form of the prompts.
fn tokens(
    model: &ServedGenerator,
    passages: &[Passage],
    truncate: bool,
    call: &Call,
) -> Result<Vec<Arc<[Token]>>, EngineError> {
    let available = model.context()?.saturating_sub(overhead(&model.language) + 1);
    let fit = Fit { available, longest: 1, passage_tokens: None, truncate, side: CutSide::End };
    Ok(fit_passages(&model.language, passages, fit, call)?.tokens)
}

/// One prompt per passage.
struct Prompts {
    plan: Arc<Plan>,
    /// The nodes of each prompt.
    nodes: Vec<Vec<NodeId>>,
    /// Names of the cache entries. Hashing the tokens is most of the work for cached passages, so it is done once.
    keys: Keys,
}

/// The first token of a query is scored, because a prompt without a score is not evaluated.
fn planned(model: &ServedGenerator, passages: &[Arc<[Token]>]) -> (Plan, Vec<Vec<NodeId>>) {
    let query = model.language.query("?");
    let prompt = QueryPrompt::new(&model.language, &query[..query.len().min(1)]);
    let mut plan = Plan::new();
    let segments = |passage: &Arc<[Token]>| prompt.around(std::iter::once(Segment::context(Arc::clone(passage))));
    let nodes = passages.iter().map(|passage| plan.add(&segments(passage))).collect();
    (plan, nodes)
}

/// Names of the nodes `to`, one path per prompt, from those of the nodes `from` of the same prompts in another
/// plan; in the order of the nodes.
fn carried<'a, K: Copy>(
    keys: &[(NodeId, K)],
    from: impl Iterator<Item = &'a Vec<NodeId>>,
    to: &[Vec<NodeId>],
) -> Vec<(NodeId, K)> {
    let known: HashMap<NodeId, K> = keys.iter().copied().collect();
    let pairs = from.zip(to).flat_map(|(from, to)| from.iter().zip(to));
    let carried: BTreeMap<NodeId, K> = pairs.filter_map(|(from, to)| Some((*to, *known.get(from)?))).collect();
    carried.into_iter().collect()
}

impl Prompts {
    fn new(model: &ServedGenerator, passages: &[Arc<[Token]>]) -> Self {
        let (plan, nodes) = planned(model, passages);
        let keys = model.scheduler.store().map_or_else(Vec::new, |store| store.keys(&plan));
        Self { plan: Arc::new(plan), nodes, keys }
    }

    /// True for each cached passage. Looks for files.
    fn kept(&self, model: &ServedGenerator) -> Vec<bool> {
        let store = model.scheduler.store();
        let holds = |nodes: &Vec<NodeId>| {
            let mut keys = self.keys.iter().filter(|(node, _)| nodes.contains(node));
            store.is_some_and(|store| keys.all(|(_, key)| store.holds(key)))
        };
        self.nodes.iter().map(holds).collect()
    }
}

/// The prompts of the passages that are not cached.
fn missing(model: &ServedGenerator, passages: &[Arc<[Token]>]) -> Prompts {
    let all = Prompts::new(model, passages);
    let there = all.kept(model);
    if !there.contains(&true) {
        return all;
    }
    let missing = passages.iter().zip(&there).filter(|(_, there)| !**there).map(|(passage, _)| Arc::clone(passage));
    let (plan, nodes) = planned(model, &missing.collect::<Vec<_>>());
    let before = all.nodes.iter().zip(&there).filter(|(_, there)| !**there).map(|(nodes, _)| nodes);
    let keys = carried(&all.keys, before, &nodes);
    Prompts { plan: Arc::new(plan), nodes, keys }
}

/// Waits until cached passages are on disk, so that the disk keeps up. A folder that refuses them is not waited
/// for.
async fn written(model: &ServedGenerator, keys: &Keys, call: &Call) -> Result<(), EngineError> {
    let keys: Vec<_> = keys.iter().map(|(_, key)| *key).collect();
    while model.scheduler.store().is_some_and(|store| store.is_writing(&keys)) {
        call.check()?;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The missing passages of a group were hashed a second time.
    #[test]
    fn names_are_carried_over_to_the_plan_of_the_missing_passages() {
        let prompt = |passage: &[Token]| {
            [
                Segment::context(vec![1, 2]),
                Segment::context(passage),
                Segment::context(vec![8]),
                Segment::scored(vec![9], 0),
            ]
        };
        // Two are equal, and share their nodes.
        let passages: [&[Token]; 5] = [&[3], &[4, 5], &[6], &[4, 5], &[7, 7]];
        let (mut all, mut less) = (Plan::new(), Plan::new());
        let nodes: Vec<Vec<NodeId>> = passages.iter().map(|passage| all.add(&prompt(passage))).collect();
        // The last token has no name, like every leaf. A path stands for its hash.
        let leaf = all.len() - 1;
        let names = |plan: &Plan| (0..plan.len()).map(NodeId).filter(|node| !plan.is_leaf(*node)).collect::<Vec<_>>();
        assert!(!names(&all).contains(&NodeId(leaf)));
        let paths: Vec<(NodeId, usize)> = names(&all).into_iter().map(|node| (node, node.0)).collect();
        let missing = [4, 1, 3];
        let after: Vec<Vec<NodeId>> = missing.iter().map(|index| less.add(&prompt(passages[*index]))).collect();
        let carried = carried(&paths, missing.iter().map(|index| &nodes[*index]), &after);
        assert_eq!(carried.iter().map(|(node, _)| *node).collect::<Vec<_>>(), names(&less));
        for (node, before) in carried {
            assert_eq!(less.path(node), all.path(NodeId(before)));
        }
    }
}
