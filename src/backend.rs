//! Where a command's requests are answered: by a server, or by an engine in this process. Both answer in the protocol's types,
//! so that a command shows the same for either.

use crate::call::Call;
use crate::engine::belief::TextPair;
use crate::engine::evaluate::EvaluateRequest;
use crate::engine::methods::MethodRef;
use crate::engine::models::Role;
use crate::engine::prompt::Frame;
use crate::engine::rerank::RerankRequest;
use crate::engine::task::{Task, TaskKind};
use crate::engine::utility::UtilityRequest;
use crate::engine::{Engine, EngineError};
use crate::rpc::client::{self, ClientError};
use crate::rpc::convert_task::kind_to_wire;
use crate::rpc::{connect, v1};

/// A server or an engine in this process.
pub(crate) enum Backend {
    Server { server: Box<connect::Server>, message_bytes: usize },
    Local(Box<Engine>),
}

/// The models and prompts that results depend on.
pub(crate) struct ModelIdentity {
    /// SHA-256 of the generator's file, without what an adapter adds.
    pub generator: String,
    /// The generator's name in the catalogue, or its file's.
    pub name: String,
    /// Tensor type in which it runs.
    pub encoding: String,
    /// The generator's adapter: its file's SHA-256 and its scale. `None` without one.
    pub adapter: Option<String>,
    /// The frame of the generator's prompts. `None` where a server does not say.
    pub frame: Option<Frame>,
    /// The scorer: its file's SHA-256, with an adapter its file and scale too. `None` where the generator scores.
    pub scorer: Option<String>,
    /// The frame of the scorer's prompts. `None` without a scorer, and where a server does not say.
    pub scorer_frame: Option<Frame>,
    /// The models that score passages beside the generator: role and `scores_sha256`.
    pub beside: Vec<(Role, String)>,
    /// SHA-256 of the entailment model's file; empty where none is configured.
    pub entailment: String,
    /// Version of the prompts.
    pub prompts: String,
    /// Calibrated ranking methods: they change rankings and scores.
    pub calibrations: Vec<v1::RankingCalibration>,
}

/// A backend that cannot answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackendError {
    /// The server refused or is not reachable.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The engine in this process failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The backend answered, but not what was asked for.
    #[error("{0}")]
    Unsuitable(String),
}

/// Why a question has no answer.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The question is at fault. Other questions may be answered.
    Question(String),
    /// The backend cannot answer any question.
    Fatal(BackendError),
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Invalid { .. }
            | EngineError::TooLong { .. }
            | EngineError::Budget { .. }
            | EngineError::Pairs { .. } => Self::Question(error.to_string()),
            other => Self::Fatal(other.into()),
        }
    }
}

impl From<ClientError> for Refusal {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused { message, input: true, .. } => Self::Question(message),
            other => Self::Fatal(other.into()),
        }
    }
}

/// Refuses an answer to another task. A server without the field `task` ignores it.
fn check_task(asked: &Task, answered: v1::Task) -> Result<(), Refusal> {
    if asked.kind == TaskKind::default() || kind_to_wire(asked.kind) == answered {
        return Ok(());
    }
    let problem = format!("the server does not know the task {}: it is older than this program", asked.kind.name());
    Err(Refusal::Fatal(BackendError::Unsuitable(problem)))
}

/// An adapter in a manifest.
fn adapted(sha256: &str, scale: f32) -> String {
    format!("{sha256} times {scale}")
}

/// The frame of a server's prompts. Before it has read the model's file it knows neither that nor the hash.
fn frame_of(model: &v1::ModelInfo) -> Option<Frame> {
    let frame = match (model.chat_template, model.jinja) {
        (false, _) => Frame::Plain,
        (true, false) => Frame::Chat,
        (true, true) => Frame::Jinja,
    };
    (!model.sha256.is_empty()).then_some(frame)
}

/// What comparisons with a server's model belong to. Older servers name its file alone.
fn scores_of(model: v1::RerankerModelInfo) -> String {
    if model.scores_sha256.is_empty() { model.sha256 } else { model.scores_sha256 }
}

/// A scorer in a manifest.
fn scored_by(sha256: &str, adapter: Option<String>) -> String {
    adapter.map_or_else(|| sha256.to_owned(), |adapter| format!("{sha256} with {adapter}"))
}

impl ModelIdentity {
    /// The models of a test.
    #[cfg(test)]
    pub fn scripted(entailment: &str) -> Self {
        Self {
            generator: "a generator".to_owned(),
            name: "scripted".to_owned(),
            encoding: "f32".to_owned(),
            entailment: entailment.to_owned(),
            prompts: "prompts".to_owned(),
            adapter: None,
            frame: Some(Frame::Chat),
            scorer: None,
            scorer_frame: None,
            beside: vec![(Role::Embedding, "an embedding model".to_owned())],
            calibrations: Vec::new(),
        }
    }

