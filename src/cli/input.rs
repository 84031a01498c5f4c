//! Input of the commands: JSON documents and JSON lines, from a file or standard input, gzipped or not, with the line named
//! in errors.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;

use super::Failure;
use crate::engine::rerank::Passage;

/// How gzipped files begin.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Reads all of a file, or of standard input for `-`; gzipped ones are unpacked.
pub(super) fn read(path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let outcome = if path == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes).map(drop)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).map(drop)
    };
    let bad = |error: std::io::Error| Failure::Input(format!("{}: {error}", name(path)));
    outcome.map_err(bad)?;
    if bytes.starts_with(&GZIP) {
        let mut plain = Vec::new();
        flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut plain).map_err(bad)?;
        bytes = plain;
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
        let line = good.matches('\n').count() + 1;
        Failure::Input(format!("{}:{line}: is not UTF-8", name(path)))
    })
}

/// How an input is called in messages.
pub(super) fn name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

/// A file's name without folders and endings.
pub(super) fn stem(path: &Path) -> String {
    let file = path.file_name().map_or_else(|| name(path), |file| file.to_string_lossy().into_owned());
    file.split('.').find(|part| !part.is_empty()).unwrap_or(&file).to_owned()
}

/// A passage as a line: an object, or the text alone.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    Text(String),
    Object(Object),
}

#[derive(Debug, Deserialize)]
struct Object {
    #[serde(default)]
    id: Option<serde_json::Value>,
    #[serde(alias = "contents", alias = "passage")]
    text: String,
    #[serde(default)]
    title: String,
    #[serde(default, alias = "retriever_score")]
    score: Option<f64>,
}

/// Reads passages, one JSON value a line; empty lines are passed over.
pub(super) fn passages(path: &Path) -> Result<Vec<Passage>, Failure> {
    let text = read(path)?;
    let mut passages = Vec::new();
    for (number, line) in lines(&text) {
        let bad = |problem: String| Failure::Input(format!("{}:{number}: {problem}", name(path)));
        let parsed = serde_json::from_str::<serde_json::Value>(line).map_err(|error| bad(error.to_string()))?;
        let line = serde_json::from_value::<Line>(parsed).map_err(|_| {
            bad("must be a string, or an object with \"text\" and maybe \"id\", \"title\", \"score\"".into())
        })?;
        passages.push(line.passage(passages.len()));
    }
    Ok(passages)
}

/// A file to be read line by line, unpacked on the way where it is gzipped.
pub(super) fn open(path: &Path) -> Result<Box<dyn BufRead>, Failure> {
    let bad = |error: std::io::Error| Failure::Input(format!("{}: {error}", name(path)));
    let mut file = BufReader::new(std::fs::File::open(path).map_err(bad)?);
    let gzipped = file.fill_buf().map_err(bad)?.starts_with(&GZIP);
    Ok(if gzipped { Box::new(BufReader::new(flate2::read::MultiGzDecoder::new(file))) } else { Box::new(file) })
}

/// Lines that are not empty, numbered from 1.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line)).filter(|(_, line)| !line.trim().is_empty())
}

impl Line {
    fn passage(self, position: usize) -> Passage {
        match self {
            Self::Text(text) => Passage { id: position.to_string(), text, ..Passage::default() },
            Self::Object(object) => Passage {
                id: identifier(object.id).unwrap_or_else(|| position.to_string()),
                text: object.text,
                title: object.title,
                retriever_score: object.score,
            },
        }
    }
}

/// An id, which may be a number.
pub(super) fn identifier(value: Option<serde_json::Value>) -> Option<String> {
    match value? {
        serde_json::Value::Null => None,
        serde_json::Value::String(id) => Some(id),
        other => Some(other.to_string()),
    }
}

/// A question with what is known of it.
#[derive(Debug, Deserialize)]
struct QuestionLine {
    #[serde(default, alias = "_id", alias = "query_id", alias = "qid")]
    id: Option<serde_json::Value>,
    #[serde(alias = "query")]
    question: String,
    #[serde(default, alias = "references")]
    answers: Vec<String>,
    #[serde(default)]
    passages: Vec<MarkedLine>,
}

#[derive(Debug, Deserialize)]
struct MarkedLine {
    #[serde(flatten)]
    passage: Object,
    #[serde(default, alias = "relevant")]
    supporting: bool,
}

/// A question, its reference answers, and passages with marks of the helpful ones.
#[derive(Debug, Clone)]
pub(super) struct Question {
    /// The line it stands in, from 1.
    pub line: usize,
    /// Its id, where it has one.
    pub id: Option<String>,
    pub question: String,
    pub answers: Vec<String>,
    pub passages: Vec<Passage>,
    pub supporting: Vec<bool>,
}

/// Reads questions, one JSON object a line.
pub(super) fn questions(path: &Path) -> Result<Vec<Question>, Failure> {
    let text = read(path)?;
    let mut questions = Vec::new();
    for (number, line) in lines(&text) {
        let parsed: QuestionLine =
            serde_json::from_str(line).map_err(|error| Failure::Input(format!("{}:{number}: {error}", name(path))))?;
        let supporting = parsed.passages.iter().map(|marked| marked.supporting).collect();
        let passages =
            parsed.passages.into_iter().enumerate().map(|(place, marked)| Line::Object(marked.passage).passage(place));
        let passages = passages.collect();
        let (id, question, answers) = (identifier(parsed.id), parsed.question, parsed.answers);
        questions.push(Question { line: number, id, question, answers, passages, supporting });
    }
    Ok(questions)
}
