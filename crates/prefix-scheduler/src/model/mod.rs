//! Interfaces of models, in plain types. The scheduler uses them to run a generator.
//!
//! Adapters in `runtime` implement the traits; scripted models implement them for tests. The traits are synchronous. A
//! generator stays on one thread and needs neither `Send` nor `Sync`.

pub mod entailment;
mod frame;
pub mod reranker;
mod yes_no;

use std::ops::Range;

pub use frame::{PromptFormat, measured_on};
pub use yes_no::YesNoPrompt;

use crate::plan::{Reads, Token};
use numeric::logspace::logsumexp;
use numeric::sampling::{Sampling, draw, draw_among};

/// Failure of a model or of its file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// A model file cannot be used.
    #[error("{path}: {problem}")]
    Unusable {
        /// Path of the file.
        path: String,
        /// Reason, without the path.
        problem: String,
    },
    /// The runtime failed to evaluate a step.
    #[error("decode failed: {0}")]
    Decode(String),
}

/// Capacity of a generator, fixed when it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Cache cells: maximum number of tokens cached at once over all sequences.
    pub cells: usize,
    /// Maximum number of sequences cached at once.
    pub sequences: usize,
    /// Maximum number of tokens evaluated in one step.
    pub batch: usize,
}

/// One token of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Token to evaluate.
    pub token: Token,
    /// Position in the sequence, from 0. All earlier positions are cached or come earlier in the batch.
    pub position: usize,
    /// Sequence that the token extends.
    pub sequence: usize,
    /// Range of [`Batch::targets`] scored with the logits of this token; may be empty.
    pub targets: Range<usize>,
    /// Range of [`Batch::draws`] drawn from the logits of this token; may be empty.
    pub draws: Range<usize>,
}

impl Row {
    /// True if the logits of this token are needed.
    #[must_use]
    pub fn is_read(&self) -> bool {
        !self.targets.is_empty() || !self.draws.is_empty()
    }
}

/// Request to draw one token.
#[derive(Debug, Clone, PartialEq)]
pub struct Draw {
    /// Temperature and cuts.
    pub sampling: Sampling,
    /// Random number in [0, 1) that selects the token.
    pub uniform: f64,
    /// The tokens to choose from; `None` for the whole vocabulary.
    pub allowed: Option<Vec<Token>>,
    /// True if [`DrawnToken::distribution`] is wanted.
    pub distribution: bool,
}

/// A drawn token.
#[derive(Debug, Clone, PartialEq)]
pub struct DrawnToken {
    /// The token.
    pub token: Token,
    /// Its natural log-probability at the sampling temperature, among the tokens to choose from.
    pub log_probability: f64,
    /// Natural log-probability of every token of the vocabulary at temperature 1, by token; empty unless it was wanted.
    pub distribution: Vec<f32>,
}

impl Draw {
    /// Draws the token from the logits of its row. Every generator draws with this function. `None` if the logits of the
    /// tokens to choose from have no finite normaliser, because there is then no distribution to draw from.
    #[must_use]
    pub fn from_logits(&self, logits: &[f32]) -> Option<DrawnToken> {
        let drawn = match &self.allowed {
            None => draw(logits, &self.sampling, self.uniform),
            Some(allowed) => {
                let allowed: Vec<usize> = allowed.iter().filter_map(|&token| usize::try_from(token).ok()).collect();
                draw_among(logits, &allowed, &self.sampling, self.uniform)
            }
        };
        let drawn = drawn.filter(|drawn| drawn.log_probability.is_finite())?;
        let distribution = if self.distribution { log_probabilities(logits) } else { Vec::new() };
        let token = Token::try_from(drawn.token).ok()?;
        Some(DrawnToken { token, log_probability: drawn.log_probability, distribution })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "logits are single precision")]
fn log_probabilities(logits: &[f32]) -> Vec<f32> {
    let normaliser = logsumexp(logits);
    logits.iter().map(|logit| (f64::from(*logit) - normaliser) as f32).collect()
}

