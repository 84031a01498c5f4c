//! See entry/files.rs.
#![no_main]

#[path = "../entry/mod.rs"]
#[allow(dead_code, reason = "each target runs one of the entries")]
mod entry;

libfuzzer_sys::fuzz_target!(|input: &[u8]| entry::files::run(input));
