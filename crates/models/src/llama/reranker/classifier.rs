//! The classification heads of GGUF rerankers: the files that llama.cpp scores as the original model would, and the
//! meaning of the scores.
//!
//! These faults of a file show only in the scores, not when it is loaded. They are refused here:
//! - No head: the scores are floats of a hidden state.
//! - A head with a missing part: llama.cpp skips that step. Converters once dropped the prediction head of ModernBERT,
//!   and drop the pooling layer of a BERT classifier.
//! - BERT with several token types: llama.cpp evaluates every token as if it had the first.
//! - DistilBERT: the head has a ReLU, and llama.cpp applies a tanh. The file says BERT, but has no token types.
//! - NeoBERT: the model interleaves query, key and value per head, and llama.cpp reads the queries of all heads first.
//! - A Qwen3 head of one row: its softmax is 1 for every pair.
//!
//! A ModernBERT head with a bias belongs to llama.cpp's decision models, whose outputs are not those of rank
//! pooling.

use crate::passages::Head;

/// Least probability of `yes` and of `no`. The logit of 0 or 1 is infinite.
const LEAST_PROBABILITY: f64 = 1e-7;

/// Output of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Logits, or the tanh of one for jina-bert-v2.
    Logits(Head),
    /// Probabilities, with the index of `yes`. The model is causal and evaluated with a cache.
    Probabilities { yes: usize },
}

impl Kind {
    pub fn score(self, row: &[f32]) -> f64 {
        match self {
            Self::Logits(head) => head.score(row),
            Self::Probabilities { yes } => {
                let probability = row.get(yes).map_or(f64::NAN, |&probability| f64::from(probability));
                let within = probability.clamp(LEAST_PROBABILITY, 1.0 - LEAST_PROBABILITY);
                (within / (1.0 - within)).ln()
            }
        }
    }

    /// The kind for a file, and a description of its score.
    pub fn of(architecture: &str, outputs: usize, labels: &[String]) -> Result<(Self, String), String> {
        match architecture {
            "qwen3" | "qwen3vl" => {
                if outputs != 2 {
                    return Err(format!("its head has {outputs} outputs, 2 expected: yes and no"));
                }
                let yes = labels.iter().position(|label| label.eq_ignore_ascii_case("yes")).unwrap_or(0);
                Ok((Self::Probabilities { yes }, "logit of the probability of yes".to_owned()))
            }
            "jina-bert-v2" => {
                let (head, words) = Head::new(outputs, labels)?;
                Ok((Self::Logits(head), format!("tanh of the {words}")))
            }
            _ => Head::new(outputs, labels).map(|(head, words)| (Self::Logits(head), words)),
        }
    }
}

/// Refuses a file whose scores would be wrong.
pub(super) fn check(architecture: &str, token_types: usize, has: impl Fn(&str) -> bool) -> Result<(), String> {
    let wrong = match architecture {
        "bert" if token_types > 1 => format!("a BERT classifier with {token_types} token types"),
        "bert" if has("cls.output.weight") && !has("token_types.weight") => "a DistilBERT classifier".to_owned(),
        "modern-bert" if has("cls.bias") => {
            return Err("a ModernBERT head with a bias: it is a decision model, not a reranker".to_owned());
        }
        "neo-bert" => "NeoBERT".to_owned(),
        _ => String::new(),
    };
    if !wrong.is_empty() {
        return Err(format!("{wrong}, which llama.cpp evaluates wrongly: use its ONNX export"));
    }
    let parts: &[&str] = match architecture {
        "bert" => &["cls.output.weight", "cls.weight"],
        "modern-bert" => &["cls.output.weight", "cls.weight", "cls.norm.weight"],
        "qwen3" | "qwen3vl" => &["cls.output.weight"],
        "jina-bert-v2" => &["cls.weight"],
        other => return Err(format!("architecture {other:?}: llama.cpp has no classification head for it")),
    };
    let Some(missing) = parts.iter().find(|part| !has(part)) else { return Ok(()) };
    let head = if parts.iter().any(|part| has(part)) { "a part of its head" } else { "its head" };
    let instead = if architecture == "qwen3" { ". METHOD_YES_NO asks such a file as scorer.model" } else { "" };
    Err(format!("no tensor {missing}: the file was converted without {head} and cannot rerank{instead}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_would_score_wrongly_are_refused() {
        let with = |tensors: &'static [&'static str]| move |name: &str| tensors.contains(&name);
        let refused = |architecture, types, tensors| check(architecture, types, with(tensors)).unwrap_err();
        let bert: &[&str] = &["cls.weight", "cls.output.weight", "token_types.weight"];
        assert_eq!(check("bert", 1, with(bert)), Ok(()));
        assert!(refused("bert", 2, bert).contains("2 token types"));
        assert!(refused("bert", 1, &["cls.weight", "cls.output.weight"]).contains("DistilBERT"));
        assert!(
            refused("bert", 1, &["cls.output.weight", "token_types.weight"]).contains("without a part of its head")
        );
        assert!(refused("bert", 1, &["token_types.weight"]).contains("without its head"));
        let modern: &[&str] = &["cls.weight", "cls.norm.weight", "cls.output.weight"];
        assert_eq!(check("modern-bert", 0, with(modern)), Ok(()));
        assert!(refused("modern-bert", 0, &["cls.weight", "cls.output.weight"]).contains("cls.norm.weight"));
        assert!(refused("modern-bert", 0, &["cls.output.weight"]).contains("no tensor cls.weight"));
        let biased = &["cls.weight", "cls.bias", "cls.norm.weight", "cls.output.weight"];
        assert!(refused("modern-bert", 0, biased).contains("not a reranker"));
        assert!(refused("neo-bert", 2, bert).contains("NeoBERT"));
        assert!(refused("qwen3", 0, &["output.weight"]).contains("METHOD_YES_NO"));
        assert_eq!(check("jina-bert-v2", 2, with(&["cls.weight"])), Ok(()));
        assert!(refused("llama", 0, &["cls.output.weight"]).contains("llama"));
        assert!(Kind::of("qwen3", 1, &[]).unwrap_err().contains("1 outputs"));
    }

    #[test]
    fn a_probability_becomes_a_finite_logit() {
        let labels = ["no".to_owned(), "yes".to_owned()];
        let (kind, _) = Kind::of("qwen3", 2, &labels).unwrap();
        assert!((kind.score(&[0.25, 0.75]) - 3_f64.ln()).abs() < 1e-6);
        assert!((kind.score(&[1.0, 0.0]) + 16.118).abs() < 1e-3);
        assert!((kind.score(&[0.0, 1.0]) - 16.118).abs() < 1e-3);
        assert!(kind.score(&[f32::NAN, f32::NAN]).is_nan());
        assert!(Kind::of("jina-bert-v2", 1, &[]).unwrap().1.starts_with("tanh"));
    }
}
