//! rerankd asks a generator which passages help it, in which order, and by how much.
//!
//! This package is the program: its commands ([`cli`]), its configuration ([`config`]), and how the crates of the workspace become a
//! server ([`app`]). CONTRIBUTING.md has the map of the crates.

pub mod app;
pub mod cli;
pub mod config;
pub mod telemetry;

// The texts on which formats stumble are those of the crate `files`.
#[cfg(test)]
#[path = "../crates/files/src/odd.rs"]
mod odd;
