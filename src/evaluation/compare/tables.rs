//! A comparison as tables of text: for the terminal, the page and Markdown alike.

use super::gains::{Gain, OtherGains};
use super::quality::{Order, Tau};
use super::rows::{GENERATOR, OPENING};
use super::summary::{Group, MEASURES, Measure, Row, Summary};
use super::warned::Warned;
use super::{BM25, GIVEN, Settings};
use crate::backend::ModelIdentity;
use crate::evaluation::summary::Mean;
use crate::metrics::resample::{Test, format_p_value};

/// A cell: a value, and its interval where it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    pub value: String,
    pub interval: Option<String>,
}

/// A table with its caption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grid {
    pub caption: &'static str,
    pub head: Vec<&'static str>,
    /// The first cell of each row is its name.
    pub rows: Vec<Vec<Cell>>,
}

/// What stands for a number that is not there.
const NONE: &str = "–";

/// A cell without an interval.
fn plain(value: impl Into<String>) -> Cell {
    Cell { value: value.into(), interval: None }
}

fn bounded(value: String, low: Option<f64>, high: Option<f64>, digits: usize) -> Cell {
    Cell { value, interval: low.zip(high).map(|(low, high)| format!("[{low:.digits$}, {high:.digits$}]")) }
}

fn mean(mean: &Mean, digits: usize) -> Cell {
    match mean.value {
        Some(value) => bounded(format!("{value:.digits$}"), mean.low, mean.high, digits),
        None => plain(NONE),
    }
}

/// The tables of a group.
pub(crate) fn of(group: &Group) -> Vec<Grid> {
    let mut grids = vec![measures(&group.rows), differences(&group.rows)];
    grids.push(others("Differences from given in other measures of rankings", &group.rows, |one| {
        one.over_given.as_ref()
    }));
    grids
        .push(others("Differences from bm25 in other measures of rankings", &group.rows, |one| one.over_bm25.as_ref()));
    if group.rows.iter().any(|row| row.over_base.is_some()) {
        grids.push(variants(&group.rows));
    }
    if group.rows.iter().any(|row| row.quality.is_some()) {
        grids.push(scores(&group.rows));
    }
    if group.rows.iter().any(|row| order(row).is_some()) {
        grids.push(orders(&group.rows));
    }
    if group.rows.iter().any(|row| tau(row).is_some()) {
        grids.push(taus(&group.rows));
    }
    if !group.warned.is_empty() {
        grids.push(warnings(&group.warned));
    }
    grids
}

fn measures(rows: &[Row]) -> Grid {
    let cells = |row: &Row| {
        let values = row.measures.iter().zip(MEASURES).map(|(value, measure): (&Mean, Measure)| {
            // The given order costs nothing, which is not a measurement.
            if row.name == GIVEN && measure.name == "seconds" { plain("0") } else { mean(value, measure.digits) }
        });
        std::iter::once(plain(row.name.clone())).chain(values).collect()
    };
    let head = std::iter::once("ranking").chain(MEASURES.iter().map(|measure| measure.name)).collect();
    Grid { caption: "Rankings and their cost a question", head, rows: rows.iter().map(cells).collect() }
}

fn gain(gain: Option<&Gain>) -> [Cell; 3] {
    match gain {
        None => [plain(NONE), plain(NONE), plain(NONE)],
        Some(gain) => [
            bounded(format!("{:+.3}", gain.difference), gain.low, gain.high, 3),
            plain(format!("{}, {}", format_p_value(gain.p_value), format_p_value(gain.adjusted))),
            plain(format!("{}, {}, {}", gain.wins, gain.ties, gain.losses)),
        ],
    }
}

fn variants(rows: &[Row]) -> Grid {
    let cells = |row: &Row| {
        let gain = gain(Some(row.over_base.as_ref()?));
        Some(std::iter::once(plain(row.name.clone())).chain(gain).collect())
    };
    Grid {
        caption: "Differences in nDCG@10 in the list from the same method as configured",
        head: vec!["ranking", "difference", "p, p after Holm", "wins, ties, losses"],
        rows: rows.iter().filter_map(cells).collect(),
    }
}

