//! Studies on many questions: evaluation of retrieval, comparison of methods, the papers' studies of a generator, and
//! training data from its preferences.

pub mod analysis;
pub mod distil;
pub mod evaluation;
pub mod study;

// Difficult texts for the formats, from the crate `files`.
#[cfg(test)]
#[path = "../../files/src/odd.rs"]
mod odd;
