//! Documents with equal text: the ranking evaluates each once, and copies share the result.
//!
//! A copy is a passage with the same title and text as another one of its request. In prompts with several passages
//! two copies would have different positions, and so different utilities. The methods therefore rank documents, and
//! copies get the utility and score of their document. A document's retriever score is the highest of its copies.

use std::collections::HashMap;

use crate::methods::Scored;
use crate::types::{EngineError, Passage, Ranked, RerankRequest};

/// The documents of a request.
#[derive(Debug, Clone, Default)]
pub struct Copies {
    /// The passages of each document, ascending; documents in the order of their first passage.
    documents: Vec<Vec<usize>>,
    /// Passages of the request.
    passages: usize,
}

impl Copies {
    /// Each passage is a separate document for a method that tells copies apart.
    pub fn of(request: &RerankRequest) -> Self {
        let passages = request.passages.len();
        if request.method().tells_copies_apart(request) {
            return Self { documents: (0..passages).map(|index| vec![index]).collect(), passages };
        }
        let (mut documents, mut known) = (Vec::<Vec<usize>>::new(), HashMap::new());
        for (index, passage) in request.passages.iter().enumerate() {
            let document = *known.entry((&passage.title, &passage.text)).or_insert(documents.len());
            if document == documents.len() {
                documents.push(Vec::new());
            }
            documents[document].push(index);
        }
        Self { documents, passages }
    }

    /// True if any passage is a copy.
    pub const fn any(&self) -> bool {
        self.documents.len() < self.passages
    }

    /// The request with each document once.
    pub fn without(&self, request: &RerankRequest) -> RerankRequest {
        let document = |copies: &Vec<usize>| {
            let scores = copies.iter().filter_map(|&copy| request.passages[copy].retriever_score);
            let retriever_score = scores.reduce(f64::max);
            Passage { retriever_score, ..request.passages[copies[0]].clone() }
        };
        let passages = self.documents.iter().map(document).collect();
        RerankRequest { passages, ..request.clone() }
    }

    /// The largest value of the copies of each document.
    pub fn largest(&self, of_passages: &[f64]) -> Vec<f64> {
        let largest = |copies: &Vec<usize>| copies.iter().map(|&copy| of_passages[copy]).fold(f64::MIN, f64::max);
        self.documents.iter().map(largest).collect()
    }

    /// The value of each passage, from the value of its document.
    pub fn spread<T: Copy + Default>(&self, of_documents: &[T]) -> Vec<T> {
        let mut of_passages = vec![T::default(); self.passages];
        for (copies, &value) in self.documents.iter().zip(of_documents) {
            for &copy in copies {
                of_passages[copy] = value;
            }
        }
        of_passages
    }

    /// The passages in an order of documents.
    pub fn order(&self, documents: &[usize]) -> Vec<usize> {
        documents.iter().flat_map(|&document| self.documents[document].iter().copied()).collect()
    }

    /// The passages of ranked documents; each `index` is the document's. Copies are adjacent. Documents of equal
    /// value that the method left in the order of the request are merged in that order with their copies. Nothing
    /// distinguishes them, so `outranks_next` is 0.5, if the method reports it.
    pub fn ranked(&self, documents: Vec<Ranked>, scored: &Scored) -> Vec<Ranked> {
        if !self.any() {
            return documents;
        }
        let values = scored.values.as_ref().unwrap_or(&scored.utilities);
        let tied = |one: &Ranked, next: &Ranked| {
            let equal = values[one.index].total_cmp(&values[next.index]).is_eq();
            equal && one.stage == next.stage && one.index < next.index
        };
        let mut passages = Vec::with_capacity(self.passages);
        for alike in documents.chunk_by(tied) {
            let mut run = Vec::with_capacity(alike.len());
            for one in alike {
                run.extend(self.documents[one.index].iter().map(|&index| Ranked { index, ..one.clone() }));
            }
            run.sort_by_key(|passage| passage.index);
            let last = alike.last().and_then(|one| one.outranks_next);
            let even = scored.outranks_next.as_ref().map(|_| 0.5);
            if run.len() > alike.len() {
                for passage in &mut run {
                    passage.outranks_next = even;
                }
                if let Some(passage) = run.last_mut() {
                    passage.outranks_next = last;
                }
            }
            passages.extend(run);
        }
        passages
    }

