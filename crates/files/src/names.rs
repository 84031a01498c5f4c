//! The accepted names of each field of a JSON line: ours first, then those of other programs.
//! docs/reference/formats.md lists them.
//!
//! If a line has several names of one field, the first with a value that is neither null nor empty counts
//! ([`super::fields`]).

/// The id of a question, of a query and of a list.
pub const QUERY_ID: &[&str] = &["_id", "id", "query_id", "qid", "question_id"];

/// The id of a document and of a passage.
pub const DOCUMENT_ID: &[&str] = &["_id", "id", "docid", "doc_id", "docno", "pid", "passage_id", "document_id"];

/// The question of a line.
pub const QUESTION: &[&str] = &["question", "query", "claim"];

/// The text of a query in a file of queries.
pub const QUERY_TEXT: &[&str] = &["text", "question", "query", "claim"];

/// Reference answers, except `answer` and `output` ([`super::fields::Fields::answers`]): in a line with one of these
/// names they hold a system's answer (RAGAS, ALCE).
pub const ANSWERS: &[&str] =
    &["answers", "references", "reference", "ground_truths", "ground_truth", "golden_answers", "golden_answer", "gold"];

/// Our names of reference answers, whose values must be texts.
pub const OUR_ANSWERS: &[&str] = &["answers", "references"];

/// Reference answers of a line whose `answer` is a candidate answer.
pub const REFERENCES: &[&str] =
    &["answers", "references", "reference", "ground_truths", "ground_truth", "golden_answers", "gold"];

/// An answer whose citations are checked. The first that is not null counts: lines of ALCE's program have the reference
/// answer in `answer`.
pub const CITING_ANSWER: &[&str] = &["output", "response", "answer"];

/// The passages of a line.
pub const PASSAGES: &[&str] = &["passages", "ctxs", "contexts", "documents", "docs", "retrieved_contexts"];

/// The text of a passage and of a document.
pub const TEXT: &[&str] =
    &["text", "contents", "content", "passage", "passage_text", "page_content", "body", "context"];

/// Names of a passage's text that may be a list of texts, or of a message's parts.
pub const PARTS: &[&str] = &["content", "page_content"];

/// The title of a passage and of a document.
pub const TITLE: &[&str] = &["title"];

/// The retriever's score of a passage.
pub const SCORE: &[&str] = &["score", "retriever_score"];

/// A mark of a relevant passage, for a passage without `label`.
pub const MARK: &[&str] = &["supporting", "relevant", "has_answer", "hasanswer", "is_selected"];
