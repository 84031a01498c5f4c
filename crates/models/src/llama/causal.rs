//! Which files llama.cpp loads but cannot score or sample with as a generator.
//!
//! A generator needs a decoder that sees what stands before, and a cache of it. Without them llama.cpp gives scores that say
//! nothing, or ends the process at the first step.

/// Architectures that llama.cpp evaluates without a cache: encoders, and models that fill in masked tokens.
const WITHOUT_CACHE: [&str; 16] = [
    "bert",
    "clef",
    "dream",
    "eurobert",
    "gemma-embedding",
    "jina-bert-v2",
    "jina-bert-v3",
    "llada",
    "llada-moe",
    "llama-embed",
    "modern-bert",
    "neo-bert",
    "nomic-bert",
    "nomic-bert-moe",
    "rnd1",
    "wavtokenizer-dec",
];

/// Architectures with an encoder before the decoder, and drafts that read the states of another model.
const WITH_ENCODER: [&str; 4] = ["dflash", "eagle3", "t5", "t5encoder"];

/// Refuses what is no causal transformer. `causal` is what the file says of its attention, where it says anything.
///
/// # Errors
/// The reason, in words.
pub fn check(architecture: &str, causal: Option<bool>) -> Result<(), String> {
    let kind = if WITH_ENCODER.contains(&architecture) {
        "with an encoder"
    } else if WITHOUT_CACHE.contains(&architecture) || causal == Some(false) {
        "whose tokens see what follows them"
    } else {
        return Ok(());
    };
    Err(format!("architecture {architecture:?}: a model {kind} can be no generator or scorer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_causal_is_refused_by_name() {
        for (architecture, causal) in [("llama", None), ("qwen3", Some(true)), ("gemma3", None), ("smollm3", None)] {
            check(architecture, causal).unwrap();
        }
        let refused = [("bert", None), ("t5", None), ("llada", Some(true)), ("llama", Some(false))];
        for (architecture, causal) in refused {
            assert!(check(architecture, causal).unwrap_err().contains(architecture));
        }
    }
}
