//! What a request cost.

use prefix_scheduler::scheduler::generator::Outcome as PlanOutcome;

/// Cost of a request.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Tokens that were evaluated, by the generator or by the model that scored the passages.
    pub tokens: usize,
    /// Tokens of all prompts if every prompt were evaluated from its beginning.
    pub naive_tokens: usize,
    /// Tokens that were not evaluated, because an earlier request, or round of the request, had evaluated them.
    pub cached_tokens: usize,
    /// Steps of the model in which the request took part.
    pub steps: usize,
    /// Tokens of the model whose scores were mixed in beside the generator's; not among `tokens`.
    pub signal_tokens: usize,
    /// Passages that a cross-encoder or an embedding model scored, or pairs of texts that the entailment model judged.
    pub pairs: usize,
    /// Milliseconds spent tokenising and planning.
    pub tokenise_ms: f64,
    /// Milliseconds in the queue.
    pub queue_ms: f64,
    /// Milliseconds from admission to the last score.
    pub score_ms: f64,
    /// Milliseconds in the fit.
    pub fit_ms: f64,
    /// Milliseconds in total.
    pub total_ms: f64,
}

impl Usage {
    /// Adds the cost of another list of the same request. Lists wait for the generator, and are scored, at the same time if they are
    /// scored `together`, and one after the other otherwise.
    pub(super) fn extend(&mut self, other: &Self, together: bool) {
        let time = |one: f64, other: f64| if together { one.max(other) } else { one + other };
        self.tokens += other.tokens;
        self.pairs += other.pairs;
        self.signal_tokens += other.signal_tokens;
        self.naive_tokens += other.naive_tokens;
        self.cached_tokens += other.cached_tokens;
        self.steps += other.steps;
        self.tokenise_ms += other.tokenise_ms;
        self.queue_ms = time(self.queue_ms, other.queue_ms);
        self.score_ms = time(self.score_ms, other.score_ms);
        self.fit_ms += other.fit_ms;
    }

    /// Adds the cost of a plan.
    pub(crate) fn add(&mut self, outcome: &PlanOutcome) {
        self.tokens += outcome.tokens;
        self.cached_tokens += outcome.cached_tokens;
        self.steps += outcome.steps;
        self.queue_ms += outcome.queued.as_secs_f64() * 1e3;
        self.score_ms += outcome.running.as_secs_f64() * 1e3;
    }
}
