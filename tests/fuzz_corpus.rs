//! The fuzz targets on the stored inputs (fuzz/corpus). `make fuzz` looks for new inputs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    clippy::items_after_statements,
    clippy::similar_names,
    clippy::too_many_lines,
    missing_docs,
    reason = "a test or benchmark that fails says where; its numbers are small"
)]

#[path = "../fuzz/entry/mod.rs"]
mod entry;
#[path = "common/fuzz_tasks.rs"]
mod tasks;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use entry::files::written;
use prost::Message;
use protocol::{DESCRIPTORS, tei_v1, v1};
use serde_json::{Value, json};

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

fn replay(target: &str) {
    let (_, run) = entry::TARGETS.into_iter().find(|(name, _)| *name == target).unwrap();
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder(target)).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 5, "{target} has {} inputs", files.len());
    for file in files {
        let input = std::fs::read(&file).unwrap();
        assert!(std::panic::catch_unwind(|| run(&input)).is_ok(), "{} fails", file.display());
    }
}

#[test]
fn kept_messages() {
    replay("grpc");
}

#[test]
fn kept_bodies() {
    replay("http");
}

#[test]
fn kept_states() {
    replay("states");
}

#[test]
fn kept_files() {
    replay("files");
    replay("gguf");
}

/// Every method of the protocol is fuzzed and has an input.
#[test]
fn every_method_is_fuzzed() {
    let protocol = prost_types::FileDescriptorSet::decode(DESCRIPTORS).unwrap();
    let mut methods = BTreeSet::new();
    for file in &protocol.file {
        for service in &file.service {
            for method in &service.method {
                methods.insert(format!("{}.{}/{}", file.package(), service.name(), method.name()));
            }
        }
    }
    let fuzzed: BTreeSet<String> = entry::grpc::METHODS.iter().map(ToString::to_string).collect();
    assert_eq!(methods, fuzzed);
    let of_tasks = tasks::messages(passages()).map(|(_, method, _)| method);
    let named = messages().into_iter().map(|(method, _)| method).chain(of_tasks).map(str::to_owned);
    assert_eq!(named.collect::<BTreeSet<String>>(), fuzzed);
}

/// The inputs made by hand equal newly made ones, so a changed message format is noticed.
#[test]
fn the_inputs_made_by_hand_are_kept() {
    for (target, name, input) in seeds() {
        let kept = std::fs::read(folder(target).join(&name));
        assert_eq!(kept.ok(), Some(input), "{target}/{name}: write_the_seeds writes it");
    }
}

/// Writes the inputs that are made by hand: `cargo test --release --test fuzz_corpus -- --ignored`.
#[test]
#[ignore = "writes files of the repository"]
fn write_the_seeds() {
    for (target, name, input) in seeds() {
        std::fs::create_dir_all(folder(target)).unwrap();
        std::fs::write(folder(target).join(name), input).unwrap();
    }
}

fn passages() -> Vec<v1::Passage> {
    let texts = ["George Eliot wrote it in 1871.", "Bananas are yellow.", "It appeared in eight parts."];
    let passage = |(at, text): (usize, &&str)| v1::Passage {
        id: format!("p{at}"),
        text: (*text).to_owned(),
        title: "Middlemarch".into(),
        retriever_score: Some(3.5 - at as f64),
    };
    texts.iter().enumerate().map(passage).collect()
}

fn rerank(method: v1::Method) -> v1::RerankRequest {
    v1::RerankRequest {
        query: "who wrote it?".into(),
        passages: passages(),
        method: method.into(),
        top_n: 2,
        return_passages: true,
        ..v1::RerankRequest::default()
    }
}

/// A request with an instruction and examples.
fn opened() -> v1::RerankRequest {
    let example = v1::Example { passage: "It rained.".into(), query: "weather?".into(), passage_title: "Rain".into() };
    v1::RerankRequest {
        instruction: "Write a claim.".into(),
        examples: vec![example; 2],
        ..rerank(v1::Method::Cascade)
    }
}

