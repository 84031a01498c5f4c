//! Reads bodies. A body with `texts` has text-embeddings-inference's format; any other body has the common format of
//! Cohere, Jina, vLLM and llama-server. Unknown fields are ignored, as by all of these servers; names that resemble a known
//! field get a warning.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::documents::{self, Document};
use super::instruction;
use super::json::Object;
use super::model::{Choice, Names};
use super::options::HttpOptions;
use super::own;
use super::problem::{Problem, Shape};
use crate::peers;
use engine::models::ServedGenerator;
use engine::types::{CutSide, EngineError, Limits, MethodRef, Passage, RerankRequest};
use rag_metrics::{MOST_REPEATED, clipped, quoted};

/// Fields that bodies of every shape may have.
pub(super) const COMMON: [&str; 11] = [
    "model",
    "rerankd_method",
    "raw_scores",
    "use_activation",
    "activation",
    "max_tokens_per_doc",
    "max_doc_length",
    "truncate",
    "truncation",
    "truncation_side",
    "truncate_prompt_tokens",
];

pub(super) const RANKING: [&str; 15] = [
    "query",
    "documents",
    "passages",
    "texts",
    "top_n",
    "top_k",
    "return_documents",
    "return_text",
    "rank_fields",
    "max_chunks_per_doc",
    "max_tokens_per_query",
    "truncation_direction",
    instruction::NAMES[0],
    instruction::NAMES[1],
    instruction::NAMES[2],
];

/// Server properties for reading a body.
pub(super) struct Reader {
    /// The shape of errors of the path.
    pub own: Shape,
    pub options: HttpOptions,
    /// Bounds of the engine, checked before a list is copied or a text is tokenised.
    pub limits: Limits,
    pub names: Names,
    /// The loaded generators, by the scorer name of a request.
    pub generators: Vec<(&'static str, Arc<ServedGenerator>)>,
}

/// A requested ranking.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    pub request: RerankRequest,
    /// True if the answer has text-embeddings-inference's format.
    pub tei: bool,
    /// True if documents are returned.
    pub echo: bool,
    /// True if scores are utilities.
    pub raw_scores: bool,
    /// True if results have details.
    pub details: bool,
    /// The body's name for its documents.
    list: &'static str,
    /// The body's name for the instruction.
    instruction: &'static str,
    /// Warnings about fields without effect and about repaired texts.
    pub warnings: Vec<String>,
}

impl Asked {
    /// The error with the body's name for its field.
    pub fn named(&self, error: EngineError) -> EngineError {
        if let EngineError::Precondition(problem) = &error {
            return EngineError::Precondition(self.said(problem));
        }
        peers::named(error, |field| match field {
            "instruction" => self.instruction.to_owned(),
            _ => own::called(field).unwrap_or_else(|| peers::texts_called(self.list, field)),
        })
    }

    /// Replaces the engine's field names in a message by the body's.
    pub fn said(&self, text: &str) -> String {
        own::said(text).replace("passages[", &format!("{}[", self.list))
    }
}

impl Reader {
    /// Reads the body of a ranking. Also returns the shape of its errors. Blocking: tokenises the query if a bound
    /// applies to query and document together.
    pub fn rerank(&self, body: &[u8], echo: bool) -> (Shape, Result<Asked, Problem>) {
        let object = match Self::body(body, &[]) {
            Ok(object) => object,
            Err(problem) => return (self.own, Err(problem)),
        };
        // llama-server's rule; one of its paths is text-embeddings-inference's path.
        let tei = object.has("texts");
        let shape = if tei { Shape::Tei } else { self.own };
        (shape, self.ranking(&object, tei, echo))
    }

