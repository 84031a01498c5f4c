//! Results of a study: a sentence, charts, tables, notes and every number.

use serde_json::{Map, Value, json};

use super::Refused;
use super::chart::Chart;
use super::identity::ModelIdentity;
use super::mean::{Mean, NONE};
use prefix_scheduler::model::PromptFormat;
use rag_metrics::resample::Statistics;

/// The outcome of a study.
#[derive(Debug, Default)]
pub struct Report {
    pub title: String,
    /// One sentence, first on the page.
    pub verdict: String,
    /// Further sentences below it.
    pub text: Vec<String>,
    pub charts: Vec<Chart>,
    pub tables: Vec<Table>,
    pub sections: Vec<Section>,
    /// Notes on the measurement, one sentence per element.
    pub notes: Vec<String>,
    /// Every number by itself.
    pub figures: Vec<Figure>,
    /// The models, for the figures.
    pub model: Value,
    /// The manifest of the results.
    pub settings: Map<String, Value>,
}

/// A part of a report with a heading.
#[derive(Debug, Default)]
pub struct Section {
    pub title: String,
    pub text: Vec<String>,
    pub charts: Vec<Chart>,
    pub tables: Vec<Table>,
}

/// A table. The first cell of a row is its name. A cell may end in an interval in brackets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    pub caption: String,
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// True if a page shows it only when opened, and a terminal never.
    pub folded: bool,
}

/// A number.
#[derive(Debug)]
pub struct Figure {
    /// Such as `position 1, 5 passages`.
    pub name: String,
    pub unit: &'static str,
    pub mean: Mean,
    /// Further members of its line.
    pub more: Map<String, Value>,
}

impl Table {
    pub fn new<T: Into<String>>(
        caption: impl Into<String>,
        head: impl IntoIterator<Item = T>,
        rows: Vec<Vec<String>>,
    ) -> Self {
        Self { caption: caption.into(), head: head.into_iter().map(Into::into).collect(), rows, folded: false }
    }

    /// A copy that is shown folded.
    #[must_use]
    pub fn folded(self) -> Self {
        Self { folded: true, ..self }
    }

    /// True if its rows have names but no numbers.
    pub fn is_empty(&self) -> bool {
        self.rows.iter().all(|row| row.iter().skip(1).all(|cell| cell == NONE))
    }

    /// The value and the interval of a cell of this column.
    pub fn parts<'c>(&self, column: usize, cell: &'c str) -> (&'c str, Option<&'c str>) {
        match cell.split_once(" [") {
            Some((value, _)) if cell.ends_with(']') && !self.is_text(column) => (value, Some(&cell[value.len() + 1..])),
            _ => (cell, None),
        }
    }

    /// True if the column holds words.
    pub(super) fn is_text(&self, column: usize) -> bool {
        let is_number = |cell: &str| cell.starts_with(|first: char| first.is_ascii_digit() || "+-−–<".contains(first));
        let cells = || self.rows.iter().filter_map(|row| row.get(column)).filter(|cell| !cell.is_empty());
        column == 0 || cells().any(|cell| !is_number(cell))
    }
}

impl Section {
    /// The questions that were refused, with the reasons; `None` without any.
    pub fn refused(title: &str, refused: &[Refused]) -> Option<Self> {
        let row = |one: &Refused| vec![one.id.clone(), one.error.clone()];
        let table = Table::new("", ["question", "error"], refused.iter().map(row).collect());
        (!refused.is_empty()).then(|| Self { title: title.to_owned(), tables: vec![table], ..Self::default() })
    }
}

impl Report {
    /// Adds a table.
    pub fn table<T: Into<String>>(
        &mut self,
        caption: impl Into<String>,
        head: impl IntoIterator<Item = T>,
        rows: Vec<Vec<String>>,
    ) {
        self.tables.push(Table::new(caption, head, rows));
    }

    /// Adds a number, and returns it as a cell: the value and its interval.
    pub fn number(&mut self, name: impl Into<String>, unit: &'static str, mean: Mean) -> String {
        self.figures.push(Figure { name: name.into(), unit, mean, more: Map::new() });
        mean.cell(3)
    }

    /// Adds a row per measure: its name, and the number as a cell. The name in the figures is that of `figure`.
    pub fn rows<'n>(
        &mut self,
        measures: impl IntoIterator<Item = (&'n str, &'static str, Mean)>,
        figure: impl Fn(&str) -> String,
    ) -> Vec<Vec<String>> {
        let row = |(name, unit, mean): (&'n str, &'static str, Mean)| {
            vec![name.to_owned(), self.number(figure(name), unit, mean)]
        };
        measures.into_iter().map(row).collect()
    }
}

/// The models, for figures: the prompt format, or the configured one, and the scorer if it scores.
pub fn model(models: &ModelIdentity, frame: Option<PromptFormat>, by_scorer: bool) -> Value {
    let mut model = json!({ "model": models.name, "sha256": models.generator, "encoding": models.encoding });
    let name = |frame: PromptFormat| frame.name();
    let scorer = models.scorer.as_ref().filter(|_| by_scorer);
    for (key, value) in [
        ("frame", Some(name(frame.unwrap_or(models.frame)))),
        ("adapter", models.adapter.as_deref()),
        ("scorer", scorer.map(String::as_str)),
        ("scorer_frame", scorer.and(models.scorer_frame).map(name)),
    ] {
        if let Some(value) = value {
            model[key] = json!(value);
        }
    }
    model
}

/// The sentence about the generator. `more` follows the version of the prompts.
pub fn generator_note(models: &ModelIdentity, more: &str) -> String {
    let adapter = models.adapter.as_ref().map_or_else(String::new, |adapter| format!(", adapter {adapter}"));
    let scorer = models.scorer.as_ref().map_or_else(String::new, |scorer| format!("; scored by {scorer}"));
    format!(
        "Generator: {} ({}), SHA-256 {}{adapter}{scorer}; prompts {}{more}.",
        models.name, models.encoding, models.generator, models.prompts
    )
}

/// Tokens of the passages that the models read. The context bounds passages in any case.
pub fn passages_note(most: Option<usize>) -> String {
    let whole = "passages as the context holds them".to_owned();
    most.map_or(whole, |most| format!("passages of at most {most} tokens"))
}

/// The sentence about intervals; `None` without them.
pub fn intervals_note(statistics: &Statistics) -> Option<String> {
    let (percent, resamples) = (statistics.confidence * 100.0, statistics.resamples);
    let text = format!(
        "Brackets are {percent:.0} % bootstrap intervals over questions ({resamples} resamples; a fifth of them for correlations \
         and ratios)."
    );
    (resamples > 0).then_some(text)
}

/// Architecture and cores of the machine on which the command runs.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{}, {cores} cores", std::env::consts::ARCH)
}
