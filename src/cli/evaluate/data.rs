//! What is evaluated: questions with their passages from one file, or runs with the texts of their queries and documents.

use std::collections::{HashMap, HashSet};
use std::io::BufRead;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::cli::{Failure, input, trec};
use crate::engine::rerank::Passage;
use crate::numeric::descending;
use crate::storage::store::hex;

/// Where the questions come from.
#[derive(Debug, Args)]
pub(super) struct DataArgs {
    /// Questions, one JSON object a line ("question", "passages", maybe "id" and "answers"); or a folder as BEIR lays it out.
    #[arg(value_name = "QUESTIONS|FOLDER")]
    data: Option<PathBuf>,
    /// A run of TREC or JSON; may be given again. Its lists take their texts from --queries and --corpus or the folder.
    #[arg(long, value_name = "FILE")]
    run: Vec<PathBuf>,
    /// Queries: JSON lines with "_id" and "text" and maybe "answers", or id, tab, text, and tab-separated answers.
    #[arg(long, value_name = "FILE")]
    queries: Option<PathBuf>,
    /// Documents: JSON lines with "_id", "text" and maybe "title".
    #[arg(long, value_name = "FILE")]
    corpus: Option<PathBuf>,
    /// Judgements, for the provenance labels.
    #[arg(long, value_name = "FILE")]
    qrels: Option<PathBuf>,
    /// Which judgements of the folder.
    #[arg(long, default_value = "test")]
    split: String,
    /// Documents of a list that are read.
    #[arg(long, value_name = "DOCUMENTS", default_value_t = 10)]
    depth: usize,
    /// Take only the first so many questions.
    #[arg(long, value_name = "QUESTIONS")]
    limit: Option<usize>,
}

/// A question, its passages, and the rankings of them.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(super) struct Query {
    pub id: String,
    pub question: String,
    pub references: Vec<String>,
    /// Id, title, text, retriever's score.
    #[serde(serialize_with = "passages")]
    pub passages: Vec<Passage>,
    /// Labels of the passages, where there are judgements.
    pub provenance: Option<Vec<f64>>,
    /// Passages by system, best first.
    pub rankings: Vec<(String, Vec<usize>)>,
    /// Why it cannot be asked.
    pub fault: Option<String>,
}

fn passages<S: serde::Serializer>(passages: &[Passage], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(passages.iter().map(|one| (&one.id, &one.title, &one.text, one.retriever_score)))
}

impl Query {
    /// What a line of results belongs to.
    pub fn fingerprint(&self) -> Result<String, Failure> {
        let bytes = serde_json::to_vec(self).map_err(|error| Failure::Other(error.into()))?;
        Ok(hex(&Sha256::digest(bytes)[..8]))
    }
}

/// All questions, by one list of systems.
#[derive(Debug, Default)]
pub(super) struct Data {
    pub queries: Vec<Query>,
    pub systems: Vec<String>,
}

impl Data {
    /// Whether any question has labels of the caller.
    pub fn has_provenance(&self) -> bool {
        self.queries.iter().any(|query| query.provenance.is_some())
    }

    /// Whether any question has references.
    pub fn has_references(&self) -> bool {
        self.queries.iter().any(|query| !query.references.is_empty())
    }
}

/// The name of the only ranking of questions that bring their passages.
const GIVEN: &str = "given";

impl DataArgs {
    pub fn load(&self) -> Result<Data, Failure> {
        let mut data = match (&self.data, self.run.is_empty()) {
            (Some(file), true) if !file.is_dir() => self.questions(file)?,
            (Some(folder), true) => {
                let problem = "is a folder: a run is missing (--run FILE), whose lists take their texts from it";
                return Err(Failure::Input(format!("{}: {problem}", folder.display())));
            }
            _ => self.runs()?,
        };
        data.queries.truncate(self.limit.unwrap_or(usize::MAX));
        if data.queries.is_empty() {
            return Err(Failure::Input("there are no questions".to_owned()));
        }
        Ok(data)
    }

