//! How the active requests share a step; pure functions. `scheduler::order` decides which request becomes active.
//!
//! The most urgent active request is the leader; among equally urgent ones, the oldest of those with at most
//! [`SIMILAR`] times the fewest tokens left. So short requests overtake long ones. Similar ones do not: under load they
//! arrive all the time, and one of them would wait until its deadline.
//!
//! The leader takes up to half a batch, the [`quantum`]. Half a batch is as fast per token as a whole one, and halves
//! the time that a new request waits for the current step. The step also takes work that adds little time: one token
//! of each growing sample, up to an eighth of a batch, and requests that finish within the rest of the quantum. If the
//! leader's samples grow, it takes the prompts of other sampling requests, too, so that all samples grow together.
//!
//! Followers' unpaid tokens accumulate: a fifth of the leader's tokens, at least [`LEAST_SHARE`] per step. This
//! minimum is at most half a quantum, because a step that pays them must pay more than accumulates in it. They are
//! paid only after [`PATIENCE`] batches, because a short leader usually finishes sooner. Followers then get whole
//! steps, oldest first. A leader of up to ten batches therefore runs at full speed, a longer one at five sixths of
//! it, and the followers get a sixth of the machine in the long run. Followers get whole steps instead of a slice
//! of each: with long prompts of two requests in one step, attention reads the cells of both and ends in the middle
//! of its tiles, which costs a fifth of the speed.

use crate::call::Priority;

/// Minimum number of tokens per step that accumulates for the followers.
pub const LEAST_SHARE: usize = 16;

/// Requests whose tokens left differ by at most this factor are served in the order of their arrival.
const SIMILAR: usize = 2;

/// Unpaid tokens of the followers, in batches, from which they are paid.
pub const PATIENCE: usize = 2;

/// The policy's view of an active request.
#[derive(Debug, Clone, Copy)]
pub struct View<T> {
    /// Tokens not yet evaluated.
    pub left: usize,
    /// Time of arrival.
    pub arrival: T,
    /// Current phase.
    pub phase: Phase,
    /// Priority of its call.
    pub priority: Priority,
    /// Tokens of the latest step of growing samples; 0 in other phases.
    pub growth: usize,
}

impl<T> View<T> {
    /// Its time without other requests, in tokens that could be read in that time. A step of few samples is hardly
    /// shorter than one of [`LEAST_SHARE`] tokens.
    fn work(&self) -> usize {
        let steps = self.left.checked_div(self.growth).unwrap_or(0);
        self.left.max(steps.saturating_mul(LEAST_SHARE))
    }
}

/// Phase of an active request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Scores prompts; its plan has no samples.
    Scoring,
    /// Evaluates the prompts that it will sample from.
    Reading,
    /// Its samples grow by one drawn token each per step, and by the forced tokens after it.
    Growing,
}

/// Order in which active requests take tokens from a step: the leader, then the others, oldest first. If the leader
/// samples, prompts that take less time than its samples go first: the samples grow in the same steps.
#[must_use]
fn turns<T: Ord>(active: &[View<T>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..active.len()).collect();
    order.sort_by_key(|&index| &active[index].arrival);
    let left = |place: &usize| (active[order[*place]].priority, active[order[*place]].left);
    let Some((priority, fewest)) = (0..order.len()).map(|place| left(&place)).min() else { return order };
    let leads = |place: &usize| {
        let other = &active[order[*place]];
        other.priority == priority && other.left <= SIMILAR.saturating_mul(fewest)
    };
    let Some(leader) = (0..order.len()).find(leads) else { return order };
    let first = &active[order[leader]];
    let is_shorter = |place: &usize| {
        let other = &active[order[*place]];
        other.phase == Phase::Scoring && other.priority == first.priority && other.left < first.work()
    };
    let shorter = (0..order.len()).filter(|_| first.phase == Phase::Growing).filter(is_shorter).min_by_key(left);
    order[..=shorter.unwrap_or(leader)].rotate_right(1);
    order
}

/// Most tokens of idle work in a step. A request that arrives waits for such a step, about 40 ms with a small model on
/// two cores.
const IDLE_STEP: usize = 32;

/// True if a request with this priority, this many tokens and this time of arrival gains nothing by being active now,
/// because a step or more of tokens goes first. While it waits, a more urgent request can still go first.
#[must_use]
pub fn may_wait<T: Ord>((priority, tokens, arrival): (Priority, usize, T), batch: usize, active: &[View<T>]) -> bool {
    let before = |view: &&View<T>| {
        let most = if view.arrival <= arrival { SIMILAR.saturating_mul(tokens) } else { tokens };
        (view.priority, view.left) <= (priority, most) && view.phase == Phase::Scoring
    };
    active.iter().filter(before).map(|view| view.left).sum::<usize>() >= batch
}

