//! The turns of a list: tokenise, check the cost, score the passages.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::{List, Progress, ScoreError, ScoreJob, Scored, Unreadable};
use crate::model::ModelError;
use crate::model::reranker::{Encoded, Reranker};

/// Passages scored before another request's turn: a batch of an ONNX network on a CPU. For a model with larger
/// batches, a turn is one batch.
pub(super) const TURN: usize = 16;
/// Tokens after which such a turn ends early.
pub(super) const TURN_TOKENS: usize = 2_048;
/// Passages and tokens of a turn for a model with this batch size.
pub(super) fn of_batch(batch: usize) -> (usize, usize) {
    let turn = batch.max(TURN);
    (turn, turn * TURN_TOKENS / TURN)
}

/// Fewest passages of a part of a list: a single score ranks nothing.
const FEWEST: usize = 2;

/// Bytes of text that are tokenised before another request's turn.
const TURN_BYTES: usize = 256 << 10;

/// Progress of a list.
pub(super) struct Work {
    started: Instant,
    query: Encoded,
    passages: Vec<Encoded>,
    /// True if all passages are tokenised and their cost is checked.
    pub planned: bool,
    /// Tokens of passages whose vectors were cached.
    known: usize,
    /// Passages without a score, the next one last. Filled when all passages are tokenised.
    open: Vec<usize>,
    /// Tokens that each passage adds to `left` when the list is planned: none if its vector was cached.
    costs: Vec<usize>,
    /// Tokens of the unfinished passages.
    pub left: usize,
    /// True for each passage that was left out.
    out: Vec<bool>,
    /// Tokens of evaluated passages.
    pub evaluated: usize,
    scores: Vec<f64>,
    progress: Progress,
    steps: usize,
}

/// Tokenises or scores a part of the list. Returns the scores of the whole list once complete.
pub(super) fn turn(
    job: &mut ScoreJob,
    model: &mut dyn Reranker,
    scored: &AtomicU64,
) -> Result<Option<Scored>, ScoreError> {
    let list = &job.list;
    let work = match &mut job.work {
        Some(work) => work,
        empty => {
            let query =
                model.query(&list.query, list.shortening.truncate).map_err(|error| ScoreError::of_text(None, error))?;
            empty.insert(Work {
                started: Instant::now(),
                query,
                passages: Vec::with_capacity(list.passages.len()),
                planned: false,
                known: 0,
                open: Vec::new(),
                costs: Vec::new(),
                left: 0,
                out: vec![false; list.passages.len()],
                evaluated: 0,
                scores: vec![f64::NAN; list.passages.len()],
                progress: Progress { done: 0, total: 0, longest: 0 },
                steps: 0,
            })
        }
    };
    if work.planned {
        // The unfinished passages may have been left out.
        let done = if work.open.is_empty() { 0 } else { work.step(model)? };
        scored.fetch_add(done as u64, Ordering::Relaxed);
    } else {
        work.tokenise(list, model)?;
        if work.passages.len() < list.passages.len() {
            return Ok(None);
        }
        work.plan(list, model)?;
    }
    if let Some(listener) = &job.listener {
        // The work continues without a listener, until its call stops.
        let _ = listener.send(work.progress);
    }
    if !work.open.is_empty() {
        return Ok(None);
    }
    Ok(Some(Scored {
        scores: std::mem::take(&mut work.scores),
        cut: work.passages.iter().map(|passage| passage.cut).collect(),
        query_cut: work.query.cut,
        unreadable: Unreadable {
            query: work.query.unreadable,
            passages: work.passages.iter().map(|passage| passage.unreadable).collect(),
        },
        tokens: work.progress.total - work.known,
        known: work.known,
        steps: work.steps,
        queued: work.started.duration_since(job.submitted),
        running: work.started.elapsed(),
    }))
}

impl Work {
    /// Tokenises passages until the turn is over.
    fn tokenise(&mut self, list: &List, model: &dyn Reranker) -> Result<(), ScoreError> {
        let mut bytes = 0;
        let first = self.passages.len();
        let fits = |text: &&String| {
            let fits = bytes < TURN_BYTES;
            bytes += text.len();
            fits
        };
        let count = list.passages[first..].iter().take_while(fits).count();
        let texts = &list.passages[first..first + count];
        for (index, passage) in (first..).zip(model.passages(&self.query, texts, list.shortening)) {
            self.passages.push(passage.map_err(|error| ScoreError::of_text(Some(index), error))?);
        }
        Ok(())
    }

