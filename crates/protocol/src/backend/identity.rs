//! The identity of models and prompts, for manifests. Results can be continued if it is the same.

use super::{Backend, BackendError};
use crate::client::{self, ClientError};
use crate::v1;
use engine::prompt::{RANKING_VERSION, TEMPLATE_VERSION};
use engine::types::{MethodRef, Role};
use prefix_scheduler::model::{PromptFormat, YesNoPrompt};

/// The models and prompts that results depend on.
pub struct ModelIdentity {
    /// SHA-256 of the generator's file, without its adapter.
    pub generator: String,
    /// The generator's name in the catalogue, or its file name.
    pub name: String,
    /// Tensor type of the running model.
    pub encoding: String,
    /// The generator's adapter: SHA-256 of its file and its scale. `None` without one.
    pub adapter: Option<String>,
    /// The generator's prompt format. `None` if a server does not report it.
    pub frame: Option<PromptFormat>,
    /// The scorer: SHA-256 of its file and tensor type, and those of its adapter with the scale. `None` if the generator
    /// scores.
    pub scorer: Option<String>,
    /// The scorer's prompt format. `None` without a scorer, and if a server does not report it.
    pub scorer_frame: Option<PromptFormat>,
    /// The reranker and embedding model: role and `scores_sha256`.
    pub beside: Vec<(Role, String)>,
    /// The generator's calibrated position profiles, which decide how contexts are ordered. `None` if the order does not
    /// matter ([`Backend::profiles`]).
    pub profiles: Option<Vec<String>>,
    /// SHA-256 of the entailment model's file; empty if none is configured.
    pub entailment: String,
    /// Version of the prompts, and the prompts of causal rerankers.
    pub prompts: String,
    /// Version of the ranking code. Older servers do not report it.
    pub ranking: String,
    /// True if the model that scores is a causal reranker.
    pub scores_as_reranker: bool,
    /// Calibrations of ranking methods for the generator, which change rankings and scores.
    pub calibrations: Vec<v1::RankingCalibration>,
    /// Calibrations of ranking methods for the scorer.
    pub scorer_calibrations: Vec<v1::RankingCalibration>,
}

/// An adapter in a manifest.
fn adapted(sha256: &str, scale: f32) -> String {
    format!("{sha256} times {scale}")
}

/// The format of a server's prompts. A server that has not read the model's file reports neither format nor hash.
fn frame_of(model: &v1::ModelInfo) -> Option<PromptFormat> {
    let frame = match (model.chat_template, model.jinja) {
        (false, _) => PromptFormat::Plain,
        (true, false) => PromptFormat::Chat,
        (true, true) => PromptFormat::Jinja,
    };
    (!model.sha256.is_empty()).then_some(frame)
}

/// Reads the server's model information. The server listens before it has read its generators, and then reports no files
/// and calibrations, which no result belongs to.
fn read(info: v1::GetServerInfoResponse) -> Result<v1::GetServerInfoResponse, ClientError> {
    let scorer = info.scorer.as_ref().and_then(|scorer| scorer.model.as_ref());
    if info.generator.iter().chain(scorer).all(|model| !model.sha256.is_empty()) {
        return Ok(info);
    }
    let message = "the server has not read its generator yet".to_owned();
    Err(ClientError::Refused { code: "Unavailable".to_owned(), input: false, message, retry: Some(client::UNTOLD) })
}

/// Identity of a server's model for comparisons. Older servers report only its file.
fn scores_of(model: v1::RerankerModelInfo) -> String {
    if model.scores_sha256.is_empty() { model.sha256 } else { model.scores_sha256 }
}

/// A scorer in a manifest.
fn scored_by(sha256: &str, encoding: &str, adapter: Option<String>) -> String {
    let file = format!("{sha256} as {encoding}");
    adapter.map_or_else(|| file.clone(), |adapter| format!("{file} with {adapter}"))
}

/// Calibrated and built-in profiles in a manifest.
fn arranging(profiles: &[v1::PositionProfile]) -> Vec<String> {
    let measured = profiles.iter().filter(|profile| profile.origin() != v1::ProfileOrigin::Learnt);
    let text = |profile: &v1::PositionProfile| {
        let v1::PositionProfile { passages, observations, means, standard_errors, .. } = profile;
        format!("{} {passages} {observations} {means:?} {standard_errors:?}", profile.subject().as_str_name())
    };
    measured.map(text).collect()
}

