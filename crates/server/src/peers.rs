//! Common parts of the protocols of other rerankers, over gRPC (tei.v1) and HTTP.

use engine::Engine;
use engine::types::{EngineError, MethodRef, RerankRequest, Usage};
use numeric;
use rag_metrics::brief;

/// Header of a warning, for protocols whose messages have no field for it; one header per warning.
pub const WARNING: &str = "x-rerankd-warning";

/// Renames the field of an error for a protocol: `rename` gets the field of the engine's request.
pub fn named(mut error: EngineError, rename: impl FnOnce(&str) -> String) -> EngineError {
    if let EngineError::Invalid { field, .. } | EngineError::TooLong { field, .. } = &mut error {
        *field = rename(field);
    }
    error
}

/// The name of a field in a protocol that calls the passages `list` and has plain texts: `passages[3].text` becomes
/// `list[3]`.
pub fn texts_called(list: &str, field: &str) -> String {
    match field.strip_prefix("passages") {
        Some(rest) => format!("{list}{}", rest.trim_end_matches(".text")),
        None => field.to_owned(),
    }
}

/// A text as the value of a header: non-ASCII characters are escaped as in Rust.
pub fn in_a_header(text: &str) -> String {
    let line = brief(text).replace(char::is_control, " ");
    line.chars().fold(String::new(), |mut value, letter| {
        if letter.is_ascii() {
            value.push(letter);
        } else {
            value.extend(letter.escape_unicode());
        }
        value
    })
}

/// Characters of the texts, plus those of the query once per text. Reads the query only once, because query and texts
/// may both be large.
pub fn characters<'a>(query: &str, texts: impl ExactSizeIterator<Item = &'a str>) -> usize {
    let queries = query.chars().count().saturating_mul(texts.len());
    queries.saturating_add(texts.map(|text| text.chars().count()).sum())
}

/// All tokens of a request, evaluated or cached.
pub const fn tokens(usage: &Usage) -> usize {
    usage.tokens + usage.cached_tokens
}

/// The headers of an answer with the cost of its request: names, and values in whole milliseconds. `characters` are those of
/// the texts, `compute` is the device.
pub fn cost_headers(characters: usize, usage: &Usage, compute: &str) -> [(&'static str, String); 8] {
    let whole = |milliseconds: f64| numeric::count(milliseconds).to_string();
    [
        ("x-compute-type", compute.to_owned()),
        ("x-compute-time", whole(usage.total_ms)),
        ("x-compute-characters", characters.to_string()),
        ("x-compute-tokens", tokens(usage).to_string()),
        ("x-total-time", whole(usage.total_ms)),
        ("x-tokenization-time", whole(usage.tokenise_ms)),
        ("x-queue-time", whole(usage.queue_ms)),
        ("x-inference-time", whole(usage.score_ms)),
    ]
}

/// The model that scores texts, and its bounds, in the terms of text-embeddings-inference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedModel {
    /// Its name in answers.
    pub name: String,
    /// SHA-256 of its file, and of its adapter if it has one; `None` if unknown before the model is loaded, and without
    /// a model.
    pub sha256: Option<String>,
    /// Tensor type at run time; empty for a reranker or embedding model, and without a model.
    pub encoding: String,
    /// Tokens of the longest input; 0 if unknown before the model is loaded.
    pub longest_input: usize,
    /// Most tokens that the generator evaluates in one step.
    pub batch: usize,
}

impl ServedModel {
    /// The model that `method` asks; `None` is the default method. For a method without a model, the method's name and
    /// the generator's bounds.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] until the generator is loaded.
    pub fn of(engine: &Engine, method: Option<MethodRef>) -> Result<Self, EngineError> {
        let request = RerankRequest { method, ..RerankRequest::default() };
        let generator = engine.reranker.scoring_model(&request)?.get()?;
        let capacity = generator.scheduler.capacity().ok_or(EngineError::Unavailable)?;
        let info = &generator.info;
        let known = |sha256: String| Some(sha256).filter(|sha256| !sha256.is_empty());
        let served = Self {
            name: info.name.clone(),
            sha256: known(info.weights()),
            encoding: info.encoding.clone(),
            longest_input: capacity.cells.min(info.trained_context),
            batch: capacity.batch,
        };
        let method = request.method();
        if let Some(scorer) = method.passage_model().and_then(|role| engine.models().scorer_if_any(role)) {
            let model = scorer.model().clone();
            let longest_input = scorer.info().map_or(0, |info| info.most_tokens);
            let (name, sha256) = (model.name, known(model.sha256));
            return Ok(Self { name, sha256, encoding: String::new(), longest_input, ..served });
        }
        if method.asks_generator() {
            return Ok(served);
        }
        Ok(Self { name: method.name().to_owned(), sha256: None, encoding: String::new(), ..served })
    }
}

/// Threads that tokenise.
pub fn tokenising_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each text counts its query again.
    #[test]
    fn characters_of_texts_and_of_their_query() {
        assert_eq!(characters("\u{e9}a", ["x", "yz"].into_iter()), 2 + 1 + 2 + 2);
        assert_eq!(characters("query", [""; 0].into_iter()), 0);
        // A text of 14 MB and a million texts: reading the query once per text would take minutes.
        let query = "q".repeat(14_000_000);
        assert_eq!(characters(&query, std::iter::repeat_n("", 1_000_000)), 14_000_000_000_000);
    }

    #[test]
    fn fields_take_the_names_of_the_protocol() {
        let named = |field: &str| {
            named(EngineError::invalid(field, "is wrong"), |field| texts_called("texts", field)).to_string()
        };
        assert_eq!(named("passages[3].text"), "texts[3]: is wrong");
        assert_eq!(named("passages"), "texts: is wrong");
        assert_eq!(named("query"), "query: is wrong");
    }

    #[test]
    fn times_are_whole_milliseconds() {
        let usage =
            Usage { tokens: 7, cached_tokens: 3, queue_ms: 1.5, score_ms: 4.25, total_ms: 9.9, ..Usage::default() };
        let headers = cost_headers(12, &usage, "cpu");
        let values: Vec<&str> = headers.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, ["cpu", "9", "12", "10", "9", "0", "1", "4"]);
        // Under load: the wait is not part of the time in the generator, and is not subtracted from it.
        let waited = Usage { queue_ms: 50.0, score_ms: 2.0, ..Usage::default() };
        assert_eq!(cost_headers(1, &waited, "cpu")[7].1, "2");
    }
}
