//! Near-duplicates among texts: pairs whose sets of adjacent word pairs have a high Jaccard similarity (Broder, 1997).
//!
//! Comparing all texts takes quadratic time. Two similar texts share one of their rarest word pairs, so only those are
//! indexed (prefix filtering; Bayardo et al., 2007). Word pairs of boilerplate are frequent and are looked up rarely.
//! The result is exact, and equal for equal input, unlike the result of random hash functions (MinHash).

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::fusion::bm25::words;
use numeric::real;

/// Rounding of a bound must not lose a pair that reaches it exactly.
const ROUNDING: f64 = 1e-9;

/// A word pair as (number of texts that have it, hash). Texts list their pairs in this order, the rarest first.
type WordPair = (usize, u64);

/// For each text, the first earlier text that it repeats and that repeats none itself; `None` if there is none. Texts
/// count as copies if they have the same word pairs, without case and punctuation. `check` runs before each text and
/// each comparison, and may end the work.
pub fn repeated<E>(
    texts: &[String],
    similarity: f64,
    check: impl Fn() -> Result<(), E>,
) -> Result<Vec<Option<usize>>, E> {
    let mut hashes = Vec::with_capacity(texts.len());
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for text in texts {
        check()?;
        let own = word_pairs(text);
        for &pair in &own {
            *counts.entry(pair).or_default() += 1;
        }
        hashes.push(own);
    }
    let mut index: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut pairs: Vec<Vec<WordPair>> = Vec::with_capacity(texts.len());
    let mut found = Vec::with_capacity(texts.len());
    for (place, own) in hashes.into_iter().enumerate() {
        check()?;
        let mut own: Vec<WordPair> = own.into_iter().map(|pair| (counts[&pair], pair)).collect();
        own.sort_unstable();
        // A text whose first common pair stands later has too few pairs left to be similar.
        let least = similarity * real(own.len()) - ROUNDING;
        let rarest = own.iter().enumerate().take_while(|(at, _)| real(own.len() - at) >= least);
        let rarest: Vec<u64> =
            rarest.map(|(_, pair)| *pair).filter(|(count, _)| *count > 1).map(|(_, hash)| hash).collect();
        let candidates: BTreeSet<usize> = rarest.iter().filter_map(|hash| index.get(hash)).flatten().copied().collect();
        let mut first = None;
        for other in candidates {
            check()?;
            if jaccard(&pairs[other], &own) >= similarity - ROUNDING {
                first = Some(other);
                break;
            }
        }
        if first.is_none() {
            for hash in rarest {
                index.entry(hash).or_default().push(place);
            }
        }
        found.push(first);
        pairs.push(own);
    }
    Ok(found)
}

/// Hashes of the distinct pairs of adjacent words. A text of one word has the word, and a text without words itself.
fn word_pairs(text: &str) -> Vec<u64> {
    let words: Vec<String> = words(text).collect();
    let mut pairs: Vec<u64> = match words.as_slice() {
        [] => vec![hash(text.trim())],
        [word] => vec![hash(word)],
        words => words.windows(2).map(hash).collect(),
    };
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

fn hash(value: impl Hash) -> u64 {
    // `DefaultHasher::new` has fixed keys.
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Jaccard similarity of two sets in ascending order.
fn jaccard(one: &[WordPair], other: &[WordPair]) -> f64 {
    let (mut at, mut common) = (0, 0);
    for pair in one {
        at += other[at..].iter().take_while(|other| *other < pair).count();
        common += usize::from(other.get(at) == Some(pair));
    }
    real(common) / real(one.len() + other.len() - common)
}

#[cfg(test)]
mod tests;