    /// `scores_sha256` of the model with this role beside the generator; `None` where none is configured.
    pub fn sha256_of(&self, role: Role) -> Option<&str> {
        self.beside.iter().find(|(other, _)| *other == role).map(|(_, sha256)| sha256.as_str())
    }

    /// The models beside the generator that these methods ask, or whose scores they mix in, for a manifest. `None` without any.
    pub fn asked(&self, methods: impl IntoIterator<Item = MethodRef>) -> Option<Vec<String>> {
        let roles: Vec<Role> =
            methods.into_iter().flat_map(|method| [method.beside(), method.signal()]).flatten().collect();
        let asked = self.beside.iter().filter(|(role, _)| roles.contains(role));
        let names: Vec<String> = asked.map(|(role, sha256)| format!("{} {sha256}", role.name())).collect();
        (!names.is_empty()).then_some(names)
    }

    /// Frame settings that differ from the default, for a manifest: the frame is a part of every prompt. Without an entry prompts
    /// take llama.cpp's template, so that results from before these entries were written are continued.
    pub fn frames(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let keys =
            [(self.frame, ["chat_template", "jinja"]), (self.scorer_frame, ["scorer_chat_template", "scorer_jinja"])];
        keys.into_iter().filter_map(|(frame, [template, jinja])| match frame? {
            Frame::Chat => None,
            Frame::Jinja => Some((jinja, true)),
            Frame::Plain => Some((template, false)),
        })
    }

    /// The calibrations of these methods, or of all, for a manifest: what a ranking or a score depends on. `None` without any.
    pub fn calibrated(&self, methods: Option<&[&str]>) -> Option<Vec<String>> {
        let each = |one: &v1::RankingCalibration| {
            let weight = one.fusion_weight.map(|weight| weight.to_string()).unwrap_or_default();
            let mut text = format!("{} {} {weight} {} {}", one.method, one.fused_with, one.intercept, one.slope);
            // Results from before it could be learnt are continued.
            if let Some(per_nat) = one.outranks_per_nat {
                text.push_str(&format!(" {per_nat}"));
            }
            text
        };
        let own =
            self.calibrations.iter().filter(|one| methods.is_none_or(|methods| methods.contains(&one.method.as_str())));
        let each: Vec<String> = own.map(each).collect();
        (!each.is_empty()).then_some(each)
    }
}

