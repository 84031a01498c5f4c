//! The maximum size of a report.

use std::collections::{BTreeMap, HashMap};

use super::context_free::{Drawn, bytes};
use crate::types::{ContextKind, EngineError};

/// Most bytes of the answers of a report. Equal contexts are sampled once, but each has its answers in the report.
const MOST_ANSWERS: usize = 64 << 20;

/// Refuses a report whose answers are larger than any message.
pub(super) fn check_answers(
    contexts: &[(ContextKind, Vec<usize>)],
    drawn: &BTreeMap<Vec<usize>, Drawn>,
) -> Result<(), EngineError> {
    let sizes: HashMap<&[usize], usize> = drawn.iter().map(|(indices, drawn)| (&indices[..], bytes(drawn))).collect();
    let all = contexts
        .iter()
        .filter_map(|(_, indices)| sizes.get(&indices[..]))
        .fold(0, |sum, size| size.saturating_add(sum));
    if all <= MOST_ANSWERS {
        return Ok(());
    }
    let problem =
        format!("the answers of {} contexts take {all} bytes, at most {MOST_ANSWERS} allowed", contexts.len());
    Err(EngineError::invalid("subsets", problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Answer;
    use prefix_scheduler::plan::Finish;

    #[test]
    fn answers_of_equal_contexts_are_bounded_together() {
        let answer = Answer { text: "x".repeat(1 << 20), log_probabilities: Vec::new(), finish: Finish::Length };
        let drawn = BTreeMap::from([(vec![0], Drawn { answers: vec![answer], ..Drawn::default() })]);
        let equal = |count| vec![(ContextKind::Subset(0), vec![0]); count];
        assert_eq!(check_answers(&equal(60), &drawn), Ok(()));
        assert!(
            check_answers(&equal(64), &drawn)
                .unwrap_err()
                .to_string()
                .starts_with("subsets: the answers of 64 contexts")
        );
    }
}
