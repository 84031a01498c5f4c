//! Samples whose tokens are limited to a set, with forced tokens between them.

use super::*;
use crate::plan::Allowed;
use numeric::sampling::{draw_among, unit};

/// Repeats: a letter of `letters`, then the forced tokens of `between`.
struct Joined {
    letters: Vec<Token>,
    between: Vec<Token>,
}

impl Allowed for Joined {
    fn after(&self, drawn: &[Token]) -> Vec<Token> {
        match drawn.len() % (self.between.len() + 1) {
            0 => self.letters.clone(),
            place => vec![self.between[place - 1]],
        }
    }
}

struct Never;

impl Stop for Never {
    fn ended(&self, _: &[Token]) -> Option<Finish> {
        None
    }
}

fn joined(between: &str, letters: &str) -> Arc<Joined> {
    let tokens = |text: &str| text.bytes().map(Token::from).collect();
    Arc::new(Joined { letters: tokens(letters), between: tokens(between) })
}

fn constrained(prompts: &[&str], temperature: f64, most: usize, allowed: &Arc<Joined>) -> (Arc<Plan>, Vec<NodeId>) {
    let mut plan = Plan::new();
    let mut nodes = Vec::new();
    for (seed, prompt) in prompts.iter().enumerate() {
        let tokens: Vec<Token> = prompt.bytes().map(Token::from).collect();
        let path = plan.add(&[Segment::context(vec![1, 2]), Segment::context(tokens)]);
        let grow = Grow {
            sampling: Sampling { temperature, ..Sampling::default() },
            most,
            seed: seed as u64,
            stop: Arc::new(Never),
            allowed: Some(Arc::clone(allowed) as Arc<dyn Allowed>),
        };
        nodes.push(plan.sample(path[path.len() - 1], grow));
    }
    (Arc::new(plan), nodes)
}

/// The same sample by hand: a random number for each choice, none for a forced token.
fn by_hand(plan: &Plan, node: NodeId) -> (Vec<Token>, Vec<f64>) {
    let (script, grow) = (overlap_script(), plan.grow(node).unwrap());
    let mut source = <rand_chacha::ChaCha8Rng as rand::SeedableRng>::seed_from_u64(grow.seed);
    let mut path = plan.path(node);
    let (mut drawn, mut log_probabilities) = (Vec::new(), Vec::new());
    while drawn.len() < grow.most {
        let allowed = grow.allowed_after(&drawn).unwrap();
        let (token, log_probability) = if let [forced] = allowed[..] {
            (forced, 0.0)
        } else {
            #[allow(clippy::cast_possible_truncation)]
            let logits: Vec<f32> = (0..258).map(|token| script(&path, token) as f32).collect();
            let allowed: Vec<usize> = allowed.iter().map(|&token| usize::try_from(token).unwrap()).collect();
            let uniform = unit(rand::Rng::next_u64(&mut source));
            let found = draw_among(&logits, &allowed, &grow.sampling, uniform).unwrap();
            (Token::try_from(found.token).unwrap(), found.log_probability)
        };
        path.push(token);
        drawn.push(token);
        log_probabilities.push(log_probability);
    }
    (drawn, log_probabilities)
}

#[test]
fn samples_hold_allowed_tokens_only_at_any_temperature() {
    let bench = bench(100, Duration::ZERO, vec![]);
    let allowed = joined(" > ", "abcd");
    for temperature in [0.0, 0.7, 1.0] {
        let (plan, nodes) = constrained(&["aab", "ddddc", "zz"], temperature, 13, &allowed);
        let outcome = bench.run(&plan).unwrap();
        for node in nodes {
            let sample = &outcome.samples[&node];
            assert_eq!((sample.tokens.clone(), sample.log_probabilities.clone()), by_hand(&plan, node));
            for (place, (&token, &log_probability)) in sample.tokens.iter().zip(&sample.log_probabilities).enumerate() {
                let choice = place % 4 == 0;
                assert_eq!(choice, (97..=100).contains(&token), "{:?}", sample.tokens);
                assert!(if choice { log_probability < 0.0 } else { log_probability == 0.0 });
            }
        }
        assert_eq!(outcome.tokens + outcome.cached_tokens, plan.cost().tokens);
        assert!(bench.settled_cells() <= 100);
    }
}

/// Four letters with three forced tokens between: the prompt, then one step per letter that is followed by a
/// choice.
#[test]
fn forced_tokens_are_evaluated_with_the_token_before_them() {
    let bench = bench(0, Duration::ZERO, vec![]);
    let (plan, nodes) = constrained(&["ab"], 0.0, 13, &joined(" > ", "abcd"));
    let outcome = bench.run(&plan).unwrap();
    assert_eq!(outcome.samples[&nodes[0]].tokens.len(), 13);
    assert_eq!((outcome.tokens, outcome.steps), (2 + 2 + 12, 1 + 3));
    assert_eq!(bench.settled_cells(), 0);
}

/// The text after the last choice is known, so it is never evaluated.
#[test]
fn a_sample_may_end_within_forced_tokens() {
    let bench = bench(0, Duration::ZERO, vec![]);
    for most in 1..=9 {
        let (plan, nodes) = constrained(&["ab", "cd"], 1.0, most, &joined("--", "abcd"));
        let outcome = bench.run(&plan).unwrap();
        for node in nodes {
            let sample = &outcome.samples[&node];
            assert_eq!((sample.tokens.clone(), sample.log_probabilities.clone()), by_hand(&plan, node));
            assert_eq!(sample.finish, Finish::Length);
        }
        assert_eq!(outcome.tokens, 2 + 4 + 2 * ((most - 1) / 3 * 3));
        assert_eq!(bench.settled_cells(), 0);
    }
}

/// No allowed token is in the vocabulary: the request fails, but not the next one.
#[test]
fn a_set_without_a_token_to_draw_fails_its_own_request_only() {
    let bench = bench(0, Duration::ZERO, vec![]);
    let nothing = Arc::new(Joined { letters: vec![9_999, -1], between: vec![] });
    let (bad, _) = constrained(&["ab"], 0.0, 3, &nothing);
    assert!(matches!(bench.run(&bad), Err(ScheduleError::Model(ModelError::Decode(_)))));
    let (good, nodes) = constrained(&["ab"], 0.0, 3, &joined("", "xy"));
    assert_eq!(bench.run(&good).unwrap().samples[&nodes[0]].tokens.len(), 3);
}
