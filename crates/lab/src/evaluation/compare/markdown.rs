//! compare.md: the verdict and the tables, to be pasted into a document.

use super::summary::Summary;
use super::tables::{self, Cell, Grid};
use super::{Settings, notes};
use crate::evaluation::report::escaped;
use protocol::backend::ModelIdentity;

pub(super) fn text(settings: &Settings, summary: &Summary, models: &ModelIdentity) -> String {
    let mut text = String::new();
    for group in &summary.groups {
        text.push_str(&format!("## {}\n\n{}\n\n", escaped(&group.name), escaped(&group.verdict.sentence)));
        for sentence in group.advice() {
            text.push_str(&format!("{}\n\n", escaped(sentence)));
        }
        for grid in tables::of(group) {
            text.push_str(&format!("{}\n\n", table(&grid)));
        }
    }
    for note in notes::of(settings, summary, models) {
        text.push_str(&format!("- {}\n", escaped(&note)));
    }
    text
}

fn table(grid: &Grid) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = grid.head.iter().map(|name| escaped(name)).collect();
    let mut text = format!("{}:\n\n{}", grid.caption, line(&head));
    let is_long = |at: usize| grid.rows.first().and_then(|row| row.get(at)).is_some_and(|cell| cell.is_long);
    let column = |at: usize| if at == 0 || is_long(at) { "---|" } else { "---:|" };
    text.push_str(&format!("|{}\n", (0..grid.head.len()).map(column).collect::<String>()));
    for row in &grid.rows {
        text.push_str(&line(&row.iter().map(cell).collect::<Vec<_>>()));
    }
    text.trim_end().to_owned()
}

fn cell(cell: &Cell) -> String {
    let interval = cell.interval.as_ref().map(|interval| format!(" {interval}")).unwrap_or_default();
    escaped(&format!("{}{interval}", cell.value))
}
