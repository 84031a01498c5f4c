use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::super::Segment;
use super::*;

/// Orders over passages of the given lengths, each followed by a scored query.
fn forest(lengths: &[usize], orders: &[Vec<usize>], query: usize) -> Plan {
    let mut plan = Plan::new();
    let passage = |p: usize| vec![Token::try_from(p + 100).unwrap(); lengths[p]];
    for order in orders {
        let mut segments = vec![Segment::context(vec![1; 3])];
        segments.extend(order.iter().map(|&p| Segment::context(passage(p))));
        segments.push(Segment::scored(vec![7; query], 1));
        plan.add(&segments);
    }
    plan
}

/// Runs a walk on a simulated cache, in which a sequence is the list of `(node, offset)` cells it contains. Returns
/// the number of steps and the peak number of cells.
fn simulate(plan: Plan, cells: usize, sequences: usize, batch: usize) -> (usize, usize) {
    simulate_with(plan, cells, sequences, batch, &[])
}

/// [`simulate`] with the nodes `cached` not evaluated: the caller's sequence with the node's number holds a root,
/// other nodes are saved.
fn simulate_with(plan: Plan, cells: usize, sequences: usize, batch: usize, cached: &[usize]) -> (usize, usize) {
    let plan = Arc::new(plan);
    let mut total = plan.cost().tokens;
    let mut walk = Walk::new(Arc::clone(&plan), cells, sequences);
    for &node in cached {
        let root = plan.nodes[node].parent.is_none();
        total -= if root { walk.adopt(NodeId(node), node) } else { walk.restore(NodeId(node)) };
    }
    assert_eq!(walk.remaining(), total);
    let mut idle = 0;
    let mut cache: HashMap<usize, Vec<(usize, usize)>> = HashMap::new();
    let mut seen: HashSet<(usize, usize)> = HashSet::new();
    let (mut steps, mut peak) = (0, 0);
    while !walk.finished() {
        let step = walk.take(batch);
        idle = if step.tokens() == 0 { idle + 1 } else { 0 };
        // A step has no tokens if it only copies a cached node, or starts leaves whose only token is predicted.
        assert!(idle <= plan.len(), "an unfinished walk makes progress");
        assert!(step.tokens() <= batch);
        for fork in &step.forks {
            match fork.from {
                Source::Own(from) => {
                    let copy = cache[&from][..fork.length].to_vec();
                    assert!(cache.insert(fork.to, copy).is_none(), "the destination of a fork is empty");
                }
                Source::Prefix(node) => {
                    let cells = (0..plan.nodes[node].tokens.len()).map(|offset| (node, offset)).collect();
                    assert!(cache.insert(fork.to, cells).is_none(), "the destination of a fork is empty");
                    assert_eq!(cache[&fork.to].len(), fork.length);
                }
                Source::Saved(node) => {
                    let sequence = cache.entry(fork.to).or_default();
                    assert_eq!(sequence.len(), plan.nodes[node.0].start, "a saved state extends its sequence");
                    // Every saved state has separate cells, even if two nodes are equal.
                    sequence.extend((0..plan.nodes[node.0].tokens.len()).map(|offset| (node.0, offset)));
                    assert_eq!(sequence.len(), fork.length);
                }
            }
        }
        for piece in &step.pieces {
            for offset in piece.tokens.clone() {
                let sequence = cache.entry(piece.sequence).or_default();
                let (_, position) = walk.token(piece.node, offset);
                assert_eq!(sequence.len(), position, "tokens extend their sequence one by one");
                let mut ancestor = plan.nodes[piece.node.0].parent;
                while let Some(node) = ancestor {
                    assert!(
                        sequence.contains(&(node, plan.nodes[node].tokens.len() - 1)),
                        "the sequence contains all ancestors of the token"
                    );
                    ancestor = plan.nodes[node].parent;
                }
                sequence.push((piece.node.0, offset));
                assert!(seen.insert((piece.node.0, offset)), "no token is evaluated twice");
            }
        }
        let live: HashSet<(usize, usize)> = cache.values().flatten().copied().collect();
        peak = peak.max(live.len());
        assert!(live.len() <= walk.held());
        assert!(walk.held() <= cells, "{} cells held of {cells}", walk.held());
        assert!(cache.len() <= sequences);
        for ended in walk.advance(&step) {
            cache.remove(&ended).unwrap();
        }
        steps += 1;
    }
    assert!(cache.is_empty() && walk.held() == 0 && walk.remaining() == 0 && walk.abandon().is_empty());
    assert_eq!(seen.len(), total);
    (steps, peak)
}

#[test]
fn the_least_cells_are_enough_and_more_make_fuller_batches() {
    let orders = vec![vec![0, 1, 2], vec![0, 2, 1], vec![1, 0, 2], vec![1, 2, 0], vec![2, 0, 1], vec![2, 1, 0]];
    let plan = forest(&[5, 6, 7], &orders, 3);
    let (least, sequences) = Walk::least(&plan);
    let (tight, _) = simulate(plan.clone(), least, sequences, 32);
    let (wide, peak) = simulate(plan, 1000, 64, 32);
    assert!(wide < tight, "{wide} {tight}");
    assert!(peak > least);
}

#[test]
fn a_chain_goes_through_in_full_steps() {
    // 3 + 20 + 30 tokens, and 3 of the query's 4.
    assert_eq!(simulate(forest(&[20, 30], &[vec![0, 1]], 4), 100, 4, 8).0, 56_usize.div_ceil(8));
}

#[test]
fn an_abandoned_walk_names_every_sequence_it_holds() {
    let plan = Arc::new(forest(&[5, 6], &[vec![0, 1], vec![1, 0]], 3));
    let mut walk = Walk::new(plan, 100, 16);
    let first = walk.take(64);
    walk.advance(&first);
    let second = walk.take(8);
    walk.advance(&second);
    assert_eq!(walk.abandon().len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// For any plan, any batch and any budget of at least [`Walk::least`], every token is evaluated once and all cells
    /// and sequences are released.
    #[test]
    fn every_walk_ends_within_its_budget(
        lengths in proptest::collection::vec(1_usize..9, 1..6),
        picks in proptest::collection::vec(proptest::collection::vec(0_usize..6, 1..6), 1..10),
        query in 1_usize..5, cached in proptest::collection::vec(0_usize..12, 0..4), spare in 0_usize..40, more_sequences in 0_usize..6, batch in 1_usize..40,
    ) {
        let orders: Vec<Vec<usize>> = picks.into_iter().map(|pick| {
            let mut seen = HashSet::new();
            pick.into_iter().map(|p| p % lengths.len()).filter(|p| seen.insert(*p)).collect()
        }).collect();
        let plan = forest(&lengths, &orders, query);
        let (cells, sequences) = Walk::least(&plan);
        let cached: Vec<usize> = cached.into_iter().filter(|node| *node < plan.len()).collect();
        simulate_with(plan, cells + spare, sequences + more_sequences, batch, &cached);
    }
}
