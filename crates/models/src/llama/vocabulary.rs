//! Tokenisation, on any thread. The file is loaded a second time, as vocabulary without tensors.

use std::path::Path;

use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::model::{LlamaChatMessage, LlamaChatTemplate, LlamaModel};
use llama_cpp_2::token::LlamaToken;

use super::chat_template::{self, Marks};
use super::load;
use prefix_scheduler::model::{ModelError, PromptFormat, Tokenizer};
use prefix_scheduler::plan::Token;

/// The vocabulary and metadata of a GGUF file.
#[derive(Debug)]
pub struct Vocabulary {
    model: LlamaModel,
    /// The tokens of a newline, for vocabularies that prepend a space to every text.
    line_end: Option<Vec<Token>>,
    byte_level: bool,
}

impl Vocabulary {
    /// Reads a GGUF file without its tensors.
    ///
    /// # Errors
    /// [`ModelError::Unusable`] when it is not a GGUF file of a supported architecture.
    pub fn load(path: &Path) -> Result<Self, ModelError> {
        let model = load(path, &LlamaModelParams::default().with_vocab_only(true))?;
        // SentencePiece. Read from the metadata, because the binding panics for vocabulary kinds that it does not know.
        let adds_space = model.meta_val_str("tokenizer.ggml.model").is_ok_and(|kind| kind == "llama")
            && model.meta_val_str("tokenizer.ggml.add_space_prefix").ok().as_deref() != Some("false");
        let line_end = adds_space.then(|| plain(model.vocab().tokenize(b"\n", false, false)));
        let byte_level = is_byte_level(&model);
        Ok(Self { model, line_end, byte_level })
    }

    /// The tokens of a text that continues another. SentencePiece vocabularies prepend a space to each text, as if
    /// it began the prompt, but not after a newline.
    fn continued(&self, text: &str, line_end: &[Token], special: bool) -> Vec<Token> {
        let tokens = |text: &str| plain(self.model.vocab().tokenize(text.as_bytes(), false, special));
        let behind = tokens(&format!("\n{text}"));
        behind.strip_prefix(line_end).map_or_else(|| tokens(text), <[Token]>::to_vec)
    }

    /// Longest sequence that the model was trained on, in tokens; `usize::MAX` when the file does not state it.
    pub fn trained_context(&self) -> usize {
        // llama.cpp skips the hyperparameters when it loads no tensors, so they are read from the metadata.
        let architecture = self.metadata("general.architecture").unwrap_or_default();
        let stated = self.metadata(&format!("{architecture}.context_length"));
        stated.and_then(|text| text.parse().ok()).unwrap_or(usize::MAX)
    }

    /// A metadata value of the file, for example of `general.architecture`; `None` when the key is missing.
    pub fn metadata(&self, key: &str) -> Option<String> {
        self.model.meta_val_str(key).ok()
    }

    /// Keys and values per token over all layers: the numbers in a cell of the cache. `None` if the file does not state
    /// it or its layers differ.
    pub fn cell_numbers(&self) -> Option<usize> {
        cell_numbers(|key| self.metadata(key))
    }
}

/// Layers x key-value heads x (length of a key + length of a value), by GGUF's metadata.
fn cell_numbers(metadata: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let architecture = metadata("general.architecture")?;
    let number = |key: &str| metadata(&format!("{architecture}.{key}")).map(|text| text.parse::<usize>().ok());
    let heads = number("attention.head_count")??;
    // Without this entry every head has its own key and value.
    let shared = number("attention.head_count_kv").unwrap_or(Some(heads))?;
    let size = number("embedding_length")??.checked_div(heads);
    let key = number("attention.key_length").unwrap_or(size)?;
    let value = number("attention.value_length").unwrap_or(size)?;
    number("block_count")??.checked_mul(shared)?.checked_mul(key.checked_add(value)?)
}

/// Marks the position of the user's message in the rendered chat template.
const FRAME_MARK: &str = "\u{2}rerankd\u{3}";

