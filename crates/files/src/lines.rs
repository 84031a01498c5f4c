//! Files of JSON lines, and files with a single JSON value.

use std::borrow::Cow;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::fields::json_fault;
use super::{FileError, MARK, Warnings, name};
use crate::json::without_half_surrogates;

/// Most bad lines in one error.
const LISTED: usize = 20;

/// Warnings about one line.
pub(crate) type Remarks = Vec<String>;

/// The warning about half a surrogate pair.
const HALF: &str = "holds half of a surrogate pair, which is read as U+FFFD";

/// Lines that are not empty, numbered from 1.
pub(crate) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line)).filter(|(_, line)| !line.trim().is_empty())
}

/// True if a line of a JSON file is a comment. No JSON value begins with `#`.
pub(crate) fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// The value of a line. A byte-order mark before it is dropped; concatenated files have one inside.
pub(crate) fn value(line: &str, remarks: &mut Remarks) -> Result<Value, String> {
    let line = line.trim_start_matches(MARK);
    serde_json::from_str(line).or_else(|error| {
        let repaired = serde_json::from_str(&without_half_surrogates(line));
        let value = repaired.map_err(|_| format!("is not valid JSON: {}", json_fault(&error)))?;
        remarks.push(HALF.to_owned());
        Ok(value)
    })
}

/// Parses a file that is one JSON value. A repaired copy is leaked, because the process reads a few files and ends.
///
/// # Errors
/// The file is not valid JSON, or its content has another shape.
pub(super) fn parsed<'a, T: Deserialize<'a>>(text: &'a str, path: &Path, warnings: &mut Warnings) -> Result<T, String> {
    let error = match serde_json::from_str(text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let repaired = match without_half_surrogates(text) {
        Cow::Borrowed(_) => None,
        Cow::Owned(repaired) => serde_json::from_str(Box::leak(repaired.into_boxed_str())).ok(),
    };
    let value = repaired.ok_or_else(|| json_fault(&error))?;
    warnings.of_file(path, HALF);
    Ok(value)
}

/// Parses a file that is one JSON value, without borrowing from it.
pub fn whole<T: DeserializeOwned>(text: &str, path: &Path, warnings: &mut Warnings) -> Result<T, FileError> {
    parsed(text, path, warnings).map_err(|fault| FileError(format!("{}: {fault}", name(path))))
}

/// Reads a file of JSON lines, at least one; `things` names its content in errors. `parse` gets the value of a line and
/// its number, and returns nothing if the line is to be left out. Lines that begin with `#` are comments.
///
/// # Errors
/// One per bad line, for the first [`LISTED`] of them.
pub(crate) fn read<T>(
    path: &Path,
    things: &str,
    warnings: &mut Warnings,
    mut parse: impl FnMut(&Value, usize, &mut Remarks) -> Result<Option<T>, String>,
) -> Result<Vec<T>, FileError> {
    let text = super::read(path)?;
    let (mut all, mut bad) = (Vec::new(), Vec::new());
    for (number, line) in numbered(&text).filter(|(_, line)| !is_comment(line)) {
        let mut remarks = Remarks::new();
        match value(line, &mut remarks).and_then(|value| parse(&value, number, &mut remarks)) {
            Ok(one) => all.extend(one),
            Err(problem) => bad.push(format!("{}:{number}: {problem}", name(path))),
        }
        warnings.of_line(path, number, remarks);
    }
    if !bad.is_empty() && numbered(&text).count() > 1 && serde_json::from_str::<Value>(&text).is_ok() {
        let how = if text.trim_start().starts_with('[') { ".[]" } else { "." };
        let fault = "is one JSON value in several lines: write one object per line";
        return Err(FileError(format!("{}: {fault}, as `jq -c '{how}'` does", name(path))));
    }
    if bad.is_empty() && all.is_empty() {
        bad.push(format!("{}: has no {things}", name(path)));
    }
    if bad.is_empty() {
        return Ok(all);
    }
    let more = bad.len().saturating_sub(LISTED);
    bad.truncate(LISTED);
    if more > 0 {
        bad.push(format!("{}: {more} more bad lines", name(path)));
    }
    Err(FileError(bad.join("\n")))
}
