//! Ids and texts that are difficult for the formats, for property tests.

use proptest::prelude::*;
use proptest::sample::select;

const ODD: [&str; 26] = [
    " ", "\t", "\"", "'", "\\", "\u{feff}", "\r\n", "\n", "\r", "\u{2028}", "\u{85}", "\u{a0}", "\u{b}", "😀", "é",
    "#", "# ", "{", "}", "[", ",", "\\ud83d", "\u{fffd}", "\u{0}", "null", "1",
];

/// Any text, often made of difficult pieces.
pub(crate) fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![3 => select(&ODD[..]).prop_map(str::to_owned), 2 => "[a-c]{1,2}", 1 => any::<char>().prop_map(String::from)];
    prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

/// Texts that are not blank, even without their leading byte-order marks.
pub(crate) fn words() -> impl Strategy<Value = String> {
    text().prop_filter("is blank", |text| !unmarked(text).trim().is_empty())
}

/// The text without its leading byte-order marks, as passages and documents are read.
pub(crate) fn unmarked(text: &str) -> &str {
    text.trim_start_matches('\u{feff}')
}

/// Finite numbers.
pub(crate) fn number() -> impl Strategy<Value = f64> {
    any::<f64>().prop_filter("is not a finite number", |number| number.is_finite())
}

/// Distinct ids, at least one.
pub(crate) fn ids() -> impl Strategy<Value = Vec<String>> {
    prop::collection::btree_set(text(), 1..5).prop_map(|ids| ids.into_iter().collect())
}

/// Reads a file with this content.
pub(crate) fn in_file<T>(content: &str, read: impl FnOnce(&std::path::Path) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, content).unwrap();
    read(&path)
}
