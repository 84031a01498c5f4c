//! BERTScore of answers over the token states of the embedding model.
//!
//! The states are those of its last layer. The paper (Zhang et al., 2020) takes the layer of a network that agrees best with
//! people on translations; SePer's Table 2 does not say which network it takes.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Annotator, EvaluateRequest};
use crate::call::Call;
use crate::engine::models::Role;
use crate::engine::{Engine, EngineError};
use crate::metrics::bert_score::{Vectors, bert_score};
use crate::model::reranker::TokenStates;

/// Answers whose states are held at once: a megabyte each for 512 tokens of width 512.
const ANSWERS: usize = 16;

/// Most pairs of a token of an answer and a token of a reference in one request: some seconds of arithmetic. One answer of 512
/// tokens and 64 references of 512 tokens are as many.
const MOST_PAIRS: usize = 1 << 24;

/// BERTScores by answer.
pub(super) type Scores = HashMap<String, f64>;

fn vectors(states: &TokenStates) -> Vectors<'_> {
    // A text without tokens may have states of no width.
    Vectors { width: states.width.max(1), values: &states.values }
}

/// The states of the references; `None` where no annotator needs them. Asked for before the generator works, so that a model that
/// gives none refuses the request at once.
///
/// # Errors
/// [`EngineError::Precondition`] without an embedding model, or with one that gives no states of tokens.
pub(super) async fn references(
    engine: &Engine,
    call: &Call,
    request: &EvaluateRequest,
) -> Result<Option<Arc<[TokenStates]>>, EngineError> {
    if !request.has(Annotator::needs_embedding) {
        return Ok(None);
    }
    let model = engine.models().scorer(Role::Embedding)?;
    Ok(Some(model.states(request.references.as_slice().into(), call).await?.into()))
}

impl Engine {
    /// BERTScore's F1 of each text against its best reference, in [0, 1]; in the order of the texts.
    ///
    /// # Errors
    /// [`EngineError::Precondition`] without an embedding model, or with one that gives no states of tokens;
    /// [`EngineError::Invalid`] for more than 2^24 pairs of tokens.
    pub async fn bert_scores(
        &self,
        call: &Call,
        texts: &[String],
        references: &[String],
    ) -> Result<Vec<f64>, EngineError> {
        let states = self.models().scorer(Role::Embedding)?.states(references.into(), call).await?;
        let scores = scores(self, call, texts.to_vec(), states.into()).await?;
        let missing = || EngineError::Internal("a BERTScore is missing".into());
        texts.iter().map(|text| scores.get(text).copied().ok_or_else(missing)).collect()
    }
}

/// F1 of each answer against its best reference, in [0, 1].
///
/// # Errors
/// [`EngineError::Precondition`] without an embedding model, or with one that gives no states of tokens;
/// [`EngineError::Invalid`] for more than 2^24 pairs of tokens.
pub(super) async fn scores(
    engine: &Engine,
    call: &Call,
    mut answers: Vec<String>,
    references: Arc<[TokenStates]>,
) -> Result<Scores, EngineError> {
    let model = engine.models().scorer(Role::Embedding)?;
    answers.sort_unstable();
    answers.dedup();
    let of_references: usize = references.iter().map(|states| vectors(states).tokens()).sum();
    let (mut scores, mut pairs) = (Scores::new(), 0_usize);
    for some in answers.chunks(ANSWERS) {
        let states = model.states(some.into(), call).await?;
        let tokens: usize = states.iter().map(|states| vectors(states).tokens()).sum();
        pairs = pairs.saturating_add(tokens.saturating_mul(of_references));
        if pairs > MOST_PAIRS {
            let problem = format!("more than {MOST_PAIRS} pairs of a token with one of an answer");
            return Err(EngineError::invalid("references", problem));
        }
        let references = Arc::clone(&references);
        let arithmetic = move |call: &Call| {
            let best = |answer: &TokenStates| {
                references.iter().try_fold(0.0_f64, |best, reference| {
                    call.check()?;
                    Ok::<_, EngineError>(best.max(bert_score(vectors(answer), vectors(reference)).f1))
                })
            };
            states.iter().map(best).collect::<Result<Vec<f64>, _>>()
        };
        scores.extend(some.iter().cloned().zip(call.compute(arithmetic).await?));
    }
    Ok(scores)
}
