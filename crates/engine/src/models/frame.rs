//! A generator with prompts of another frame, to compare frames on the same weights. The method that ranks has it; what is measured
//! beside the ranking keeps its own.

use std::sync::Arc;

use super::ServedGenerator;
use crate::calibrations::Calibrations;
use crate::position_bias::PositionBias;
use crate::prompt::Language;
use crate::types::EngineError;
use prefix_scheduler::model::Frame;

impl ServedGenerator {
    /// This generator, with prompts of another frame where one is asked for. What was measured of its own prompts, position bias
    /// and calibrations, is left behind.
    ///
    /// # Errors
    /// [`EngineError::Precondition`] where the model has no chat template or none that can be applied.
    pub fn with_frame(self: &Arc<Self>, frame: Option<Frame>) -> Result<Arc<Self>, EngineError> {
        let Some(frame) = frame.filter(|frame| *frame != self.info.frame_in_use()) else { return Ok(Arc::clone(self)) };
        let tokenizer = Arc::clone(&self.language.tokenizer);
        let refused = |problem: &str| EngineError::Precondition(format!("{} prompts: {problem}", frame.name()));
        let template =
            tokenizer.chat_frame(frame).map_err(|problem| refused(&format!("the chat template: {problem}")))?;
        if template.is_none() && frame != Frame::Plain {
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
