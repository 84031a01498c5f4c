//! State of a running request: its walk, its sequences, its scores and samples.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::queue::{Phase, View};
use super::stepper::lost;
use super::{Event, Job, Outcome, Sample, ScheduleError};
use crate::call::{Stage, Timed};
use crate::model::{Draw, DrawnToken, ModelError};
use crate::plan::{Finish, NodeId, Step, Walk};
use crate::warm::{Key, State};
use numeric::sampling::unit;

pub(super) struct Active {
    pub job: Job,
    pub walk: Walk,
    /// Cells granted at admission.
    pub cells: usize,
    /// Sequences granted at admission.
    pub sequences: usize,
    /// Maps the walk's sequence numbers to the generator's.
    pub held: HashMap<usize, usize>,
    /// The step in evaluation.
    pub step: Step,
    /// States that the walk will restore.
    pub states: HashMap<NodeId, Restorable>,
    admitted: Instant,
    scoring: Timed,
    /// True if the plan has samples. Stored, because every step needs it and computing it scans all nodes.
    has_samples: bool,
    /// Log-probabilities by node. NaN before evaluation.
    scores: Vec<Vec<f64>>,
    /// True if an evaluated score is not a number.
    broken: bool,
    samples: HashMap<NodeId, Growing>,
    distributions: HashMap<NodeId, Vec<f32>>,
    missing: Vec<usize>,
    evaluated: usize,
    cached: usize,
    steps: usize,
    /// Tokens of its latest step.
    latest: usize,
}

/// A saved state that was found for a request.
pub(super) struct Restorable {
    pub key: Key,
    pub state: State,
    /// Bytes of its cells. The log-probabilities after them are already recorded.
    pub cells: usize,
}

/// An unfinished sample and its random number generator.
struct Growing {
    sample: Sample,
    source: ChaCha8Rng,
}

impl Growing {
    fn new(seed: u64) -> Self {
        let sample = Sample { tokens: Vec::new(), log_probabilities: Vec::new(), finish: Finish::Length };
        Self { sample, source: ChaCha8Rng::seed_from_u64(seed) }
    }
}

impl Active {
    pub fn new(mut job: Job, walk: Walk, cells: usize, sequences: usize) -> Self {
        drop(job.queued.take());
        let scoring = job.call.stage(Stage::Score);
        let counts: Vec<usize> = (0..job.plan.len()).map(|node| job.plan.scored_tokens(NodeId(node))).collect();
        Self {
            walk,
            cells,
            sequences,
            held: HashMap::new(),
            step: Step::default(),
            states: HashMap::new(),
            admitted: Instant::now(),
            scoring,
            has_samples: job.plan.has_samples(),
            scores: counts.iter().map(|&count| vec![f64::NAN; count]).collect(),
            broken: false,
            samples: HashMap::new(),
            distributions: HashMap::new(),
            missing: counts,
            evaluated: 0,
            cached: 0,
            steps: 0,
            latest: 0,
            job,
        }
    }

    /// Returns the generator's sequence for the walk's sequence `slot`. Takes one from `free` if `slot` has none yet.
    pub fn hold(&mut self, slot: usize, free: &mut Vec<usize>) -> Result<usize, ModelError> {
        if let Some(&sequence) = self.held.get(&slot) {
            return Ok(sequence);
        }
        let sequence = free.pop().ok_or_else(|| lost("no free sequence for a granted sequence"))?;
        self.held.insert(slot, sequence);
        Ok(sequence)
    }

    /// The policy's view.
    pub fn view(&self) -> View<Instant> {
        let phase = self.phase();
        View {
            left: self.walk.remaining(),
            arrival: self.job.since,
            phase,
            priority: self.job.call.priority(),
            growth: if phase == Phase::Growing { self.latest } else { 0 },
        }
    }

    fn phase(&self) -> Phase {
        match (self.walk.growing(), self.has_samples) {
            (true, _) => Phase::Growing,
            (false, true) => Phase::Reading,
            (false, false) => Phase::Scoring,
        }
    }

    /// Counts tokens whose cells were cached, so that they are not evaluated.
    pub fn reused(&mut self, tokens: usize) {
        self.cached += tokens;
        self.job.call.tally().add_cached_tokens(tokens);
    }

    /// Counts tokens that are evaluated although they seemed to be cached.
    pub fn read_again(&mut self, tokens: usize) {
        self.cached -= tokens;
        self.evaluated += tokens;
        self.job.call.tally().add_tokens(tokens);
        self.job.call.tally().remove_cached_tokens(tokens);
        self.job.call.spend(&self.job.ledger, tokens);
    }

    /// The key of a node's state, if it has one.
    pub fn key(&self, node: NodeId) -> Option<Key> {
        let at = self.job.keys.binary_search_by_key(&node, |(node, _)| *node).ok()?;
        Some(self.job.keys[at].1)
    }

