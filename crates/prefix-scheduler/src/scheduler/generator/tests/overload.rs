//! More work than time: what is dropped, when, and what goes first.

use super::*;
use crate::call::{Admission, Place, Priority, Terms};

/// A generator that takes a millisecond per token, after its speed was measured.
fn warm() -> Bench {
    let bench = bench(0, Duration::from_millis(1), vec![]);
    bench.run(&plan(&["abcd", "dcba"], "?x", 20)).unwrap();
    bench
}

fn within(time: Duration) -> Call {
    Call::local_with(Some(Instant::now() + time))
}

/// It was evaluated until its deadline.
#[test]
fn a_request_that_cannot_end_in_time_is_dropped_before_it_takes_any() {
    let bench = warm();
    let long = plan(&["abcdef", "fedcba"], "?x", 60);
    let needed = Duration::from_millis(long.cost().tokens as u64);
    let steps = bench.observed.steps.load(Ordering::SeqCst);
    let started = Instant::now();
    // Above the bound of twice the best speed, but below the generator's real time.
    let error = bench.runtime.block_on(bench.scheduler.run(long, &within(needed * 6 / 10), None)).unwrap_err();
    assert_eq!(error, Stopped::DeadlineExceeded.into());
    assert!(started.elapsed() < needed / 4, "{:?} of {needed:?}", started.elapsed());
    assert_eq!(bench.observed.steps.load(Ordering::SeqCst), steps);
    assert_eq!(bench.settled_cells(), 0);
}

#[test]
fn a_waiting_request_is_dropped_when_the_time_left_no_longer_suffices() {
    let bench = warm();
    let (small, large) = (plan(&["abcdef"], "?x", 40), plan(&["abcdef", "fedcba"], "?x", 50));
    let (first, second) = (small.cost().tokens as u64, large.cost().tokens as u64);
    let (ahead, behind) = (Call::local(), within(Duration::from_millis(second + first / 4)));
    let started = Instant::now();
    let late = async {
        // The cells do not suffice for both, so the second waits.
        tokio::time::sleep(Duration::from_millis(40)).await;
        (bench.scheduler.run(Arc::clone(&large), &behind, None).await, started.elapsed())
    };
    let (served, dropped) =
        bench.runtime.block_on(async { tokio::join!(bench.scheduler.run(Arc::clone(&small), &ahead, None), late) });
    assert_eq!(served.unwrap().tokens as u64, first);
    let (outcome, after) = dropped;
    assert_eq!(outcome.unwrap_err(), Stopped::DeadlineExceeded.into());
    assert!(after < Duration::from_millis(second), "{after:?}, its deadline was after {} ms", second + first / 4);
    // Unevaluated tokens count as admitted until their call ends.
    assert!(bench.scheduler.ledger().total() > 0);
    drop((ahead, behind));
    assert_eq!(bench.settled_cells(), 0);
}

#[test]
fn samples_may_end_early_and_are_not_given_up() {
    let bench = warm();
    // They end after 8 and 5 of 200 tokens.
    let (plan, _) = sampled(&["ab"], 2, 200, 12);
    // Less than their full length takes at twice the best speed, the bound for immediate refusal.
    let time = Duration::from_millis(plan.cost().tokens as u64 * 4 / 10);
    let outcome = bench.runtime.block_on(bench.scheduler.run(plan, &within(time), None));
    assert!(outcome.is_ok(), "{outcome:?}");
}

/// They counted as work ahead of others until the call ended, which may have answers judged for minutes.
#[test]
fn what_samples_did_not_take_is_nobodys_work() {
    let bench = warm();
    let (plan, _) = sampled(&["ab"], 2, 200, 12);
    let call = Call::local();
    bench.runtime.block_on(bench.scheduler.run(Arc::clone(&plan), &call, None)).unwrap();
    assert!(call.spent() < 40, "{}", call.spent());
    assert_eq!(bench.scheduler.ledger().total(), 0);
    // The tokens reserved for them beyond that are released, too.
    let call = Call::local();
    bench.scheduler.admit(&call, 5_000, Kind::Reads).unwrap();
    bench.runtime.block_on(bench.scheduler.run(plan, &call, None)).unwrap();
    assert!(bench.scheduler.ledger().total() > 4_000);
    bench.scheduler.release_estimate(&call);
    assert_eq!(bench.scheduler.ledger().total(), 0);
}