    /// Checks the cost of the list and orders its passages: passages of similar length are scored together, within
    /// a turn if some are preferred. Cached passages count, so that a budget does not depend on earlier requests.
    fn plan(&mut self, list: &List, model: &dyn Reranker) -> Result<(), ScoreError> {
        let lengths = || self.passages.iter().map(|passage| passage.ids.len());
        let total = lengths().sum::<usize>() + model.query_cost(&self.query);
        if total > list.tokens {
            return Err(ScoreError::Budget { needed: total, allowed: list.tokens });
        }
        self.planned = true;
        self.progress = Progress { done: 0, total, longest: lengths().max().unwrap_or(0) };
        self.costs = self.passages.iter().map(|one| if model.is_known(one) { 0 } else { one.ids.len() }).collect();
        self.left = self.costs.iter().sum();
        self.open = (0..self.passages.len()).collect();
        // If the time may suffice only for a part, the preferred passages get the first turns.
        let (turn, mut turns) = (of_batch(model.info().batch).0, vec![0; self.passages.len()]);
        for (place, &passage) in list.preferred.iter().enumerate() {
            turns[passage] = place / turn;
        }
        // The next one is the last element. Stable: passages of one length keep their order.
        self.open.sort_by_key(|&index| (Reverse(turns[index]), self.passages[index].ids.len()));
        Ok(())
    }

    /// Leaves out the last of the `preferred` passages until the open ones have at most `tokens` tokens. Passages
    /// with cached vectors cost none. Nothing is left out if fewer than [`FEWEST`] would have a score.
    pub fn shorten(&mut self, preferred: &[usize], tokens: usize) {
        let (mut sum, mut full, mut left, mut out) = (0, false, 0, self.out.clone());
        for &passage in preferred.iter().filter(|&&passage| !self.out[passage]) {
            if self.scores[passage].is_nan() {
                sum += self.costs[passage];
                full = full || sum > tokens;
                out[passage] = full;
            }
            left += usize::from(!out[passage]);
        }
        if left < FEWEST {
            return;
        }
        self.open.retain(|&passage| !out[passage]);
        for passage in (0..out.len()).filter(|&passage| out[passage] && !self.out[passage]) {
            self.left -= std::mem::take(&mut self.costs[passage]);
            self.progress.total -= self.passages[passage].ids.len();
        }
        self.out = out;
    }

    /// Scores the next passages. Returns how many.
    fn step(&mut self, model: &mut dyn Reranker) -> Result<usize, ScoreError> {
        let (mut chosen, mut tokens) = (Vec::new(), 0);
        let (turn, most) = of_batch(model.info().batch);
        // Cached passages cost nothing. The cache may have dropped one since the list was planned.
        let (mut new, mut cost) = (0, 0);
        while new < turn
            && let Some(&index) = self.open.last()
        {
            let length = self.passages[index].ids.len();
            let own = if model.is_known(&self.passages[index]) { 0 } else { length };
            if new > 0 && cost + own > most {
                break;
            }
            self.open.pop();
            chosen.push(index);
            tokens += length;
            new += usize::from(own > 0);
            cost += own;
            self.left -= std::mem::take(&mut self.costs[index]);
        }
        let passages: Vec<&Encoded> = chosen.iter().map(|&index| &self.passages[index]).collect();
        let known = passages.iter().filter(|one| model.is_known(one)).map(|one| one.ids.len()).sum::<usize>();
        self.known += known;
        let scores = model.score(&self.query, &passages)?;
        if scores.len() != chosen.len() {
            return Err(ModelError::Decode(format!("{} scores for {} passages", scores.len(), chosen.len())).into());
        }
        for (&index, &score) in chosen.iter().zip(&scores) {
            if !score.is_finite() {
                return Err(ModelError::Decode(format!("the score of passages[{index}] is {score}")).into());
            }
            self.scores[index] = score;
        }
        self.evaluated += tokens - known;
        self.steps += 1;
        // The last step includes the query, if it is evaluated separately.
        self.progress.done = if self.open.is_empty() { self.progress.total } else { self.progress.done + tokens };
        Ok(chosen.len())
    }
}
