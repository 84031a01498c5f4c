//! See entry/states.rs.
#![no_main]

#[path = "../entry/mod.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|input: &[u8]| entry::states::run(input));
