//! The settings of an evaluation, applied to its data, and the manifest that its results belong to.

use serde_json::{Map, Value, json};

use super::Settings;
use super::data::Data;
use super::methods::Ranker;
use crate::study::identity::ModelIdentity;
use crate::study::manifest::{self, Uses};
use crate::study::{StudyError, distinct};
use engine::types::Role;
use engine::types::SampleOptions;
use engine::types::TaskKind;
use engine::types::{Annotator, EvaluateRequest, default_metrics};
use rag_metrics::rank::Metric;

/// Names of the scores of an answer's citations: recall and precision.
pub(super) const CITATION_SCORES: [&str; 2] = ["citation-recall", "citation-precision"];

/// The settings, applied to the data.
pub struct Plan {
    pub settings: Settings,
    pub annotators: Vec<Annotator>,
    pub metrics: Vec<Metric>,
    /// Names of the rankings of each question: by list of the data, then by ranker.
    pub systems: Vec<String>,
    pub end_to_end: bool,
}

/// True if an annotator labels passages by default. For a task with labels all lexical annotators agree, and no passage
/// contains a label. Long texts never equal a reference.
fn default_for(task: TaskKind, annotator: Annotator) -> bool {
    match (task, annotator) {
        (_, Annotator::Provenance | Annotator::LlmJudgement) => true,
        (TaskKind::ShortAnswer, annotator) => annotator.is_default(),
        (TaskKind::FactVerification | TaskKind::Classification, annotator) => annotator == Annotator::Accuracy,
        (TaskKind::Dialogue | TaskKind::LongAnswer, annotator) => {
            matches!(annotator, Annotator::TokenF1 | Annotator::RougeL)
        }
    }
}

/// The annotators with the names of these settings, which the data must allow.
fn annotators(settings: &Settings, data: &Data) -> Result<Vec<Annotator>, StudyError> {
    let has = |annotator: &Annotator| match annotator {
        Annotator::Provenance => data.has_provenance(),
        other => !other.needs_references() || data.has_references(),
    };
    let available = |a: &Annotator| has(a) && (a.scores_answers() || !settings.answers_only);
    let mut chosen: Vec<Annotator> = Vec::new();
    if settings.annotators.is_empty() {
        let sampled = settings.answers_only && settings.samples.is_some();
        let default = |annotator: &Annotator| {
            default_for(settings.task.kind, *annotator) || (sampled && *annotator == Annotator::DeltaSeperSoft)
        };
        chosen.extend(Annotator::ALL.iter().filter(|a| default(a) && available(a)));
    }
    for name in settings.annotators.iter().map(|name| name.trim()) {
        if name == "all" {
            // A server without an embedding model would refuse all annotators.
            let all = |annotator: &&Annotator| !annotator.needs_embedding() && available(annotator);
            chosen.extend(Annotator::ALL.iter().filter(all));
            continue;
        }
        let annotator = Annotator::ALL.iter().find(|annotator| annotator.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Annotator::ALL.iter().map(|annotator| annotator.name()).collect();
            let problem = format!("{name:?} is not an annotator; annotators are {}, all", names.join(", "));
            StudyError::Input(format!("--annotators: {problem}"))
        })?;
        if settings.answers_only && !annotator.scores_answers() {
            let problem = format!("{name} labels passages, and --answers-only leaves labels out");
            return Err(StudyError::Input(format!("--annotators: {problem}")));
        }
        if !available(annotator) {
            let needs = if *annotator == Annotator::Provenance { "judgements" } else { "reference answers" };
            let problem = format!("{name} needs {needs}, and the data have none");
            return Err(StudyError::Input(format!("--annotators: {problem}")));
        }
        chosen.push(*annotator);
    }
    Ok(distinct(chosen))
}

