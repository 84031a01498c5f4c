//! BERTScore of two texts by the vectors of their tokens (Zhang et al., 2020, section 3).
//!
//! ```text
//! P = (1/|c|) Σ_{i in c} max_{j in r} cos(c_i, r_j)      R = (1/|r|) Σ_{j in r} max_{i in c} cos(c_i, r_j)
//! F1 = 2 P R / (P + R)
//! ```
//!
//! `c` are the tokens of the answer, `r` those of the reference. Every token is matched greedily to the most
//! similar one of the other text, so several may match one. The caller leaves out special tokens. There are no idf
//! weights and no rescaling by a baseline, which the paper offers as options.
//!
//! A vector of length 0 has the cosine 0 with every other. F1 is 0 if precision or recall is not above 0, so it is
//! in [0, 1]. Two texts without tokens score 1; one text with and one without tokens score 0.

use numeric::real;

/// The vectors of a text's tokens, one after the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Vectors<'a> {
    /// Numbers of a vector; above 0.
    pub width: usize,
    /// The numbers of all vectors. An incomplete vector at the end is ignored.
    pub values: &'a [f32],
}

impl Vectors<'_> {
    /// Number of tokens.
    #[must_use]
    pub const fn tokens(&self) -> usize {
        self.values.len() / self.width
    }

    fn rows(&self) -> impl Iterator<Item = &[f32]> + Clone {
        self.values.chunks_exact(self.width)
    }
}

/// Similarity of two texts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BertScore {
    /// Mean best cosine of the answer's tokens, in [-1, 1].
    pub precision: f64,
    /// Mean best cosine of the reference's tokens, in [-1, 1].
    pub recall: f64,
    /// Their harmonic mean, in [0, 1].
    pub f1: f64,
}

fn dot(left: &[f32], right: &[f32]) -> f64 {
    left.iter().zip(right).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
}

/// Compares an answer with a reference. Both have vectors of the same width. Time grows with the product of their tokens.
#[must_use]
pub fn bert_score(answer: Vectors<'_>, reference: Vectors<'_>) -> BertScore {
    let (of_answer, of_reference) = (answer.tokens(), reference.tokens());
    if of_answer == 0 || of_reference == 0 {
        let alike = f64::from(u8::from(of_answer == of_reference));
        return BertScore { precision: alike, recall: alike, f1: alike };
    }
    let lengths: Vec<f64> = reference.rows().map(|row| dot(row, row).sqrt()).collect();
    let mut best_of_reference = vec![f64::NEG_INFINITY; of_reference];
    let mut precision = 0.0;
    for row in answer.rows() {
        let length = dot(row, row).sqrt();
        let mut best = f64::NEG_INFINITY;
        for ((other, other_length), best_of_other) in reference.rows().zip(&lengths).zip(&mut best_of_reference) {
            let scale = length * other_length;
            let cosine = if scale > 0.0 { (dot(row, other) / scale).clamp(-1.0, 1.0) } else { 0.0 };
            best = best.max(cosine);
            *best_of_other = best_of_other.max(cosine);
        }
        precision += best;
    }
    precision /= real(of_answer);
    let recall = best_of_reference.iter().sum::<f64>() / real(of_reference);
    let f1 = if precision > 0.0 && recall > 0.0 { 2.0 * precision * recall / (precision + recall) } else { 0.0 };
    BertScore { precision, recall, f1 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[f32]) -> Vectors<'_> {
        Vectors { width: 2, values }
    }

    #[test]
    fn by_hand() {
        // Answer: east, north-east. Reference: east, north, west. Cosines: 1, 0, -1 and s, s, -s with s = 1/√2.
        let (answer, reference) = ([2.0, 0.0, 3.0, 3.0], [1.0, 0.0, 0.0, 5.0, -1.0, 0.0]);
        let s = 0.5_f64.sqrt();
        let score = bert_score(of(&answer), of(&reference));
        let (precision, recall) = (f64::midpoint(1.0, s), (1.0 + s - s) / 3.0);
        assert!((score.precision - precision).abs() < 1e-12 && (score.recall - recall).abs() < 1e-12, "{score:?}");
        assert!((score.f1 - 2.0 * precision * recall / (precision + recall)).abs() < 1e-12);
    }

    #[test]
    fn texts_without_tokens_or_direction() {
        let east = [1.0, 0.0];
        assert!((bert_score(of(&[]), of(&[])).f1 - 1.0).abs() < 1e-12);
        assert!(bert_score(of(&east), of(&[])).f1.abs() < 1e-12 && bert_score(of(&[]), of(&east)).f1.abs() < 1e-12);
        let none = bert_score(of(&[0.0, 0.0]), of(&east));
        assert!(none.precision.abs() < 1e-12 && none.f1.abs() < 1e-12);
        let opposed = bert_score(of(&east), of(&[-1.0, 0.0]));
        assert!((opposed.precision + 1.0).abs() < 1e-12 && opposed.f1.abs() < 1e-12, "{opposed:?}");
    }

    proptest! {
        #[test]
        fn turning_the_texts_round_turns_precision_and_recall_round(
            left in proptest::collection::vec(-3.0..3.0_f32, 1..12), right in proptest::collection::vec(-3.0..3.0_f32, 1..12)
        ) {
            let (there, back) = (bert_score(of(&left), of(&right)), bert_score(of(&right), of(&left)));
            prop_assert!((there.precision - back.recall).abs() < 1e-12 && (there.recall - back.precision).abs() < 1e-12);
            prop_assert!((there.f1 - back.f1).abs() < 1e-12 && (0.0..=1.0).contains(&there.f1), "{:?}", there);
            // Lengths of vectors and the order of tokens do not matter.
            let scaled: Vec<f32> = left.chunks_exact(2).rev().flatten().map(|x| x * 4.0).collect();
            prop_assert!((bert_score(of(&scaled), of(&right)).f1 - there.f1).abs() < 1e-9);
        }

        #[test]
        fn a_text_is_like_itself(text in proptest::collection::vec(0.5..3.0_f32, 2..12)) {
            prop_assert!((bert_score(of(&text), of(&text)).f1 - 1.0).abs() < 1e-9);
        }
    }
}
