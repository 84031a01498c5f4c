//! Long answers with their numbered passages, one line per answer, as `rerankd citations` reads them.

use std::collections::HashMap;

use serde_json::json;

use super::data::Query;
use super::line::Line;
use crate::study::journal::Entry;
use rag_metrics::citation::statements;

/// The end-to-end answers of all questions and systems, each with the passages in prompt order: citation `[1]` is
/// the first one.
pub(super) fn answers(results: &[Entry<Line>], queries: &[Query]) -> String {
    let by_id: HashMap<&str, &Query> = queries.iter().map(|query| (query.id.as_str(), query)).collect();
    let mut text = String::new();
    for entry in results {
        let Some(query) = by_id.get(entry.id.as_str()) else { continue };
        for (system, ranked) in entry.value.iter().flat_map(|line| &line.systems) {
            // An answer without a statement or without passages has no citations to check.
            let answer = ranked.answer.as_ref().filter(|answer| !statements(answer).is_empty());
            let Some(answer) = answer.filter(|_| !ranked.context.is_empty()) else { continue };
            let passages = ranked.context.iter().filter_map(|index| query.passages.get(*index));
            let passages: Vec<_> = passages.map(|one| json!({ "title": one.title, "text": one.text })).collect();
            // The question is left out, because it would precede every judged statement: ALCE judges statements by
            // themselves.
            let one = json!({ "id": entry.id, "system": system, "answer": answer, "passages": passages });
            text.push_str(&format!("{one}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::super::line::Ranked;
    use super::*;
    use crate::odd;
    use engine::types::Passage;
    use files::{self, Warnings};

    /// The second passage came first in the prompt, so `[1]` cites it.
    #[test]
    fn passages_have_the_numbers_that_the_answer_cites() {
        let passages = ["first", "second"].map(|text| Passage::untitled(0, text.to_owned())).to_vec();
        let query =
            |id: &str| Query { id: id.into(), question: "q?".into(), passages: passages.clone(), ..Query::default() };
        let ranked = |answer: Option<&str>| Ranked {
            context: vec![1, 0],
            answer: answer.map(str::to_owned),
            ..Ranked::default()
        };
        let answers = [("given", Some("It is [1].")), ("moi", None), ("retriever", Some(" [1]."))];
        let systems = answers.map(|(system, answer)| (system.to_owned(), ranked(answer))).into();
        let entry = |id: &str, value| Entry { id: id.into(), data: String::new(), value, error: None };
        let lines = [entry("b", Some(Line { systems, ..Line::default() })), entry("a", None)];
        let text = super::answers(&lines, &[query("a"), query("b")]);
        let one: Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!((&one["id"], &one["system"], &one["answer"]), (&json!("b"), &json!("given"), &json!("It is [1].")));
        assert_eq!(one["passages"], json!([{ "title": "", "text": "second" }, { "title": "", "text": "first" }]));
        assert_eq!(text.lines().count(), 1);
    }

    proptest! {
        /// `rerankd citations` reads what an evaluation wrote.
        #[test]
        fn answers_are_read_as_they_were_written(ids in odd::ids(), system in odd::words(), text in odd::words(), title in odd::words()) {
            let answer = format!("It is {text} [1].");
            let passage = |id: &String| Passage { id: id.clone(), title: title.clone(), text: text.clone(), ..Passage::default() };
            let query = |id: &String| Query { id: id.clone(), passages: vec![passage(id)], ..Query::default() };
            let ranked = Ranked { context: vec![0], answer: Some(answer.clone()), ..Ranked::default() };
            let systems = [(system.clone(), ranked.clone())];
            let value = || Some(Line { systems: systems.clone().into(), ..Line::default() });
            let line = |id: &String| Entry { id: id.clone(), data: String::new(), value: value(), error: None };
            let (queries, lines): (Vec<Query>, Vec<Entry<Line>>) = ids.iter().map(|id| (query(id), line(id))).unzip();
            let mut warnings = Warnings::default();
            let read = odd::in_file(&super::answers(&lines, &queries), |path| files::cited::answers(path, &mut warnings).unwrap());
            prop_assert_eq!(read.len(), ids.len());
            for (one, id) in read.iter().zip(&ids) {
                prop_assert_eq!((&one.answer, &one.id, one.system.as_ref()), (&answer, &Some(json!(id)), Some(&system)));
                let Passage { title: read, text: of, .. } = &one.passages[0];
                prop_assert_eq!((read.as_str(), of.as_str()), (odd::unmarked(&title), odd::unmarked(&text)));
            }
            prop_assert_eq!(warnings.lines().count(), 0);
        }
    }
}
