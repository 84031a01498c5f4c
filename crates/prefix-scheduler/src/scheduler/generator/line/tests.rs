//! The order in which waiting requests begin, by hand and by simulation.

use proptest::prelude::*;

use super::*;

fn request(caller: &str, tokens: usize, epoch: Instant, due: u64) -> Waiting {
    Waiting {
        caller: caller.into(),
        urgency: Priority::NORMAL.level(),
        begun: false,
        arrival: epoch,
        due: epoch + Duration::from_secs(due),
        tokens,
    }
}

/// Begins one request after another; returns their numbers in that order.
fn play(mut waiting: Vec<Waiting>) -> Vec<usize> {
    let (mut line, mut order) = (Line::default(), Vec::new());
    let mut numbers: Vec<usize> = (0..waiting.len()).collect();
    while let Some(next) = line.next(&waiting) {
        assert_eq!(line.next(&waiting), Some(next), "choosing changes nothing");
        line.began(&next, &waiting);
        order.push(numbers.remove(next.index));
        waiting.remove(next.index);
    }
    order
}

#[test]
fn a_caller_is_served_by_deadline() {
    let now = Instant::now();
    assert_eq!(play([9, 3, 5].map(|due| request("a", 100, now, due)).to_vec()), [1, 2, 0]);
}

#[test]
fn what_was_begun_goes_first_whatever_its_urgency() {
    let now = Instant::now();
    let begun = Waiting { begun: true, urgency: 9, ..request("a", 100, now, 99) };
    let urgent = Waiting { urgency: 0, ..request("b", 100, now, 1) };
    assert_eq!(play(vec![urgent, begun]), [1, 0]);
}

#[test]
fn more_urgent_requests_go_first_and_waiting_makes_urgent() {
    let now = Instant::now();
    let of = |urgency, due| Waiting { urgency, ..request("a", 100, now, due) };
    assert_eq!(play(vec![of(8, 1), of(5, 2), of(2, 3)]), [2, 1, 0]);
    let waited = Duration::from_secs;
    assert_eq!(urgency(Priority::LOW, waited(0)), 8);
    assert_eq!(urgency(Priority::LOW, waited(10)), urgency(Priority::NORMAL, waited(0)));
    assert_eq!(urgency(Priority::LOW, waited(20)), urgency(Priority::HIGH, waited(0)));
    assert_eq!(urgency(Priority::LOW, waited(1_000_000)), 0);
}

/// `a` has six requests of 512 tokens that are due before the two of `b`. Each turn pays for one.
#[test]
fn callers_take_turns() {
    let now = Instant::now();
    let mut waiting: Vec<Waiting> = (0..6).map(|due| request("a", 512, now, due)).collect();
    waiting.extend((0..2).map(|due| request("b", 512, now, 90 + due)));
    assert_eq!(play(waiting), [0, 6, 1, 7, 2, 3, 4, 5]);
}

/// Turns count tokens, not requests: one request of `b` is worth four of `a`. It goes first at equal credit, because `a` has just been served.
#[test]
fn turns_are_counted_in_tokens() {
    let now = Instant::now();
    let mut waiting: Vec<Waiting> = (0..12).map(|due| request("a", 512, now, due)).collect();
    waiting.extend((0..2).map(|due| request("b", 2_048, now, 90 + due)));
    let order = play(waiting);
    let place = |number| order.iter().position(|other| *other == number).unwrap();
    assert_eq!((place(12), place(13)), (3, 8), "{order:?}");
}

#[test]
fn a_later_round_is_paid_for_by_its_caller() {
    let now = Instant::now();
    let begun = Waiting { begun: true, ..request("a", 5_120, now, 0) };
    let mut waiting = vec![begun];
    waiting.extend((0..4).map(|due| request("a", 512, now, 1 + due)));
    waiting.extend((0..4).map(|due| request("b", 512, now, 9 + due)));
    assert_eq!(play(waiting)[..5], [0, 5, 6, 7, 8], "a has had ten turns");
}

#[test]
fn without_deadlines_a_cheaper_request_overtakes_within_the_service_time() {
    let now = Instant::now();
    let due = |after, tokens| due(now + Duration::from_secs(after), None, tokens, 1_000.0);
    assert!(due(1, 100) < due(0, 10_000));
    assert!(due(11, 100) > due(0, 10_000));
    assert_eq!(super::due(now, Some(now), 5, 1.0), now);
}

#[test]
fn a_request_is_active_only_if_it_gets_tokens_soon() {
    let view = |left, urgency, phase| View { left, arrival: 0_usize, phase, urgency, growth: 0 };
    let scoring = |left| view(left, 5, Phase::Scoring);
    let may_wait = |tokens, urgency, active: &[View<usize>]| {
        super::may_wait(&Waiting { urgency, ..request("a", tokens, Instant::now(), 0) }, 512, active)
    };
    assert!(!may_wait(600, 5, &[]));
    assert!(!may_wait(600, 5, &[scoring(500)]), "less than two steps are left");
    assert!(may_wait(600, 5, &[scoring(300), scoring(300)]));
    assert!(!may_wait(100, 5, &[scoring(40_000)]), "it goes before a larger one");
    assert!(!may_wait(600, 2, &[scoring(600)]), "it is more urgent");
    assert!(!may_wait(600, 5, &[view(5_000, 5, Phase::Growing)]), "samples leave most of a step");
}

proptest! {
    /// Everybody begins, once. While two callers of equal urgency wait, their tokens differ by no more than two requests of
    /// the largest size and two turns.
    #[test]
    fn shares_are_fair(
        sizes in proptest::collection::vec((proptest::bool::ANY, 1_usize..4_000, 0_u64..50), 1..40),
    ) {
        let now = Instant::now();
        let waiting: Vec<Waiting> = sizes
            .iter()
            .map(|&(first, tokens, due)| request(if first { "a" } else { "b" }, tokens, now, due))
            .collect();
        let order = play(waiting.clone());
        let mut sorted = order.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (0..sizes.len()).collect::<Vec<_>>());
        let mut left = [true, false].map(|side| sizes.iter().filter(|size| size.0 == side).count());
        let mut served = [0_i64; 2];
        for number in order {
            if left.contains(&0) {
                break;
            }
            let side = usize::from(!sizes[number].0);
            served[side] += i64::try_from(sizes[number].1).unwrap();
            left[side] -= 1;
            prop_assert!((served[0] - served[1]).abs() <= 2 * 4_000 + 2 * 512, "{served:?}");
        }
    }
}