/// Splits a rendered template at the message. Control text in it belongs to the template.
fn split_frame(rendered: &str) -> Result<(String, String), String> {
    match rendered.split(FRAME_MARK).collect::<Vec<_>>()[..] {
        [before, after] => Ok((before.to_owned(), after.to_owned())),
        ref parts => Err(format!("it writes the message {} times instead of once", parts.len() - 1)),
    }
}

/// Renders the template with llama.cpp's built-in renderer for the format that it recognises.
fn recognised(model: &LlamaModel, template: &LlamaChatTemplate) -> Option<String> {
    let message = LlamaChatMessage::new("user".into(), FRAME_MARK.into()).ok()?;
    model.apply_chat_template(template, &[message], true).ok()
}

/// Renders the template itself.
fn evaluated(model: &LlamaModel, template: &LlamaChatTemplate) -> Result<String, String> {
    let text = template.to_str().map_err(|_| "the template is not UTF-8".to_owned())?;
    let vocabulary = model.vocab();
    let mark = |token: LlamaToken| {
        let mut bytes = Vec::new();
        // Some vocabularies have none.
        if token.0 >= 0 {
            vocabulary.token_to_piece_into(token, &mut bytes, true, None);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let marks = Marks { begin: mark(vocabulary.bos()), end: mark(vocabulary.eos()) };
    chat_template::render(text, FRAME_MARK, &marks)
}

fn plain(tokens: Vec<LlamaToken>) -> Vec<Token> {
    tokens.into_iter().map(|token| token.0).collect()
}

/// Most characters that a byte-level vocabulary splits into words at once. If llama.cpp has no code for a vocabulary's
/// pattern, it uses std::regex, which recurses for every character of a run: some thousands end the process.
const AT_ONCE: usize = 1_000;

/// True if llama.cpp splits texts by a pattern of the vocabulary before it merges bytes.
pub(super) fn is_byte_level(model: &LlamaModel) -> bool {
    let kind = model.meta_val_str("tokenizer.ggml.model").unwrap_or_default();
    ["gpt2", "gemma4", "hybriddna", "whitespace"].contains(&kind.as_str())
}

/// Splits a text of a file's template, which has control tokens and so cannot be cut into pieces. A long text is split on
/// a thread with a stack large enough for std::regex on [`chat_template::MOST_BYTES`].
pub(super) fn deep<T: Send>(text: &str, split: impl Fn() -> T + Sync) -> T {
    if text.len() <= AT_ONCE {
        return split();
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("split-template".into()).stack_size(chat_template::STACK_BYTES);
        match thread.spawn_scoped(scope, &split).map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(split)) => split,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            // No thread could be started. Most templates are short enough for this stack.
            Err(_) => split(),
        }
    })
}

