//! Passages without text. Stores hold such chunks and clients send them; one of them must not fail the whole
//! request.
//!
//! No model reads them. They are ranked last with the score 0, or left out if the request selects by score. A
//! warning names them.

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::types::{EngineError, Passage, Ranked, RankingStage, RerankEvent, RerankRequest, Reranked};

/// End of the warning of a ranking that returns passages without text.
pub(crate) const RANKED_LAST: &str = "ranked last with the score 0";

/// Most positions that a warning names.
const NAMED: usize = 3;

/// The positions of the elements without text in a list, and of the others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Blanks {
    /// Positions in the caller's list of the elements with text.
    read: Vec<usize>,
    /// Positions of the blank ones.
    blank: Vec<usize>,
}

impl Blanks {
    /// Blank elements at these positions.
    pub fn at(mut blank: Vec<usize>) -> Self {
        blank.sort_unstable();
        Self { read: Vec::new(), blank }
    }

    /// Looks for blank elements of `list`.
    pub fn of<T>(list: &[T], is_blank: impl Fn(&T) -> bool) -> Self {
        let (blank, read) = (0..list.len()).partition(|index| is_blank(&list[*index]));
        Self { read, blank }
    }

    /// Takes the blank elements out of `list`.
    pub fn take<T>(list: &mut Vec<T>, is_blank: impl Fn(&T) -> bool) -> Self {
        let blanks = Self::of(list, &is_blank);
        if !blanks.blank.is_empty() {
            list.retain(|one| !is_blank(one));
        }
        blanks
    }

    /// Positions of the blank elements.
    pub fn places(&self) -> &[usize] {
        &self.blank
    }

    /// The position in the caller's list of the element with this index among those with text.
    pub fn place(&self, index: usize) -> usize {
        self.read.get(index).copied().unwrap_or(index)
    }

    /// The error with its field in terms of the caller's list, which is called `passages`.
    pub fn named(&self, error: EngineError) -> EngineError {
        error.at_passage(|index| Some(self.place(index)))
    }

    /// The warning about the blank elements; `list` is the caller's name of the list, and `then` says what happens
    /// to them.
    pub fn warning(&self, list: &str, then: &str) -> Option<String> {
        let are = if self.blank.len() == 1 { "is" } else { "are" };
        let named = || format!("{} {are} empty: {then}", places_of(list, &self.blank));
        (!self.blank.is_empty()).then(named)
    }

    /// The warning of a measurement, whose prompts leave blank passages out.
    pub fn unread(passages: &[Passage]) -> Option<String> {
        Self::of(passages, Passage::is_blank).warning("passages", "left out of prompts")
    }

    /// Adds the blank passages to an answer about the others: after them, until there are `most` results.
    pub(super) fn put_back(&self, most: usize, answer: &mut Reranked) {
        for passage in &mut answer.passages {
            passage.index = self.place(passage.index);
            passage.duplicates.iter_mut().for_each(|copy| *copy = self.place(*copy));
        }
        for index in &mut answer.arrangement.order {
            *index = self.place(*index);
        }
        for passage in answer.compression.iter_mut().flat_map(|report| &mut report.passages) {
            passage.index = self.place(passage.index);
        }
        if let Some(inline) = &mut answer.inline {
            for index in [&mut inline.input, &mut inline.arranged].into_iter().flat_map(|utility| &mut utility.indices)
            {
                *index = self.place(*index);
            }
        }
        let then = if most == 0 { "left out" } else { RANKED_LAST };
        answer.warnings.extend(self.warning("passages", then));
        let lowest = answer.passages.iter().map(|passage| passage.utility).fold(0.0, f64::min);
        let left = most.saturating_sub(answer.passages.len());
        answer.passages.extend(self.blank.iter().take(left).map(|&index| Ranked {
            index,
            score: 0.0,
            utility: lowest,
            alone: lowest,
            standard_error: None,
            outranks_next: None,
            tokens_cut: 0,
            stage: RankingStage::Retriever,
            score_parts: None,
            duplicates: Vec::new(),
        }));
    }