/// Result of a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decoded {
    /// Score of every target, in the order of [`Batch::targets`]; NaN if the row's logits are invalid.
    pub scores: Vec<f64>,
    /// Drawn tokens in the order of [`Batch::draws`], by [`Draw::from_logits`]. `None` if the normaliser of the logits is
    /// not finite. Other rows are not affected.
    pub drawn: Vec<Option<DrawnToken>>,
}

/// The tokens of one step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// Tokens in evaluation order.
    pub rows: Vec<Row>,
    /// Tokens that are scored.
    pub targets: Vec<(Token, Reads)>,
    /// Draws to make.
    pub draws: Vec<Draw>,
}

/// A causal language model with a key-value cache of sequences.
pub trait Generator {
    /// Capacity of the cache and of a step.
    fn capacity(&self) -> Capacity;

    /// Creates the sequence `to`, which shares the first `length` positions of `from`. `to` must be empty.
    ///
    /// # Errors
    /// [`ModelError::Decode`] when the runtime reports an error.
    fn fork(&mut self, from: usize, to: usize, length: usize) -> Result<(), ModelError>;

    /// Everything that a saved state depends on, except its tokens: the model's weights, the types and the layout
    /// of its cells, and the runtime's build. States with equal identities are interchangeable. `None` if states
    /// cannot be saved.
    fn state_identity(&self) -> Option<String> {
        None
    }

    /// True if saving and restoring a state takes little time compared with evaluating its tokens. On an accelerator, states cross
    /// a bus, which may take longer than evaluating a passage again.
    fn saves_cheaply(&self) -> bool {
        true
    }

    /// Copies the cells of a sequence's `positions` out of the cache. `sequence` holds them.
    ///
    /// # Errors
    /// [`ModelError::Decode`] when the runtime reports an error. The sequence is unchanged.
    fn save(&mut self, _sequence: usize, _positions: Range<usize>) -> Result<Vec<u8>, ModelError> {
        Err(ModelError::Decode("the generator cannot save states".into()))
    }

    /// Appends a state of [`Generator::save`] to `to`, whose length is `positions.start`. Takes as many cells as
    /// there are positions.
    ///
    /// # Errors
    /// [`ModelError::Decode`] if the state does not have these positions, and when the runtime reports an error.
    /// `to` is then unchanged.
    fn restore(&mut self, _state: &[u8], _to: usize, _positions: Range<usize>) -> Result<(), ModelError> {
        Err(ModelError::Decode("the generator cannot restore states".into()))
    }

    /// Removes a sequence. Cells that no other sequence shares are free immediately.
    ///
    /// # Errors
    /// [`ModelError::Decode`] when the runtime reports an error.
    fn release(&mut self, sequence: usize) -> Result<(), ModelError>;

    /// Empties the cache, which no sequence uses any more. The next sequences then get the same cells as in a new
    /// cache. With `numbers`, also erases the content of the cells: a step that is evaluated in tiles also
    /// multiplies free or masked cells, and a product with NaN is NaN.
    fn clear(&mut self, _numbers: bool) {}

    /// Evaluates the rows, scores the targets and makes the draws. A row without a finite normaliser is not an error:
    /// its scores are NaN and its draws `None`.
    ///
    /// # Errors
    /// [`ModelError::Decode`] when the runtime fails. The content of the batch's sequences is then undefined; the
    /// caller must release them.
    fn decode(&mut self, batch: &Batch) -> Result<Decoded, ModelError>;
}

/// Tokenizer of one generator. Callable from any thread.
pub trait Tokenizer: Send + Sync {
    /// Tokenises untrusted text. Text that spells a control token is not parsed as one.
    fn text(&self, text: &str) -> Vec<Token>;

    /// [`Tokenizer::text`] for the first text of a sequence: some vocabularies prepend a space.
    fn first_text(&self, text: &str) -> Vec<Token> {
        self.text(text)
    }

    /// Tokenises template text and parses control tokens. `first` adds the beginning-of-sequence token if the model
    /// uses one.
    fn template(&self, text: &str, first: bool) -> Vec<Token>;

    /// Bytes of the tokens. They may be invalid UTF-8, because a character can span several tokens.
    fn bytes(&self, tokens: &[Token]) -> Vec<u8>;

