//! An encoder network with its tokenizer, shared by cross-encoders and embedding models.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ort::session::{Session, SessionOutputs};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokenizers::{Encoding, ModelWrapper, Token, Tokenizer};

use super::fused::fused;
use super::session::{self, Row, Source};
use super::{PassageSettings, environment};
use prefix_scheduler::model::ModelError;
use prefix_scheduler::model::reranker::{Encoded, TextError};

/// Shortest maximum length that leaves room for a query and a passage.
const LEAST_TOKENS: usize = 16;

/// Architectures whose positions start after the position of the padding token: 514 positions hold 512 tokens.
const POSITIONS_AFTER_PADDING: [&str; 4] = ["roberta", "xlm-roberta", "camembert", "mpnet"];

/// The relevant fields of `config.json`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ModelConfig {
    #[serde(default)]
    pub model_type: String,
    #[serde(default)]
    pub id2label: BTreeMap<String, String>,
    max_position_embeddings: Option<usize>,
    pad_token_id: Option<usize>,
}

/// The relevant fields of `tokenizer_config.json`. Files without a limit state 1e30.
#[derive(Debug, Default, Deserialize)]
struct TokenizerConfig {
    model_max_length: Option<f64>,
}

impl ModelConfig {
    /// Longest input in tokens; `None` if the file does not state it.
    fn positions(&self) -> Option<usize> {
        let positions = self.max_position_embeddings?;
        let before = if POSITIONS_AFTER_PADDING.contains(&self.model_type.as_str()) {
            self.pad_token_id.unwrap_or(1) + 1
        } else {
            0
        };
        Some(positions.saturating_sub(before))
    }
}

/// Path of a companion file: in the network's folder, or in the one above if the network is in a folder `onnx`.
pub(super) fn beside(network: &Path, name: &str) -> PathBuf {
    let near = network.with_file_name(name);
    let folder = network.parent().filter(|folder| folder.file_name().is_some_and(|own| own == "onnx"));
    match folder.and_then(Path::parent) {
        Some(above) if !near.exists() => above.join(name),
        _ => near,
    }
}

fn unusable(path: &Path) -> impl Fn(String) -> ModelError {
    move |problem| ModelError::Unusable { path: path.display().to_string(), problem }
}

/// Reads a JSON file; the default if it does not exist.
pub(super) fn json<T: DeserializeOwned + Default>(path: &Path) -> Result<T, ModelError> {
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| unusable(path)(error.to_string())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(unusable(path)(error.to_string())),
    }
}

/// A token of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub id: u32,
    /// Length of its text in characters; 0 for punctuation. Counted only in texts with unknown words.
    length: usize,
}

/// Token numbers of pieces.
pub(super) fn ids(pieces: &[Piece]) -> Vec<u32> {
    pieces.iter().map(|piece| piece.id).collect()
}

/// True if more than half of the characters of a text are in unknown words, or if it has no tokens. Characters are
/// counted, because a whole sentence of a script without spaces is one unknown token. Punctuation does not count.
fn is_unreadable(text: &str, pieces: &[Piece], unknown: Option<u32>) -> bool {
    if pieces.is_empty() {
        return !text.trim().is_empty();
    }
    let all: usize = pieces.iter().map(|piece| piece.length).sum();
    let unread: usize = pieces.iter().filter(|piece| Some(piece.id) == unknown).map(|piece| piece.length).sum();
    2 * unread > all
}

pub(super) struct Encoder {
    sessions: Vec<Session>,
    tokenizer: Tokenizer,
    /// The token for unknown words.
    unknown: Option<u32>,
    pub config: ModelConfig,
    pub most_tokens: usize,
    batch: usize,
    pad: i64,
    typed: bool,
}

impl Encoder {
    pub fn load(settings: &PassageSettings) -> Result<Self, ModelError> {
        let at_network = unusable(&settings.network);
        let environment = environment(&settings.library)?;
        let bytes = std::fs::read(&settings.network).map_err(|error| at_network(error.to_string()))?;
        let fused = fused(&bytes, &settings.sha256).map_err(&at_network)?;
        let batch = session::batch(fused.as_deref().unwrap_or(&bytes), settings.batch);
        drop(bytes);
        let source = fused.as_deref().map_or(Source::File(&settings.network), Source::Bytes);
        // A single row is too small to be split over threads, so each session evaluates its own rows, and needs little memory.
        let sessions = match batch {
            1 => session::sessions(&environment, settings.threads, &source, true),
            _ => session::session(&environment, settings.threads.max(1), &source, false).map(|session| vec![session]),
        }
        .map_err(&at_network)?;
        let typed = session::has_token_types(&sessions[0]).map_err(&at_network)?;
        let config: ModelConfig = json(&beside(&settings.network, "config.json"))?;
        let limits: TokenizerConfig = json(&beside(&settings.network, "tokenizer_config.json"))?;
        let (tokenizer, pad) = tokenizer(&beside(&settings.network, "tokenizer.json"))?;
        let unknown = unknown_token(&tokenizer);
        let stated = limits.model_max_length.filter(|length| *length < 1e6).map(numeric::count);
        let most_tokens = [config.positions(), stated].into_iter().flatten().fold(settings.most_tokens, usize::min);
        if most_tokens < LEAST_TOKENS {
            return Err(at_network(format!("its inputs have at most {most_tokens} tokens, {LEAST_TOKENS} needed")));
        }
        Ok(Self { sessions, tokenizer, unknown, config, most_tokens, batch, pad, typed })
    }

