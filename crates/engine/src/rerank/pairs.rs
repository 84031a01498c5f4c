//! Scores of pairs of a query and a text, for protocols in which texts may have different queries. Pairs with the
//! same query are one list for the method.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::Reranker;
use super::driver::shortened;
use super::quota::Quota;
use super::{Blanks, check_request};
use crate::estimate::{Size, admit_together};
use crate::types::{
    EngineError, MethodRef, Pair, PairScore, PairScores, Passage, RankingStage, RerankRequest, Usage, milliseconds,
    passage_of,
};
use prefix_scheduler::call::{Call, Place};

/// Lists that the generator works on in parallel: short ones fill its steps together.
const AT_ONCE: usize = 16;

/// Pairs of one query and one way of truncation, by index.
struct List {
    pairs: Vec<usize>,
    request: RerankRequest,
}

impl Reranker {
    /// Scores pairs by `method`, or by the default one, with the `scorer` of a request. All are admitted together
    /// or none, and their tokens count together against the limit of a request. The generator works on several
    /// lists in parallel, so that short ones fill its steps.
    ///
    /// # Errors
    /// As [`Reranker::rerank`], for the first list that fails. Fields are named `pairs`, `pairs[i].query` and
    /// `pairs[i].text`. An invalid pair is refused before any work.
    pub async fn score_pairs(
        &self,
        call: &Call,
        pairs: Vec<Pair>,
        method: Option<MethodRef>,
        scorer: &str,
    ) -> Result<PairScores, EngineError> {
        let (started, limits) = (Instant::now(), self.limits);
        if pairs.is_empty() {
            return Err(EngineError::invalid("pairs", "must not be empty"));
        }
        if pairs.len() > limits.passages {
            let problem = format!("{} given, at most {} allowed", pairs.len(), limits.passages);
            return Err(EngineError::invalid("pairs", problem));
        }
        let mut outcome = PairScores {
            scores: vec![PairScore::default(); pairs.len()],
            usage: Usage::default(),
            warnings: Vec::new(),
        };
        let mut lists = lists(pairs, method, scorer);
        for list in &lists {
            check_request(&list.request, &limits).map_err(|error| list.named(error))?;
        }
        let blanks = Blanks::at(lists.iter_mut().flat_map(List::take_blank).collect());
        lists.retain(|list| !list.pairs.is_empty());
        outcome.warnings.extend(blanks.warning("pairs", "the score is 0"));
        let asking = lists.first().map(|list| &list.request).filter(|request| request.method().asks_generator());
        let asks = asking.is_some();
        if let Some(request) = asking {
            let scoring = self.scoring_model(request)?;
            call.move_to(Place::Generator).map_err(|_| self.models.queue_full())?;
            let sizes = lists.iter().map(|list| Size::of_rerank(&list.request, limits.tokens));
            admit_together(call, scoring, &limits, sizes)?;
        }
        // Other models work on one list at a time.
        let at_once = if asks { AT_ONCE } else { 1 };
        let (quota, mut waiting, mut running) = (Quota::of(lists.len()), lists.into_iter(), VecDeque::new());
        loop {
            for list in waiting.by_ref().take(at_once - running.len()) {
                let (reranker, call, quota) = (self.clone(), call.clone(), quota.clone());
                let request = list.request.clone();
                let work = async move { reranker.rerank_within(&call, request, None, quota).await };
                // A dropped request also ends these tasks.
                running.push_back((list, AbortOnDropHandle::new(tokio::spawn(work.in_current_span()))));
            }
            let Some((list, work)) = running.pop_front() else { break };
            let ranked = work.await.map_err(|error| EngineError::Internal(format!("a list of pairs: {error}")))?;
            let ranked = ranked.map_err(|error| list.named(error))?;
            for passage in &ranked.passages {
                let (score, utility, tokens_cut) = (passage.score, passage.utility, passage.tokens_cut);
                outcome.scores[list.pairs[passage.index]] = PairScore { score, utility, tokens_cut };
            }
            outcome.usage.extend(&ranked.usage, at_once > 1);
            let unread = ranked.passages.iter().filter(|passage| passage.stage == RankingStage::Retriever).count();
            // If none was evaluated, the ranking itself says so.
            let in_part = asks && unread > 0 && unread < ranked.passages.len();
            if in_part && !outcome.warnings.iter().any(|warning| warning == UNREAD) {
                outcome.warnings.push(UNREAD.to_owned());
            }
            // One warning counts the cut texts of all lists.
            let cut: Vec<usize> = ranked.passages.iter().map(|passage| passage.tokens_cut).collect();
            let cut = shortened(&cut);
            let new = ranked
                .warnings
                .into_iter()
                .filter(|warning| cut.as_ref() != Some(warning) && !outcome.warnings.contains(warning));
            let new: Vec<String> = new.collect();
            outcome.warnings.extend(new);
        }
        let cut: Vec<usize> = outcome.scores.iter().map(|pair| pair.tokens_cut).collect();
        outcome.warnings.extend(shortened(&cut));
        let lowest = outcome.scores.iter().map(|pair| pair.utility).fold(0.0, f64::min);
        for &place in blanks.places() {
            outcome.scores[place].utility = lowest;
        }
        outcome.usage.total_ms = milliseconds(started);
        Ok(outcome)
    }
}

