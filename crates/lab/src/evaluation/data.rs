//! The questions to evaluate: with their passages from one file, or runs with the texts of their queries and documents.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::methods::GIVEN;
use crate::study::StudyError;
use engine::types::Passage;
use files::corpus::{self, QueryText};
use files::{self, Empty, Warnings, trec};
use numeric::descending;
use rag_metrics::quoted;

/// Sources of the questions.
#[derive(Debug, Clone)]
pub struct Sources {
    /// A file of questions, or a folder in BEIR's layout.
    pub data: Option<PathBuf>,
    /// Runs, whose texts come from `queries` and `corpus` or from the folder.
    pub runs: Vec<PathBuf>,
    /// Texts of the queries.
    pub queries: Option<PathBuf>,
    /// Texts of the documents.
    pub corpus: Option<PathBuf>,
    /// Judgements, for the provenance labels.
    pub qrels: Option<PathBuf>,
    /// Name of the folder's judgements.
    pub split: String,
    /// Documents read from each list.
    pub depth: usize,
    /// Questions taken from the beginning; `None` for all.
    pub limit: Option<usize>,
}

/// One system's list of a question's passages.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct List {
    pub system: String,
    /// Indices of the passages, best first.
    pub passages: Vec<usize>,
    /// Scores by the system. Scores of two systems have no common scale, so the pooled passages have none.
    pub scores: Vec<Option<f64>>,
}

/// A question, its passages, and the systems' lists of them.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Query {
    pub id: String,
    pub question: String,
    pub references: Vec<String>,
    #[serde(serialize_with = "passages")]
    pub passages: Vec<Passage>,
    /// Labels of the passages; `None` without judgements.
    pub provenance: Option<Vec<f64>>,
    /// Labels of all documents that were judged for it, in a list or not; `None` without judgements.
    #[serde(skip)]
    pub judged: Option<Vec<f64>>,
    /// The lists of the systems.
    pub lists: Vec<List>,
    /// Documents of its lists that have neither title nor text, and were left out.
    #[serde(skip)]
    pub blank: usize,
    /// The reason why it cannot be evaluated.
    pub fault: Option<String>,
}

fn passages<S: serde::Serializer>(passages: &[Passage], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(passages.iter().map(|one| (&one.id, &one.title, &one.text)))
}

/// All questions.
#[derive(Debug, Default)]
pub struct Data {
    pub queries: Vec<Query>,
    /// Names of the lists that every question has.
    pub systems: Vec<String>,
    /// True if there are judgements, of these questions or of others.
    pub judged: bool,
    /// Judged queries that no run has.
    pub unlisted: usize,
    /// Warnings about the files.
    pub warnings: Warnings,
}

impl Data {
    /// True if any question has provenance labels.
    pub fn has_provenance(&self) -> bool {
        self.queries.iter().any(|query| query.provenance.is_some())
    }

    /// True if any question has reference answers.
    pub fn has_references(&self) -> bool {
        self.queries.iter().any(|query| !query.references.is_empty())
    }
}

impl Sources {
    /// Reads the files.
    pub fn load(&self) -> Result<Data, StudyError> {
        if self.depth == 0 {
            return Err(StudyError::Input("--depth: must be at least 1".to_owned()));
        }
        let mut data = match (&self.data, self.runs.is_empty()) {
            (Some(file), true) if !file.is_dir() => self.read_questions(file)?,
            (Some(folder), true) => {
                let problem = "is a folder: a run is missing (--run FILE), which takes its texts from the folder";
                return Err(StudyError::Input(format!("{}: {problem}", folder.display())));
            }
            _ => self.read_runs()?,
        };
        data.queries.truncate(self.limit.unwrap_or(usize::MAX));
        if data.queries.is_empty() {
            return Err(StudyError::Input("there are no questions".to_owned()));
        }
        Ok(data)
    }

