//! A comparison as tables of text: for the terminal, the page and Markdown alike.

use super::GIVEN;
use super::gains::{Gain, OtherGains};
use super::quality::{Order, Tau};
use super::summary::{Group, MEASURES, Measure, Row};
use crate::evaluation::summary::Mean;
use crate::evaluation::warned::Warned;
use rag_metrics::resample::format_p_value;

/// A cell: a value, and its interval where it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    pub value: String,
    /// Whether it is a sentence.
    pub is_long: bool,
    pub interval: Option<String>,
}

/// A table with its caption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    pub caption: &'static str,
    pub head: Vec<&'static str>,
    /// The first cell of each row is its name.
    pub rows: Vec<Vec<Cell>>,
}

/// What stands for a number that is not there.
const NONE: &str = "–";

/// A cell without an interval.
fn plain(value: impl Into<String>) -> Cell {
    Cell { value: value.into(), is_long: false, interval: None }
}

fn bounded(value: String, low: Option<f64>, high: Option<f64>, digits: usize) -> Cell {
    Cell {
        value,
        is_long: false,
        interval: low.zip(high).map(|(low, high)| format!("[{low:.digits$}, {high:.digits$}]")),
    }
}

fn mean(mean: &Mean, digits: usize) -> Cell {
    match mean.value {
        Some(value) => bounded(format!("{value:.digits$}"), mean.low, mean.high, digits),
        None => plain(NONE),
    }
}

/// The tables of a group.
pub fn of(group: &Group) -> Vec<Grid> {
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
    let rows = rows.iter().filter(|row| row.name != GIVEN).map(cells).collect();
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
    let cells = |one: &Warned| {
        vec![
            plain(one.ranking.clone()),
            plain(one.questions.to_string()),
            Cell { is_long: true, ..plain(one.warning.clone()) },
        ]
    };
    Grid {
        caption: "What rankings warned of: the first of each kind; those that differ in numbers or quoted words alone are one kind",
        head: vec!["ranking", "questions", "warning"],
        rows: warned.iter().map(cells).collect(),
    }
}

/// Architecture and cores of the machine on which the command runs.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{}, {cores} cores", std::env::consts::ARCH)
}
