//! Labelled questions, one JSON object per line, gzipped: id, question, answers, passages {title, text, supporting}.

use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
pub struct Question {
    pub id: String,
    pub question: String,
    pub answers: Vec<String>,
    pub passages: Vec<Passage>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Passage {
    pub title: String,
    pub text: String,
    pub supporting: bool,
}

impl Question {
    /// Converts its passages to those of a request.
    pub fn request_passages(&self) -> Vec<engine::types::Passage> {
        let passage = |(index, passage): (usize, &Passage)| engine::types::Passage {
            id: format!("{index:03}"),
            title: passage.title.clone(),
            text: passage.text.clone(),
            retriever_score: None,
        };
        self.passages.iter().enumerate().map(passage).collect()
    }
}

pub fn read(path: &Path, most: usize) -> anyhow::Result<Vec<Question>> {
    let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    BufReader::new(flate2::read::GzDecoder::new(file))
        .lines()
        .take(most)
        .enumerate()
        .map(|(number, line)| {
            serde_json::from_str(&line?).with_context(|| format!("{}:{}", path.display(), number + 1))
        })
        .collect()
}

/// The value after `--name`.
pub fn option<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let at = arguments.iter().position(|argument| argument == &format!("--{name}"))?;
    arguments.get(at + 1).map(String::as_str)
}
