//! The order in which a plan is evaluated, and the cache cells it holds during evaluation.
//!
//! Nodes are visited depth first. The first unfinished node in that order is the *head*. Nodes after the head may
//! start early to fill a batch, if the head can still reach the end of the longest path. Let `S` be the cells held by
//! nodes outside the head's path, and `D` the length of the longest path. A node of `n` tokens starts early only if
//! `S + n + D <= cells`. Its cells are released when its subtree ends, which the depth-first order always reaches. A
//! walk with at least `D` cells therefore never deadlocks. Sequences are counted by the same rule.
//!
//! A chain of nodes with one child each is evaluated in one step up to the step's limit, like one node.
//!
//! The child that starts last inherits its parent's sequence; the other children get a copy. A sequence therefore ends
//! exactly when a leaf ends. Cells shared by several sequences are free when the last of these sequences ends.

mod cached;

use std::collections::HashMap;
use std::sync::Arc;

use super::order::{branching, preorder};
use super::step::{Fork, Piece, Source, Step};
use super::{NodeId, Plan, Target, Token};
use cached::Cached;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    /// All tokens of the node are evaluated; its cells are held for the children.
    Done,
    /// The whole subtree is evaluated; the cells are free.
    Closed,
}

/// Evaluation state of one plan. The walk numbers its sequences from 0; the caller maps them to the generator's
/// sequences.
#[derive(Debug)]
pub struct Walk {
    plan: Arc<Plan>,
    order: Vec<usize>,
    head: usize,
    states: Vec<State>,
    evaluated: Vec<usize>,
    /// Tokens to evaluate per node: as planned, or fewer if a sample ends early.
    limit: Vec<usize>,
    /// Tokens drawn so far, by sample.
    grown: HashMap<usize, Vec<Token>>,
    sequence: Vec<usize>,
    unstarted: Vec<usize>,
    open_children: Vec<usize>,
    free_sequences: Vec<usize>,
    sequences_made: usize,
    cells: usize,
    max_sequences: usize,
    path_cells: usize,
    path_sequences: usize,
    held: usize,
    sequences_used: usize,
    remaining: usize,
    cached: HashMap<usize, Cached>,
}

impl Walk {
    /// Minimum numbers of cells and of sequences that a walk of `plan` needs.
    #[must_use]
    pub fn least(plan: &Plan) -> (usize, usize) {
        (plan.cost().path_cells, branching(plan) + 1)
    }

    /// Starts a walk that holds at most `cells` cells and `sequences` sequences at any time. Neither may be below
    /// [`Walk::least`].
    #[must_use]
    pub fn new(plan: Arc<Plan>, cells: usize, sequences: usize) -> Self {
        let nodes = plan.nodes.len();
        let cost = plan.cost();
        let order = preorder(&plan);
        let children: Vec<usize> = plan.nodes.iter().map(|node| node.children.len()).collect();
        Self {
            order,
            head: 0,
            states: vec![State::Waiting; nodes],
            evaluated: vec![0; nodes],
            limit: (0..nodes).map(|node| plan.evaluated(node)).collect(),
            grown: HashMap::new(),
            sequence: vec![0; nodes],
            unstarted: children.clone(),
            open_children: children,
            free_sequences: Vec::new(),
            sequences_made: 0,
            cells: cells.max(cost.path_cells),
            max_sequences: sequences,
            path_cells: cost.path_cells,
            path_sequences: branching(&plan) + 1,
            held: 0,
            sequences_used: 0,
            remaining: cost.tokens,
            cached: HashMap::new(),
            plan,
        }
    }