    /// The passages of a document, ascending.
    pub fn passages(&self, document: usize) -> &[usize] {
        &self.documents[document]
    }

    /// The error of a ranking of documents, with its field in terms of the passages.
    pub fn named(&self, error: EngineError) -> EngineError {
        error.at_passage(|document| self.documents.get(document).map(|copies| copies[0]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods;

    fn request(texts: &[&str]) -> RerankRequest {
        let passages = texts.iter().enumerate().map(|(index, text)| Passage::untitled(index, (*text).to_owned()));
        RerankRequest { query: "q".into(), passages: passages.collect(), ..RerankRequest::default() }
    }

    fn ranked(documents: &[usize], scored: &Scored) -> Vec<Ranked> {
        let one = |(rank, &index): (usize, &usize)| Ranked {
            index,
            score: 0.5,
            utility: scored.utilities[index],
            alone: 0.0,
            standard_error: None,
            outranks_next: scored.outranks_next.as_ref().and_then(|next| next.get(rank).copied()),
            tokens_cut: 0,
            stage: crate::types::RankingStage::Alone,
            score_parts: None,
            duplicates: Vec::new(),
        };
        documents.iter().enumerate().map(one).collect()
    }

    #[test]
    fn a_document_is_read_once_with_its_best_retriever_score() {
        let mut asked = request(&["a", "b", "a", "c", "b", "a"]);
        asked.passages[5].title = "t".into();
        asked.passages[1].retriever_score = Some(1.0);
        asked.passages[4].retriever_score = Some(2.0);
        let copies = Copies::of(&asked);
        let read = copies.without(&asked);
        let texts: Vec<(&str, &str, Option<f64>)> = read
            .passages
            .iter()
            .map(|passage| (passage.id.as_str(), passage.text.as_str(), passage.retriever_score))
            .collect();
        assert_eq!(texts, [("0", "a", None), ("1", "b", Some(2.0)), ("3", "c", None), ("5", "a", None)]);
        assert!(copies.any() && read.query == "q");
        assert_eq!(copies.order(&[2, 0, 3, 1]), [3, 0, 2, 5, 1, 4]);
        assert_eq!(copies.spread(&[1, 2, 3, 4]), [1, 2, 1, 3, 2, 4]);
        assert_eq!(copies.largest(&[0.0, 0.0, 1.0, 0.5, 0.0, 0.0]), [1.0, 0.0, 0.5, 0.0]);
        let retriever = RerankRequest { method: methods::find("retriever"), ..asked };
        assert!(!Copies::of(&retriever).any());
    }

    #[test]
    fn copies_stand_behind_each_other_and_ties_in_the_order_of_the_request() {
        let copies = Copies::of(&request(&["a", "b", "a", "c", "b"]));
        let order = |scored: &Scored| {
            let ranked = copies.ranked(ranked(&scored.ranking, scored), scored);
            ranked.iter().map(|one| (one.index, one.outranks_next)).collect::<Vec<_>>()
        };
        let by = |utilities: &[f64]| Scored::by_utility(utilities.to_vec(), 1.0);
        let indices = |scored: &Scored| order(scored).into_iter().map(|(index, _)| index).collect::<Vec<_>>();
        assert_eq!(indices(&by(&[1.0, 3.0, 2.0])), [1, 4, 3, 0, 2]);
        assert_eq!(indices(&by(&[0.0, 0.0, 0.0])), [0, 1, 2, 3, 4]);
        assert_eq!(indices(&by(&[1.0, 2.0, 1.0])), [1, 4, 0, 2, 3]);
        // The method has another order of equal values.
        assert_eq!(indices(&Scored { ranking: vec![2, 1, 0], ..by(&[0.0, 0.0, 0.0]) }), [3, 1, 4, 0, 2]);
        let sure = Scored { outranks_next: Some(vec![0.9, 0.8]), ..by(&[1.0, 3.0, 2.0]) };
        assert_eq!(order(&sure), [(1, Some(0.5)), (4, Some(0.9)), (3, Some(0.8)), (0, Some(0.5)), (2, None)]);
    }

    #[test]
    fn an_error_names_the_first_copy() {
        let copies = Copies::of(&request(&["a", "a", "b"]));
        let error = |field: &str| copies.named(EngineError::invalid(field, "is wrong")).to_string();
        assert_eq!(error("passages[1].text"), "passages[2].text: is wrong");
        assert_eq!(error("passages"), "passages: is wrong");
    }
}
