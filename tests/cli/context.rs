//! `rerankd context`, with the default generator.

use crate::program;
use program::{alone, error, run, succeeded};
use serde_json::json;

#[test]
fn a_context_is_the_text_alone_or_json() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("passages.jsonl");
    let texts = [
        "The lighthouse of Arden was built in 1871 by Moira Kell, {not} by her son.",
        "Sea otters wrap themselves in kelp before they sleep.",
        "the lighthouse of Arden was built in 1871 by Moira Kell, {not} by her son",
    ];
    let lines = texts.map(|text| json!({ "title": "Arden", "text": text }).to_string());
    std::fs::write(&path, lines.join("\n")).unwrap();
    let file = path.to_str().unwrap();
    let asked = ["context", "--query", "who built the lighthouse?", file, "--max-tokens", "40", "--only-helpful"];
    let shown = run(&asked);
    assert!(shown.status.success(), "{}", error(&shown));
    let document = succeeded(&run(&[&asked[..], &["--format", "json"]].concat()));
    let text = document["text"].as_str().unwrap();
    assert_eq!(String::from_utf8_lossy(&shown.stdout), format!("{text}\n"));
    assert!(text.starts_with("[1] Arden\n"), "{text}");
    assert!(error(&shown).contains("1 near-duplicate"), "{}", error(&shown));
    let tokens = document["tokens"].as_u64().unwrap();
    assert!((1..=40).contains(&tokens), "{tokens}");
    let first = &document["passages"][0];
    let place = |name: &str| usize::try_from(first[name].as_u64().unwrap()).unwrap();
    let index = place("original_index");
    assert_eq!(&text[place("start")..place("end")], texts[index]);
    assert_eq!(first["duplicates"], json!([2 - index]));
    let left_out = document["left_out"].as_array().unwrap();
    assert!(left_out.iter().any(|one| one["reason"] == "LEFT_OUT_REASON_DUPLICATE" && one["duplicate_of"] == index));
}

#[test]
fn mistakes_are_found_before_a_model_is_loaded() {
    let rows: [(&[&str], &str); 4] = [
        (&["--template", "{body}"], "template: byte 0: unknown field \"body\""),
        (&["--dedup", "push-down"], "dedup.mode: near-duplicates cannot be pushed down in a context"),
        (&["--ratio", "0.5"], "need --compress"),
        (&["--max-tokens", "5", "--max-characters", "5"], "cannot be used with"),
    ];
    for (options, problem) in rows {
        let refused = run(&[&["context", "--query", "q", "none.jsonl"], options].concat());
        assert_eq!(refused.status.code(), Some(2));
        assert!(error(&refused).contains(problem), "{}", error(&refused));
    }
}
