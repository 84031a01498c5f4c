//! rerankd.
#![allow(missing_docs)]
pub mod measure;
