//! The sections `reranker` and `embedding`.

use std::ops::RangeInclusive;

use super::keys::Keys;
use models::catalog::{Catalog, Pooling};

/// Values of `max_tokens`. The least leaves room for a query and a passage.
const TOKENS: RangeInclusive<usize> = 32..=131_072;

/// `max_tokens` of both sections in defaults.toml.
const USUAL_TOKENS: usize = 512;

/// A model that scores passages, and its load settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassageModel {
    /// Catalogue name, or path of a file or folder.
    pub model: String,
    /// Maximum number of tokens of a pair, or of a text for an embedding model; the model's own maximum if that is
    /// lower.
    pub most_tokens: usize,
    /// Threads per step; at least 1.
    pub threads: usize,
    /// Pairs or texts per step; 0 lets the runtime choose. Only tests set it.
    pub batch: usize,
    /// Text before every query; `None` to use the catalogue's, and for a cross-encoder.
    pub query_prefix: Option<String>,
    /// Text before every passage; `None` to use the catalogue's, and for a cross-encoder.
    pub passage_prefix: Option<String>,
    /// How token vectors become one; `None` to follow the model's files, and for a cross-encoder.
    pub pooling: Option<Pooling>,
    /// Number of cached vectors; 0 for a cross-encoder.
    pub cache_entries: usize,
}

impl PassageModel {
    /// The settings, besides the files, that the scores depend on, as text; empty for the defaults. Scores of a network
    /// that quantises over the whole batch depend on the batch.
    pub fn own_settings(&self) -> String {
        let Self { most_tokens, batch, pooling, .. } = self;
        let [query_prefix, passage_prefix] =
            [&self.query_prefix, &self.passage_prefix].map(|prefix| prefix.as_deref().unwrap_or_default());
        let usual = query_prefix.is_empty() && passage_prefix.is_empty() && pooling.is_none();
        if usual && (*most_tokens, *batch) == (USUAL_TOKENS, 0) {
            return String::new();
        }
        let pooling = pooling.map_or_else(String::new, |pooling| format!(":{}", pooling.name()));
        // The length tells where the first prefix ends. The text is hashed and stored: it must not change.
        format!("{}:{query_prefix}{passage_prefix}:{most_tokens}:{batch}{pooling}", query_prefix.len())
    }

    /// These settings, completed by the catalogue's entry.
    #[must_use]
    pub fn completed_by(&self, catalog: &Catalog) -> Self {
        let mut whole = self.clone();
        if let Some(entry) = catalog.find(&self.model) {
            whole.pooling = whole.pooling.or(entry.pooling);
            whole.query_prefix.get_or_insert_with(|| entry.query_prefix.clone());
            whole.passage_prefix.get_or_insert_with(|| entry.passage_prefix.clone());
        }
        whole
    }
}

/// The models of the two sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rerankers {
    /// The model of the method `cross-encoder`; `None` turns the method off.
    pub reranker: Option<PassageModel>,
    /// The model of the method `embedding`, whose cosines the default method mixes in; `None` turns the method off, and
    /// the default works without cosines.
    pub embedding: Option<PassageModel>,
}

/// Reads both sections. The models use as many threads as the generator.
pub(super) fn read(threads: usize, keys: &mut Keys) -> Rerankers {
    let model = |model, most_tokens| PassageModel {
        model,
        most_tokens,
        threads,
        batch: 0,
        query_prefix: None,
        passage_prefix: None,
        pooling: None,
        cache_entries: 0,
    };
    let most_tokens = keys.number("reranker.max_tokens", TOKENS);
    let reranker = keys.text_or("reranker.model", "off").map(|name| model(name, most_tokens));
    let most_tokens = keys.number("embedding.max_tokens", TOKENS);
    let embedding = keys.text_or("embedding.model", "off").map(|name| model(name, most_tokens));
    let poolings = format!("one of {}", Pooling::ALL.map(Pooling::name).join(", "));
    let pooling = keys.parsed_or("embedding.pooling", "auto", &poolings, Pooling::find);
    let mut prefix = |key| keys.parsed_or(key, "auto", "other text", |text| Some(text.to_owned()));
    let (query_prefix, passage_prefix) = (prefix("embedding.query_prefix"), prefix("embedding.passage_prefix"));
    let cache_entries = keys.number_or("embedding.cache_entries", "off", 1..=10_000_000).unwrap_or(0);
    let embedding =
        embedding.map(|model| PassageModel { query_prefix, passage_prefix, pooling, cache_entries, ..model });
    Rerankers { reranker, embedding }
}

#[cfg(test)]
mod tests {
    use super::Pooling;
    use crate::config::Config;