    /// Names of the outputs.
    pub fn outputs(&self) -> Vec<String> {
        self.sessions[0].outputs().iter().map(|output| output.name().to_owned()).collect()
    }

    /// Tokens of a text, without special tokens.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`].
    pub fn tokens(&self, text: &str) -> Result<Vec<Piece>, TextError> {
        pieces(&self.tokenizer, text, self.unknown).map_err(|error| TextError::Tokenizer(error.to_string()))
    }

    /// True if the model cannot read a text of these tokens.
    pub fn is_unreadable(&self, text: &str, pieces: &[Piece]) -> bool {
        is_unreadable(text, pieces, self.unknown)
    }

    /// A short text, or pair of texts, to try the network with. Its words may be unknown to the tokenizer.
    pub fn probe(&self, pair: bool) -> Encoded {
        let [first, second] = ["a", "b"].map(|text| self.tokens(text).map_or_else(|_| vec![0], |pieces| ids(&pieces)));
        let plain = || Encoded { ids: first.clone(), ..Encoded::default() };
        self.frame(&first, pair.then_some(second.as_slice())).unwrap_or_else(|_| plain())
    }

    /// Number of special tokens that are added to a text or a pair.
    pub fn added(&self, pair: bool) -> usize {
        use tokenizers::PostProcessor;
        self.tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(pair))
    }

    /// Puts special tokens around one or two texts.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`].
    pub fn frame(&self, first: &[u32], second: Option<&[u32]>) -> Result<Encoded, TextError> {
        Ok(encoded(&self.framed(first, second)?))
    }

    /// Puts special tokens around a text. Also returns the range of the text's tokens.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`].
    pub fn frame_own(&self, ids: &[u32]) -> Result<(Encoded, Range<usize>), TextError> {
        let framed = self.framed(ids, None)?;
        let start = framed.get_special_tokens_mask().iter().position(|&special| special == 0).unwrap_or(0);
        Ok((encoded(&framed), start..start + ids.len()))
    }

    fn framed(&self, first: &[u32], second: Option<&[u32]>) -> Result<Encoding, TextError> {
        // Later steps read only the numbers, the types and the mask of special tokens.
        let bare = |ids: &[u32], kind: u32| {
            Encoding::from_tokens(ids.iter().map(|&id| Token::new(id, String::new(), (0, 0))).collect(), kind)
        };
        let second_bare = second.map(|ids| bare(ids, 1));
        let framed = self.tokenizer.post_process(bare(first, 0), second_bare, true);
        framed.map_err(|error| TextError::Tokenizer(error.to_string()))
    }

    /// Maximum number of rows in a step.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Evaluates rows in steps. `read` gets the outputs of each step with its rows.
    pub fn run<T: Send>(
        &mut self,
        rows: &[&Encoded],
        read: impl Fn(&SessionOutputs, &[&Encoded]) -> Result<Vec<T>, String> + Sync,
    ) -> Result<Vec<T>, ModelError> {
        let (pad, typed) = (self.pad, self.typed);
        let steps: Vec<&[&Encoded]> = rows.chunks(self.batch).collect();
        let results = session::in_parallel(&mut self.sessions, &steps, |session, step| {
            let padded: Vec<Row> = step.iter().map(|row| Row { ids: &row.ids, types: &row.types }).collect();
            session::run(session, &padded, pad, typed, |outputs| read(outputs, step))
        });
        Ok(results.map_err(ModelError::Decode)?.into_iter().flatten().collect())
    }
}

fn encoded(framed: &Encoding) -> Encoded {
    Encoded { ids: framed.get_ids().to_vec(), types: framed.get_type_ids().to_vec(), ..Encoded::default() }
}

/// Tokens of a text. Offsets take time, and are needed only for unknown words.
fn pieces(tokenizer: &Tokenizer, text: &str, unknown: Option<u32>) -> tokenizers::Result<Vec<Piece>> {
    let encoding = tokenizer.encode_fast(text, false)?;
    let ids = encoding.get_ids();
    if !ids.iter().any(|&id| Some(id) == unknown) {
        return Ok(ids.iter().map(|&id| Piece { id, length: 1 }).collect());
    }
    let encoding = tokenizer.encode(text, false)?;
    let piece = |(&id, &(start, end)): (&u32, &(usize, usize))| {
        let part = text.get(start..end).unwrap_or_default();
        let counts = Some(id) == unknown || part.chars().any(char::is_alphanumeric);
        Piece { id, length: if counts { part.chars().count() } else { 0 } }
    };
    Ok(encoding.get_ids().iter().zip(encoding.get_offsets()).map(piece).collect())
}

