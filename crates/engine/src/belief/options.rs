//! How answers are sampled and measured.

use std::sync::Arc;

use super::TextStop;
use crate::EngineError;
use crate::prompt::Language;
use numeric::sampling::Sampling;
use prefix_scheduler::model::entailment::EntailmentInfo;
use prefix_scheduler::plan::{Grow, Stop};
use rag_metrics::belief::seper::Aggregate;
use rag_metrics::belief::{Rule, Weighting};

/// Most samples of one prompt.
pub const MOST_SAMPLES: usize = 100;
/// Most tokens of a sample.
pub const MOST_TOKENS: usize = 512;

/// How answers are sampled.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SampleOptions {
    /// Samples of each prompt, 1 to 100; 10 if `None`.
    pub samples: Option<usize>,
    /// Most tokens of a sample, 1 to 512; 64 if `None`.
    pub max_tokens: Option<usize>,
    /// How each token is drawn.
    pub sampling: Sampling,
    /// Strings that end a sample. If `None`, those of the code of the SePer authors: line end, `Question:` and `Context:`.
    pub stop: Option<Vec<String>>,
    /// Seed. Samples of the same number draw the same random numbers in every context of a question, so that differences
    /// between contexts can be paired. Every other question has other random numbers.
    pub seed: u64,
}

impl SampleOptions {
    /// One greedy answer.
    #[must_use]
    pub fn greedy() -> Self {
        let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
        Self { samples: Some(1), sampling, ..Self::default() }
    }

    /// Number of samples of a prompt, with the default applied.
    #[must_use]
    pub fn count(&self) -> usize {
        self.samples.unwrap_or(10)
    }

    /// Most tokens of a sample, with the default applied.
    #[must_use]
    pub fn most_tokens(&self) -> usize {
        self.max_tokens.unwrap_or(64)
    }

    /// Where a sample ends, and which of its tokens are its answer.
    pub(crate) fn text_stop(&self, language: &Language) -> Arc<TextStop> {
        let usual = || ["\n", "Question:", "Context:"].map(str::to_owned).to_vec();
        let stops = self.stop.clone().unwrap_or_else(usual);
        Arc::new(TextStop::new(Arc::clone(&language.tokenizer), stops))
    }

    /// How the sample of this number is drawn.
    pub(crate) fn grow(&self, question: &str, number: usize, stop: &Arc<TextStop>) -> Grow {
        Grow {
            sampling: self.sampling,
            most: self.most_tokens(),
            seed: self.seed_of(question, number),
            stop: Arc::clone(stop) as Arc<dyn Stop>,
            allowed: None,
        }
    }

    /// The seed of one sample: seed, FNV-1a of the question and number, mixed by the finaliser of SplitMix64.
    fn seed_of(&self, question: &str, number: usize) -> u64 {
        let hash = question
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        let mut mixed = self.seed ^ hash ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn check(&self) -> Result<(), EngineError> {
        let between = |field: &str, value: usize, most: usize| {
            let problem = format!("{value} given, 1 to {most} allowed");
            if (1..=most).contains(&value) { Ok(()) } else { Err(EngineError::invalid(field, problem)) }
        };
        between("sampling.samples", self.count(), MOST_SAMPLES)?;
        between("sampling.max_tokens", self.most_tokens(), MOST_TOKENS)?;
        if let Err((field, problem)) = self.sampling.check() {
            return Err(EngineError::invalid(format!("sampling.{field}"), problem));
        }
        let stops = self.stop.as_deref().unwrap_or_default();
        if stops.len() > 64 || stops.iter().any(|stop| stop.is_empty() || stop.len() > 256) {
            return Err(EngineError::invalid("sampling.stop", "must be at most 64 strings of 1 to 256 bytes"));
        }
        Ok(())
    }
}

/// How answers are measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasureOptions {
    /// How responses are weighted.
    pub weighting: Weighting,
    /// When two answers mean the same.
    pub rule: Rule,
    /// Soft SePer takes the larger entailment of the two directions instead of response to reference.
    pub either_direction: bool,
    /// How the values for several references become one.
    pub aggregate: Aggregate,
    /// Whether the question precedes the texts that the entailment model judges.
    pub conditioned: bool,
}

impl Default for MeasureOptions {
    fn default() -> Self {
        Self {
            weighting: Weighting::default(),
            rule: Rule::default(),
            either_direction: false,
            aggregate: Aggregate::default(),
            conditioned: true,
        }
    }
}

impl MeasureOptions {
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        if let Rule::Threshold(least) = self.rule
            && !(least > 0.0 && least <= 1.0)
        {
            return Err(EngineError::invalid("measure.threshold", "must be above 0 and at most 1"));
        }
        Ok(())
    }

    /// Refuses a rule that this model cannot judge by, before answers are drawn for it.
    pub(crate) fn check_model(&self, model: &EntailmentInfo) -> Result<(), EngineError> {
        if self.rule == Rule::Loose && !model.three_way {
            let problem =
                "the entailment model does not separate neutral from contradiction: `loose` needs a three-way model";
            return Err(EngineError::Precondition(problem.into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ_by_sample_question_and_seed() {
        let of = |seed| SampleOptions { seed, ..SampleOptions::default() };
        let seeds = |seed, question| (0..100).map(|n| of(seed).seed_of(question, n)).collect::<Vec<_>>();
        let mut all = [seeds(0, "a"), seeds(1, "a"), seeds(0, "b")].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 300);
    }

    #[test]
    fn bounds_are_named() {
        let of = |options: SampleOptions| options.check().unwrap_err().to_string();
        assert!(of(SampleOptions { samples: Some(0), ..SampleOptions::default() }).starts_with("sampling.samples"));
        assert!(of(SampleOptions { max_tokens: Some(513), ..SampleOptions::default() }).contains("512"));
        assert!(
            of(SampleOptions { stop: Some(vec![String::new()]), ..SampleOptions::default() }).contains("sampling.stop")
        );
        let sampling = Sampling { top_p: f64::NAN, ..Sampling::default() };
        assert!(of(SampleOptions { sampling, ..SampleOptions::default() }).starts_with("sampling.top_p"));
    }
}
