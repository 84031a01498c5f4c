//! Hit rates on traces of passages: the store's policy, least recently used, and the optimum that knows the future (Belady).

use std::collections::{BTreeSet, HashMap};

use prefix_scheduler::warm::Key;
use prefix_scheduler::warm::policy::{Candidate, Policy};

use crate::report::Line;
use crate::texts::zipf;

/// Number of states of 60-token passages of the default generator in 512 MiB: 23,040 bytes per token and 12 per cell.
const FIT: usize = (512 << 20) / ((60 + 7) * 23_052);

pub fn run() {
    for (name, trace) in [("300 requests", zipf(300, 10, 2_000)), ("30,000 requests", zipf(30_000, 10, 2_000))] {
        let ours = policy(&trace, FIT);
        let (lru, best) = (least_recently_used(&trace, FIT), optimum(&trace, FIT));
        let what =
            |which: &str| format!("simulated hit rate, Zipf 1.0 over 2,000 passages, {FIT} fit, {name}: {which}");
        Line::new(&what("the store"), ours, "").ratio(ours / lru).print();
        Line::new(&what("least recently used"), lru, "").print();
        Line::new(&what("optimum (Belady)"), best, "").ratio(ours / best).print();
    }
}

fn rate(hits: usize, trace: &[Vec<usize>]) -> f64 {
    hits as f64 / trace.iter().map(Vec::len).sum::<usize>() as f64
}

/// The store's own policy, over passages of one size.
pub fn policy(trace: &[Vec<usize>], fit: usize) -> f64 {
    const BYTES: u64 = 60 * 23_052;
    let mut policy = Policy::new(fit as u64 * BYTES);
    let mut hits = 0;
    for &passage in trace.iter().flatten() {
        let key = Key::of_generator(&passage.to_string());
        let candidate = Candidate { key, tokens: 60, bytes: BYTES, at_once: true };
        if policy.see(&key) {
            hits += 1;
        } else if let Some(evicted) = policy.price(&candidate, |_| false) {
            policy.admit(&candidate, &evicted);
        }
    }
    rate(hits, trace)
}

pub fn least_recently_used(trace: &[Vec<usize>], fit: usize) -> f64 {
    let (mut used, mut order, mut hits) = (HashMap::new(), BTreeSet::new(), 0);
    for (now, &passage) in trace.iter().flatten().enumerate() {
        if let Some(before) = used.insert(passage, now) {
            order.remove(&(before, passage));
            hits += 1;
        } else if used.len() > fit {
            let (_, oldest) = order.pop_first().unwrap();
            used.remove(&oldest);
        }
        order.insert((now, passage));
    }
    rate(hits, trace)
}

/// Keeps the passages whose next use is nearest. A newcomer with a later next use than all of them is not kept.
pub fn optimum(trace: &[Vec<usize>], fit: usize) -> f64 {
    let flat: Vec<usize> = trace.iter().flatten().copied().collect();
    let mut next = vec![usize::MAX; flat.len()];
    let mut later = HashMap::new();
    for (at, &passage) in flat.iter().enumerate().rev() {
        next[at] = later.insert(passage, at).unwrap_or(usize::MAX);
    }
    let (mut due, mut order, mut hits) = (HashMap::new(), BTreeSet::new(), 0);
    for (at, &passage) in flat.iter().enumerate() {
        if let Some(before) = due.insert(passage, next[at]) {
            order.remove(&(before, passage));
            hits += 1;
        }
        order.insert((next[at], passage));
        if due.len() > fit {
            let (_, farthest) = order.pop_last().unwrap();
            due.remove(&farthest);
        }
    }
    rate(hits, trace)
}