/// True if this is the prompt of a causal reranker, by the name that a server reports.
fn is_reranker(prompt: &str) -> bool {
    !["", YesNoPrompt::Generic.name()].contains(&prompt)
}

/// The version of the prompts and the prompts of causal rerankers, by the names that servers report. Older servers report
/// none.
fn prompts(version: &str, generator: &str, scorer: Option<&str>) -> String {
    let own = [("generator", generator), ("scorer", scorer.unwrap_or_default())];
    let named = own.into_iter().filter(|(_, name)| is_reranker(name));
    named.fold(version.to_owned(), |text, (role, name)| format!("{text}, {role} {name}"))
}

impl ModelIdentity {
    /// The models of a test.
    pub fn scripted(entailment: &str) -> Self {
        Self {
            generator: "a generator".to_owned(),
            name: "scripted".to_owned(),
            encoding: "f32".to_owned(),
            entailment: entailment.to_owned(),
            prompts: "prompts".to_owned(),
            ranking: "ranking".to_owned(),
            scores_as_reranker: false,
            adapter: None,
            frame: Some(PromptFormat::Chat),
            scorer: None,
            scorer_frame: None,
            profiles: None,
            beside: vec![(Role::Embedding, "an embedding model".to_owned())],
            calibrations: Vec::new(),
            scorer_calibrations: Vec::new(),
        }
    }

    /// `scores_sha256` of the reranker or embedding model with this role; `None` if none is configured.
    pub fn sha256_of(&self, role: Role) -> Option<&str> {
        self.beside.iter().find(|(other, _)| *other == role).map(|(_, sha256)| sha256.as_str())
    }

    /// True if a calibration belongs to the running models. Others are not applied, so no result depends on them.
    pub fn holds(&self, one: &v1::RankingCalibration) -> bool {
        let has = |sha256: &str| sha256.is_empty() || self.beside.iter().any(|(_, own)| own == sha256);
        has(&one.model_sha256) && has(&one.embedding_sha256)
    }

    /// The reranker or embedding model that these methods ask, or whose scores they mix in, for a manifest. `None`
    /// without any.
    pub fn asked(&self, methods: impl IntoIterator<Item = MethodRef>) -> Option<Vec<String>> {
        let roles: Vec<Role> =
            methods.into_iter().flat_map(|method| [method.passage_model(), method.mixed_model()]).flatten().collect();
        let asked = self.beside.iter().filter(|(role, _)| roles.contains(role));
        let names: Vec<String> = asked.map(|(role, sha256)| format!("{} {sha256}", role.name())).collect();
        (!names.is_empty()).then_some(names)
    }

    /// Prompt formats that differ from the default, for a manifest. Without an entry prompts use llama.cpp's template, so
    /// that results from before these entries existed are continued.
    pub fn frames(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let keys =
            [(self.frame, ["chat_template", "jinja"]), (self.scorer_frame, ["scorer_chat_template", "scorer_jinja"])];
        keys.into_iter().filter_map(|(frame, [template, jinja])| match frame? {
            PromptFormat::Chat => None,
            PromptFormat::Jinja => Some((jinja, true)),
            PromptFormat::Plain => Some((template, false)),
        })
    }

    /// The calibrations of these methods, or of all, which rankings or scores depend on, for a manifest. `None` without
    /// any.
    pub fn calibrated(&self, methods: Option<&[&str]>) -> Option<Vec<String>> {
        let each = |one: &v1::RankingCalibration| {
            let weight = one.fusion_weight.map(|weight| weight.to_string()).unwrap_or_default();
            let mut text = format!("{} {} {weight} {} {}", one.method, one.fused_with, one.intercept, one.slope);
            // Left out if not learnt, so that results from before it existed are continued.
            if let Some(per_nat) = one.outranks_per_nat {
                text.push_str(&format!(" {per_nat}"));
            }
            if let Some(share) = one.embedding_weight {
                text.push_str(&format!(" cosines {share}"));
            }
            text
        };
        let asked = |one: &&v1::RankingCalibration| {
            self.holds(one) && methods.is_none_or(|methods| methods.contains(&one.method.as_str()))
        };
        let own = self.calibrations.iter().filter(asked).map(each);
        let scorers = self.scorer_calibrations.iter().filter(asked).map(|one| format!("scorer {}", each(one)));
        let all: Vec<String> = own.chain(scorers).collect();
        (!all.is_empty()).then_some(all)
    }
}