impl Plan {
    pub fn new(mut settings: Settings, data: &Data) -> Result<Self, StudyError> {
        settings.rankers = distinct(settings.rankers);
        let single = data.systems.len() == 1;
        let name = |list: &String, ranker: &Ranker| match ranker.0 {
            None => list.clone(),
            Some(method) if single => method.name().to_owned(),
            Some(method) => format!("{list}+{}", method.name()),
        };
        let rankers = &settings.rankers;
        let systems = data.systems.iter().flat_map(|list| rankers.iter().map(move |ranker| name(list, ranker)));
        let systems: Vec<String> = systems.collect();
        if let Some((_, name)) = systems.iter().enumerate().find(|(at, name)| systems[..*at].contains(name)) {
            let problem = format!("two systems are called {name:?}: give the run another tag");
            return Err(StudyError::Input(format!("--method: {problem}")));
        }
        if let Some(metric) = settings.metrics.iter().find(|metric| !metric.is_mean()) {
            let problem = format!("{metric} is not a mean over questions: `rerankd metrics` has it");
            return Err(StudyError::Input(format!("--metric: {problem}")));
        }
        settings.task.check().map_err(|error| StudyError::Input(format!("--{error}")))?;
        let annotators = annotators(&settings, data)?;
        let end_to_end = settings.end_to_end && annotators.iter().any(|annotator| annotator.scores_answers());
        if settings.answers_only && !end_to_end {
            let problem = "no question has reference answers to compare with: give \"answers\"";
            return Err(StudyError::Input(format!("--answers-only: {problem}")));
        }
        let metrics = match (settings.answers_only, settings.metrics.is_empty()) {
            (true, _) => Vec::new(),
            (false, true) => default_metrics(),
            (false, false) => distinct(settings.metrics.clone()),
        };
        let plan = Self { settings, annotators, metrics, systems, end_to_end };
        // Settings are checked here. Otherwise each question would be reranked, refused and stored.
        plan.request().check_settings().map_err(|error| StudyError::Input(error.to_string()))?;
        Ok(plan)
    }

    /// A request without its question.
    pub(super) fn request(&self) -> EvaluateRequest {
        let settings = &self.settings;
        EvaluateRequest {
            annotators: self.annotators.clone(),
            metrics: self.metrics.clone(),
            threshold: settings.relevance_threshold,
            end_to_end: self.end_to_end,
            label_passages: !settings.answers_only,
            task: settings.task.clone(),
            answer_tokens: Some(settings.answer_tokens),
            sampling: SampleOptions {
                samples: settings.samples,
                max_tokens: Some(settings.answer_tokens),
                seed: settings.seed,
                ..SampleOptions::default()
            },
            measure: settings.measure,
            passage_tokens: settings.passage_tokens,
            ..EvaluateRequest::default()
        }
    }

    /// True if labels or orders depend on the entailment model.
    pub fn asks_judge(&self) -> bool {
        let ranks = |ranker: &Ranker| ranker.0.is_some_and(|method| method.asks_judge());
        self.checks_citations()
            || self.annotators.iter().any(|annotator| annotator.is_belief())
            || self.settings.rankers.iter().any(ranks)
    }

    /// True if the citations of the answers are checked.
    pub(super) fn checks_citations(&self) -> bool {
        self.settings.answers_only && self.settings.task.kind == TaskKind::LongAnswer
    }

