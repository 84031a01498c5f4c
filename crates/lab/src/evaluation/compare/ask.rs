//! Ranks the list of one question by every method.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::rows::{MethodRow, Variant};
use super::settings::{BM25, Settings};
use crate::study::Record;
use crate::study::backend::{Backend, Refusal};
use crate::study::data::Question;
use crate::study::identity::ModelIdentity;
use engine::fusion::bm25;
use engine::methods;
use engine::types::{MethodRef, MoiOptions, Passage, PromptPrefix, RerankRequest};
use numeric::descending;
use prefix_scheduler::call::Call;
use protocol::convert::{self, Sent};
use protocol::v1;

/// The ranking of a list by every row but `given`. Labels are not stored; they are read again.
pub(super) type Rows = BTreeMap<String, Outcome>;

/// One ranking of a list, with its cost.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Outcome {
    /// Indices of the passages, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranking: Vec<usize>,
    /// `score` of each passage, in the order of the list; empty for a row without scores.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<f64>,
    /// `outranks_next` of each place except the last; empty for a row without it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outranks: Vec<f64>,
    /// Expected Kendall's tau between the ranking and the true one; absent if no fit has all passages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_tau: Option<f64>,
    /// Tokens that the generator evaluated, and tokens cached from earlier requests and rounds: the cost of the request
    /// without a cache.
    #[serde(default)]
    pub tokens: u64,
    /// Tokens of all prompts of the generator without prefix sharing.
    pub naive_tokens: u64,
    /// Tokens of other models.
    #[serde(default)]
    pub other_tokens: u64,
    /// Time from the request to its answer.
    #[serde(default)]
    pub seconds: f64,
    /// True if a calibration was applied to the scores.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub calibrated: bool,
    /// Warnings of the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The reason why the method did not rank the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Record for Rows {
    fn problems(&self) -> Vec<String> {
        let refused = self.iter().filter_map(|(row, outcome)| Some((row, outcome.error.as_ref()?)));
        refused.map(|(row, problem)| format!("{row}: {problem}")).collect()
    }
}

pub(super) async fn rank(settings: &Settings, backend: &Backend, question: &Question) -> Result<Rows, Refusal> {
    let mut rows = Rows::from([(BM25.to_owned(), lexical(question))]);
    for row in settings.rows() {
        let outcome = match ask(settings, backend, question, row).await {
            Err(Refusal::Question(problem)) => Outcome { error: Some(problem), ..Outcome::default() },
            outcome => outcome?,
        };
        rows.insert(row.name(), outcome);
    }
    Ok(rows)
}

/// The methods that use one of these other models and get an answer: a file may be unusable, and its library missing.
pub(super) async fn answering(backend: &Backend, models: &ModelIdentity) -> Vec<MethodRef> {
    let there = |role| models.beside.iter().any(|(served, file)| *served == role && !file.is_empty());
    let mut answering = Vec::new();
    for method in methods::all().filter(|method| method.passage_model().is_some_and(there)) {
        let passages = ["one", "two"].map(|text| Passage { id: text.into(), text: text.into(), ..Passage::default() });
        let (query, passages) = ("one".to_owned(), passages.to_vec());
        let trial = RerankRequest { query, passages, method: Some(method), ..RerankRequest::default() };
        match backend.client.rerank(&trial).await {
            Ok(_) => answering.push(method),
            Err(problem) => tracing::warn!(%problem, "{} is not compared", method.name()),
        }
    }
    answering
}

/// Lets one method that the scorer scores, and one that the generator scores, rank two lists like these without a
/// budget. A budget has no effect until the models have shown their speed, and a first turn does not show it. The
/// passages differ from those of the lists, so that the lists are not cached.
pub(super) async fn warm_up(settings: &Settings, backend: &Backend, questions: &[Question]) -> Result<(), Refusal> {
    for by_scorer in [true, false] {
        let of = |row: &MethodRow| row.is_scored_by_scorer() == by_scorer && row.method.asks_generator();
        let bounded = || settings.rows().filter(|row| row.method.takes_latency_budget() && of(row));
        // The default method also uses the embedding model.
        if let Some(row) = bounded().find(|row| row.method.mixed_model().is_some()).or_else(|| bounded().next()) {
            warm_up_with(settings, backend, questions, row).await?;
        }
    }
    Ok(())
}