    /// Records one log-probability. `index` is the token's index within the node. The last one of a node sends
    /// [`Event::Scored`].
    pub fn score(&mut self, node: NodeId, index: usize, log_probability: f64) {
        let first = self.job.plan.first_scored(node);
        self.scores[node.0][index - first] = log_probability;
        self.broken |= !log_probability.is_finite();
        self.missing[node.0] -= 1;
        if self.missing[node.0] == 0 {
            self.send(|scores| Event::Scored(node, scores[node.0].clone()));
        }
    }

    /// Records the log-probabilities of a node that is restored.
    pub fn record(&mut self, node: NodeId, scores: &[f64]) {
        let first = self.job.plan.first_scored(node);
        for (index, &score) in scores.iter().enumerate() {
            self.score(node, first + index, score);
        }
    }

    /// The log-probabilities of an evaluated node; none if its tokens are not scored.
    pub fn scores(&self, node: NodeId) -> &[f64] {
        &self.scores[node.0]
    }

    /// Records the end of a step and reports progress.
    pub fn stepped(&mut self) {
        self.evaluated += self.step.tokens();
        self.job.call.tally().add_tokens(self.step.tokens());
        if self.step.tokens() > 0 {
            self.steps += 1;
            self.latest = self.step.tokens();
        }
        // The unused tokens of a sample that ended early count as done.
        let (done, total) = (self.job.cost.tokens - self.walk.remaining(), self.job.cost.tokens);
        self.send(|_| Event::Progress { done, total });
    }

    /// Draw request for the next token of a sample. Each sample has its own random numbers.
    pub fn draw(&mut self, node: NodeId) -> Option<Draw> {
        let grow = self.job.plan.grow(node)?;
        let growing = self.samples.entry(node).or_insert_with(|| Growing::new(grow.seed));
        let allowed = grow.allowed_after(&growing.sample.tokens);
        let forced = allowed.as_ref().is_some_and(|tokens| tokens.len() == 1);
        let uniform = if forced { 0.0 } else { unit(growing.source.next_u64()) };
        let distribution = growing.sample.tokens.is_empty() && self.job.plan.keeps_distribution(node);
        Some(Draw { sampling: grow.sampling, uniform, allowed, distribution })
    }

    /// Records a drawn token and the forced tokens after it, once the walk has advanced. If the sample ends,
    /// returns its sequence for release.
    pub fn drawn(&mut self, node: NodeId, drawn: DrawnToken) -> Option<usize> {
        if !drawn.distribution.is_empty() {
            self.distributions.insert(node, drawn.distribution);
        }
        let growing = self.samples.get_mut(&node)?;
        let grow = self.job.plan.grow(node)?;
        let mut next = (drawn.token, drawn.log_probability);
        growing.sample.finish = loop {
            let (token, log_probability) = next;
            growing.sample.tokens.push(token);
            growing.sample.log_probabilities.push(log_probability);
            let full = (growing.sample.tokens.len() >= grow.most).then_some(Finish::Length);
            if let Some(finish) = grow.stop.ended(&growing.sample.tokens).or(full) {
                break finish;
            }
            self.walk.grow(node, token);
            // If there is a choice, the next token is drawn after the next step.
            next = (grow.forced_after(&growing.sample.tokens)?, 0.0);
        };
        let ended = self.walk.end(node).and_then(|slot| self.held.remove(&slot));
        if let Some(events) = &self.job.events {
            let _ = events.send(Event::Sampled(node, growing.sample.clone()));
        }
        ended
    }

    fn send(&self, event: impl FnOnce(&[Vec<f64>]) -> Event) {
        if let Some(events) = &self.job.events {
            // A closed event channel does not stop the work. Only a closed reply channel does.
            let _ = events.send(event(&self.scores));
        }
    }

    /// True if a score that was evaluated is not a number.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Sends the result to the caller, or an error if a score is not finite.
    pub fn finish(self, now: Instant) {
        self.scoring.record_tokens(self.evaluated, self.cached);
        let broken = self.broken || self.missing.iter().any(|&missing| missing > 0);
        let samples: HashMap<NodeId, Sample> =
            self.samples.into_iter().map(|(node, growing)| (node, growing.sample)).collect();
        let outcome = Outcome {
            scores: self.scores,
            samples,
            distributions: self.distributions,
            queued: self.admitted - self.job.arrival,
            running: now.saturating_duration_since(self.admitted).max(Duration::from_nanos(1)),
            tokens: self.evaluated,
            cached_tokens: self.cached,
            steps: self.steps,
        };
        let answer = if broken {
            let problem = "a score is not a finite number".to_owned();
            Err(ScheduleError::Model(ModelError::Decode(problem)))
        } else {
            Ok(outcome)
        };
        let _ = self.job.reply.send(answer);
    }

    /// Sends an error to the caller.
    pub fn fail(self, error: ScheduleError) {
        let _ = self.job.reply.send(Err(error));
    }
}
