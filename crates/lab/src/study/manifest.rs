//! Everything that results depend on. Results of another manifest are not continued.
//!
//! A run takes hours. Meanwhile servers may be replaced, and calibrations reloaded within seconds. Results of two
//! configurations under one manifest would be summarised as one, so every answer is checked ([`check`]).

use serde_json::{Map, Value, json};

use super::StudyError;
use super::backend::Backend;
use super::identity::{self, ModelIdentity};
use engine::types::MethodRef;
use prefix_scheduler::model::entailment::TextPair;

/// The entry of every manifest that names the program and the version of the files.
pub(super) const FORMAT: &str = "format";

/// Start of its value. The version follows.
pub(super) const PROGRAM: &str = "rerankd study ";

/// Version of the files. Results of another version are not continued.
const VERSION: u32 = 1;

/// The entry of the bounds of an engine in this process. A server does not report its bounds.
pub const BOUNDS: &str = "engine";

/// Models of a study other than the generator.
#[derive(Default)]
pub struct Uses {
    /// The ranking methods; `None` for all.
    pub methods: Option<Vec<MethodRef>>,
    /// The entailment model.
    pub entailment: bool,
}

/// A manifest: the study's name, the models that `uses` names, and the study's settings, which are an object.
pub fn of(study: &str, models: &ModelIdentity, uses: Uses, settings: Value) -> Map<String, Value> {
    let names: Option<Vec<&str>> = uses.methods.as_ref().map(|all| all.iter().map(|method| method.name()).collect());
    let beside = match uses.methods {
        Some(methods) => json!(models.asked(methods)),
        None => models.beside.iter().map(|(role, sha256)| format!("{} {sha256}", role.name())).collect(),
    };
    let entries = [
        (FORMAT, json!(format!("{PROGRAM}{VERSION}"))),
        ("study", json!(study)),
        ("generator_sha256", json!(models.generator)),
        ("generator_encoding", json!(models.encoding)),
        ("adapter", json!(models.adapter)),
        ("scorer", json!(models.scorer)),
        ("entailment_sha256", json!(uses.entailment.then_some(&models.entailment))),
        ("beside_the_generator", beside),
        ("prompts", json!(models.prompts)),
        ("ranking", json!(models.ranking)),
        ("calibrations", json!(models.calibrated(names.as_deref()))),
        ("position_profiles", json!(models.profiles)),
    ];
    let frames = models.frames().map(|(key, value)| (key, json!(value)));
    let mut manifest: Map<String, Value> =
        entries.into_iter().chain(frames).map(|(key, value)| (key.to_owned(), value)).collect();
    if let Value::Object(settings) = settings {
        manifest.extend(settings);
    }
    manifest
}

/// The entries in which two manifests differ, with both values.
pub fn differences(stored: &Map<String, Value>, now: &Map<String, Value>) -> Vec<String> {
    differences_in(stored, now, |_| true)
}

/// [`differences`] in these entries.
pub fn differences_in(
    stored: &Map<String, Value>,
    now: &Map<String, Value>,
    compared: impl Fn(&str) -> bool,
) -> Vec<String> {
    let keys = stored.keys().chain(now.keys().filter(|key| !stored.contains_key(*key)));
    let changed = keys.filter(|key| compared(key) && stored.get(*key) != now.get(*key));
    changed.map(|key| format!("{key} (stored {}, now {})", shown(stored.get(key)), shown(now.get(key)))).collect()
}

/// A value in an error message.
pub fn shown(value: Option<&Value>) -> String {
    let text = value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    if text.chars().count() > 70 { format!("{}…", text.chars().take(69).collect::<String>()) } else { text }
}