    fn load(flags: &[(&str, &str)]) -> Result<Config, Vec<String>> {
        let flags: Vec<_> = flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Config::from_parts(None, &[], &flags).map_err(|error| error.faults)
    }

    #[test]
    fn the_embedding_model_is_the_built_in_one_and_the_reranker_is_off_until_it_is_named() {
        let config = load(&[]).unwrap();
        assert_eq!(config.rerankers.reranker, None);
        let model = config.rerankers.embedding.unwrap();
        assert!(config.store.catalog().find(&model.model).is_some(), "{} is not in the catalogue", model.model);
        assert!(model.cache_entries > 0);
        assert_eq!(load(&[("embedding.model", "off")]).unwrap().rerankers.embedding, None);
        let flags = [("embedding.model", "x"), ("embedding.query_prefix", "query: "), ("generator.threads", "3")];
        let model = load(&flags).unwrap().rerankers.embedding.unwrap();
        assert_eq!((&*model.model, model.query_prefix.as_deref(), model.threads), ("x", Some("query: "), 3));
        assert_eq!((model.most_tokens, model.batch), (512, 0));
    }

    /// Measurements with the defaults are bound to the file alone.
    #[test]
    fn settings_that_change_scores_are_listed_and_the_defaults_are_not() {
        let of = |flags: &[(&str, &str)]| load(flags).unwrap().rerankers.embedding.unwrap().own_settings();
        assert_eq!(of(&[]), "");
        assert_eq!(of(&[("generator.threads", "3"), ("embedding.cache_entries", "off")]), "");
        let reranker = load(&[("reranker.model", "x")]).unwrap().rerankers.reranker.unwrap();
        assert_eq!(reranker.own_settings(), "");
        let (query, passage) = ("embedding.query_prefix", "embedding.passage_prefix");
        let changed: [&[(&str, &str)]; 7] = [
            &[("embedding.pooling", "cls")],
            &[("embedding.pooling", "mean")],
            &[(query, "a")],
            &[(passage, "a")],
            &[(query, "a"), (passage, "ab")],
            &[(query, "aa"), (passage, "b")],
            &[("embedding.max_tokens", "256")],
        ];
        let settings: std::collections::BTreeSet<String> = changed.iter().map(|flags| of(flags)).collect();
        assert!(settings.len() == changed.len() && !settings.contains(""), "{settings:?}");
    }

    /// The operator's settings take precedence over the catalogue's entry, which states how the model was trained.
    #[test]
    fn the_catalogue_completes_what_is_not_set() {
        let config = load(&[]).unwrap();
        let whole = |flags: &[(&str, &str)]| {
            let model = load(flags).unwrap().rerankers.embedding.unwrap();
            model.completed_by(config.store.catalog())
        };
        let model = "bge-small-en-v1.5";
        let known = whole(&[("embedding.model", model)]);
        assert_eq!(known.pooling, Some(Pooling::First));
        assert!(known.query_prefix.as_deref().unwrap().starts_with("Represent this sentence"));
        assert_eq!(known.passage_prefix.as_deref(), Some(""));
        let without = whole(&[("embedding.model", model), ("embedding.query_prefix", "")]);
        assert_eq!(without.query_prefix.as_deref(), Some(""));
        let own =
            whole(&[("embedding.model", model), ("embedding.pooling", "mean"), ("embedding.query_prefix", "q: ")]);
        assert_eq!((own.pooling, own.query_prefix.as_deref()), (Some(Pooling::Mean), Some("q: ")));
        let file = load(&[("embedding.model", "/a/file.onnx")]).unwrap().rerankers.embedding.unwrap();
        assert_eq!(file.completed_by(config.store.catalog()), file);
        assert_ne!(known.own_settings(), file.own_settings(), "a copy of the file without its prefix is another model");
    }

    #[test]
    fn values_out_of_range_are_faults_of_their_key() {
        let flags = [("reranker.max_tokens", "8"), ("embedding.cache_entries", "0"), ("embedding.pooling", "max")];
        let faults = load(&flags).unwrap_err();
        let expected = [
            "reranker.max_tokens: must be between 32 and 131072, is 8",
            "embedding.pooling: must be \"auto\" or one of mean, cls, last-token, is \"max\"",
            "embedding.cache_entries: must be \"off\" or between 1 and 10000000, is 0",
        ];
        assert_eq!(faults, expected);
        // A cross-encoder has no prefixes.
        let unknown = load(&[("reranker.query_prefix", "x")]).unwrap_err();
        assert_eq!(unknown, ["reranker.query_prefix: unknown key; did you mean embedding.query_prefix?"]);
    }
}
