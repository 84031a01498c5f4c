//! The roles of models.

/// What a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Scores and samples text.
    Generator,
    /// Scores text in the generator's place; it never answers.
    Scorer,
    /// Judges entailment.
    Entailment,
    /// Scores pairs of query and passage.
    Reranker,
    /// Embeds query and passages apart.
    Embedding,
}

impl Role {
    /// Its name in logs and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generator => "generator",
            Self::Scorer => "scorer",
            Self::Entailment => "entailment",
            Self::Reranker => "reranker",
            Self::Embedding => "embedding",
        }
    }
}
