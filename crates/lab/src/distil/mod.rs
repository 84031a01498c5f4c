//! Preference distillation: the served generator's scores of passages and orders, as training data for a smaller one (Lee et
//! al., section 3.3.2). Behind `rerankd distil export`.
//!
//! Each question is scored by the engine ([`engine::preferences`]) and appended to the export ([`mod@file`]). Training is
//! outside of this program, in models/distil; docs/how-to/distil.md describes the fields.

mod file;

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use self::file::ExportFile;
use crate::study::journal::{Entry, Timing};
use crate::study::{Answered, Event, Named, Record, StudyError, ask_all, fingerprint};
use engine::Engine;
use engine::preferences::{PreferenceRequest, Preferences, Scored};
use engine::prompt::TEMPLATE_VERSION;
use engine::types::{EngineError, Passage};
use files::labelled::LabelledList;
use prefix_scheduler::call::Call;
use prefix_scheduler::plan::Token;

/// Settings of an export.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub scored: Scored,
    /// Most passages of a question; `None` for all.
    pub passages: Option<usize>,
    /// Most tokens of a passage.
    pub passage_tokens: Option<usize>,
    /// Least label of a relevant passage.
    pub threshold: f64,
    /// Questions left out at the beginning.
    pub skip: usize,
    /// Seed of the orders.
    pub seed: u64,
}

/// A finished export.
pub struct Finished {
    /// SHA-256 of the generator's file.
    pub generator: String,
    /// Questions of the whole file that were refused, by this run or an earlier one.
    pub refused: usize,
}

/// A question with its exported passages.
struct Chosen<'a> {
    list: &'a LabelledList,
    /// Indices of the passages in the list.
    kept: Vec<usize>,
}

#[derive(Serialize)]
struct PassageLine<'a> {
    id: &'a str,
    title: &'a str,
    text: &'a str,
    label: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<Vec<Token>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_cut: Option<usize>,
}

/// The line of one question.
#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    /// [`Chosen::fingerprint`].
    data: String,
    question: &'a str,
    passages: Vec<PassageLine<'a>>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    scores: Option<Scores>,
    /// The reason for missing scores.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// [`Preferences`] without the passages, in nats.
#[derive(Serialize)]
struct Scores {
    query_tokens: Vec<Token>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    orders: Vec<Vec<usize>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    query_after_order: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    passages_in_order: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    query_after_passage: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    query_alone: Option<f64>,
}

/// Name of the scored prompts, as in options and headers.
pub const fn kind(scored: Scored) -> &'static str {
    match scored {
        Scored::Tokens => "tokens",
        Scored::Passages => "passages",
        Scored::Orders(_) => "orders",
    }
}