    fn questions(&self, file: &Path) -> Result<Data, Failure> {
        let read = input::questions(file)?;
        let labelled = read.iter().any(|question| question.supporting.contains(&true));
        let mut seen = HashSet::new();
        let mut queries = Vec::with_capacity(read.len());
        for mut question in read {
            let id = question.id.take().unwrap_or_else(|| question.line.to_string());
            if !seen.insert(id.clone()) {
                let problem = format!("the id {id:?} stands there twice");
                return Err(Failure::Input(format!("{}:{}: {problem}", input::name(file), question.line)));
            }
            question.passages.truncate(self.depth);
            let label = |helps: &bool| f64::from(u8::from(*helps));
            queries.push(Query {
                id,
                rankings: vec![(GIVEN.to_owned(), (0..question.passages.len()).collect())],
                provenance: labelled.then(|| question.supporting.iter().take(self.depth).map(label).collect()),
                question: question.question,
                references: question.answers,
                passages: question.passages,
                fault: None,
            });
        }
        Ok(Data { queries, systems: vec![GIVEN.to_owned()] })
    }

    fn file(&self, given: Option<&PathBuf>, what: &str, within: &str) -> Result<PathBuf, Failure> {
        let in_folder = |folder: &PathBuf| {
            let plain = folder.join(within);
            if plain.exists() { plain } else { folder.join(format!("{within}.gz")) }
        };
        given.cloned().or_else(|| self.data.as_ref().map(in_folder)).ok_or_else(|| {
            Failure::Input(format!("--{what} FILE is missing: a run needs it, or a folder that holds {within}"))
        })
    }

    fn runs(&self) -> Result<Data, Failure> {
        if self.run.is_empty() {
            return Err(Failure::Input("a file of questions, or a run (--run FILE), is missing".to_owned()));
        }
        let asked = queries(&self.file(self.queries.as_ref(), "queries", "queries.jsonl")?)?;
        // A folder need not hold judgements; a file that is named must be there.
        let in_folder =
            || self.file(None, "qrels", &format!("qrels/{}.tsv", self.split)).ok().filter(|path| path.exists());
        let judgements = match self.qrels.clone().or_else(in_folder) {
            Some(path) => Some((input::read(&path)?, path)),
            None => None,
        };
        let judged = judgements.as_ref().map(|(text, path)| trec::judgements(text, path)).transpose()?;
        let texts: Vec<(String, &PathBuf)> =
            self.run.iter().map(|path| Ok((input::read(path)?, path))).collect::<Result<_, Failure>>()?;
        let mut systems: Vec<String> = Vec::new();
        let mut lists: HashMap<&str, Lists<'_>> = HashMap::new();
        let mut order: Vec<&str> = Vec::new();
        for (text, path) in &texts {
            let run = trec::run(text, path)?;
            let name = if systems.contains(&run.tag) { input::stem(path) } else { run.tag };
            if systems.contains(&name) {
                return Err(Failure::Input(format!("{}: another run is called {name:?}, too", path.display())));
            }
            for (query, documents) in run.queries {
                let scores: Vec<f64> = documents.iter().map(|(_, score)| *score).collect();
                let best = descending(&scores).into_iter().take(self.depth).map(|index| documents[index]);
                if !lists.contains_key(query) {
                    order.push(query);
                }
                lists.entry(query).or_default().push((name.clone(), best.collect()));
            }
            systems.push(name);
        }
        let wanted: HashSet<&str> = lists
            .values()
            .flatten()
            .flat_map(|(_, documents)| documents.iter().map(|(document, _)| *document))
            .collect();
        let corpus = documents(&self.file(self.corpus.as_ref(), "corpus", "corpus.jsonl")?, &wanted)?;
        // In the order of the queries' file, then what only the runs know.
        let position: HashMap<&str, usize> =
            asked.iter().enumerate().map(|(index, asked)| (asked.id.as_str(), index)).collect();
        order.sort_by_key(|query| position.get(query).copied().unwrap_or(usize::MAX));
        let unjudged = trec::Labels::default();
        let whole = |query: &&str| {
            let known = position.get(query).map(|index| &asked[*index]);
            let labels = judged.as_ref().map(|judged| judged.get(query).unwrap_or(&unjudged));
            // A run without the query has an empty list for it.
            let of = |system: &String| {
                let list = lists[query].iter().find(|(name, _)| name == system);
                (system.clone(), list.map(|(_, documents)| documents.clone()).unwrap_or_default())
            };
            assembled(query, known, &systems.iter().map(of).collect(), &corpus, labels)
        };
        Ok(Data { queries: order.iter().map(whole).collect(), systems })
    }
}

