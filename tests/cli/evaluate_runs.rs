//! `rerankd evaluate` on runs with texts in a folder and on partly labelled questions, and `rerankd metrics`.

use std::io::Write;
use std::path::Path;

use super::evaluate::FACTS;
use crate::program;
use program::{alone, arguments, error, run, succeeded};
use serde_json::{Value, json};

/// A folder as BEIR lays it out, with two runs over it.
fn beir(folder: &Path) {
    std::fs::create_dir_all(folder.join("qrels")).unwrap();
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).unwrap();
    let corpus = FACTS
        .iter()
        .enumerate()
        .map(|(at, fact)| format!("{}\n", json!({ "_id": format!("d{at}"), "title": "", "text": fact.2 })));
    write("corpus.jsonl", corpus.collect());
    let asked = FACTS.iter().take(3).enumerate();
    let queries = asked
        .map(|(at, fact)| format!("{}\n", json!({ "_id": format!("q{at}"), "text": fact.0, "answers": [fact.1] })));
    write("queries.jsonl", queries.collect());
    write("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq0\td0\t1\nq1\td1\t1\nq2\td2\t1\n".into());
    write(
        "good.run",
        "q0 Q0 d0 1 3 good\nq0 Q0 d1 2 2 good\nq1 Q0 d1 1 3 good\nq1 Q0 d4 2 2 good\nq2 Q0 d2 1 9 good\n".into(),
    );
    write("poor.run", "q0 Q0 d3 1 3 poor\nq0 Q0 d0 2 2 poor\nq1 Q0 d5 1 3 poor\nq7 Q0 d1 1 3 poor\n".into());
}

#[test]
fn runs_take_their_texts_from_a_folder_and_are_compared() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    beir(folder.path());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (data, good, poor, out) = (path(""), path("good.run"), path("poor.run"), path("out"));
    let output = run(&[arguments(&data, &out), vec!["--run", &good, "--run", &poor]].concat());
    // A query of a run without a text is a separate failure.
    assert_eq!(output.status.code(), Some(1), "{}", error(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let summary = &document["summary"];
    assert_eq!(summary["failed"], json!([{ "id": "q7", "error": "the file of queries has no text for it" }]));
    let of = |system: usize| {
        let rows = summary["systems"][system]["metrics"].as_array().unwrap();
        rows.iter().find(|row| row["annotator"] == "provenance" && row["metric"] == "RR").unwrap()["value"]
            .as_f64()
            .unwrap()
    };
    // The poor run has no list for q2: nothing was retrieved, which counts as 0.
    assert_eq!((of(0), of(1)), (1.0, 0.5 / 3.0));
    let row = summary["comparisons"][0]["differences"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["metric"] == "RR" && row["annotator"] == "provenance")
        .unwrap();
    assert_eq!((&row["wins"], &row["losses"]), (&json!(0), &json!(3)));
    let alone = run(&arguments(&data, &out));
    assert_eq!(alone.status.code(), Some(2));
    assert!(error(&alone).contains("a run is missing"), "{}", error(&alone));
}

/// Many documents of TREC-COVID have only a title.
#[test]
fn a_document_without_text_has_its_title_and_one_without_either_is_left_out() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    beir(folder.path());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut corpus = std::fs::File::options().append(true).open(path("corpus.jsonl")).unwrap();
    writeln!(corpus, "{}", json!({ "_id": "titled", "title": FACTS[0].2, "text": "" })).unwrap();
    writeln!(corpus, "{}", json!({ "_id": "blank", "title": "", "text": " " })).unwrap();
    std::fs::write(path("x.run"), "q0 Q0 blank 1 3 x\nq0 Q0 titled 2 2 x\nq0 Q0 d1 3 1 x\n").unwrap();
    let (data, out, file) = (path(""), path("out"), path("x.run"));
    let output = run(&[arguments(&data, &out), vec!["--run", &file]].concat());
    succeeded(&output);
    assert!(error(&output).contains("1 documents without title and text were left out"), "{}", error(&output));
    let line = std::fs::read_to_string(folder.path().join("out/results.jsonl")).unwrap();
    let line: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    assert_eq!(line["value"]["passages"], json!(["titled", "d1"]));
}