/// Scores the questions that the file at `path` does not hold yet, in their order, and appends them. `conditions` are
/// the settings that decide refusals and digits; a file made under other conditions is refused.
///
/// # Errors
/// [`StudyError`]. A refused question is not an error: its line holds the reason.
pub async fn export(
    settings: &Settings,
    lists: &[LabelledList],
    engine: &Engine,
    conditions: &[(&'static str, Value)],
    path: &Path,
    mut notify: impl FnMut(Event<'_>),
) -> Result<Finished, StudyError> {
    let chosen: Vec<Chosen<'_>> = lists.iter().map(|list| Chosen::of(list, settings)).collect();
    let named = chosen.iter().map(|one| Named { id: &one.list.id, fingerprint: one.fingerprint(), question: one });
    let questions: Vec<Named<'_, Chosen<'_>>> = named.collect();
    let mut header = header(settings, engine)?;
    header.extend(conditions.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    let mut file = ExportFile::open(path, &header, &questions)?;
    if file.dropped > 0 {
        notify(Event::Dropped(file.dropped));
    }
    let ask = async |one: &Chosen<'_>| {
        Ok(Answered::from(engine.preferences.score(&Call::local(), one.request(settings)).await?))
    };
    let begun = file.done;
    let keep = |entry: Entry<Preferences>, _: Timing| {
        let was_refused = entry.error.is_some();
        file.append(&chosen[file.done].line(entry), was_refused)
    };
    ask_all(&questions, begun, 1, ask, keep, &mut notify).await?;
    let generator = engine.generator()?.info.sha256.clone();
    Ok(Finished { generator, refused: file.refused })
}

impl Record for Preferences {}

/// Everything that the lines depend on, except the conditions.
fn header(settings: &Settings, engine: &Engine) -> Result<Map<String, Value>, EngineError> {
    let generator = engine.generator()?;
    let frame = engine.preferences.prompt_frame()?;
    let permutations = match settings.scored {
        Scored::Orders(count) => Some(count),
        Scored::Tokens | Scored::Passages => None,
    };
    let adapter = generator.info.adapter.as_ref().map(|adapter| json!([adapter.sha256, adapter.scale]));
    let entries = [
        ("kind", json!(kind(settings.scored))),
        ("generator_sha256", json!(generator.info.sha256)),
        ("generator_running_sha256", json!(generator.info.running_sha256)),
        ("generator_encoding", json!(generator.info.encoding)),
        ("adapter", json!(adapter)),
        ("chat", json!(generator.info.chat)),
        ("template_version", json!(TEMPLATE_VERSION)),
        ("opening_tokens", json!(frame.prefix)),
        ("cue_tokens", json!(frame.cue)),
        ("permutations", json!(permutations)),
        ("passages", json!(settings.passages)),
        ("max_passage_tokens", json!(settings.passage_tokens)),
        ("relevance_threshold", json!(settings.threshold)),
        ("skip", json!(settings.skip)),
        ("seed", json!(settings.seed)),
    ];
    Ok(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// A log-probability to a millionth of a nat: the error of the engine is larger, and files stay small.
fn rounded(nats: f64) -> f64 {
    (nats * 1e6).round() / 1e6
}

fn all_rounded(nats: &[f64]) -> Vec<f64> {
    nats.iter().map(|nats| rounded(*nats)).collect()
}

impl<'a> Chosen<'a> {
    /// The first passages of the list, in its order. If none of them is relevant, the first relevant one replaces
    /// the last: a list without a relevant passage does not show a ranking's quality.
    fn of(list: &'a LabelledList, settings: &Settings) -> Self {
        let all = list.passages.len();
        let mut kept: Vec<usize> = (0..all.min(settings.passages.unwrap_or(all))).collect();
        let relevant = |index: &usize| list.labels.get(*index).is_some_and(|label| *label >= settings.threshold);
        if !kept.iter().any(relevant)
            && let Some(found) = (kept.len()..all).find(relevant)
            && let Some(last) = kept.last_mut()
        {
            *last = found;
        }
        Self { list, kept }
    }

    fn passages(&self) -> impl Iterator<Item = (&'a Passage, f64)> {
        let list = self.list;
        self.kept.iter().map(move |&index| (&list.passages[index], list.labels.get(index).copied().unwrap_or(0.0)))
    }

    /// The fingerprint of question and passages. It does not depend on the generator, so it matches the lines of
    /// teacher and student.
    fn fingerprint(&self) -> String {
        let passages: Vec<_> = self.passages().map(|(one, label)| (&one.id, &one.title, &one.text, label)).collect();
        fingerprint(&(&self.list.id, &self.list.question, passages))
    }

    /// The seed of this question's orders. It depends neither on earlier questions nor on the generator.
    fn seed(&self, seed: u64) -> u64 {
        let digest = Sha256::digest(format!("{seed} {}", self.list.id));
        digest.iter().take(8).fold(0, |bytes, byte| (bytes << 8) | u64::from(*byte))
    }

    fn request(&self, settings: &Settings) -> PreferenceRequest {
        PreferenceRequest {
            query: self.list.question.clone(),
            passages: self.passages().map(|(passage, _)| passage.clone()).collect(),
            passage_tokens: settings.passage_tokens,
            scored: settings.scored,
            seed: self.seed(settings.seed),
        }
    }

    /// The line of this question.
    fn line(&self, entry: Entry<Preferences>) -> Line<'a> {
        let scores = entry.value;
        let passages = self.passages().enumerate().map(|(index, (passage, label))| PassageLine {
            id: &passage.id,
            title: &passage.title,
            text: &passage.text,
            label,
            tokens: scores.as_ref().map(|scores| scores.passages[index].to_vec()),
            tokens_cut: scores.as_ref().map(|scores| scores.cut[index]),
        });
        Line {
            id: &self.list.id,
            data: entry.data,
            question: &self.list.question,
            passages: passages.collect(),
            scores: scores.map(Scores::from),
            error: entry.error,
        }
    }
}

impl From<Preferences> for Scores {
    fn from(scores: Preferences) -> Self {
        Self {
            query_tokens: scores.query,
            orders: scores.orders,
            query_after_order: all_rounded(&scores.query_after_order),
            passages_in_order: all_rounded(&scores.passages_in_order),
            query_after_passage: all_rounded(&scores.query_after_passage),
            query_alone: scores.query_alone.map(rounded),
        }
    }
}

#[cfg(test)]
mod tests;
