//! Plans: forests of token segments, with the scores and samples requested at each.
//!
//! Every method scores many token sequences that share prefixes. A transformer evaluates a shared prefix only once. A
//! method adds its sequences segment by segment; equal segments after the same parent become one node. The cost of a
//! plan is computed before it runs.

mod grow;
mod order;
mod step;
mod walk;

use std::collections::HashMap;
use std::sync::Arc;

pub use grow::{Allowed, Finish, Grow, Stop};
pub use step::{Fork, Piece, Source, Step};
pub use walk::Walk;

/// A token of the generator's vocabulary.
pub type Token = i32;

/// A node of a [`Plan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub usize);

/// A run of tokens, and the index from which they are scored.
#[derive(Debug, Clone)]
pub struct Segment {
    /// The tokens; not empty.
    pub tokens: Arc<[Token]>,
    /// Index of the first scored token; `None` for a context-only segment. The first token of a sequence has no
    /// predecessor and is never scored.
    pub scored_from: Option<usize>,
    /// Meaning of a score.
    pub reads: Reads,
}

/// Meaning of the score of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reads {
    /// Its natural log-probability.
    #[default]
    LogProbability,
    /// Its logit, for models that were trained on the logit of one token.
    Logit,
}

/// A scored token and its place in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Node of the token.
    pub node: NodeId,
    /// Its index in the node.
    pub index: usize,
    /// The token.
    pub token: Token,
    /// Meaning of its score.
    pub reads: Reads,
}

impl Segment {
    /// A context-only segment: none of its tokens is scored.
    #[must_use]
    pub fn context(tokens: impl Into<Arc<[Token]>>) -> Self {
        Self { tokens: tokens.into(), scored_from: None, reads: Reads::LogProbability }
    }

    /// A segment whose tokens from index `from` on are scored.
    #[must_use]
    pub fn scored(tokens: impl Into<Arc<[Token]>>, from: usize) -> Self {
        Self { tokens: tokens.into(), scored_from: Some(from), reads: Reads::LogProbability }
    }

    /// A segment whose tokens' logits are read.
    #[must_use]
    pub fn logits(tokens: impl Into<Arc<[Token]>>) -> Self {
        Self { tokens: tokens.into(), scored_from: Some(0), reads: Reads::Logit }
    }
}

#[derive(Debug, Clone)]
struct Node {
    parent: Option<usize>,
    children: Vec<usize>,
    tokens: Arc<[Token]>,
    scored_from: Option<usize>,
    reads: Reads,
    /// Position of the first token in its sequence.
    start: usize,
    /// Set for a sampled continuation; `tokens` is then empty.
    grow: Option<Grow>,
}

/// Cost of a plan, computed before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Tokens that the generator evaluates. Samples count with their maximum length.
    pub tokens: usize,
    /// Tokens that would be evaluated without prefix sharing, every sequence from its start.
    pub naive_tokens: usize,
    /// Minimum number of cache cells: the length of the longest sequence.
    pub path_cells: usize,
    /// Cache cells needed to hold all nodes at once.
    pub total_cells: usize,
    /// Rows of logits that are read for scores and draws.
    pub rows: usize,
}

/// The parent of a node, its tokens, and the meaning of their scores. Equal triples are one node.
type Place = (Option<usize>, Arc<[Token]>, Reads);

/// A forest of segments. Sequences with equal leading segments share nodes.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    nodes: Vec<Node>,
    roots: Vec<usize>,
    known: HashMap<Place, usize>,
    naive_tokens: usize,
    /// Sequences that end at a node and that no sample continues yet.
    ended: HashMap<usize, usize>,
    /// Samples whose first token's distribution is part of the result.
    distributions: std::collections::BTreeSet<NodeId>,
}

impl Plan {
    /// An empty plan.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a sequence and returns its nodes, one per segment. Existing nodes with the same parent and tokens are
    /// reused. If a reused node has a different `scored_from`, the smaller index applies. Empty segments are skipped.
    pub fn add(&mut self, segments: &[Segment]) -> Vec<NodeId> {
        let mut parent = None;
        let mut path = Vec::with_capacity(segments.len());
        for segment in segments.iter().filter(|segment| !segment.tokens.is_empty()) {
            self.naive_tokens += segment.tokens.len();
            let node = self.child(parent, segment);
            path.push(NodeId(node));
            parent = Some(node);
        }
        if let Some(last) = parent {
            *self.ended.entry(last).or_default() += 1;
        }
        path
    }

