//! `rerankd lists`

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::cli::{Failure, output};
use engine::types::Passage;
use lab::evaluation::data::{Data, Query, Sources};

/// Join a run with its texts and judgements into lists.
///
/// Prints one JSON object per line, with the passages in the run's order, for `compare`, `calibrate --ranking`, `rerank
/// --lists`, `evaluate`, `analyse` and `warm`. Labels come from the judgements; an unjudged document has 0. A document
/// without a text has its title as text. A document without either is left out.
///
/// A query without text, or with a missing document, is reported and left out; the command then exits with 1. An
/// unreadable line affects only its document. docs/reference/formats.md describes the files.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rerankd lists scifact/ --run bm25.run > scifact.jsonl\n  \
                        rerankd lists --run bm25.run --queries queries.tsv --corpus corpus.jsonl.gz --qrels qrels.txt > lists.jsonl\n  \
                        rerankd compare scifact.jsonl")]
pub(in crate::cli) struct ListsArgs {
    /// Folder in BEIR's layout, with queries.jsonl, corpus.jsonl and qrels/.
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// The run (TREC or JSON).
    #[arg(long, value_name = "FILE")]
    run: PathBuf,
    /// Queries: JSON lines with "_id", "text" and optionally "answers", or lines of id, tab, text, and answers after tabs.
    #[arg(long, value_name = "FILE")]
    queries: Option<PathBuf>,
    /// Documents: JSON lines with "_id", "text" and optionally "title".
    #[arg(long, value_name = "FILE")]
    corpus: Option<PathBuf>,
    /// Judgements: TREC's, BEIR's, or JSON.
    #[arg(long, value_name = "FILE")]
    qrels: Option<PathBuf>,
    /// Split of the folder's judgements.
    #[arg(long, default_value = "test")]
    split: String,
    /// Number of documents taken from each list.
    #[arg(long, value_name = "DOCUMENTS", default_value_t = 20)]
    depth: usize,
    /// Use the first N queries.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Least label of a document that counts as relevant in the whole collection.
    #[arg(long, value_name = "LABEL", default_value_t = 0.5, value_parser = crate::cli::above_zero)]
    relevance_threshold: f64,
    /// Keep queries without judgements, without labels. By default they are left out if other queries have judgements.
    #[arg(long)]
    unjudged: bool,
}

/// A line.
#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    question: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    answers: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    relevant: Option<usize>,
    passages: Vec<Listed<'a>>,
}

#[derive(Serialize)]
struct Listed<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    title: &'a str,
    text: &'a str,
    score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<f64>,
}

/// Most faulty queries that are listed.
const LISTED: usize = 20;

/// The lines, and the counts of omissions.
#[derive(Debug, Default)]
struct Written {
    lines: Vec<String>,
    /// Queries at fault, with the reason.
    faults: Vec<String>,
    unjudged: usize,
    /// Documents without title and text.
    blank: usize,
    /// Queries without a document that has a text.
    empty: usize,
}

pub(super) fn run(args: &ListsArgs) -> Result<(), Failure> {
    let sources = Sources {
        data: args.folder.clone(),
        runs: vec![args.run.clone()],
        queries: args.queries.clone(),
        corpus: args.corpus.clone(),
        qrels: args.qrels.clone(),
        split: args.split.clone(),
        depth: args.depth,
        limit: args.limit,
    };
    let data = sources.load()?;
    output::warn(&data.warnings);
    let written = written(&data, args.relevance_threshold, args.unjudged)?;
    for line in &written.lines {
        if !output::stream(line)? {
            return Ok(());
        }
    }
    for fault in written.faults.iter().take(LISTED) {
        output::complain(fault);
    }
    let notes = [
        (written.faults.len().saturating_sub(LISTED), "more queries were left out for such reasons"),
        (written.unjudged, "queries without judgements were left out; --unjudged keeps them"),
        (written.blank, "documents without title and text were left out"),
        (written.empty, "queries without a document that has a text were left out"),
        (data.unlisted, "judged queries are not in the run"),
    ];
    for (count, what) in notes.into_iter().filter(|(count, _)| *count > 0) {
        output::complain(&format!("{count} {what}"));
    }
    match written.faults.len() {
        0 => Ok(()),
        faults => Err(Failure::Other(anyhow::anyhow!("{faults} of {} queries were left out", data.queries.len()))),
    }
}

