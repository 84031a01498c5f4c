//! The seam between the server and its models: what the scheduler asks of a generator, in plain types.
//!
//! Adapters in `runtime` implement the traits; `scripted` implements them for tests. Traits are synchronous: the generator
//! lives on one thread and needs neither `Send` nor `Sync`.

pub mod entailment;

use std::ops::Range;

use crate::numeric::sampling::Sampling;
use crate::plan::Token;

/// Why a model could not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The file cannot be used; the message names it.
    #[error("{path}: {problem}")]
    Unusable {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The runtime refused a step.
    #[error("decode failed: {0}")]
    Decode(String),
    /// A template has no place for the passages.
    #[error("chat template cannot be used: {0}")]
    Template(String),
}

/// What a generator can hold and do at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Cache cells: tokens held at once over all sequences.
    pub cells: usize,
    /// Sequences held at once.
    pub sequences: usize,
    /// Tokens evaluated in one step.
    pub batch: usize,
}

/// One token of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The token.
    pub token: Token,
    /// Its position in the sequence; the previous positions are held already or come earlier in the batch.
    pub position: usize,
    /// The sequence it extends.
    pub sequence: usize,
    /// Range of [`Batch::targets`] to be predicted after this token; empty for none.
    pub targets: Range<usize>,
    /// Range of [`Batch::draws`] to be drawn after this token; empty for none.
    pub draws: Range<usize>,
}

impl Row {
    /// Whether the logits after this token are read.
    #[must_use]
    pub fn is_read(&self) -> bool {
        !self.targets.is_empty() || !self.draws.is_empty()
    }
}

/// A token to be drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// How.
    pub sampling: Sampling,
    /// The random number that decides, in [0, 1).
    pub uniform: f64,
}

/// The outcome of a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decoded {
    /// Natural log-probability of every target, in the order of [`Batch::targets`].
    pub scores: Vec<f64>,
    /// The drawn tokens with their natural log-probabilities at the sampling temperature, in the order of [`Batch::draws`].
    /// `None` where the row's logits have no finite normaliser, so that no token can be drawn; other rows are not affected.
    pub drawn: Vec<Option<(Token, f64)>>,
}

/// The tokens of one step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// The tokens, in order.
    pub rows: Vec<Row>,
    /// Tokens whose log-probability is wanted.
    pub targets: Vec<Token>,
    /// Tokens to be drawn.
    pub draws: Vec<Draw>,
}

/// A causal language model with a cache of sequences.
pub trait Generator {
    /// What it can hold.
    fn capacity(&self) -> Capacity;

    /// Makes `to` a fresh sequence that shares the first `length` positions of `from`.
    ///
    /// # Errors
    /// [`ModelError::Decode`] when the runtime refuses.
    fn fork(&mut self, from: usize, to: usize, length: usize) -> Result<(), ModelError>;

    /// Forgets a sequence; cells that no other sequence shares are free at once.
    ///
    /// # Errors
    /// [`ModelError::Decode`] when the runtime refuses.
    fn release(&mut self, sequence: usize) -> Result<(), ModelError>;

    /// Evaluates the rows, scores the targets and draws the tokens of [`Batch::draws`]. A row whose logits have no finite
    /// normaliser is no error: its scores are NaN and its draws `None`.
    ///
    /// # Errors
    /// [`ModelError::Decode`] when the runtime refuses the step; the sequences of the batch are then undefined until
    /// released.
    fn decode(&mut self, batch: &Batch) -> Result<Decoded, ModelError>;
}

/// Text to tokens, for the vocabulary of one generator. Callable from any thread.
pub trait Tokenizer: Send + Sync {
    /// Tokens of caller's text. Text that spells a control token stays text.
    fn text(&self, text: &str) -> Vec<Token>;

    /// Tokens of template text, in which control tokens are control tokens; `opening` adds the beginning-of-sequence token
    /// where the model wants one.
    fn template(&self, text: &str, opening: bool) -> Vec<Token>;

    /// Bytes that tokens spell. They need not be UTF-8: a character may be split over several tokens.
    fn bytes(&self, tokens: &[Token]) -> Vec<u8>;

    /// Text that tokens spell; bytes that are not UTF-8 are replaced by U+FFFD.
    fn detokenize(&self, tokens: &[Token]) -> String {
        String::from_utf8_lossy(&self.bytes(tokens)).into_owned()
    }

    /// Whether a token ends the model's turn.
    fn ends_turn(&self, token: Token) -> bool;

    /// Template text around a user's message: `(before it, after it and before the answer)`. `None` for a model without a
    /// chat template.
    fn chat_frame(&self) -> Option<(String, String)>;
}

/// What is known of a loaded generator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratorInfo {
    /// Catalogue name or file name.
    pub name: String,
    /// SHA-256 of the file as it was given, lower-case hexadecimal.
    pub sha256: String,
    /// Tensor type it runs in: `as shipped`, or what it was re-encoded to.
    pub encoding: String,
    /// SHA-256 of the file that runs.
    pub running_sha256: String,
    /// Architecture and size as the file states them.
    pub description: String,
    /// Size of the file.
    pub bytes: u64,
    /// Longest sequence the model was trained for.
    pub trained_context: usize,
    /// Whether its chat template is used.
    pub chat: bool,
}
