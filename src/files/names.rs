//! The names under which a field of a JSON line is read: ours first, then those of other programs. docs/files.md lists them.
//!
//! If a line has several names of one field, the first counts whose value is neither null nor empty ([`super::fields`]).

/// The id of a question, of a query and of a list.
pub const QUERY_ID: &[&str] = &["_id", "id", "query_id", "qid", "question_id"];

/// The id of a document and of a passage.
pub const DOCUMENT_ID: &[&str] = &["_id", "id", "docid", "doc_id", "docno", "pid", "passage_id", "document_id"];

/// The question of a line.
pub const QUESTION: &[&str] = &["question", "query", "claim"];

/// The text of a query in a file of queries.
pub const QUERY_TEXT: &[&str] = &["text", "question", "query", "claim"];

/// Reference answers. `answer` and `output` come last: a line that has them beside another of these names holds a system's answer
/// under them (RAGAS, ALCE).
pub const ANSWERS: &[&str] = &[
    "answers",
    "references",
    "reference",
    "ground_truths",
    "ground_truth",
    "golden_answers",
    "golden_answer",
    "gold",
    "answer",
    "output",
];

/// Reference answers of a line whose `answer` is a candidate answer.
pub const REFERENCES: &[&str] =
    &["answers", "references", "reference", "ground_truths", "ground_truth", "golden_answers", "gold"];

/// An answer whose citations are checked. `output` comes first: a line of ALCE's program has its reference answer in `answer`.
pub const CITING_ANSWER: &[&str] = &["output", "response", "answer"];

/// The passages of a line.
pub const PASSAGES: &[&str] = &["passages", "ctxs", "contexts", "documents", "docs", "retrieved_contexts"];

/// The text of a passage and of a document.
pub const TEXT: &[&str] =
    &["text", "contents", "content", "passage", "passage_text", "page_content", "body", "context"];

/// The title of a passage and of a document.
pub const TITLE: &[&str] = &["title"];

/// What the retriever scored a passage.
pub const SCORE: &[&str] = &["score", "retriever_score"];

/// A mark of a relevant passage, where the passage has no `label`.
pub const MARK: &[&str] = &["supporting", "relevant", "has_answer", "hasanswer", "is_selected"];
