//! The sections `reranker` and `embedding`: models that score passages beside the generator.

use serde::Deserialize;

use models::catalog::{Catalog, Pooling};

/// Shortest maximum length that leaves room for a query and a passage.
const LEAST_TOKENS: usize = 32;

/// `max_tokens` of both sections in defaults.toml.
const USUAL_TOKENS: usize = 512;

/// A model that scores passages, and its load settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassageModel {
    /// Catalogue name, or path of a file or folder.
    pub model: String,
    /// Maximum number of tokens of a pair, or of a text for an embedding model; the model's own maximum where that is lower.
    pub most_tokens: usize,
    /// Threads per step; at least 1.
    pub threads: usize,
    /// Pairs or texts per step; 0 lets the runtime choose.
    pub batch: usize,
    /// Text before every query; empty for a cross-encoder.
    pub query_prefix: String,
    /// Text before every passage; empty for a cross-encoder.
    pub passage_prefix: String,
    /// How the vectors of the tokens become one; `None` where the model's files say it, and for a cross-encoder.
    pub pooling: Option<Pooling>,
    /// Texts whose vectors are kept; 0 for a cross-encoder.
    pub cache_entries: usize,
}

impl PassageModel {
    /// The settings that its scores depend on beside its files, as text; empty where they are the defaults. Scores of a network that
    /// quantises over the whole batch depend on the batch.
    #[must_use]
    pub fn own_settings(&self) -> String {
        let Self { most_tokens, batch, query_prefix, passage_prefix, pooling, .. } = self;
        let usual = query_prefix.is_empty() && passage_prefix.is_empty() && pooling.is_none();
        if usual && (*most_tokens, *batch) == (USUAL_TOKENS, 0) {
            return String::new();
        }
        let pooling = pooling.map_or_else(String::new, |pooling| format!(":{}", pooling.name()));
        // The length tells where the first prefix ends. The text is hashed and stored: it must not change.
        format!("{}:{query_prefix}{passage_prefix}:{most_tokens}:{batch}{pooling}", query_prefix.len())
    }

    /// These settings, and where they say nothing those of the catalogue's entry.
    #[must_use]
    pub fn completed_by(&self, catalog: &Catalog) -> Self {
        let mut whole = self.clone();
        if let Some(entry) = catalog.find(&self.model) {
            whole.pooling = whole.pooling.or(entry.pooling);
            for (own, known) in
                [(&mut whole.query_prefix, &entry.query_prefix), (&mut whole.passage_prefix, &entry.passage_prefix)]
            {
                if own.is_empty() {
                    own.clone_from(known);
                }
            }
        }
        whole
    }
}

/// The two sections before validation.
#[derive(Debug, Deserialize)]
pub(super) struct Raw {
    reranker: Section,
    embedding: Section,
}

#[derive(Debug, Deserialize)]
struct Section {
    model: String,
    #[serde(default)]
    query_prefix: String,
    #[serde(default)]
    passage_prefix: String,
    #[serde(default)]
    pooling: String,
    max_tokens: usize,
    threads: usize,
    batch: usize,
    #[serde(default)]
    cache_entries: usize,
}

/// The models of the two sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rerankers {
    /// The model of the method `cross-encoder`; `None` turns the method off.
    pub reranker: Option<PassageModel>,
    /// The model of the method `embedding`, whose cosines the default method mixes in; `None` turns the method off, and the
    /// default does without.
    pub embedding: Option<PassageModel>,
}

impl Raw {
    /// Appends a fault for each value out of range. Threads of 0 become `threads`, those of the generator.
    pub fn validate(self, threads: usize, faults: &mut Vec<String>) -> Rerankers {
        Rerankers {
            reranker: self.reranker.validate("reranker", threads, faults),
            embedding: self.embedding.validate("embedding", threads, faults),
        }
    }
}

