//! Scores of prompts by the generator, or of passages or pairs of texts by another model.

use std::collections::HashMap;
use std::sync::Arc;

use prefix_scheduler::plan::NodeId;
use prefix_scheduler::scheduler::generator::Sample;
use rag_metrics::belief::Verdict;

/// The available scores of prompts: log-probabilities in nats, or logits if these are requested.
#[derive(Debug, Clone, Default)]
pub struct Scores {
    /// The nodes of each prompt in the plan, one per segment.
    pub(crate) paths: Arc<Vec<Vec<NodeId>>>,
    /// The scored tokens of each node. Nodes without scored tokens are absent.
    pub(crate) nodes: HashMap<NodeId, Vec<f64>>,
    /// How many nodes of each prompt are still missing.
    pub(crate) missing: Vec<usize>,
    /// The continuations of the prompts that requested one, when all are available.
    pub(crate) samples: HashMap<usize, Sample>,
    /// The score of each passage of the request; empty unless requested.
    pub(crate) passages: Vec<f64>,
    /// For each passage, true if the model cannot read it, so that its score is meaningless.
    pub(crate) unreadable: Vec<bool>,
    /// The verdict on each pair of texts; empty unless requested.
    pub(crate) verdicts: Vec<Verdict>,
}

impl Scores {
    /// Number of prompts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// True if there are no prompts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// True if all scores of a prompt are available.
    #[must_use]
    pub fn is_complete(&self, prompt: usize) -> bool {
        self.missing.get(prompt).is_some_and(|missing| *missing == 0)
    }

    /// Log-probabilities of the scored tokens of a segment; empty for a segment without scored tokens.
    #[must_use]
    pub fn segment(&self, prompt: usize, segment: usize) -> &[f64] {
        let node = self.paths.get(prompt).and_then(|path| path.get(segment));
        node.and_then(|node| self.nodes.get(node)).map_or(&[], Vec::as_slice)
    }

    /// Log-probabilities of the last segment's scored tokens: the query's, if it comes last.
    #[must_use]
    pub fn last(&self, prompt: usize) -> &[f64] {
        self.paths.get(prompt).map_or(&[], |path| self.segment(prompt, path.len().saturating_sub(1)))
    }

    /// The score of each passage of the request, finite; empty unless requested.
    #[must_use]
    pub fn passages(&self) -> &[f64] {
        &self.passages
    }

    /// For each passage, true if the model cannot read it; empty unless scores of passages were requested.
    #[must_use]
    pub fn unreadable(&self) -> &[bool] {
        &self.unreadable
    }

    /// The verdict on each pair of texts, in their order; empty unless requested.
    #[must_use]
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// The continuation of a prompt; `None` if it requested none.
    #[must_use]
    pub fn sample(&self, prompt: usize) -> Option<&Sample> {
        self.samples.get(&prompt)
    }

    /// Sum of the log-probabilities of the segments from `first` on.
    #[must_use]
    pub fn sum_from(&self, prompt: usize, first: usize) -> f64 {
        let segments = self.paths.get(prompt).map_or(0, Vec::len);
        (first..segments).flat_map(|segment| self.segment(prompt, segment)).sum()
    }
}