/// The warning that some pairs were not evaluated. Unlike a ranked passage, the score of a pair has no stage.
const UNREAD: &str = "not every text was read: this method reads the first of a long list, or as many as a budget allows, and the \
                      others have the lowest score that was measured";

/// Groups pairs into lists, in the order of their first pair.
fn lists(pairs: Vec<Pair>, method: Option<MethodRef>, scorer: &str) -> Vec<List> {
    let mut lists: Vec<List> = Vec::new();
    let mut places = HashMap::new();
    for (index, Pair { query, text, truncate, passage_tokens, cut_side }) in pairs.into_iter().enumerate() {
        let place = *places.entry((query.clone(), truncate, passage_tokens, cut_side)).or_insert(lists.len());
        if place == lists.len() {
            let scorer = scorer.to_owned();
            let request = RerankRequest {
                query,
                method,
                scorer,
                truncate,
                passage_tokens,
                cut_side,
                read_all: true,
                ..RerankRequest::default()
            };
            lists.push(List { pairs: Vec::new(), request });
        }
        let list = &mut lists[place];
        list.request.passages.push(Passage::untitled(list.pairs.len(), text));
        list.pairs.push(index);
    }
    lists
}

impl List {
    /// Removes the pairs with blank text and returns them.
    fn take_blank(&mut self) -> Vec<usize> {
        let blanks = Blanks::take(&mut self.request.passages, Passage::is_blank);
        let blank: Vec<usize> = blanks.places().iter().map(|&place| self.pairs[place]).collect();
        self.pairs.retain(|pair| !blank.contains(pair));
        blank
    }

    /// The error with its field in terms of the pairs.
    fn named(&self, mut error: EngineError) -> EngineError {
        if let EngineError::Invalid { field, .. } | EngineError::TooLong { field, .. } = &mut error {
            let first = self.pairs.first().copied().unwrap_or(0);
            let of_passage = passage_of(field).and_then(|(place, rest)| Some((self.pairs.get(place)?, rest)));
            *field = match (of_passage, field.as_str()) {
                (Some((pair, rest)), _) => format!("pairs[{pair}]{rest}"),
                (None, "query") => format!("pairs[{first}].query"),
                (None, "passages") => "pairs".to_owned(),
                (None, other) => other.to_owned(),
            };
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(query: &str, text: &str) -> Pair {
        Pair { query: query.into(), text: text.into(), ..Pair::default() }
    }

    #[test]
    fn pairs_of_one_query_are_one_list() {
        let other = Pair { truncate: Some(false), ..pair("a", "4") };
        let lists = lists(vec![pair("a", "1"), pair("b", "2"), pair("a", "3"), other], None, "");
        let groups: Vec<(&str, &[usize])> =
            lists.iter().map(|list| (list.request.query.as_str(), list.pairs.as_slice())).collect();
        assert_eq!(groups, [("a", &[0, 2][..]), ("b", &[1]), ("a", &[3])]);
        let passages = &lists[0].request.passages;
        assert_eq!((passages[1].id.as_str(), passages[1].text.as_str()), ("1", "3"));
    }

    #[test]
    fn an_error_names_the_pair() {
        let lists = lists(vec![pair("a", "1"), pair("b", "2"), pair("a", "")], None, "");
        let named = |list: usize, field: &str| lists[list].named(EngineError::invalid(field, "is wrong")).to_string();
        assert_eq!(named(0, "passages[1].text"), "pairs[2].text: is wrong");
        assert_eq!(named(1, "query"), "pairs[1].query: is wrong");
        assert_eq!(named(1, "passages"), "pairs: is wrong");
        assert_eq!(named(1, "method"), "method: is wrong");
    }
}
