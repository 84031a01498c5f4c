//! The real queue and thread over a scripted generator.

use std::sync::Mutex;

use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::*;
use crate::plan::{Grow, Segment, Stop, Token};
use crate::scripted::{Fault, Observed, ScriptedGenerator, overlap_script};
use crate::warm;
use numeric::sampling::Sampling;

const CAPACITY: Capacity = Capacity { cells: 400, sequences: 24, batch: 32 };

struct Bench {
    runtime: Runtime,
    scheduler: Scheduler,
    observed: Arc<Observed>,
}

fn bench(memory_bytes: u64, delay: Duration, faults: Vec<Fault>) -> Bench {
    bench_of(memory_bytes, delay, faults, &overlap_script())
}

fn bench_of(memory_bytes: u64, delay: Duration, faults: Vec<Fault>, script: &Arc<crate::scripted::Script>) -> Bench {
    let script = Arc::clone(script);
    let observed = Arc::new(Observed::default());
    let faults = Mutex::new(faults);
    let seen = Arc::clone(&observed);
    let loader: Loader = Box::new(move |serve| {
        let mut generator = ScriptedGenerator::new(CAPACITY, Arc::clone(&script), Arc::clone(&seen));
        generator.delay = delay;
        generator.fault = faults.lock().unwrap().pop();
        serve(&mut generator);
        Ok(())
    });
    let options = SchedulerOptions {
        warm: warm::Options { memory_bytes, disk: None },
        template: "1".into(),
        ..SchedulerOptions::default()
    };
    let scheduler = Scheduler::start(options, loader).unwrap();
    let runtime = Runtime::new().unwrap();
    let bench = Bench { runtime, scheduler, observed };
    bench.ready();
    bench
}

impl Bench {
    fn ready(&self) {
        let mut status = self.scheduler.status();
        self.runtime.block_on(async {
            let ready = status.wait_for(|status| matches!(status, Status::Ready(_)));
            tokio::time::timeout(Duration::from_secs(20), ready).await.unwrap().unwrap();
        });
    }

    fn run(&self, plan: &Arc<Plan>) -> Result<Outcome, ScheduleError> {
        self.runtime.block_on(self.scheduler.run(Arc::clone(plan), &Call::local(), None))
    }

    /// Waits until the worker is idle and returns the cells in use.
    fn settled_cells(&self) -> usize {
        let (stats, deadline) = (self.scheduler.stats(), Instant::now() + Duration::from_secs(20));
        let entered = || self.scheduler.ledger().total() > 0;
        while stats.waiting.load(Ordering::SeqCst) + stats.active.load(Ordering::SeqCst) > 0 || entered() {
            assert!(Instant::now() < deadline, "the worker did not come to rest");
            std::thread::sleep(Duration::from_millis(2));
        }
        self.observed.cells.load(Ordering::SeqCst)
    }
}

/// `orders` over passages made of one letter each, and a scored query.
fn plan(orders: &[&str], query: &str, length: usize) -> Arc<Plan> {
    let tokens = |text: &str| text.bytes().map(Token::from).collect::<Vec<Token>>();
    let mut plan = Plan::new();
    for order in orders {
        let mut segments = vec![Segment::context(tokens("open"))];
        segments.extend(order.chars().map(|c| Segment::context(tokens(&c.to_string().repeat(length)))));
        segments.push(Segment::scored(tokens(query), 1));
        plan.add(&segments);
    }
    Arc::new(plan)
}

/// The scores of a plan by running the full path of each node through the script.
fn directly(plan: &Plan) -> Vec<Vec<f64>> {
    let script = overlap_script();
    (0..plan.len())
        .map(NodeId)
        .map(|node| {
            let path = plan.path(node);
            let scored = plan.scored_tokens(node);
            (path.len() - scored..path.len()).map(|at| script(&path[..at], path[at])).collect()
        })
        .collect()
}

#[test]
fn scores_equal_those_of_each_sequence_alone() {
    let bench = bench(0, Duration::ZERO, vec![]);
    let plan = plan(&["abcd", "abdc", "dcba", "badc", "a"], "?dab", 9);
    let outcome = bench.run(&plan).unwrap();
    assert_eq!(outcome.scores, directly(&plan));
    assert_eq!(outcome.tokens, plan.cost().tokens);
    assert_eq!(bench.settled_cells(), 0);
}

