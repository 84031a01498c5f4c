//! A generator with another prompt format, to compare formats on the same weights. Ranking and compression use it;
//! the utility uses the configured one.

use std::sync::Arc;

use super::ServedGenerator;
use crate::calibrations::Calibrations;
use crate::position_bias::PositionBias;
use crate::prompt::Language;
use crate::types::EngineError;
use prefix_scheduler::model::PromptFormat;

impl ServedGenerator {
    /// This generator, with another prompt format if requested. Position bias and calibrations were measured with
    /// its own format, so the new generator has none.
    ///
    /// # Errors
    /// [`EngineError::Precondition`] if the model has no usable chat template.
    pub fn with_frame(self: &Arc<Self>, frame: Option<PromptFormat>) -> Result<Arc<Self>, EngineError> {
        let Some(frame) = frame.filter(|frame| *frame != self.info.frame_in_use()) else { return Ok(Arc::clone(self)) };
        let tokenizer = Arc::clone(&self.language.tokenizer);
        let refused = |problem: &str| EngineError::Precondition(format!("{} prompts: {problem}", frame.name()));
        let template =
            tokenizer.chat_frame(frame).map_err(|problem| refused(&format!("the chat template: {problem}")))?;
        if template.is_none() && frame != PromptFormat::Plain {
            return Err(refused("the model has no chat template"));
        }
        let mut info = self.info.clone();
        (info.frame, info.chat) = (frame, template.is_some());
        Ok(Arc::new(Self {
            scheduler: self.scheduler.clone(),
            language: Language::framed(tokenizer, template).with_yes_no(info.yes_no),
            info,
            position_bias: Arc::new(PositionBias::default()),
            calibrations: Calibrations::default(),
        }))
    }
}
