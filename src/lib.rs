//! rerankd asks a generator which passages help it, in which order, and by how much.
//!
//! # The path of a request
//!
//! `rpc` translates it from the wire and hands it to `engine`, the use cases: a request is checked and tokenised, its
//! method makes a `plan` (a forest of token segments), and `scheduler` carries the plan out on the thread that owns the
//! model. `runtime` is what the model is made of; `model` is the seam between the two. With the scores back, `engine` calls
//! `measure`, the arithmetic, and `rpc` translates the answer.
//!
//! # Who may import whom
//!
//! `main -> {cli, app}`, `cli -> {app, config, engine, measure, rpc, runtime}`, `app -> {rpc, engine, scheduler, runtime, measure, model, config}`,
//! `rpc -> engine -> {scheduler, measure, plan, model}`, `runtime -> {model, plan, measure}`,
//! `scheduler -> {model, plan, measure}`. `measure` and `plan` are pure. Nothing points back up; tests/architecture.rs reads
//! the `use` lines and fails where something does.

pub mod app;
mod backend;
pub mod belief;
pub mod call;
pub mod cli;
pub mod config;
pub mod engine;
mod evaluation;
mod files;
pub mod fit;
pub mod metrics;
pub mod model;
pub mod numeric;
pub mod plan;
pub mod rpc;
pub mod runtime;
pub mod scheduler;
pub mod storage;
pub mod telemetry;

// The scripted models are shared with the integration tests, which name this crate from outside.
#[cfg(test)]
extern crate self as rerankd;
#[cfg(test)]
#[path = "../tests/common/scripted.rs"]
mod scripted;
