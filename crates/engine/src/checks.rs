//! Checks that several use cases share.

use crate::types::{EngineError, Limits, Passage, unmarked};

/// Refuses a question that is empty, and a question or passages that exceed the limits.
pub(crate) fn check_texts(question: &str, passages: &[Passage], limits: &Limits) -> Result<(), EngineError> {
    check_question(question, limits)?;
    check_passages(passages, limits)
}

/// Refuses a question that is empty or too long.
pub(crate) fn check_question(question: &str, limits: &Limits) -> Result<(), EngineError> {
    let invalid = |field: String, problem: String| Err(EngineError::Invalid { field, problem });
    if unmarked(question).trim().is_empty() {
        return invalid("question".into(), "must not be empty".into());
    }
    if question.len() > limits.query_bytes {
        let problem = format!("{} bytes given, at most {} allowed", question.len(), limits.query_bytes);
        return invalid("question".into(), problem);
    }
    Ok(())
}

/// Refuses passages that exceed the limits. Prompts leave an empty passage out.
pub(crate) fn check_passages(passages: &[Passage], limits: &Limits) -> Result<(), EngineError> {
    let invalid = |field: String, problem: String| Err(EngineError::Invalid { field, problem });
    if passages.len() > limits.passages {
        let problem = format!("{} given, at most {} allowed", passages.len(), limits.passages);
        return invalid("passages".into(), problem);
    }
    for (index, passage) in passages.iter().enumerate() {
        let field = format!("passages[{index}].text");
        let bytes = passage.text.len() + passage.title.len();
        if bytes > limits.passage_bytes {
            return invalid(field, format!("{bytes} bytes given, at most {} allowed", limits.passage_bytes));
        }
        if passage.retriever_score.is_some_and(|score| !score.is_finite()) {
            return invalid(format!("passages[{index}].retriever_score"), "must be a finite number".into());
        }
    }
    Ok(())
}

/// Refuses a passage without text, for results with an entry per passage and no warnings.
pub(crate) fn refuse_blank(passages: &[Passage]) -> Result<(), EngineError> {
    let refused = |index| EngineError::invalid(format!("passages[{index}].text"), "must not be empty");
    passages.iter().position(Passage::is_blank).map_or(Ok(()), |index| Err(refused(index)))
}

/// Most references of one request.
pub const MOST_REFERENCES: usize = 64;

/// Refuses references that are empty, too many or too long.
pub(crate) fn check_references(references: &[String], limits: &Limits) -> Result<(), EngineError> {
    if references.len() > MOST_REFERENCES {
        let problem = format!("{} given, at most {MOST_REFERENCES} allowed", references.len());
        return Err(EngineError::invalid("references", problem));
    }
    for (index, reference) in references.iter().enumerate() {
        let field = || format!("references[{index}]");
        if reference.trim().is_empty() {
            return Err(EngineError::invalid(field(), "must not be empty"));
        }
        if reference.len() > limits.query_bytes {
            let problem = format!("{} bytes given, at most {} allowed", reference.len(), limits.query_bytes);
            return Err(EngineError::invalid(field(), problem));
        }
    }
    Ok(())
}

/// Refuses lists of passage indices with a duplicate or an index out of range.
pub(crate) fn check_orders(field: &str, orders: &[Vec<usize>], passages: usize) -> Result<(), EngineError> {
    for (number, order) in orders.iter().enumerate() {
        let mut seen = std::collections::HashSet::new();
        for index in order {
            let problem = if *index >= passages {
                format!("passage {index} is out of range, {passages} given")
            } else if !seen.insert(index) {
                format!("passage {index} is listed twice")
            } else {
                continue;
            };
            return Err(EngineError::invalid(format!("{field}[{number}]"), problem));
        }
    }
    Ok(())
}
