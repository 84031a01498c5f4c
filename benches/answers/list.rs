//! Labelled lists with reference answers, as `rerankd compare` reads them.

use std::path::Path;

use engine::types::Passage;
use files::{Empty, Warnings, labelled};

/// Least label of a relevant passage.
const THRESHOLD: f64 = 0.5;

/// A question with its list.
pub struct List {
    pub question: String,
    pub answers: Vec<String>,
    pub passages: Vec<Passage>,
    pub relevant: Vec<bool>,
}

/// `most` lists after the first `skip`. Lists without answers are left out.
pub fn read(path: &Path, skip: usize, most: usize) -> anyhow::Result<Vec<List>> {
    let lists =
        labelled::lists(path, THRESHOLD, Empty::LeftOut, &mut Warnings::default())?.into_iter().skip(skip).take(most);
    let list = |list: labelled::LabelledList| List {
        question: list.question,
        answers: list.answers,
        passages: list.passages,
        relevant: list.labels.iter().map(|label| *label >= THRESHOLD).collect(),
    };
    Ok(lists.filter(|list| !list.answers.is_empty()).map(list).collect())
}
