//! Warnings of the answers, shown with each row.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::report::{Section, Table};

/// Most characters of a warning that are shown.
const LENGTH: usize = 300;
/// Kinds of warnings of a row that are shown; the rarer ones are counted together.
const KINDS: usize = 5;

/// A kind of warning of one row or system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warned {
    /// The row's name.
    pub ranking: String,
    /// Questions with this warning.
    pub questions: usize,
    /// The first of its kind.
    pub warning: String,
}

/// The kind of a warning: its text without numbers and quoted parts.
fn kind(warning: &str) -> String {
    let own: String = warning.split('"').step_by(2).collect::<Vec<_>>().join("\"");
    let parts: Vec<&str> = own.split(|character: char| character.is_ascii_digit()).collect();
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("0")
}

fn cut(warning: &str) -> String {
    match warning.char_indices().nth(LENGTH) {
        Some((end, _)) => format!("{}…", &warning[..end]),
        None => warning.to_owned(),
    }
}

/// The warnings of the answers of `row`, one list per question: the most frequent kinds first.
pub fn of<'a>(row: &str, answers: impl Iterator<Item = &'a [String]>) -> Vec<Warned> {
    // Per kind, the first text and the number of questions.
    let mut kinds: BTreeMap<String, (&str, usize)> = BTreeMap::new();
    for warnings in answers {
        let own: BTreeMap<String, &str> = warnings.iter().rev().map(|text| (kind(text), text.as_str())).collect();
        for (kind, text) in own {
            kinds.entry(kind).or_insert((text, 0)).1 += 1;
        }
    }
    let mut found: Vec<(&str, usize)> = kinds.into_values().collect();
    found.sort_by_key(|kind| Reverse(kind.1));
    let rarer = found.split_off(found.len().min(KINDS));
    let warned =
        |(warning, questions): (&str, usize)| Warned { ranking: row.to_owned(), questions, warning: cut(warning) };
    let mut shown: Vec<Warned> = found.into_iter().map(warned).collect();
    if let Some(most) = rarer.iter().map(|(_, questions)| *questions).max() {
        shown.push(warned((&format!("{} rarer kinds of warnings, each on at most this many", rarer.len()), most)));
    }
    shown
}

/// The warnings of all rows as a section; `None` without any.
pub fn section(warned: &[Warned]) -> Option<Section> {
    let row = |one: &Warned| vec![one.ranking.clone(), one.questions.to_string(), one.warning.clone()];
    let caption = "The first of each kind; those that differ only in numbers or quoted words are one kind";
    let table = Table::new(caption, ["of", "questions", "warning"], warned.iter().map(row).collect());
    (!warned.is_empty()).then(|| Section { title: "Warnings".to_owned(), tables: vec![table], ..Section::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(warnings: &[&str]) -> Vec<String> {
        warnings.iter().map(|text| (*text).to_owned()).collect()
    }

    fn shown(lines: &[Vec<String>]) -> Vec<(usize, String)> {
        let all = of("moi", lines.iter().map(Vec::as_slice));
        assert!(all.iter().all(|one| one.ranking == "moi"));
        all.into_iter().map(|one| (one.questions, one.warning)).collect()
    }

    #[test]
    fn warnings_that_differ_in_numbers_are_of_one_kind() {
        let lines = [line(&["12 passages were cut", "alone"]), line(&["3 passages were cut"]), line(&[])];
        assert_eq!(shown(&lines), [(2, "12 passages were cut".to_owned()), (1, "alone".to_owned())]);
        // Twice in one answer is one question.
        assert_eq!(shown(&[line(&["1 of 2", "3 of 4"])]), [(1, "1 of 2".to_owned())]);
        assert!(shown(&[line(&[])]).is_empty());
        // The generator's own answer is quoted, for instance.
        let quoted = [line(&[r#"3 of 5 orders gave "Paris""#]), line(&[r#"2 of 5 orders gave "a \"b\" c""#])];
        assert_eq!(shown(&quoted)[0].0, 1, "a quote in the answer makes another kind");
        let quoted = [line(&[r#"3 of 5 orders gave "Paris""#]), line(&[r#"2 of 5 orders gave "Rome""#])];
        assert_eq!(shown(&quoted), [(2, r#"3 of 5 orders gave "Paris""#.to_owned())]);
        let long = shown(&[line(&["é".repeat(900).as_str()])]);
        assert_eq!(long[0].1.chars().count(), LENGTH + 1);
    }

    #[test]
    fn rare_kinds_are_counted_together() {
        let lines = [line(&["a", "b", "c", "d", "e", "f", "g"]), line(&["g"])];
        let shown = shown(&lines);
        assert_eq!((shown.len(), &shown[0]), (KINDS + 1, &(2, "g".to_owned())));
        assert_eq!(shown[KINDS], (1, "2 rarer kinds of warnings, each on at most this many".to_owned()));
    }
}
