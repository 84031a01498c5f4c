//! The order so far, while scores arrive: refitted each time their number has grown by half.

use std::collections::HashMap;

use super::super::RerankEvent;
use super::Probe;
use crate::fit::{Observation, Settings, estimate};
use crate::plan::NodeId;

pub(super) struct Interim {
    passages: usize,
    settings: Settings,
    of_node: HashMap<NodeId, Vec<usize>>,
    probes: Vec<Pending>,
    complete: usize,
    next: usize,
}

struct Pending {
    order: Vec<usize>,
    sum: f64,
    missing: usize,
    /// Part of the design, or only there to settle the direction.
    counts: bool,
}

impl Interim {
    pub fn new(passages: usize, probes: &[Probe], settings: &Settings, joint: bool) -> Self {
        let mut of_node: HashMap<NodeId, Vec<usize>> = HashMap::new();
        let mut pending = Vec::new();
        for (index, probe) in probes.iter().enumerate() {
            let scored = probe.scored_nodes(joint);
            for node in scored {
                of_node.entry(*node).or_default().push(index);
            }
            let (order, missing) = (probe.order.clone(), scored.len());
            pending.push(Pending { order, sum: 0.0, missing, counts: probe.counts });
        }
        Self { passages, settings: settings.clone(), of_node, probes: pending, complete: 0, next: passages.max(2) }
    }

    /// Takes the score of a node; gives an order when enough is new.
    pub fn scored(&mut self, node: NodeId, score: f64) -> Option<RerankEvent> {
        for &probe in self.of_node.get(&node)? {
            let pending = &mut self.probes[probe];
            pending.sum += score;
            pending.missing -= 1;
            self.complete += usize::from(pending.missing == 0);
        }
        if self.complete < self.next || self.complete == self.probes.len() {
            return None;
        }
        self.next = self.complete + self.complete.div_ceil(2);
        let done = || self.probes.iter().filter(|pending| pending.missing == 0);
        let mut observations: Vec<Observation> = done()
            .filter(|pending| pending.counts)
            .map(|pending| Observation { order: pending.order.clone(), score: pending.sum })
            .collect();
        if observations.is_empty() {
            observations = done().map(|p| Observation { order: p.order.clone(), score: p.sum }).collect();
        }
        let mut anchor = vec![f64::NAN; self.passages];
        for pending in done().filter(|pending| pending.order.len() == 1) {
            anchor[pending.order[0]] = pending.sum;
        }
        let anchor = Some(anchor).filter(|scores| scores.iter().all(|score| score.is_finite()));
        let fitted = estimate(self.passages, &observations, anchor.as_deref(), &self.settings, &|| false).ok()?;
        Some(RerankEvent::Interim { order: fitted.ranking, observations: observations.len() })
    }
}
