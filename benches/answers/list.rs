//! Labelled lists with reference answers: id, question, answers, passages {title, text, score, label or supporting}.

use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::Context;
use rerankd::engine::rerank::Passage;
use serde_json::Value;

/// A question with its list.
pub struct List {
    pub question: String,
    pub answers: Vec<String>,
    pub passages: Vec<Passage>,
    pub relevant: Vec<bool>,
}

/// `most` lists after the first `skip`. Lists without answers are left out.
pub fn read(path: &Path, skip: usize, most: usize) -> anyhow::Result<Vec<List>> {
    let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    let mut lists = Vec::new();
    for (number, line) in BufReader::new(flate2::read::GzDecoder::new(file)).lines().enumerate().skip(skip).take(most) {
        let value: Value =
            serde_json::from_str(&line?).with_context(|| format!("{}:{}", path.display(), number + 1))?;
        let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let passages = value["passages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let answers: Vec<String> = value["answers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| Some(one.as_str()?.to_owned()))
            .collect();
        if answers.is_empty() || passages.is_empty() {
            continue;
        }
        let relevant = |passage: &Value| {
            passage["supporting"]
                .as_bool()
                .unwrap_or_else(|| passage["label"].as_f64().is_some_and(|label| label >= 0.5))
        };
        lists.push(List {
            question: text(&value, "question"),
            answers,
            relevant: passages.iter().map(relevant).collect(),
            passages: passages
                .iter()
                .enumerate()
                .map(|(index, passage)| Passage {
                    id: index.to_string(),
                    title: text(passage, "title"),
                    text: text(passage, "text"),
                    retriever_score: passage["score"].as_f64(),
                })
                .collect(),
        });
    }
    Ok(lists)
}
