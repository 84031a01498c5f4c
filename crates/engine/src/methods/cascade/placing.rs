//! Values and places of passages from different stages of the cascade.

use crate::methods::scored::complete;
use crate::types::RankingStage;

/// The value of each passage and the order of all, from the values after stage 2 and after stage 3. A passage has
/// the value of the stage that placed it, because refined utilities of the first places are not comparable with the
/// others. If stage 3 puts a passage below the best of the others, it stays before that one, with its value. Values
/// of passages that were not evaluated are not numbers. These come last, in the order of `free`, which also breaks
/// ties, and get the lowest value of the evaluated ones, at most 0.
pub fn placed(stages: &[RankingStage], alone: &[f64], together: &[f64], free: &[usize]) -> (Vec<f64>, Vec<usize>) {
    let of_stage = |(place, stage): (usize, &RankingStage)| match stage {
        RankingStage::Together => together[place],
        RankingStage::Alone => alone[place],
        RankingStage::Retriever => f64::NAN,
    };
    let mut values = complete(&stages.iter().enumerate().map(of_stage).collect::<Vec<_>>());
    let apart = stages.iter().zip(&values).filter(|(stage, _)| **stage == RankingStage::Alone);
    let best_apart = apart.map(|(_, value)| *value).fold(f64::NEG_INFINITY, f64::max);
    let own = values.clone();
    let of_stage = |stage: RankingStage| {
        let mut kept: Vec<usize> = free.iter().copied().filter(|&passage| stages[passage] == stage).collect();
        if stage != RankingStage::Retriever {
            kept.sort_by(|&left, &right| own[right].total_cmp(&own[left]));
        }
        kept
    };
    let ranking = [RankingStage::Together, RankingStage::Alone, RankingStage::Retriever].map(of_stage).concat();
    for (value, _) in values.iter_mut().zip(stages).filter(|(_, stage)| **stage == RankingStage::Together) {
        *value = value.max(best_apart);
    }
    (values, ranking)
}
