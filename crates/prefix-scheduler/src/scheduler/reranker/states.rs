//! Token embeddings of texts: lists that take turns with lists to score.

use std::sync::Arc;

use super::work::of_batch;
use super::{Answer, PassageScorer, Request, ScoreError};
use crate::call::Call;
use crate::model::ModelError;
use crate::model::reranker::{Reranker, TokenStates};
use crate::scheduler::turns::submit;

/// Bytes of text after which a turn ends early. A text is cut to fit the model.
const TURN_BYTES: usize = 16 << 10;

/// Texts whose token embeddings are requested.
pub(super) struct Texts {
    texts: Arc<[String]>,
    /// The embeddings of the first texts.
    states: Vec<TokenStates>,
}

impl Texts {
    /// Evaluates the next texts. Returns the embeddings of all texts once complete.
    pub fn turn(&mut self, model: &mut dyn Reranker) -> Result<Option<Vec<TokenStates>>, ScoreError> {
        let (mut chosen, mut bytes) = (Vec::new(), 0);
        let (turn, _) = of_batch(model.info().batch);
        for text in &self.texts[self.states.len()..] {
            if chosen.len() == turn || (!chosen.is_empty() && bytes + text.len() > TURN_BYTES) {
                break;
            }
            chosen.push(text.as_str());
            bytes += text.len();
        }
        let states = if chosen.is_empty() { Vec::new() } else { model.states(&chosen)? };
        if states.len() != chosen.len() {
            return Err(ModelError::Decode(format!("states of {} texts for {}", states.len(), chosen.len())).into());
        }
        if let Some(index) = states.iter().position(|one| !one.values.iter().all(|value| value.is_finite())) {
            let index = self.states.len() + index;
            return Err(ModelError::Decode(format!("the states of text {index} are not finite")).into());
        }
        self.states.extend(states);
        Ok((self.states.len() == self.texts.len()).then(|| std::mem::take(&mut self.states)))
    }
}

impl PassageScorer {
    /// The token embeddings of texts, in their order. Each text is read separately and cut to fit the model.
    /// Dropping the future, or stopping the call, drops the work before its next turn.
    ///
    /// # Errors
    /// As [`PassageScorer::score`]; with [`ModelError::Unusable`] for a model without token embeddings.
    pub async fn states(&self, texts: Arc<[String]>, call: &Call) -> Result<Vec<TokenStates>, ScoreError> {
        let request = Request::States(Texts { texts, states: Vec::new() });
        match submit(&self.worker, &self.backlog, request, call).await? {
            Answer::States(states) => Ok(states),
            Answer::Scores(_) => Err(ModelError::Decode("scores for states".into()).into()),
        }
    }
}
