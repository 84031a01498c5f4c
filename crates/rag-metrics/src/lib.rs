//! Measures of retrieval and of generated answers. Every function is pure; random numbers come from a seed.
//!
//! | module | measures | source |
//! |---|---|---|
//! | [`rank`] | nDCG, P, AP, RR, ERR, Bpref and others, as trec_eval computes them, under the names of ir-measures | Järvelin and Kekäläinen (2002); trec_eval |
//! | [`recall`] | F, Fe, T, T': for lists whose number of relevant documents is unknown | *Beyond recall*, section 2.1 |
//! | [`belief`] | SePer, semantic entropy, perplexity: a generator's belief as shown by sampled answers | Dai et al., *SePer*; Farquhar et al. (2024) |
//! | [`lexical`], [`bleu`], [`bert_score`] | exact match, token F1, ROUGE-L, BLEU, BERTScore | Rajpurkar et al. (2016); Lin (2004); Papineni et al. (2002); Zhang et al. (2020) |
//! | [`citation`] | citation recall and precision | Gao et al. (2023), ALCE |
//! | [`probability`] | expected calibration error, AUC | Naeini et al. (2015); Mann and Whitney |
//! | [`agreement`] | Kendall's tau, Spearman's rho, Pearson's r, with p-values | scipy.stats |
//! | [`resample`], [`multiple`] | bootstrap intervals, paired tests, Holm's adjustment | Smucker et al. (2007); Holm (1979) |
//! | [`cut`] | number of results to take, given probabilities of relevance | |
//!
//! [`input`] checks a caller's data, [`sentences`] splits text. The module documentation has the formulas.
//!
//! # A rank metric
//!
//! nDCG@k divides `DCG = Σ_{i<=k} gain_i / log2(i + 1)` by the DCG of the best order.
//!
//! ```
//! use rag_metrics::rank::{Grading, Metric, Ranking};
//!
//! let metric = Metric::parse_all("nDCG@3")?[0];
//! // The first and the third document are relevant.
//! let ranking = Ranking::of_labels(&[1.0, 0.0, 1.0]);
//! let value = metric.of(&ranking, Grading::TREC).unwrap_or_default();
//! // DCG = 1 / log2(2) + 1 / log2(4) = 1.5; ideal: 1 / log2(2) + 1 / log2(3) = 1.63093.
//! assert!((value - 1.5 / 1.63093).abs() < 1e-5);
//! # Ok::<(), rag_metrics::rank::MetricError>(())
//! ```
//!
//! # A belief
//!
//! SePer is the probability that a generator's sampled answers `r_i` put on a reference answer `a`:
//! `Σ_i w_i · E(r_i, a)` with `w_i = exp(L_i) / Σ_j exp(L_j)`. `L_i` is the log-likelihood of answer `i`; an
//! entailment model supplies `E(r_i, a)`, the probability that the answer entails the reference. The utility of
//! passages is SePer with them minus SePer without.
//!
//! ```
//! use rag_metrics::belief::seper::{Against, Aggregate, soft};
//! use rag_metrics::belief::{Likelihood, Verdict, Weighting};
//!
//! // Three answers of one token each, with probabilities 0.5, 0.25 and 0.25.
//! let answers = [0.5_f64, 0.25, 0.25].map(|probability| Likelihood::new(probability.ln(), 1));
//! let weights = Weighting::Sum.weights(&answers);
//!
//! let verdict = |entailment: f64| Verdict { entailment, neutral: 1.0 - entailment, contradiction: 0.0 };
//! let against = Against {
//!     response_entails: [0.9, 0.1, 0.5].map(|entailment| Some(verdict(entailment))).to_vec(),
//!     reference_entails: vec![None; 3],
//! };
//! let seper = soft(&weights, &[against], false, Aggregate::Mean).map(|estimate| estimate.value);
//! // 0.5 * 0.9 + 0.25 * 0.1 + 0.25 * 0.5
//! assert!((seper.unwrap_or_default() - 0.6).abs() < 1e-12);
//! ```
#![warn(missing_docs)]

pub mod agreement;
pub mod belief;
pub mod bert_score;
pub mod bleu;
pub mod citation;
pub mod cut;
pub mod input;
pub mod lexical;
pub mod multiple;
pub mod probability;
pub mod rank;
pub mod recall;
pub mod resample;
pub mod sentences;

use std::borrow::Cow;

/// Most metrics in one request.
pub const MOST_METRICS: usize = 256;

/// Bytes of a name in an error, including some for its quotes. Errors travel in HTTP headers, which are small.
const QUOTED: usize = 100;

/// Most bytes of the caller's data in an error.
pub const MOST_REPEATED: usize = 200;

/// A message with more bytes contains the caller's data.
const LONGEST_MESSAGE: usize = 700;

/// A field that cannot be measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidInput {
    /// Path of the field, as in the protocol (`queries[3].documents[0].score`).
    pub field: String,
    /// The problem with it.
    pub problem: String,
}

impl InvalidInput {
    /// An error about `field`.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// Why a computation has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetricsError {
    /// The input is at fault.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The caller's [`numeric::Interrupt`] asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// The [`numeric::Interrupt`] of a caller that waits for the result.
pub fn never() -> bool {
    false
}

/// The caller's text in quotes, short enough to appear in an error several times.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut said = String::from('"');
    for letter in text.chars() {
        let before = said.len();
        match letter {
            '\'' => said.push(letter),
            _ => said.extend(letter.escape_debug()),
        }
        if said.len() > QUOTED {
            said.truncate(before);
            said.push('…');
            break;
        }
    }
    said + "\""
}

/// A text of at most `most` bytes; a longer one is reduced to its beginning and end.
#[must_use]
pub fn clipped(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let (head, tail) = (most * 2 / 3, most / 3 - 3);
    let begin = &text[..text.floor_char_boundary(head)];
    let end = &text[text.ceil_char_boundary(text.len() - tail)..];
    Cow::Owned(format!("{begin}…{end}"))
}

/// A message for a caller. A longer one repeats the caller's data, whichever library wrote it: it is reduced to its
/// beginning and end.
#[must_use]
pub fn brief(message: &str) -> Cow<'_, str> {
    if message.len() > LONGEST_MESSAGE { clipped(message, MOST_REPEATED) } else { Cow::Borrowed(message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_quoted_by_its_beginning() {
        for short in ["", "P@\"5\"", "it's\n\u{7f}", "ä"] {
            assert_eq!(quoted(short), format!("{short:?}"));
        }
        assert_eq!(quoted(&"a".repeat(1_000)), format!("\"{}…\"", "a".repeat(QUOTED - 1)));
        for letter in ["ä", "\u{7f}", "\u{1f600}", "\""] {
            let said = quoted(&letter.repeat(1_000));
            assert!(said.len() <= QUOTED + 4 && said.ends_with("…\""), "{said}");
        }
    }

    #[test]
    fn a_long_message_keeps_its_beginning_and_its_end() {
        let long = format!("body: {}, expected an object at line 1", "ä".repeat(1_000));
        let said = brief(&long);
        assert!(said.len() <= MOST_REPEATED + 3, "{} bytes", said.len());
        assert!(said.starts_with("body: ä") && said.ends_with("expected an object at line 1"), "{said}");
        assert_eq!(brief(&long[..600]), long[..600]);
    }
}
