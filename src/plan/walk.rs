//! The order in which a plan is evaluated, and which cache cells it holds meanwhile.
//!
//! Nodes are visited depth first; the first unfinished node in that order is the *head*. To fill a batch, nodes ahead of
//! the head may start early as long as the head can still go down its longest path: with `S` the cells held by nodes that
//! are not on the head's path, and `D` the longest path, a node of `n` tokens starts early only if `S + n + D <= cells`.
//! Cells held early are released when their subtree ends, which the depth-first order always reaches, so a walk that was
//! given at least `D` cells never waits for itself. Sequences are counted the same way.
//!
//! A chain of only children goes through in one step as far as the step reaches, like one node.
//!
//! A sequence is passed on from a node to the child that starts last; the other children get a copy. So a sequence ends
//! exactly when a leaf does, and cells shared by several sequences are free when the last of them ends.

use std::collections::HashMap;
use std::sync::Arc;

use super::order::{branching, preorder};
use super::step::{Fork, Piece, Source, Step};
use super::{NodeId, Plan, Token};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    /// All tokens evaluated; cells held for the children.
    Done,
    /// The whole subtree is evaluated; cells free.
    Closed,
}

/// Progress of one plan. Sequences are numbered from 0 by the walk; the caller maps them to its own.
#[derive(Debug)]
pub struct Walk {
    plan: Arc<Plan>,
    order: Vec<usize>,
    head: usize,
    states: Vec<State>,
    evaluated: Vec<usize>,
    /// Tokens of each node to be evaluated: what the plan says, less for a sample that ended early.
    limit: Vec<usize>,
    /// Tokens of samples as far as they were drawn.
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
    promises: HashMap<usize, usize>,
}

impl Walk {
    /// The least number of cells and sequences with which `plan` can be walked.
    #[must_use]
    pub fn least(plan: &Plan) -> (usize, usize) {
        (plan.cost().path_cells, branching(plan) + 1)
    }