impl Backend {
    /// The models that answer.
    pub async fn models(&self) -> Result<ModelIdentity, BackendError> {
        Ok(match self {
            Self::Server { server, .. } => {
                let info = client::server_info(server).await?;
                let generator = info.generator.unwrap_or_default();
                let frame = frame_of(&generator);
                let scorer_frame = info.scorer.as_ref().and_then(|scorer| scorer.model.as_ref()).and_then(frame_of);
                let mut calibrations = info.calibrations;
                calibrations.extend(info.scorer.iter().flat_map(|scorer| scorer.calibrations.iter().cloned()));
                ModelIdentity {
                    generator: generator.sha256,
                    name: generator.name,
                    encoding: generator.encoding,
                    adapter: generator.adapter.map(|adapter| adapted(&adapter.sha256, adapter.scale)),
                    frame,
                    scorer_frame,
                    scorer: info.scorer.and_then(|scorer| scorer.model).map(|model| {
                        let adapter = model.adapter.map(|adapter| adapted(&adapter.sha256, adapter.scale));
                        scored_by(&model.sha256, adapter)
                    }),
                    beside: [(Role::Reranker, info.reranker), (Role::Embedding, info.embedding)]
                        .into_iter()
                        .filter_map(|(role, model)| Some((role, model.map(scores_of)?)))
                        .collect(),
                    entailment: info.entailment.map(|model| model.sha256).unwrap_or_default(),
                    prompts: info.template_version,
                    calibrations,
                }
            }
            Self::Local(engine) => {
                let info = engine.generator()?.info.clone();
                let frame = Some(info.frame_in_use());
                let (mut calibrations, mut scorer, mut scorer_frame) = (Vec::new(), None, None);
                for model in engine.models().generators() {
                    let served = model.get()?;
                    calibrations.extend(client::local_calibrations(&served.calibrations.all()));
                    if model.role() == Role::Scorer {
                        let adapter = served.info.adapter.as_ref();
                        let adapter = adapter.map(|adapter| adapted(&adapter.sha256, adapter.scale));
                        scorer = Some(scored_by(&served.info.sha256, adapter));
                        scorer_frame = Some(served.info.frame_in_use());
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
                    entailment: engine
                        .models()
                        .judge_if_any()
                        .map(|judge| judge.model().sha256.clone())
                        .unwrap_or_default(),
                    prompts: crate::engine::prompt::TEMPLATE_VERSION.to_owned(),
                    calibrations,
                }
            }
        })
    }

    /// Whether the generator can take prompts of this frame. Only an engine in this process can be asked.
    pub fn try_frame(&self, frame: Frame) -> Result<(), BackendError> {
        match self {
            Self::Server { .. } => Err(BackendError::Unsuitable("a server has one frame".to_owned())),
            Self::Local(engine) => Ok(engine.generator()?.with_frame(Some(frame)).map(drop)?),
        }
    }

    /// Leaves out calibrations of the engine in this process.
    pub fn without_calibrations(&self) -> Result<(), BackendError> {
        if let Self::Local(engine) = self {
            for model in engine.models().generators() {
                model.get()?.calibrations.replace(Vec::new());
            }
        }
        Ok(())
    }

    /// Reranks passages.
    pub async fn rerank(&self, request: &RerankRequest) -> Result<v1::RerankResponse, Refusal> {
        Ok(match self {
            Self::Server { server, message_bytes } => {
                client::rerank(server, request, *message_bytes, |_, _| {}).await?
            }
            Self::Local(engine) => {
                let answer = engine.rerank(&Call::local(), request.clone(), None).await?;
                client::local_response(answer, request)
            }
        })
    }

    /// Measures the utility of one question's passages; the sampled answers come with it where `answers`.
    pub async fn utility(
        &self,
        request: &UtilityRequest,
        answers: bool,
    ) -> Result<v1::MeasureUtilityResponse, Refusal> {
        Ok(match self {
            Self::Server { server, message_bytes } => {
                let answer = client::utility(server, request, answers, *message_bytes).await?;
                check_task(&request.task, answer.task())?;
                answer
            }
            Self::Local(engine) => {
                let report = engine.utility(&Call::local(), request.clone(), None).await?;
                client::local_utility(&report, answers, &engine.generator()?.info)
            }
        })
    }

    /// Judges pairs of texts, each text after the question. One verdict a pair, in their order.
    pub async fn entail(&self, pairs: Vec<TextPair>, question: &str) -> Result<Vec<v1::EntailmentVerdict>, Refusal> {
        Ok(match self {
            Self::Server { server, .. } => client::entail(server, &pairs, question).await?,
            Self::Local(engine) => client::local_verdicts(&engine.entail(&Call::local(), pairs, question).await?),
        })
    }

    /// BERTScore of texts against their best reference. `None` where it cannot be computed: over a server, whose protocol has it for
    /// answers of its generator only, without an embedding model that gives states of tokens, and for more tokens than are compared.
    pub async fn bert_scores(&self, texts: &[String], references: &[String]) -> Result<Option<Vec<f64>>, Refusal> {
        let Self::Local(engine) = self else { return Ok(None) };
        match engine.bert_scores(&Call::local(), texts, references).await {
            Ok(scores) => Ok(Some(scores)),
            Err(EngineError::Precondition(_) | EngineError::Invalid { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Evaluates the retrieval of one question; the answers come with it where `answers`.
    pub async fn evaluate(
        &self,
        request: &EvaluateRequest,
        answers: bool,
    ) -> Result<v1::EvaluateRetrievalResponse, Refusal> {
        Ok(match self {
            Self::Server { server, message_bytes } => {
                let answer = client::evaluate(server, request, answers, *message_bytes).await?;
                check_task(&request.task, answer.task())?;
                answer
            }
            Self::Local(engine) => {
                let report = engine.evaluate(&Call::local(), request.clone()).await?;
                client::local_evaluation(&report, request, answers, &engine.generator()?.info)
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
        let [chat, jinja, plain] = Frame::ALL.map(Some);
        assert_eq!((entries(chat, None), entries(chat, chat)), (vec![], vec![]));
        assert_eq!(entries(plain, chat), [("chat_template", false)]);
        assert_eq!(entries(chat, plain), [("scorer_chat_template", false)]);
        assert_eq!(entries(plain, jinja), [("chat_template", false), ("scorer_jinja", true)]);
        assert_eq!(entries(jinja, chat), [("jinja", true)]);
        assert!(entries(None, None).is_empty(), "a server that does not say");
    }

    /// A comparison is continued while they are the same.
    #[test]
    fn a_learnt_slope_is_a_part_of_a_calibration_and_its_absence_is_not() {
        let of = |outranks_per_nat| {
            let method = "cascade".to_owned();
            let one = v1::RankingCalibration { method, outranks_per_nat, ..v1::RankingCalibration::default() };
            ModelIdentity { calibrations: vec![one], ..ModelIdentity::scripted("") }.calibrated(None).unwrap()
        };
        assert_eq!((of(None), of(Some(0.6))), (vec!["cascade   0 0".to_owned()], vec!["cascade   0 0 0.6".to_owned()]));
    }

    #[test]
    fn a_server_that_has_not_read_its_model_does_not_say_its_frame() {
        let of = |sha256: &str, chat_template, jinja| {
            frame_of(&v1::ModelInfo { sha256: sha256.to_owned(), chat_template, jinja, ..v1::ModelInfo::default() })
        };
        assert_eq!(
            [of("ab", true, true), of("ab", true, false), of("ab", false, false), of("", false, false)],
            [Some(Frame::Jinja), Some(Frame::Chat), Some(Frame::Plain), None]
        );
    }
}
