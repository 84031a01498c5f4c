//! What is kept on disk: model files, the catalogue that pins them, how they are fetched, position-bias profiles, and
//! calibrations of ranking methods.
//!
//! Everything lies under one folder, the store (`models.store`):
//!
//! - `NAME/FILE`: models of the catalogue, verified before they appear
//! - `.receipts/`: hashes of files, valid while size and times of the file are unchanged
//! - `.encodings/`: the tensor type chosen for a generator on this machine, and the re-encoded file
//! - `.profiles/`: position-bias profiles and calibrations
//! - `.pull-*` and `.encodings/.encode-*`: files in the making

pub mod adopt;
pub mod calibrations;
pub mod catalog;
pub mod fetch;
pub mod profiles;
mod receipts;
pub mod scratch;
mod sealed;
pub mod store;
