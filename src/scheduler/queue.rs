//! The policy of the queue, as pure functions: who is admitted next, and who gets how many tokens of a step.
//!
//! **Admission.** A waiting request has the key `arrival + expected service time` at the measured speed; the smallest key is
//! admitted first. A request can only be overtaken by one whose key is smaller, that is, by a cheaper one that arrived
//! before its own service would have ended; so the number that overtake it is bounded and nobody waits for ever. When the
//! first in line does not fit into the free cache cells, nobody behind it is admitted: small ones cannot starve it.
//!
//! **Sharing.** The active request with the fewest tokens left leads and takes up to five sixths of a step. The others have
//! a claim to a fifth of what it took, at least [`LEAST_SHARE`] tokens a step. A claim below [`PATIENCE`] steps is not paid
//! but remembered, because a short leader is then gone before it falls due; what exceeds it is paid, oldest first, and no
//! more than that even where the step has room, because a fuller step is a longer step and the leader waits for it. So a
//! leader of up to a dozen steps runs as if alone, a longer one at five sixths of that, and the others wait for no more than
//! a dozen steps in a row and get a sixth of the machine in the long run. A request alone takes half a step at a time,
//! which costs it a few per cent and halves what a newcomer waits for the step in flight.

use std::time::{Duration, Instant};

/// Tokens that the requests behind the leader share at least.
pub const LEAST_SHARE: usize = 16;

/// Claims of the followers, in steps, that are remembered before any is paid.
pub const PATIENCE: usize = 2;

/// When a waiting request would be done if it were served at once: the key of the admission order.
#[must_use]
pub fn admission_key(arrival: Instant, tokens: usize, tokens_per_second: f64) -> Instant {
    let seconds = crate::measure::real(tokens) / tokens_per_second.max(1.0);
    arrival + Duration::from_secs_f64(seconds.min(86_400.0))
}

/// The order in which active requests take from a step, given tokens left and arrival of each: the one with the fewest
/// tokens left (of equals the oldest), then the others by age.
#[must_use]
pub fn turns<T: Ord>(active: &[(usize, T)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..active.len()).collect();
    order.sort_by_key(|&index| &active[index].1);
    if let Some(place) = (0..order.len()).min_by_key(|&place| active[order[place]].0) {
        order[..=place].rotate_right(1);
    }
    order
}

/// How many tokens the leader may take of a step of `batch`.
#[must_use]
pub const fn leaders_share(batch: usize, followers: usize) -> usize {
    if followers == 0 { batch.div_ceil(2) } else { batch - batch / 6 }
}

/// What the followers are owed, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Claim {
    owed: usize,
}

impl Claim {
    /// How many tokens the followers may take together after the leader took `taken` of a step of `batch`.
    pub fn due(&mut self, batch: usize, taken: usize, followers: usize) -> usize {
        if followers == 0 {
            self.owed = 0;
            return 0;
        }
        self.owed += (taken / 5).max(LEAST_SHARE);
        self.owed.saturating_sub(PATIENCE * batch).min(batch.saturating_sub(taken))
    }

    /// Records what they took of it.
    pub const fn paid(&mut self, tokens: usize) {
        self.owed = self.owed.saturating_sub(tokens);
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
            let key = |r: usize| admission_key(epoch + Duration::from_secs(requests[r].0 as u64), requests[r].1, 1.0);
            while active.len() < places && !waiting.is_empty() {
                let best = (0..waiting.len()).min_by_key(|&w| key(waiting[w])).unwrap();
                let request = waiting.swap_remove(best);
                active.push((request, requests[request].1));
            }
            let views: Vec<(usize, usize)> = active.iter().map(|(r, left)| (*left, requests[*r].0)).collect();
            let order = turns(&views);
            let Some(&leader) = order.first() else {
                clock = requests[arrivals[next]].0;
                continue;
            };
            let taken = active[leader].1.min(leaders_share(batch, order.len() - 1));
            active[leader].1 -= taken;
            let mut share = claim.due(batch, taken, order.len() - 1);
            clock += taken;
            for &follower in &order[1..] {
                let part = share.min(active[follower].1);
                active[follower].1 -= part;
                share -= part;
                claim.paid(part);
                clock += part;
            }
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

    #[test]
    fn followers_wait_for_a_dozen_steps_in_a_row_and_no_longer() {
        let mut claim = Claim::default();
        let waits = (0..100).take_while(|_| claim.due(600, 500, 1) == 0).count();
        assert_eq!(waits, 12, "1,200 tokens at 100 a step");
        assert!((0..50).all(|_| {
            let due = claim.due(600, 500, 1);
            claim.paid(due);
            due == 100 || due == 0
        }));
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
        let large = admission_key(now, 10_000, 1_000.0);
        assert!(admission_key(now + Duration::from_secs(1), 100, 1_000.0) < large);
        assert!(admission_key(now + Duration::from_secs(11), 100, 1_000.0) > large);
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