#[test]
fn what_can_never_fit_is_refused_with_numbers() {
    let bench = bench(0, Duration::ZERO, vec![]);
    let error = bench.run(&plan(&["a"], "?x", 500)).unwrap_err();
    assert_eq!(error, ScheduleError::TooLarge { what: "cells", needed: 506, available: 400 });
}

#[test]
fn a_dropped_future_stops_the_work_within_a_step() {
    let bench = bench(0, Duration::from_millis(1), vec![]);
    let long = plan(&["abcdef", "fedcba"], "?x", 40);
    bench.runtime.block_on(async {
        let call = Call::local();
        let run = bench.scheduler.run(Arc::clone(&long), &call, None);
        assert!(tokio::time::timeout(Duration::from_millis(80), run).await.is_err());
    });
    assert_eq!(bench.settled_cells(), 0);
    assert!(bench.observed.tokens.load(Ordering::SeqCst) < long.cost().tokens / 2);
    assert_eq!(bench.scheduler.stats().abandoned.load(Ordering::SeqCst), 1);
}

#[test]
fn a_deadline_ends_the_work_in_the_middle() {
    let bench = bench(0, Duration::from_millis(1), vec![]);
    let long = plan(&["abcdef", "fedcba"], "?x", 40);
    let deadline = Some(Instant::now() + Duration::from_millis(80));
    let error = bench.runtime.block_on(bench.scheduler.run(long, &Call::local_with(deadline), None)).unwrap_err();
    assert_eq!(error, Stopped::DeadlineExceeded.into());
    assert_eq!(bench.settled_cells(), 0);
}

#[test]
fn a_deadline_that_cannot_be_met_is_refused_before_work() {
    let bench = bench(0, Duration::from_micros(500), vec![]);
    let long = plan(&["abcdef", "fedcba"], "?x", 60);
    bench.run(&plan(&["abcd", "dcba"], "?x", 60)).unwrap();
    let before = bench.observed.steps.load(Ordering::SeqCst);
    let deadline = Some(Instant::now() + Duration::from_millis(5));
    let error = bench.runtime.block_on(bench.scheduler.run(long, &Call::local_with(deadline), None)).unwrap_err();
    assert_eq!(error, Stopped::DeadlineExceeded.into());
    assert_eq!(bench.observed.steps.load(Ordering::SeqCst), before);
}

#[test]
fn a_failed_step_fails_its_requests_and_no_others() {
    let bench = bench(1_000, Duration::ZERO, vec![Fault::Error(2)]);
    let plan = plan(&["abc", "cba"], "?x", 20);
    assert!(matches!(bench.run(&plan), Err(ScheduleError::Model(_))));
    assert_eq!(bench.settled_cells(), 0);
    assert_eq!(bench.run(&plan).unwrap().scores, directly(&plan));
    assert_eq!(bench.observed.built.load(Ordering::SeqCst), 1);
}

#[test]
fn a_worker_that_panics_is_replaced() {
    let bench = bench(0, Duration::ZERO, vec![Fault::Panic(2)]);
    let plan = plan(&["abc", "cba"], "?x", 20);
    assert_eq!(bench.run(&plan), Err(ScheduleError::Unavailable));
    // For a moment after the crash the status may still be ready: requests are refused until the new model is
    // loaded.
    let patience = Instant::now() + Duration::from_secs(20);
    let outcome = loop {
        match bench.run(&plan) {
            Err(ScheduleError::Unavailable) if Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => break other,
        }
    };
    assert_eq!(outcome.unwrap().scores, directly(&plan));
    assert_eq!(bench.observed.built.load(Ordering::SeqCst), 2);
}