    /// Text of the tokens. Invalid UTF-8 is replaced by U+FFFD.
    fn detokenize(&self, tokens: &[Token]) -> String {
        String::from_utf8_lossy(&self.bytes(tokens)).into_owned()
    }

    /// True if a token ends the model's turn (end of sequence or end of turn).
    fn ends_turn(&self, token: Token) -> bool;

    /// Chat template around the user's message: the text before the message, and the text between message and answer.
    /// `None` for [`PromptFormat::Plain`] and for a model without a chat template.
    ///
    /// # Errors
    /// The reason why the template of the model's file yields no such text.
    fn chat_frame(&self, frame: PromptFormat) -> Result<Option<(String, String)>, String>;
}

/// Description of a loaded generator.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GeneratorInfo {
    /// Catalogue name or file name.
    pub name: String,
    /// SHA-256 of the configured file, lower-case hexadecimal.
    pub sha256: String,
    /// Tensor type in use: `as shipped`, or the type the file was re-encoded to.
    pub encoding: String,
    /// SHA-256 of the loaded file. It differs from `sha256` if the file was re-encoded.
    pub running_sha256: String,
    /// Architecture and size according to the file's metadata.
    pub description: String,
    /// Size of the configured file in bytes.
    pub bytes: u64,
    /// Maximum sequence length of the training, in tokens.
    pub trained_context: usize,
    /// True if prompts use the model's chat template.
    pub chat: bool,
    /// The configured prompt format.
    pub frame: PromptFormat,
    /// The prompt of the method `yes-no`.
    pub yes_no: YesNoPrompt,
    /// Device that computes its steps: `cpu`, or the kind of the accelerator, such as `cuda`.
    pub compute: String,
    /// The adapter that is applied to it.
    pub adapter: Option<AdapterInfo>,
    /// Bytes of a cache cell, which holds one token; `None` if its file does not say.
    pub cell_bytes: Option<usize>,
    /// Type of the numbers in the cells, by its configuration name.
    pub cell_type: &'static str,
}

/// A LoRA adapter that is applied to a generator.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterInfo {
    /// Catalogue name or file name.
    pub name: String,
    /// SHA-256 of its file, lower-case hexadecimal.
    pub sha256: String,
    /// Factor of the adapter.
    pub scale: f32,
}

/// Name of the weights that score: the generator's file, and the adapter's file and scale if there is one.
#[must_use]
pub fn weights(sha256: &str, adapter: Option<&AdapterInfo>) -> String {
    match adapter {
        Some(AdapterInfo { sha256: adapter, scale, .. }) => format!("{sha256}+{adapter}x{scale}"),
        None => sha256.to_owned(),
    }
}

impl GeneratorInfo {
    /// See [`measured_on`].
    #[must_use]
    pub fn measured_on(&self) -> String {
        measured_on(&self.weights(), self.frame, self.yes_no)
    }

    /// See [`weights`].
    #[must_use]
    pub fn weights(&self) -> String {
        weights(&self.sha256, self.adapter.as_ref())
    }

    /// The prompt format in use: the configured one, or plain text for a model without a template.
    #[must_use]
    pub const fn frame_in_use(&self) -> PromptFormat {
        if self.chat { self.frame } else { PromptFormat::Plain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_kept_where_it_is_wanted() {
        let probabilities = [0.5_f32, 0.25, 0.125, 0.125];
        let logits = probabilities.map(|p| p.ln() + 3.0);
        let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
        // Neither the temperature nor the choice of tokens changes it.
        let mut wanted = Draw { sampling, uniform: 0.0, allowed: Some(vec![1, 2]), distribution: true };
        let drawn = wanted.from_logits(&logits).unwrap();
        assert_eq!(drawn.token, 1);
        assert!((drawn.log_probability - (2.0_f64 / 3.0).ln()).abs() < 1e-6);
        assert!(drawn.distribution.iter().zip(probabilities).all(|(log, p)| (log.exp() - p).abs() < 1e-6));
        wanted.distribution = false;
        assert!(wanted.from_logits(&logits).unwrap().distribution.is_empty());
    }
}
