//! Faults of one request that must not reach the others.

use super::*;
use crate::plan::Finish;

struct Never;

impl Stop for Never {
    fn ended(&self, _: &[Token]) -> Option<Finish> {
        None
    }
}

/// Letter (u): the script of one request gives no logits after `!`; its sample failed the whole step.
#[test]
fn a_sample_that_cannot_be_drawn_fails_its_own_request_only() {
    let broken: Arc<crate::scripted::Script> =
        Arc::new(
            |history, token| {
                if history.contains(&Token::from(b'!')) { f64::NAN } else { overlap_script()(history, token) }
            },
        );
    let bench = bench_of(0, Duration::ZERO, vec![], &broken);
    let sampling = |prompt: &str| {
        let mut plan = Plan::new();
        let node = plan.add(&[Segment::context(prompt.bytes().map(Token::from).collect::<Vec<_>>())])[0];
        let stop = Arc::new(Never);
        plan.sample(node, Grow { sampling: Sampling::default(), most: 12, seed: 3, stop, allowed: None });
        Arc::new(plan)
    };
    let (good, bad, scored) = (sampling("abc"), sampling("ab!"), plan(&["ab", "ba"], "?x", 9));
    let call = Call::local();
    let (good, bad, scores) = bench.runtime.block_on(async {
        let run = |plan: &Arc<Plan>| bench.scheduler.run(Arc::clone(plan), &call, None);
        tokio::join!(run(&good), run(&bad), run(&scored))
    });
    assert_eq!(good.unwrap().samples.len(), 1);
    assert!(matches!(bad, Err(ScheduleError::Model(ModelError::Decode(problem))) if problem.contains("not finite")));
    assert_eq!(scores.unwrap().scores, directly(&scored));
    // The unevaluated tokens of a failed request count for its call until the call ends, or a later request
    // evaluates as many. Three requests that arrive together may run in any order.
    drop(call);
    assert_eq!(bench.settled_cells(), 0);
    // Requests that were admitted meanwhile end before the cache is emptied.
    assert_eq!(bench.run(&scored).unwrap().scores, directly(&scored));
    assert_eq!(bench.observed.cleared.load(Ordering::SeqCst), 1);
}

/// A job for a plan, and the receiver of its answer.
fn job(plan: &Arc<Plan>) -> (Job, oneshot::Receiver<Result<Outcome, ScheduleError>>) {
    let (reply, answer) = oneshot::channel();
    let job = Job {
        samples: false,
        cost: plan.cost(),
        plan: Arc::clone(plan),
        keys: Vec::new(),
        held: warm::Held::default(),
        shares: 0,
        fills: false,
        expected: 0,
        since: Instant::now(),
        optional: false,
        arrival: Instant::now(),
        call: Call::local(),
        queued: None,
        events: None,
        reply,
        ledger: Ledger::default(),
    };
    (job, answer)
}

/// Letter (t): a missing sequence was taken for sequence 0, which may be another caller's.
#[test]
fn a_missing_sequence_is_an_error_and_never_sequence_0() {
    let plan = plan(&["ab"], "?x", 3);
    let (job, _answer) = job(&plan);
    let mut active = active::Active::new(job, Walk::new(plan, 100, 4), 100, 4);
    let mut free = vec![7];
    assert_eq!(active.hold(0, &mut free), Ok(7));
    assert_eq!(active.hold(0, &mut free), Ok(7), "held already");
    assert!(active.hold(1, &mut free).is_err());
}
