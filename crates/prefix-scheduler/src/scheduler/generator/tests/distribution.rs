//! Distributions of first tokens.

use super::*;
use numeric::logspace::logsumexp;

#[test]
fn the_first_token_of_a_sample_keeps_its_distribution_where_it_is_wanted() {
    let bench = bench(0, Duration::ZERO, vec![]);
    let (plan, nodes) = sampled(&["aab", "c"], 2, 3, 1);
    let mut plan = Arc::unwrap_or_clone(plan);
    plan.keep_distribution(nodes[1]);
    plan.keep_distribution(nodes[2]);
    let plan = Arc::new(plan);
    let outcome = bench.run(&plan).unwrap();
    let mut kept: Vec<NodeId> = outcome.distributions.keys().copied().collect();
    kept.sort_unstable();
    assert_eq!(kept, [nodes[1], nodes[2]]);
    for node in kept {
        let path = plan.path(node);
        #[allow(clippy::cast_possible_truncation)]
        let logits: Vec<f32> = (0..258).map(|token| overlap_script()(&path, token) as f32).collect();
        let normaliser = logsumexp(&logits);
        let distribution = &outcome.distributions[&node];
        assert_eq!(distribution.len(), logits.len());
        let same = |(log, logit): (&f32, &f32)| (f64::from(*log) - (f64::from(*logit) - normaliser)).abs() < 1e-5;
        assert!(distribution.iter().zip(&logits).all(same));
    }
    // The tokens are the same as without it.
    let (alone, same) = sampled(&["aab", "c"], 2, 3, 1);
    assert_eq!(bench.run(&alone).unwrap().samples[&same[1]], outcome.samples[&nodes[1]]);
}
