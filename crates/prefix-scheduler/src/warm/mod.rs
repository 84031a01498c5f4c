//! Cache of states of passages: the cells of the KV cache that the generator computed for them.
//!
//! Every prompt that scores a passage begins with a prompt prefix and the passage: the same tokens for every query.
//! The generator's cells for them depend only on these tokens. They are saved after a request has evaluated them,
//! and a later request restores them instead of evaluating them again.
//!
//! `key` is a hash of everything that a state depends on, `policy` decides which states are cached, and [`Store`]
//! holds the bytes, in memory and optionally on `disk`. [`Held`] are the states of one request. A state contains
//! the cells of one segment, and is restored after the cells of the segments before it. If a method scores the
//! segment itself, its log-probabilities follow the cells ([`scores`]).

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