fn differences(rows: &[Row]) -> Grid {
    let cells = |row: &Row| {
        let gains = [row.over_given.as_ref(), row.over_bm25.as_ref()];
        std::iter::once(plain(row.name.clone())).chain(gains.into_iter().flat_map(gain)).collect()
    };
    let head = vec![
        "ranking",
        "over given",
        "p, p after Holm",
        "wins, ties, losses",
        "over bm25",
        "p, p after Holm",
        "wins, ties, losses",
    ];
    let rows = rows.iter().filter(|row| row.over_given.is_some()).map(cells).collect();
    Grid { caption: "Differences in nDCG@10 in the list, on the same questions", head, rows }
}

fn others(caption: &'static str, rows: &[Row], of: fn(&OtherGains) -> Option<&Gain>) -> Grid {
    let cells = |row: &Row| {
        let gains: Vec<&Gain> = row.others.iter().filter_map(of).collect();
        let cells = gains.into_iter().flat_map(|one| gain(Some(one)).into_iter().take(2));
        let cells: Vec<Cell> = std::iter::once(plain(row.name.clone())).chain(cells).collect();
        (cells.len() > 1).then_some(cells)
    };
    let head = vec!["ranking", "MRR", "p, p after Holm", "recall@3", "p, p after Holm", "recall@5", "p, p after Holm"];
    Grid { caption, head, rows: rows.iter().filter_map(cells).collect() }
}

fn scores(rows: &[Row]) -> Grid {
    let cells = |row: &Row| {
        let quality = row.quality.as_ref()?;
        Some(vec![
            plain(row.name.clone()),
            mean(&quality.calibration_error, 3),
            mean(&quality.auc, 3),
            plain(quality.passages.to_string()),
        ])
    };
    Grid {
        caption: "Score as a probability of being relevant, over all passages",
        head: vec!["ranking", "calibration error", "AUC", "passages"],
        rows: rows.iter().filter_map(cells).collect(),
    }
}

fn order(row: &Row) -> Option<&Order> {
    row.quality.as_ref()?.order.as_ref()
}

fn orders(rows: &[Row]) -> Grid {
    let cells = |row: &Row| {
        let order = order(row)?;
        Some(vec![
            plain(row.name.clone()),
            mean(&order.predicted, 3),
            mean(&order.right, 3),
            mean(&order.calibration_error, 3),
            plain(order.pairs.to_string()),
        ])
    };
    Grid {
        caption: "`outranks_next` of two neighbours, one relevant and one not",
        head: vec!["ranking", "predicted", "stand right", "calibration error", "pairs"],
        rows: rows.iter().filter_map(cells).collect(),
    }
}

fn tau(row: &Row) -> Option<&Tau> {
    row.quality.as_ref()?.tau.as_ref()
}

fn taus(rows: &[Row]) -> Grid {
    let cells = |row: &Row| {
        let tau = tau(row)?;
        let means = [mean(&tau.expected, 3), mean(&tau.found, 3), mean(&tau.agreement, 3)];
        let questions = plain(tau.found.questions.to_string());
        Some(std::iter::once(plain(row.name.clone())).chain(means).chain([questions]).collect())
    };
    Grid {
        caption: "`expected_tau`, and Kendall's tau of the ranking with the labels",
        head: vec!["ranking", "expected", "with labels", "Spearman's rho of both", "questions"],
        rows: rows.iter().filter_map(cells).collect(),
    }
}

fn warnings(warned: &[Warned]) -> Grid {
    let cells =
        |one: &Warned| vec![plain(one.ranking.clone()), plain(one.questions.to_string()), plain(one.warning.clone())];
    Grid {
        caption: "What rankings warned of; warnings that differ in numbers alone are counted together",
        head: vec!["ranking", "questions", "warning"],
        rows: warned.iter().map(cells).collect(),
    }
}

