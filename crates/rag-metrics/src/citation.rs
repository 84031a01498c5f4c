//! Citation recall and citation precision of an answer (ALCE; Gao et al., 2023, section 3).
//!
//! An answer is a list of statements `s_i`, each with a set of citations `C_i` of numbered passages; `E(P, s)` is
//! true if the concatenation of the passages `P` entails the statement.
//!
//! | measure | definition |
//! |---|---|
//! | recall of a statement | 1 if `C_i` is not empty and `E(C_i, s_i)`, else 0 |
//! | irrelevant citation `c` of `C_i` | not `E({c}, s_i)`, and `E(C_i \ {c}, s_i)` |
//! | precision of a citation | 1 if its statement has recall 1 and it is not irrelevant, else 0 |
//! | citation recall, citation precision | their means over the statements, and over the citations |
//!
//! This module does not judge: [`Check::needed`] returns the pairs to judge, [`Check::absorb`] takes the verdicts.
//! If a statement cites a number without a passage, its recall is 0. Its citations count as imprecise; with
//! [`OutOfRange::LeftOut`] they do not count, as in the authors' program. Without citations precision is undefined;
//! that program takes 0.

mod statements;

use std::collections::HashMap;

pub use statements::{Statement, statements, without_marks};

use numeric::real;

/// Treatment of the citations of a statement that cites a number without a passage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutOfRange {
    /// They are imprecise, by the definition.
    #[default]
    Imprecise,
    /// They do not count, as in the authors' program.
    LeftOut,
}

/// A premise and a hypothesis to judge.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CitedPair {
    /// Indices of the passages whose concatenation is the premise, in the order of citation; from 0.
    pub passages: Vec<usize>,
    /// Index of the statement that is the hypothesis.
    pub statement: usize,
}

/// A judged citation of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckedCitation {
    /// The number in the answer; the first passage has 1.
    pub number: usize,
    /// True if a passage has this number.
    pub exists: bool,
    /// Its precision: true if it counts as a good citation.
    pub precise: bool,
    /// True if the passage by itself supports the statement; `None` if not judged.
    pub alone: Option<bool>,
}

/// A judged statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedStatement {
    /// Its recall: true if all cited passages together support it.
    pub supported: bool,
    /// Its citations, each number once, in the order of the answer.
    pub citations: Vec<CheckedCitation>,
}

/// The measures of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Citations {
    /// The statements, in the order of the answer.
    pub statements: Vec<CheckedStatement>,
    /// Citation recall, in [0, 1]; 0 without statements.
    pub recall: f64,
    /// Citation precision, in [0, 1]; `None` if no citation counts.
    pub precision: Option<f64>,
    /// Number of citations that count.
    pub counted: usize,
}

/// An answer whose citations are checked step by step.
#[derive(Debug, Clone)]
pub struct Check {
    /// Cited numbers of each statement.
    cited: Vec<Vec<usize>>,
    /// Number of passages.
    passages: usize,
    verdicts: HashMap<CitedPair, bool>,
}

impl Check {
    /// An answer with these statements and this many passages.
    #[must_use]
    pub fn new(statements: &[Statement], passages: usize) -> Self {
        let cited = statements.iter().map(|statement| statement.citations.clone()).collect();
        Self { cited, passages, verdicts: HashMap::new() }
    }

    /// The passages that a statement cites; `None` if it cites none, or a number without a passage.
    fn premise(&self, statement: usize) -> Option<Vec<usize>> {
        let cited = &self.cited[statement];
        let passages: Option<Vec<usize>> =
            cited.iter().map(|number| number.checked_sub(1).filter(|index| *index < self.passages)).collect();
        passages.filter(|passages| !passages.is_empty())
    }

    fn verdict(&self, statement: usize, passages: Vec<usize>) -> Option<bool> {
        self.verdicts.get(&CitedPair { passages, statement }).copied()
    }

    /// Pairs to judge next; empty at the end. If a statement has recall and several citations, each citation is
    /// judged separately. If a citation by itself does not support the statement, the others are judged without it.
    #[must_use]
    pub fn needed(&self) -> Vec<CitedPair> {
        let mut needed = Vec::new();
        for statement in 0..self.cited.len() {
            let Some(premise) = self.premise(statement) else { continue };
            let mut need = |passages: Vec<usize>| needed.push(CitedPair { passages, statement });
            match self.verdict(statement, premise.clone()) {
                None => need(premise),
                Some(true) if premise.len() > 1 => {
                    for &passage in &premise {
                        let others = without(&premise, passage);
                        match self.verdict(statement, vec![passage]) {
                            None => need(vec![passage]),
                            // With two citations the other one is judged separately anyway.
                            Some(false) if others.len() > 1 && self.verdict(statement, others.clone()).is_none() => {
                                need(others);
                            }
                            Some(_) => {}
                        }
                    }
                }
                Some(_) => {}
            }
        }
        needed
    }

    /// Takes the verdict on a pair: true if the passages support the statement.
    pub fn absorb(&mut self, pair: CitedPair, supports: bool) {
        self.verdicts.insert(pair, supports);
    }

    /// The measures. `None` while [`Check::needed`] returns pairs.
    #[must_use]
    pub fn finish(&self, out_of_range: OutOfRange) -> Option<Citations> {
        let statements: Vec<CheckedStatement> =
            (0..self.cited.len()).map(|statement| self.statement(statement)).collect::<Option<_>>()?;
        let left_out = |one: &CheckedStatement| {
            out_of_range == OutOfRange::LeftOut && one.citations.iter().any(|citation| !citation.exists)
        };
        let counted = || statements.iter().filter(|one| !left_out(one)).flat_map(|one| &one.citations);
        let citations = counted().count();
        let precise = counted().filter(|citation| citation.precise).count();
        let supported = statements.iter().filter(|one| one.supported).count();
        let recall = if statements.is_empty() { 0.0 } else { real(supported) / real(statements.len()) };
        let precision = (citations > 0).then(|| real(precise) / real(citations));
        Some(Citations { statements, recall, precision, counted: citations })
    }

    fn statement(&self, statement: usize) -> Option<CheckedStatement> {
        let numbers = self.cited[statement].iter();
        let exists = |number: usize| (1..=self.passages).contains(&number);
        let Some(premise) = self.premise(statement) else {
            let citation =
                |&number: &usize| CheckedCitation { number, exists: exists(number), precise: false, alone: None };
            return Some(CheckedStatement { supported: false, citations: numbers.map(citation).collect() });
        };
        let supported = self.verdict(statement, premise.clone())?;
        let citation = |(&number, &passage): (&usize, &usize)| {
            let alone = self.verdict(statement, vec![passage]);
            let relevant = match premise.len() {
                1 => true,
                _ if !supported => false,
                _ => alone? || !self.verdict(statement, without(&premise, passage))?,
            };
            Some(CheckedCitation { number, exists: true, precise: supported && relevant, alone })
        };
        let citations = numbers.zip(&premise).map(citation).collect::<Option<_>>()?;
        Some(CheckedStatement { supported, citations })
    }
}

fn without(passages: &[usize], passage: usize) -> Vec<usize> {
    passages.iter().copied().filter(|other| *other != passage).collect()
}

#[cfg(test)]
mod tests;