async fn warm_up_with(
    settings: &Settings,
    backend: &Backend,
    questions: &[Question],
    row: MethodRow,
) -> Result<(), Refusal> {
    let unbounded = Settings { latency_budget_ms: None, ..settings.clone() };
    let mut ranked = 0;
    for question in questions.iter().cycle().take(questions.len().max(2)) {
        let mut other = question.clone();
        for passage in &mut other.list.passages {
            passage.text.insert_str(0, &format!("{ranked}. "));
        }
        match ask(&unbounded, backend, &other, row).await {
            Err(Refusal::Question(_)) => {}
            outcome => {
                outcome?;
                ranked += 1;
            }
        }
        if ranked == 2 {
            break;
        }
    }
    Ok(())
}

/// BM25 within the list. Its numbers are not probabilities, so it reports no scores.
fn lexical(question: &Question) -> Outcome {
    let started = Instant::now();
    let texts: Vec<String> = question.list.passages.iter().map(Passage::whole_text).collect();
    let ranking = descending(&bm25::scores(&question.list.question, &texts, None));
    Outcome { ranking, seconds: started.elapsed().as_secs_f64(), ..Outcome::default() }
}

async fn ask(settings: &Settings, backend: &Backend, question: &Question, row: MethodRow) -> Result<Outcome, Refusal> {
    let opening = if row.variant == Variant::Opening { settings.opening.clone() } else { PromptPrefix::default() };
    let request = RerankRequest {
        query: question.list.question.clone(),
        passages: question.list.passages.clone(),
        method: Some(row.method),
        prefix: opening,
        frame: row.frame(),
        scorer: row.scorer().to_owned(),
        moi: MoiOptions { seed: settings.seed, ..MoiOptions::default() },
        passage_tokens: settings.passage_tokens,
        latency_budget_ms: settings.latency_budget_ms.filter(|_| row.method.takes_latency_budget()),
        ..RerankRequest::default()
    };
    let (answer, took) = match request.frame {
        None => backend.client.watch_rerank(&request, |_, _| {}).await?,
        // Messages carry no prompt format.
        Some(_) => {
            let (engine, begun) = (backend.engine("--frames")?, Instant::now());
            let answer = engine.reranker.rerank(&Call::local(), request.clone(), None).await?;
            let took = begun.elapsed();
            let passages = vec![v1::Passage::default(); request.passages.len()];
            (convert::response(answer, &Sent { passages, whole: false }), took)
        }
    };
    let seconds = took.as_secs_f64();
    let count = request.passages.len();
    let place = |index: u32| usize::try_from(index).ok().filter(|index| *index < count);
    let (mut scores, mut ranking) = (vec![None; count], Vec::with_capacity(count));
    for result in &answer.results {
        if let Some(index) = place(result.original_index) {
            scores[index] = Some(result.score);
            ranking.push(index);
        }
    }
    let scores: Option<Vec<f64>> = scores.into_iter().collect();
    let complete = scores.filter(|_| ranking.len() == count && answer.results.len() == count);
    let scores = complete.ok_or_else(|| Refusal::Question("the answer does not rank every passage once".to_owned()))?;
    // Stored only if every place except the last has one, because they are used by place.
    let outranks: Option<Vec<f64>> =
        answer.results.iter().take(count.saturating_sub(1)).map(|result| result.outranks_next).collect();
    let outranks = outranks.unwrap_or_default();
    // A stage that fits a few passages does not cover the others.
    let fitted = answer.results.iter().all(|result| result.standard_error.is_some());
    let expected_tau = answer.diagnostics.filter(|_| fitted).map(|diagnostics| diagnostics.expected_tau);
    let usage = answer.usage.unwrap_or_default();
    let (asked, embedded) = (usage.tokens + usage.cached_tokens, usage.embedding_tokens);
    let (tokens, naive_tokens, other_tokens) =
        if row.method.asks_generator() { (asked, usage.naive_tokens, embedded) } else { (0, 0, asked + embedded) };
    let (warnings, error) = (answer.warnings, None);
    Ok(Outcome {
        ranking,
        scores,
        outranks,
        expected_tau,
        tokens,
        naive_tokens,
        other_tokens,
        seconds,
        calibrated: answer.score_calibrated,
        warnings,
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use files::labelled::LabelledList;

    #[test]
    fn bm25_reads_titles_and_keeps_the_order_of_equals() {
        let passage = |id: &str, title: &str, text: &str| Passage {
            id: id.into(),
            title: title.into(),
            text: text.into(),
            ..Passage::default()
        };
        let passages = vec![
            passage("a", "", "Rye flour absorbs water."),
            passage("b", "", "Bread keeps for a week."),
            passage("c", "The mill", "It stands by the river."),
        ];
        let list = LabelledList { question: "Where is the mill?".into(), passages, ..LabelledList::default() };
        let outcome = lexical(&Question { list, ..Question::default() });
        assert_eq!(outcome.ranking, [2, 0, 1]);
        assert!(outcome.scores.is_empty() && outcome.tokens == 0);
    }
}
