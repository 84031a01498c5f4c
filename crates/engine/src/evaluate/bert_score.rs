//! BERTScore of answers over the token embeddings of the embedding model.
//!
//! They come from its last layer. The paper (Zhang et al., 2020) takes the layer that agrees best with people on
//! translations; SePer's Table 2 does not name its network.

use std::collections::HashMap;
use std::sync::Arc;

use crate::models::Models;
use crate::types::{Annotator, EngineError, EvaluateRequest, Role};
use prefix_scheduler::call::Call;
use prefix_scheduler::model::reranker::TokenStates;
use rag_metrics::bert_score::{Vectors, bert_score};

/// Answers whose embeddings are in memory at once: a megabyte each for 512 tokens of width 512.
const ANSWERS: usize = 16;

/// Most pairs of an answer token and a reference token in one request: some seconds of arithmetic. One answer of
/// 512 tokens and 64 references of 512 tokens reach it.
const MOST_PAIRS: usize = 1 << 24;

/// BERTScores by answer.
#[derive(Debug, Default)]
pub(super) struct Scores {
    scores: HashMap<String, f64>,
    /// Answers that the model cannot read. Their score is 0.
    unreadable: usize,
}

impl Scores {
    /// The score of an answer.
    pub fn of(&self, answer: &str) -> Option<f64> {
        self.scores.get(answer).copied()
    }

    /// Warning: the model cannot read some answers.
    pub fn warning(&self) -> Option<String> {
        let count = self.unreadable;
        (count > 0).then(|| format!("the embedding model cannot read {count} answers, {LACKS}: their BERTScore is 0"))
    }
}

/// The token embeddings of the references.
#[derive(Debug, Clone)]
pub(super) struct References {
    states: Arc<[TokenStates]>,
    /// Warning: some are left out because the model cannot read them.
    pub warning: Option<String>,
}

impl References {
    /// Leaves out references that the model cannot read.
    fn new(mut states: Vec<TokenStates>) -> Result<Self, EngineError> {
        let all = states.len();
        states.retain(|states| !states.unreadable);
        let left_out = all - states.len();
        if states.is_empty() && left_out > 0 {
            let problem = format!(
                "the embedding model cannot read them, {LACKS}: name another annotator than BERTScore, or set \
                 embedding.model to a model of their language"
            );
            return Err(EngineError::invalid("references", problem));
        }
        let warning = (left_out > 0).then(|| {
            format!(
                "the embedding model cannot read {left_out} of {all} references, {LACKS}: BERTScore leaves them out"
            )
        });
        Ok(Self { states: states.into(), warning })
    }
}

/// Why the model cannot read a text.
const LACKS: &str = "most of whose text is words that its vocabulary lacks";

fn vectors(states: &TokenStates) -> Vectors<'_> {
    // A text without tokens may have embeddings of width 0.
    Vectors { width: states.width.max(1), values: &states.values }
}

/// The token embeddings of the references; `None` if no annotator needs them. Computed before the generator runs,
/// so that a model without token embeddings refuses the request at once.
///
/// # Errors
/// [`EngineError::Precondition`] without an embedding model, or if it gives no token embeddings;
/// [`EngineError::Invalid`] for references that it cannot read.
pub(super) async fn references(
    models: &Models,
    call: &Call,
    request: &EvaluateRequest,
) -> Result<Option<References>, EngineError> {
    if !request.has(Annotator::needs_embedding) {
        return Ok(None);
    }
    let model = models.scorer(Role::Embedding)?;
    References::new(model.states(request.references.as_slice().into(), call).await?).map(Some)
}

/// BERTScore of texts.
#[derive(Debug, Clone)]
pub struct BertScorer {
    pub(crate) models: Models,
}

impl BertScorer {
    /// BERTScore's F1 of each text against its best reference, in [0, 1]; in the order of the texts.
    ///
    /// # Errors
    /// [`EngineError::Precondition`] without an embedding model, or if it gives no token embeddings;
    /// [`EngineError::Invalid`] for more than 2^24 pairs of tokens, and for texts or references that the model
    /// cannot read.
    pub async fn scores(&self, call: &Call, texts: &[String], references: &[String]) -> Result<Vec<f64>, EngineError> {
        let states = self.models.scorer(Role::Embedding)?.states(references.into(), call).await?;
        let references = References::new(states)?;
        let scores = scores(&self.models, call, texts.to_vec(), references.clone()).await?;
        if let Some(warning) = &references.warning {
            tracing::warn!("{warning}");
        }
        if scores.unreadable > 0 {
            let problem = format!("the embedding model cannot read {} of them, {LACKS}", scores.unreadable);
            return Err(EngineError::invalid("texts", problem));
        }
        let missing = || EngineError::Internal("a BERTScore is missing".into());
        texts.iter().map(|text| scores.of(text).ok_or_else(missing)).collect()
    }
}

/// F1 of each answer against its best reference, in [0, 1].
///
/// # Errors
/// [`EngineError::Precondition`] without an embedding model, or if it gives no token embeddings;
/// [`EngineError::Invalid`] for more than 2^24 pairs of tokens.
pub(super) async fn scores(
    models: &Models,
    call: &Call,
    mut answers: Vec<String>,
    References { states: references, .. }: References,
) -> Result<Scores, EngineError> {
    let model = models.scorer(Role::Embedding)?;
    answers.sort_unstable();
    answers.dedup();
    let of_references: usize = references.iter().map(|states| vectors(states).tokens()).sum();
    let (mut scores, mut pairs) = (Scores::default(), 0_usize);
    for some in answers.chunks(ANSWERS) {
        let states = model.states(some.into(), call).await?;
        scores.unreadable += states.iter().filter(|states| states.unreadable).count();
        let tokens: usize = states.iter().map(|states| vectors(states).tokens()).sum();
        pairs = pairs.saturating_add(tokens.saturating_mul(of_references));
        if pairs > MOST_PAIRS {
            let problem = format!("more than {MOST_PAIRS} pairs of a token with one of an answer");
            return Err(EngineError::invalid("references", problem));
        }
        let references = Arc::clone(&references);
        let arithmetic = move |call: &Call| {
            let best = |answer: &TokenStates| {
                if answer.unreadable {
                    return Ok(0.0);
                }
                references.iter().try_fold(0.0_f64, |best, reference| {
                    call.check()?;
                    Ok::<_, EngineError>(best.max(bert_score(vectors(answer), vectors(reference)).f1))
                })
            };
            states.iter().map(best).collect::<Result<Vec<f64>, _>>()
        };
        scores.scores.extend(some.iter().cloned().zip(call.compute(arithmetic).await?));
    }
    Ok(scores)
}