/// A query's documents and scores by system.
type Lists<'a> = Vec<(String, Vec<(&'a str, f64)>)>;

/// One question of the runs.
fn assembled(
    id: &str,
    asked: Option<&Asked>,
    lists: &Lists<'_>,
    corpus: &HashMap<String, (String, String)>,
    labels: Option<&trec::Labels<'_>>,
) -> Query {
    let mut query = Query { id: id.to_owned(), ..Query::default() };
    match asked {
        Some(asked) => (query.question, query.references) = (asked.text.clone(), asked.answers.clone()),
        None => query.fault = Some("the queries hold no text for it".to_owned()),
    }
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (system, documents) in lists {
        let mut ranking = Vec::with_capacity(documents.len());
        for (document, score) in documents {
            let place = *places.entry(document).or_insert_with(|| {
                let (title, text) = corpus.get(*document).cloned().unwrap_or_else(|| {
                    query.fault.get_or_insert_with(|| format!("the corpus does not hold document {document:?}"));
                    (String::new(), String::new())
                });
                query.passages.push(Passage { id: (*document).to_owned(), title, text, retriever_score: Some(*score) });
                query.passages.len() - 1
            });
            ranking.push(place);
        }
        query.rankings.push((system.clone(), ranking));
    }
    query.provenance = labels.map(|labels| {
        let label = |passage: &Passage| labels.get(passage.id.as_str()).copied();
        query.passages.iter().map(|passage| label(passage).unwrap_or(0.0).max(0.0)).collect()
    });
    query
}

/// A query's text and answers.
struct Asked {
    id: String,
    text: String,
    answers: Vec<String>,
}

#[derive(Deserialize)]
struct QueryLine {
    #[serde(alias = "_id", alias = "query_id", alias = "qid")]
    id: serde_json::Value,
    #[serde(alias = "question", alias = "query")]
    text: String,
    #[serde(default, alias = "references")]
    answers: Vec<String>,
}

fn queries(path: &Path) -> Result<Vec<Asked>, Failure> {
    let text = input::read(path)?;
    let mut asked: Vec<Asked> = Vec::new();
    let mut seen = HashSet::new();
    for (number, line) in input::lines(&text) {
        let bad = |problem: String| Failure::Input(format!("{}:{number}: {problem}", input::name(path)));
        let one = if line.trim_start().starts_with('{') {
            let line: QueryLine = serde_json::from_str(line).map_err(|error| bad(error.to_string()))?;
            let id = input::identifier(Some(line.id)).ok_or_else(|| bad("the id must not be null".into()))?;
            Asked { id, text: line.text, answers: line.answers }
        } else {
            let mut parts = line.split('\t').map(|part| part.trim().to_owned());
            let (id, text) = parts.next().zip(parts.next()).ok_or_else(|| bad("must be id, tab, text".into()))?;
            Asked { id, text, answers: parts.filter(|answer| !answer.is_empty()).collect() }
        };
        if !seen.insert(one.id.clone()) {
            return Err(bad(format!("the id {:?} stands there twice", one.id)));
        }
        asked.push(one);
    }
    Ok(asked)
}

#[derive(Deserialize)]
struct DocumentLine {
    #[serde(alias = "_id", alias = "docid", alias = "doc_id")]
    id: serde_json::Value,
    #[serde(default)]
    title: String,
    #[serde(alias = "contents")]
    text: String,
}

/// Title and text of the wanted documents. The file is read line by line: a corpus may be larger than memory.
fn documents(path: &Path, wanted: &HashSet<&str>) -> Result<HashMap<String, (String, String)>, Failure> {
    let mut found = HashMap::with_capacity(wanted.len());
    for (index, line) in input::open(path)?.lines().enumerate() {
        let bad = |problem: String| Failure::Input(format!("{}:{}: {problem}", input::name(path), index + 1));
        let line = line.map_err(|error| bad(error.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        let document: DocumentLine = serde_json::from_str(&line).map_err(|error| bad(error.to_string()))?;
        let Some(id) = input::identifier(Some(document.id)) else { return Err(bad("the id must not be null".into())) };
        if wanted.contains(id.as_str()) {
            found.insert(id, (document.title, document.text));
            if found.len() == wanted.len() {
                break;
            }
        }
    }
    Ok(found)
}
