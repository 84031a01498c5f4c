//! Bayes saliency: mean log P(query | passage) + mean log P(passage), from single-passage prompts (Merth et al.;
//! MOI, Eq. 1).
//!
//! The paper prints sums. The authors' program takes the mean over the tokens of each part. With sums, log
//! P(passage) of some hundred nats would order the passages by length.

use std::sync::Arc;

use super::super::query_prompt::{QueryPrompt, overhead_with};
use super::super::{Method, Pointwise, PromptShape, Ranking, Scores, Task};
use crate::prompt::Language;
use crate::types::{EngineError, RerankRequest};
use numeric::mean;

/// Utility in nats per token.
pub(super) struct BayesSaliency;

/// The passage is the second segment of its prompt, after the prompt prefix; the query is the last.
fn means(scores: &Scores, passage: usize) -> f64 {
    mean(scores.last(passage)) + mean(scores.segment(passage, 1))
}

impl Method for BayesSaliency {
    fn name(&self) -> &'static str {
        "bayes-saliency"
    }

    fn summary(&self) -> &'static str {
        "mean log P(query | passage) + mean log P(passage), each passage alone (Bayes saliency; Merth et al.)"
    }

    fn takes_prefix(&self) -> bool {
        true
    }

    fn prompts(&self, request: &RerankRequest, language: &Language) -> Option<PromptShape> {
        Some(PromptShape { longest: 1, overhead: overhead_with(&request.prefix, language) })
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let prompt = QueryPrompt::of(&task)?;
        let prompts = (0..task.passages.len()).map(|index| prompt.with(&task, &[index], true)).collect();
        Ok(Pointwise::boxed(task, prompts, 1.0, means))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use prefix_scheduler::plan::NodeId;

    fn scores(passages: &[(&[f64], &[f64])]) -> Scores {
        let mut nodes = HashMap::new();
        let paths = passages.iter().enumerate().map(|(index, (passage, query))| {
            let (p, q) = (NodeId(10 * index + 1), NodeId(10 * index + 2));
            nodes.insert(p, passage.to_vec());
            nodes.insert(q, query.to_vec());
            vec![NodeId(0), p, q]
        });
        let paths: Vec<_> = paths.collect();
        Scores { missing: vec![0; paths.len()], paths: Arc::new(paths), nodes, ..Scores::default() }
    }

    /// Letter (j), with the numbers of the design notes: query sums -1.7 and -2.7 over three tokens; a passage of
    /// 100 tokens and -300 nats against one of 50 tokens and -175. Sums prefer the shorter passage, means the
    /// better one.
    #[test]
    fn means_do_not_prefer_the_shorter_passage() {
        let (long, short) = (vec![-3.0; 100], vec![-3.5; 50]);
        let both = scores(&[(&long, &[-1.0, -0.5, -0.2]), (&short, &[-0.4, -2.0, -0.3])]);
        assert!((means(&both, 0) + 3.566_666_667).abs() < 1e-9);
        assert!((means(&both, 1) + 4.4).abs() < 1e-9);
    }
}
