//! What a request takes, without doing it.

use super::{RerankRequest, check};
use crate::call::Call;
use crate::engine::{Engine, EngineError};
use crate::plan::Cost;

impl Engine {
    /// Computes the cost of the first round of prompts without evaluating anything.
    ///
    /// # Errors
    /// As [`Engine::rerank`] before any work.
    pub async fn cost(&self, call: &Call, request: RerankRequest) -> Result<Cost, EngineError> {
        check::check(&request, self.limits())?;
        let scorer = self.scoring_model(&request)?.get()?;
        self.driver(call, &request, &scorer).first_round(request).await
    }
}
