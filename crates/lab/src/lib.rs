//! Studies on many questions: how a retriever is judged, what methods gain, what the papers' studies say of a generator, and
//! training data from its preferences.

pub mod analysis;
pub mod distil;
pub mod evaluation;
pub mod study;

// The texts on which formats stumble are those of the crate `files`.
#[cfg(test)]
#[path = "../../files/src/odd.rs"]
mod odd;