/// A text in pieces of at most [`AT_ONCE`] characters. Pieces end at word boundaries, so that the tokens stay the
/// same. A run of this length without a letter or digit before a space is cut at any position.
pub(super) fn pieces(text: &str) -> Vec<&str> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some((most, _)) = rest.char_indices().nth(AT_ONCE) {
        let (piece, after) = rest.split_at(word_end(&rest[..most]).unwrap_or(most));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

/// End of the last word that is followed by a space or East Asian punctuation. A newline may belong to the word.
fn word_end(text: &str) -> Option<usize> {
    let separates = |character: char| {
        let wide = matches!(character, '\u{3000}'..='\u{303f}' | '\u{ff01}'..='\u{ff0f}' | '\u{ff1a}'..='\u{ff20}');
        wide || character.is_whitespace() && !matches!(character, '\r' | '\n')
    };
    let behind = text.char_indices().rev();
    let before = behind.clone().skip(1);
    behind.zip(before).find(|((_, next), (_, last))| separates(*next) && last.is_alphanumeric()).map(|((at, _), _)| at)
}

impl Tokenizer for Vocabulary {
    fn text(&self, text: &str) -> Vec<Token> {
        let vocabulary = self.model.vocab();
        let tokens = |text: &str| plain(vocabulary.tokenize(text.as_bytes(), false, false));
        match &self.line_end {
            Some(line_end) => self.continued(text, line_end, false),
            None if self.byte_level => pieces(text).into_iter().flat_map(tokens).collect(),
            None => tokens(text),
        }
    }

    fn first_text(&self, text: &str) -> Vec<Token> {
        match self.line_end {
            Some(_) => plain(self.model.vocab().tokenize(text.as_bytes(), false, false)),
            None => self.text(text),
        }
    }

    fn template(&self, text: &str, opening: bool) -> Vec<Token> {
        let vocabulary = self.model.vocab();
        let mut tokens = match &self.line_end {
            Some(line_end) if !opening => self.continued(text, line_end, true),
            _ => deep(text, || plain(vocabulary.tokenize(text.as_bytes(), false, true))),
        };
        // The chat template may contain the beginning-of-sequence token itself.
        let begin = vocabulary.bos().0;
        if opening && vocabulary.should_add_bos() && tokens.first() != Some(&begin) {
            tokens.insert(0, begin);
        }
        tokens
    }

    fn bytes(&self, tokens: &[Token]) -> Vec<u8> {
        // Token by token: `llama_detokenize` drops spaces before punctuation and at the beginning for some vocabularies.
        let (vocabulary, mut bytes) = (self.model.vocab(), Vec::new());
        for &token in tokens {
            vocabulary.token_to_piece_into(LlamaToken::new(token), &mut bytes, true, None);
        }
        bytes
    }

    fn ends_turn(&self, token: Token) -> bool {
        // A control token that does not end generation, such as the header of another turn, still ends an answer.
        let (vocabulary, token) = (self.model.vocab(), LlamaToken::new(token));
        vocabulary.is_eog(token) || vocabulary.is_control(token)
    }

    fn chat_frame(&self, frame: PromptFormat) -> Result<Option<(String, String)>, String> {
        let Some(template) = self.model.chat_template(None).ok().filter(|_| frame != PromptFormat::Plain) else {
            return Ok(None);
        };
        let rendered = match frame {
            PromptFormat::Jinja => evaluated(&self.model, &template)?,
            PromptFormat::Chat | PromptFormat::Plain => {
                recognised(&self.model, &template).ok_or("llama.cpp does not know it by its marks")?
            }
        };
        split_frame(&rendered).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chat_template_is_split_at_the_mark() {
        let rendered = format!("<user>{FRAME_MARK}</user><assistant>");
        assert_eq!(split_frame(&rendered), Ok(("<user>".into(), "</user><assistant>".into())));
        assert_eq!(split_frame("nothing").unwrap_err(), "it writes the message 0 times instead of once");
        assert!(split_frame(&rendered.repeat(2)).unwrap_err().contains("2 times"));
    }

    fn golden(name: &str) -> Vocabulary {
        let path = format!("{}/../../tests/golden/vocabulary/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
        Vocabulary::load(Path::new(&path)).unwrap()
    }

    #[test]
    fn a_template_that_llama_cpp_does_not_know_is_evaluated() {
        let vocabulary = golden("byte_level");
        let frame = Some(("<|end|>[".to_owned(), "]<|end|>".to_owned()));
        assert_eq!(vocabulary.chat_frame(PromptFormat::Jinja), Ok(frame));
        assert_eq!(vocabulary.chat_frame(PromptFormat::Plain), Ok(None));
        assert!(vocabulary.chat_frame(PromptFormat::Chat).unwrap_err().contains("llama.cpp does not know"));
        let refused = golden("sentence_piece").chat_frame(PromptFormat::Jinja).unwrap_err();
        assert!(refused.contains("only with documents"), "{refused}");
    }

    /// An unsplit text of 100,000 letters overflows the stack.
    #[test]
    fn a_long_run_does_not_end_the_process() {
        let vocabulary = golden("byte_level");
        for unit in ["a", " ", "!", "\u{4e2d}", "a1 ", "\n"] {
            let text = unit.repeat(100_000);
            assert_eq!(vocabulary.bytes(&vocabulary.text(&text)), text.as_bytes(), "{unit:?}");
        }
    }

    /// A template is not cut, because it may hold control tokens.
    #[test]
    fn a_long_run_in_a_template_does_not_end_the_process() {
        let vocabulary = golden("byte_level");
        for unit in ["a", " ", "!"] {
            let text = unit.repeat(chat_template::MOST_BYTES);
            assert_eq!(vocabulary.bytes(&vocabulary.template(&text, false)), text.as_bytes(), "{unit:?}");
        }
    }

    #[test]
    fn pieces_end_where_words_do() {
        let long = "word, it's 12 \n\n\u{4e2d}\u{6587}\u{ff0c}\u{5f88}\u{597d}\u{3002} ".repeat(300);
        let cut = pieces(&long);
        assert!(cut.len() > 5 && cut.iter().all(|piece| piece.chars().count() <= AT_ONCE));
        assert_eq!(cut.concat(), long);
        let vocabulary = golden("byte_level");
        let whole = vocabulary.model.vocab().tokenize(long.as_bytes(), false, false);
        assert_eq!(vocabulary.text(&long), plain(whole));
        for (before, after) in cut.iter().zip(&cut[1..]) {
            assert!(before.ends_with(char::is_alphanumeric), "{before:?}");
            assert!(after.starts_with([' ', '\u{ff0c}', '\u{3002}']), "{after:?}");
        }
        assert_eq!(pieces(""), [""]);
        assert_eq!(pieces(&"x".repeat(2_500)).iter().map(|piece| piece.len()).collect::<Vec<_>>(), [1_000, 1_000, 500]);
    }

    /// Without this, " who?" would get an extra leading space, and the answer " who ." would lose spaces.
    #[test]
    fn a_text_has_the_tokens_of_its_characters() {
        let vocabulary = golden("sentence_piece");
        let spelt = |tokens: &[Token]| -> Vec<String> {
            tokens.iter().map(|token| String::from_utf8(vocabulary.bytes(&[*token])).unwrap()).collect()
        };
        assert_eq!(spelt(&vocabulary.text(" who?")), [" who", "?"]);
        assert_eq!(spelt(&vocabulary.text("who")), ["who"]);
        assert_eq!(spelt(&vocabulary.first_text("who</s>")[..1]), [" who"], "as the training has it");
        assert!(vocabulary.first_text("").is_empty());
        assert_eq!(spelt(&vocabulary.text("\n\n")), ["\n", "\n"]);
        assert_eq!(spelt(&vocabulary.text("")), [""; 0]);
        assert_eq!(vocabulary.bytes(&vocabulary.text(" who .")), b" who .");
        assert_eq!(spelt(&vocabulary.template(" who</s>", false)), [" who", "</s>"]);
        assert_eq!(
            spelt(&vocabulary.template("who", true)),
            ["<s>", " who"],
            "a prompt begins as the vocabulary wants it"
        );
    }

    #[test]
    fn a_cell_holds_the_keys_and_values_of_all_layers() {
        let file = |entries: &[(&str, &str)]| {
            let entries: Vec<(String, String)> =
                entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            cell_numbers(|key| entries.iter().find(|entry| entry.0 == key).map(|entry| entry.1.clone()))
        };
        let of_30_layers = [
            ("general.architecture", "llama"),
            ("llama.block_count", "30"),
            ("llama.embedding_length", "576"),
            ("llama.attention.head_count", "9"),
            ("llama.attention.head_count_kv", "3"),
        ];
        // 30 layers of 3 heads with a key and a value of 576 / 9 = 64.
        assert_eq!(file(&of_30_layers), Some(30 * 3 * 128));
        // Every head has its own key without the fifth entry.
        assert_eq!(file(&of_30_layers[..4]), Some(30 * 9 * 128));
        let longer = [("llama.attention.key_length", "128"), ("llama.attention.value_length", "32")];
        assert_eq!(file(&[&of_30_layers[..], &longer].concat()), Some(30 * 3 * 160));
        assert_eq!(file(&of_30_layers[..3]), None);
        // A list with one number per layer is not supported.
        assert_eq!(file(&[&of_30_layers[..4], &[("llama.attention.head_count_kv", "[1, 2]")]].concat()), None);
        assert_eq!(file(&[&of_30_layers[..3], &[("llama.attention.head_count", "0")]].concat()), None);
    }
}