/// How it was measured, a sentence an element.
pub(crate) fn notes(settings: &Settings, summary: &Summary, models: &ModelIdentity) -> Vec<String> {
    let statistics = &settings.statistics;
    let percent = format!("{:.0} %", statistics.confidence * 100.0);
    let test = match statistics.test {
        Test::Randomisation => "paired permutation tests, which flip the signs of the differences",
        Test::Bootstrap => "paired bootstrap tests",
    };
    // The context bounds passages in any case, and what it cut of each is not kept.
    let held = "passages as the context holds them".to_owned();
    let cut = settings.passage_tokens.map_or(held, |most| format!("passages of at most {most} tokens"));
    let budget = settings.latency_budget_ms.map_or_else(String::new, |budget| format!(", latency budget {budget} ms"));
    let adapter = models.adapter.as_ref().map_or_else(String::new, |adapter| format!(", adapter {adapter}"));
    let scorer = models.scorer.as_ref().map_or_else(String::new, |scorer| format!("; scored by {scorer}"));
    // Of a scorer's prompts where there is one: they rank.
    let frame = if models.scorer.is_some() { models.scorer_frame } else { models.frame };
    let frame = frame.map_or_else(String::new, |frame| format!(", frame {}", frame.name()));
    let mut notes: Vec<String> = summary.groups.iter().map(counts).collect();
    notes.extend([
        format!(
            "Generator: {} ({}), SHA-256 {}{adapter}{scorer}; prompts {}{frame}; {cut}{budget}; seed {}.",
            models.name, models.encoding, models.generator, models.prompts, settings.seed
        ),
        format!("Machine: {}. Requests were sent one after the other; seconds are from the request to its answer.", machine()),
        format!("`{GIVEN}` is the order of the file. `{BM25}` is BM25 with the document frequencies of the list itself."),
        "nDCG@10 in the list takes its ideal from the labels of the list: 1 is the best that any order of it can reach.".into(),
        "nDCG@10 of all judged takes it from all relevant passages of the collection, on questions that say how many there are; \
         passages that the retriever missed count as relevant once."
            .into(),
        format!("A passage is relevant from a label of {} on. Recall divides by the relevant passages of the collection where \
                 their number is given, else by those of the list.", settings.threshold),
        "Tokens are the generator's, and those that a request costs where nothing is kept: evaluated, and reused from earlier requests \
         and rounds. Without sharing, every prompt would be evaluated from its beginning. Tokens of an embedding model or a cross-encoder have a column of their own."
            .into(),
        format!(
            "Brackets are {percent} bootstrap intervals over questions ({} resamples; those of differences as many as tests). p is \
             from {test} ({} resamples), then adjusted by Holm over the rows of the column.",
            statistics.resamples, statistics.test_resamples
        ),
        "Kendall's tau with the labels is over pairs of a relevant and another passage; `expected_tau` is over all pairs, and about the \
         generator's own preference."
            .into(),
        "Calibration error: expected, over ten bins of equal count, or fewer of at least twenty. AUC: share of pairs of a relevant and another passage, \
         of any two questions, that `score` orders rightly."
            .into(),
    ]);
    let calibrated = |name: &str| models.calibrations.iter().find(|one| one.method == name);
    notes.extend(settings.methods.iter().filter_map(|method| calibrated(method.name())).map(|one| {
        let lists = one.lists;
        format!("`{}` is calibrated on {lists} lists: on these its calibration error says nothing.", one.method)
    }));
    notes.extend(opening(settings));
    if !settings.frames.is_empty() {
        let text = "Rows named `+chat`, `+jinja` and `+plain` have prompts with the chat template that llama.cpp knows, with that of the \
                    model's file, evaluated, and without any. They are tested against the same method only. No row is calibrated.";
        notes.push(text.to_owned());
    }
    if settings.by_generator {
        notes.push(format!(
            "Rows named `{GENERATOR}` are scored by the generator, the others by the scorer. They are tested against the same method \
             only. A token of one is not a token of the other."
        ));
    }
    notes
}

/// What the rows with the caller's opening were asked with, if there are any.
fn opening(settings: &Settings) -> Option<String> {
    let own = &settings.opening;
    let instruction = match own.instruction.trim() {
        "" => "the built-in instruction".to_owned(),
        text => format!("the instruction {text:?}"),
    };
    let examples = match own.examples.len() {
        0 => String::new(),
        count => format!(" (examples: {count})"),
    };
    let text = format!(
        "Rows named `{OPENING}` have {instruction}{examples} before the passages, the others the built-in prompt."
    );
    (!own.is_built_in()).then_some(text)
}

fn counts(group: &Group) -> String {
    let without = group.questions - group.ranked;
    format!(
        "{}: {} questions with {} passages. {without} of them have no relevant passage in their list and are left out of the \
         measures of rankings.",
        group.name, group.questions, group.passages
    )
}

/// Architecture and cores of the machine on which the command runs.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{}, {cores} cores", std::env::consts::ARCH)
}
