//! Prompt prefixes and states that requests cache for later ones.

use super::*;
use crate::call::Admission;

/// Enough for every state of these tests.
const PLENTY: u64 = 1 << 20;

#[test]
fn a_passage_is_read_once() {
    let bench = bench(PLENTY, Duration::ZERO, vec![]);
    let first = plan(&["ab", "ba", "c"], "?x", 9);
    let second = plan(&["ac", "bc", "cb"], "?yz", 9);
    assert_eq!(bench.run(&first).unwrap().cached_tokens, 0);
    let outcome = bench.run(&second).unwrap();
    assert_eq!(outcome.scores, directly(&second));
    assert_eq!(outcome.cached_tokens, 4 + 3 * 9, "the prompt prefix, and each passage as the first");
    assert_eq!(outcome.tokens, second.cost().tokens - outcome.cached_tokens);
    assert_eq!(bench.settled_cells(), 4, "the prompt prefix");
    let figures = bench.scheduler.store().unwrap().figures();
    // Three first passages and two second ones; then three first ones again, and three other second ones.
    assert_eq!((figures.hits, figures.misses), (3, 5 + 3));
}

/// It would evict the passages of requests.
#[test]
fn idle_work_leaves_the_passage_cache_as_it_is() {
    let bench = bench(PLENTY, Duration::ZERO, vec![]);
    let list = plan(&["ab", "ba", "c"], "?x", 9);
    let idle = Admission::new(1).while_idle("Idle").unwrap();
    let outcome = bench.runtime.block_on(bench.scheduler.run(Arc::clone(&list), &idle, None)).unwrap();
    assert_eq!(outcome.scores, directly(&list));
    let figures = bench.scheduler.store().unwrap().figures();
    assert_eq!((figures.states, figures.hits + figures.misses), (0, 0));
}

#[test]
fn the_speed_of_idle_work_is_not_measured() {
    let bench = bench(0, Duration::ZERO, vec![]);
    let (list, stats) = (plan(&["ab", "ba", "c"], "?x", 9), bench.scheduler.stats());
    let idle = Admission::new(1).while_idle("Idle").unwrap();
    bench.runtime.block_on(bench.scheduler.run(Arc::clone(&list), &idle, None)).unwrap();
    assert!(stats.tokens.load(Ordering::SeqCst) > 0 && stats.reading_speed().is_none());
    bench.run(&list).unwrap();
    assert!(stats.reading_speed().is_some());
}

#[test]
fn a_request_whose_passages_are_kept_fills_its_steps() {
    let bench = bench(PLENTY, Duration::ZERO, vec![]);
    let list = plan(&["a", "b", "c", "d", "e", "f"], "?xy", 15);
    bench.run(&list).unwrap();
    let again = bench.run(&list).unwrap();
    assert_eq!(again.tokens, 6 * 2);
    assert_eq!(again.steps, 1, "twelve rows beside ninety cells, in batches of 32");
}

#[test]
fn states_that_take_longer_to_move_than_to_read_are_kept_where_they_were_asked_for() {
    let bench = bench(PLENTY, Duration::ZERO, vec![Fault::ExpensiveStates]);
    let list = plan(&["ab", "ba", "c"], "?x", 9);
    for cached in [0, 4, 4] {
        assert_eq!(bench.run(&list).unwrap().cached_tokens, cached, "the prompt prefix alone");
    }
    assert_eq!(bench.observed.saved.load(Ordering::SeqCst), 0);
    let keys = bench.scheduler.store().unwrap().keys(&list);
    bench.runtime.block_on(bench.scheduler.fill(Arc::clone(&list), keys, &Call::local())).unwrap();
    let outcome = bench.run(&list).unwrap();
    let passages = 5;
    assert_eq!((outcome.cached_tokens, outcome.scores), (4 + passages * 9, directly(&list)));
}

#[test]
fn a_deep_prefix_is_kept_at_its_second_sight() {
    let bench = bench(PLENTY, Duration::ZERO, vec![]);
    let twice = plan(&["abcd", "dcba"], "?x", 40);
    let read: Vec<usize> = (0..4).map(|_| bench.run(&twice).unwrap().tokens).collect();
    let query = 2;
    assert_eq!(read[0], twice.cost().tokens);
    assert_eq!(read[1], 2 * 3 * 40 + query, "the first passages are kept");
    assert_eq!(read[2..], [query, query], "then the others, too");
}

