//! Compression of texts: which parts to keep, from token values. Does not call a model.
//!
//! **Selective-Context** (Li et al., 2023; SePer, Eq. 14): the self-information of a token is I(x_t) = -log P(x_t |
//! x_<t). The value of a unit (sentence, phrase or token) is the mean over its tokens. Units below a percentile are
//! dropped ([`selective`]).
//!
//! **LongLLMLingua** (Jiang et al., 2024; SePer, Appendix D.1): whole texts are dropped in the order of a ranking,
//! and the others get a budget by rank. Each text keeps the units whose tokens become likelier after the question:
//! s_i = log P(x_i | question, x_<i) - log P(x_i | x_<i) (Eq. 3; [`lingua`]).
//!
//! Texts are cut at token borders that are also borders of characters, words, numbers and short names ([`units`]).
//! Quotations from the compressed text can be restored to the original words ([`recover`]).

pub mod lingua;
pub mod recover;
pub mod selective;
pub mod units;

use std::ops::Range;

use numeric::mean;

/// The length and value of a unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Valued {
    /// Number of its tokens; at least 1.
    pub tokens: usize,
    /// Mean over its tokens.
    pub value: f64,
}

/// The units of a text with the mean of their tokens' values. `values` has one entry per token.
#[must_use]
pub fn valued(units: &[Range<usize>], values: &[f64]) -> Vec<Valued> {
    let of = |unit: &Range<usize>| Valued {
        tokens: unit.len(),
        value: values.get(unit.clone()).map_or(f64::NEG_INFINITY, mean),
    };
    units.iter().map(of).collect()
}

/// Number of tokens of the kept units.
#[cfg(test)]
fn tokens(units: &[Valued], kept: &[bool]) -> usize {
    units.iter().zip(kept).filter(|(_, kept)| **kept).map(|(unit, _)| unit.tokens).sum()
}
