//! Evaluates prompts that share prefixes, for many callers, on the one thread that owns a model.
//!
//! # Contract
//!
//! - **Plans.** A [`plan::Plan`] is a forest of token segments. Each root-to-leaf path is a sequence; a segment can
//!   request the scores of its tokens, and a node may be continued by samples. Equal segments after the same parent
//!   are one node, so each is evaluated once, whatever the number of sequences that contain it.
//!   [`plan::Plan::cost`] is known before the plan runs. Except for the rounding of the model's kernels, the scores
//!   do not depend on other work.
//! - **Callers.** Work carries a [`call::Call`]. When its deadline passes, it is cancelled, or the future of
//!   [`Scheduler::run`](scheduler::generator::Scheduler::run) is dropped, its work ends before the next step of the
//!   model and its cache is freed. A plan that cannot end before its deadline, or never fits the cache, is refused
//!   before any step.
//! - **Order.** Requests that have begun go first, then urgent ones; callers of equal urgency take turns, weighted by tokens. Among
//!   the requests of one caller, the earliest deadline goes first. Active plans share the steps of the model.
//! - **Models.** A loader builds the model on a thread of the worker. The model stays on it and need not be `Send`. If it
//!   panics, its jobs get [`ScheduleError::Unavailable`](scheduler::ScheduleError) and the loader is called again.
//!
//! A [`model::Generator`] must promise:
//!
//! 1. [`decode`](model::Generator::decode) returns one score per target and one draw per request, in the order of the batch. They
//!    depend only on the tokens before each row in its sequence.
//! 2. [`fork`](model::Generator::fork) shares cache cells: sequences that begin alike take the cells of their prefix once.
//! 3. [`release`](model::Generator::release) frees cells at once, unless another sequence shares them.
//! 4. [`capacity`](model::Generator::capacity) does not change while the model is loaded. The scheduler never exceeds it.
//! 5. After an error of `decode` only the sequences of that batch are undefined; the scheduler releases them.
//!
//! # Scoring two orders of two passages
//!
//! [`scripted`] has a generator whose scores are a function of the tokens.
//!
//! ```
//! use std::sync::Arc;
//!
//! use prefix_scheduler::call::Call;
//! use prefix_scheduler::model::Capacity;
//! use prefix_scheduler::plan::{Plan, Segment, Token};
//! use prefix_scheduler::scheduler::Status;
//! use prefix_scheduler::scheduler::generator::{Loader, Scheduler, SchedulerOptions};
//! use prefix_scheduler::scripted::ScriptedGenerator;
//!
//! let tokens = |text: &str| text.bytes().map(Token::from).collect::<Vec<Token>>();
//! let mut plan = Plan::new();
//! for order in [["aaa", "bbb"], ["bbb", "aaa"]] {
//!     plan.add(&[
//!         Segment::context(tokens("head")),
//!         Segment::context(tokens(order[0])),
//!         Segment::context(tokens(order[1])),
//!         Segment::scored(tokens("?q"), 1), // the score of `q`
//!     ]);
//! }
//! // The prefix of 4 tokens is evaluated once; the last token of each sequence is scored, not evaluated: 4 + 2 * (3 + 3 + 1).
//! assert_eq!(plan.cost().tokens, 18);
//! assert_eq!(plan.cost().naive_tokens, 24);
//!
//! let loader: Loader = Box::new(|serve| {
//!     // A token has the probability 1/2 after an even number of tokens, 1/4 after an odd one.
//!     let script = |history: &[Token], _: Token| if history.len() % 2 == 0 { 0.5_f64.ln() } else { 0.25_f64.ln() };
//!     let capacity = Capacity { cells: 100, sequences: 8, batch: 16 };
//!     serve(&mut ScriptedGenerator::new(capacity, Arc::new(script), Arc::default()));
//!     Ok(())
//! });
//! let scheduler = Scheduler::start(SchedulerOptions::default(), loader)?;
//! tokio::runtime::Runtime::new()?.block_on(async {
//!     scheduler.status().wait_for(|status| matches!(status, Status::Ready(_))).await?;
//!     let outcome = scheduler.run(Arc::new(plan), &Call::local(), None).await?;
//!     // 11 tokens come before `q`.
//!     let scored: Vec<f64> = outcome.scores.into_iter().flatten().collect();
//!     assert_eq!(scored, [0.25_f64.ln(); 2]);
//!     assert_eq!(outcome.tokens, 18);
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Deadlines
//!
//! ```
//! use std::time::Instant;
//!
//! use prefix_scheduler::call::{Call, Stopped};
//!
//! let call = Call::local_with(Some(Instant::now()));
//! assert_eq!(call.check(), Err(Stopped::DeadlineExceeded));
//! ```
//!
//! # Modules
//!
//! | module | question |
//! |---|---|
//! | [`plan`] | Which tokens are evaluated, and in which order? |
//! | [`call`] | For whom is work done, until when, and who may stop it? |
//! | [`model`] | What does the scheduler ask of a model? |
//! | [`warm`] | Which KV states of passages are cached for later requests? |
//! | [`scheduler`] | Whose work is done next? |
//! | [`scripted`] | How does a model with known numbers behave? For tests and examples. |
#![warn(missing_docs)]

pub mod call;
pub mod model;
pub mod plan;
pub mod scheduler;
pub mod scripted;
pub mod warm;