/// A question without labels must not count as one without a relevant passage.
#[test]
fn unlabelled_questions_are_left_out_of_provenance() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("q.jsonl"), folder.path().join("out"));
    let line = |id: &str, passage: Value| {
        format!("{}\n", json!({ "id": id, "question": FACTS[0].0, "answers": ["x"], "passages": [passage] }))
    };
    let lines = [
        line("one", json!({ "text": FACTS[0].2, "label": 1 })),
        line("none", json!({ "text": FACTS[0].2 })),
        line("bad", json!({ "text": FACTS[0].2, "label": 0 })),
    ];
    std::fs::write(&file, lines.concat()).unwrap();
    let output = run(&arguments(file.to_str().unwrap(), out.to_str().unwrap()));
    succeeded(&output);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = document["summary"]["systems"][0]["metrics"].as_array().unwrap();
    let row = rows.iter().find(|row| row["annotator"] == "provenance" && row["metric"] == "RR").unwrap();
    assert_eq!(row["value"], json!(0.5), "{row}");
}

/// Scores of two retrievers have no common scale.
#[test]
fn a_run_is_reranked_by_its_own_scores() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    beir(folder.path());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("bm25.run"), "q0 Q0 d1 1 20 bm25\nq0 Q0 d2 2 18 bm25\n").unwrap();
    std::fs::write(path("dense.run"), "q0 Q0 d1 1 0.9 dense\nq0 Q0 d3 2 0.8 dense\nq0 Q0 d2 3 0.7 dense\n").unwrap();
    let (data, out, bm25, dense) = (path(""), path("out"), path("bm25.run"), path("dense.run"));
    let both = ["--run", &bm25, "--run", &dense, "--method", "given", "--method", "retriever", "--no-end-to-end"];
    succeeded(&run(&[arguments(&data, &out), both.to_vec()].concat()));
    let line = std::fs::read_to_string(folder.path().join("out/results.jsonl")).unwrap();
    let line: Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    let ranking = |system: &str| line["value"]["systems"][system]["ranking"].clone();
    assert_eq!(ranking("dense+retriever"), ranking("dense"), "{line}");
    assert_eq!(ranking("bm25+retriever"), ranking("bm25"), "{line}");
}

#[test]
fn metrics_are_printed_as_trec_eval_prints_them_and_in_three_other_ways() {
    let folder = tempfile::tempdir().unwrap();
    beir(folder.path());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (judged, good, poor) = (path("qrels/test.tsv"), path("good.run"), path("poor.run"));
    let output = run(&["metrics", &judged, &poor, "-m", "num_q", "-m", "map", "-m", "P.1,2", "-q", "--format", "trec"]);
    let lines = "map                   \tq0\t0.5000\nP_1                   \tq0\t0.0000\nP_2                   \tq0\t0.5000\n\
                 map                   \tq1\t0.0000\nP_1                   \tq1\t0.0000\nP_2                   \tq1\t0.0000\n\
                 runid                 \tall\tpoor\nnum_q                 \tall\t2\n\
                 map                   \tall\t0.2500\nP_1                   \tall\t0.0000\nP_2                   \tall\t0.2500\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), lines);
    let said = error(&output);
    assert!(said.contains("poor: 1 judged queries have no results and are left out"), "{said}");
    assert!(said.contains("poor: 1 queries have no judgements and are left out"), "{said}");
    let complete = succeeded(&run(&["metrics", &judged, &poor, "-m", "AP", "-c", "--format", "json"]));
    assert_eq!(complete["runs"][0]["metrics"]["AP"]["value"], 0.5 / 3.0);
    let both =
        succeeded(&run(&["metrics", "--format", "json", &judged, &good, &poor, "-m", "nDCG@10", "--resamples", "0"]));
    assert_eq!(both["comparisons"][0]["metrics"]["nDCG@10"]["losses"], 3);
    assert_eq!(both["runs"][0]["metrics"]["nDCG@10"]["low"], Value::Null);
    let csv = run(&["metrics", &judged, &good, "-m", "RR", "--format", "csv", "--resamples", "0", "-q"]);
    let expected = "run,query,metric,value,low,high\ngood,all,RR,1,,\ngood,q0,RR,1,,\ngood,q1,RR,1,,\ngood,q2,RR,1,,\n";
    assert_eq!(String::from_utf8_lossy(&csv.stdout), expected);
    let table = run(&["metrics", &judged, &good, &poor, "--format", "table"]);
    assert!(String::from_utf8_lossy(&table.stdout).contains("poor against good (randomisation test)"));
}