#[test]
fn events_carry_every_score_before_the_answer() {
    let bench = bench(0, Duration::ZERO, vec![]);
    let plan = plan(&["abc", "cba"], "?xy", 20);
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let outcome = bench.runtime.block_on(bench.scheduler.run(Arc::clone(&plan), &Call::local(), Some(sender))).unwrap();
    let mut scored = 0;
    let mut last = (0, 0);
    while let Ok(event) = receiver.try_recv() {
        match event {
            Event::Scored(node, scores) => {
                assert_eq!(scores, outcome.scores[node.0]);
                scored += 1;
            }
            Event::Sampled(..) => unreachable!(),
            Event::Progress { done, total } => last = (done, total),
        }
    }
    assert_eq!((scored, last), (2, (plan.cost().tokens, plan.cost().tokens)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Random requests, cancellations and failures: every answer is right, and all cells are freed.
    #[test]
    fn nothing_leaks(
        picks in proptest::collection::vec((0_usize..4, 1_usize..40, 0_u64..30, proptest::bool::weighted(0.33)), 1..14),
        fault in proptest::option::of((0_usize..3, 1_usize..30)), memory_bytes in prop_oneof![Just(0_u64), 40_u64..5_000],
    ) {
        let kinds = [Fault::Error, Fault::Save, Fault::Restore];
        let fault = fault.map(|(kind, at)| kinds[kind](at)).into_iter().collect();
        let bench = bench(memory_bytes, Duration::from_micros(20), fault);
        let shapes: [&[&str]; 4] = [&["abc", "bca", "cab"], &["ab", "ba"], &["d"], &["abcde", "edcba", "acebd"]];
        bench.runtime.block_on(async {
            let runs = picks.iter().map(|&(shape, length, wait, cancelled)| {
                let plan = plan(shapes[shape], "?xa", length);
                let scheduler = bench.scheduler.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                    let call = Call::local();
                    let run = scheduler.run(Arc::clone(&plan), &call, None);
                    let patience = if cancelled { Duration::from_millis(wait % 7) } else { Duration::from_secs(30) };
                    match tokio::time::timeout(patience, run).await {
                        Ok(Ok(outcome)) => assert_eq!(outcome.scores, directly(&plan)),
                        Ok(Err(ScheduleError::Model(_))) | Err(_) => {}
                        Ok(Err(error)) => panic!("{error}"),
                    }
                })
            });
            for run in runs.collect::<Vec<_>>() {
                run.await.unwrap();
            }
        });
        let prefixes = if memory_bytes == 0 { 0 } else { "open".len() };
        prop_assert!(bench.settled_cells() <= prefixes);
    }
}

/// Ends at this token.
struct At(Token);

impl Stop for At {
    fn ended(&self, tokens: &[Token]) -> Option<Finish> {
        (tokens.last() == Some(&self.0)).then_some(Finish::EndOfTurn)
    }
}

/// Prompts of one letter each, `count` samples after each; the samples' nodes.
fn sampled(prompts: &[&str], count: usize, most: usize, seed: u64) -> (Arc<Plan>, Vec<NodeId>) {
    let mut plan = Plan::new();
    let mut nodes = Vec::new();
    for prompt in prompts {
        let tokens: Vec<Token> = prompt.bytes().map(Token::from).collect();
        let path = plan.add(&[Segment::context(vec![1, 2]), Segment::context(tokens)]);
        for sample in 0..count {
            let grow = Grow {
                sampling: Sampling { temperature: 0.6, ..Sampling::default() },
                most,
                seed: seed + sample as u64,
                stop: Arc::new(At(97)),
                allowed: None,
            };
            nodes.push(plan.sample(path[path.len() - 1], grow));
        }
    }
    (Arc::new(plan), nodes)
}

/// A sample drawn token by token, without other work.
fn drawn_alone(plan: &Plan, node: NodeId) -> Sample {
    let (script, grow) = (overlap_script(), plan.grow(node).unwrap());
    let mut source = <rand_chacha::ChaCha8Rng as rand::SeedableRng>::seed_from_u64(grow.seed);
    let mut path = plan.path(node);
    let mut sample = Sample { tokens: Vec::new(), log_probabilities: Vec::new(), finish: Finish::Length };
    while sample.tokens.len() < grow.most {
        #[allow(clippy::cast_possible_truncation)]
        let logits: Vec<f32> = (0..258).map(|token| script(&path, token) as f32).collect();
        let uniform = numeric::sampling::unit(rand::Rng::next_u64(&mut source));
        let found = numeric::sampling::draw(&logits, &grow.sampling, uniform).unwrap();
        path.push(Token::try_from(found.token).unwrap());
        sample.tokens.push(path[path.len() - 1]);
        sample.log_probabilities.push(found.log_probability);
        if let Some(finish) = grow.stop.ended(&sample.tokens) {
            sample.finish = finish;
            break;
        }
    }
    sample
}