    fn read_questions(&self, file: &Path) -> Result<Data, StudyError> {
        let mut warnings = Warnings::default();
        // A passage without text cannot be measured.
        let mut read = files::questions(file, Empty::LeftOut, &mut warnings)?;
        for question in &mut read {
            question.fault = question.fault.take().or(question.answers_fault.take()).or(question.labels_fault.take());
        }
        let unusable =
            files::without_passages(&read).map(|(line, fault)| format!("{}:{line}: {fault}", files::name(file)));
        let labelled = read.iter().any(|question| question.labels.iter().any(|label| *label > 0.0));
        // If only relevant passages are marked, a question without a mark has none. If others are labelled as well, the
        // question is unjudged.
        let negatives = read.iter().any(|question| question.given.iter().any(|label| *label <= 0.0));
        let mut seen = HashMap::new();
        let mut queries = Vec::with_capacity(read.len());
        for mut question in read {
            let id = question.id.take().unwrap_or_else(|| question.line.to_string());
            let first = *seen.entry(id.clone()).or_insert(question.line);
            if first != question.line {
                let problem = format!("the id {} is given twice, first in line {first}", quoted(&id));
                return Err(StudyError::Input(format!("{}:{}: {problem}", files::name(file), question.line)));
            }
            // The depth counts passages without text, as in lists of runs.
            let within = question.places.iter().take_while(|place| **place < self.depth).count();
            let (passages, labels): (Vec<Passage>, Vec<f64>) =
                question.passages.into_iter().zip(question.labels).take(within).unzip();
            let scores = passages.iter().map(|passage| passage.retriever_score).collect();
            queries.push(Query {
                id,
                lists: vec![List { system: GIVEN.to_owned(), passages: (0..passages.len()).collect(), scores }],
                provenance: (labelled && !(negatives && question.given.is_empty())).then_some(labels),
                question: question.question,
                references: question.answers,
                passages,
                fault: question.fault,
                ..Query::default()
            });
        }
        match unusable {
            Some(problem) => Err(StudyError::Input(problem)),
            None => Ok(Data { queries, systems: vec![GIVEN.to_owned()], judged: labelled, unlisted: 0, warnings }),
        }
    }

    fn file(&self, given: Option<&PathBuf>, what: &str, within: &str) -> Result<PathBuf, StudyError> {
        let in_folder = |folder: &PathBuf| {
            let plain = folder.join(within);
            if plain.exists() { plain } else { folder.join(format!("{within}.gz")) }
        };
        given.cloned().or_else(|| self.data.as_ref().map(in_folder)).ok_or_else(|| {
            StudyError::Input(format!("--{what} FILE is missing: a run needs it, or a folder that holds {within}"))
        })
    }

    /// The judgements of the folder's split; `None` if the folder has no judgements at all.
    fn of_split(&self) -> Result<Option<PathBuf>, StudyError> {
        let Some(folder) = self.data.as_ref().map(|data| data.join("qrels")).filter(|folder| folder.is_dir()) else {
            return Ok(None);
        };
        let path = self.file(None, "qrels", &format!("qrels/{}.tsv", self.split))?;
        if path.exists() {
            return Ok(Some(path));
        }
        let problem = format!("{} has no judgements of this split", folder.display());
        Err(StudyError::Input(format!("--split {}: {problem}", self.split)))
    }

