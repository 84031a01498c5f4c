//! Methods of the papers, for comparison. On the tested collections (docs/experiments/ranking.md) they gain nothing
//! over the first-stage order, or explain an answer rather than rank.

pub(super) mod answer_likelihood;
mod bayes_saliency;
mod first;
mod label_prompt;
pub(super) mod leave_one_out;
mod list_prompt;
mod listwise;
mod long_llm_lingua;
mod pairwise;
mod pairwise_sliding;
mod permutation;
mod permutation_self_consistency;
mod self_consistency;
mod semantic_utility;
mod setwise;
mod sorting;
mod windows;

use super::Method;

/// Every baseline.
pub(super) static METHODS: &[&dyn Method] = &[
    &bayes_saliency::BayesSaliency,
    &long_llm_lingua::LongLlmLingua,
    &pairwise::Pairwise,
    &pairwise_sliding::PairwiseSliding,
    &setwise::Setwise,
    &first::First,
    &listwise::Listwise,
    &permutation_self_consistency::PermutationSelfConsistency,
    &self_consistency::SelfConsistency,
    &answer_likelihood::AnswerLikelihood,
    &leave_one_out::LeaveOneOut,
    &semantic_utility::SemanticUtility,
];
