//! Clusters of equal meaning.
//!
//! Greedy, in the order of the responses: a response joins the first cluster whose founder it is equivalent to, or
//! founds a new one. It never changes its cluster; in the authors' published code a later founder takes members
//! over. Responses with equal text share a cluster and cost one pair, whatever a model's verdict on a text and
//! itself is.
//!
//! The clusterer never calls a model. [`Clusterer::needed`] returns the pairs whose verdicts it needs next, and
//! [`Clusterer::absorb`] accepts the verdicts.

use std::collections::HashMap;

use super::{Rule, Verdict};

/// An ordered pair of distinct texts by number: premise, hypothesis.
pub type Pair = (usize, usize);

/// Clusters responses as verdicts arrive.
#[derive(Debug, Clone)]
pub struct Clusterer {
    rule: Rule,
    /// Number of the text of each response; texts are numbered by first appearance.
    text_of: Vec<usize>,
    texts: usize,
    /// Number of the text without a word, if there is one. It means the same as no other text, and needs no
    /// verdict.
    wordless: Option<usize>,
    verdicts: HashMap<Pair, Verdict>,
    /// Number of the text that founded each cluster.
    founders: Vec<usize>,
    /// Cluster of each text decided so far.
    cluster_of: Vec<usize>,
}

impl Clusterer {
    /// Starts without verdicts.
    #[must_use]
    pub fn new(responses: &[String], rule: Rule) -> Self {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let text_of: Vec<usize> = responses
            .iter()
            .map(|text| {
                let next = numbers.len();
                let text = if text.trim().is_empty() { "" } else { text };
                *numbers.entry(text).or_insert(next)
            })
            .collect();
        let mut clusterer = Self {
            rule,
            texts: numbers.len(),
            wordless: numbers.get("").copied(),
            text_of,
            verdicts: HashMap::new(),
            founders: Vec::new(),
            cluster_of: Vec::new(),
        };
        clusterer.settle();
        clusterer
    }

    /// Index of the first response with each text.
    #[must_use]
    pub fn representatives(&self) -> Vec<usize> {
        (0..self.texts).filter_map(|text| self.text_of.iter().position(|t| *t == text)).collect()
    }

    /// Number of the text of each response; equal texts have one number.
    #[must_use]
    pub fn text_of(&self) -> &[usize] {
        &self.text_of
    }

    /// The pairs, in both directions, whose verdicts decide the next text. Empty once every text is decided.
    #[must_use]
    pub fn needed(&self) -> Vec<Pair> {
        let next = self.cluster_of.len();
        if next == self.texts || self.wordless == Some(next) {
            return Vec::new();
        }
        let founders = self.founders.iter().filter(|founder| self.wordless != Some(**founder));
        let both = founders.flat_map(|&founder| [(next, founder), (founder, next)]);
        both.filter(|pair| !self.verdicts.contains_key(pair)).collect()
    }

    /// Adds a verdict and decides as far as possible.
    pub fn absorb(&mut self, pair: Pair, verdict: Verdict) {
        self.verdicts.insert(pair, verdict);
        self.settle();
    }

    fn settle(&mut self) {
        while self.cluster_of.len() < self.texts && self.needed().is_empty() {
            let text = self.cluster_of.len();
            let same = |founder: &usize| {
                let forward = self.verdicts.get(&(text, *founder));
                let backward = self.verdicts.get(&(*founder, text));
                forward.zip(backward).is_some_and(|(forward, backward)| self.rule.equivalent(forward, backward))
            };
            let joined = self.founders.iter().position(same);
            self.cluster_of.push(joined.unwrap_or(self.founders.len()));
            if joined.is_none() {
                self.founders.push(text);
            }
        }
    }

    /// The clusters in the order of their founders. `None` while a verdict is missing.
    #[must_use]
    pub fn finish(&self) -> Option<Clusters> {
        (self.cluster_of.len() == self.texts).then(|| Clusters {
            of: self.text_of.iter().map(|&text| self.cluster_of[text]).collect(),
            founders: self
                .founders
                .iter()
                .filter_map(|founder| self.text_of.iter().position(|text| text == founder))
                .collect(),
        })
    }
}

