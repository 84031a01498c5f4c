//! What is kept on disk: model files, the catalogue that pins them, where they are fetched from, and position-bias profiles.
//!
//! Everything lies under one folder (`models.store`). A file appears there complete and verified, or not at all.

pub mod catalog;
pub mod fetch;
pub mod profiles;
pub mod store;