/// The models of the backend, with the entailment model's file if `judged`, the name of its user, needs it. A model
/// that is not loaded yet is loaded: its error then explains the failure, and its file does not change during a
/// run.
pub async fn models(backend: &Backend, judged: Option<&str>) -> Result<ModelIdentity, StudyError> {
    let models = ModelIdentity::of(&backend.client).await?;
    let Some(name) = judged.filter(|_| models.entailment.is_empty()) else { return Ok(models) };
    let needs = |problem: String| StudyError::Input(format!("{name} needs an entailment model: {problem}"));
    let pair = TextPair::new("A text.", "A text.");
    backend.client.entail(&[pair], "").await.map_err(|error| needs(error.to_string()))?;
    let models = ModelIdentity::of(&backend.client).await?;
    if models.entailment.is_empty() {
        return Err(needs("the server does not name its model".to_owned()));
    }
    Ok(models)
}

/// Refuses an answer of a server that would change the run's manifest. An engine in this process does not change.
pub(super) async fn check(
    backend: &Backend,
    began: &ModelIdentity,
    manifest: impl Fn(&ModelIdentity) -> Map<String, Value>,
) -> Result<(), StudyError> {
    if backend.engine.is_some() {
        return Ok(());
    }
    let mut now = ModelIdentity::of(&backend.client).await?;
    if began.profiles.is_some() {
        now.profiles = Some(identity::profiles(&backend.client).await?);
    }
    match differences(&manifest(began), &manifest(&now)) {
        changed if changed.is_empty() => Ok(()),
        changed => Err(StudyError::Other(anyhow::anyhow!(
            "the server is not as it was when these results were begun: {}. The last answer is not kept. Answers of several servers, or \
             from before and after a calibration, cannot be compared: ask one of them, or begin anew with --restart",
            changed.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::methods;
    use prefix_scheduler::model::PromptFormat;

    fn manifest(models: &ModelIdentity, uses: Uses) -> Map<String, Value> {
        of("a study", models, uses, json!({ "seed": 0 }))
    }

    #[test]
    fn what_differs_is_named_with_both_values() {
        let models = ModelIdentity::scripted("");
        let began = manifest(&models, Uses::default());
        assert!(differences(&began, &began).is_empty());
        let replica = ModelIdentity { generator: "cd".to_owned(), frame: PromptFormat::Plain, ..models };
        let changed = differences(&began, &manifest(&replica, Uses::default()));
        assert_eq!(
            changed,
            ["generator_sha256 (stored \"a generator\", now \"cd\")", "chat_template (stored nothing, now false)"]
        );
    }

    #[test]
    fn results_belong_to_the_models_and_prompts_that_made_them() {
        let of = |models: ModelIdentity| manifest(&models, Uses::default());
        let models = || ModelIdentity::scripted("the judge");
        assert_ne!(of(ModelIdentity { encoding: "q4_1".to_owned(), ..models() }), of(models()));
        let frames = |frame, scorer_frame| {
            let own = of(ModelIdentity { frame, scorer_frame, ..models() });
            ["chat_template", "jinja", "scorer_chat_template", "scorer_jinja"].map(|key| own.get(key).cloned())
        };
        let (plain, jinja) = (Some(json!(false)), Some(json!(true)));
        assert_eq!(frames(PromptFormat::Chat, Some(PromptFormat::Chat)), [None, None, None, None]);
        assert_eq!(frames(PromptFormat::Plain, None), [plain.clone(), None, None, None]);
        assert_eq!(frames(PromptFormat::Jinja, Some(PromptFormat::Plain)), [None, jinja, plain, None]);
    }

    #[test]
    fn models_that_are_not_asked_have_no_entry() {
        let of = |method: &str, entailment| {
            let uses = Uses { methods: Some(vec![methods::find(method).unwrap()]), entailment };
            let own = manifest(&ModelIdentity::scripted("the judge"), uses);
            (own["entailment_sha256"].clone(), own["beside_the_generator"].clone())
        };
        assert_eq!(of("semantic-utility", true).0, json!("the judge"));
        assert_eq!(of("moi", false), (Value::Null, Value::Null));
        assert_eq!(of("embedding", false).1, json!(["embedding an embedding model"]));
    }
}
