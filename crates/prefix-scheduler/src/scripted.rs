//! Scripted models for tests: a generator, a tokenizer and an entailment model with exact results and injected faults.
//!
//! They implement the traits of `crate::model`, so every test uses the real queue, threads, engine and RPC.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::model::entailment::{Entailment, EntailmentInfo, EntailmentProbabilities, TextPair};
use crate::model::reranker::{Encoded, Reranker, RerankerInfo, Shortening, TextError, TokenStates, TooLong};
use crate::model::{Batch, Capacity, Decoded, Generator, ModelError, PromptFormat, Tokenizer};
use crate::plan::Token;

/// Returns the log-probability of a token given the preceding tokens.
pub type Script = dyn Fn(&[Token], Token) -> f64 + Send + Sync;

/// Vocabulary size of scripted samples: 256 bytes, the beginning token 256 and [`END`].
const VOCABULARY: Token = 258;
/// The token that ends a scripted model's turn.
pub const END: Token = 257;

/// A fault injected at a step. Steps count from 1 over the lifetime of the generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The step returns an error.
    Error(usize),
    /// The step panics, like a faulty runtime.
    Panic(usize),
    /// Saving a state fails at this call.
    Save(usize),
    /// Restoring a state fails at this call.
    Restore(usize),
    /// Moving a state takes longer than evaluating its tokens, as over the bus of an accelerator.
    ExpensiveStates,
}

/// Counters that a test can read while the generator runs on the worker's thread.
#[derive(Debug, Default)]
pub struct Observed {
    /// Number of decoded steps.
    pub steps: AtomicUsize,
    /// Number of decoded tokens.
    pub tokens: AtomicUsize,
    /// Number of cells in use after the last call.
    pub cells: AtomicUsize,
    /// Number of generators built.
    pub built: AtomicUsize,
    /// Number of states saved.
    pub saved: AtomicUsize,
    /// Number of states restored.
    pub restored: AtomicUsize,
    /// How often the cache was emptied with its numbers.
    pub cleared: AtomicUsize,
}

/// A generator that scores tokens with a script.
pub struct ScriptedGenerator {
    /// Capacity; exceeding it is a decode error.
    pub capacity: Capacity,
    /// Log-probability of each token.
    pub script: Arc<Script>,
    /// Simulated time per token.
    pub delay: Duration,
    /// Fault to inject, if any.
    pub fault: Option<Fault>,
    /// Counters, shared with the test.
    pub observed: Arc<Observed>,
    sequences: HashMap<usize, Vec<(usize, Token)>>,
    next_cell: usize,
}

impl std::fmt::Debug for ScriptedGenerator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ScriptedGenerator").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl ScriptedGenerator {
    /// A generator with the given capacity and script.
    #[must_use]
    pub fn new(capacity: Capacity, script: Arc<Script>, observed: Arc<Observed>) -> Self {
        observed.built.fetch_add(1, Ordering::SeqCst);
        let delay = Duration::ZERO;
        Self { capacity, script, delay, fault: None, observed, sequences: HashMap::new(), next_cell: 0 }
    }

    fn publish(&self) -> usize {
        let live: HashSet<usize> = self.sequences.values().flatten().map(|(cell, _)| *cell).collect();
        self.observed.cells.store(live.len(), Ordering::SeqCst);
        live.len()
    }
}

impl Generator for ScriptedGenerator {
    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn fork(&mut self, from: usize, to: usize, length: usize) -> Result<(), ModelError> {
        let source = self.sequences.get(&from).ok_or_else(|| ModelError::Decode(format!("no sequence {from}")))?;
        let copy = source.get(..length).ok_or_else(|| ModelError::Decode(format!("sequence {from} is too short")))?;
        let copy = copy.to_vec();
        if self.sequences.insert(to, copy).is_some() {
            return Err(ModelError::Decode(format!("sequence {to} is in use")));
        }
        Ok(())
    }

    fn state_identity(&self) -> Option<String> {
        Some("scripted".into())
    }

    fn saves_cheaply(&self) -> bool {
        self.fault != Some(Fault::ExpensiveStates)
    }

    /// A state is its tokens, with the position of the first: a foreign state restores other scores.
    fn save(&mut self, sequence: usize, positions: Range<usize>) -> Result<Vec<u8>, ModelError> {
        let call = self.observed.saved.fetch_add(1, Ordering::SeqCst) + 1;
        if self.fault == Some(Fault::Save(call)) {
            return Err(ModelError::Decode("injected".into()));
        }
        let cells = self.sequences.get(&sequence).and_then(|cells| cells.get(positions.clone()));
        let cells = cells.ok_or_else(|| ModelError::Decode(format!("sequence {sequence} lacks {positions:?}")))?;
        let start = u32::try_from(positions.start).unwrap_or(u32::MAX).to_le_bytes();
        Ok(start.into_iter().chain(cells.iter().flat_map(|(_, token)| token.to_le_bytes())).collect())
    }

