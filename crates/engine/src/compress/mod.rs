//! Compression of texts: which parts are kept, given what a model says of their tokens. Nothing here asks a model.
//!
//! **Selective-Context** (Li et al., 2023; SePer, Eq. 14): the self-information of a token is I(x_t) = -log P(x_t | x_<t). A unit
//! (sentence, phrase or token) is worth the mean over its tokens, and units below a percentile are dropped ([`selective`]).
//!
//! **LongLLMLingua** (Jiang et al., 2024; SePer, Appendix D.1): whole texts are dropped in the order of a ranking, the rest
//! gets a budget by rank, and within a text those units are kept whose tokens the question makes likelier,
//! s_i = log P(x_i | question, x_<i) - log P(x_i | x_<i) (Eq. 3; [`lingua`]).
//!
//! Texts are cut at borders of tokens that are also borders of characters, words, numbers and short names ([`units`]). What a reader
//! of the short text quotes can be put back into the words of the long one ([`recover`]).

pub mod lingua;
pub mod recover;
pub mod selective;
pub mod units;

use std::ops::Range;

use numeric::mean;

/// A unit of a text: how long it is, and what it is worth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Valued {
    /// Number of its tokens; at least 1.
    pub tokens: usize,
    /// Mean over its tokens.
    pub value: f64,
}

/// The units of a text with the mean of their tokens' values. `values` has one for each token.
#[must_use]
pub fn valued(units: &[Range<usize>], values: &[f64]) -> Vec<Valued> {
    let of = |unit: &Range<usize>| Valued {
        tokens: unit.len(),
        value: values.get(unit.clone()).map_or(f64::NEG_INFINITY, mean),
    };
    units.iter().map(of).collect()
}

/// Number of tokens of the units that are kept.
#[cfg(test)]
fn tokens(units: &[Valued], kept: &[bool]) -> usize {
    units.iter().zip(kept).filter(|(_, kept)| **kept).map(|(unit, _)| unit.tokens).sum()
}
