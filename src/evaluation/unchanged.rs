//! Whether a server still is the one with which a run began. A run takes hours: servers are replaced meanwhile, and calibrations
//! are taken up within seconds. Results of two configurations under one manifest would be summarised as if they were of one.

use crate::backend::{Backend, BackendError, ModelIdentity};

/// Refuses an answer of a server that has other models, prompts or calibrations than those that the run began with. Those of an
/// engine in this process do not change.
pub(crate) async fn check(backend: &Backend, began: &ModelIdentity) -> Result<(), BackendError> {
    if matches!(backend, Backend::Local(_)) {
        return Ok(());
    }
    changed(began, &backend.models().await?).map_or(Ok(()), |what| {
        let problem = format!(
            "the server has {what} than when these results were begun: the last answer is not kept. Answers of several servers, or \
             from before and after a calibration, cannot be compared: ask one of them, or begin anew with --restart"
        );
        Err(BackendError::Unsuitable(problem))
    })
}

/// What is not as it was.
fn changed(began: &ModelIdentity, now: &ModelIdentity) -> Option<&'static str> {
    let generator = |one: &ModelIdentity| (one.generator.clone(), one.encoding.clone(), one.adapter.clone(), one.frame);
    if generator(began) != generator(now) {
        return Some("another generator, tensor type, adapter or frame of prompts");
    }
    if began.calibrations != now.calibrations {
        return Some("other calibrations");
    }
    (began != now).then_some("other models beside the generator, or prompts")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::v1::RankingCalibration;

    #[test]
    fn what_changed_is_named() {
        let began = ModelIdentity { generator: "ab".into(), encoding: "BF16".into(), ..ModelIdentity::default() };
        assert_eq!(changed(&began, &began.clone()), None);
        let replica = ModelIdentity { encoding: "F16".into(), ..began.clone() };
        assert!(changed(&began, &replica).unwrap().contains("tensor type"));
        let calibrated = ModelIdentity { calibrations: vec![RankingCalibration::default()], ..began.clone() };
        assert_eq!(changed(&began, &calibrated), Some("other calibrations"));
        let judged = ModelIdentity { entailment: "cd".into(), ..began.clone() };
        assert!(changed(&began, &judged).unwrap().contains("beside the generator"));
    }
}
