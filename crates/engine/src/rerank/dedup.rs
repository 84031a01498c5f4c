//! Near-duplicates in a ranking: the best ranked one of them stands for the others.

use super::copies::Copies;
use crate::duplicates::repeated;
use crate::types::{Dedup, DedupMode, EngineError, Ranked, RerankRequest};
use prefix_scheduler::call::Call;

/// The passages of ranked documents, whose near-duplicates share a place or come last. A near-duplicate of a document
/// is a duplicate with all of its copies. The work ends when the call stops.
pub(super) fn deduplicated(
    call: &Call,
    documents: Vec<Ranked>,
    request: &RerankRequest,
    copies: &Copies,
    dedup: Dedup,
) -> Result<Vec<Ranked>, EngineError> {
    let texts: Vec<String> = documents.iter().map(|document| request.passages[document.index].whole_text()).collect();
    let repeats = repeated(&texts, dedup.similarity, || call.check())?;
    let (mut first, mut place_of) = (Vec::new(), vec![0; documents.len()]);
    let mut others = Vec::new();
    for (rank, (document, repeats)) in documents.into_iter().zip(repeats).enumerate() {
        let passages = copies.passages(document.index).iter();
        let mut passages = passages.map(|&index| (rank, Ranked { index, ..document.clone() }));
        if repeats.is_none() {
            place_of[rank] = first.len();
            first.extend(passages.next());
        }
        let (_, representative): &mut (usize, Ranked) = &mut first[place_of[repeats.unwrap_or(rank)]];
        for (rank, other) in passages {
            representative.duplicates.push(other.index);
            others.push((rank, other));
        }
    }
    if dedup.mode == DedupMode::PushDown {
        first.extend(others);
    }
    let ranks: Vec<usize> = first.iter().map(|(rank, _)| *rank).collect();
    for ((_, passage), ranks) in first.iter_mut().zip(ranks.windows(2)) {
        // Only known for neighbours of the ranking.
        passage.outranks_next = passage.outranks_next.filter(|_| ranks[1] == ranks[0] + 1);
    }
    Ok(first.into_iter().map(|(_, passage)| passage).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Passage, RankingStage};

    /// (index, duplicates, outranks_next) of each result.
    type Found = Vec<(usize, Vec<usize>, Option<f64>)>;

    fn found(texts: &[&str], ranking: &[usize], mode: DedupMode) -> Found {
        let passages = texts.iter().enumerate().map(|(index, text)| Passage::untitled(index, (*text).to_owned()));
        let asked = RerankRequest { query: "q".into(), passages: passages.collect(), ..RerankRequest::default() };
        let copies = Copies::of(&asked);
        let document = |&index: &usize| Ranked {
            index,
            score: 0.5,
            utility: 0.0,
            alone: 0.0,
            standard_error: None,
            outranks_next: Some(0.9),
            tokens_cut: 0,
            stage: RankingStage::Alone,
            score_parts: None,
            duplicates: Vec::new(),
        };
        let documents = ranking.iter().map(document).collect();
        let (call, dedup) = (Call::local(), Dedup { mode, ..Dedup::default() });
        let placed = deduplicated(&call, documents, &copies.without(&asked), &copies, dedup).unwrap();
        placed.into_iter().map(|one| (one.index, one.duplicates, one.outranks_next)).collect()
    }

    #[test]
    fn the_best_ranked_duplicate_stands_for_the_others_and_their_copies() {
        let texts = ["George Eliot wrote it.", "Rye grows.", "george eliot WROTE it", "Rye grows.", "Wheat."];
        // Documents: 0 = passage 0, 1 = passages 1 and 3, 2 = passage 2, 3 = passage 4.
        let shared = found(&texts, &[2, 1, 0, 3], DedupMode::OnePlace);
        assert_eq!(shared, [(2, vec![0], Some(0.9)), (1, vec![3], None), (4, vec![], Some(0.9))]);
        let pushed = found(&texts, &[2, 1, 0, 3], DedupMode::PushDown);
        let order: Vec<usize> = pushed.iter().map(|(index, ..)| *index).collect();
        assert_eq!(order, [2, 1, 4, 3, 0]);
        assert_eq!(pushed[..2], shared[..2], "a pushed duplicate has none itself");
        assert!(pushed[3..].iter().all(|(_, duplicates, _)| duplicates.is_empty()));
    }
}
