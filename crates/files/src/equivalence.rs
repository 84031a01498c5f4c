//! Answers that people compared with reference answers, as JSON lines: a question, its reference answers, and candidate
//! answers, each with a verdict: true if it means the same as a reference.
//!
//! | field of a line | also | |
//! |---|---|---|
//! | `question` | `query` | |
//! | `answers` | `references`; `reference`, one text; `golden_answer`, texts between `/` | reference answers |
//! | `candidates` | | a list of objects |
//! | `candidates[].text` | `answer`, `candidate` | the candidate answer |
//! | `candidates[].equivalent` | `label` | true or false, or 1 or 0 |
//! | `candidates[].system` | `id` | the system that answered; may be absent |
//! | `id` | `_id`, `query_id`, `qid` | default: the line's number |
//!
//! A line with one candidate may hold `text` and `equivalent` directly. The lines of EVOUNA (Wang et al., *Evaluating
//! Open-QA Evaluation*) are supported, too: `answer_NAME` and `judge_NAME` are the answer and the verdict of the system
//! NAME. Candidates without text or verdict are left out, and so are lines with `"improper": true`.

use std::path::Path;

use serde_json::Value;

use super::fields::{Fields, flag};
use super::labelled::{self, LabelledList};
use super::{FileError, Warnings, names};
use engine::types::Passage;

/// Reads judged answers, at least one question. A candidate becomes a passage: the text is the answer, the title the
/// system, the label 1 if people found it equivalent and 0 otherwise.
///
/// # Errors
/// One per bad line: file, line, field and problem.
pub fn lists(path: &Path, warnings: &mut Warnings) -> Result<Vec<LabelledList>, FileError> {
    labelled::read(path, warnings, |value, number, _| list(value, number))
}

fn list(value: &Value, number: usize) -> Result<Option<LabelledList>, String> {
    let fields = Fields::of(value, "")?;
    match fields.get(&["improper"]).map(|(_, value)| flag(value)) {
        None | Some(Some(false)) => {}
        Some(Some(true)) => return Ok(None),
        Some(None) => return Err(fields.fault("improper", "must be true or false")),
    }
    let question = fields.text(names::QUESTION)?.ok_or_else(|| fields.missing("question"))?;
    let answers = references(&fields)?;
    let given = match fields.get(&["candidates"]) {
        Some((name, given)) => {
            let given = given.as_array().filter(|given| !given.is_empty());
            let given = given.ok_or_else(|| fields.fault(name, "must be a list that is not empty"))?;
            given.iter().enumerate().map(|(index, value)| candidate(value, index)).collect::<Result<Vec<_>, _>>()?
        }
        None if fields.get(&TEXT).is_some() => vec![judged(&fields)?],
        None => match columns(&fields)? {
            None => return Err(fields.missing("candidates")),
            // The question has no judged answers.
            Some(given) if given.is_empty() => return Ok(None),
            Some(given) => given,
        },
    };
    let passage = |(index, (system, text, _)): (usize, &Judged)| Passage {
        title: system.clone(),
        ..Passage::untitled(index, text.clone())
    };
    let passages = given.iter().enumerate().map(passage).collect();
    let labels = given.iter().map(|(_, _, equivalent)| f64::from(u8::from(*equivalent))).collect();
    let id = fields.identifier(names::QUERY_ID)?.unwrap_or_else(|| number.to_string());
    Ok(Some(LabelledList { id, question, passages, labels, relevant: None, answers }))
}

/// A candidate answer: its system, its text, and true if people found it equivalent.
type Judged = (String, String, bool);

/// Names of a candidate's text.
const TEXT: [&str; 3] = ["text", "answer", "candidate"];

fn references(fields: &Fields<'_>) -> Result<Vec<String>, String> {
    let mut answers = fields.texts(names::REFERENCES)?;
    if answers.is_empty() {
        let together = fields.text(&["golden_answer"])?.unwrap_or_default();
        answers.extend(together.split('/').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()));
    }
    if answers.is_empty() { Err(fields.missing("answers")) } else { Ok(answers) }
}

