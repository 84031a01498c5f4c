//! Decides which waiting request begins next.
//!
//! 1. A request whose call has begun goes first: work that is not ended is lost.
//! 2. More urgent requests go before less urgent ones. A waiting request becomes one level more urgent every [`AGEING`], so
//!    the least urgent one is overtaken for half a minute at most.
//! 3. Callers of equal urgency take turns by deficit round robin over tokens: every caller that waits gets the same credit,
//!    and the request that its caller's credit pays for goes next. A caller with many requests waits for itself.
//! 4. Among the requests of a caller the one that is due first.
//!
//! Nobody behind the first in line is admitted while that one does not fit, so small requests cannot starve a large one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::queue::{Phase, View};
use crate::call::Priority;

/// Time after which a waiting request counts as one level more urgent. Three levels, from `low` to `normal` or from `normal`
/// to `high`, are ten seconds.
const AGEING: Duration = Duration::from_millis(3_333);

/// When a request without a deadline is due, after the time that it takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Credit of a turn in tokens.
const CREDIT: u64 = 512;

/// Urgency now: the level of the priority, less the time waited. 0 is the most urgent.
#[must_use]
pub fn urgency(priority: Priority, waited: Duration) -> u8 {
    let aged = u8::try_from(waited.as_millis() / AGEING.as_millis()).unwrap_or(u8::MAX);
    priority.level().saturating_sub(aged)
}

/// When a request is due: at its deadline. Without one, [`PATIENCE`] after the time at which it would end if it were served
/// at arrival, so that of two such requests the cheaper goes first unless it came much later.
#[must_use]
pub fn due(arrival: Instant, deadline: Option<Instant>, tokens: usize, tokens_per_second: f64) -> Instant {
    let seconds = (numeric::real(tokens) / tokens_per_second.max(1.0)).min(86_400.0);
    deadline.unwrap_or_else(|| arrival + PATIENCE + Duration::from_secs_f64(seconds))
}

/// True if a request gains nothing by being active now: as many tokens as fill two steps go before it. Meanwhile a more
/// urgent one, or one of another caller, may still go first.
#[must_use]
pub fn may_wait<T>(next: &Waiting, batch: usize, active: &[View<T>]) -> bool {
    let own = (next.urgency, next.tokens);
    let before = |view: &&View<T>| (view.urgency, view.left) <= own && view.phase == Phase::Scoring;
    active.iter().filter(before).map(|view| view.left).sum::<usize>() >= batch
}

/// The policy's view of a waiting request.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// To whom it is counted.
    pub caller: Arc<str>,
    /// Urgency now.
    pub urgency: u8,
    /// True if tokens were evaluated for its call, in an earlier round.
    pub begun: bool,
    /// Time of arrival.
    pub arrival: Instant,
    /// When it is due.
    pub due: Instant,
    /// Tokens to evaluate.
    pub tokens: usize,
}

/// A caller that waits, and the tokens that it may still begin in this round. Negative after a later round of a call, which
/// does not wait for its turn.
#[derive(Debug)]
struct Turn {
    caller: Arc<str>,
    credit: i64,
}

/// The choice of the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// Its index.
    pub index: usize,
    /// Turns that all callers get credit for.
    turns: u64,
}

/// The callers that wait, in the order of their turns.
#[derive(Debug, Default)]
pub struct Line {
    turns: Vec<Turn>,
}

impl Line {
    /// The request that begins next; `None` if none waits. Choosing changes no credit: [`Line::began`] does.
    pub fn next(&mut self, waiting: &[Waiting]) -> Option<Next> {
        self.turns.retain(|turn| waiting.iter().any(|request| request.caller == turn.caller));
        for request in waiting {
            if !self.turns.iter().any(|turn| turn.caller == request.caller) {
                self.turns.push(Turn { caller: Arc::clone(&request.caller), credit: 0 });
            }
        }
        let order = |index: &usize| (waiting[*index].urgency, waiting[*index].due, waiting[*index].arrival);
        if let Some(index) = (0..waiting.len()).filter(|&index| waiting[index].begun).min_by_key(order) {
            return Some(Next { index, turns: 0 });
        }
        let urgent = waiting.iter().map(|request| request.urgency).min()?;
        let head = |turn: &Turn| {
            let own = |&index: &usize| waiting[index].urgency == urgent && waiting[index].caller == turn.caller;
            let index = (0..waiting.len()).filter(own).min_by_key(order)?;
            let missing = signed(waiting[index].tokens as u64).saturating_sub(turn.credit);
            let missing = u64::try_from(missing).unwrap_or(0);
            Some(Next { index, turns: missing.div_ceil(CREDIT) })
        };
        self.turns.iter().filter_map(head).min_by_key(|next| next.turns)
    }

    /// Gives and takes the credit of a choice that began. `waiting` is what was chosen from.
    pub fn began(&mut self, next: &Next, waiting: &[Waiting]) {
        let chosen = &waiting[next.index];
        let credit = signed(next.turns.saturating_mul(CREDIT));
        for turn in &mut self.turns {
            // Less urgent callers get it, too, but do not gather more than their next requests need.
            let own = waiting.iter().filter(|request| request.caller == turn.caller);
            let most = own.map(|request| request.tokens as u64).max().unwrap_or(0).saturating_add(CREDIT);
            turn.credit = turn.credit.saturating_add(credit).min(signed(most));
        }
        if let Some(place) = self.turns.iter().position(|turn| turn.caller == chosen.caller) {
            let mut turn = self.turns.remove(place);
            turn.credit = turn.credit.saturating_sub(signed(chosen.tokens as u64));
            self.turns.push(turn);
        }
    }
}

fn signed(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