    fn child(&mut self, parent: Option<usize>, segment: &Segment) -> usize {
        let key = (parent, Arc::clone(&segment.tokens), segment.reads);
        let scored_from = segment.scored_from.map(|from| from.max(usize::from(parent.is_none())));
        if let Some(&node) = self.known.get(&key) {
            let merged = [self.nodes[node].scored_from, scored_from].into_iter().flatten().min();
            self.nodes[node].scored_from = merged;
            return node;
        }
        let start = parent.map_or(0, |above| self.nodes[above].start + self.nodes[above].tokens.len());
        let node = self.nodes.len();
        let tokens = Arc::clone(&segment.tokens);
        let reads = segment.reads;
        self.nodes.push(Node { parent, children: Vec::new(), tokens, scored_from, reads, start, grow: None });
        match parent {
            Some(above) => self.nodes[above].children.push(node),
            None => self.roots.push(node),
        }
        self.known.insert(key, node);
        node
    }

    /// Adds a sampled continuation after the end of `node` and returns its node. Every call adds a new node,
    /// because samples are never shared. `naive_tokens` counts the prompt again, unless an earlier [`Plan::add`]
    /// without another sample has counted it.
    pub fn sample(&mut self, node: NodeId, grow: Grow) -> NodeId {
        let above = &self.nodes[node.0];
        let start = above.start + above.tokens.len();
        let sample = self.nodes.len();
        let counted = self.ended.get_mut(&node.0).filter(|ended| **ended > 0);
        let prompt = counted.map_or(start, |ended| {
            *ended -= 1;
            0
        });
        self.naive_tokens += prompt + grow.most.saturating_sub(1);
        let (parent, tokens) = (Some(node.0), Arc::default());
        let reads = Reads::LogProbability;
        let grown = Node { parent, children: Vec::new(), tokens, scored_from: None, reads, start, grow: Some(grow) };
        self.nodes.push(grown);
        self.nodes[node.0].children.push(sample);
        NodeId(sample)
    }

    /// Scores all tokens of a node, except the first of a sequence.
    pub fn score(&mut self, node: NodeId) {
        let node = &mut self.nodes[node.0];
        node.scored_from = Some(usize::from(node.parent.is_none()));
    }

    /// Keeps the distribution over the vocabulary from which the first token of `sample` is drawn.
    pub fn keep_distribution(&mut self, sample: NodeId) {
        self.distributions.insert(sample);
    }

    /// True if [`Plan::keep_distribution`] was called for a sample.
    #[must_use]
    pub fn keeps_distribution(&self, sample: NodeId) -> bool {
        self.distributions.contains(&sample)
    }

    /// The sampling of a node; `None` for a node with fixed tokens.
    #[must_use]
    pub fn grow(&self, node: NodeId) -> Option<&Grow> {
        self.nodes[node.0].grow.as_ref()
    }

    /// True if any node is sampled. Scans all nodes.
    #[must_use]
    pub fn has_samples(&self) -> bool {
        self.nodes.iter().any(|node| node.grow.is_some())
    }

    /// Samples drawn from the logits at `offset` of `node`: the node itself if it is a sample, otherwise the sampled
    /// children if `offset` is its last token.
    fn draws(&self, node: usize, offset: usize) -> Vec<NodeId> {
        let here = &self.nodes[node];
        if here.grow.is_some() {
            return vec![NodeId(node)];
        }
        if offset + 1 < here.tokens.len() {
            return Vec::new();
        }
        here.children.iter().filter(|&&child| self.nodes[child].grow.is_some()).map(|&child| NodeId(child)).collect()
    }

    /// Number of nodes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if nothing was added.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Cost of the plan; exact without samples, an upper bound with samples.
    #[must_use]
    pub fn cost(&self) -> Cost {
        let size = |node: &Node| node.grow.as_ref().map_or(node.tokens.len(), Grow::evaluated);
        let end = |node: &Node| node.start + size(node);
        Cost {
            tokens: (0..self.nodes.len()).map(|node| self.evaluated(node)).sum(),
            naive_tokens: self.naive_tokens,
            path_cells: self.nodes.iter().map(end).max().unwrap_or(0),
            total_cells: self.nodes.iter().map(size).sum(),
            rows: (0..self.nodes.len()).map(|node| self.rows(node)).sum(),
        }
    }

    /// Tokens of samples in the cost. Samples may end early.
    #[must_use]
    pub fn drawn_at_most(&self) -> usize {
        self.nodes.iter().filter_map(|node| node.grow.as_ref()).map(Grow::evaluated).sum()
    }

    /// Evaluated tokens of a node. The last token of a scored leaf is predicted but not evaluated.
    fn evaluated(&self, node: usize) -> usize {
        let node = &self.nodes[node];
        if let Some(grow) = &node.grow {
            return grow.evaluated();
        }
        node.tokens.len() - usize::from(node.children.is_empty() && node.scored_from.is_some())
    }

