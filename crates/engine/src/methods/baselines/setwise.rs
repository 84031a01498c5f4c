//! Heap sort whose comparisons hold a parent and its children together (setwise prompting; Zhuang et al., 2023).
//!
//! One prompt shows a node of the heap and its c = 3 children; the likeliest label of one row of logits is the best
//! of them. The best passage is taken from the root ten times. Places after the tenth keep the input order. Equal
//! labels keep the parent. Each set is scored in one order only, so a preference for a position is not cancelled.
//! Utilities are ranks (N − place) and have no zero.
//!
//! Nodes of one level have no descendants in common: while the heap is built, a round holds all of them. Afterwards
//! each round is one prompt, at most nine times the height of the heap. Budget: see `sorting`; unsorted places keep
//! the input order.

use std::sync::Arc;

use super::super::{Method, PromptShape, Ranking, Task};
use super::label_prompt::{LabelRows, overhead};
use super::sorting::{Sorted, Sorting};
use crate::prompt::Language;
use crate::types::{EngineError, RerankRequest};

/// Children of a node of the heap.
const CHILDREN: usize = 3;
/// Places to sort.
const PLACES: usize = 10;

/// Utility in ranks: N − place.
pub(super) struct Setwise;

impl Method for Setwise {
    fn name(&self) -> &'static str {
        "setwise"
    }

    fn summary(&self) -> &'static str {
        "heap sort of the first ten places by the best label of four passages at a time (Zhuang et al.): ranks only"
    }

    fn prompts(&self, _: &RerankRequest, language: &Language) -> Option<PromptShape> {
        Some(PromptShape { longest: CHILDREN + 1, overhead: overhead(language, CHILDREN + 1) })
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        Sorting::begin(task, CHILDREN + 1, |passages, rows| heap_sort(passages, PLACES, rows))
    }
}

fn heap_sort(passages: usize, places: usize, rows: &LabelRows) -> Sorted {
    let mut heap: Vec<usize> = (0..passages).collect();
    let mut taken = Vec::new();
    let missing = sort(&mut heap, &mut taken, places.min(passages), rows);
    let rest: Vec<usize> = (0..passages).filter(|passage| !taken.contains(passage)).collect();
    Sorted { order: [taken, rest].concat(), missing }
}

/// Moves the best passages from the heap to `taken`, in order. Returns the comparisons that it needs to continue.
fn sort(heap: &mut [usize], taken: &mut Vec<usize>, places: usize, rows: &LabelRows) -> Vec<Vec<usize>> {
    // The first node of each level, the root first.
    let levels: Vec<usize> = std::iter::successors(Some(0), |first| Some(CHILDREN * first + 1))
        .take_while(|&first| first < heap.len())
        .collect();
    for &first in levels.iter().rev() {
        let level = first..(CHILDREN * first + 1).min(heap.len());
        let missing: Vec<Vec<usize>> = level.filter_map(|node| sift_down(heap, node, rows).err()).collect();
        if !missing.is_empty() {
            return missing;
        }
    }
    let mut size = heap.len();
    while taken.len() < places {
        taken.push(heap[0]);
        size -= 1;
        heap.swap(0, size);
        if taken.len() < places
            && let Err(missing) = sift_down(&mut heap[..size], 0, rows)
        {
            return vec![missing];
        }
    }
    Vec::new()
}