impl Section {
    fn validate(self, section: &str, threads: usize, faults: &mut Vec<String>) -> Option<PassageModel> {
        let bounds = [
            ("max_tokens", self.max_tokens, LEAST_TOKENS, 131_072),
            ("threads", self.threads, 0, 1024),
            ("batch", self.batch, 0, 256),
            ("cache_entries", self.cache_entries, 0, 10_000_000),
        ];
        for (key, value, least, most) in bounds {
            if value < least || value > most {
                faults.push(format!("{section}.{key}: must be between {least} and {most}, is {value}"));
            }
        }
        let pooling = Pooling::find(&self.pooling);
        if pooling.is_none() && !self.pooling.is_empty() {
            let names = Pooling::ALL.map(Pooling::name).join(", ");
            faults.push(format!("{section}.pooling: must be empty or one of {names}, is {:?}", self.pooling));
        }
        (!self.model.is_empty()).then_some(PassageModel {
            model: self.model,
            most_tokens: self.max_tokens,
            threads: if self.threads == 0 { threads } else { self.threads },
            batch: self.batch,
            query_prefix: self.query_prefix,
            passage_prefix: self.passage_prefix,
            pooling,
            cache_entries: self.cache_entries,
        })
    }
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
        assert_eq!(load(&[("embedding.model", "")]).unwrap().rerankers.embedding, None);
        let flags = [("embedding.model", "x"), ("embedding.query_prefix", "query: "), ("generator.threads", "3")];
        let model = load(&flags).unwrap().rerankers.embedding.unwrap();
        assert_eq!((&*model.model, &*model.query_prefix, model.threads), ("x", "query: ", 3));
        assert_eq!((model.most_tokens, model.batch), (512, 0));
    }

    /// What was measured with the defaults stays bound to the file alone.
    #[test]
    fn settings_that_change_scores_are_told_and_the_defaults_are_not() {
        let of = |flags: &[(&str, &str)]| load(flags).unwrap().rerankers.embedding.unwrap().own_settings();
        assert_eq!(of(&[]), "");
        assert_eq!(of(&[("embedding.threads", "3"), ("embedding.cache_entries", "0")]), "");
        let reranker = load(&[("reranker.model", "x")]).unwrap().rerankers.reranker.unwrap();
        assert_eq!(reranker.own_settings(), "");
        let (query, passage) = ("embedding.query_prefix", "embedding.passage_prefix");
        let changed: [&[(&str, &str)]; 8] = [
            &[("embedding.pooling", "cls")],
            &[("embedding.pooling", "mean")],
            &[(query, "a")],
            &[(passage, "a")],
            &[(query, "a"), (passage, "ab")],
            &[(query, "aa"), (passage, "b")],
            &[("embedding.max_tokens", "256")],
            &[("embedding.batch", "16")],
        ];
        let told: std::collections::BTreeSet<String> = changed.iter().map(|flags| of(flags)).collect();
        assert!(told.len() == changed.len() && !told.contains(""), "{told:?}");
    }

    /// An entry of the catalogue says how its model was trained; what the operator says goes before it.
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
        assert!(known.query_prefix.starts_with("Represent this sentence"));
        assert_eq!(known.passage_prefix, "");
        let own =
            whole(&[("embedding.model", model), ("embedding.pooling", "mean"), ("embedding.query_prefix", "q: ")]);
        assert_eq!((own.pooling, &*own.query_prefix), (Some(Pooling::Mean), "q: "));
        let file = load(&[("embedding.model", "/a/file.onnx")]).unwrap().rerankers.embedding.unwrap();
        assert_eq!(file.completed_by(config.store.catalog()), file);
        assert_ne!(known.own_settings(), file.own_settings(), "a copy of the file without its prefix is another model");
    }

    #[test]
    fn values_out_of_range_are_faults_of_their_key() {
        let flags = [("reranker.max_tokens", "8"), ("embedding.batch", "1000"), ("embedding.pooling", "max")];
        let faults = load(&flags).unwrap_err();
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert_eq!(faults[2], "embedding.pooling: must be empty or one of mean, cls, last-token, is \"max\"");
        assert_eq!(faults[0], "reranker.max_tokens: must be between 32 and 131072, is 8");
        assert!(faults[1].starts_with("embedding.batch: "));
        // A cross-encoder has no prefixes.
        assert_eq!(load(&[("reranker.query_prefix", "x")]).unwrap_err(), ["reranker.query_prefix: unknown key"]);
    }
}
