//! `rerankd rerank --lists`: a file of queries, each with its passages.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use super::rerank::{Format, RerankArgs};
use super::{Failure, backend, input, output};
use crate::config::Config;
use engine::types::RerankRequest;
use files::{Empty, Warnings, trec};
use protocol::client::ClientError;
use protocol::v1;
use rag_metrics::quoted;

/// Reranks the lists, one after the other or several at once, and prints them in input order. `options` is the request
/// without query and passages.
pub(super) async fn run(
    args: &RerankArgs,
    file: &Path,
    config: &Config,
    options: RerankRequest,
) -> Result<(), Failure> {
    if args.format == Some(Format::Table) {
        return Err(Failure::Input("--format table: is for one list; --lists prints json or trec".into()));
    }
    let is_trec = args.format == Some(Format::Trec);
    let mut warnings = Warnings::default();
    let lists = read(file, is_trec.then_some(args.tag.as_str()), &mut warnings)?;
    output::warn(&warnings);
    // States of passages are cached, because lists of one collection share passages.
    let client = backend::open(args.server.as_deref(), &args.connection, config).await?.patient();
    let (bar, count) = (output::progress(lists.len(), "lists"), lists.len());
    let (mut refused, mut answered, mut uncalibrated, mut first) = (0, 0, Vec::new(), None);
    let answers = stream::iter(lists).map(async |(id, list): (String, input::Question)| {
        let request = RerankRequest { query: list.question, passages: list.passages, ..options.clone() };
        let answer = match list.fault {
            Some(fault) => Err(ClientError::input(fault)),
            None => client.rerank(&request).await,
        };
        (id, list.line, request, answer)
    });
    let mut answers = std::pin::pin!(answers.buffered(args.concurrency));
    while let Some((id, line, request, answer)) = answers.next().await {
        let mut left_out = |problem: String| {
            refused += 1;
            bar.suspend(|| output::complain(&format!("{}:{}: {problem}", input::name(file), line)));
            String::new()
        };
        let text = match answer {
            Ok(answer) if is_trec => {
                answered += 1;
                lines(&id, &answer, &args.tag)?
            }
            Ok(answer) => {
                answered += 1;
                let answer = output::rerank_json(&answer, args.texts.then_some(&request));
                format!("{}\n", named(&id, answer))
            }
            Err(error) if error.is_input() => left_out(error.to_string()),
            // Calibrations depend on the list, so a single list may have none. If no list has one, that is reported once.
            Err(error) if request.auto_k && error.is_precondition() => {
                if uncalibrated.is_empty() {
                    first = Some(error);
                }
                uncalibrated.push(line);
                String::new()
            }
            Err(error) => {
                bar.finish_and_clear();
                output::complain(&format!("{} of {count} lists were done", bar.position()));
                return Err(error.into());
            }
        };
        if !bar.suspend(|| output::stream(&text))? {
            break;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    match first {
        Some(error) if answered == 0 => return Err(error.into()),
        Some(error) => {
            let lines = uncalibrated.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            output::complain(&format!("{}: lines {lines}: {error}", input::name(file)));
        }
        None => {}
    }
    match refused + uncalibrated.len() {
        0 => Ok(()),
        refused => Err(Failure::Other(anyhow::anyhow!("{refused} of {count} lists were not reranked"))),
    }
}

/// The lists with their ids; the line number is the default. `tag` is the name of a run, whose format cannot hold every
/// id.
fn read(file: &Path, tag: Option<&str>, warnings: &mut Warnings) -> Result<Vec<(String, input::Question)>, Failure> {
    if let Some(Err(problem)) = tag.map(trec::check_column) {
        return Err(Failure::Input(format!("--tag: {problem}")));
    }
    let mut lists = Vec::new();
    let mut first = HashMap::new();
    let questions = input::questions(file, Empty::Ranked, warnings)?;
    if let Some((line, fault)) = input::without_passages(&questions) {
        return Err(Failure::Input(format!("{}:{line}: {fault}", input::name(file))));
    }
    for mut list in questions {
        let id = list.id.take().unwrap_or_else(|| list.line.to_string());
        // Equal ids only matter in a run.
        if let Some(line) = first.insert(id.clone(), list.line).filter(|_| tag.is_some()) {
            let problem = format!("the id {} is given twice, first in line {line}", quoted(&id));
            return Err(Failure::Input(format!("{}:{}: {problem}", input::name(file), list.line)));
        }
        if tag.is_some() {
            let documents = list.passages.iter().map(|passage| trec::check_column(&passage.id));
            if let Some(Err(problem)) = std::iter::once(trec::check_query(&id)).chain(documents).find(Result::is_err) {
                let problem = format!("an id {problem}; --format json takes every id");
                return Err(Failure::Input(format!("{}:{}: {problem}", input::name(file), list.line)));
            }
        }
        lists.push((id, list));
    }
    Ok(lists)
}

/// The JSON of an answer, with the id of its query.
fn named(id: &str, mut answer: Value) -> Value {
    if let Some(members) = answer.as_object_mut() {
        members.insert("query_id".to_owned(), json!(id));
    }
    answer
}

/// The lines of a run. The score decreases by one per rank: trec_eval sorts by score in single precision and ignores
/// ranks, so close scores would change the order.
fn lines(query: &str, answer: &v1::RerankResponse, tag: &str) -> Result<String, Failure> {
    // A run lists a document once: of several passages with one id the best counts.
    let mut seen = HashSet::new();
    let ids: Vec<&str> = answer.results.iter().map(|result| result.id.as_str()).filter(|id| seen.insert(*id)).collect();
    let line = |(at, id): (usize, &&str)| trec::line(query, id, at + 1, ids.len() - at, tag);
    let lines: Result<String, String> = ids.iter().enumerate().map(line).collect();
    lines.map_err(Failure::Input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_keeps_the_order_of_equal_scores() {
        let result = |id: &str| v1::RankedPassage { id: id.to_owned(), score: 0.5, ..Default::default() };
        let results = vec![result("a"), result("b"), result("a")];
        let answer = v1::RerankResponse { results, ..Default::default() };
        let run = lines("q1", &answer, "mine").unwrap();
        assert_eq!(run, "q1 Q0 a 1 2 mine\nq1 Q0 b 2 1 mine\n");
        let read = trec::run(&run, Path::new("x.run"), &mut Warnings::default()).unwrap();
        assert_eq!((read.tag.as_str(), &read.queries[0].1), ("mine", &vec![("a", 2.0), ("b", 1.0)]));
    }

    #[test]
    fn ids_of_a_run_hold_no_white_space() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lists.jsonl");
        std::fs::write(&file, "{\"id\": 1, \"query\": \"q\", \"passages\": [{\"id\": \"a b\", \"text\": \"x\"}]}\n")
            .unwrap();
        let read = |tag| read(&file, tag, &mut Warnings::default());
        assert_eq!(read(None).unwrap()[0].0, "1");
        let refused = read(Some("run")).unwrap_err().to_string();
        let expected = "lists.jsonl:1: an id must not be empty or hold white space in a run, is \"a b\"; --format json takes every id";
        assert!(refused.ends_with(expected), "{refused}");
        assert!(read(Some("a b")).unwrap_err().to_string().starts_with("--tag: "));
    }

    /// Otherwise both would be under one query, with repeated ranks. The id defaults to the line number.
    #[test]
    fn a_run_of_two_lists_with_one_id_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lists.jsonl");
        let list = |id: &str| format!("{{{id}\"query\": \"q\", \"passages\": [{{\"text\": \"x\"}}]}}\n");
        std::fs::write(&file, [list("\"id\": \"2\", "), list("")].concat()).unwrap();
        let read = |tag| read(&file, tag, &mut Warnings::default());
        assert_eq!(read(None).unwrap().len(), 2);
        let refused = read(Some("run")).unwrap_err().to_string();
        assert!(refused.ends_with("lists.jsonl:2: the id \"2\" is given twice, first in line 1"), "{refused}");
    }
}
