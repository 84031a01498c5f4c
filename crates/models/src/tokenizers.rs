//! Tokenizers of other programs' models, which count the tokens of contexts.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tokenizers::Tokenizer;

/// Counts the tokens of a text.
pub type CountTokens = Arc<dyn Fn(&str) -> usize + Send + Sync>;

/// A folder with files `NAME.json` in the form of Hugging Face's `tokenizer.json`. Each is read once.
#[derive(Debug)]
pub struct TokenizerFolder {
    folder: PathBuf,
    loaded: Mutex<HashMap<String, Arc<Tokenizer>>>,
}

impl TokenizerFolder {
    /// The folder need not exist.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, loaded: Mutex::default() }
    }

    /// The tokenizer of that name. Special tokens are not added.
    ///
    /// # Errors
    /// The reason why there is none, with the known names.
    pub fn find(&self, name: &str) -> Result<CountTokens, String> {
        let tokenizer = self.load(name)?;
        Ok(Arc::new(move |text| tokenizer.encode_fast(text, false).map_or(usize::MAX, |encoding| encoding.len())))
    }

    fn load(&self, name: &str) -> Result<Arc<Tokenizer>, String> {
        let mut loaded = self.loaded.lock();
        if let Some(known) = loaded.get(name) {
            return Ok(Arc::clone(known));
        }
        // Only names from the folder's list: a request must not choose a path.
        let names = self.names();
        if !names.iter().any(|known| known == name) {
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(format!("is not in the folder `tokenizers` of the models store, which has {known}"));
        }
        let path = self.folder.join(format!("{name}.json"));
        let unusable = |error: tokenizers::Error| format!("cannot be read: {error}");
        let mut tokenizer = Tokenizer::from_file(path).map_err(unusable)?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(unusable)?;
        let tokenizer = Arc::new(tokenizer);
        loaded.insert(name.to_owned(), Arc::clone(&tokenizer));
        Ok(tokenizer)
    }

    fn names(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = files
            .filter_map(|file| file.file_name().to_str()?.strip_suffix(".json").map(ToOwned::to_owned))
            .collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokenizers_are_found_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let words = r#"{"version": "1.0", "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst",
            "stride": 0}, "padding": null, "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": {"rye": 0, "?": 1}, "unk_token": "?"}}"#;
        std::fs::write(folder.path().join("words.json"), words).unwrap();
        std::fs::write(folder.path().join("broken.json"), "{").unwrap();
        let tokenizers = TokenizerFolder::new(folder.path().to_owned());
        assert_eq!(tokenizers.find("words").unwrap()("rye grows, 東京"), 4);
        let problem = |name: &str| tokenizers.find(name).err().unwrap();
        assert!(problem("other").ends_with("which has broken, words"), "{}", problem("other"));
        assert!(problem("../words").contains("is not in") && problem("broken").starts_with("cannot be read"));
        assert!(TokenizerFolder::new("absent".into()).find("a").err().unwrap().ends_with("which has none"));
    }
}