impl Backend {
    /// The generator's calibrated and built-in position profiles, for [`ModelIdentity`]. They need a loaded generator.
    /// Learnt profiles change with every request and are not included.
    pub async fn profiles(&self) -> Result<Vec<String>, BackendError> {
        Ok(match self {
            Self::Server(remote) => {
                arranging(&remote.patiently(|| client::position_bias(&remote.server)).await?.0.profiles)
            }
            Self::Local(engine) => arranging(&client::local_profiles(&engine.generator()?.position_bias.profiles())),
        })
    }

    /// The identity of the models.
    pub async fn models(&self) -> Result<ModelIdentity, BackendError> {
        Ok(match self {
            Self::Server(remote) => {
                let ask = || async { read(client::server_info(&remote.server).await?) };
                let info = remote.patiently(ask).await?.0;
                let generator = info.generator.unwrap_or_default();
                let frame = frame_of(&generator);
                let scorer_frame = info.scorer.as_ref().and_then(|scorer| scorer.model.as_ref()).and_then(frame_of);
                let scorers = info.scorer.as_ref().and_then(|scorer| scorer.model.as_ref());
                let scorers = scorers.map(|model| &*model.yes_no_prompt);
                let prompts = prompts(&info.template_version, &generator.yes_no_prompt, scorers);
                let scores_as_reranker = is_reranker(scorers.unwrap_or(&generator.yes_no_prompt));
                let scorer_calibrations = info.scorer.as_ref().map(|scorer| scorer.calibrations.clone());
                ModelIdentity {
                    generator: generator.sha256,
                    name: generator.name,
                    encoding: generator.encoding,
                    adapter: generator.adapter.map(|adapter| adapted(&adapter.sha256, adapter.scale)),
                    frame,
                    scorer_frame,
                    scorer: info.scorer.and_then(|scorer| scorer.model).map(|model| {
                        let adapter = model.adapter.map(|adapter| adapted(&adapter.sha256, adapter.scale));
                        scored_by(&model.sha256, &model.encoding, adapter)
                    }),
                    beside: [(Role::Reranker, info.reranker), (Role::Embedding, info.embedding)]
                        .into_iter()
                        .filter_map(|(role, model)| Some((role, model.map(scores_of)?)))
                        .collect(),
                    profiles: None,
                    entailment: info.entailment.map(|model| model.sha256).unwrap_or_default(),
                    prompts,
                    ranking: info.ranking_version,
                    scores_as_reranker,
                    calibrations: info.calibrations,
                    scorer_calibrations: scorer_calibrations.unwrap_or_default(),
                }
            }
            Self::Local(engine) => {
                let info = engine.generator()?.info.clone();
                let frame = Some(info.frame_in_use());
                let (mut calibrations, mut scorer_calibrations) = (Vec::new(), Vec::new());
                let (mut scorer, mut scorer_frame) = (None, None);
                let mut scorers = None;
                for model in engine.models().generators() {
                    let served = model.get()?;
                    let own = client::local_calibrations(&served.calibrations.all());
                    if model.role() == Role::Scorer {
                        scorer_calibrations = own;
                        let adapter = served.info.adapter.as_ref();
                        let adapter = adapter.map(|adapter| adapted(&adapter.sha256, adapter.scale));
                        scorer = Some(scored_by(&served.info.sha256, &served.info.encoding, adapter));
                        scorer_frame = Some(served.info.frame_in_use());
                        scorers = Some(served.info.yes_no.name());
                    } else {
                        calibrations = own;
                    }
                }
                ModelIdentity {
                    generator: info.sha256,
                    name: info.name,
                    encoding: info.encoding,
                    adapter: info.adapter.map(|adapter| adapted(&adapter.sha256, adapter.scale)),
                    frame,
                    scorer,
                    scorer_frame,
                    beside: engine
                        .models()
                        .scorers()
                        .iter()
                        .map(|(role, scorer)| (*role, scorer.scores_sha256()))
                        .collect(),
                    profiles: None,
                    entailment: engine.models().judge_sha256(),
                    ranking: RANKING_VERSION.to_owned(),
                    prompts: prompts(TEMPLATE_VERSION, info.yes_no.name(), scorers),
                    scores_as_reranker: is_reranker(scorers.unwrap_or(info.yes_no.name())),
                    calibrations,
                    scorer_calibrations,
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prompts_of_another_frame_have_an_entry() {
        let entries = |frame, scorer_frame| {
            let models = ModelIdentity { frame, scorer_frame, ..ModelIdentity::scripted("") };
            models.frames().collect::<Vec<_>>()
        };
        let [chat, jinja, plain] = PromptFormat::ALL.map(Some);
        assert_eq!((entries(chat, None), entries(chat, chat)), (vec![], vec![]));
        assert_eq!(entries(plain, chat), [("chat_template", false)]);
        assert_eq!(entries(chat, plain), [("scorer_chat_template", false)]);
        assert_eq!(entries(plain, jinja), [("chat_template", false), ("scorer_jinja", true)]);
        assert_eq!(entries(jinja, chat), [("jinja", true)]);
        assert!(entries(None, None).is_empty(), "a server that does not say");
    }

    /// A comparison is continued while the entries are the same.
    #[test]
    fn what_later_programs_learn_is_a_part_of_a_calibration_and_its_absence_is_not() {
        let of = |outranks_per_nat, embedding_weight| {
            let one = v1::RankingCalibration {
                method: "cascade".to_owned(),
                outranks_per_nat,
                embedding_weight,
                ..v1::RankingCalibration::default()
            };
            ModelIdentity { calibrations: vec![one], ..ModelIdentity::scripted("") }.calibrated(None).unwrap()
        };
        assert_eq!(of(None, None), ["cascade   0 0"]);
        assert_eq!(of(Some(0.6), None), ["cascade   0 0 0.6"]);
        assert_eq!(of(None, Some(0.6)), ["cascade   0 0 cosines 0.6"]);
    }

    #[test]
    fn calibrations_of_two_models_are_told_apart() {
        let one = v1::RankingCalibration { method: "moi".to_owned(), ..v1::RankingCalibration::default() };
        let of = |calibrations, scorer_calibrations| {
            ModelIdentity { calibrations, scorer_calibrations, ..ModelIdentity::scripted("") }
                .calibrated(Some(&["moi"]))
        };
        let other = v1::RankingCalibration { model_sha256: "of another file".to_owned(), ..one.clone() };
        assert_eq!(of(vec![other.clone()], vec![other]), None, "it decides nothing");
        let (own, scorers) = (of(vec![one.clone()], Vec::new()).unwrap(), of(Vec::new(), vec![one]).unwrap());
        assert_eq!((own, scorers), (vec!["moi   0 0".to_owned()], vec!["scorer moi   0 0".to_owned()]));
    }

    #[test]
    fn a_server_that_has_not_read_its_model_does_not_say_its_frame() {
        let of = |sha256: &str, chat_template, jinja| {
            frame_of(&v1::ModelInfo { sha256: sha256.to_owned(), chat_template, jinja, ..v1::ModelInfo::default() })
        };
        assert_eq!(
            [of("ab", true, true), of("ab", true, false), of("ab", false, false), of("", false, false)],
            [Some(PromptFormat::Jinja), Some(PromptFormat::Chat), Some(PromptFormat::Plain), None]
        );
    }

    /// Results of a server that is still reading its files would belong to no model and be discarded later.
    #[tokio::test]
    async fn a_server_that_reads_its_models_is_asked_again() {
        let of = |generator: &str, scorer: Option<&str>| {
            let model = |sha256: &str| v1::ModelInfo { sha256: sha256.to_owned(), ..v1::ModelInfo::default() };
            let scorer =
                scorer.map(|sha256| v1::ScorerInfo { model: Some(model(sha256)), ..v1::ScorerInfo::default() });
            v1::GetServerInfoResponse { generator: Some(model(generator)), scorer, ..Default::default() }
        };
        let answers = std::sync::Mutex::new(vec![of("ab", Some("cd")), of("ab", Some("")), of("", None)]);
        let ask = || async { read(answers.lock().unwrap().pop().unwrap()) };
        let Backend::Server(remote) = Backend::server("h:1".into(), 1) else { panic!() };
        assert_eq!(remote.patiently(ask).await.unwrap().0, of("ab", Some("cd")));
        assert!(read(of("ab", None)).is_ok());
    }

    #[test]
    fn only_prompts_of_rerankers_are_named_beside_the_version() {
        assert_eq!(prompts("v", "generic", None), "v");
        assert_eq!(prompts("v", "", Some("generic")), "v", "an older server, or one that has not read its model");
        assert_eq!(prompts("v", "generic", Some("qwen3")), "v, scorer qwen3");
        assert_eq!(prompts("v", "bge-gemma", Some("qwen3")), "v, generator bge-gemma, scorer qwen3");
    }
}
