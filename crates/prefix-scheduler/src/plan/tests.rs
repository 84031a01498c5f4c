use super::*;

fn tokens(text: &str) -> Vec<Token> {
    text.bytes().map(Token::from).collect()
}

fn order(plan: &mut Plan, passages: &[&str], query: &str) -> Vec<NodeId> {
    let mut segments = vec![Segment::context(tokens("inst"))];
    segments.extend(passages.iter().map(|p| Segment::context(tokens(p))));
    segments.push(Segment::scored(tokens(query), 1));
    plan.add(&segments)
}

#[test]
fn leading_segments_are_shared_and_the_rest_is_not() {
    let mut plan = Plan::new();
    order(&mut plan, &["aaaa", "bbb", "cc"], "?q");
    order(&mut plan, &["aaaa", "cc", "bbb"], "?q");
    order(&mut plan, &["bbb", "cc", "aaaa"], "?q");
    let cost = plan.cost();
    // inst 4 + {aaaa 4: bbb 3, cc 2 | cc 2, bbb 3} + {bbb 3, cc 2, aaaa 4} + three queries of 2 without their last
    // token.
    assert_eq!(cost.tokens, 4 + (4 + 5 + 5) + 9 + 3);
    assert_eq!(cost.naive_tokens, 3 * (4 + 9 + 2));
    assert_eq!(cost.path_cells, 15);
    assert_eq!(cost.rows, 3);
}

#[test]
fn the_same_sequence_twice_costs_once() {
    let mut plan = Plan::new();
    let first = order(&mut plan, &["a", "b"], "?q");
    assert_eq!(first, order(&mut plan, &["a", "b"], "?q"));
    assert_eq!(plan.len(), 4);
}

#[test]
fn a_child_scored_from_its_first_token_reads_its_parents_last_row() {
    let mut plan = Plan::new();
    let path = plan.add(&[Segment::context(tokens("ab")), Segment::scored(tokens("cd"), 0)]);
    plan.add(&[Segment::context(tokens("ab")), Segment::scored(tokens("xyz"), 0)]);
    assert_eq!(plan.targets(path[0].0, 1).len(), 2);
    assert_eq!(plan.scored_tokens(path[1]), 2);
    // One shared row at 'b', then rows at c, x and y. d and z are predicted but not evaluated.
    assert_eq!((plan.cost().rows, plan.cost().tokens), (4, 5));
}

/// A model trained on the logit of a token, and one trained on its probability.
#[test]
fn a_logit_and_a_log_probability_of_a_token_are_two_scores() {
    let mut plan = Plan::new();
    let logit = plan.add(&[Segment::context(tokens("ab")), Segment::logits(tokens("c"))]);
    let probability = plan.add(&[Segment::context(tokens("ab")), Segment::scored(tokens("c"), 0)]);
    assert_eq!(logit[0], probability[0]);
    assert_ne!(logit[1], probability[1]);
    let reads: Vec<Reads> = plan.targets(logit[0].0, 1).iter().map(|target| target.reads).collect();
    assert_eq!(reads, [Reads::Logit, Reads::LogProbability]);
    assert_eq!((plan.cost().rows, plan.cost().tokens), (1, 2));
    // A saved state includes log-probabilities, but no logits.
    let behind = [Segment::context(tokens("ab")), Segment::logits(tokens("cd")), Segment::context(tokens("e"))];
    let path = plan.add(&behind);
    assert!(!plan.is_scored_context(path[1]));
}

/// Every continued prompt was counted twice: as a sequence, and for its continuation.
#[test]
fn a_prompt_that_is_continued_counts_once_a_sample() {
    struct Never;
    impl Stop for Never {
        fn ended(&self, _: &[Token]) -> Option<Finish> {
            None
        }
    }
    let sampling = numeric::sampling::Sampling::default();
    let grow = || Grow { sampling, most: 4, seed: 0, stop: Arc::new(Never), allowed: None };
    let segments = [Segment::context(tokens("ab")), Segment::context(tokens("cd"))];
    let mut one = Plan::new();
    let leaf = one.add(&segments)[1];
    one.sample(leaf, grow());
    assert_eq!(one.cost().naive_tokens, 4 + 3);
    one.sample(leaf, grow());
    assert_eq!(one.cost().naive_tokens, 2 * (4 + 3), "two samples of one prompt");
    let mut each = Plan::new();
    for _ in 0..2 {
        let leaf = each.add(&segments)[1];
        each.sample(leaf, grow());
    }
    assert_eq!(each.cost().naive_tokens, 2 * (4 + 3), "a prompt for each sample");
}

#[test]
fn scoring_a_node_that_was_context_keeps_it_one_node() {
    let mut plan = Plan::new();
    let context = plan.add(&[Segment::context(tokens("ab")), Segment::context(tokens("cd"))]);
    let scored = plan.add(&[Segment::context(tokens("ab")), Segment::scored(tokens("cd"), 0)]);
    assert_eq!(context, scored);
    assert_eq!(plan.scored_tokens(scored[1]), 2);
}