#[test]
fn a_short_segment_after_the_first_passage_is_kept_at_once() {
    let bench = bench(PLENTY, Duration::ZERO, vec![]);
    let mut with_cue = Plan::new();
    for passage in [[5; 30], [6; 30]] {
        let segments = [vec![1; 4], passage.to_vec(), vec![9; 7]].map(Segment::context);
        with_cue.add(&[segments.to_vec(), vec![Segment::scored([7, 8, 8], 1)]].concat());
    }
    let with_cue = Arc::new(with_cue);
    bench.run(&with_cue).unwrap();
    let again = bench.run(&with_cue).unwrap();
    assert_eq!((again.tokens, again.scores), (2 * 2, directly(&with_cue)));
}

/// Scored passages between a prompt prefix, a cue and a scored query, as in Bayes saliency.
fn joint(passages: &[Vec<Token>], query: &[Token]) -> Arc<Plan> {
    let mut plan = Plan::new();
    for passage in passages {
        plan.add(&[
            Segment::context(vec![1; 4]),
            Segment::scored(passage.clone(), 0),
            Segment::context(vec![9; 3]),
            Segment::scored(query.to_vec(), 1),
        ]);
    }
    Arc::new(plan)
}

#[test]
fn the_scores_of_a_passage_are_kept_with_its_state() {
    let bench = bench(PLENTY, Duration::ZERO, vec![]);
    let passages: Vec<Vec<Token>> = vec![(0..30).collect(), (10..45).collect()];
    let first = joint(&passages, &[7, 8, 8]);
    assert_eq!(bench.run(&first).unwrap().scores, directly(&first));
    let second = joint(&passages, &[7, 5, 6, 4]);
    let warm = bench.run(&second).unwrap();
    assert_eq!(warm.scores, directly(&second));
    assert_eq!(warm.tokens, 2 * 3, "the prompt prefix is not read for logits that are known");
    let mixed = joint(&[passages[0].clone(), (40..60).collect()], &[7, 8]);
    let outcome = bench.run(&mixed).unwrap();
    assert_eq!(outcome.scores, directly(&mixed));
    assert_eq!(outcome.cached_tokens, 30 + 3, "the prompt prefix's last logits score the passage that is new");
    assert_eq!(bench.settled_cells(), 4, "the prompt prefix");
}

#[test]
fn scores_are_kept_apart_from_the_state_alone() {
    let bench = bench(PLENTY, Duration::ZERO, vec![]);
    let passage: Vec<Token> = (0..30).collect();
    let mut plain = Plan::new();
    plain.add(&[Segment::context(vec![1; 4]), Segment::context(passage.clone()), Segment::scored([7, 8], 1)]);
    let plain = Arc::new(plain);
    let scored = joint(&[passage], &[7, 8]);
    for plan in [&plain, &scored, &plain, &scored] {
        assert_eq!(bench.run(plan).unwrap().scores, directly(plan));
    }
    assert_eq!(bench.scheduler.store().unwrap().figures().states, 3, "the passage twice, and the cue");
}

#[test]
fn the_scores_stay_where_the_state_cannot_be_restored() {
    let bench = bench(PLENTY, Duration::ZERO, vec![Fault::Restore(1)]);
    let plan = joint(&[(0..30).collect()], &[7, 8, 8]);
    bench.run(&plan).unwrap();
    let outcome = bench.run(&plan).unwrap();
    assert_eq!(outcome.scores, directly(&plan));
    assert_eq!(outcome.tokens, 30 + 2);
}

#[test]
fn states_behind_scores_that_are_no_numbers_are_dropped() {
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (seen, honest) = (Arc::clone(&broken), overlap_script());
    let script: Arc<crate::scripted::Script> =
        Arc::new(
            move |before: &[Token], token: Token| {
                if seen.load(Ordering::SeqCst) { f64::NAN } else { honest(before, token) }
            },
        );
    let bench = bench_of(PLENTY, Duration::ZERO, vec![], &script);
    let plan = plan(&["a", "b"], "?x", 30);
    assert!(bench.run(&plan).is_err());
    assert_eq!(bench.scheduler.store().unwrap().figures().states, 0);
    broken.store(false, Ordering::SeqCst);
    // The cache is empty, too: the prompt prefix was cached, and failed every later request of the method.
    let outcome = bench.run(&plan).unwrap();
    assert_eq!((&outcome.scores, outcome.cached_tokens), (&directly(&plan), 0));
    assert_eq!(bench.observed.cleared.load(Ordering::SeqCst), 1);
    assert_eq!(bench.scheduler.store().unwrap().figures().states, 2);
    assert!(bench.run(&plan).unwrap().cached_tokens > 0);
    assert_eq!(bench.observed.cleared.load(Ordering::SeqCst), 1, "once");
}

