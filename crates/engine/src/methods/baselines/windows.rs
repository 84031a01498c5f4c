//! Sliding windows: a list too long for one prompt is ranked window by window, back to front (RankGPT; Sun et al., 2023).
//!
//! Windows of 20 passages move by 10, so the best 10 of a window compete again in the next one and a passage can
//! rise from the end of the list to its head. A passage cannot fall by more than a window. The windows follow
//! rank_llm: the last one is cut at the head of the list. (RankGPT's loop ranks nothing if the list is shorter than
//! a window, and misses the first places of a list of 25; rank_llm's misses a list of exactly 10.)

use std::ops::Range;

use super::super::{Budget, Prompt, Ranking, Scored, Scores};
use crate::types::EngineError;
use prefix_scheduler::call::Call;

/// Most passages of a window.
pub(super) const WINDOW: usize = 20;
/// Places from one window to the next.
const STEP: usize = 10;

/// The windows of a list, in ranking order. A single passage needs none.
pub(super) fn windows(passages: usize) -> Vec<Range<usize>> {
    let mut windows = Vec::new();
    let mut end = passages;
    while end > 1 {
        let start = end.saturating_sub(WINDOW);
        windows.push(start..end);
        if start == 0 {
            break;
        }
        end -= STEP;
    }
    windows
}

/// A way to rank the passages of one window.
pub(super) trait WindowRanker: Send {
    /// True if its utilities are ranks only.
    const RANKS: bool = false;

    /// The prompts for the passages in this order: as many for every order of the same length.
    fn prompts(&self, order: &[usize]) -> Vec<Prompt>;

    /// The utility of each passage of `order`, from the scores of its prompts, which are numbered from `first`.
    fn utilities(&self, scores: &Scores, first: usize, order: &[usize]) -> Vec<f64>;
}

/// One or several orders of all passages, ranked in parallel window by window. A round is one window of every
/// order.
pub(super) struct Sliding<W> {
    ranker: W,
    /// The orders, as ranked so far.
    pub orders: Vec<Vec<usize>>,
    windows: Vec<Range<usize>>,
    /// Ranked windows.
    ranked: usize,
    /// Prompts per order in the round whose scores are awaited.
    prompts: usize,
    /// Utility of each passage in the last window of the first order.
    utilities: Vec<f64>,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
}

impl<W: WindowRanker> Sliding<W> {
    /// `orders` are permutations of the passages.
    pub fn new(ranker: W, orders: Vec<Vec<usize>>) -> Self {
        let passages = orders.first().map_or(0, Vec::len);
        let (windows, utilities) = (windows(passages), vec![0.0; passages]);
        Self { ranker, orders, windows, ranked: 0, prompts: 0, utilities, warnings: Vec::new() }
    }

    /// The prompts of the next window; `None` at the end. The driver refuses a first window that exceeds the
    /// budget; if a later one does, the ranking ends with a warning.
    pub fn next_window(&mut self, budget: &Budget) -> Option<Vec<Prompt>> {
        let window = self.windows.get(self.ranked)?;
        let rounds: Vec<Vec<Prompt>> =
            self.orders.iter().map(|order| self.ranker.prompts(&order[window.clone()])).collect();
        self.prompts = rounds.first().map_or(0, Vec::len);
        let prompts = rounds.concat();
        if self.ranked > 0 && !budget.allows(&prompts) {
            let (ranked, all) = (self.ranked, self.windows.len());
            self.windows.truncate(ranked);
            self.warnings.push(format!(
                "the token budget ended the ranking after {ranked} of {all} windows: the passages before them keep their order"
            ));
            return None;
        }
        Some(prompts)
    }

    /// Sorts the window by its scores. Ties keep the order of the request.
    pub fn sort_window(&mut self, scores: &Scores) {
        let Some(window) = self.windows.get(self.ranked) else { return };
        for (number, order) in self.orders.iter_mut().enumerate() {
            let passages = &mut order[window.clone()];
            let utilities = self.ranker.utilities(scores, number * self.prompts, passages);
            let mut scored: Vec<(f64, usize)> = utilities.into_iter().zip(passages.iter().copied()).collect();
            scored.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
            for (place, (utility, passage)) in passages.iter_mut().zip(scored) {
                *place = passage;
                if number == 0 {
                    self.utilities[passage] = utility;
                }
            }
        }
        self.ranked += 1;
    }
}

