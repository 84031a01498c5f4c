//! States of passages that the generator has read, kept for later requests.
//!
//! Every prompt that scores a passage begins with a prompt prefix and the passage: the same tokens for every query. The
//! generator's cells after them are a function of these tokens alone. They are saved when a request has evaluated them,
//! and a later request restores them instead of evaluating them again.
//!
//! `key` names a state by what it depends on, `policy` decides what is cached, and [`Store`] holds the bytes, in memory and
//! maybe on `disk`; [`Held`] are those that a request has for itself. A state holds the cells of one segment only; it is
//! restored behind the cells of the segments before it. Where a method scores the segment itself, its log-probabilities lie
//! behind the cells ([`scores`]).

mod disk;
mod held;
mod kept;
mod key;
pub mod policy;
pub mod scores;
mod sketch;
mod store;

pub use disk::DiskOptions;
pub use held::Held;
pub use kept::Kept;
pub use key::{Key, keys};
pub use store::{Figures, Options, State, Store};