/// Maximum number of tokens of a step for a generator with the given batch size, excluding other requests' samples.
#[must_use]
pub const fn quantum(batch: usize) -> usize {
    batch.div_ceil(2)
}

/// Unpaid tokens of the followers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Claim {
    owed: usize,
}

impl Claim {
    /// Shares a step. Calls `take(request, limit)` at most once per request; it returns the number of tokens taken.
    pub fn share<T: Ord>(&mut self, batch: usize, active: &[View<T>], mut take: impl FnMut(usize, usize) -> usize) {
        let order = turns(active);
        let Some((&leader, followers)) = order.split_first() else { return };
        let most = |index: usize| if active[index].priority == Priority::IDLE { IDLE_STEP } else { usize::MAX };
        let mut take = |index, limit: usize| if limit > 0 { take(index, limit.min(most(index))) } else { 0 };
        let mut room = quantum(batch);
        // Growing samples have a separate budget, because they hardly lengthen a step.
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
        let least = LEAST_SHARE.min(quantum(batch) / 2);
        let owed = (self.owed + (leaders / 5).max(least)).saturating_sub(paid);
        self.owed = if followers.is_empty() { 0 } else { owed };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn view(left: usize, arrival: usize, phase: Phase) -> View<usize> {
        View { left, arrival, phase, priority: Priority::NORMAL, growth: 0 }
    }

    /// A ranking of three seconds waited ten for a sample with fewer tokens left, although each of these took a
    /// step.
    #[test]
    fn prompts_go_before_samples_that_take_longer_and_grow_beside_them() {
        let sample = |left| View { growth: 1, ..view(left, 0, Phase::Growing) };
        let shares = |samples: View<usize>, prompt: usize| {
            let (mut claim, mut taken) = (Claim::default(), [0, 0]);
            claim.share(512, &[samples, view(prompt, 1, Phase::Scoring)], |index, limit| {
                taken[index] = limit.min(if index == 0 { samples.growth } else { prompt });
                taken[index]
            });
            taken
        };
        assert_eq!(shares(sample(500), 3_000), [1, 256], "500 steps are 8,000 tokens");
        assert_eq!(shares(sample(100), 3_000), [1, 0], "100 steps are 1,600");
        assert_eq!(shares(View { growth: 10, ..sample(500) }, 3_000), [10, 0], "50 steps");
        assert_eq!(shares(View { priority: Priority::HIGH, ..sample(500) }, 3_000), [1, 0], "more urgent");
    }

    /// With a batch of 32 or less, each step accumulated as much as it paid: the leader never got another turn.
    #[test]
    fn a_long_leader_goes_on_at_every_batch() {
        for batch in [16, 24, 32, 64, 512] {
            let (mut claim, mut taken) = (Claim::default(), [0_u32; 2]);
            let views = [view(500_000, 0, Phase::Scoring), view(1_000_000, 1, Phase::Scoring)];
            for _ in 0..5_000 {
                claim.share(batch, &views, |index, limit| {
                    taken[index] += u32::try_from(limit).unwrap();
                    limit
                });
            }
            let share = f64::from(taken[0]) / f64::from(taken[0] + taken[1]);
            assert!((0.45..0.9).contains(&share), "{share} with a batch of {batch}");
        }
    }

    /// Simulates requests of `(arrival, tokens)` on a machine that takes one tick per token. A request can use any
    /// number of tokens per step. Returns the finish times.
    fn play(requests: &[(usize, usize)], batch: usize, places: usize) -> Vec<usize> {
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
            let key = |request: usize| requests[request].0;
            while active.len() < places && !waiting.is_empty() {
                let best = (0..waiting.len()).min_by_key(|&place| key(waiting[place])).unwrap();
                let request = waiting.swap_remove(best);
                active.push((request, requests[request].1));
            }
            let view = |&(r, left): &(usize, usize)| view(left, requests[r].0, Phase::Scoring);
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

    /// Tokens that each request takes from a step with a batch of 512.
    fn step(claim: &mut Claim, active: &[Work]) -> Vec<usize> {
        let view = |(arrival, work): (usize, &Work)| match *work {
            Work::Prompt(left) => self::view(left, arrival, Phase::Scoring),
            Work::ToSample(prompt) => self::view(prompt + 240, arrival, Phase::Reading),
            Work::Samples(number) => View { growth: number, ..self::view(24 * number, arrival, Phase::Growing) },
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
        assert!(steps.iter().all(|step| step == &[256, 0] || step == &[0, 256]), "a step serves one of them");
        let waited = steps.iter().position(|step| step[0] == 0).unwrap();
        assert_eq!(waited, 21, "1,024 tokens at 51 per step");
        let theirs = steps[waited..].iter().filter(|step| step[0] == 0).count();
        assert!((28..=32).contains(&theirs), "{theirs} of 179");
    }

    #[test]
    fn a_step_of_idle_work_is_short() {
        let taken = |priority| {
            let (mut claim, mut taken) = (Claim::default(), 0);
            let idle = View { priority, ..view(5_000, 0, Phase::Reading) };
            claim.share(512, &[idle], |_, limit| {
                taken = limit;
                limit
            });
            taken
        };
        assert_eq!([Priority::LOW, Priority::IDLE].map(taken), [256, 32]);
    }

    /// Under load, a request of 250 tokens did not begin before its deadline, because requests of 240 kept arriving.
    #[test]
    fn similar_requests_do_not_overtake_each_other() {
        let requests: Vec<_> = (0..50).map(|number| if number == 1 { (0, 250) } else { (240 * number, 240) }).collect();
        assert_eq!(play(&requests, 512, 8)[1], 490);
    }

    #[test]
    fn what_a_leader_leaves_goes_to_those_that_end_with_it() {
        let mut claim = Claim::default();
        let active = [100, 5_000, 200, 90].map(Work::Prompt);
        assert_eq!(
            step(&mut claim, &active),
            [100, 0, 0, 90],
            "a follower that finishes within the rest of the quantum"
        );
    }

    #[test]
    fn samples_of_several_requests_grow_together_and_no_prompt_holds_them_up() {
        let mut claim = Claim::default();
        let active = [Work::Samples(10), Work::Samples(30), Work::Samples(40), Work::Prompt(5_000)];
        assert_eq!(step(&mut claim, &active), [10, 30, 34, 0], "64 beside the leader");
        let active = [Work::Prompt(200), Work::Samples(30)];
        assert_eq!(step(&mut claim, &active), [200, 30], "samples do not wait for a short prompt");
        let active = [Work::Samples(10), Work::ToSample(100), Work::ToSample(400), Work::Prompt(5_000)];
        assert_eq!(
            step(&mut claim, &active),
            [10, 100, 146, 0],
            "prompts are evaluated, so that their samples grow with the leader's"
        );
    }

    #[test]
    fn a_prompt_behind_samples_without_end_has_its_turn() {
        let mut claim = Claim::default();
        let active = [Work::Samples(10), Work::Samples(20), Work::Prompt(5_000)];
        let steps: Vec<Vec<usize>> = (0..1_000).map(|_| step(&mut claim, &active)).collect();
        let turns = steps.iter().filter(|step| step[2] > 0).count();
        assert!(turns >= 1_000 / 20, "{turns}");
        assert!(steps.iter().all(|step| step[0] == 10 && step[1] == 20), "the samples keep growing");
    }

    #[test]
    fn a_large_request_goes_on_under_a_stream_of_small_ones() {
        // Small requests arrive continuously, at the rate that the machine could just serve.
        let mut requests = vec![(0, 20_000)];
        requests.extend((0..400).map(|i| (i * 500, 500)));
        let finished = play(&requests, 512, 4);
        assert!(finished[0] <= 20_000 * 6 + 16_000, "{}", finished[0]);
    }

    #[test]
    fn a_more_urgent_request_leads_and_the_rest_keeps_its_sixth() {
        let mut claim = Claim::default();
        let active = [100_000, 90_000].map(|left| view(left, 0, Phase::Scoring));
        let active = [active[0], View { priority: Priority::LOW, ..active[1] }];
        let mut taken = [0, 0];
        for _ in 0..200 {
            claim.share(512, &active, |index, limit| {
                taken[index] += limit;
                limit
            });
        }
        assert!((24..=33).contains(&(taken[1] / 256)), "{taken:?}");
    }

    #[test]
    fn a_request_is_active_only_if_it_gets_tokens_soon() {
        let scoring = |left| view(left, 5, Phase::Scoring);
        let may_wait = |tokens, priority, active: &[View<usize>]| super::may_wait((priority, tokens, 7), 512, active);
        let normal = Priority::NORMAL;
        assert!(!may_wait(600, normal, &[]));
        assert!(!may_wait(600, normal, &[scoring(500)]), "less than two steps are left");
        assert!(may_wait(600, normal, &[scoring(300), scoring(300)]));
        assert!(!may_wait(100, normal, &[scoring(40_000)]), "it goes before a larger one");
        assert!(may_wait(300, normal, &[scoring(550)]), "an older one of similar size goes first");
        assert!(!may_wait(300, normal, &[view(550, 9, Phase::Scoring)]), "a newer one does not");
        assert!(!may_wait(600, Priority::HIGH, &[scoring(600)]), "it is more urgent");
        assert!(!may_wait(600, normal, &[view(5_000, 5, Phase::Growing)]), "samples leave most of a step");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// For any arrivals, every request finishes, and the machine does not idle while there is work.
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
