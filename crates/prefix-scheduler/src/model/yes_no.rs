//! Prompts that a causal model answers with a relevance. Each such reranker was trained with its own prompt.

/// The prompt of the ranking method `yes-no`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum YesNoPrompt {
    /// The built-in one, for any instruction-tuned model.
    #[default]
    Generic,
    /// Qwen3-Reranker (0.6B, 4B, 8B), with the template that llama.cpp's converter writes.
    Qwen3,
    /// bge-reranker-v2-gemma.
    BgeGemma,
    /// mxbai-rerank-base-v2.
    MxbaiBase,
    /// mxbai-rerank-large-v2. It differs only in the zero of its scores.
    MxbaiLarge,
}

impl YesNoPrompt {
    /// All prompts.
    pub const ALL: [Self; 5] = [Self::Generic, Self::Qwen3, Self::BgeGemma, Self::MxbaiBase, Self::MxbaiLarge];

    /// Its name in the configuration and in answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::Qwen3 => "qwen3",
            Self::BgeGemma => "bge-gemma",
            Self::MxbaiBase => "mxbai-base",
            Self::MxbaiLarge => "mxbai-large",
        }
    }

    /// The prompt of that name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|prompt| prompt.name() == name)
    }

    /// The prompt that a model was trained with, by the architecture and the names of its file. Punctuation and
    /// case of names do not matter. The generic prompt if no name belongs to a reranker.
    #[must_use]
    pub fn of_model<'a>(architecture: &str, names: impl IntoIterator<Item = &'a str>) -> Self {
        let known = |name: &str| {
            let letters = name.chars().filter(char::is_ascii_alphanumeric);
            let name: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
            match architecture {
                "qwen3" if name.contains("qwen3reranker") => Some(Self::Qwen3),
                "gemma" if name.contains("bgererankerv2gemma") => Some(Self::BgeGemma),
                "qwen2" if name.contains("mxbaireranklarge") => Some(Self::MxbaiLarge),
                "qwen2" if name.contains("mxbairerankbase") => Some(Self::MxbaiBase),
                _ => None,
            }
        };
        names.into_iter().find_map(known).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_published_files_are_known() {
        for (architecture, name, prompt) in [
            ("qwen3", "Qwen3 Reranker 0.6B", YesNoPrompt::Qwen3),
            ("qwen3", "qwen3-reranker-0.6b-q8_0.gguf", YesNoPrompt::Qwen3),
            ("qwen3", "Qwen3-0.6B", YesNoPrompt::Generic),
            ("gemma", "bge-reranker-v2-gemma-Q8_0.gguf", YesNoPrompt::BgeGemma),
            // It uses logits of inner layers, which llama.cpp does not expose.
            ("gemma2", "bge-reranker-v2.5-gemma2-lightweight", YesNoPrompt::Generic),
            ("qwen2", "mxbai-rerank-base-v2", YesNoPrompt::MxbaiBase),
            ("qwen2", "Mxbai Rerank Large v2", YesNoPrompt::MxbaiLarge),
            ("llama", "a merge of Qwen3-Reranker", YesNoPrompt::Generic),
        ] {
            assert_eq!(YesNoPrompt::of_model(architecture, [name]), prompt, "{name}");
        }
        assert_eq!(YesNoPrompt::of_model("qwen3", ["model.gguf", "Qwen3-Reranker-4B"]), YesNoPrompt::Qwen3);
        assert_eq!(YesNoPrompt::of_model("qwen3", []), YesNoPrompt::Generic);
    }

    #[test]
    fn prompts_are_found_by_their_names() {
        assert!(YesNoPrompt::ALL.into_iter().all(|prompt| YesNoPrompt::find(prompt.name()) == Some(prompt)));
        assert_eq!(YesNoPrompt::find("Qwen3"), None);
    }
}
