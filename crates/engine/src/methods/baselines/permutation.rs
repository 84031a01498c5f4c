//! Constrained decoding of a permutation: every sample lists each label exactly once.
//!
//! A label is followed by a separator. Each step allows the tokens that continue a label not yet listed. With
//! labels `1`, `2`, `10` and digits as tokens, `1` may be followed by `0` or by the separator; once `10` is listed,
//! only by the separator. No label with its separator is a prefix of another, so every sample has one reading.
//! Separators, and labels without an alternative, are forced tokens.
//!
//! The generator chooses token by token. A label of several tokens competes with all labels that begin like it, as
//! in RankGPT's free decoding: the first token of `1` also represents `10` to `19`.

use prefix_scheduler::plan::{Allowed, Finish, Stop, Token};

/// The labels of one list.
#[derive(Debug, Clone)]
pub(super) struct Permutation {
    /// The tokens of each label and of the separator after it.
    items: Vec<Vec<Token>>,
}

/// The ranking in a partial sample.
struct Reading {
    /// The labels whose separator is complete, in order.
    listed: Vec<usize>,
    /// The labels that the tokens after the listed ones can become, ascending.
    open: Vec<usize>,
    /// The number of these tokens.
    begun: usize,
}

impl Permutation {
    /// `None` if one label with its separator is a prefix of another with its separator: the vocabulary then makes
    /// labels ambiguous.
    pub fn new(labels: &[Vec<Token>], separator: &[Token]) -> Option<Self> {
        let items: Vec<Vec<Token>> = labels.iter().map(|label| [label, separator].concat()).collect();
        let distinct = |(index, item): (usize, &Vec<Token>)| {
            !item.is_empty() && items.iter().enumerate().all(|(other, next)| other == index || !next.starts_with(item))
        };
        items.iter().enumerate().all(distinct).then_some(Self { items })
    }

    /// Most tokens of a sample.
    pub fn most(&self) -> usize {
        let mut lengths: Vec<usize> = self.items.iter().map(Vec::len).collect();
        lengths.sort_unstable();
        // The last label follows from the others.
        lengths.iter().skip(1).sum::<usize>().max(1)
    }

    fn read(&self, drawn: &[Token]) -> Reading {
        let mut left: Vec<usize> = (0..self.items.len()).collect();
        let (mut listed, mut rest) = (Vec::new(), drawn);
        loop {
            let fits = |label: &&usize| {
                let item = &self.items[**label];
                let shared = item.len().min(rest.len());
                item[..shared] == rest[..shared]
            };
            let open: Vec<usize> = left.iter().filter(fits).copied().collect();
            match open[..] {
                [label] if rest.len() >= self.items[label].len() => {
                    rest = &rest[self.items[label].len()..];
                    left.retain(|other| *other != label);
                    listed.push(label);
                }
                _ => return Reading { listed, open, begun: rest.len() },
            }
        }
    }

    /// The labels that a sample determines, in order: the listed ones, and the begun one if it is unambiguous.
    fn settled(&self, drawn: &[Token]) -> Vec<usize> {
        let Reading { mut listed, open, begun } = self.read(drawn);
        if let ([label], true) = (&open[..], begun > 0) {
            listed.push(*label);
        }
        listed
    }

    /// The order of the labels in a sample. Labels that it does not list come last, in input order.
    pub fn order(&self, drawn: &[Token]) -> Vec<usize> {
        let mut order = self.settled(drawn);
        let missing: Vec<usize> = (0..self.items.len()).filter(|label| !order.contains(label)).collect();
        order.extend(missing);
        order
    }
}

impl Allowed for Permutation {
    fn after(&self, drawn: &[Token]) -> Vec<Token> {
        let Reading { open, begun, .. } = self.read(drawn);
        let mut tokens = Vec::new();
        for next in open.iter().filter_map(|&label| self.items[label].get(begun)) {
            if !tokens.contains(next) {
                tokens.push(*next);
            }
        }
        tokens
    }
}