/// Runs calls with one plan each, all at once; returns their names in the order in which they began. With the small
/// batch of these tests the followers' least share equals the leader's, so the order of their ends is not
/// informative.
fn begins(bench: &Bench, calls: &[(&'static str, Call)], plan: &Arc<Plan>) -> Vec<&'static str> {
    let runs = calls.iter().map(|(name, call)| {
        let (scheduler, plan, call, name) = (bench.scheduler.clone(), Arc::clone(plan), call.clone(), *name);
        bench.runtime.spawn(async move { (scheduler.run(plan, &call, None).await.unwrap().queued, name) })
    });
    let runs: Vec<_> = runs.collect();
    let mut begun: Vec<_> = runs.into_iter().map(|run| bench.runtime.block_on(run).unwrap()).collect();
    begun.sort();
    begun.into_iter().map(|(_, name)| name).collect()
}

#[test]
fn later_rounds_go_first_then_priority_then_the_deadline() {
    let bench = warm();
    let admission = Admission::new(64);
    let call = |level: u8, deadline: Option<u64>| {
        let deadline = deadline.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let terms = Terms { priority: Priority::new(level).unwrap(), deadline, ..Terms::default() };
        admission.admit(terms, Place::Generator).unwrap()
    };
    // One of them fits at a time.
    let plan = plan(&["abcd"], "?x", 60);
    let begun = call(9, None);
    bench.runtime.block_on(bench.scheduler.run(Arc::clone(&plan), &begun, None)).unwrap();
    assert_eq!(begun.spent(), plan.cost().tokens);
    let mut calls: Vec<_> = (0..3).map(|_| ("patient", call(5, None))).collect();
    calls.push(("late", call(5, Some(300))));
    calls.push(("soon", call(5, Some(200))));
    calls.push(("urgent", call(1, None)));
    calls.push(("begun", begun));
    // The most urgent one runs until all others wait.
    let first = call(0, None);
    let (scheduler, long) = (bench.scheduler.clone(), self::plan(&["abcdef"], "?x", 60));
    let holds = bench.runtime.spawn(async move { scheduler.run(long, &first, None).await });
    std::thread::sleep(Duration::from_millis(30));
    let order = begins(&bench, &calls, &plan);
    bench.runtime.block_on(holds).unwrap().unwrap();
    assert_eq!(order, ["begun", "urgent", "soon", "late", "patient", "patient", "patient"]);
    drop(calls);
    assert_eq!((bench.settled_cells(), admission.in_flight()), (0, 0));
}

/// The lists of a call that scores many at once counted as later rounds after its first step, and went before all
/// other calls.
#[test]
fn lists_of_one_call_leave_others_their_turn() {
    let bench = warm();
    let admission = Admission::new(64);
    let call = |level: u8| {
        let terms = Terms { priority: Priority::new(level).unwrap(), ..Terms::default() };
        admission.admit(terms, Place::Generator).unwrap()
    };
    // Three of them fit, or one.
    for (length, fit) in [(30, 3), (80, 1)] {
        let (plan, many) = (plan(&["abcd"], "?x", length), call(8));
        let mut calls = vec![("many", many); 10];
        calls.push(("urgent", call(0)));
        let order = begins(&bench, &calls, &plan);
        let place = order.iter().position(|name| *name == "urgent").unwrap();
        assert!(place <= 2 * fit, "{fit} fit: {order:?}");
        drop(calls);
        assert_eq!((bench.settled_cells(), admission.in_flight()), (0, 0));
    }
}

/// Rankings were counted at the speed of another caller's samples, and refused although they would end in time.
#[test]
fn prompts_are_let_in_beside_samples() {
    let bench = warm();
    // One sample at a time, one token per step.
    for _ in 0..400 {
        bench.scheduler.stats().pace.record(1, Duration::from_millis(20), false);
    }
    let admission = Admission::new(8);
    let call = || {
        let deadline = Some(Instant::now() + Duration::from_secs(3));
        admission.admit(Terms { deadline, ..Terms::default() }, Place::Generator).unwrap()
    };
    let samples = call();
    bench.scheduler.admit(&samples, 600, Kind::Draws).unwrap();
    bench.scheduler.admit(&call(), 600, Kind::Reads).unwrap();
    assert!(bench.scheduler.admit(&call(), 600, Kind::Draws).is_err(), "samples wait for samples");
}

#[test]
fn admission_counts_what_others_reserved_and_gives_it_back() {
    let bench = warm();
    let admission = Admission::new(8);
    let call = |time: u64, priority| {
        let deadline = Some(Instant::now() + Duration::from_millis(time));
        admission.admit(Terms { priority, deadline, ..Terms::default() }, Place::Generator).unwrap()
    };
    let (normal, reads) = (Priority::NORMAL, Kind::Reads);
    let first = call(1_000, normal);
    bench.scheduler.admit(&first, 500, reads).unwrap();
    assert_eq!(bench.scheduler.ledger().total(), 500);
    let second = call(1_100, normal);
    let refused = bench.scheduler.admit(&second, 500, reads).unwrap_err();
    let ScheduleError::Overloaded { retry_after } = refused else { panic!("{refused}") };
    assert!(retry_after > Duration::from_millis(50) && retry_after < Duration::from_secs(1), "{retry_after:?}");
    bench.scheduler.admit(&call(2_000, normal), 500, reads).unwrap();
    bench.scheduler.admit(&call(900, normal), 500, reads).expect("its deadline is earlier");
    bench.scheduler.admit(&call(1_100, Priority::HIGH), 500, reads).expect("it is more urgent");
    let hopeless = bench.scheduler.admit(&call(100, normal), 900, reads);
    assert_eq!(hopeless, Err(Stopped::DeadlineExceeded.into()), "not even alone");
    bench.scheduler.admit_unread(&call(300, normal)).expect("its deadline is the earliest");
    assert!(bench.scheduler.admit_unread(&call(300, Priority::LOW)).is_err());
    bench.scheduler.admit_unread(&call(2_000, Priority::LOW)).unwrap();
    drop(first);
    assert_eq!(bench.scheduler.ledger().total(), 0, "the second was not entered, and the others have ended");
    bench.scheduler.admit(&second, 500, reads).unwrap();
    bench.scheduler.admit(&Call::local_with(Some(Instant::now())), 1_000_000, reads).unwrap();
}

/// A request that gains nothing by being active blocked one that gains.
#[test]
fn a_short_request_passes_a_long_one_that_may_wait() {
    let bench = warm();
    // All of them fit. The second one gains nothing while more than a batch of the first is left.
    let [first, second, third] = [plan(&["abcd"], "?x", 30), plan(&["abcd"], "?x", 35), plan(&["a"], "?x", 10)];
    let run = |plan: Arc<Plan>, after: u64| {
        let scheduler = bench.scheduler.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(after)).await;
            scheduler.run(plan, &Call::local(), None).await.unwrap();
            Instant::now()
        }
    };
    let (first, second, third) =
        bench.runtime.block_on(async { tokio::join!(run(first, 0), run(second, 10), run(third, 15)) });
    assert!(third < first && first < second);
}