    fn restore(&mut self, state: &[u8], to: usize, positions: Range<usize>) -> Result<(), ModelError> {
        let call = self.observed.restored.fetch_add(1, Ordering::SeqCst) + 1;
        if self.fault == Some(Fault::Restore(call)) {
            return Err(ModelError::Decode("injected".into()));
        }
        let words: Vec<i32> =
            state.chunks_exact(4).map(|word| i32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
        let start = words.first().and_then(|start| usize::try_from(*start).ok());
        if start != Some(positions.start) || words.len() != positions.len() + 1 {
            return Err(ModelError::Decode(format!("the state is not of {positions:?}")));
        }
        let sequence = self.sequences.entry(to).or_default();
        if sequence.len() != positions.start {
            return Err(ModelError::Decode(format!("sequence {to} is not at {}", positions.start)));
        }
        for token in &words[1..] {
            sequence.push((self.next_cell, *token));
            self.next_cell += 1;
        }
        if self.publish() > self.capacity.cells || self.sequences.len() > self.capacity.sequences {
            return Err(ModelError::Decode("no room in the cache".into()));
        }
        Ok(())
    }

    fn release(&mut self, sequence: usize) -> Result<(), ModelError> {
        self.sequences.remove(&sequence);
        self.publish();
        Ok(())
    }

    fn clear(&mut self, numbers: bool) {
        self.sequences.clear();
        self.publish();
        self.observed.cleared.fetch_add(usize::from(numbers), Ordering::SeqCst);
    }

    fn decode(&mut self, batch: &Batch) -> Result<Decoded, ModelError> {
        let step = self.observed.steps.fetch_add(1, Ordering::SeqCst) + 1;
        self.observed.tokens.fetch_add(batch.rows.len(), Ordering::SeqCst);
        match self.fault {
            Some(Fault::Error(at)) if at == step => return Err(ModelError::Decode("injected".into())),
            Some(Fault::Panic(at)) if at == step => std::panic::panic_any("injected panic"),
            _ => {}
        }
        std::thread::sleep(self.delay * u32::try_from(batch.rows.len()).unwrap_or(u32::MAX));
        let mut scores = vec![f64::NAN; batch.targets.len()];
        let mut drawn = Vec::with_capacity(batch.draws.len());
        for row in &batch.rows {
            let sequence = self.sequences.entry(row.sequence).or_default();
            if sequence.len() != row.position {
                return Err(ModelError::Decode(format!("sequence {} is not at {}", row.sequence, row.position)));
            }
            sequence.push((self.next_cell, row.token));
            self.next_cell += 1;
            let history: Vec<Token> = sequence.iter().map(|(_, token)| *token).collect();
            for target in row.targets.clone() {
                scores[target] = (self.script)(&history, batch.targets[target].0);
            }
            for wanted in &batch.draws[row.draws.clone()] {
                #[expect(clippy::cast_possible_truncation, reason = "a real model's logits are single precision")]
                let logits: Vec<f32> = (0..VOCABULARY).map(|token| (self.script)(&history, token) as f32).collect();
                // A script that returns a non-finite value makes the draw fail, like broken weights.
                drawn.push(wanted.from_logits(&logits));
            }
        }
        if self.publish() > self.capacity.cells || self.sequences.len() > self.capacity.sequences {
            return Err(ModelError::Decode("no room in the cache".into()));
        }
        Ok(Decoded { scores, drawn })
    }
}

/// One token per byte. [`Tokenizer::template`] adds the beginning token 256; no text is parsed as a control token.
#[derive(Debug, Clone, Default)]
pub struct ByteTokenizer {
    /// Chat template to report; `None` for a model without a chat template.
    pub frame: Option<(String, String)>,
}

impl Tokenizer for ByteTokenizer {
    fn text(&self, text: &str) -> Vec<Token> {
        text.bytes().map(Token::from).collect()
    }

    fn template(&self, text: &str, first: bool) -> Vec<Token> {
        let begin = first.then_some(256);
        begin.into_iter().chain(self.text(text)).collect()
    }

    fn bytes(&self, tokens: &[Token]) -> Vec<u8> {
        tokens.iter().filter_map(|token| u8::try_from(*token).ok()).collect()
    }

    fn ends_turn(&self, token: Token) -> bool {
        token == END
    }

    fn chat_frame(&self, frame: PromptFormat) -> Result<Option<(String, String)>, String> {
        Ok(self.frame.clone().filter(|_| frame != PromptFormat::Plain))
    }
}

/// A script in which a token is likelier the more often it occurred before, with more weight on early occurrences.
/// Scores therefore depend on passages and positions, as the fit expects.
#[must_use]
pub fn overlap_script() -> Arc<Script> {
    Arc::new(|history, target| {
        let length = f64::from(u32::try_from(history.len()).unwrap_or(u32::MAX)).max(1.0);
        let mut mass = 0.1;
        for (index, token) in history.iter().enumerate() {
            if *token == target {
                let position = f64::from(u32::try_from(index).unwrap_or(u32::MAX)) / length;
                mass += 1.5 - position;
            }
        }
        (mass / (length + 10.0)).ln()
    })
}

/// Scores by shared words: the number of words of the query in the passage. A word is a token, and its number of
/// bytes the token's number.
#[derive(Debug, Clone)]
pub struct ScriptedReranker {
    /// Simulated time per passage.
    pub delay: Duration,
    /// Number of passages scored so far, shared with the test.
    pub scored: Arc<AtomicUsize>,
    /// A query of this many words makes the next call panic, like a faulty runtime.
    pub panics_at: Option<usize>,
    /// Longest text in words.
    pub most: usize,
}

impl Reranker for ScriptedReranker {
    fn info(&self) -> RerankerInfo {
        RerankerInfo {
            name: "scripted".into(),
            sha256: "2".repeat(64),
            most_tokens: self.most,
            ..RerankerInfo::default()
        }
    }