/// Moves a passage down until it is better than its children. The error is the missing comparison.
fn sift_down(heap: &mut [usize], mut node: usize, rows: &LabelRows) -> Result<(), Vec<usize>> {
    loop {
        let first = CHILDREN * node + 1;
        let places: Vec<usize> = std::iter::once(node).chain(first..(first + CHILDREN).min(heap.len())).collect();
        if places.len() == 1 {
            return Ok(());
        }
        let set: Vec<usize> = places.iter().map(|&place| heap[place]).collect();
        let best = places[rows.best(&set).ok_or(set)?];
        if best == node {
            return Ok(());
        }
        heap.swap(node, best);
        node = best;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Prompt;
    use super::super::super::tests::{blocks, by_table, noise, order, run};
    use super::*;
    use numeric::{descending, mean};

    /// Runs a sort on the labels that `row` gives, and counts comparisons.
    fn sorted(passages: usize, places: usize, row: &mut dyn FnMut(&[usize]) -> Vec<f64>) -> (Vec<usize>, usize) {
        let mut rows = LabelRows::default();
        loop {
            let sorted = heap_sort(passages, places, &rows);
            if sorted.missing.is_empty() {
                return (sorted.order, rows.len());
            }
            for set in sorted.missing {
                let answered = row(&set);
                rows.insert(set, answered);
            }
        }
    }

    fn row_of(table: &[f64]) -> impl FnMut(&[usize]) -> Vec<f64> {
        move |set| set.iter().map(|&passage| table[passage]).collect()
    }

    /// The worked case of the design notes: four passages, three children, the third is the best, one place.
    #[test]
    fn one_prompt_finds_the_best_of_four() {
        assert_eq!(sorted(4, 1, &mut row_of(&[0.0, 0.0, 1.0, 0.0])), (vec![2, 0, 1, 3], 1));
    }

    /// The recursive heap sort of the authors' program, one comparison at a time.
    fn by_recursion(passages: usize, places: usize, best: &dyn Fn(&[usize]) -> usize) -> Vec<usize> {
        fn heapify(heap: &mut [usize], size: usize, node: usize, best: &dyn Fn(&[usize]) -> usize) {
            if CHILDREN * node + 1 < size {
                let children = CHILDREN * node + 1..(CHILDREN * (node + 1) + 1).min(size);
                let places: Vec<usize> = std::iter::once(node).chain(children).collect();
                let set: Vec<usize> = places.iter().map(|&place| heap[place]).collect();
                let largest = places[best(&set)];
                if largest != node {
                    heap.swap(node, largest);
                    heapify(heap, size, largest, best);
                }
            }
        }
        let mut heap: Vec<usize> = (0..passages).collect();
        for node in (0..=passages / CHILDREN).rev() {
            heapify(&mut heap, passages, node, best);
        }
        let mut ranked = 0;
        for size in (1..passages).rev() {
            heap.swap(0, size);
            ranked += 1;
            if ranked == places {
                break;
            }
            heapify(&mut heap, size, 0, best);
        }
        heap.reverse();
        let top = heap[..places.min(passages)].to_vec();
        let rest = (0..passages).filter(|passage| !top.contains(passage)).collect::<Vec<_>>();
        [top, rest].concat()
    }

    /// Choices without a consistent order: a set's best is a hash of the set.
    #[test]
    fn levels_at_once_sort_as_nodes_one_after_the_other() {
        let value = |seed: u64, set: &[usize], place: usize| {
            let mut random = noise(set.iter().fold(seed, |hash, &passage| hash * 131 + passage as u64 + 1));
            (0..=place).map(|_| random()).last().unwrap()
        };
        for seed in 0..100 {
            let n = 1 + usize::try_from(seed % 45).unwrap();
            let row = |set: &[usize]| -> Vec<f64> { (0..set.len()).map(|place| value(seed, set, place)).collect() };
            let best = |set: &[usize]| descending(&row(set))[0];
            let (order, _) = sorted(n, PLACES, &mut |set| row(set));
            assert_eq!(order, by_recursion(n, PLACES, &best), "seed {seed}, {n} passages");
        }
    }

    #[test]
    fn the_first_places_are_those_of_the_scores_and_the_rest_keep_their_order() {
        let mut random = noise(11);
        for n in [2, 5, 11, 20] {
            let table: Vec<f64> = (0..n).map(|_| random()).collect();
            let ran = run(&Setwise, n, usize::MAX, &by_table(&table));
            let (top, rest) = ran.scored.ranking.split_at(PLACES.min(n));
            assert_eq!(*top, descending(&table)[..top.len()]);
            assert!(rest.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    /// Means over random scores, from the design notes: 15 / 29 / 82 prompts and 55 / 113 / 327 passage evaluations
    /// without sharing.
    #[test]
    fn comparisons_are_as_many_as_the_heap_needs() {
        for (n, prompts, naive) in [(10, 15.0, 55.0), (20, 29.0, 113.0), (100, 82.0, 327.0)] {
            let (mut counts, mut passages) = (Vec::new(), Vec::new());
            for seed in 0..300 {
                let mut random = noise(seed);
                let table: Vec<f64> = (0..n).map(|_| random()).collect();
                let mut shown = 0;
                let (_, count) = sorted(n, PLACES, &mut |set| {
                    shown += set.len();
                    row_of(&table)(set)
                });
                counts.push(f64::from(u32::try_from(count).unwrap()));
                passages.push(f64::from(u32::try_from(shown).unwrap()));
            }
            assert!((mean(&counts) - prompts).abs() < 1.0, "{n} passages: {}", mean(&counts));
            assert!((mean(&passages) - naive).abs() < 3.0, "{n} passages: {}", mean(&passages));
        }
    }

    #[test]
    fn a_round_holds_a_level_and_labels_share_their_prompt() {
        let ran = run(&Setwise, 13, usize::MAX, &by_table(&[0.0; 13]));
        // Nodes 1 to 3 have children; the root follows. Four labels per node.
        assert_eq!((ran.rounds[0].len(), ran.rounds[1].len()), (12, 4));
        assert_eq!(blocks(&ran.rounds[0]), 12);
        let sets: Vec<Vec<usize>> = ran.rounds[0].iter().map(|prompt: &Prompt| order(prompt)).collect();
        assert_eq!((&sets[0], &sets[4]), (&vec![1, 4, 5, 6], &vec![2, 7, 8, 9]));
    }

    #[test]
    fn one_passage_needs_no_prompt() {
        let ran = run(&Setwise, 1, usize::MAX, &|_| -1.0);
        assert_eq!((ran.rounds.len(), ran.scored.ranking, ran.scored.utilities), (0, vec![0], vec![1.0]));
    }
}
