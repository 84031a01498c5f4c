//! Interface of a model that scores passages against a query: a cross-encoder or an embedding model.

use super::ModelError;

/// The tokens of one text or pair, as the model reads them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encoded {
    /// Token numbers.
    pub ids: Vec<u32>,
    /// Token type (segment) of each; empty if the model has none.
    pub types: Vec<u32>,
    /// Tokens dropped from the passage, or from the query.
    pub cut: usize,
    /// True if the model cannot read the text: the tokenizer does not know most of its words. Scores of such a text
    /// are meaningless, because all unknown words are one token.
    pub unreadable: bool,
}

/// How a passage is shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortening {
    /// Maximum number of tokens of a passage, set by the caller; `None` for the model's limit only.
    pub passage_tokens: Option<usize>,
    /// True if a passage may be cut to fit the model.
    pub truncate: bool,
    /// True if its first tokens are dropped instead of its last ones.
    pub from_start: bool,
}

/// A text that does not fit the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong {
    /// Tokens needed.
    pub needed: usize,
    /// Tokens available for the text.
    pub available: usize,
}

/// A text that the model cannot read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextError {
    /// It does not fit.
    TooLong(TooLong),
    /// The tokenizer failed, for this reason.
    Tokenizer(String),
}

impl From<TooLong> for TextError {
    fn from(length: TooLong) -> Self {
        Self::TooLong(length)
    }
}

/// Description of a loaded reranker or embedding model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RerankerInfo {
    /// Catalogue name or file name.
    pub name: String,
    /// SHA-256 of the model's file.
    pub sha256: String,
    /// Readable architecture and file format.
    pub description: String,
    /// Readable name of the output that gives the utility, such as `logit of LABEL_0`.
    pub output: String,
    /// Maximum number of tokens of a pair, or of a text for an embedding model.
    pub most_tokens: usize,
    /// Most passages that it evaluates in one step.
    pub batch: usize,
}

/// The embeddings of a text's tokens, without special tokens, from the last layer of an encoder.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TokenStates {
    /// Numbers per token.
    pub width: usize,
    /// The numbers of all tokens, one token after the other; empty for a text without tokens.
    pub values: Vec<f32>,
    /// True if the model cannot read the text ([`Encoded::unreadable`]).
    pub unreadable: bool,
}

/// A model that scores passages against a query. It stays on one thread and need not be `Send`.
pub trait Reranker {
    /// Name, file hash and limits of the model.
    fn info(&self) -> RerankerInfo;

    /// Tokenises a query. If a query leaves no tokens for a passage, its end is cut with `truncate`; otherwise that
    /// is an error.
    ///
    /// # Errors
    /// [`TextError`]: [`TextError::TooLong`] if the query may not be cut.
    fn query(&self, text: &str, truncate: bool) -> Result<Encoded, TextError>;

    /// Tokenises a passage, for a cross-encoder as a pair with the query.
    ///
    /// # Errors
    /// [`TextError`]: [`TextError::TooLong`] if the passage may not be cut.
    fn passage(&self, query: &Encoded, text: &str, shortening: Shortening) -> Result<Encoded, TextError>;

    /// Tokenises passages like [`passage`](Self::passage), in their order.
    fn passages(&self, query: &Encoded, texts: &[String], shortening: Shortening) -> Vec<Result<Encoded, TextError>> {
        texts.iter().map(|text| self.passage(query, text, shortening)).collect()
    }

    /// Tokens of the query, in addition to those of the passages; 0 if every pair contains it.
    fn query_cost(&self, _query: &Encoded) -> usize {
        0
    }

    /// True if the passage can be scored without evaluating it, because its vector was cached.
    fn is_known(&self, _passage: &Encoded) -> bool {
        false
    }

    /// Scores of passages, in input order: a logit for a cross-encoder, the cosine for an embedding model. The call blocks the
    /// model's thread, so callers pass short lists. A score that is not a number is returned as it is.
    ///
    /// # Errors
    /// [`ModelError::Decode`] when the runtime reports an error.
    fn score(&mut self, query: &Encoded, passages: &[&Encoded]) -> Result<Vec<f64>, ModelError>;

    /// The embeddings of the tokens of texts, in input order. Each text is read separately, without a prefix, and
    /// its end is cut to fit the model. The call blocks the model's thread, so callers pass short lists.
    ///
    /// # Errors
    /// [`ModelError::Unusable`] for a model without them; [`ModelError::Decode`] when the runtime reports an error.
    fn states(&mut self, _texts: &[&str]) -> Result<Vec<TokenStates>, ModelError> {
        let problem =
            "it gives no states of tokens; an embedding model whose network does not pool them does".to_owned();
        Err(ModelError::Unusable { path: self.info().name, problem })
    }
}
