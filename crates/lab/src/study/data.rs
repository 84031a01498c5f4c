//! The labelled lists of one or more files.

use std::path::{Path, PathBuf};

use super::{Named, StudyError, fingerprint};
use files::{self, Empty, FileError, Warnings, labelled, labelled::LabelledList};

/// Selection of lists.
#[derive(Debug, Clone)]
pub struct Sources {
    /// At least one.
    pub files: Vec<PathBuf>,
    /// Questions left out at the beginning of each file.
    pub skip: usize,
    /// Questions taken from each file; `None` for all.
    pub questions: Option<usize>,
    /// Least label of a relevant passage.
    pub threshold: f64,
    /// Treatment of passages without text.
    pub empty: Empty,
}

/// A question with its list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Question {
    /// Unique over all files.
    pub id: String,
    /// Index of its file in [`Data::files`].
    pub file: usize,
    pub list: LabelledList,
}

/// All questions.
#[derive(Debug, Default)]
pub struct Data {
    /// Names of the files, for tables.
    pub files: Vec<String>,
    /// By file, in the order of each.
    pub questions: Vec<Question>,
    /// Warnings about the files.
    pub warnings: Warnings,
}

impl Sources {
    /// Reads the files. The bad lines of all of them are in one error.
    pub fn load(&self) -> Result<Data, StudyError> {
        self.load_with(|path, warnings| labelled::lists(path, self.threshold, self.empty, warnings))
    }

    /// [`Self::load`] for files of another form, which `read` reads.
    pub fn load_with(
        &self,
        read: impl Fn(&Path, &mut Warnings) -> Result<Vec<LabelledList>, FileError>,
    ) -> Result<Data, StudyError> {
        let (mut questions, mut faults, mut warnings) = (Vec::new(), Vec::new(), Warnings::default());
        let names = self.names();
        for (file, path) in self.files.iter().enumerate() {
            match read(path, &mut warnings) {
                Err(error) => faults.push(error.0),
                Ok(lists) => {
                    let taken = lists.into_iter().skip(self.skip).take(self.questions.unwrap_or(usize::MAX));
                    let before = questions.len();
                    questions.extend(taken.map(|list| {
                        let id = if names.len() > 1 { format!("{}/{}", names[file], list.id) } else { list.id.clone() };
                        Question { id, file, list }
                    }));
                    if questions.len() == before {
                        faults.push(format!("{}: no questions are left of it", files::name(path)));
                    }
                }
            }
        }
        if faults.is_empty() {
            return Ok(Data { files: names, questions, warnings });
        }
        Err(StudyError::Input(faults.join("\n")))
    }

    /// Names of the files without folders and extensions, if these are distinct.
    fn names(&self) -> Vec<String> {
        let short: Vec<String> = self.files.iter().map(|path| files::stem(path)).collect();
        let mut distinct = short.clone();
        distinct.sort();
        distinct.dedup();
        if distinct.len() == short.len() {
            return short;
        }
        self.files.iter().enumerate().map(|(at, path)| format!("{}:{}", at + 1, files::name(path))).collect()
    }
}

impl Question {
    /// Fingerprint of the sent data. Labels are not sent: changed labels need no new rankings.
    pub fn fingerprint(&self) -> String {
        let passages: Vec<_> =
            self.list.passages.iter().map(|one| (&one.id, &one.title, &one.text, one.retriever_score)).collect();
        fingerprint(&(&self.id, &self.list.question, passages))
    }
}

impl Data {
    /// The questions for a study, with these fingerprints.
    pub fn named(&self, fingerprint: fn(&Question) -> String) -> Vec<Named<'_, Question>> {
        let questions = self.questions.iter();
        questions.map(|one| Named { id: &one.id, fingerprint: fingerprint(one), question: one }).collect()
    }
}