    /// The plan that this walk evaluates.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Tokens not yet evaluated. Samples count with their maximum length until they end.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.remaining
    }

    /// Cache cells currently reserved by started nodes.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }

    /// True if at least one token of a sample was recorded with [`Walk::grow`].
    #[must_use]
    pub fn growing(&self) -> bool {
        !self.grown.is_empty()
    }

    /// True if all nodes are evaluated.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.head >= self.order.len()
    }

    /// Returns the next step, of at most `limit` tokens. The caller must pass every step to [`Walk::advance`] after
    /// evaluating it.
    pub fn take(&mut self, limit: usize) -> Step {
        let mut step = Step::default();
        let mut left = limit;
        let on_path = self.path_of_head();
        let path_held: usize = on_path.iter().map(|&node| self.holding(node)).sum();
        let path_slots = self.slots(&on_path);
        let mut early_cells = self.held - path_held;
        let mut early_slots = self.sequences_used.saturating_sub(path_slots);
        let mut front = self.head;
        for index in self.head..self.order.len() {
            if left == 0 {
                break;
            }
            let node = self.order[index];
            if self.states[node] == State::Waiting {
                let goes_on = self.goes_on(node, step.pieces.last());
                if goes_on && index == front + 1 {
                    front = index;
                }
                let parent = self.plan.nodes[node].parent;
                if !goes_on && !parent.is_none_or(|parent| self.states[parent] == State::Done) {
                    continue;
                }
                let size = self.limit[node];
                if index > front {
                    let fresh = usize::from(!self.inherits(node));
                    let cells_fit = early_cells + size + self.path_cells <= self.cells;
                    let slots_fit = early_slots + fresh + self.path_sequences <= self.max_sequences;
                    if !cells_fit || (fresh > 0 && !slots_fit) {
                        continue;
                    }
                    early_cells += size;
                    early_slots += fresh;
                }
                self.start(node, &mut step.forks);
                if self.states[node] == State::Done {
                    // The next node in order is a child, which is then on the head's path.
                    front += usize::from(index == front);
                    continue;
                }
            }
            if self.states[node] == State::Running {
                let from = self.evaluated[node];
                // A sample advances to its last known token, because the next one is drawn from that token's logits.
                let sampled = self.plan.nodes[node].grow.is_some();
                let most = if sampled { left.min(self.known(node).saturating_sub(from)) } else { left };
                let to = self.limit[node].min(from + most);
                left -= to - from;
                step.pieces.push(Piece { node: NodeId(node), tokens: from..to, sequence: self.sequence[node] });
            }
        }
        step
    }

    /// Tokens of a sample that are drawn or forced so far.
    fn known(&self, sample: usize) -> usize {
        self.grown.get(&sample).map_or(0, Vec::len)
    }

    /// True if `node` can follow its parent in the same step. The step's last piece must end the parent, and `node`
    /// must be its only child, which inherits the sequence. A second child would need a copy of cells that are not
    /// evaluated yet, and a sample would need a token that is not drawn yet.
    fn goes_on(&self, node: usize, last: Option<&Piece>) -> bool {
        let here = &self.plan.nodes[node];
        let ends = |parent| last.is_some_and(|last| last.node.0 == parent && last.tokens.end == self.limit[parent]);
        here.grow.is_none()
            && !self.cached.contains_key(&node)
            && here.parent.is_some_and(|parent| self.plan.nodes[parent].children.len() == 1 && ends(parent))
    }

    /// Tokens scored after each token of a piece, each with the offset of the token before it. Tokens of nodes that
    /// [`Walk::restore`] registered are left out until these nodes start.
    pub fn targets(&self, piece: &Piece) -> impl Iterator<Item = (usize, Target)> {
        let node = piece.node.0;
        piece.tokens.clone().flat_map(move |offset| {
            let unknown = move |target: &Target| !self.cached.contains_key(&target.node.0);
            let targets = self.plan.targets(node, offset).into_iter().filter(unknown);
            targets.map(move |target| (offset, target))
        })
    }

    /// Token at `offset` of a node, and its position in the sequence. Panics if a sample has not drawn that token.
    #[must_use]
    pub fn token(&self, node: NodeId, offset: usize) -> (Token, usize) {
        let here = &self.plan.nodes[node.0];
        let tokens = self.grown.get(&node.0).map_or(&here.tokens[..], Vec::as_slice);
        (tokens[offset], here.start + offset)
    }

    /// Samples whose next token is drawn after a token of a piece: `(offset, sample)`. The successors of a sample's
    /// earlier tokens are known.
    pub fn draws(&self, piece: &Piece) -> impl Iterator<Item = (usize, NodeId)> {
        let node = piece.node.0;
        let known = self.known(node);
        piece
            .tokens
            .clone()
            .filter(move |offset| known == 0 || offset + 1 == known)
            .flat_map(move |offset| self.plan.draws(node, offset).into_iter().map(move |sample| (offset, sample)))
    }

    /// Appends a drawn or forced token to a sample, to be evaluated in a later step.
    pub fn grow(&mut self, sample: NodeId, token: Token) {
        self.grown.entry(sample.0).or_default().push(token);
    }

    /// Ends a sample at its current length. Call it only between [`Walk::advance`] and the next [`Walk::take`].
    /// Returns the sample's sequence, which the caller releases; `None` if the sample has not started.
    pub fn end(&mut self, sample: NodeId) -> Option<usize> {
        let node = sample.0;
        let rest = self.limit[node] - self.evaluated[node];
        self.remaining -= rest;
        self.limit[node] -= rest;
        if self.states[node] != State::Running {
            // The sample has not started. A later step starts and ends it like any leaf with no tokens to evaluate.
            return None;
        }
        self.held -= rest;
        let ended = self.leaf_done(node);
        self.move_head();
        Some(ended)
    }

    /// Records that `step` was evaluated. Returns the sequences that ended, which the caller releases.
    pub fn advance(&mut self, step: &Step) -> Vec<usize> {
        let mut ended = Vec::new();
        for piece in &step.pieces {
            let node = piece.node.0;
            self.evaluated[node] = piece.tokens.end;
            self.remaining -= piece.tokens.len();
            if self.evaluated[node] == self.limit[node] {
                self.states[node] = State::Done;
                if self.plan.nodes[node].children.is_empty() {
                    ended.push(self.leaf_done(node));
                }
            }
        }
        self.move_head();
        ended
    }

    fn leaf_done(&mut self, node: usize) -> usize {
        let sequence = self.sequence[node];
        self.free_sequences.push(sequence);
        self.sequences_used -= 1;
        self.close(node);
        sequence
    }

    fn move_head(&mut self) {
        while self.head < self.order.len() && matches!(self.states[self.order[self.head]], State::Done | State::Closed)
        {
            self.head += 1;
        }
    }

    /// All sequences in use.
    #[cfg(test)]
    fn abandon(&self) -> Vec<usize> {
        (0..self.sequences_made).filter(|sequence| !self.free_sequences.contains(sequence)).collect()
    }

    fn start(&mut self, node: usize, forks: &mut Vec<Fork>) {
        let parent = self.plan.nodes[node].parent;
        let inherits = self.inherits(node);
        self.sequence[node] = match parent {
            Some(parent) if inherits => self.sequence[parent],
            _ => {
                self.sequences_used += 1;
                self.free_sequences.pop().unwrap_or_else(|| {
                    self.sequences_made += 1;
                    self.sequences_made - 1
                })
            }
        };
        if let Some(parent) = parent {
            self.unstarted[parent] -= 1;
        }
        let to = self.sequence[node];
        self.held += self.limit[node];
        self.states[node] = State::Running;
        if let (Some(parent), false) = (parent, inherits) {
            forks.push(Fork { from: Source::Own(self.sequence[parent]), to, length: self.plan.nodes[node].start });
        }
        if let Some(source) = self.cached.remove(&node) {
            self.evaluated[node] = self.limit[node];
            self.states[node] = State::Done;
            let length = self.plan.nodes[node].start + self.plan.nodes[node].tokens.len();
            let from = match source {
                Cached::Prefix(sequence) => Source::Prefix(sequence),
                Cached::Saved => Source::Saved(NodeId(node)),
            };
            forks.push(Fork { from, to, length });
        }
    }

    fn inherits(&self, node: usize) -> bool {
        self.plan.nodes[node].parent.is_some_and(|parent| self.unstarted[parent] == 1)
    }

    fn close(&mut self, leaf: usize) {
        let mut node = leaf;
        loop {
            self.states[node] = State::Closed;
            self.held -= self.limit[node];
            let Some(parent) = self.plan.nodes[node].parent else { return };
            self.open_children[parent] -= 1;
            if self.open_children[parent] > 0 {
                return;
            }
            node = parent;
        }
    }

    fn holding(&self, node: usize) -> usize {
        match self.states[node] {
            State::Running | State::Done => self.limit[node],
            State::Waiting | State::Closed => 0,
        }
    }

    /// The head and its ancestors, the head first; empty when the walk is finished.
    fn path_of_head(&self) -> Vec<usize> {
        let mut path = Vec::new();
        let mut next = self.order.get(self.head).copied();
        while let Some(node) = next {
            path.push(node);
            next = self.plan.nodes[node].parent;
        }
        path
    }

    /// Number of sequences held on the head's path: one for a running head, and one for every evaluated ancestor with
    /// children that have not started.
    fn slots(&self, path: &[usize]) -> usize {
        let running = path.first().is_some_and(|&head| self.states[head] == State::Running);
        let held =
            path.iter().skip(1).filter(|&&node| self.states[node] == State::Done && self.unstarted[node] > 0).count();
        held + usize::from(running)
    }
}

#[cfg(test)]
mod tests;