    fn read_runs(&self) -> Result<Data, StudyError> {
        if self.runs.is_empty() {
            return Err(StudyError::Input("a file of questions, or a run (--run FILE), is missing".to_owned()));
        }
        let mut warnings = Warnings::default();
        let file = self.file(self.queries.as_ref(), "queries", "queries.jsonl")?;
        let texts_of_queries = corpus::queries(&file, &mut warnings)?;
        // A folder may lack judgements; a named file must exist.
        let judgements = match self.qrels.clone().map_or_else(|| self.of_split(), |named| Ok(Some(named)))? {
            Some(path) => Some((files::read(&path)?, path)),
            None => None,
        };
        let read = |(text, path)| trec::judgements(text, path, &mut warnings);
        let judged = judgements.as_ref().map(|(text, path)| (text.as_str(), path.as_path())).map(read).transpose()?;
        let texts: Vec<(String, &PathBuf)> =
            self.runs.iter().map(|path| Ok((files::read(path)?, path))).collect::<Result<_, StudyError>>()?;
        let mut systems: Vec<String> = Vec::new();
        let mut lists: HashMap<&str, Lists<'_>> = HashMap::new();
        let mut order: Vec<&str> = Vec::new();
        for (text, path) in &texts {
            let run = trec::run(text, path, &mut warnings)?;
            if let Some(problem) = judged.as_ref().and_then(|judged| trec::unmatched(judged, &run)) {
                warnings.of_file(path, &problem);
            }
            let name = if systems.contains(&run.tag) { files::stem(path) } else { run.tag };
            if systems.contains(&name) {
                return Err(StudyError::Input(format!(
                    "{}: another run is also called {}",
                    path.display(),
                    quoted(&name)
                )));
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
        let file = self.file(self.corpus.as_ref(), "corpus", "corpus.jsonl")?;
        let corpus = corpus::documents(&file, &wanted, &mut warnings)?;
        // In the order of the queries' file; queries that it lacks come last.
        let position: HashMap<&str, usize> =
            texts_of_queries.iter().enumerate().map(|(index, text)| (text.id.as_str(), index)).collect();
        order.sort_by_key(|query| position.get(query).copied().unwrap_or(usize::MAX));
        let assemble = |query: &&str| {
            let text = position.get(query).map(|index| &texts_of_queries[*index]);
            // A query without judgements has no labels, as in `rerankd metrics`.
            let labels = judged.as_ref().and_then(|judged| judged.get(query));
            // A run that lacks the query has an empty list for it.
            let of = |system: &String| {
                let list = lists[query].iter().find(|(name, _)| name == system);
                (system.clone(), list.map(|(_, documents)| documents.clone()).unwrap_or_default())
            };
            assembled(query, text, &systems.iter().map(of).collect(), &corpus, labels)
        };
        let unlisted = judged.iter().flatten().filter(|(query, _)| !lists.contains_key(*query)).count();
        let queries = order.iter().map(assemble).collect();
        Ok(Data { queries, systems, judged: judged.is_some(), unlisted, warnings })
    }
}

/// A query's documents and scores by system.
type Lists<'a> = Vec<(String, Vec<(&'a str, f64)>)>;

/// One question of the runs.
fn assembled(
    id: &str,
    text: Option<&QueryText>,
    lists: &Lists<'_>,
    corpus: &HashMap<String, (String, String)>,
    labels: Option<&trec::Labels<'_>>,
) -> Query {
    let mut query = Query { id: id.to_owned(), ..Query::default() };
    match text {
        Some(text) => (query.question, query.references) = (text.text.clone(), text.answers.clone()),
        None => query.fault = Some("the file of queries has no text for it".to_owned()),
    }
    let mut indices: HashMap<&str, Option<usize>> = HashMap::new();
    for (system, documents) in lists {
        let mut list = List { system: system.clone(), ..List::default() };
        for (document, score) in documents {
            let index = *indices.entry(document).or_insert_with(|| {
                let Some(found) = corpus.get(*document) else {
                    query.fault.get_or_insert_with(|| format!("the corpus has no document {}", quoted(document)));
                    return None;
                };
                let (title, text) = found.clone();
                if text.trim().is_empty() {
                    query.blank += 1;
                    return None;
                }
                query.passages.push(Passage { id: (*document).to_owned(), title, text, retriever_score: None });
                Some(query.passages.len() - 1)
            });
            let Some(index) = index else { continue };
            list.passages.push(index);
            list.scores.push(Some(*score));
        }
        query.lists.push(list);
    }
    query.judged = labels.map(|labels| labels.values().copied().collect());
    query.provenance = labels.map(|labels| {
        let label = |passage: &Passage| labels.get(passage.id.as_str()).copied();
        query.passages.iter().map(|passage| label(passage).unwrap_or(0.0).max(0.0)).collect()
    });
    query
}
