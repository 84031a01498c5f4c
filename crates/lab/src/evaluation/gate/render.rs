//! The outcome of a gate for continuous integration: JUnit XML, and a summary in Markdown.

use maud::html;

use super::{Check, Judged};
use crate::study::render::{escaped, markdown};
use crate::study::report::Table;

/// Text without the characters that XML does not allow.
fn allowed(text: &str) -> String {
    let is_allowed = |one: &char| matches!(one, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    text.chars().filter(is_allowed).collect()
}

impl Judged {
    /// A test suite with a case per bound.
    pub fn junit(&self) -> String {
        let failures = self.checks.iter().filter(|check| check.failure.is_some()).count();
        let suite = html! {
            testsuites {
                testsuite name=(format!("rerankd {}", self.study)) tests=(self.checks.len()) failures=(failures) {
                    @for Check { system, metric, bound, found, failure } in &self.checks {
                        testcase classname=(allowed(system)) name=(allowed(&format!("{metric}: {bound}"))) {
                            @if let Some(failure) = failure { failure message=(allowed(failure)) {} }
                            system-out { (allowed(found)) }
                        }
                    }
                }
            }
        };
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", suite.into_string())
    }

    /// A section with a row per bound.
    pub fn summary(&self) -> String {
        let row = |check: &Check| {
            let result = if check.failure.is_some() { "failed" } else { "passed" };
            let cells = [check.system.as_str(), &check.metric, &check.bound, &check.found, result];
            cells.map(str::to_owned).to_vec()
        };
        let head = ["system", "metric", "bound", "found", "result"];
        let table = markdown(&Table::new("", head, self.checks.iter().map(row).collect()));
        let changes = match self.changes.as_slice() {
            [] => String::new(),
            changes => format!("\nChanged since the baseline: {}.\n", escaped(&changes.join(", "))),
        };
        format!("## rerankd {}\n\n{}.\n\n{table}{changes}\n", self.study, escaped(&self.sentence()))
    }
}
