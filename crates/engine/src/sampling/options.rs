//! How answers are sampled and measured.

use std::sync::Arc;

use super::stop::TextStop;
use crate::prompt::Language;
use crate::types::SampleOptions;
use prefix_scheduler::plan::{Grow, Stop};

impl SampleOptions {
    /// Ends a sample, and selects the tokens of its answer.
    pub(crate) fn text_stop(&self, language: &Language) -> Arc<TextStop> {
        let usual = || ["\n", "Question:", "Context:"].map(str::to_owned).to_vec();
        let stops = self.stop.clone().unwrap_or_else(usual);
        Arc::new(TextStop::new(Arc::clone(&language.tokenizer), stops))
    }

    /// How the sample with this number is drawn.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use numeric::sampling::Sampling;

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