impl Stop for Permutation {
    /// Ends when at most one label is left, because its place is then known.
    fn ended(&self, drawn: &[Token]) -> Option<Finish> {
        (self.settled(drawn).len() + 1 >= self.items.len()).then_some(Finish::StopString)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use numeric::sampling::Sampling;
    use prefix_scheduler::call::Call;
    use prefix_scheduler::model::Capacity;
    use prefix_scheduler::plan::{Grow, NodeId, Plan, Segment};
    use prefix_scheduler::scheduler::Status;
    use prefix_scheduler::scheduler::generator::{Scheduler, SchedulerOptions};
    use prefix_scheduler::scripted::{END, Observed, Script, ScriptedGenerator};

    fn tokens(text: &str) -> Vec<Token> {
        text.bytes().map(Token::from).collect()
    }

    /// Labels 1 to `count`, one token per digit.
    fn numbers(count: usize) -> Permutation {
        let labels: Vec<Vec<Token>> = (1..=count).map(|label| tokens(&label.to_string())).collect();
        Permutation::new(&labels, &tokens("] > [")).unwrap()
    }

    #[test]
    fn labels_that_cannot_be_told_apart_are_refused() {
        assert!(Permutation::new(&[vec![1], vec![1]], &[9]).is_none());
        assert!(Permutation::new(&[vec![1], vec![1, 9, 2]], &[9]).is_none());
        assert!(Permutation::new(&[vec![1], vec![1, 2]], &[9]).is_some());
        assert!(Permutation::new(&[vec![]], &[]).is_none());
    }

    #[test]
    fn what_may_follow_by_hand() {
        let labels = numbers(11);
        let after = |text: &str| {
            let tokens = labels.after(&tokens(text));
            String::from_utf8(tokens.into_iter().map(|token| u8::try_from(token).unwrap()).collect()).unwrap()
        };
        assert_eq!(after(""), "123456789");
        assert_eq!(after("1"), "]01");
        assert_eq!(after("10"), "]");
        assert_eq!(after("10] > "), "[");
        assert_eq!(after("10] > [1"), "]1");
        assert_eq!(after("1] > [11] > [1"), "0");
        assert_eq!(after("2] > ["), "13456789");
        assert_eq!(after("x"), "", "no sample begins like this");
    }

    #[test]
    fn orders_by_hand() {
        let labels = numbers(4);
        let order = |text: &str| labels.order(&tokens(text));
        assert_eq!(order("3] > [1] > [4"), [2, 0, 3, 1]);
        assert_eq!(order("3] > ["), [2, 0, 1, 3]);
        assert_eq!(order(""), [0, 1, 2, 3]);
        // From the design notes: 2 1 3 4.
        assert_eq!(order("2] > [2] > [7] > [1"), [1, 0, 2, 3]);
        assert_eq!(numbers(11).order(&tokens("1")), (0..11).collect::<Vec<_>>(), "1, 10 or 11");
        assert_eq!(numbers(11).order(&tokens("10"))[0], 9);
        let ended = |text: &str| labels.ended(&tokens(text)).is_some();
        assert!(!ended("3] > [1] > [") && ended("3] > [1] > [4"));
        assert!(numbers(1).ended(&[]).is_some());
        assert_eq!((numbers(2).most(), numbers(11).most()), (6, 8 * 6 + 2 * 7));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        /// Arbitrary tokens read as a complete permutation.
        #[test]
        fn every_text_is_a_permutation(count in 1_usize..25, text in "[0-9\\]\\[> x]{0,80}") {
            let mut order = numbers(count).order(&tokens(&text));
            order.sort_unstable();
            prop_assert_eq!(order, (0..count).collect::<Vec<_>>());
        }
    }

    /// Prefers whatever breaks a list: the end of the turn, repeated labels, too large numbers; otherwise noise.
    fn adversary() -> Arc<Script> {
        Arc::new(|history, token| {
            let mixed =
                history.iter().rev().take(12).fold(token.unsigned_abs().wrapping_mul(0x9e37_79b1), |hash, &past| {
                    (hash ^ past.unsigned_abs()).wrapping_mul(0x0100_0193).rotate_left(7)
                });
            let noise = f64::from(mixed % 2_000) / 50.0 - 20.0;
            let repeated = if history.last() == Some(&token) { 30.0 } else { 0.0 };
            match token {
                END => 80.0,
                // A digit after a digit makes a too large number.
                48..=57 if history.last().is_some_and(|last| (48..=57).contains(last)) => noise + 40.0,
                _ => noise + repeated,
            }
        })
    }

    /// 10,000 samples under the real scheduler, of 1 to 25 labels, with and without temperature.
    #[test]
    fn an_adversary_draws_permutations_only() {
        let capacity = Capacity { cells: 40_000, sequences: 256, batch: 512 };
        let loader = Box::new(move |serve: &mut dyn FnMut(&mut dyn prefix_scheduler::model::Generator)| {
            serve(&mut ScriptedGenerator::new(capacity, adversary(), Arc::new(Observed::default())));
            Ok(())
        });
        let scheduler = Scheduler::start(SchedulerOptions::default(), loader).unwrap();
        let mut distinct = std::collections::HashSet::new();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let ready = async {
            scheduler.status().wait_for(|status| matches!(status, Status::Ready(_))).await.unwrap();
        };
        runtime.block_on(ready);
        for round in 0..100 {
            let labels = Arc::new(numbers(round % 25 + 1));
            let mut plan = Plan::new();
            let nodes: Vec<NodeId> = (0..100_u64)
                .map(|sample| {
                    let prompt = plan.add(&[Segment::context(tokens(&format!("{round} {sample} [")))])[0];
                    let temperature = if sample % 2 == 0 { 0.0 } else { 30.0 };
                    let grow = Grow {
                        sampling: Sampling { temperature, ..Sampling::default() },
                        most: labels.most(),
                        seed: sample,
                        stop: Arc::clone(&labels) as Arc<dyn Stop>,
                        allowed: Some(Arc::clone(&labels) as Arc<dyn Allowed>),
                    };
                    plan.sample(prompt, grow)
                })
                .collect();
            let outcome = runtime.block_on(scheduler.run(Arc::new(plan), &Call::local(), None)).unwrap();
            for node in nodes {
                let sample = &outcome.samples[&node];
                assert!(sample.log_probabilities.iter().all(|log| *log <= 1e-6 && log.is_finite()));
                assert!(labels.items.len() < 2 || labels.settled(&sample.tokens).len() + 1 == labels.items.len());
                let mut order = labels.order(&sample.tokens);
                distinct.insert(order.clone());
                order.sort_unstable();
                assert_eq!(order, (0..labels.items.len()).collect::<Vec<_>>());
            }
        }
        assert!(distinct.len() > 3_000, "{} orders", distinct.len());
    }
}
