//! Adds files of the Hugging Face Hub that no catalogue lists: fetches them once and pins their sizes and hashes in an
//! entry.

use std::path::Path;

use super::catalog::{Companion, Entry, Role, Source};
use super::scratch::{self, Scratch};
use super::store::{SCRATCH, Store, StoreError, hash};
use super::{catalog, fetch};

/// Files of a repository that form one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Name of the new entry.
    pub name: String,
    /// Its purpose.
    pub role: Role,
    /// SPDX identifier or a short statement.
    pub licence: String,
    /// `owner/name`.
    pub repository: String,
    /// Commit, tag or branch. The entry pins the commit.
    pub revision: String,
    /// Paths in the repository: the model's file, then the files that must be in the same folder.
    pub files: Vec<String>,
}

impl Store {
    /// Fetches the files into the store. Returns the entry with their sizes and hashes, for a catalogue.
    ///
    /// # Errors
    /// [`StoreError`] if the name is in the catalogue or is not a plain file name, two files share a name, a file cannot
    /// be fetched, or another file has its path.
    pub async fn adopt(&self, wanted: &Wanted, progress: bool) -> Result<Entry, StoreError> {
        let unusable = |problem: String| StoreError::Unusable { name: wanted.name.clone(), problem };
        if self.catalog().find(&wanted.name).is_some() {
            return Err(unusable("the catalogue has a model of this name".to_owned()));
        }
        let mut names: Vec<&str> = wanted.files.iter().map(|file| base(file)).collect();
        if let Some(name) = names.iter().chain([&wanted.name.as_str()]).find(|name| !catalog::is_plain(name)) {
            return Err(unusable(format!("{name:?} is not a plain file name")));
        }
        names.sort_unstable();
        let twice = names.windows(2).find_map(|pair| match pair {
            [one, other] if one == other => Some(*one),
            _ => None,
        });
        if let Some(name) = twice {
            return Err(unusable(format!("two files are called {name:?}")));
        }
        let folder = self.root().join(&wanted.name);
        std::fs::create_dir_all(self.root()).map_err(|error| StoreError::file(self.root(), error))?;
        scratch::remove_abandoned(self.root(), SCRATCH);
        let no_source = |problems: String| StoreError::NoSource { name: wanted.name.clone(), problems };
        let at = |problem: String| no_source(format!("hub {}@{}: {problem}", wanted.repository, wanted.revision));
        let commit = fetch::commit(&wanted.repository, &wanted.revision, self.hub()).await.map_err(at)?;
        // All files are fetched, each into its own folder, before one is placed, so that a refusal leaves no file
        // behind.
        let mut all = Vec::with_capacity(wanted.files.len());
        // The model's file comes last, so that it exists only together with its companions.
        for file in wanted.files.iter().rev() {
            let (repository, revision) = (wanted.repository.clone(), commit.clone());
            let source = Source::Hub { repository, revision, file: file.clone() };
            let unknown =
                Companion { file: base(file).to_owned(), bytes: u64::MAX, sha256: String::new(), sources: Vec::new() };
            let scratch =
                Scratch::new_in(self.root(), SCRATCH).map_err(|error| StoreError::file(self.root(), error))?;
            let fetched = fetch::fetch(&source, &unknown, scratch.path(), self.hub(), progress).await;
            let fetched = fetched.map_err(|problem| no_source(format!("{source}: {problem}")))?;
            let target = folder.join(&unknown.file);
            // The existing file belongs to another catalogue, whose servers would not start with the new content.
            if target.exists() && self.identify(&target)? != hash(&fetched)? {
                let problem = format!(
                    "{} is another file: choose another --name, or delete it if no catalogue has it",
                    target.display()
                );
                return Err(unusable(problem));
            }
            all.push((fetched, target, source, scratch));
        }
        std::fs::create_dir_all(&folder).map_err(|error| StoreError::file(&folder, error))?;
        let mut parts = Vec::with_capacity(wanted.files.len());
        for (fetched, target, source, _scratch) in all {
            parts.push(self.place(&fetched, &target, source)?);
        }
        parts.reverse();
        let mut parts = parts.into_iter();
        let Some(Companion { file, bytes, sha256, sources }) = parts.next() else {
            return Err(unusable("no file is named".to_owned()));
        };
        Ok(Entry {
            file,
            bytes,
            sha256,
            licence: wanted.licence.clone(),
            sources,
            companions: parts.collect(),
            ..Entry::stand_in(&wanted.name, wanted.role)
        })
    }

    /// Moves a fetched file to its place. Returns its name, size, hash and source.
    fn place(&self, fetched: &Path, target: &Path, source: Source) -> Result<Companion, StoreError> {
        let sha256 = hash(fetched)?;
        let failed = |error| StoreError::file(target, error);
        let bytes = std::fs::metadata(fetched).map_err(failed)?.len();
        scratch::move_to(fetched, target, SCRATCH).map_err(failed)?;
        self.identify(target)?;
        let file = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Companion { file, bytes, sha256, sources: vec![source] })
    }
}

/// The name of a file without its folders.
fn base(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}
