//! Architectures that llama.cpp loads but that cannot score or sample as a generator.
//!
//! A generator needs a causal decoder with a KV cache. Otherwise llama.cpp gives meaningless scores or ends the process
//! at the first step.

/// Architectures that llama.cpp evaluates without a cache: encoders, and models that fill in masked tokens.
const WITHOUT_CACHE: &str = "bert clef dream eurobert gemma-embedding jina-bert-v2 jina-bert-v3 llada llada-moe \
                             llama-embed modern-bert neo-bert nomic-bert nomic-bert-moe rnd1 wavtokenizer-dec";

/// Architectures with an encoder before the decoder, and draft models that read hidden states of another model.
const WITH_ENCODER: [&str; 4] = ["dflash", "eagle3", "t5", "t5encoder"];

/// Refuses models other than causal transformers. `causal` is the file's entry about its attention, if any.
///
/// # Errors
/// The reason, in words.
pub fn check(architecture: &str, causal: Option<bool>) -> Result<(), String> {
    let kind = if WITH_ENCODER.contains(&architecture) {
        "with an encoder"
    } else if WITHOUT_CACHE.split(' ').any(|known| known == architecture) || causal == Some(false) {
        "with bidirectional attention"
    } else {
        return Ok(());
    };
    Err(format!("architecture {architecture:?}: a model {kind} cannot be a generator or scorer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_are_not_causal_are_refused_by_name() {
        for (architecture, causal) in [("llama", None), ("qwen3", Some(true)), ("gemma3", None), ("smollm3", None)] {
            check(architecture, causal).unwrap();
        }
        let refused = [("bert", None), ("t5", None), ("llada", Some(true)), ("llama", Some(false))];
        for (architecture, causal) in refused {
            assert!(check(architecture, causal).unwrap_err().contains(architecture));
        }
    }
}