/// If a caller left after the first NaN score, the states and the prompt prefix of its request stayed for the next
/// one.
#[test]
fn what_a_broken_request_made_is_dropped_when_its_caller_leaves() {
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (seen, honest) = (Arc::clone(&broken), overlap_script());
    let script: Arc<crate::scripted::Script> =
        Arc::new(
            move |before: &[Token], token: Token| {
                if seen.load(Ordering::SeqCst) { f64::NAN } else { honest(before, token) }
            },
        );
    let bench = bench_of(PLENTY, Duration::from_millis(1), vec![], &script);
    let long = plan(&["a", "bcdef", "fedcb"], "?x", 30);
    bench.runtime.block_on(async {
        let call = Call::local();
        let run = bench.scheduler.run(Arc::clone(&long), &call, None);
        // After the first path, whichever it is, and before the last.
        let scored = async {
            while bench.observed.tokens.load(Ordering::SeqCst) < 200 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! { _ = run => {}, () = scored => {} }
    });
    bench.settled_cells();
    broken.store(false, Ordering::SeqCst);
    let next = plan(&["a"], "?x", 30);
    let outcome = bench.run(&next).unwrap();
    assert_eq!((&outcome.scores, outcome.cached_tokens), (&directly(&next), 0));
}

/// They stayed, and every later answer with the same passage failed, too.
#[test]
fn states_behind_draws_that_cannot_be_made_are_dropped() {
    let script: Arc<crate::scripted::Script> = Arc::new(|_: &[Token], _: Token| f64::NAN);
    let bench = bench_of(PLENTY, Duration::ZERO, vec![], &script);
    let mut plan = Plan::new();
    let segments = ["open", "aaaaaaaaaa", "answer"]
        .map(|text| Segment::context(text.bytes().map(Token::from).collect::<Vec<_>>()));
    let path = plan.add(&segments);
    let grow = sampled(&["x"], 1, 4, 1).0.grow(NodeId(2)).unwrap().clone();
    plan.sample(path[2], grow);
    let error = bench.run(&Arc::new(plan)).unwrap_err().to_string();
    assert!(error.contains("not finite"), "{error}");
    assert_eq!(bench.scheduler.store().unwrap().figures().states, 0);
}

#[test]
fn nothing_is_kept_without_memory() {
    let bench = bench(0, Duration::ZERO, vec![]);
    let plan = plan(&["ab", "ba"], "?x", 9);
    let outcomes = [bench.run(&plan).unwrap(), bench.run(&plan).unwrap()];
    assert_eq!(outcomes.map(|outcome| outcome.cached_tokens), [0, 0]);
    assert_eq!((bench.settled_cells(), bench.observed.saved.load(Ordering::SeqCst)), (0, 0));
}

#[test]
fn an_opening_gives_way_to_a_request_that_needs_the_room() {
    let bench = bench(PLENTY, Duration::ZERO, vec![]);
    bench.run(&plan(&["a"], "?x", 30)).unwrap();
    assert_eq!(bench.settled_cells(), 4);
    let mut other = Plan::new();
    other.add(&[Segment::context(vec![3; 397]), Segment::scored([1, 2, 3], 1)]);
    let other = Arc::new(other);
    assert_eq!(bench.run(&other).unwrap().scores, directly(&other));
    assert_eq!(bench.settled_cells(), 0, "a prompt prefix above an eighth of the cells is not kept");
}

/// Requests may bring their own prompt prefixes. Many of them do not evict the one in regular use.
#[test]
fn prefixes_of_many_callers_stay_within_their_share() {
    let bench = bench(PLENTY, Duration::ZERO, vec![]);
    let usual = plan(&["a"], "?x", 9);
    bench.run(&usual).unwrap();
    for caller in 0..40 {
        let mut own = Plan::new();
        own.add(&[Segment::context(vec![100 + caller; 12]), Segment::context(vec![5; 9]), Segment::scored([7, 8], 1)]);
        let own = Arc::new(own);
        let outcome = bench.run(&own).unwrap();
        assert_eq!((outcome.scores, outcome.cached_tokens), (directly(&own), 0));
        assert_eq!(bench.run(&own).unwrap().cached_tokens, 12 + 9, "a caller's prompt prefix is kept as any other");
        assert!(bench.settled_cells() <= CAPACITY.cells / 8, "{}", bench.settled_cells());
        if caller % 3 == 2 {
            assert_eq!(bench.run(&usual).unwrap().cached_tokens, 4 + 9);
        }
    }
}

/// A store of ten states of nine tokens, full of earlier passages.
fn full() -> Bench {
    let bench = bench(400, Duration::ZERO, vec![]);
    let popular = plan(&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"], "?x", 9);
    (0..3).for_each(|_| assert_eq!(bench.run(&popular).unwrap().scores, directly(&popular)));
    assert_eq!(bench.scheduler.store().unwrap().figures().states, 10);
    bench
}

#[test]
fn a_later_round_restores_what_an_earlier_one_read_also_where_the_store_is_full() {
    let bench = full();
    let (first, second) = (plan(&["k", "l", "m", "n"], "?x", 9), plan(&["kl", "nk"], "?x", 9));
    let run = |plan: &Arc<Plan>, rounds: &Rounds, shares| {
        let call = Call::local();
        let round = bench.scheduler.run_round(Arc::clone(plan), &call, None, rounds.of(shares, false));
        let outcome = bench.runtime.block_on(round).unwrap();
        assert_eq!(outcome.scores, directly(plan));
        outcome.cached_tokens
    };
    let rounds = bench.scheduler.rounds();
    assert_eq!(run(&first, &rounds, 1), 4, "the prompt prefix");
    assert_eq!(run(&second, &rounds, 0), 4 + 9, "a quarter of the bound has room for k and l, not for n");
    assert_eq!(run(&second, &bench.scheduler.rounds(), 0), 4, "another request has nothing of it");
    let other = plan(&["n", "m"], "?x", 9);
    assert_eq!((run(&other, &rounds, 1), run(&other, &rounds, 0)), (4, 4 + 2 * 9), "k and l make room");
    drop(rounds);
    let rounds = bench.scheduler.rounds();
    run(&first, &rounds, 0);
    assert_eq!(bench.scheduler.store().unwrap().figures().held, 0, "after the last round");
    run(&first, &rounds, 1);
    assert!(bench.scheduler.store().unwrap().figures().held > 0);
    drop(rounds);
    wait_for(|| bench.scheduler.store().unwrap().figures().held == 0);
}

/// Waits until the worker drops objects that the test no longer holds.
fn wait_for(done: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < until, "still held");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A prefix of two passages is cached for other requests at its second evaluation, but held for the next round at
/// once if that may begin with it.
#[test]
fn a_later_round_restores_longer_prefixes_at_their_second_sight() {
    let bench = bench(1 << 20, Duration::ZERO, vec![]);
    for (orders, shares, cached) in [(["abc", "abd"], 2, 4 + 2 * 40), (["efg", "efh"], 1, 4 + 40)] {
        let (call, rounds) = (Call::local(), bench.scheduler.rounds());
        let run = |plan: &Arc<Plan>, shares| {
            let round = bench.scheduler.run_round(Arc::clone(plan), &call, None, rounds.of(shares, false));
            let outcome = bench.runtime.block_on(round).unwrap();
            assert_eq!(outcome.scores, directly(plan));
            outcome.cached_tokens
        };
        run(&plan(&[&orders[0][..2], "i"], "?x", 40), shares);
        assert_eq!(run(&plan(&orders, "?x", 40), 0), cached);
    }
}

#[test]
fn a_state_of_an_earlier_round_that_cannot_be_restored_is_read_again() {
    let bench = bench(400, Duration::ZERO, vec![Fault::Restore(1)]);
    let popular = plan(&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"], "?x", 9);
    bench.run(&popular).unwrap();
    let (call, rounds, new) = (Call::local(), bench.scheduler.rounds(), plan(&["k"], "?x", 9));
    let cached = [1, 1, 0].map(|shares| {
        let round = bench.scheduler.run_round(Arc::clone(&new), &call, None, rounds.of(shares, false));
        let outcome = bench.runtime.block_on(round).unwrap();
        assert_eq!(outcome.scores, directly(&new));
        outcome.cached_tokens
    });
    assert_eq!(cached, [4, 4, 4], "the broken state is dropped, not tried again");
}

#[test]
fn eviction_under_pressure_stays_within_the_bound_and_correct() {
    // Four states of nine tokens, forty bytes each.
    let bench = bench(160, Duration::ZERO, vec![]);
    for turn in 0..40_usize {
        let orders: Vec<String> =
            (0..4).map(|at| char::from(b'a' + u8::try_from((turn * at * at + at) % 14).unwrap()).into()).collect();
        let plan = plan(&orders.iter().map(String::as_str).collect::<Vec<_>>(), "?x", 9);
        let outcome = bench.run(&plan).unwrap();
        assert_eq!(outcome.scores, directly(&plan));
        assert_eq!(outcome.tokens + outcome.cached_tokens, plan.cost().tokens);
        assert!(bench.scheduler.store().unwrap().figures().bytes <= 160);
    }
    let figures = bench.scheduler.store().unwrap().figures();
    assert!(figures.evictions > 0 && figures.hits > 40, "{figures:?}");
}

#[test]
fn a_state_that_cannot_be_restored_is_read_again() {
    let bench = bench(PLENTY, Duration::ZERO, vec![Fault::Restore(2)]);
    let plan = plan(&["a", "b", "c"], "?x", 40);
    let cold = bench.run(&plan).unwrap();
    let faulty = bench.run(&plan).unwrap();
    assert_eq!((&faulty.scores, &cold.scores), (&directly(&plan), &directly(&plan)));
    assert_eq!(faulty.cached_tokens, 4 + 2 * 40);
    assert_eq!(faulty.tokens + faulty.cached_tokens, cold.tokens);
    let states = bench.scheduler.store().unwrap().figures().states;
    assert_eq!(states, 2, "the state is dropped");
    assert_eq!(
        bench.run(&plan).unwrap().cached_tokens,
        4 + 2 * 40,
        "its passage was read outside a step, and is not saved"
    );
    assert_eq!(bench.settled_cells(), 4);
}

#[test]
fn a_state_that_cannot_be_saved_is_read_again() {
    let bench = bench(PLENTY, Duration::ZERO, vec![Fault::Save(1)]);
    let plan = plan(&["a", "b", "c"], "?x", 40);
    bench.run(&plan).unwrap();
    let second = bench.run(&plan).unwrap();
    assert_eq!((second.cached_tokens, second.scores), (4 + 2 * 40, directly(&plan)));
    assert_eq!(bench.run(&plan).unwrap().cached_tokens, 4 + 3 * 40);
}

#[test]
fn a_cancelled_request_leaves_no_cells() {
    let bench = bench(PLENTY, Duration::from_millis(1), vec![]);
    bench.run(&plan(&["a", "b"], "?x", 40)).unwrap();
    let orders = [["a", "b", "c", "d", "e"], ["a", "b", "f", "g", "h"], ["a", "b", "i", "j", "k"]];
    for (patience, order) in [20, 45, 70].into_iter().zip(orders) {
        let long = plan(&order, "?x", 40);
        bench.runtime.block_on(async {
            let call = Call::local();
            let run = bench.scheduler.run(Arc::clone(&long), &call, None);
            assert!(tokio::time::timeout(Duration::from_millis(patience), run).await.is_err());
        });
        assert_eq!(bench.settled_cells(), 4, "the prompt prefix");
        assert_eq!(bench.run(&long).unwrap().scores, directly(&long));
    }
}

#[test]
fn a_deadline_that_only_kept_states_can_meet_is_accepted() {
    let bench = bench(PLENTY, Duration::from_micros(500), vec![]);
    let plan = plan(&["a", "b", "c", "d", "e", "f"], "?x", 50);
    bench.run(&plan).unwrap();
    let deadline = Some(Instant::now() + Duration::from_millis(60));
    let outcome = bench.runtime.block_on(bench.scheduler.run(Arc::clone(&plan), &Call::local_with(deadline), None));
    assert_eq!(outcome.unwrap().tokens, 6, "300 tokens would take at least 75 ms");
}
