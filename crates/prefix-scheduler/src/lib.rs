//! Evaluates many prompts that share prefixes, for many callers, on the one thread that owns a model.
//!
//! | module | the question it answers |
//! |---|---|
//! | [`plan`] | which tokens are evaluated, and in which order? |
//! | [`call`] | for whom is work done, until when, and who may stop it? |
//! | [`model`] | what is asked of a model? |
//! | [`warm`] | which states of passages are kept? |
//! | [`scheduler`] | whose work is done next? |
//! | [`scripted`] | how do models behave whose numbers are known? For tests and examples. |
#![warn(missing_docs)]

pub mod call;
pub mod model;
pub mod plan;
pub mod scheduler;
pub mod scripted;
pub mod warm;