impl<W: WindowRanker> Ranking for Sliding<W> {
    fn next(&mut self, budget: &Budget, _: &Call) -> Result<Option<Vec<Prompt>>, EngineError> {
        Ok(self.next_window(budget))
    }

    fn absorb(&mut self, scores: &Scores, _: &Call) -> Result<(), EngineError> {
        self.sort_window(scores);
        Ok(())
    }

    /// The first order. The utilities of a single window are the ranker's. Those of different windows are not
    /// comparable, so several windows give only ranks.
    fn finish(&mut self, _: &Call) -> Result<Scored, EngineError> {
        let warnings = std::mem::take(&mut self.warnings);
        let order = self.orders.first().cloned().unwrap_or_default();
        let scored = if order.len() <= WINDOW && !W::RANKS {
            Scored::by_utility(std::mem::take(&mut self.utilities), 1.0)
        } else {
            Scored::by_rank(order)
        };
        Ok(Scored { warnings, ..scored })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use numeric::real;
    use prefix_scheduler::plan::Segment;

    #[test]
    fn windows_by_hand() {
        assert!(windows(0).is_empty() && windows(1).is_empty());
        for whole in [2, 5, 10, 20] {
            assert_eq!(windows(whole), vec![0..whole; 1]);
        }
        assert_eq!(windows(25), [5..25, 0..15]);
        assert_eq!(windows(30), [10..30, 0..20]);
        let hundred = windows(100);
        assert_eq!((hundred.len(), hundred[0].clone(), hundred[8].clone()), (9, 80..100, 0..20));
        // 180 passage evaluations, as in the design notes.
        assert_eq!(hundred.iter().map(ExactSizeIterator::len).sum::<usize>(), 180);
        for passages in 2..200 {
            let windows = windows(passages);
            assert!(windows[0].end == passages && windows[windows.len() - 1].start == 0);
            assert!(windows.windows(2).all(|pair| pair[1].end > pair[0].start && pair[1].start < pair[0].start));
        }
    }

    /// Takes the passage's own number as its utility.
    struct ByNumber;

    impl WindowRanker for ByNumber {
        fn prompts(&self, order: &[usize]) -> Vec<Prompt> {
            let tokens: Arc<[_]> = vec![1; order.len()].into();
            vec![Prompt::scored(vec![Segment::scored(tokens, 1)])]
        }

        fn utilities(&self, _: &Scores, _: usize, order: &[usize]) -> Vec<f64> {
            order.iter().map(|&passage| real(passage)).collect()
        }
    }

    fn ranked(passages: usize, tokens: &[usize]) -> Scored {
        let mut sliding = Sliding::new(ByNumber, vec![(0..passages).collect()]);
        let mut budgets = tokens.iter().copied().chain(std::iter::repeat(1_000));
        while sliding
            .next_window(&Budget { tokens: budgets.next().unwrap(), context: 1_000, counted: usize::MAX, kept: None })
            .is_some()
        {
            sliding.sort_window(&Scores::default());
        }
        sliding.finish(&Call::local()).unwrap()
    }

    #[test]
    fn the_best_rise_from_the_end_to_the_head() {
        assert_eq!(ranked(5, &[]).ranking, [4, 3, 2, 1, 0]);
        assert_eq!(ranked(5, &[]).utilities, [0.0, 1.0, 2.0, 3.0, 4.0], "those of the window");
        let hundred = ranked(100, &[]);
        assert_eq!(hundred.ranking[..10], [99, 98, 97, 96, 95, 94, 93, 92, 91, 90]);
        assert_eq!((hundred.utilities[99], hundred.utilities[98]), (100.0, 99.0));
        assert_eq!(ranked(1, &[]).ranking, [0]);
    }

    #[test]
    fn a_budget_that_ends_keeps_what_is_ranked() {
        let short = ranked(25, &[1_000, 0]);
        assert_eq!(short.ranking[..7], [0, 1, 2, 3, 4, 24, 23]);
        assert!(short.warnings[0].contains("after 1 of 2 windows"), "{:?}", short.warnings);
        assert!(ranked(25, &[]).warnings.is_empty());
    }
}