#[test]
fn samples_are_those_of_each_alone_whatever_else_runs() {
    let bench = bench(5_000, Duration::ZERO, vec![]);
    let (plan, nodes) = sampled(&["aab", "aaab", "c"], 5, 9, 3);
    let other = plan_of_orders();
    let (first, second) = bench.runtime.block_on(async {
        let (one, two) = (Call::local(), Call::local());
        tokio::join!(
            bench.scheduler.run(Arc::clone(&plan), &one, None),
            bench.scheduler.run(Arc::clone(&other), &two, None)
        )
    });
    assert_eq!(second.unwrap().scores, directly(&other));
    let outcome = first.unwrap();
    for &node in &nodes {
        assert_eq!(outcome.samples[&node], drawn_alone(&plan, node));
    }
    assert!(nodes.iter().any(|node| outcome.samples[node].finish == Finish::EndOfTurn));
    assert!(nodes.iter().any(|node| outcome.samples[node].finish == Finish::Length));
    let read: usize = nodes.iter().map(|node| outcome.samples[node].tokens.len() - 1).sum();
    assert_eq!(
        outcome.tokens + outcome.cached_tokens,
        2 + 3 + 4 + 1 + read,
        "the last token of a sample is never read"
    );
    assert!(outcome.tokens <= plan.cost().tokens);
    assert_eq!(bench.settled_cells(), 2 + 4, "the prompt prefixes of both");
}

fn plan_of_orders() -> Arc<Plan> {
    plan(&["abcd", "dcba"], "?dab", 9)
}

#[test]
fn samples_are_told_as_they_end_and_progress_reaches_its_end() {
    let bench = bench(0, Duration::ZERO, vec![]);
    let (plan, nodes) = sampled(&["ab"], 4, 12, 11);
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
    let outcome = bench.runtime.block_on(bench.scheduler.run(Arc::clone(&plan), &Call::local(), Some(sender))).unwrap();
    let (mut told, mut last) = (HashMap::new(), (0, 1));
    while let Ok(event) = events.try_recv() {
        match event {
            Event::Sampled(node, sample) => assert!(told.insert(node, sample).is_none()),
            Event::Progress { done, total } => last = (done, total),
            Event::Scored(..) => {}
        }
    }
    assert_eq!(told, outcome.samples);
    assert_eq!((told.len(), last.0), (nodes.len(), last.1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Samples of any number and length, some abandoned midway, in a cache that is too small for all at once.
    #[test]
    fn no_cell_of_a_sample_leaks(
        requests in proptest::collection::vec((1_usize..4, 1_usize..20, 1_usize..40, any::<u64>(), any::<bool>()), 1..6),
    ) {
        let bench = bench(0, Duration::from_micros(20), vec![]);
        let letters = ["aab", "baaa", "ccb"];
        bench.runtime.block_on(async {
            let mut work = Vec::new();
            for (prompts, count, most, seed, given_up) in &requests {
                let (plan, nodes) = sampled(&letters[..*prompts], *count, *most, *seed >> 1);
                let (scheduler, patience) = (bench.scheduler.clone(), Duration::from_millis(if *given_up { 3 } else { 20_000 }));
                work.push(tokio::spawn(async move {
                    let outcome = tokio::time::timeout(patience, scheduler.run(Arc::clone(&plan), &Call::local(), None)).await;
                    if let Ok(outcome) = outcome {
                        let outcome = outcome.unwrap();
                        for node in nodes {
                            assert_eq!(outcome.samples[&node], drawn_alone(&plan, node));
                        }
                    }
                }));
            }
            for part in work {
                part.await.unwrap();
            }
        });
        prop_assert_eq!(bench.settled_cells(), 0);
    }
}

mod constraint;
mod distribution;
mod faults;
mod overload;
mod reuse;
