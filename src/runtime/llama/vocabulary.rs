//! Tokenisation, on any thread. The file is loaded a second time, with its vocabulary and without its tensors.

use std::path::Path;

use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::model::{LlamaChatMessage, LlamaModel};
use llama_cpp_2::token::LlamaToken;

use super::load;
use crate::model::{ModelError, Tokenizer};
use crate::plan::Token;

/// The vocabulary and metadata of a GGUF file.
#[derive(Debug)]
pub struct Vocabulary {
    model: LlamaModel,
    frame: Option<(String, String)>,
}

impl Vocabulary {
    /// Reads a GGUF file without its tensors.
    ///
    /// # Errors
    /// [`ModelError::Unusable`] when it is not a GGUF file of a supported architecture.
    pub fn load(path: &Path) -> Result<Self, ModelError> {
        let model = load(path, &LlamaModelParams::default().with_vocab_only(true))?;
        let frame = frame(&model);
        if frame.is_none() && model.chat_template(None).is_ok() {
            tracing::warn!(path = %path.display(), "llama.cpp cannot apply the chat template; the plain prompt is used");
        }
        Ok(Self { model, frame })
    }

    /// Longest sequence that the model was trained on, in tokens; `usize::MAX` when the file does not state it.
    #[must_use]
    pub fn trained_context(&self) -> usize {
        // llama.cpp skips the hyperparameters when it loads no tensors, so the metadata are read here.
        let architecture = self.metadata("general.architecture").unwrap_or_default();
        let stated = self.metadata(&format!("{architecture}.context_length"));
        stated.and_then(|text| text.parse().ok()).unwrap_or(usize::MAX)
    }

    /// A metadata value of the file, for example of `general.architecture`; `None` when the key is missing.
    #[must_use]
    pub fn metadata(&self, key: &str) -> Option<String> {
        self.model.meta_val_str(key).ok()
    }

    /// Keys and values of a token over all layers: numbers that a cell of the cache holds. `None` where the file does not say,
    /// or where its layers differ.
    #[must_use]
    pub fn cell_numbers(&self) -> Option<usize> {
        cell_numbers(|key| self.metadata(key))
    }
}

/// Layers x key-value heads x (length of a key + length of a value), by GGUF's metadata.
fn cell_numbers(metadata: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let architecture = metadata("general.architecture")?;
    let number = |key: &str| metadata(&format!("{architecture}.{key}")).map(|text| text.parse::<usize>().ok());
    let heads = number("attention.head_count")??;
    // A file without the number has a key and a value for every head.
    let shared = number("attention.head_count_kv").unwrap_or(Some(heads))?;
    let size = number("embedding_length")??.checked_div(heads);
    let key = number("attention.key_length").unwrap_or(size)?;
    let value = number("attention.value_length").unwrap_or(size)?;
    number("block_count")??.checked_mul(shared)?.checked_mul(key.checked_add(value)?)
}

/// Marks the position of the user's message in the rendered chat template.
const FRAME_MARK: &str = "\u{2}rerankd\u{3}";

fn split_frame(rendered: &str) -> Option<(String, String)> {
    let (before, after) = rendered.split_once(FRAME_MARK)?;
    Some((before.to_owned(), after.to_owned()))
}

/// The rendered chat template, split where the message goes. Control text in it belongs to the template.
fn frame(model: &LlamaModel) -> Option<(String, String)> {
    let template = model.chat_template(None).ok()?;
    let message = LlamaChatMessage::new("user".into(), FRAME_MARK.into()).ok()?;
    split_frame(&model.apply_chat_template(&template, &[message], true).ok()?)
}

fn plain(tokens: Vec<LlamaToken>) -> Vec<Token> {
    tokens.into_iter().map(|token| token.0).collect()
}

impl Tokenizer for Vocabulary {
    fn text(&self, text: &str) -> Vec<Token> {
        plain(self.model.vocab().tokenize(text.as_bytes(), false, false))
    }

    fn template(&self, text: &str, opening: bool) -> Vec<Token> {
        let vocabulary = self.model.vocab();
        let mut tokens = plain(vocabulary.tokenize(text.as_bytes(), false, true));
        // The chat template may contain the beginning-of-sequence token itself.
        let begin = vocabulary.bos().0;
        if opening && vocabulary.should_add_bos() && tokens.first() != Some(&begin) {
            tokens.insert(0, begin);
        }
        tokens
    }

    fn bytes(&self, tokens: &[Token]) -> Vec<u8> {
        let tokens: Vec<LlamaToken> = tokens.iter().map(|&token| LlamaToken::new(token)).collect();
        self.model.vocab().detokenize(&tokens, false, true)
    }

    fn ends_turn(&self, token: Token) -> bool {
        // A control token that does not end generation, such as the header of another turn, still ends an answer.
        let (vocabulary, token) = (self.model.vocab(), LlamaToken::new(token));
        vocabulary.is_eog(token) || vocabulary.is_control(token)
    }

    fn chat_frame(&self) -> Option<(String, String)> {
        self.frame.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chat_template_is_split_at_the_mark() {
        let rendered = format!("<user>{FRAME_MARK}</user><assistant>");
        assert_eq!(split_frame(&rendered), Some(("<user>".into(), "</user><assistant>".into())));
        assert_eq!(split_frame("nothing"), None);
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
        // A list of one number a layer is not read.
        assert_eq!(file(&[&of_30_layers[..4], &[("llama.attention.head_count_kv", "[1, 2]")]].concat()), None);
        assert_eq!(file(&[&of_30_layers[..3], &[("llama.attention.head_count", "0")]].concat()), None);
    }
}
