//! Names of states: a hash of everything that their bytes depend on.

use sha2::{Digest, Sha256};

use crate::plan::{NodeId, Plan, Token};

/// SHA-256 of a generator's identity and of the segments from the root to the end of a node, in turn: the key of the
/// segment before, then the segment's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The hash of the tokens, equal with and without scores.
    pub hash: [u8; 32],
    /// True if the state has the log-probabilities of its tokens after its cells.
    pub scored: bool,
}

impl Key {
    /// The key before any token. `identity` names the generator's file, its cells, its runtime and its prompts.
    #[must_use]
    pub fn of_generator(identity: &str) -> Self {
        Self { hash: Sha256::digest(identity.as_bytes()).into(), scored: false }
    }

    /// The key after one more segment.
    #[must_use]
    pub fn after(&self, tokens: &[Token]) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.hash);
        for token in tokens {
            hash.update(token.to_le_bytes());
        }
        Self { hash: hash.finalize().into(), scored: false }
    }

    /// The key of the same state with the log-probabilities of its tokens.
    #[must_use]
    pub const fn with_scores(self) -> Self {
        Self { scored: true, ..self }
    }

    /// The key of the same state without them.
    #[must_use]
    pub const fn without_scores(self) -> Self {
        Self { scored: false, ..self }
    }

    /// Name and owner mark of the state's file. It depends on whether the state holds scores.
    #[must_use]
    pub fn name(&self) -> [u8; 32] {
        if !self.scored {
            return self.hash;
        }
        Sha256::new().chain_update(self.hash).chain_update("with scores").finalize().into()
    }
}

/// The nodes of a plan below its roots whose evaluation a state replaces, each with its key, in the plan's order. A
/// node with scored tokens has a separate key.
#[must_use]
pub fn keys(plan: &Plan, generator: &Key) -> Vec<(NodeId, Key)> {
    let mut all: Vec<Key> = Vec::with_capacity(plan.len());
    let mut found = Vec::new();
    // A parent comes before its children.
    for node in (0..plan.len()).map(NodeId) {
        let parent = plan.parent(node);
        let before = parent.and_then(|parent| all.get(parent.0)).unwrap_or(generator);
        // No other node depends on the key of a leaf.
        let key = if plan.is_leaf(node) { *before } else { before.after(plan.tokens(node)) };
        all.push(key);
        if parent.is_none() {
            continue;
        }
        // First, because the row of the parent can score a single token. The token's own logits are then not
        // needed, as in a context.
        if plan.is_scored_context(node) {
            found.push((node, key.with_scores()));
        } else if plan.is_context(node) && plan.scored_tokens(node) == 0 {
            found.push((node, key));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Segment;

    fn plan(segments: &[&[Token]]) -> Plan {
        let mut plan = Plan::new();
        let (last, context) = segments.split_last().unwrap();
        let mut all: Vec<Segment> = context.iter().map(|tokens| Segment::context(*tokens)).collect();
        all.push(Segment::scored(*last, 1));
        plan.add(&all);
        plan
    }

    #[test]
    fn a_key_depends_on_generator_tokens_and_segments_and_on_nothing_behind_them() {
        let generator = Key::of_generator("a");
        let passage = |plan: &Plan, generator: &Key| keys(plan, generator)[0].1;
        let known = passage(&plan(&[&[1, 2], &[3, 4], &[5, 6]]), &generator);
        assert_eq!(passage(&plan(&[&[1, 2], &[3, 4], &[7, 8, 9]]), &generator), known, "the query is not part of it");
        assert_ne!(passage(&plan(&[&[1, 2], &[3, 4], &[5, 6]]), &Key::of_generator("b")), known);
        assert_ne!(passage(&plan(&[&[1, 9], &[3, 4], &[5, 6]]), &generator), known, "another prompt prefix");
        assert_ne!(passage(&plan(&[&[1, 2], &[3, 9], &[5, 6]]), &generator), known, "another passage");
        assert_ne!(
            passage(&plan(&[&[1], &[2, 3, 4], &[5, 6]]), &generator),
            known,
            "other positions of the same tokens"
        );
    }

    #[test]
    fn a_scored_passage_has_a_separate_key_if_nothing_else_is_read() {
        let generator = Key::of_generator("a");
        let named = |passage: Segment, behind: Segment| {
            let mut plan = Plan::new();
            plan.add(&[Segment::context([1, 2]), passage, behind, Segment::scored([6, 7], 1)]);
            keys(&plan, &generator)
        };
        let nodes = |keys: &[(NodeId, Key)]| keys.iter().map(|(node, _)| node.0).collect::<Vec<_>>();
        let plain = named(Segment::context([3, 4]), Segment::context([5]));
        let scored = named(Segment::scored([3, 4], 0), Segment::context([5]));
        assert_eq!(
            (nodes(&plain), nodes(&scored)),
            (vec![1, 2], vec![1, 2]),
            "the prompt prefix is a root, the query a leaf"
        );
        assert_ne!(plain[0].1, scored[0].1);
        assert_eq!(plain[1].1, scored[1].1, "the cells behind it are the same");
        let in_part = named(Segment::scored([3, 4], 1), Segment::context([5]));
        assert_eq!(nodes(&in_part), vec![2]);
        let read = named(Segment::scored([3, 4], 0), Segment::scored([5, 5], 0));
        assert_eq!(nodes(&read), vec![2], "the passage's last logits score what follows");
    }
}
