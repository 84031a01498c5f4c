//! Depth-first order of a plan's nodes, and the number of sequences that a walk needs.

use super::Plan;

/// Depth-first order with lighter subtrees first, so that short leaves release their cells early.
pub(super) fn preorder(plan: &Plan) -> Vec<usize> {
    let mut weight: Vec<usize> = (0..plan.nodes.len()).map(|node| plan.evaluated(node)).collect();
    for node in (0..plan.nodes.len()).rev() {
        if let Some(parent) = plan.nodes[node].parent {
            weight[parent] += weight[node];
        }
    }
    let heaviest_first = |nodes: &[usize]| {
        let mut sorted = nodes.to_vec();
        sorted.sort_by_key(|&node| (std::cmp::Reverse(weight[node]), std::cmp::Reverse(node)));
        sorted
    };
    let mut stack = heaviest_first(&plan.roots);
    let mut order = Vec::with_capacity(plan.nodes.len());
    while let Some(node) = stack.pop() {
        order.push(node);
        stack.extend(heaviest_first(&plan.nodes[node].children));
    }
    order
}

/// Maximum number of nodes with several children on any path from a root.
pub(super) fn branching(plan: &Plan) -> usize {
    let mut depth = vec![0_usize; plan.nodes.len()];
    for (index, node) in plan.nodes.iter().enumerate() {
        depth[index] = node.parent.map_or(0, |parent| depth[parent]) + usize::from(node.children.len() > 1);
    }
    depth.into_iter().max().unwrap_or(0)
}