    /// The fields of a ranking and `further` ones.
    pub fn body<'a, 'k>(body: &'a [u8], further: &[&'k str]) -> Result<Object<'a, 'k>, Problem> {
        let wanted = COMMON.into_iter().chain(RANKING).chain(own::FIELDS).chain(further.iter().copied());
        whole(body, &wanted.collect::<Vec<_>>())
    }

    pub fn ranking(&self, object: &Object<'_, '_>, tei: bool, echo: bool) -> Result<Asked, Problem> {
        let choice = self.names.choose(object)?;
        let query = match object.raw("query") {
            Some(value) => documents::document(value, "query", None)?,
            None => return Err(object.missing("query").into()),
        };
        let mut warnings: Vec<String> = query.repaired.then(|| documents::mended("query")).into_iter().collect();
        let query = query.joined();
        self.check_query("query", &query)?;
        // NVIDIA NIM's clients send passages.
        let list = match (tei, object.has("passages") && !object.has("documents")) {
            (true, _) => "texts",
            (false, true) => "passages",
            (false, false) => "documents",
        };
        let fields = if tei { None } else { documents::rank_fields(object)? };
        let documents = match object.raw(list) {
            Some(value) => documents::list(value, list, fields.as_deref())?,
            None => return Err(object.missing(list).into()),
        };
        self.check_count(list, documents.len())?;
        let top_n = match object.count("top_n", 0)? {
            Some(count) => Some(count),
            None => object.count("top_k", 0)?,
        };
        let echo = if tei {
            object.flag("return_text")?.unwrap_or(false)
        } else {
            object.flag("return_documents")?.unwrap_or(echo)
        };
        warnings.extend(choice.warning.iter().cloned());
        warnings.extend(object.misspelt());
        warnings.extend(documents::warnings(list, &documents));
        if object.has("max_chunks_per_doc") {
            warnings.push("max_chunks_per_doc has no effect: a document is read as a whole".to_owned());
        }
        // 0 is vLLM's default, as for documents.
        if object.raw("max_tokens_per_query").is_some_and(|value| value.get() != "0") {
            warnings.push("max_tokens_per_query has no effect: the generator reads a query whole".to_owned());
        }
        let mut request = RerankRequest {
            passages: documents.into_iter().enumerate().map(passage).collect(),
            method: choice.method,
            scorer: choice.scorer.to_owned(),
            top_n: top_n.filter(|count| *count > 0),
            truncate: truncate(object)?,
            passage_tokens: self.passage_tokens(object, &query, &choice)?,
            cut_side: cut_side(object)?,
            query,
            ..RerankRequest::default()
        };
        own::read(object, list, &mut request)?;
        // Other methods refuse lists for a budget, and the caller did not ask for this one.
        if request.latency_budget_ms.is_none() && request.method() == MethodRef::default() {
            request.latency_budget_ms = self.options.latency_budget_ms.map(f64::from);
        }
        let instruction = instruction::read(object, &mut request, &mut warnings)?;
        let details = own::details(object)?;
        Ok(Asked { request, tei, echo, raw_scores: raw_scores(object)?, details, list, instruction, warnings })
    }

    /// Refuses a query that the engine would refuse, before it is copied or tokenised.
    pub fn check_query(&self, field: &str, query: &str) -> Result<(), EngineError> {
        if query.len() <= self.limits.query_bytes {
            return Ok(());
        }
        let problem = format!("{} bytes given, at most {} allowed", query.len(), self.limits.query_bytes);
        Err(EngineError::invalid(field, problem))
    }

    /// Refuses more texts than the engine takes, empty ones included.
    pub fn check_count(&self, field: &str, count: usize) -> Result<(), EngineError> {
        if count <= self.limits.passages {
            return Ok(());
        }
        let problem = format!("{count} given, at most {} allowed", self.limits.passages);
        Err(EngineError::invalid(field, problem))
    }

    /// Most tokens of a document with this query.
    pub fn passage_tokens(
        &self,
        object: &Object<'_, '_>,
        query: &str,
        choice: &Choice,
    ) -> Result<Option<usize>, EngineError> {
        let per_document = match object.count("max_tokens_per_doc", 0)? {
            Some(count) => Some(count),
            None => object.count("max_doc_length", 0)?,
        };
        // 0 is vLLM's default. Clients that write every field send it.
        let per_document = per_document.filter(|count| *count > 0);
        let per_prompt = match object.integer("truncate_prompt_tokens")? {
            // -1 is the model's maximum, the same as no bound.
            None | Some(-1) => None,
            Some(number) => {
                let field = || object.path("truncate_prompt_tokens");
                let number = usize::try_from(number).ok().filter(|number| *number > 0);
                let number =
                    number.ok_or_else(|| EngineError::invalid(field(), "must be -1 or a whole number of 1 or more"))?;
                // Without a generator the request is refused later.
                let generator = self.generators.iter().find(|(scorer, _)| *scorer == choice.scorer);
                let query = generator.map_or(0, |(_, served)| served.language.query(query).len());
                let left = number.checked_sub(query).filter(|left| *left > 0);
                let problem = || format!("the query alone has {query} tokens, {number} allowed with a document");
                Some(left.ok_or_else(|| EngineError::invalid(field(), problem()))?)
            }
        };
        Ok(per_document.into_iter().chain(per_prompt).min())
    }
}