/// At least one valid message of every method.
fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let sampling = v1::SamplingOptions {
        samples: 2,
        max_tokens: 6,
        temperature: Some(0.5),
        stop: vec!["\n".into()],
        ..v1::SamplingOptions::default()
    };
    let moi = v1::MoiOptions { orders: 4, seed: 7, monotone: true, ..v1::MoiOptions::default() };
    let question = "who wrote it?".to_owned();
    let measure = v1::MeasureUtilityRequest {
        question: question.clone(),
        passages: passages(),
        references: vec!["George Eliot".into()],
        measure_each: true,
        subsets: vec![v1::PassageSubset { indices: vec![0, 2] }],
        sampling: Some(sampling.clone()),
        ..v1::MeasureUtilityRequest::default()
    };
    let evaluate = v1::EvaluateRetrievalRequest {
        question: question.clone(),
        passages: passages(),
        references: vec!["George Eliot".into()],
        metrics: vec!["nDCG@2".into()],
        end_to_end: true,
        answer_tokens: 4,
        ..v1::EvaluateRetrievalRequest::default()
    };
    let document = |id: &str, score: f64| v1::RankedDocument { id: id.into(), score: Some(score), label: None };
    let ranked = v1::RankedQuery {
        id: "q".into(),
        documents: vec![document("a", 2.0), document("b", 1.0)],
        judgements: [("b".to_owned(), 1.0)].into(),
        ..v1::RankedQuery::default()
    };
    let order = |passages: &[u32], score: f64| v1::ScoredOrder { passages: passages.to_vec(), score };
    let scored = |relevant: &[bool], response_score: f64| v1::ScoredList {
        relevant: relevant.to_vec(),
        cutoff: 2,
        positives: Some(2),
        response_score,
    };
    let pair = v1::EntailmentPair { premise: "it is yellow".into(), hypothesis: "yellow".into() };
    let tei = tei_v1::RerankRequest {
        query: question.clone(),
        texts: vec!["George Eliot".into(), "Bananas".into()],
        return_text: true,
        ..tei_v1::RerankRequest::default()
    };
    let text = tei_v1::RerankStreamRequest { query: question.clone(), text: "Bananas".into(), ..Default::default() };
    let all = v1::RerankRequest { moi: Some(moi), ..rerank(v1::Method::Moi) };
    vec![
        ("rerankd.v1.RerankService/Rerank", all.encode_to_vec()),
        ("rerankd.v1.RerankService/Rerank", rerank(v1::Method::Pairwise).encode_to_vec()),
        (
            "rerankd.v1.RerankService/WatchRerank",
            v1::WatchRerankRequest { request: Some(rerank(v1::Method::QueryGeneration)) }.encode_to_vec(),
        ),
        (
            "rerankd.v1.RerankService/RerankStream",
            v1::RerankStreamRequest { request_id: "a".into(), request: Some(rerank(v1::Method::YesNo)) }
                .encode_to_vec(),
        ),
        ("rerankd.v1.RerankService/WarmPassages", v1::WarmPassagesRequest { passages: passages() }.encode_to_vec()),
        (
            "rerankd.v1.BeliefService/Sample",
            v1::SampleRequest { question, passages: passages(), sampling: Some(sampling), ..Default::default() }
                .encode_to_vec(),
        ),
        (
            "rerankd.v1.BeliefService/Entail",
            v1::EntailRequest { pairs: vec![pair], ..Default::default() }.encode_to_vec(),
        ),
        (
            "rerankd.v1.BeliefService/Cluster",
            v1::ClusterRequest { texts: vec!["a b".into(), "b a".into(), "c".into()], ..Default::default() }
                .encode_to_vec(),
        ),
        ("rerankd.v1.UtilityService/MeasureUtility", measure.encode_to_vec()),
        (
            "rerankd.v1.UtilityService/MeasureUtilityStream",
            v1::MeasureUtilityStreamRequest { id: "a".into(), request: Some(measure) }.encode_to_vec(),
        ),
        ("rerankd.v1.UtilityService/EvaluateRetrieval", evaluate.encode_to_vec()),
        (
            "rerankd.v1.UtilityService/EvaluateRetrievalStream",
            v1::EvaluateRetrievalStreamRequest { id: "a".into(), request: Some(evaluate) }.encode_to_vec(),
        ),
        (
            "rerankd.v1.MetricsService/EvaluateRanking",
            v1::EvaluateRankingRequest { queries: vec![ranked], metrics: vec!["AP".into()], ..Default::default() }
                .encode_to_vec(),
        ),
        (
            "rerankd.v1.MetricsService/Correlate",
            v1::CorrelateRequest {
                target: vec![1.0, 2.0, 3.0],
                series: vec![v1::Series { name: "s".into(), values: vec![1.0, 3.0, 2.0] }],
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "rerankd.v1.MetricsService/ChooseAlpha",
            v1::ChooseAlphaRequest {
                lists: vec![scored(&[true, false], 2.0), scored(&[true, true], 5.0)],
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "rerankd.v1.MetricsService/FitMoi",
            v1::FitMoiRequest {
                passages: 3,
                orders: vec![order(&[0, 1, 2], -2.0), order(&[1, 2, 0], -3.0), order(&[2, 0, 1], -4.0)],
                lam: Some(0.1),
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        ("rerankd.v1.ModelService/GetServerInfo", Vec::new()),
        ("rerankd.v1.ModelService/GetPositionBias", v1::GetPositionBiasRequest::default().encode_to_vec()),
        ("tei.v1.Info/Info", Vec::new()),
        ("tei.v1.Rerank/Rerank", tei.encode_to_vec()),
        ("tei.v1.Rerank/RerankStream", text.encode_to_vec()),
    ]
}

/// Target, name and content of every input that is made by hand.
fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut seeds = Vec::new();
    let small = |number: usize| u8::try_from(number).unwrap();
    let numbered = messages().into_iter().enumerate().map(|(at, (method, message))| (at.to_string(), method, message));
    let of_tasks = tasks::messages(passages()).map(|(name, method, message)| (name.to_owned(), method, message));
    for (name, method, message) in numbered.chain(of_tasks) {
        let number = small(entry::grpc::METHODS.iter().position(|known| *known == method).unwrap());
        let form = u8::from(method.ends_with("Stream"));
        seeds.push(("grpc", format!("message-{name}"), [&[number, form], &message[..]].concat()));
    }
    let gzip = [1, 0, 0, 0, 4, 0x1f, 0x8b, 8, 0];
    seeds.push(("grpc", "frames".into(), [&[0, 2, 0, 0, 0, 0, 2, 0x0a, 0, 0, 0, 0, 0, 0][..]].concat()));
    seeds.push(("grpc", "opening".into(), [&[0, 0][..], &opened().encode_to_vec()].concat()));
    seeds.push(("grpc", "gzip".into(), [&[0, 3][..], &gzip].concat()));
    let body = |value: Value| value.to_string().into_bytes();
    let documents = json!(["George Eliot", { "title": "fruit", "text": "Bananas" }]);
    for (path, name, text) in [
        (
            0,
            "cohere",
            body(json!({ "model": "rerank-v3.5", "query": "who?", "documents": documents, "top_n": 1,
            "return_documents": true, "rank_fields": ["title", "text"], "max_chunks_per_doc": 3 })),
        ),
        (
            1,
            "cohere-2",
            body(json!({ "model": "rerank-v3.5", "query": "who?", "documents": ["a", "b"],
            "max_tokens_per_doc": 64 })),
        ),
        (
            2,
            "tei",
            body(json!({ "query": "who?", "texts": ["a", "b"], "raw_scores": true, "return_text": true,
            "truncate": true, "truncation_direction": "left" })),
        ),
        (2, "vllm", body(json!({ "query": { "text": "who?" }, "documents": documents, "truncate_prompt_tokens": 9 }))),
        (3, "llama", body(json!({ "query": "who?", "documents": ["a", "b"], "top_n": 0 }))),
        (5, "score", body(json!({ "text_1": "who?", "text_2": ["a", "b"] }))),
        (6, "score-pairs", body(json!({ "queries": ["who?", "what?"], "items": ["a", "b"] }))),
        (4, "no-object", body(json!([1, null]))),
        (
            10,
            "context",
            body(json!({ "query": "who?", "documents": documents, "max_tokens": 9, "template": "<{n}> {text} {{}}",
            "separator": "\n", "max_per_source": 1, "tokenizer": "o", "compression": { "ratio": 0.5 }, "rerankd_dedup": "one-place", "rerankd_dedup_similarity": 0.5 })),
        ),
        (
            0,
            "escapes",
            br#"{"query": "\ud83d\ude00 \u00e9", "documents": ["\n", {"text": null}], "top_n": 1e3}"#.to_vec(),
        ),
    ] {
        seeds.push(("http", name.to_owned(), [&[path], &text[..]].concat()));
    }
    let state = [vec![2], b"rrkwarm\n".to_vec(), vec![1, 0, 0, 0], vec![7; 32], vec![3, 0, 0, 0, 0, 0, 0, 0]].concat();
    seeds.push(("states", "another-key".into(), [&state[..], b"abc"].concat()));
    for (name, input) in [("empty", &[0][..]), ("state", b"\x01abc"), ("no-state", b"\x01"), ("gguf", b"\x00GGUF")] {
        seeds.push(("states", name.to_owned(), input.to_vec()));
    }
    for (kind, name, text) in [
        (
            "labelled lists",
            "labelled",
            r#"{"id": "q", "question": "who?", "relevant": 2, "passages": [{"text": "a", "label": 1, "score": 2.5}, {"text": "b", "supporting": false}]}"#,
        ),
        (
            "questions",
            "questions",
            r#"{"qid": 3, "query": "who?", "references": ["x"], "passages": [{"contents": "a", "relevant": true}]}"#,
        ),
        ("passages", "passages", "\"a text\"\n\n{\"id\": 7, \"text\": \"b\", \"title\": \"t\", \"score\": -1.5}\n"),
        ("run", "run-trec", "q1 Q0 d1 1 2.5 tag\nq1 Q0 d2 2 1.5 tag\n"),
        ("run", "run-json", r#"{"q1": {"d1": 2.5, "d2": 1}}"#),
        ("judgements", "judgements-trec", "q1 0 d1 1\nq1 0 d2 0\n"),
        ("judgements", "judgements-beir", "query-id\tcorpus-id\tscore\r\nq1\td1\t2\r\n"),
        ("profiles", "profiles", r#"{"format": 3, "profiles": []}"#),
        (
            "calibrations",
            "calibrations",
            r#"{"format": 1, "calibrations": [{"method": "cascade", "mix": {"source": "bm25", "weight": 0.5, "embedding": 0.75}, "score": {"intercept": -5.25, "slope": 3.5}, "lists": 80, "passages": 1600, "outranks_per_nat": 0.6, "calibration_error": 0.3}]}"#,
        ),
        ("tokens", "tokens", "# callers\nsearch:0000000000000000000000000000000000000000000000000000000000000000\n"),
        (
            "catalogue",
            "catalogue",
            "[[model]]\nname = 'x'\nrole = 'generator'\nfile = 'x.gguf'\nbytes = 1\nsha256 = '0000000000000000000000000000000000000000000000000000000000000000'\nlicence = 'none'\nsources = [{ kind = 'hub', repository = 'a/b', revision = 'v1', file = 'x.gguf' }]\n",
        ),
        (
            "configuration",
            "configuration",
            "[server]\nlisten = '127.0.0.1:0'\ndrain_seconds = 3\n[limits]\npassages = 7\n[generator]\nbatch = 64\n[log]\nfilter = 'warn'\n",
        ),
        (
            "queries",
            "queries-json",
            "{\"_id\":\"a\",\"text\":\"Who?\",\"answers\":[\"she\"]}\n{\"qid\":2,\"query\":null}\n",
        ),
        ("queries", "queries-tabs", "# ids\n#1\tWho?\tshe\na\tWhen?\n"),
        (
            "documents",
            "documents",
            "{\"_id\":\"a\",\"title\":\"T\",\"content\":[\"x\",{\"text\":\"y\"}]}\nbroken\n{\"docno\":\"b\",\"text\":5}\n",
        ),
        (
            "citing answers",
            "citing",
            "{\"output\":\"It is [1].\",\"answer\":\"x\",\"docs\":[\"a\",{\"title\":\"T\"}],\"system\":\"s\"}\n",
        ),
        (
            "judged answers",
            "judged",
            "{\"question\":\"Who?\",\"golden_answer\":\"Ada/A.\",\"answer_a\":\"Ada\",\"judge_a\":true}\n",
        ),
        ("examples", "examples", "{\"passage\":\"It rained.\",\"query\":\"weather?\",\"passage_title\":null}\n"),
    ] {
        let number = small(entry::files::KINDS.iter().position(|(known, _)| *known == kind).unwrap());
        seeds.push(("files", name.to_owned(), [&[number], text.as_bytes()].concat()));
    }
    for (name, tensors, shape) in
        [("no-tensor", 0, 0), ("tensor", 1, 64), ("many", u64::MAX / 2, 64), ("wide", 1, 1 << 40)]
    {
        seeds.push(("gguf", name.to_owned(), gguf(tensors, shape)));
    }
    seeds.push(("gguf", "magic".into(), b"GGUF".to_vec()));
    seeds.push(("gguf", "adapter".into(), adapter()));
    seeds
}

/// A valid adapter of the target's model.
fn adapter() -> Vec<u8> {
    let factors = written::factors("blk.0.attn_q.weight", 4, 4, 1, 0.5);
    written::bytes(&written::adapter_values("llama", 8.0), &factors)
}

/// A seed that is refused early would not reach the later checks.
#[test]
fn the_seed_of_an_adapter_passes_every_check() {
    let kept = folder("gguf").join("adapter");
    assert_eq!(std::fs::read(&kept).unwrap(), adapter());
    entry::files::adapts(&kept).unwrap();
}

/// A header that states this many tensors and describes at most one, a square of four-byte numbers.
fn gguf(tensors: u64, shape: u64) -> Vec<u8> {
    let mut bytes = [&b"GGUF"[..], &3_u32.to_le_bytes(), &tensors.to_le_bytes(), &1_u64.to_le_bytes()].concat();
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    };
    // One string of metadata: type 8.
    text(&mut bytes, "general.architecture");
    bytes.extend(8_u32.to_le_bytes());
    text(&mut bytes, "none");
    if tensors > 0 {
        text(&mut bytes, "x.weight");
        bytes.extend(2_u32.to_le_bytes());
        bytes.extend([shape, shape].iter().flat_map(|length| length.to_le_bytes()));
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
    }
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    bytes
}
