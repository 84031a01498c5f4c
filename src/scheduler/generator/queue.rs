//! The policy of the queue, as pure functions: who is admitted next, and who gets how many tokens of a step.
//!
//! **Admission.** A waiting request has the key `arrival + expected service time` at the measured speed; the smallest key is
//! admitted first. A request can only be overtaken by one whose key is smaller, that is, by a cheaper one that arrived
//! before its own service would have ended; so the number that overtake it is bounded and nobody waits for ever. When the
//! first in line does not fit into the free cache cells, nobody behind it is admitted: small ones cannot starve it.
//!
//! **Sharing.** The active request with the fewest tokens left leads and takes up to half a batch, the [`quantum`]; so much
//! is as fast as a whole one and halves what a newcomer waits for the step in flight. Beside it go what makes the step
//! hardly longer or the leader's wait worth while: a token of each growing sample, up to an eighth of a batch; requests that
//! end within what the leader leaves; and, where its own samples grow, the prompts of others that sample, so that all grow
//! together. The others have a claim to a fifth of what the leader takes, at least [`LEAST_SHARE`] tokens a step; below
//! [`PATIENCE`] batches it is remembered, because a short leader is then gone before it falls due; above, they are given a
//! step of their own, oldest first. So a leader of up to ten batches runs as if alone, a longer one at five sixths of that,
//! and the others get a sixth of the machine in the long run. They are given steps and not a slice of each, because long
//! prompts side by side make attention look at the cells of both and end in the middle of its tiles: a fifth of the speed.

use std::time::{Duration, Instant};

use crate::call::Priority;

/// By how much a priority step moves a call in the queue.
pub const PRIORITY_SHIFT: Duration = Duration::from_secs(10);

/// Tokens a step that the requests behind the leader have a claim to at least.
pub const LEAST_SHARE: usize = 16;

/// Claims of the followers, in batches, that are remembered before any is paid.
pub const PATIENCE: usize = 2;

/// When a waiting request would be done if it were served at once: the key of the admission order.
/// A priority shifts it by [`PRIORITY_SHIFT`], so a call of low priority is overtaken for that long and no longer.
#[must_use]
pub fn admission_key(arrival: Instant, tokens: usize, tokens_per_second: f64, priority: Priority) -> Instant {
    let seconds = crate::numeric::real(tokens) / tokens_per_second.max(1.0);
    let shift = match priority {
        Priority::High => Duration::ZERO,
        Priority::Normal => PRIORITY_SHIFT,
        Priority::Low => 2 * PRIORITY_SHIFT,
    };
    arrival + shift + Duration::from_secs_f64(seconds.min(86_400.0))
}

/// What the policy knows of an active request.
#[derive(Debug, Clone, Copy)]
pub struct View<T> {
    /// Tokens left.
    pub left: usize,
    /// Time of arrival.
    pub arrival: T,
    /// What it does now.
    pub phase: Phase,
}

/// What a request does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Scores prompts, and nothing else.
    Scoring,
    /// Reads the prompts that it will sample from.
    Reading,
    /// Its samples grow, a token of each in a step.
    Growing,
}

/// The order in which active requests take from a step: the one with the fewest tokens left (of equals the oldest), then
/// the others by age.
#[must_use]
fn turns<T: Ord>(active: &[View<T>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..active.len()).collect();
    order.sort_by_key(|&index| &active[index].arrival);
    if let Some(place) = (0..order.len()).min_by_key(|&place| active[order[place]].left) {
        order[..=place].rotate_right(1);
    }
    order
}

/// Tokens of a step at most, where `batch` is what the generator could take.
#[must_use]
pub const fn quantum(batch: usize) -> usize {
    batch.div_ceil(2)
}

/// What the followers are owed, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Claim {
    owed: usize,
}