    /// Rows of logits read inside a node: those before its scored tokens, and its last row if a child is scored from
    /// index 0 or sampled.
    fn rows(&self, node: usize) -> usize {
        if let Some(grow) = &self.nodes[node].grow {
            // A draw may follow every evaluated token; a forced token follows without one.
            return grow.evaluated();
        }
        let read = |offset: usize| !self.targets(node, offset).is_empty() || !self.draws(node, offset).is_empty();
        (0..self.evaluated(node)).filter(|&offset| read(offset)).count()
    }

    /// Tokens that are scored by the logits at `offset` of `node`.
    fn targets(&self, node: usize, offset: usize) -> Vec<Target> {
        let here = &self.nodes[node];
        if here.grow.is_some() {
            return Vec::new();
        }
        if offset + 1 < here.tokens.len() {
            let next = offset + 1;
            let wanted = here.scored_from.is_some_and(|from| next >= from);
            return if wanted { vec![self.target(node, next)] } else { Vec::new() };
        }
        let first = |&child: &usize| (self.nodes[child].scored_from == Some(0)).then(|| self.target(child, 0));
        here.children.iter().filter_map(first).collect()
    }

    fn target(&self, node: usize, index: usize) -> Target {
        let Node { tokens, reads, .. } = &self.nodes[node];
        Target { node: NodeId(node), index, token: tokens[index], reads: *reads }
    }

    /// Length of a node in tokens; 0 for a sample.
    #[must_use]
    pub fn length(&self, node: NodeId) -> usize {
        self.nodes[node.0].tokens.len()
    }

    /// Tokens of a node; empty for a sample.
    #[must_use]
    pub fn tokens(&self, node: NodeId) -> &[Token] {
        &self.nodes[node.0].tokens
    }

    /// The node before a node; `None` for a root.
    #[must_use]
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        self.nodes[node.0].parent.map(NodeId)
    }

    /// True if no node comes after a node.
    #[must_use]
    pub fn is_leaf(&self, node: NodeId) -> bool {
        self.nodes[node.0].children.is_empty()
    }

    /// Positions of a node's tokens in its sequence.
    #[must_use]
    pub fn positions(&self, node: NodeId) -> std::ops::Range<usize> {
        let node = &self.nodes[node.0];
        node.start..node.start + node.tokens.len()
    }

    /// Number of ancestors of a node; 0 for a root.
    #[must_use]
    pub fn depth(&self, node: NodeId) -> usize {
        let mut depth = 0;
        let mut above = self.nodes[node.0].parent;
        while let Some(parent) = above {
            depth += 1;
            above = self.nodes[parent].parent;
        }
        depth
    }

    /// All tokens from the root to the end of a node.
    #[must_use]
    pub fn path(&self, node: NodeId) -> Vec<Token> {
        let mut parts = vec![node.0];
        while let Some(parent) = self.nodes[parts[parts.len() - 1]].parent {
            parts.push(parent);
        }
        parts.iter().rev().flat_map(|&part| self.nodes[part].tokens.iter().copied()).collect()
    }

    /// True if a node has children and none of its logits is read. Its cache cells are then its only result, and a
    /// copy of them replaces its evaluation.
    #[must_use]
    pub fn is_context(&self, node: NodeId) -> bool {
        !self.nodes[node.0].children.is_empty() && self.rows(node.0) == 0
    }

    /// True if a node has children, all of its own tokens are scored, and no logits of its last token are read. Its cells and
    /// these log-probabilities are then its only results, and both together replace its evaluation.
    #[must_use]
    pub fn is_scored_context(&self, node: NodeId) -> bool {
        let here = &self.nodes[node.0];
        let Some(last) = here.tokens.len().checked_sub(1) else { return false };
        !here.children.is_empty()
            && here.scored_from == Some(0)
            && here.reads == Reads::LogProbability
            && self.targets(node.0, last).is_empty()
            && self.draws(node.0, last).is_empty()
    }

    /// Index of the first scored token of a node; the node's length if no token is scored.
    #[must_use]
    pub fn first_scored(&self, node: NodeId) -> usize {
        let node = &self.nodes[node.0];
        node.scored_from.unwrap_or(node.tokens.len())
    }

    /// Number of scored tokens of a node; 0 if it is context-only or not in the plan.
    #[must_use]
    pub fn scored_tokens(&self, node: NodeId) -> usize {
        self.nodes
            .get(node.0)
            .map_or(0, |node| node.scored_from.map_or(0, |from| node.tokens.len().saturating_sub(from)))
    }
}

#[cfg(test)]
mod tests;
