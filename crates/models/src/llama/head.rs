//! Checks that a generator's file has the matrix that predicts tokens.
//!
//! Conversions of causal rerankers with a classification head keep the rows of their words as the head and drop the
//! output matrix. llama.cpp then predicts with the embeddings. This is right if the two matrices are shared, and
//! meaningless otherwise.

use std::path::Path;

use super::gguf::Header;
use prefix_scheduler::plan::Token;

/// Least cosine of a word's row in both matrices, each in its own tensor type. Rows of different matrices are near 0.
const SAME: f64 = 0.9;

const HEAD: &str = "cls.output.weight";

/// Most rows of a head that are read. A reranker has one or two; reading a classifier of the whole vocabulary would take
/// minutes.
const MOST_OUTPUTS: usize = 16;

/// Refuses a file whose classification head does not come from the matrix that predicts its tokens. `words` are the
/// tokens of the head's rows, in any order.
///
/// # Errors
/// The reason, in words.
pub fn check_output(path: &Path, words: &[Token]) -> Result<(), String> {
    let header = Header::read(path)?;
    // The matrices of a split model may be in different files, so it is not checked.
    if header.files() > 1 || !header.has(HEAD) || header.has("output.weight") {
        return Ok(());
    }
    let mut heads = Vec::new();
    while heads.len() < MOST_OUTPUTS
        && let Some(head) = header.row(path, HEAD, heads.len())?
    {
        heads.push(head);
    }
    for word in words.iter().filter_map(|word| usize::try_from(*word).ok()) {
        let embedding = header.row(path, "token_embd.weight", word)?.unwrap_or_default();
        if !heads.iter().any(|head| cosine(head, &embedding) >= SAME) {
            return Err(
                "the file has a classification head and was converted without its output matrix: it can be a reranker \
                        (reranker.model), but not a generator or scorer"
                    .to_owned(),
            );
        }
    }
    Ok(())
}

fn cosine(left: &[f32], right: &[f32]) -> f64 {
    let product = |left: &[f32], right: &[f32]| -> f64 {
        left.iter().zip(right).map(|(left, right)| f64::from(*left) * f64::from(*right)).sum()
    };
    product(left, right) / (product(left, left) * product(right, right)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(name: &str, words: &[Token]) -> Result<(), String> {
        let path = format!("{}/../../tests/golden/rerankers/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
        check_output(Path::new(&path), words)
    }

    /// `yes` and `no` after the 256 bytes, "th" and "ye".
    #[test]
    fn a_head_must_be_rows_of_the_matrix_that_predicts() {
        assert_eq!(checked("causal", &[258, 259]), Ok(()), "no head");
        assert_eq!(checked("causal-headed", &[259, 258]), Ok(()));
        let other = checked("causal-headed", &[258, 260]).unwrap_err();
        assert!(other.contains("converted without its output matrix"), "{other}");
        assert_eq!(checked("causal-untied", &[258, 259]), Err(other));
        assert!(checked("causal-headed", &[100_000]).is_err(), "a token without a row");
    }

    #[test]
    fn rows_are_read_in_the_type_of_their_tensor() {
        let path = format!("{}/../../tests/golden/rerankers/causal-headed.gguf", env!("CARGO_MANIFEST_DIR"));
        let header = Header::read(Path::new(&path)).unwrap();
        let row = |tensor: &str, row| header.row(Path::new(&path), tensor, row);
        let [head, embedding] = [row(HEAD, 0), row("token_embd.weight", 258)].map(|row| row.unwrap().unwrap());
        assert_eq!(head, embedding);
        assert_eq!((row(HEAD, 2), row("nothing", 0)), (Ok(None), Ok(None)));
        assert_eq!(header.row(Path::new("/nowhere"), HEAD, 0).map_err(|error| error.starts_with(HEAD)), Err(true));
    }
}
