//! Passages that the ranking scores for the compression of the same request, so that they are not evaluated again.
//!
//! Most methods evaluate a passage right after the prompt prefix of question generation, and so does a compression.
//! The ranking then also computes the logits of the passage's tokens, which adds about a quarter to its cost.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use prefix_scheduler::plan::{NodeId, Plan, Token};

/// The prompt prefix, and the passages to score after it in addition to the method's own scores.
#[derive(Debug)]
pub(super) struct WantedScores {
    pub prefix: Arc<[Token]>,
    pub passages: HashSet<Arc<[Token]>>,
}

impl WantedScores {
    /// The nodes of a plan right after the prompt prefix.
    fn after_prefix<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = NodeId> + 'a {
        let after_prefix = |node: &NodeId| {
            let parent = plan.parent(*node);
            parent.is_some_and(|parent| plan.parent(parent).is_none() && plan.tokens(parent) == &*self.prefix)
        };
        (0..plan.len()).map(NodeId).filter(after_prefix)
    }

    /// Has these passages of a plan scored completely. Returns the nodes that were not scored before.
    pub fn score(&self, plan: &mut Plan) -> HashSet<NodeId> {
        let wanted = self.after_prefix(plan).filter(|node| self.passages.contains(plan.tokens(*node)));
        let unscored: HashSet<NodeId> = wanted.filter(|node| plan.scored_tokens(*node) == 0).collect();
        for node in &unscored {
            plan.score(*node);
        }
        unscored
    }
}

/// The log-probabilities of passages after the prompt prefix, each passage by its tokens.
#[derive(Debug, Default)]
pub(super) struct SinglePassageScores {
    wanted: Option<Arc<WantedScores>>,
    known: HashMap<Arc<[Token]>, Vec<f64>>,
}

impl SinglePassageScores {
    /// Wants these passages and knows none yet.
    pub fn wanting(wanted: Option<Arc<WantedScores>>) -> Self {
        Self { wanted, known: HashMap::new() }
    }

    /// The wanted passages, if a compression follows.
    pub fn wanted(&self) -> Option<Arc<WantedScores>> {
        self.wanted.clone()
    }

    /// Adds the scores of a plan, by node: only passages that are scored completely, also by the method itself.
    pub fn learn(&mut self, plan: &Plan, scores: &[Vec<f64>]) {
        let Some(wanted) = &self.wanted else { return };
        for node in wanted.after_prefix(plan) {
            if let Some(scores) = scores.get(node.0).filter(|scores| scores.len() == plan.length(node)) {
                self.known.insert(plan.tokens(node).into(), scores.clone());
            }
        }
    }

    /// The log-probabilities of a passage's tokens, in nats; `None` if the ranking did not evaluate it.
    pub fn of(&self, passage: &[Token]) -> Option<&[f64]> {
        self.known.get(passage).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prefix_scheduler::plan::Segment;

    fn wanted() -> Arc<WantedScores> {
        Arc::new(WantedScores { prefix: [1, 2].into(), passages: HashSet::from([[3, 4].into(), [5, 6].into()]) })
    }

    fn plan(segments: &[&[Token]]) -> (Plan, Vec<NodeId>) {
        let mut plan = Plan::new();
        let (last, context) = segments.split_last().unwrap();
        let mut all: Vec<Segment> = context.iter().map(|tokens| Segment::context(*tokens)).collect();
        all.push(Segment::scored(*last, 0));
        let path = plan.add(&all);
        (plan, path)
    }

    #[test]
    fn a_passage_is_scored_only_right_after_the_opening() {
        let (mut first, path) = plan(&[&[1, 2], &[3, 4], &[5, 6], &[7, 8]]);
        assert_eq!(wanted().score(&mut first), HashSet::from([path[1]]));
        assert_eq!(path.iter().map(|node| first.scored_tokens(*node)).collect::<Vec<_>>(), [0, 2, 0, 2]);
        assert!(wanted().score(&mut first).is_empty(), "it is scored now");
        for other in [&[&[1][..], &[3, 4], &[7, 8]][..], &[&[1, 2], &[3], &[7, 8]], &[&[1, 2], &[9], &[3, 4], &[7, 8]]]
        {
            assert!(wanted().score(&mut plan(other).0).is_empty(), "{other:?}");
        }
    }

    #[test]
    fn whole_passages_are_learnt() {
        let (mut plan, _) = plan(&[&[1, 2], &[3, 4], &[7, 8]]);
        let mut alone = SinglePassageScores::wanting(Some(wanted()));
        alone.learn(&plan, &[vec![], vec![], vec![-1.0, -2.0]]);
        assert_eq!(alone.of(&[3, 4]), None, "nobody scored it");
        alone.wanted().unwrap().score(&mut plan);
        alone.learn(&plan, &[vec![], vec![-0.5, -0.25], vec![-1.0, -2.0]]);
        assert_eq!((alone.of(&[3, 4]), alone.of(&[5, 6])), (Some(&[-0.5, -0.25][..]), None));
        let mut none = SinglePassageScores::default();
        none.learn(&plan, &[vec![], vec![-0.5, -0.25], vec![]]);
        assert_eq!((none.wanted().is_none(), none.of(&[3, 4])), (true, None));
    }
}
