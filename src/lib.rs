//! rerankd.
#![allow(missing_docs)]
pub mod measure;
pub mod model;
pub mod plan;
pub mod runtime;
pub mod scheduler;