/// The tokenizer's token for unknown words; `None` for one that knows every byte.
fn unknown_token(tokenizer: &Tokenizer) -> Option<u32> {
    let name = match tokenizer.get_model() {
        ModelWrapper::WordPiece(model) => Some(&*model.unk_token),
        ModelWrapper::WordLevel(model) => Some(&*model.unk_token),
        ModelWrapper::BPE(model) => model.unk_token.as_deref(),
        // Unigram does not expose its token. Published files use one of these names.
        ModelWrapper::Unigram(_) => ["<unk>", "[UNK]"].into_iter().find(|name| tokenizer.token_to_id(name).is_some()),
    };
    name.and_then(|name| tokenizer.token_to_id(name))
}

fn tokenizer(path: &Path) -> Result<(Tokenizer, i64), ModelError> {
    let unusable = unusable(path);
    let mut tokenizer = Tokenizer::from_file(path).map_err(|error| unusable(error.to_string()))?;
    tokenizer.with_truncation(None).map_err(|error| unusable(error.to_string()))?;
    let stated = tokenizer.get_padding().map(|padding| padding.pad_id);
    let named = || ["[PAD]", "<pad>"].iter().find_map(|token| tokenizer.token_to_id(token));
    let pad = stated.or_else(named).unwrap_or(0);
    tokenizer.with_padding(None);
    Ok((tokenizer, i64::from(pad)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundled(words: &[&str]) -> (Tokenizer, Option<u32>) {
        let vocabulary: Vec<String> =
            words.iter().enumerate().map(|(number, word)| format!("{word:?}: {number}")).collect();
        let text = format!(
            r#"{{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {{"type": "BertPreTokenizer"}}, "post_processor": null, "decoder": null,
            "model": {{"type": "WordPiece", "vocab": {{{}}}, "unk_token": "[UNK]", "continuing_subword_prefix": "\u0023\u0023",
            "max_input_chars_per_word": 100}}}}"#,
            vocabulary.join(", ")
        );
        let tokenizer: Tokenizer = text.parse().unwrap();
        let unknown = unknown_token(&tokenizer);
        (tokenizer, unknown)
    }

    #[test]
    fn a_text_of_unknown_words_cannot_be_read() {
        let (tokenizer, unknown) = bundled(&["[UNK]", "when", "does", "it", "open", "?", "."]);
        assert_eq!(unknown, Some(0));
        let unreadable = |text: &str| is_unreadable(text, &pieces(&tokenizer, text, unknown).unwrap(), unknown);
        for text in [
            "ห้องสมุดเปิดกี่โมง?",
            "បណ្ណាល័យ បើក ?",
            "ቤተ መጻሕፍት መቼ ይከፈታል ?",
            "🔧💡 👨",
            "🔧 ???...",
            // One token of six is unknown, but covers most of the text.
            "it does open ? . ห้องสมุดเปิดกี่โมงห้องสมุดเปิดกี่โมง",
            &"a".repeat(101),
        ] {
            assert!(unreadable(text), "{text}");
        }
        for text in ["when does it open ?", "when does it open 🔧 ?", "when does Kell open it ?", "", " "] {
            assert!(!unreadable(text), "{text}");
        }
        // The normaliser removes the whole text.
        assert!(is_unreadable("\u{e000}", &[], None) && !is_unreadable(" ", &[], None));
    }

    #[test]
    fn a_tokenizer_without_an_unknown_token_reads_everything() {
        let text = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": null, "post_processor": null, "decoder": null,
            "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#;
        let tokenizer: Tokenizer = text.parse().unwrap();
        assert_eq!(unknown_token(&tokenizer), None);
        let read = pieces(&tokenizer, "aa", None).unwrap();
        assert!(!is_unreadable("aa", &read, None));
    }

    #[test]
    fn positions_before_the_first_token_do_not_count() {
        let of = |text: &str| serde_json::from_str::<ModelConfig>(text).unwrap().positions();
        assert_eq!(of(r#"{"model_type":"bert","max_position_embeddings":512,"pad_token_id":0}"#), Some(512));
        assert_eq!(of(r#"{"model_type":"xlm-roberta","max_position_embeddings":514,"pad_token_id":1}"#), Some(512));
        assert_eq!(of("{}"), None);
    }

    #[test]
    fn files_of_a_network_in_a_folder_onnx_lie_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let network = folder.path().join("onnx").join("model.onnx");
        std::fs::create_dir(folder.path().join("onnx")).unwrap();
        assert_eq!(beside(&network, "config.json"), folder.path().join("config.json"));
        std::fs::write(network.with_file_name("config.json"), "{}").unwrap();
        assert_eq!(beside(&network, "config.json"), network.with_file_name("config.json"));
    }
}
