//! The complete prompts of a round while its nodes are being scored.

use std::collections::HashMap;

use crate::methods::Scores;
use prefix_scheduler::plan::NodeId;

/// Prompts that wait for a node.
pub(super) struct Pending {
    prompts: HashMap<NodeId, Vec<usize>>,
    complete: usize,
}

impl Pending {
    pub fn new(scores: &Scores) -> Self {
        let mut prompts: HashMap<NodeId, Vec<usize>> = HashMap::new();
        for (prompt, path) in scores.paths.iter().enumerate() {
            for node in path {
                prompts.entry(*node).or_default().push(prompt);
            }
        }
        Self { prompts, complete: 0 }
    }

    /// Counts a scored node. Returns how many prompts are complete.
    pub fn scored(&mut self, node: NodeId, scores: &mut Scores) -> usize {
        for &prompt in self.prompts.get(&node).into_iter().flatten() {
            if let Some(missing) = scores.missing.get_mut(prompt).filter(|missing| **missing > 0) {
                *missing -= 1;
                self.complete += usize::from(*missing == 0);
            }
        }
        self.complete
    }
}
