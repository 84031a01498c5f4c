//! Whether a server still is the one with which a run began. A run takes hours: servers are replaced meanwhile, and calibrations
//! are taken up within seconds. Results of two configurations under one manifest would be summarised as if they were of one.

use serde_json::{Map, Value};

use protocol::backend::{Backend, BackendError, ModelIdentity};

/// Refuses an answer of a server with which the run's manifest would be another one. An engine in this process does not change.
pub(crate) async fn check(
    backend: &Backend,
    began: &ModelIdentity,
    manifest: impl Fn(&ModelIdentity) -> Map<String, Value>,
) -> Result<(), BackendError> {
    if matches!(backend, Backend::Local(_)) {
        return Ok(());
    }
    let mut now = backend.models().await?;
    if began.profiles.is_some() {
        now.profiles = Some(backend.profiles().await?);
    }
    changed(&manifest(began), &manifest(&now)).map_or(Ok(()), |what| {
        let problem = format!(
            "{what} of the server is not as it was when these results were begun: the last answer is not kept. Answers of several servers, \
             or from before and after a calibration, cannot be compared: ask one of them, or begin anew with --restart"
        );
        Err(BackendError::Unsuitable(problem))
    })
}

/// The first field that differs.
fn changed(began: &Map<String, Value>, now: &Map<String, Value>) -> Option<String> {
    let fields = began.keys().chain(now.keys());
    fields.into_iter().find(|field| began.get(*field) != now.get(*field)).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_field_that_changed_is_named() {
        let manifest = |value: Value| value.as_object().cloned().unwrap();
        let began = manifest(json!({ "generator": "ab", "seed": 0 }));
        assert_eq!(changed(&began, &began), None);
        let replica = manifest(json!({ "generator": "cd", "seed": 0 }));
        assert_eq!(changed(&began, &replica).unwrap(), "generator");
        let calibrated = manifest(json!({ "generator": "ab", "seed": 0, "calibrations": ["cascade"] }));
        assert_eq!(changed(&began, &calibrated).unwrap(), "calibrations");
    }
}