    /// Names of the scores of end-to-end answers.
    pub(super) fn answer_scores(&self) -> Vec<&'static str> {
        let annotators = self.annotators.iter().filter(|a| self.end_to_end && a.scores_answers());
        let citations = if self.checks_citations() { &CITATION_SCORES[..] } else { &[] };
        annotators.map(|annotator| annotator.name()).chain(citations.iter().copied()).collect()
    }

    /// True if answers use a context order that position profiles may decide. The input order is not one of our
    /// rankings.
    pub(super) fn arranges(&self) -> bool {
        self.end_to_end && self.settings.rankers.iter().any(|ranker| ranker.0.is_some())
    }

    /// Everything that the results depend on.
    pub(super) fn manifest(&self, models: &ModelIdentity) -> Map<String, Value> {
        let settings = &self.settings;
        let names: Vec<&str> = self.annotators.iter().map(|annotator| annotator.name()).collect();
        let metrics: Vec<String> = self.metrics.iter().map(ToString::to_string).collect();
        let methods = settings.rankers.iter().filter_map(|ranker| ranker.0).collect();
        let embedding = self.annotators.iter().any(|annotator| annotator.needs_embedding());
        let own = json!({
            "embedding_sha256": embedding.then(|| models.sha256_of(Role::Embedding)),
            "systems": self.systems,
            "annotators": names,
            "metrics": metrics,
            "relevance_threshold": settings.relevance_threshold,
            "end_to_end": self.end_to_end,
            "answers_only": settings.answers_only,
            "top_n": settings.top_n,
            "task": settings.task.kind.name(),
            "labels": settings.task.labels(),
            "answer_tokens": settings.answer_tokens,
            "samples": settings.samples,
            "seed": settings.seed,
            "passage_tokens": settings.passage_tokens,
            "measure": format!("{:?}", settings.measure),
        });
        manifest::of("evaluate", models, Uses { methods: Some(methods), entailment: self.asks_judge() }, own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::data::Query;
    use crate::evaluation::methods::GIVEN;
    use engine::types::{MeasureOptions, Task};
    use rag_metrics::resample::Statistics;

    fn settings(ranker: &str, annotators: &[&str], task: Task) -> Settings {
        Settings {
            annotators: annotators.iter().map(|&name| name.to_owned()).collect(),
            metrics: Vec::new(),
            rankers: vec![Ranker::find(ranker).unwrap()],
            relevance_threshold: 0.5,
            end_to_end: false,
            answers_only: false,
            top_n: None,
            task,
            answer_tokens: 32,
            samples: None,
            concurrency: 1,
            seed: 0,
            passage_tokens: None,
            measure: MeasureOptions::default(),
            statistics: Statistics::default(),
        }
    }

    /// Wrong settings must not rerank, refuse and store each question.
    #[test]
    fn wrong_settings_are_refused_before_any_question() {
        let data = Data { systems: vec!["list".to_owned()], queries: vec![Query::default()], ..Data::default() };
        let plain = || settings(GIVEN, &["llm-judgement"], Task::default());
        let refused = |settings: Settings| Plan::new(settings, &data).err().unwrap().to_string();
        assert!(Plan::new(plain(), &data).is_ok());
        let long = refused(Settings { answer_tokens: 600, ..plain() });
        assert!(long.contains("max_tokens") || long.contains("answer_tokens"), "{long}");
        let many = refused(Settings { samples: Some(2_000), ..plain() });
        assert!(many.contains("samples"), "{many}");
        let endless = refused(Settings { relevance_threshold: f64::NAN, ..plain() });
        assert!(endless.contains("threshold"), "{endless}");
    }

    #[test]
    fn the_task_and_its_labels_bind_the_results_and_choose_the_annotators() {
        let query = Query { references: vec!["REFUTES".to_owned()], ..Query::default() };
        let data = Data { systems: vec!["list".to_owned()], queries: vec![query], ..Data::default() };
        let plan = |kind: TaskKind, labels: &[&str]| {
            let labels = labels.iter().map(|&label| label.to_owned()).collect();
            Plan::new(settings(GIVEN, &[], Task { kind, labels }), &data)
        };
        let manifest = |kind, labels| plan(kind, labels).unwrap().manifest(&ModelIdentity::scripted("the judge"));
        let short = manifest(TaskKind::ShortAnswer, &[]);
        assert_eq!((&short["task"], &short["labels"]), (&json!("short-answer"), &json!([])));
        let fever = manifest(TaskKind::FactVerification, &[]);
        assert_eq!(fever["task"], "fact-verification");
        assert_eq!(fever["labels"], json!(["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"]));
        assert_eq!(fever["annotators"], json!(["accuracy", "llm-judgement"]));
        assert_ne!(fever, manifest(TaskKind::FactVerification, &["SUPPORTS", "REFUTES"]));
        assert_eq!(manifest(TaskKind::Dialogue, &[])["annotators"], json!(["token-f1", "rouge-l", "llm-judgement"]));
        let refused = plan(TaskKind::Classification, &["one"]).err().unwrap();
        assert_eq!(refused.to_string(), "--labels: 1 given, 2 to 64 allowed");
    }

    /// The last system would replace the others in every line.
    #[test]
    fn systems_of_one_name_are_refused() {
        let plan = |systems: &[&str], rankers: &[&str]| {
            let data = Data { systems: systems.iter().map(|&name| name.to_owned()).collect(), ..Data::default() };
            let rankers = rankers.iter().map(|name| Ranker::find(name).unwrap()).collect();
            Plan::new(Settings { rankers, ..settings(GIVEN, &["llm-judgement"], Task::default()) }, &data)
        };
        for systems in [&["moi"][..], &["bm25", "bm25+moi"]] {
            let refused = plan(systems, &[GIVEN, "moi"]).err().unwrap().to_string();
            assert!(refused.starts_with("--method: two systems are called"), "{refused}");
            assert!(plan(systems, &[GIVEN]).is_ok() && plan(systems, &["moi"]).is_ok());
        }
    }

    #[test]
    fn answers_without_labels_are_scored_by_annotators_of_answers() {
        let query = Query { references: vec!["yes".to_owned()], ..Query::default() };
        let data = Data { systems: vec!["list".to_owned()], queries: vec![query], ..Data::default() };
        let only = |annotators: &[&str], samples| {
            let settings = settings(GIVEN, annotators, Task::default());
            Settings { end_to_end: true, answers_only: true, samples, ..settings }
        };
        let names = |settings| Plan::new(settings, &data).unwrap().answer_scores();
        let lexical = ["exact-match", "token-f1", "rouge-l", "containment"];
        assert_eq!(names(only(&[], None)), lexical);
        assert_eq!(names(only(&[], Some(5))), [&lexical[..], &["delta-seper-soft"]].concat());
        let task = Task { kind: TaskKind::LongAnswer, ..Task::default() };
        let cited = ["token-f1", "rouge-l", "citation-recall", "citation-precision"];
        assert_eq!(names(Settings { task, ..only(&[], None) }), cited);
        let refused = |settings, data: &Data| Plan::new(settings, data).err().unwrap().to_string();
        let said = refused(only(&["llm-judgement"], None), &data);
        assert_eq!(said, "--annotators: llm-judgement labels passages, and --answers-only leaves labels out");
        let said = refused(only(&[], None), &Data { queries: vec![Query::default()], ..data });
        assert!(said.starts_with("--answers-only: no question has reference answers"), "{said}");
    }

    #[test]
    fn metrics_without_a_mean_are_refused() {
        let data = Data { systems: vec!["list".to_owned()], ..Data::default() };
        let plan = |metric: &str| {
            let metrics = vec![metric.parse().unwrap()];
            Plan::new(Settings { metrics, ..settings(GIVEN, &["llm-judgement"], Task::default()) }, &data)
        };
        assert!(plan("map").is_ok());
        let refused = plan("gm_map").err().unwrap().to_string();
        assert!(refused.starts_with("--metric: GMAP is not a mean"), "{refused}");
    }

    #[test]
    fn a_ranker_that_asks_the_entailment_model_binds_the_results_to_it() {
        let data = Data { systems: vec!["list".to_owned()], ..Data::default() };
        let entailment = |ranker: &str| {
            let settings = settings(ranker, &["llm-judgement"], Task::default());
            let manifest = Plan::new(settings, &data).unwrap().manifest(&ModelIdentity::scripted("the judge"));
            manifest["entailment_sha256"].clone()
        };
        assert_eq!((entailment("semantic-utility"), entailment("moi")), (json!("the judge"), Value::Null));
    }
}