/// A partition of the responses by meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clusters {
    /// Cluster of each response.
    pub of: Vec<usize>,
    /// Response that founded each cluster.
    pub founders: Vec<usize>,
}

impl Clusters {
    /// Number of responses in each cluster.
    #[must_use]
    pub fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.founders.len()];
        for &cluster in &self.of {
            sizes[cluster] += 1;
        }
        sizes
    }

    /// Sum of the weights in each cluster.
    #[must_use]
    pub fn masses(&self, weights: &[f64]) -> Vec<f64> {
        let mut masses = vec![0.0; self.founders.len()];
        for (&cluster, weight) in self.of.iter().zip(weights) {
            masses[cluster] += weight;
        }
        masses
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::verdict;
    use super::*;

    fn yes() -> Verdict {
        verdict(0.9, 0.05, 0.05)
    }

    fn no() -> Verdict {
        verdict(0.05, 0.9, 0.05)
    }

    /// Clusters under an equivalence, and the number of pairs that were needed.
    fn cluster(texts: &[&str], same: impl Fn(&str, &str) -> bool) -> (Clusters, usize) {
        let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
        let mut clusterer = Clusterer::new(&texts, Rule::Strict);
        let mut pairs = 0;
        while let Some(pair) = clusterer.needed().first().copied() {
            let representative = clusterer.representatives();
            let text = |number: usize| texts[representative[number]].as_str();
            assert_ne!(pair.0, pair.1, "a text is never judged against itself");
            pairs += 1;
            clusterer.absorb(pair, if same(text(pair.0), text(pair.1)) { yes() } else { no() });
        }
        (clusterer.finish().unwrap(), pairs)
    }

    #[test]
    fn equal_texts_are_one_and_cost_nothing() {
        assert_eq!(cluster(&["a", "a", "a"], |_, _| unreachable!()).0.of, vec![0, 0, 0]);
        let (clusters, pairs) = cluster(&["a", "b", "a", "b", "b"], |_, _| false);
        assert_eq!((clusters.of, clusters.founders, pairs), (vec![0, 1, 0, 1, 1], vec![0, 1], 2));
    }

    /// b is like a, and c is like b but not like a. c founds a new cluster, and b stays where it is.
    #[test]
    fn a_member_is_never_taken_over() {
        let alike = |x: &str, y: &str| (x == "b") != (y == "b");
        assert_eq!(cluster(&["a", "b", "c"], alike).0.of, vec![0, 0, 1]);
    }

    #[test]
    fn the_first_of_several_clusters_is_joined() {
        let alike = |x: &str, y: &str| x == "c" || y == "c";
        let (clusters, _) = cluster(&["a", "b", "c"], alike);
        assert_eq!(clusters.of, vec![0, 1, 0]);
        assert_eq!(clusters.masses(&[0.5, 0.3, 0.2]), vec![0.7, 0.3]);
    }

    #[test]
    fn nothing_to_cluster() {
        let (clusters, pairs) = cluster(&[], |_, _| true);
        assert_eq!((clusters.of.len(), clusters.founders.len(), pairs), (0, 0, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// If the verdicts are a true equivalence, the partition is that equivalence, in any order.
        #[test]
        fn a_true_equivalence_is_found(classes in proptest::collection::vec((0_usize..4, 0_usize..3), 1..14)) {
            let texts: Vec<String> = classes.iter().map(|(class, form)| format!("{class}{form}")).collect();
            let borrowed: Vec<&str> = texts.iter().map(String::as_str).collect();
            let (clusters, pairs) = cluster(&borrowed, |x, y| x[..1] == y[..1]);
            for i in 0..texts.len() {
                for j in 0..texts.len() {
                    prop_assert_eq!(clusters.of[i] == clusters.of[j], classes[i].0 == classes[j].0);
                }
            }
            let distinct = texts.iter().collect::<std::collections::HashSet<_>>().len();
            prop_assert!(pairs <= 2 * distinct * clusters.founders.len());
        }
    }
}