/// The body as an object.
pub(super) fn whole<'a, 'k>(body: &'a [u8], wanted: &[&'k str]) -> Result<Object<'a, 'k>, Problem> {
    let malformed = |problem: &str| Problem::Malformed(format!("body: {problem}"));
    // Some editors and languages write a byte-order mark before a file.
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let text = std::str::from_utf8(body).map_err(|_| malformed("is not UTF-8"))?;
    Object::read(text, "", wanted).map_err(|error| {
        if !text.trim_start().starts_with('"') {
            return malformed(&format!("is not a JSON object: {}", clipped(&error.to_string(), MOST_REPEATED)));
        }
        let inner = serde_json::from_str::<String>(text).ok();
        malformed(if inner.is_some_and(|inner| Object::read(&inner, "", &[]).is_ok()) {
            "was encoded twice: it is a JSON string that holds the object. Send the object itself"
        } else {
            "is a JSON string, and must be an object: was it encoded twice?"
        })
    })
}

fn passage((index, document): (usize, Document)) -> Passage {
    Passage { title: document.title, ..Passage::untitled(index, document.text) }
}

/// True if documents may be cut; `None` for the server's default.
pub(super) fn truncate(object: &Object<'_, '_>) -> Result<Option<bool>, EngineError> {
    // NVIDIA NIM uses words.
    let words = [(r#""END""#, true), (r#""NONE""#, false)];
    let is = |value: &RawValue, word: &str| value.get().eq_ignore_ascii_case(word);
    let named = object.raw("truncate").and_then(|value| words.into_iter().find(|(word, _)| is(value, word)));
    let named = named.map(|(_, truncate)| truncate);
    match named.map_or_else(|| object.flag("truncate"), |truncate| Ok(Some(truncate)))? {
        Some(truncate) => Ok(Some(truncate)),
        None => object.flag("truncation"),
    }
}

/// The side at which documents are cut, in the field of text-embeddings-inference or vLLM.
pub(super) fn cut_side(object: &Object<'_, '_>) -> Result<CutSide, EngineError> {
    for field in ["truncation_direction", "truncation_side"] {
        if let Some(side) = object.word(field)? {
            return match side.to_ascii_lowercase().as_str() {
                "right" => Ok(CutSide::End),
                "left" => Ok(CutSide::Beginning),
                _ => Err(EngineError::invalid(field, format!("must be left or right, is {}", quoted(&side)))),
            };
        }
    }
    Ok(CutSide::End)
}

/// True if scores are utilities instead of values in (0, 1).
pub(super) fn raw_scores(object: &Object<'_, '_>) -> Result<bool, EngineError> {
    if let Some(raw) = object.flag("raw_scores")? {
        return Ok(raw);
    }
    let activation = match object.flag("use_activation")? {
        Some(activation) => Some(activation),
        None => object.flag("activation")?,
    };
    Ok(activation == Some(false))
}

#[cfg(test)]
mod tests;
