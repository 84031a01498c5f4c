//! Ranking methods, one file each.
//!
//! A [`Method`] checks its options and begins a [`Ranking`], which requests prompts, receives their scores, and
//! finishes with utilities. It owns the text of its prompts. The driver (`rerank::driver`) does everything else:
//! tokenising, cost and budget, the context, progress, interim orders, thresholds, arrangement, usage.
//!
//! **To add a method:** write its file, here or in `baselines`, add one line to `METHODS` there, and one value to
//! the enum `Method` of proto/rerankd/v1/rerank.proto whose name is `METHOD_` and the method's name in capitals.
//! Its name on the command line, in `rerankd evaluate` and on the wire follow from that; a test of `rpc::convert`
//! checks that both lists agree.

mod baselines;
mod cascade;
mod context_cite;
mod listwise_bayes;
mod method;
pub mod moi;
mod own_answer;
mod passage_scores;
mod pointwise;
mod prompts;
mod query_generation;
pub mod query_prompt;
mod retriever;
mod scored;
mod scores;
#[cfg(test)]
mod tests;
mod yes_no;

use std::ops::Deref;

use crate::types::MethodRef;
pub use cascade::placed;
pub use method::{Interim, Method, Needs, Ranking, Task};
use pointwise::Pointwise;
pub(crate) use prompts::spared;
pub use prompts::{Budget, Prompt, PromptShape};
pub use scored::Scored;
pub use scores::Scores;
pub use yes_no::{not_as_trained, words as yes_no_words};

/// The methods that a user would deploy. The first is the default.
static METHODS: &[&dyn Method] = &[
    &cascade::Cascade,
    &moi::Moi,
    &query_generation::QueryGeneration,
    &listwise_bayes::ListwiseBayes,
    &yes_no::YesNo,
    &passage_scores::CROSS_ENCODER,
    &passage_scores::EMBEDDING,
    &retriever::Retriever,
    &context_cite::ContextCite,
];

impl Deref for MethodRef {
    type Target = dyn Method;

    /// The method with this name. It always exists, because only [`all`] creates references.
    fn deref(&self) -> &Self::Target {
        let found = METHODS.iter().chain(baselines::METHODS).find(|method| method.name() == self.name());
        *found.unwrap_or(&METHODS[0])
    }
}

impl MethodRef {
    /// One line for `--help`, which says if the method is a baseline.
    #[must_use]
    pub fn help(self) -> String {
        format!("{}{}", if self.is_baseline() { "baseline: " } else { "" }, self.summary())
    }

    /// True for a method that only reproduces a paper.
    #[must_use]
    pub fn is_baseline(self) -> bool {
        baselines::METHODS.iter().any(|method| method.name() == self.name())
    }

    /// True if a latency budget can bound it. The budget is converted at the generator's speed, so it does not
    /// apply to other models.
    #[must_use]
    pub fn takes_latency_budget(self) -> bool {
        self.passage_model().is_none() && !self.asks_judge()
    }
}

/// Every method, the default first and the baselines last.
pub fn all() -> impl Iterator<Item = MethodRef> {
    METHODS.iter().chain(baselines::METHODS).map(|method| MethodRef::new(method.name()))
}

/// The method of that name, in any letter case; also as rerankd.v1 spells it (`METHOD_QUERY_GENERATION`).
#[must_use]
pub fn find(name: &str) -> Option<MethodRef> {
    let name = name.strip_prefix("METHOD_").unwrap_or(name);
    let same = |one: u8, other: u8| one.eq_ignore_ascii_case(&other) || (one == b'-' && other == b'_');
    let is = |own: &str| own.len() == name.len() && own.bytes().zip(name.bytes()).all(|(one, other)| same(one, other));
    all().find(|method| is(method.name()))
}