fn written(data: &Data, threshold: f64, unjudged: bool) -> Result<Written, Failure> {
    let mut written = Written::default();
    for query in &data.queries {
        if let Some(fault) = &query.fault {
            written.faults.push(format!("query {}: {fault}", query.id));
        } else if query.question.trim().is_empty() {
            written.faults.push(format!("query {}: its text is empty", query.id));
        } else if data.judged && query.provenance.is_none() && !unjudged {
            written.unjudged += 1;
        } else {
            let passages = passages(query);
            written.blank += query.blank;
            if passages.is_empty() {
                written.empty += 1;
                continue;
            }
            let relevant = |labels: &Vec<f64>| labels.iter().filter(|label| **label >= threshold).count();
            let line = Line {
                id: &query.id,
                question: &query.question,
                answers: &query.references,
                relevant: query.judged.as_ref().map(relevant),
                passages,
            };
            let line = serde_json::to_string(&line).map_err(anyhow::Error::from)?;
            written.lines.push(line + "\n");
        }
    }
    Ok(written)
}

/// The passages of the one run, in its order.
fn passages(query: &Query) -> Vec<Listed<'_>> {
    let list = query.lists.iter().flat_map(|list| list.passages.iter().zip(&list.scores));
    let listed = list.map(|(index, score)| {
        let Passage { id, title, text, .. } = &query.passages[*index];
        let label = query.provenance.as_ref().map(|labels| labels[*index]);
        Listed { id, title, text, score: *score, label }
    });
    listed.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::odd;
    use files::Warnings;
    use files::{self, Empty, labelled};
    use lab::evaluation::data::List;

    /// A folder in BEIR's layout with a run.
    fn folder(qrels: bool) -> (tempfile::TempDir, Sources) {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write(
            "queries.jsonl",
            "{\"_id\": \"q1\", \"text\": \"Who?\", \"answers\": [\"she\"]}\n{\"_id\": \"q2\", \"text\": \"When?\"}\n",
        );
        write(
            "corpus.jsonl",
            "{\"_id\": \"a\", \"title\": \"A\", \"text\": \"one\"}\n{\"_id\": \"b\", \"title\": \"B alone\", \"text\": \"\"}\n\
             {\"_id\": \"c\", \"text\": \" \"}\n{\"_id\": \"d\", \"text\": \"four\"}\n",
        );
        write("x.run", "q1 Q0 a 1 3.5 x\nq1 Q0 b 2 2.5 x\nq1 Q0 c 3 1.5 x\nq2 Q0 d 1 1 x\nq3 Q0 d 1 1 x\n");
        if qrels {
            std::fs::create_dir(folder.path().join("qrels")).unwrap();
            write("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\tb\t2\nq1\tz\t1\nq1\ta\t0\nq3\td\t1\nq9\td\t1\n");
        }
        let sources = Sources {
            data: Some(folder.path().to_owned()),
            runs: vec![folder.path().join("x.run")],
            queries: None,
            corpus: None,
            qrels: None,
            split: "test".to_owned(),
            depth: 20,
            limit: None,
        };
        (folder, sources)
    }

    #[test]
    fn a_run_becomes_lists_that_compare_reads() {
        let (folder, sources) = folder(true);
        let data = sources.load().unwrap();
        let written = written(&data, 0.5, false).unwrap();
        assert_eq!((written.unjudged, written.blank, written.empty, data.unlisted), (1, 1, 0, 1));
        assert_eq!(written.faults, ["query q3: the file of queries has no text for it"]);
        let file = folder.path().join("lists.jsonl");
        std::fs::write(&file, written.lines.concat()).unwrap();
        let lists = labelled::lists(&file, 0.5, Empty::Ranked, &mut Warnings::default()).unwrap();
        assert_eq!(lists.len(), 1);
        let list = &lists[0];
        // z is relevant, and the run lacks it.
        assert_eq!((list.id.as_str(), list.question.as_str(), list.relevant), ("q1", "Who?", Some(2)));
        assert_eq!((&list.answers, &list.labels), (&vec!["she".to_owned()], &vec![0.0, 2.0]));
        let [first, second] = list.passages.as_slice() else { panic!("{list:?}") };
        assert_eq!((first.id.as_str(), first.title.as_str(), first.text.as_str()), ("a", "A", "one"));
        assert_eq!((second.title.as_str(), second.text.as_str()), ("", "B alone"));
        assert_eq!((first.retriever_score, second.retriever_score), (Some(3.5), Some(2.5)));
        assert_eq!(super::written(&data, 1.5, false).unwrap().lines[0].matches("\"relevant\":1").count(), 1);
        assert_eq!(super::written(&data, 0.5, true).unwrap().lines.len(), 2);
    }

    #[test]
    fn lists_of_no_documents_are_refused() {
        let (_folder, sources) = folder(true);
        let refused = Sources { depth: 0, ..sources }.load().err().unwrap().to_string();
        assert_eq!(refused, "--depth: must be at least 1");
    }

    /// Unjudged queries must not be written without labels, even if they come first.
    #[test]
    fn unjudged_queries_are_left_out_if_others_are_judged() {
        let (folder, sources) = folder(true);
        let only = "{\"_id\": \"q2\", \"text\": \"When?\"}\n{\"_id\": \"q1\", \"text\": \"Who?\"}\n";
        std::fs::write(folder.path().join("queries.jsonl"), only).unwrap();
        let data = Sources { limit: Some(1), ..sources }.load().unwrap();
        let left_out = written(&data, 0.5, false).unwrap();
        assert_eq!((left_out.lines.len(), left_out.unjudged), (0, 1));
        assert_eq!(written(&data, 0.5, true).unwrap().lines.len(), 1);
    }

    #[test]
    fn lists_without_judgements_have_no_labels() {
        let (folder, sources) = folder(false);
        let written = written(&sources.load().unwrap(), 0.5, false).unwrap();
        assert_eq!((written.lines.len(), written.unjudged), (2, 0));
        assert!(!written.lines.concat().contains("label"), "{:?}", written.lines);
        let file = folder.path().join("lists.jsonl");
        std::fs::write(&file, written.lines.concat()).unwrap();
        assert_eq!(files::questions(&file, Empty::Ranked, &mut Warnings::default()).unwrap().len(), 2);
    }

    proptest! {
        /// The readers of lists read the output of `lists`.
        #[test]
        fn lists_are_read_as_they_were_written(
            ids in odd::ids(), documents in odd::ids(), question in odd::words(), text in odd::words(),
            title in odd::words(), answers in prop::collection::vec(odd::words(), 0..3), label in odd::number(), score in odd::number(),
        ) {
            let label = label.abs();
            let passage = |id: &String| Passage { id: id.clone(), title: title.clone(), text: text.clone(), retriever_score: None };
            let query = |id: &String| Query {
                id: id.clone(),
                question: question.clone(),
                references: answers.clone(),
                passages: documents.iter().map(passage).collect(),
                provenance: Some(vec![label; documents.len()]),
                lists: vec![List { passages: (0..documents.len()).collect(), scores: vec![Some(score); documents.len()], ..List::default() }],
                ..Query::default()
            };
            let data = Data { queries: ids.iter().map(query).collect(), judged: true, ..Data::default() };
            let file = written(&data, 0.5, false).unwrap().lines.concat();
            let mut warnings = Warnings::default();
            let read = odd::in_file(&file, |path| labelled::lists(path, 0.5, Empty::Ranked, &mut warnings).unwrap());
            prop_assert_eq!(read.iter().map(|list| &list.id).collect::<Vec<_>>(), ids.iter().collect::<Vec<_>>());
            let [title, text] = [&title, &text].map(|text| odd::unmarked(text).to_owned());
            let passage = |id: &String| Passage { id: id.clone(), title: title.clone(), text: text.clone(), retriever_score: Some(score) };
            let expected: Vec<Passage> = documents.iter().map(passage).collect();
            for list in &read {
                prop_assert_eq!((&list.question, &list.answers, &list.passages), (&question, &answers, &expected));
                prop_assert_eq!(&list.labels, &vec![label; documents.len()]);
            }
            let asked = odd::in_file(&file, |path| files::questions(path, Empty::Ranked, &mut warnings).unwrap());
            prop_assert_eq!(asked.len(), read.len());
            for (question, list) in asked.iter().zip(&read) {
                prop_assert_eq!((question.id.as_ref(), &question.passages), (Some(&list.id), &list.passages));
                prop_assert_eq!((&question.question, &question.labels), (&list.question, &list.labels));
            }
            prop_assert_eq!(warnings.lines().count(), 0);
        }
    }
}
