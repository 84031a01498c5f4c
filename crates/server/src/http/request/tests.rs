//! Bodies of every kind of client, and their faults.

use super::*;
use engine::methods;

const LIMITS: Limits =
    Limits { passages: 100, passage_bytes: 1_000, orders: 10, tokens: 1_000, pairs: 10, ..Limits::WIDE };

fn reader() -> Reader {
    let options = HttpOptions { method: methods::find("moi"), ..HttpOptions::default() };
    Reader {
        own: Shape::Nested,
        options,
        limits: LIMITS,
        names: Names {
            scoring: vec!["own".into()],
            beside: vec![("bge".into(), methods::find("cross-encoder").unwrap())],
            configured: methods::find("moi"),
            ..Names::default()
        },
        generators: Vec::new(),
    }
}

fn read(body: &str) -> Asked {
    reader().rerank(body.as_bytes(), true).1.unwrap()
}

fn refused(body: &str) -> (Shape, String) {
    let (shape, asked) = reader().rerank(body.as_bytes(), true);
    let message = match asked.unwrap_err() {
        Problem::Engine(error) => error.to_string(),
        Problem::Malformed(text) => text,
        other => format!("{other:?}"),
    };
    (shape, message)
}

#[test]
fn a_body_of_every_peer_is_read() {
    let cohere = read(
        r#"{"model": "alias", "query": "q", "documents": ["a", {"title": "T", "text": "b"}], "top_n": 1,
            "max_tokens_per_doc": 40, "return_documents": false, "priority": 0}"#,
    );
    assert_eq!((cohere.request.top_n, cohere.request.passage_tokens, cohere.echo), (Some(1), Some(40), false));
    assert_eq!((cohere.request.passages[1].title.as_str(), cohere.request.passages[1].id.as_str()), ("T", "1"));
    assert_eq!(cohere.request.method, methods::find("moi"));
    let jina =
        read(r#"{"query": {"text": "q"}, "documents": ["a"], "top_k": 0, "truncation": false, "max_doc_length": 9}"#);
    assert_eq!((jina.request.query.as_str(), jina.request.top_n, jina.echo), ("q", None, true));
    assert_eq!((jina.request.truncate, jina.request.passage_tokens), (Some(false), Some(9)));
    let vllm = read(
        r#"{"query": "q", "documents": {"content": "a"}, "use_activation": false, "truncation_side": "left",
            "truncate_prompt_tokens": -1, "max_tokens_per_doc": 0, "rerankd_method": "retriever"}"#,
    );
    assert!(vllm.raw_scores && vllm.request.cut_side == CutSide::Beginning && vllm.request.passage_tokens.is_none());
    assert_eq!(vllm.request.method, methods::find("retriever"));
    let tei = read(
        r#"{"query": "q", "texts": ["a"], "documents": ["ignored", "x"], "raw_scores": true, "return_text": true,
            "truncate": true, "truncation_direction": "Left"}"#,
    );
    assert!(tei.tei && tei.raw_scores && tei.echo && tei.request.passages.len() == 1);
    assert_eq!((tei.request.truncate, tei.request.cut_side), (Some(true), CutSide::Beginning));
    // RAGFlow's client of Xinference sends its flags as strings; JavaScript and Lua clients may write counts with a
    // fraction.
    let xinference =
        read(r#"{"query": "q", "documents": ["a"], "return_documents": "false", "return_len": "true", "top_n": 1.0}"#);
    assert_eq!((xinference.echo, xinference.request.top_n), (false, Some(1)));
    for method in ["", r#", "rerankd_method": "cross-encoder""#] {
        let beside = read(&format!(r#"{{"query": "q", "documents": ["a"], "model": "bge"{method}}}"#));
        assert_eq!(beside.request.method, methods::find("cross-encoder"));
    }
    for (body, name) in [
        (r#""instruct": "x", "rerankd_method": "yes-no""#, "instruct"),
        (r#""rerankd_instruction": "x""#, "rerankd_instruction"),
    ] {
        let asked = read(&format!(r#"{{"query": "q", "documents": ["a"], {body}}}"#));
        let named = asked.named(EngineError::invalid("instruction", "is long")).to_string();
        assert!(named.starts_with(&format!("{name}: is long")), "{named}");
    }
    let mut hurried = reader();
    (hurried.options.latency_budget_ms, hurried.names.configured) = (Some(250), None);
    for (more, budget) in [
        ("", Some(250.0)),
        (r#", "rerankd_latency_budget_ms": 9"#, Some(9.0)),
        (r#", "rerankd_method": "setwise""#, None),
    ] {
        let body = format!(r#"{{"query": "q", "documents": ["a"]{more}}}"#);
        assert_eq!(hurried.rerank(body.as_bytes(), true).1.unwrap().request.latency_budget_ms, budget, "{body}");
    }
    let gaps = read(r#"{"query": "q", "documents": ["a", " ", {"title": "T", "text": ""}, "b"]}"#);
    let texts: Vec<&str> = gaps.request.passages.iter().map(|passage| passage.text.as_str()).collect();
    assert_eq!(texts, ["a", " ", "T", "b"]);
    assert_eq!(gaps.said("passages[1] is empty: score_threshold"), "documents[1] is empty: rerankd_score_threshold");
    let named = gaps.named(EngineError::invalid("passages[3].text", "is long")).to_string();
    assert!(named.starts_with("documents[3]: is long"), "{named}");
    let nim = read(r#"{"query": {"text": "q"}, "passages": [{"text": "a"}, {"text": "b"}], "truncate": "END"}"#);
    assert_eq!((nim.request.passages[1].text.as_str(), nim.request.truncate), ("b", Some(true)));
    let named = nim.named(EngineError::invalid("passages[1].text", "is long")).to_string();
    assert!(named.starts_with("passages[1]: is long"), "{named}");
    assert_eq!(
        read(r#"{"query": "q", "documents": ["a"], "passages": [], "truncate": "NONE"}"#).request.truncate,
        Some(false)
    );
    let chunks = read(r#"{"query": "q", "documents": ["a"], "max_chunks_per_doc": 10}"#);
    assert!(chunks.warnings[0].starts_with("max_chunks_per_doc has no effect"));
    let query = |most: usize| {
        read(&format!(r#"{{"query": "q", "documents": ["a"], "max_tokens_per_query": {most}}}"#)).warnings
    };
    assert!(query(3)[0].starts_with("max_tokens_per_query has no effect") && query(0).is_empty());
}

#[test]
fn faults_are_named_in_the_shape_of_the_body() {
    let rows = [
        (r#"{"documents": ["a"]}"#, "query: must be set"),
        (r#"{"query": "q"}"#, "documents: must be set"),
        (r#"{"query": {"image": "x"}, "documents": ["a"]}"#, "query.image: is not supported"),
        (r#"{"query": "q", "documents": ["a"], "top_n": -1}"#, "top_n: must be a whole number of 0 or more"),
        (r#"{"query": "q", "documents": ["a"], "top_n": "2"}"#, "top_n: must be"),
        (r#"{"query": "q", "documents": ["a"], "top_n": 1.5}"#, "top_n: must be"),
        (r#"{"query": "q", "documents": ["a"], "max_tokens_per_doc": -1}"#, "max_tokens_per_doc: must be"),
        (r#"{"query": "q", "documents": ["a"], "truncate_prompt_tokens": -2}"#, "truncate_prompt_tokens: must be"),
        (r#"{"query": "q", "documents": ["a"], "truncation_side": "up"}"#, "truncation_side: must be left"),
        (r#"{"query": "q", "documents": ["a"], "rank_fields": "text"}"#, "rank_fields: must be a list"),
        (r#"{"query": "q", "documents": ["a"], "rerankd_method": "guess"}"#, "rerankd_method: unknown method"),
        (r#"{"query": "q", "document": ["a"]}"#, "documents: must be set; the body has \"document\""),
        (
            r#"{"query": "q", "documents": ["a"], "model": "bge", "rerankd_method": "moi"}"#,
            "rerankd_method: moi does not ask this model",
        ),
        (r#"{"query": "q", "documents": ["a"]"#, "body: is not a JSON object"),
        ("[]", "body: is not a JSON object"),
    ];
    for (body, message) in rows {
        let (shape, found) = refused(body);
        assert!(found.starts_with(message) && shape == Shape::Nested, "{body}: {found}");
    }
    let (shape, found) = refused(r#"{"query": "q", "texts": [{"image": "x"}]}"#);
    assert_eq!((shape, found.starts_with("texts[0].image: is not supported")), (Shape::Tei, true), "{found}");
}

/// Hand-written bodies and templates vary in letter case, and some begin with a byte-order mark.
#[test]
fn other_spellings_are_read() {
    let marked = read(
        "\u{feff}{\"query\": \"q\", \"documents\": [\"a\"], \"truncation_side\": \"LEFT\", \"truncate\": \"none\"}",
    );
    assert_eq!((marked.request.cut_side, marked.request.truncate), (CutSide::Beginning, Some(false)));
    for (value, truncate) in [("\"End\"", true), ("\"TRUE\"", true), ("\"False\"", false), ("true", true)] {
        let asked = read(&format!(r#"{{"query": "q", "documents": ["a"], "truncate": {value}}}"#));
        assert_eq!(asked.request.truncate, Some(truncate), "{value}");
    }
    for method in ["Query-Generation", "query_generation", "METHOD_QUERY_GENERATION"] {
        let asked = read(&format!(r#"{{"query": "q", "documents": ["a"], "rerankd_method": "{method}"}}"#));
        assert_eq!(asked.request.method, methods::find("query-generation"), "{method}");
    }
    let halves = read(r#"{"query": "q \udc00", "documents": ["a", "cut \ud83d"]}"#);
    assert_eq!(
        (halves.request.query.as_str(), halves.request.passages[1].text.as_str()),
        ("q \u{fffd}", "cut \u{fffd}")
    );
    let warned =
        ["query: half a surrogate pair was read as U+FFFD", "documents[1]: half a surrogate pair was read as U+FFFD"];
    assert_eq!(halves.warnings, warned);
}

/// The error must not quote a body that was encoded twice: it may be large and private.
#[test]
fn a_body_that_was_encoded_twice_is_refused() {
    let twice = serde_json::to_string(r#"{"query": "who?", "documents": ["secret text"]}"#).unwrap();
    let (_, found) = refused(&twice);
    assert!(found.starts_with("body: was encoded twice") && !found.contains("secret"), "{found}");
    for text in ["\"q\"", " \"{]\"", "\"q"] {
        assert!(refused(text).1.starts_with("body: is a JSON string"), "{text}");
    }
    assert!(refused("[1]").1.starts_with("body: is not a JSON object: invalid type"));
}