impl Claim {
    /// Shares a step: calls `take(request, limit)`, at most once for each, which returns what the request took.
    pub fn share<T: Ord>(&mut self, batch: usize, active: &[View<T>], mut take: impl FnMut(usize, usize) -> usize) {
        let order = turns(active);
        let Some((&leader, followers)) = order.split_first() else { return };
        let mut take = |index, limit| if limit > 0 { take(index, limit) } else { 0 };
        let mut room = quantum(batch);
        // Growing samples hold nobody up: they have a place of their own.
        let mut cheap = batch / 8;
        let growing = |index: usize| active[index].phase == Phase::Growing;
        let mut paid = 0;
        let leaders;
        if self.owed >= PATIENCE * batch {
            for &follower in followers {
                let took = take(follower, room);
                room -= took;
                paid += took;
            }
            leaders = take(leader, if growing(leader) { room.max(cheap) } else { room });
        } else {
            leaders = take(leader, room);
            room -= leaders;
            for &follower in followers {
                let together = growing(leader) && active[follower].phase == Phase::Reading;
                if growing(follower) {
                    cheap -= take(follower, cheap);
                } else if active[follower].left <= room || together {
                    room -= take(follower, room);
                }
            }
        }
        let owed = (self.owed + (leaders / 5).max(LEAST_SHARE)).saturating_sub(paid);
        self.owed = if followers.is_empty() { 0 } else { owed };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Plays requests of `(arrival, tokens)` against the policy on a machine whose step costs one tick a token; every
    /// request can use any number of tokens a step. Returns finish times.
    fn play(requests: &[(usize, usize)], batch: usize, places: usize) -> Vec<usize> {
        let epoch = Instant::now();
        let (mut clock, mut finished) = (0_usize, vec![0_usize; requests.len()]);
        let mut waiting: Vec<usize> = Vec::new();
        let mut active: Vec<(usize, usize)> = Vec::new();
        let mut arrivals: Vec<usize> = (0..requests.len()).collect();
        arrivals.sort_by_key(|&r| requests[r].0);
        let mut next = 0;
        let mut claim = Claim::default();
        while next < arrivals.len() || !waiting.is_empty() || !active.is_empty() {
            while next < arrivals.len() && requests[arrivals[next]].0 <= clock {
                waiting.push(arrivals[next]);
                next += 1;
            }
            let key = |r: usize| {
                admission_key(epoch + Duration::from_secs(requests[r].0 as u64), requests[r].1, 1.0, Priority::Normal)
            };
            while active.len() < places && !waiting.is_empty() {
                let best = (0..waiting.len()).min_by_key(|&w| key(waiting[w])).unwrap();
                let request = waiting.swap_remove(best);
                active.push((request, requests[request].1));
            }
            let view = |&(r, left): &(usize, usize)| View { left, arrival: requests[r].0, phase: Phase::Scoring };
            let views: Vec<_> = active.iter().map(view).collect();
            if views.is_empty() {
                clock = requests[arrivals[next]].0;
                continue;
            }
            claim.share(batch, &views, |index, limit| {
                let took = active[index].1.min(limit);
                active[index].1 -= took;
                clock += took;
                took
            });
            for (request, left) in &active {
                if *left == 0 {
                    finished[*request] = clock;
                }
            }
            active.retain(|(_, left)| *left > 0);
        }
        finished
    }

    #[test]
    fn a_small_request_beside_a_large_one_waits_for_half_a_step_only() {
        let finished = play(&[(0, 40_000), (1_000, 600)], 512, 16);
        let latency = finished[1] - 1_000;
        assert!(latency <= 600 + 256, "{latency}");
    }

    #[test]
    fn a_middling_request_keeps_five_sixths_of_its_speed() {
        let finished = play(&[(0, 90_000), (1_000, 30_000)], 512, 16);
        let latency = finished[1] - 1_000;
        assert!(latency > 30_000 && latency <= 30_000 * 6 / 5 + 512, "{latency}");
    }

    /// What each takes of a step of 512: a prompt with so many tokens to go, or so many samples that grow.
    fn step(claim: &mut Claim, active: &[Work]) -> Vec<usize> {
        let view = |(arrival, work): (usize, &Work)| match *work {
            Work::Prompt(left) => View { left, arrival, phase: Phase::Scoring },
            Work::ToSample(prompt) => View { left: prompt + 240, arrival, phase: Phase::Reading },
            Work::Samples(number) => View { left: 24 * number, arrival, phase: Phase::Growing },
        };
        let views: Vec<_> = active.iter().enumerate().map(view).collect();
        let mut taken = vec![0; active.len()];
        claim.share(512, &views, |index, limit| {
            taken[index] = match active[index] {
                Work::Prompt(most) | Work::ToSample(most) | Work::Samples(most) => most.min(limit),
            };
            taken[index]
        });
        taken
    }

    enum Work {
        Prompt(usize),
        ToSample(usize),
        Samples(usize),
    }

    #[test]
    fn followers_of_a_long_leader_get_every_sixth_step_after_ten_batches() {
        let mut claim = Claim::default();
        let long = [Work::Prompt(1_000_000), Work::Prompt(1_000_000)];
        let steps: Vec<Vec<usize>> = (0..200).map(|_| step(&mut claim, &long)).collect();
        assert!(steps.iter().all(|step| step == &[256, 0] || step == &[0, 256]), "never side by side");
        let waited = steps.iter().position(|step| step[0] == 0).unwrap();
        assert_eq!(waited, 21, "1,024 tokens at 51 a step");
        let theirs = steps[waited..].iter().filter(|step| step[0] == 0).count();
        assert!((28..=32).contains(&theirs), "{theirs} of 179");
    }

    #[test]
    fn what_a_leader_leaves_goes_to_those_that_end_with_it() {
        let mut claim = Claim::default();
        let active = [100, 5_000, 120, 90].map(Work::Prompt);
        assert_eq!(step(&mut claim, &active), [100, 0, 0, 90], "the oldest of those that still fit");
    }

    #[test]
    fn samples_of_several_requests_grow_together_and_no_prompt_holds_them_up() {
        let mut claim = Claim::default();
        let active = [Work::Samples(10), Work::Samples(30), Work::Samples(40), Work::Prompt(5_000)];
        assert_eq!(step(&mut claim, &active), [10, 30, 34, 0], "64 beside the leader");
        let active = [Work::Prompt(200), Work::Samples(30)];
        assert_eq!(step(&mut claim, &active), [200, 30], "nor do they stop for a short prompt");
        let active = [Work::Samples(10), Work::ToSample(100), Work::ToSample(400), Work::Prompt(5_000)];
        assert_eq!(step(&mut claim, &active), [10, 100, 146, 0], "prompts are read, to grow with the leader");
    }

    #[test]
    fn a_prompt_behind_samples_without_end_has_its_turn() {
        let mut claim = Claim::default();
        let active = [Work::Samples(10), Work::Samples(20), Work::Prompt(5_000)];
        let steps: Vec<Vec<usize>> = (0..1_000).map(|_| step(&mut claim, &active)).collect();
        let turns = steps.iter().filter(|step| step[2] > 0).count();
        assert!(turns >= 1_000 / 20, "{turns}");
        assert!(steps.iter().all(|step| step[0] == 10 && step[1] == 20), "the samples grow on meanwhile");
    }

    #[test]
    fn a_large_request_goes_on_under_a_stream_of_small_ones() {
        // Small requests arrive as fast as the machine could serve them alone, for ever.
        let mut requests = vec![(0, 20_000)];
        requests.extend((0..400).map(|i| (i * 500, 500)));
        let finished = play(&requests, 512, 4);
        assert!(finished[0] <= 20_000 * 6 + 16_000, "{}", finished[0]);
    }

    #[test]
    fn waiting_requests_are_overtaken_only_within_their_own_service_time() {
        let now = Instant::now();
        let key =
            |after: u64, tokens, priority| admission_key(now + Duration::from_secs(after), tokens, 1_000.0, priority);
        let large = key(0, 10_000, Priority::Normal);
        assert!(key(1, 100, Priority::Normal) < large);
        assert!(key(11, 100, Priority::Normal) > large);
        assert!(key(15, 100, Priority::High) < large, "a higher priority comes ten seconds earlier");
        assert!(key(0, 100, Priority::Low) < key(25, 100, Priority::High), "and a low one waits no longer than that");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever arrives, everybody finishes, and the machine never idles while there is work.
        #[test]
        fn everybody_finishes(
            requests in proptest::collection::vec((0_usize..5_000, 1_usize..3_000), 1..30),
            batch in 64_usize..600, places in 1_usize..8,
        ) {
            let finished = play(&requests, batch, places);
            let total: usize = requests.iter().map(|(_, tokens)| tokens).sum();
            let last_arrival = requests.iter().map(|(at, _)| *at).max().unwrap_or(0);
            prop_assert!(finished.iter().all(|at| *at > 0));
            prop_assert!(finished.iter().max().unwrap() <= &(last_arrival + total));
        }
    }
}
