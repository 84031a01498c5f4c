//! ContextCite: by how much each passage raises the logit of the generator's own answer, by a sparse regression on
//! subsets of the passages (Cohen-Wang et al., *ContextCite: Attributing Model Generation to Context*).
//!
//! ```text
//! y(v) = logit P(a | q, subset v) = L − log(1 − e^L)      L = Σ log P(a_t | ·), v in {0, 1}^N
//! y(v) / T ≈ b + Σ w_j v_j                                Lasso on standardised v, penalty 0.01; T tokens of the answer
//! utility of p = T · w_p, in nats
//! ```
//!
//! The authors' program takes 64 subsets; 32 cost half and are reported to suffice. Passages of a subset keep the
//! input order. If there are at most 32 subsets (up to five passages), each is scored once. Without passages the
//! prompt does not mention documents; the authors leave an empty context in theirs.

use std::sync::Arc;

use super::own_answer::{self, Attribution, OwnAnswer};
use super::{Method, PromptShape, Ranking, Scored, Task};
use crate::prompt::Language;
use crate::types::{EngineError, RerankRequest};
use ::moi::subsets::{lasso, subsets};
use numeric::real;
use prefix_scheduler::call::Call;

/// Most subsets to score.
const ABLATIONS: usize = 32;
/// Penalty of the Lasso, in nats per token (context_cite/solver.py).
const ALPHA: f64 = 0.01;
/// Least value of 1 − P(a): a certain answer would have an infinite logit.
const LEAST_REST: f64 = 1e-6;

/// Utility in nats of the answer's logit.
pub(super) struct ContextCite;

impl Method for ContextCite {
    fn name(&self) -> &'static str {
        "context-cite"
    }

    fn summary(&self) -> &'static str {
        "sparse regression of the own answer's logit on subsets of the passages (ContextCite; Cohen-Wang et al.)"
    }

    fn prompts(&self, request: &RerankRequest, language: &Language) -> Option<PromptShape> {
        Some(own_answer::shape(request, language))
    }

    fn reads_own_answer(&self) -> bool {
        true
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let masks = subsets(task.passages.len(), ABLATIONS, task.request.moi.seed);
        own_answer::begin(&task, Ablations { masks })
    }
}

/// logit P of a log-probability, in nats.
fn logit(log_probability: f64) -> f64 {
    log_probability - (-log_probability.exp_m1()).max(LEAST_REST).ln()
}

struct Ablations {
    /// For each subset, if it holds each passage.
    masks: Vec<Vec<bool>>,
}

impl Attribution for Ablations {
    fn contexts(&self) -> Vec<Vec<usize>> {
        let kept = |mask: &Vec<bool>| (0..mask.len()).filter(|&passage| mask[passage]).collect();
        self.masks.iter().map(kept).collect()
    }

    fn rank(&self, answer: &OwnAnswer, call: &Call) -> Result<Scored, EngineError> {
        let tokens = real(answer.tokens);
        let outcomes: Vec<f64> = answer.contexts.iter().map(|sum| logit(*sum) / tokens).collect();
        let fitted = lasso(&self.masks, &outcomes, ALPHA, &|| call.is_stopped())?;
        let mut scored = answer.ranked(fitted.passages.iter().map(|weight| weight * tokens).collect());
        if !fitted.converged {
            scored.warnings.push("the regression on subsets did not converge".to_owned());
        }
        if fitted.passages.iter().all(|weight| *weight == 0.0) {
            scored.warnings.push("no passage changes the generator's own answer: the given order is kept".to_owned());
        }
        Ok(scored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_by_hand() {
        // e^-0.1 = 0.904837, and -0.1 - ln 0.095163 = 2.2522.
        assert!((logit(-0.1) - 2.2522).abs() < 5e-5);
        assert!(logit(0.5_f64.ln()).abs() < 1e-12);
        // A certain answer, and an impossible one.
        assert!((logit(0.0) - 1e6_f64.ln()).abs() < 1e-9);
        assert!((logit(-800.0) + 800.0).abs() < 1e-9);
    }

    /// y / T of 0, 1, 2 and 3 for the subsets 00 10 01 11, with T = 5: weights 4.9 and 9.9. Logits of -15 to 0 have
    /// the same differences and none is certain.
    #[test]
    fn two_passages_by_hand() {
        let log_sigmoid = |y: f64| -(-y).exp().ln_1p();
        let contexts = [-15.0, -10.0, -5.0, 0.0].map(log_sigmoid).to_vec();
        let answer = OwnAnswer { tokens: 5, none: contexts[0], contexts };
        let scored = Ablations { masks: subsets(2, ABLATIONS, 0) }.rank(&answer, &Call::local()).unwrap();
        assert_eq!(scored.ranking, vec![1, 0]);
        for (utility, expected) in scored.utilities.iter().zip([4.9, 9.9]) {
            assert!((utility - expected).abs() < 1e-6, "{utility}");
        }
        assert!(scored.warnings.is_empty() && (scored.unit - 5.0).abs() < 1e-12);
    }

    #[test]
    fn an_answer_that_no_subset_changes_keeps_the_given_order() {
        let masks = subsets(3, ABLATIONS, 0);
        let answer = OwnAnswer { tokens: 2, none: -1.0, contexts: vec![-1.0; masks.len()] };
        let scored = Ablations { masks }.rank(&answer, &Call::local()).unwrap();
        assert_eq!((scored.ranking, scored.utilities), (vec![0, 1, 2], vec![0.0; 3]));
        assert!(scored.warnings[0].contains("the given order is kept"));
    }
}
