//! Tokenizers of other programs' models, which count the tokens of contexts.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokenizers::Tokenizer;

/// A tokenizer, or the reason why its file cannot be read.
type Loaded = Arc<OnceLock<Result<Tokenizer, String>>>;

/// A folder with files `NAME.json` in the form of Hugging Face's `tokenizer.json`. Each is read once.
#[derive(Debug)]
pub struct TokenizerFolder {
    folder: PathBuf,
    loaded: Mutex<HashMap<String, Loaded>>,
}

impl TokenizerFolder {
    /// The folder need not exist.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, loaded: Mutex::default() }
    }

    /// Blocking: a function that counts the tokens of a text by the tokenizer of that name, without special tokens. A
    /// text that the tokenizer cannot encode counts as its bytes.
    ///
    /// # Errors
    /// The reason why there is none, with the known names.
    pub fn find(&self, name: &str) -> Result<Arc<impl Fn(&str) -> usize + Send + Sync + use<>>, String> {
        let known = self.loaded.lock().get(name).cloned();
        let loaded = match known {
            Some(loaded) => loaded,
            None => self.listed(name)?,
        };
        if let Err(problem) = loaded.get_or_init(|| self.read(name)) {
            // The file may be repaired.
            self.loaded.lock().remove(name);
            return Err(problem.clone());
        }
        Ok(Arc::new(move |text: &str| {
            let encoded = loaded.get().and_then(|tokenizer| tokenizer.as_ref().ok()?.encode_fast(text, false).ok());
            encoded.map_or(text.len(), |encoding| encoding.len())
        }))
    }

    /// The place of a tokenizer that the folder has: a request must not choose a path.
    fn listed(&self, name: &str) -> Result<Loaded, String> {
        let names = self.names();
        if names.iter().any(|known| known == name) {
            return Ok(Arc::clone(self.loaded.lock().entry(name.to_owned()).or_default()));
        }
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let place = "put its tokenizer.json there as NAME.json";
        Err(format!("is not in the folder `tokenizers` of the models store, which has {known}; {place}"))
    }

    fn read(&self, name: &str) -> Result<Tokenizer, String> {
        let unusable = |error: tokenizers::Error| format!("cannot be read: {error}");
        let mut tokenizer = Tokenizer::from_file(self.folder.join(format!("{name}.json"))).map_err(unusable)?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(unusable)?;
        Ok(tokenizer)
    }

    fn names(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            files.filter_map(|file| file.file_name().to_str()?.strip_suffix(".json").map(ToOwned::to_owned)).collect();
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
        let truncation = r#"{"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}"#;
        let words = |unknown: &str| {
            format!(
                r#"{{"version": "1.0", "truncation": {truncation}, "padding": null, "added_tokens": [], "normalizer": null,
                "pre_tokenizer": {{"type": "Whitespace"}}, "post_processor": null, "decoder": null,
                "model": {{"type": "WordLevel", "vocab": {{"rye": 0, "?": 1}}, "unk_token": "{unknown}"}}}}"#
            )
        };
        std::fs::write(folder.path().join("words.json"), words("?")).unwrap();
        std::fs::write(folder.path().join("strict.json"), words("absent")).unwrap();
        std::fs::write(folder.path().join("broken.json"), "{").unwrap();
        let tokenizers = TokenizerFolder::new(folder.path().to_owned());
        assert_eq!(tokenizers.find("words").unwrap()("rye grows, 東京"), 4);
        assert_eq!(tokenizers.find("strict").unwrap()("rye, 東京"), 11, "bytes");
        let problem = |name: &str| tokenizers.find(name).err().unwrap();
        assert!(problem("other").contains("which has broken, strict, words; put its"), "{}", problem("other"));
        assert!(problem("../words").contains("is not in") && problem("broken").starts_with("cannot be read"));
        std::fs::write(folder.path().join("broken.json"), words("?")).unwrap();
        assert_eq!(tokenizers.find("broken").unwrap()("rye"), 1, "repaired");
        assert!(TokenizerFolder::new("absent".into()).find("a").err().unwrap().contains("which has none; put its"));
    }
}
