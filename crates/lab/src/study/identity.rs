//! The identity of models and prompts, for manifests. Results can be continued if it is the same.

use engine::types::MethodRef;
use engine::types::Role;
use prefix_scheduler::model::PromptFormat;
use prefix_scheduler::model::YesNoPrompt;
use protocol::client::{Client, ClientError};
use protocol::v1;

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
    /// The generator's prompt format.
    pub frame: PromptFormat,
    /// The scorer: SHA-256 of its file and tensor type, and its adapter with the scale, if any. `None` if the
    /// generator scores.
    pub scorer: Option<String>,
    /// The scorer's prompt format. `None` without a scorer.
    pub scorer_frame: Option<PromptFormat>,
    /// The reranker and embedding model: role and `scores_sha256`.
    pub beside: Vec<(Role, String)>,
    /// The generator's calibrated position profiles, which decide how contexts are ordered. `None` if the order does not
    /// matter ([`profiles`]).
    pub profiles: Option<Vec<String>>,
    /// SHA-256 of the entailment model's file; empty if none is configured.
    pub entailment: String,
    /// Version of the prompts, and the prompts of causal rerankers.
    pub prompts: String,
    /// Version of the ranking code.
    pub ranking: String,
    /// True if the model that scores is a causal reranker.
    pub scores_as_reranker: bool,
    /// Calibrations of ranking methods for the generator, which change rankings and scores.
    pub calibrations: Vec<v1::RankingCalibration>,
    /// Calibrations of ranking methods for the scorer.
    pub scorer_calibrations: Vec<v1::RankingCalibration>,
}

/// An adapter in a manifest.
fn adapted(adapter: &v1::AdapterInfo) -> String {
    format!("{} times {}", adapter.sha256, adapter.scale)
}

/// The format of a model's prompts.
const fn frame_of(model: &v1::ModelInfo) -> PromptFormat {
    match (model.chat_template, model.jinja) {
        (false, _) => PromptFormat::Plain,
        (true, false) => PromptFormat::Chat,
        (true, true) => PromptFormat::Jinja,
    }
}

/// A scorer in a manifest.
fn scored_by(model: &v1::ModelInfo) -> String {
    let adapter = model.adapter.as_ref().map(|adapter| format!(" with {}", adapted(adapter)));
    format!("{} as {}{}", model.sha256, model.encoding, adapter.unwrap_or_default())
}

/// The generator's calibrated and built-in position profiles, for [`ModelIdentity`]. They need a loaded generator.
/// Learnt profiles change with every request and are not included.
pub async fn profiles(client: &Client) -> Result<Vec<String>, ClientError> {
    let all = client.position_bias().await?.profiles;
    let measured = all.iter().filter(|profile| profile.origin() != v1::ProfileOrigin::Learnt);
    let text = |profile: &v1::PositionProfile| {
        let v1::PositionProfile { passages, observations, means, standard_errors, .. } = profile;
        format!("{} {passages} {observations} {means:?} {standard_errors:?}", profile.subject().as_str_name())
    };
    Ok(measured.map(text).collect())
}

/// True if this is the prompt of a causal reranker, by the name in a server's answer.
fn is_reranker(prompt: &str) -> bool {
    prompt != YesNoPrompt::Generic.name()
}

/// The version of the prompts and the prompts of causal rerankers, by the names in servers' answers.
fn prompts(version: &str, generator: &str, scorer: Option<&str>) -> String {
    let own = [("generator", Some(generator)), ("scorer", scorer)];
    let named = own.into_iter().filter_map(|(role, name)| Some((role, name.filter(|name| is_reranker(name))?)));
    named.fold(version.to_owned(), |text, (role, name)| format!("{text}, {role} {name}"))
}

impl ModelIdentity {
    /// The models behind a client.
    pub async fn of(client: &Client) -> Result<Self, ClientError> {
        let info = client.server_info().await?;
        let generator = info.generator.unwrap_or_default();
        let (scorer, scorer_calibrations) =
            info.scorer.map_or((None, Vec::new()), |scorer| (scorer.model, scorer.calibrations));
        let scorers_prompt = scorer.as_ref().map(|model| &*model.yes_no_prompt);
        let beside = [(Role::Reranker, info.reranker), (Role::Embedding, info.embedding)];
        Ok(Self {
            frame: frame_of(&generator),
            adapter: generator.adapter.as_ref().map(adapted),
            prompts: prompts(&info.template_version, &generator.yes_no_prompt, scorers_prompt),
            scores_as_reranker: is_reranker(scorers_prompt.unwrap_or(&generator.yes_no_prompt)),
            scorer_frame: scorer.as_ref().map(frame_of),
            scorer: scorer.as_ref().map(scored_by),
            beside: beside.into_iter().filter_map(|(role, model)| Some((role, model?.scores_sha256))).collect(),
            profiles: None,
            entailment: info.entailment.map(|model| model.sha256).unwrap_or_default(),
            ranking: info.ranking_version,
            calibrations: info.calibrations,
            scorer_calibrations,
            generator: generator.sha256,
            name: generator.name,
            encoding: generator.encoding,
        })
    }

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
            frame: PromptFormat::Chat,
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
    /// if there is none.
    pub fn asked(&self, methods: impl IntoIterator<Item = MethodRef>) -> Option<Vec<String>> {
        let roles: Vec<Role> =
            methods.into_iter().flat_map(|method| [method.passage_model(), method.mixed_model()]).flatten().collect();
        let asked = self.beside.iter().filter(|(role, _)| roles.contains(role));
        let names: Vec<String> = asked.map(|(role, sha256)| format!("{} {sha256}", role.name())).collect();
        (!names.is_empty()).then_some(names)
    }

    /// Prompt formats that differ from the default, for a manifest. Without an entry prompts use llama.cpp's template.
    pub fn frames(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let keys = [
            (Some(self.frame), ["chat_template", "jinja"]),
            (self.scorer_frame, ["scorer_chat_template", "scorer_jinja"]),
        ];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prompts_of_another_frame_have_an_entry() {
        let entries = |frame, scorer_frame| {
            let models = ModelIdentity { frame, scorer_frame, ..ModelIdentity::scripted("") };
            models.frames().collect::<Vec<_>>()
        };
        let [chat, jinja, plain] = PromptFormat::ALL;
        assert_eq!((entries(chat, None), entries(chat, Some(chat))), (vec![], vec![]));
        assert_eq!(entries(plain, Some(chat)), [("chat_template", false)]);
        assert_eq!(entries(chat, Some(plain)), [("scorer_chat_template", false)]);
        assert_eq!(entries(plain, Some(jinja)), [("chat_template", false), ("scorer_jinja", true)]);
        assert_eq!(entries(jinja, Some(chat)), [("jinja", true)]);
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
    fn only_prompts_of_rerankers_are_named_beside_the_version() {
        assert_eq!(prompts("v", "generic", None), "v");
        assert_eq!(prompts("v", "generic", Some("generic")), "v");
        assert_eq!(prompts("v", "generic", Some("qwen3")), "v, scorer qwen3");
        assert_eq!(prompts("v", "bge-gemma", Some("qwen3")), "v, generator bge-gemma, scorer qwen3");
    }
}