fn candidate(value: &Value, index: usize) -> Result<Judged, String> {
    judged(&Fields::of(value, &format!("candidates[{index}]"))?)
}

fn judged(fields: &Fields<'_>) -> Result<Judged, String> {
    let text = fields.text(&TEXT)?.ok_or_else(|| fields.missing("text"))?;
    let verdict = fields.get(&["equivalent", "label"]);
    let (name, value) = verdict.ok_or_else(|| fields.missing("equivalent"))?;
    let equivalent = flag(value).ok_or_else(|| fields.fault(name, "must be true or false, or 1 or 0"))?;
    // In a line with one candidate, `id` is the id of the question.
    let system = fields.text(if fields.path.is_empty() { &["system"] } else { &["system", "id"] })?;
    Ok((system.unwrap_or_default(), text, equivalent))
}

/// The columns of EVOUNA; `None` if the line has none.
fn columns(fields: &Fields<'_>) -> Result<Option<Vec<Judged>>, String> {
    let (mut found, mut given) = (false, Vec::new());
    for (name, value) in fields.object {
        let Some(system) = name.strip_prefix("answer_") else { continue };
        found = true;
        let verdict = fields.object.get(&format!("judge_{system}")).unwrap_or(&Value::Null);
        match (value, verdict) {
            (Value::Null, _) | (_, Value::Null) => {}
            (Value::String(text), verdict) => match flag(verdict) {
                None => return Err(fields.fault(&format!("judge_{system}"), "must be true or false")),
                Some(is) if !text.trim().is_empty() => given.push((system.to_owned(), text.clone(), is)),
                Some(_) => {}
            },
            _ => return Err(fields.fault(name, "must be a text")),
        }
    }
    Ok(found.then_some(given))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::odd;

    fn read(text: &str) -> Result<Vec<LabelledList>, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let name = format!("{}:", file.path().display());
        lists(file.path(), &mut Warnings::default()).map_err(|error| error.0.replace(&name, ""))
    }

    /// Question, references, then system, text and label of each candidate.
    fn shown(list: &LabelledList) -> String {
        let one = |(passage, label): (&Passage, &f64)| format!("{}={}:{label}", passage.title, passage.text);
        let candidates: Vec<String> = list.passages.iter().zip(&list.labels).map(one).collect();
        format!("{} {} {} [{}]", list.id, list.question, list.answers.join("|"), candidates.join(", "))
    }

    #[test]
    fn three_forms_are_equivalent() {
        let lines = [
            r#"{"id": "q", "question": "Who?", "answers": ["Ada", "A. Voss"], "candidates": [
                {"system": "a", "text": "Ada Voss", "equivalent": true}, {"id": "b", "answer": "Orrin", "label": 0}]}"#,
            r#"{"question": "Who?", "golden_answer": "Ada/ A. Voss", "answer_a": "Ada Voss", "judge_a": true,
                "answer_b": "Orrin", "judge_b": false, "answer_c": null, "judge_c": null, "answer_d": "", "judge_d": false,
                "answer_e": "x", "judge_e": null, "improper": false}"#,
            r#"{"qid": 7, "query": "Who?", "reference": "Ada", "candidate": "Ada Voss", "system": "a", "label": 1}"#,
            r#"{"question": "Who?", "golden_answer": "Ada", "answer_a": "x", "judge_a": true, "improper": true}"#,
            r#"{"question": "Who?", "golden_answer": "Ada", "answer_a": null, "judge_a": null}"#,
        ];
        let text: Vec<String> = lines.iter().map(|line| line.replace('\n', " ")).collect();
        let read: Vec<String> = read(&text.join("\n")).unwrap().iter().map(shown).collect();
        assert_eq!(
            read,
            [
                "q Who? Ada|A. Voss [a=Ada Voss:1, b=Orrin:0]",
                "2 Who? Ada|A. Voss [a=Ada Voss:1, b=Orrin:0]",
                "7 Who? Ada [a=Ada Voss:1]",
            ]
        );
    }

    #[test]
    fn every_bad_line_has_one_error_with_its_field() {
        let of = |candidates: &str| format!(r#"{{"question": "Who?", "answers": ["A"], "candidates": {candidates}}}"#);
        let cases = [
            ("5".to_owned(), "must be an object"),
            ("[{}]".to_owned(), "is a list: write one object per line"),
            (r#"{"answers": ["A"]}"#.to_owned(), r#"question: is missing; the line has the fields "answers""#),
            (r#"{"question": "Who?"}"#.to_owned(), r#"answers: is missing; the line has the fields "question""#),
            (r#"{"question": "Who?", "answers": 5}"#.to_owned(), "answers: must be a text or a list of texts"),
            (
                r#"{"question": "Who?", "golden_answer": " / "}"#.to_owned(),
                r#"answers: is missing; the line has the fields "golden_answer", "question""#,
            ),
            (
                r#"{"question": "Who?", "answers": ["A"]}"#.to_owned(),
                r#"candidates: is missing; the line has the fields "answers", "question""#,
            ),
            (of("{}"), "candidates: must be a list that is not empty"),
            (of("[]"), "candidates: must be a list that is not empty"),
            (of("[5]"), "candidates[0]: must be an object"),
            (of(r#"[{"equivalent": true}]"#), r#"candidates[0].text: is missing; it has the fields "equivalent""#),
            (of(r#"[{"text": "", "equivalent": true}]"#), "candidates[0].text: must not be empty"),
            (of(r#"[{"text": "x"}]"#), r#"candidates[0].equivalent: is missing; it has the fields "text""#),
            (of(r#"[{"text": "x", "label": 0.5}]"#), "candidates[0].label: must be true or false, or 1 or 0"),
            (of(r#"[{"text": "x", "label": 1, "system": 5}]"#), "candidates[0].system: must be a text"),
            (
                r#"{"question": "Who?", "answers": ["A"], "text": "x"}"#.to_owned(),
                r#"equivalent: is missing; the line has the fields "answers", "question", "text""#,
            ),
            (
                r#"{"question": "Who?", "answers": ["A"], "answer_a": "x", "judge_a": 2}"#.to_owned(),
                "judge_a: must be true or false",
            ),
            (
                r#"{"question": "Who?", "answers": ["A"], "answer_a": 5, "judge_a": true}"#.to_owned(),
                "answer_a: must be a text",
            ),
            (r#"{"question": "Who?", "improper": 2}"#.to_owned(), "improper: must be true or false"),
        ];
        let file: Vec<&str> = cases.iter().map(|case| case.0.as_str()).collect();
        let expected: Vec<String> =
            cases.iter().enumerate().map(|(at, case)| format!("{}: {}", at + 1, case.1)).collect();
        assert_eq!(read(&file.join("\n")), Err(expected.join("\n")));
    }
    proptest! {
        #[test]
        fn judged_answers_are_read_as_they_were_written(
            ids in odd::ids(), question in odd::words(), system in odd::words(), text in odd::words(), answers in prop::collection::vec(odd::words(), 1..3),
            equivalent: bool,
        ) {
            let candidates = json!([{ "system": system, "text": text, "equivalent": equivalent }]);
            let line = |id: &String| {
                format!("{}\n", json!({ "id": id, "question": question, "answers": answers, "candidates": candidates }))
            };
            let list = |id: &String| LabelledList {
                id: id.clone(),
                question: question.clone(),
                passages: vec![Passage { title: system.clone(), ..Passage::untitled(0, text.clone()) }],
                labels: vec![f64::from(u8::from(equivalent))],
                relevant: None,
                answers: answers.clone(),
            };
            prop_assert_eq!(read(&ids.iter().map(line).collect::<String>()), Ok(ids.iter().map(list).collect()));
        }
    }
}