    /// Starts a walk that holds at most `cells` cells and `sequences` sequences at any time; both at least [`Walk::least`].
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
            promises: HashMap::new(),
            plan,
        }
    }

    /// The plan that is walked.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Tokens not yet evaluated.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.remaining
    }

    /// Cells held now.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Whether samples have begun to grow.
    #[must_use]
    pub fn growing(&self) -> bool {
        !self.grown.is_empty()
    }

    /// Whether everything is evaluated.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.head >= self.order.len()
    }

    /// Tells that the caller holds all tokens down to the end of `node` in its sequence `kept`: the node will be copied
    /// from there instead of evaluated. Returns the tokens saved. Only for context nodes that have not started.
    pub fn promise(&mut self, node: NodeId, kept: usize) -> usize {
        if self.states[node.0] != State::Waiting || !self.plan.is_context(node) {
            return 0;
        }
        let tokens = self.limit[node.0];
        if self.promises.insert(node.0, kept).is_none() {
            self.remaining -= tokens;
        }
        tokens
    }

    /// Promised sequences not yet copied.
    pub fn promised(&self) -> impl Iterator<Item = usize> {
        self.promises.values().copied()
    }

    /// Takes up to `limit` tokens. Every step that is taken must be followed by [`Walk::advance`] with the same step.
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
                    continue;
                }
            }
            if self.states[node] == State::Running {
                let from = self.evaluated[node];
                // A sample goes one token a step: the next is drawn from what this one gives.
                let most = if self.plan.nodes[node].grow.is_some() { left.min(1) } else { left };
                let to = self.limit[node].min(from + most);
                left -= to - from;
                step.pieces.push(Piece { node: NodeId(node), tokens: from..to, sequence: self.sequence[node] });
            }
        }
        step
    }

    /// Whether `node` can follow its parent in the same step: the step's last piece ends the parent, whose sequence it takes
    /// over as its only child. Another child would need a copy of cells that are not there yet, a sample a token that is
    /// not drawn yet.
    fn goes_on(&self, node: usize, last: Option<&Piece>) -> bool {
        let here = &self.plan.nodes[node];
        let ends = |parent| last.is_some_and(|last| last.node.0 == parent && last.tokens.end == self.limit[parent]);
        here.grow.is_none()
            && !self.promises.contains_key(&node)
            && here.parent.is_some_and(|parent| self.plan.nodes[parent].children.len() == 1 && ends(parent))
    }

    /// Tokens to predict after each token of a piece: `(offset, node and index of the predicted token, token)`.
    pub fn targets(&self, piece: &Piece) -> impl Iterator<Item = (usize, NodeId, usize, Token)> {
        let node = piece.node.0;
        piece.tokens.clone().flat_map(move |offset| {
            self.plan.targets(node, offset).into_iter().map(move |(owner, index, token)| (offset, owner, index, token))
        })
    }

    /// The token of a node and its position in the sequence.
    #[must_use]
    pub fn token(&self, node: NodeId, offset: usize) -> (Token, usize) {
        let here = &self.plan.nodes[node.0];
        let tokens = self.grown.get(&node.0).map_or(&here.tokens[..], Vec::as_slice);
        (tokens[offset], here.start + offset)
    }

    /// Samples to be drawn after the tokens of a piece: `(offset, sample)`.
    pub fn draws(&self, piece: &Piece) -> impl Iterator<Item = (usize, NodeId)> {
        let node = piece.node.0;
        piece
            .tokens
            .clone()
            .flat_map(move |offset| self.plan.draws(node, offset).into_iter().map(move |sample| (offset, sample)))
    }

    /// Takes in the next token of a sample.
    pub fn grow(&mut self, sample: NodeId, token: Token) {
        self.grown.entry(sample.0).or_default().push(token);
    }

    /// Ends a sample where it is; between [`Walk::advance`] and the next [`Walk::take`]. Returns its sequence if it had one,
    /// to be released.
    pub fn end(&mut self, sample: NodeId) -> Option<usize> {
        let node = sample.0;
        let rest = self.limit[node] - self.evaluated[node];
        self.remaining -= rest;
        self.limit[node] -= rest;
        if self.states[node] != State::Running {
            // Not begun: it will be taken up and ended like any leaf without tokens.
            return None;
        }
        self.held -= rest;
        let ended = self.leaf_done(node);
        self.move_head();
        Some(ended)
    }

    /// Records that `step` was evaluated; returns the sequences that ended, to be released.
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

    /// Every sequence in use, for a walk that is given up.
    #[must_use]
    pub fn abandon(&self) -> Vec<usize> {
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
        if let Some(kept) = self.promises.remove(&node) {
            self.evaluated[node] = self.limit[node];
            self.states[node] = State::Done;
            let length = self.plan.nodes[node].start + self.plan.nodes[node].tokens.len();
            forks.push(Fork { from: Source::Kept(kept), to, length });
        } else if let (Some(parent), false) = (parent, inherits) {
            forks.push(Fork { from: Source::Own(self.sequence[parent]), to, length: self.plan.nodes[node].start });
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

    /// The head and its ancestors.
    fn path_of_head(&self) -> Vec<usize> {
        let mut path = Vec::new();
        let mut next = self.order.get(self.head).copied();
        while let Some(node) = next {
            path.push(node);
            next = self.plan.nodes[node].parent;
        }
        path
    }

    /// Sequences that the path of the head holds: its own, and one for every ancestor whose last child has not started.
    fn slots(&self, path: &[usize]) -> usize {
        let running = path.first().is_some_and(|&head| self.states[head] == State::Running);
        let kept =
            path.iter().skip(1).filter(|&&node| self.states[node] == State::Done && self.unstarted[node] > 0).count();
        kept + usize::from(running)
    }
}

#[cfg(test)]
mod tests;