    fn query(&self, text: &str, truncate: bool) -> Result<Encoded, TextError> {
        self.passage(&Encoded::default(), text, Shortening { passage_tokens: None, truncate, from_start: false })
    }

    fn passage(&self, _: &Encoded, text: &str, shortening: Shortening) -> Result<Encoded, TextError> {
        let length = |word: &str| u32::try_from(word.len()).unwrap_or(u32::MAX);
        let ids: Vec<u32> = text.split_whitespace().map(length).collect();
        let cut = ids.len().saturating_sub(self.most);
        if cut > 0 && !shortening.truncate {
            return Err(TooLong { needed: ids.len(), available: self.most }.into());
        }
        Ok(Encoded { ids: ids[..ids.len() - cut].to_vec(), cut, ..Encoded::default() })
    }

    fn query_cost(&self, _: &Encoded) -> usize {
        0
    }

    fn score(&mut self, query: &Encoded, passages: &[&Encoded]) -> Result<Vec<f64>, ModelError> {
        if self.panics_at.take_if(|words| *words == query.ids.len()).is_some() {
            std::panic::panic_any("injected panic");
        }
        std::thread::sleep(self.delay * u32::try_from(passages.len()).unwrap_or(u32::MAX));
        self.scored.fetch_add(passages.len(), Ordering::SeqCst);
        let shared = |passage: &&Encoded| {
            let count = query.ids.iter().filter(|word| passage.ids.contains(word)).count();
            // A word of thirteen bytes represents weights that are not numbers.
            if passage.ids.contains(&13) { f64::NAN } else { f64::from(u32::try_from(count).unwrap_or(u32::MAX)) }
        };
        Ok(passages.iter().map(shared).collect())
    }

    /// The embedding of a word is its number of bytes. A word of thirteen represents weights that are not numbers.
    fn states(&mut self, texts: &[&str]) -> Result<Vec<TokenStates>, ModelError> {
        std::thread::sleep(self.delay * u32::try_from(texts.len()).unwrap_or(u32::MAX));
        let state = |word: &str| match u8::try_from(word.len()) {
            Ok(13) | Err(_) => f32::NAN,
            Ok(length) => f32::from(length),
        };
        let states = |text: &&str| TokenStates {
            width: 1,
            values: text.split_whitespace().map(state).collect(),
            unreadable: false,
        };
        Ok(texts.iter().map(states).collect())
    }
}

/// Entailment by shared words: a premise with all words of the hypothesis entails it; with some it is neutral; with
/// none it contradicts.
#[derive(Debug)]
pub struct ScriptedEntailment {
    /// Simulated time per pair.
    pub delay: Duration,
    /// Number of pairs judged so far, shared with the test.
    pub judged: Arc<AtomicUsize>,
    /// True if the next call panics, like a faulty runtime.
    pub panics: bool,
    /// True if the model reports that it distinguishes neutral from contradiction.
    pub three_way: bool,
}

impl Entailment for ScriptedEntailment {
    fn info(&self) -> EntailmentInfo {
        EntailmentInfo { name: "scripted".into(), sha256: "1".repeat(64), three_way: self.three_way, most_tokens: 512 }
    }

    fn judge(&mut self, pairs: &[TextPair]) -> Result<Vec<EntailmentProbabilities>, ModelError> {
        if std::mem::take(&mut self.panics) {
            std::panic::panic_any("injected panic");
        }
        std::thread::sleep(self.delay * u32::try_from(pairs.len()).unwrap_or(u32::MAX));
        self.judged.fetch_add(pairs.len(), Ordering::SeqCst);
        let words = |text: &str| text.split_whitespace().map(str::to_lowercase).collect::<HashSet<_>>();
        let verdict = |pair: &TextPair| {
            let (premise, hypothesis) = (words(&pair.premise), words(&pair.hypothesis));
            match hypothesis.intersection(&premise).count() {
                shared if shared == hypothesis.len() => {
                    EntailmentProbabilities { entailment: 0.9, neutral: 0.06, contradiction: 0.04 }
                }
                0 => EntailmentProbabilities { entailment: 0.02, neutral: 0.08, contradiction: 0.9 },
                _ => EntailmentProbabilities { entailment: 0.1, neutral: 0.7, contradiction: 0.2 },
            }
        };
        Ok(pairs.iter().map(verdict).collect())
    }
}