#[test]
fn bad_input_of_both_names_the_place() {
    let folder = tempfile::tempdir().unwrap();
    beir(folder.path());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (judged, good, data, out) = (path("qrels/test.tsv"), path("good.run"), path(""), path("out"));
    std::fs::write(path("bad.run"), "q0 Q0 d0 1 0.5 x\nq0 Q0 d1 2\n").unwrap();
    std::fs::write(path("other.run"), "q9 Q0 d0 1 0.5 x\n").unwrap();
    std::fs::write(path("utf8.run"), b"q0 Q0 d0 1 0.5 x\n\xff\n").unwrap();
    std::fs::write(path("twice.jsonl"), "{\"id\":1,\"question\":\"a\"}\n{\"id\":1,\"question\":\"b\"}\n").unwrap();
    std::fs::write(path("ids.run"), "q0 Q0 doc0 1 0.5 x\n").unwrap();
    let (bad, other, utf8, twice) = (path("bad.run"), path("other.run"), path("utf8.run"), path("twice.jsonl"));
    let ids = path("ids.run");
    // Without a matching id every measure is 0, so the command warns.
    let unmatched = run(&["metrics", "--format", "json", &judged, &ids]);
    let warning = "ids.run: no document of the run is judged, so every measure is 0: for query \"q0\" the run has \"doc0\", the judgements have \"d0\"";
    assert!(unmatched.status.success() && error(&unmatched).contains(warning), "{}", error(&unmatched));
    let cases: [(Vec<&str>, &str); 13] = [
        // Judgements that the command names must exist.
        (vec!["evaluate", "--format", "json", &data, "--run", &good, "--split", "dve", "--out", &out], "--split dve: "),
        (vec!["evaluate", "--format", "json", &twice, "--qrels", &judged, "--out", &out], "--run <FILE>"),
        (vec!["metrics", "--format", "json", &judged, &bad], "bad.run:2: must have six columns"),
        (vec!["metrics", "--format", "json", &judged, &other], "no query of the run has judgements"),
        (vec!["metrics", "--format", "json", &judged, &utf8], "utf8.run:2: is not UTF-8"),
        (vec!["metrics", "--format", "json", &judged, "/nowhere.run"], "/nowhere.run: "),
        (vec!["metrics", "--format", "json", &judged, &good, "-m", "nDGC@10"], "metric \"nDGC@10\": is no metric"),
        (
            vec!["metrics", "--format", "json", &judged, &good, "--confidence", "95"],
            "--confidence: must lie between 0 and 1",
        ),
        (vec!["evaluate", "--format", "json", &twice, "--out", &out], "twice.jsonl:2: the id \"1\" is given twice"),
        (vec!["evaluate", "--format", "json", "--out", &out], "a file of questions, or a run (--run FILE), is missing"),
        (vec!["evaluate", "--format", "json", &data, "--run", &bad, "--out", &out], "bad.run:2"),
        (
            vec!["evaluate", "--format", "json", &data, "--run", &good, "--annotators", "f1", "--out", &out],
            "\"f1\" is not an annotator",
        ),
        (vec!["evaluate", "--format", "json", &data, "--run", &good, "-m", "P@x", "--out", &out], "metric \"P@x\""),
    ];
    for (arguments, problem) in cases {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(error(&output).contains(problem), "{arguments:?}: {}", error(&output));
    }
    let unreachable =
        run(&["evaluate", "--format", "json", &data, "--run", &good, "--server", "127.0.0.1:9", "--out", &out]);
    assert_eq!(unreachable.status.code(), Some(69));
}