    /// Most results of a request if it wants blank passages, else 0: a passage without text never helps and reaches
    /// no threshold.
    pub(super) fn most(request: &RerankRequest) -> usize {
        let chooses = request.score_threshold.is_some() || request.only_helpful || request.auto_k;
        if chooses { 0 } else { request.top_n.unwrap_or(usize::MAX) }
    }

    /// Runs `work` on the passages with text, and reports its orders to `listener` by the positions in the caller's
    /// list.
    pub(super) async fn told<T>(
        &self,
        listener: Option<UnboundedSender<RerankEvent>>,
        work: impl AsyncFnOnce(Option<UnboundedSender<RerankEvent>>) -> T,
    ) -> T {
        let Some(listener) = listener else { return work(None).await };
        let (sender, mut events) = unbounded_channel();
        let mut work = std::pin::pin!(work(Some(sender)));
        let tell = |event| {
            // A listener that left is not an error.
            let _ = listener.send(self.placed(event));
        };
        let outcome = loop {
            tokio::select! {
                biased;
                Some(event) = events.recv() => tell(event),
                outcome = &mut work => break outcome,
            }
        };
        // The answer may overtake events that were sent before it.
        while let Ok(event) = events.try_recv() {
            tell(event);
        }
        outcome
    }

    fn placed(&self, event: RerankEvent) -> RerankEvent {
        match event {
            RerankEvent::Interim { order, observations } => {
                let read = order.into_iter().map(|index| self.place(index));
                RerankEvent::Interim { order: read.chain(self.blank.iter().copied()).collect(), observations }
            }
            other => other,
        }
    }
}

/// Positions in a list for a warning: the first ones, and how many more there are.
pub fn places_of(list: &str, places: &[usize]) -> String {
    let named = places.iter().take(NAMED).map(|place| format!("{list}[{place}]"));
    let named = named.collect::<Vec<_>>().join(", ");
    match places.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_elements_are_taken_out_and_keep_their_places() {
        let mut list = vec!["a", " ", "b", ""];
        let blanks = Blanks::take(&mut list, |text| text.trim().is_empty());
        assert_eq!((list, blanks.places()), (vec!["a", "b"], &[1, 3][..]));
        assert_eq!([blanks.place(0), blanks.place(1)], [0, 2]);
        let named = |field: &str| blanks.named(EngineError::invalid(field, "x")).to_string();
        assert_eq!(
            ["passages[1].text", "passages", "query"].map(named),
            ["passages[2].text: x", "passages: x", "query: x"]
        );
        let told = RerankEvent::Interim { order: vec![1, 0], observations: 2 };
        assert_eq!(blanks.placed(told), RerankEvent::Interim { order: vec![2, 0, 1, 3], observations: 2 });
    }

    #[test]
    fn a_warning_names_the_first_of_many() {
        let of = |count: usize| Blanks::of(&vec![""; count], |text| text.is_empty()).warning("texts", "so");
        assert_eq!(of(0), None);
        assert_eq!(of(1).unwrap(), "texts[0] is empty: so");
        assert_eq!(of(3).unwrap(), "texts[0], texts[1], texts[2] are empty: so");
        assert_eq!(of(5).unwrap(), "texts[0], texts[1], texts[2] and 2 more are empty: so");
    }

    #[test]
    fn a_title_without_text_is_the_text_and_a_mark_of_order_is_dropped() {
        let tidied = |title: &str, text: &str| {
            let mut passage = Passage { title: title.into(), text: text.into(), ..Passage::default() };
            passage.tidy();
            (passage.title, passage.text)
        };
        let own = |title: &str, text: &str| (title.to_owned(), text.to_owned());
        assert_eq!(tidied("T", " "), own("", "T"));
        assert_eq!(tidied("T", "\u{feff}a\u{feff}"), own("T", "a\u{feff}"));
        assert_eq!(tidied("\u{feff}T", "a"), own("T", "a"));
        let blank = |title: &str, text: &str| {
            Passage { title: title.into(), text: text.into(), ..Passage::default() }.is_blank()
        };
        assert!(blank("", "\u{feff} \n") && blank(" ", "") && !blank("T", "") && !blank("", "a"));
    }
}
