//! `rerankd calibrate`

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::output::FormatArgs;
use super::{Failure, SettingsArgs, calibrations, input, output, position_bias};
use crate::app::profile_file::Origin;
use crate::{app, telemetry};
use engine::Engine;
use engine::calibrate::Labelled;
use engine::position_bias::refusal;
use engine::prompt::TEMPLATE_VERSION;
use engine::types::{EngineError, MoiOptions, RerankRequest, Scheme};
use files::RELEVANT;
use files::{Empty, Warnings};
use moi::profile::{Profiles, Subject, shape};
use prefix_scheduler::call::Call;
use protocol::convert_models::{adapter_to_wire, profiles_to_wire};
use protocol::v1;

/// Measure the position bias, or calibrate ranking methods.
///
/// The result is written to the store of models.
///
/// Position bias: each line is an object with "question", "answers" and "passages". A passage has "text", optionally
/// "title", and "supporting": true if it contains the answer, or a "label" of at least 0.5. A running server uses the
/// result within seconds. For ten passages, about 30 questions show a bias beyond its error; with fewer, the order stays
/// best first.
///
/// With --ranking, the command fits the fusion weight of each method, and with an embedding model the share of its score.
/// Scores become probabilities of relevance. For cascade it also fits how fast outranks_next rises with the difference of
/// two neighbours. The lines are labelled lists as a retriever returns them, as for `rerankd compare`; use lists of the
/// retriever in production. At least 10 lists are needed, 40 or more are a good basis. The gain is measured on the half
/// of the lists that the fit did not use.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rerankd calibrate labelled.jsonl --limit 50\n  \
                        rerankd calibrate --ranking lists.jsonl.gz --method cascade,query-generation\n  \
                        rerankd calibrate --ranking --remove cascade")]
pub(super) struct CalibrateArgs {
    /// Labelled questions; - for standard input. With --ranking labelled lists, in one or more files.
    #[arg(value_name = "FILE", required_unless_present_any = ["show", "remove"])]
    pub data: Vec<PathBuf>,
    // clap drops `requires` if the required argument conflicts with a given one, so the options conflict with the same
    // arguments.
    /// Calibrate ranking methods instead of measuring position bias.
    #[arg(long, conflicts_with_all = ["subject", "add"])]
    ranking: bool,
    /// Methods to calibrate, separated by commas.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "cascade,query-generation",
        requires = "ranking",
        conflicts_with_all = ["subject", "add"]
    )]
    pub method: Vec<String>,
    /// Least label of a relevant passage.
    #[arg(long, value_name = "LABEL", default_value_t = RELEVANT, value_parser = super::above_zero, requires = "ranking",
        conflicts_with_all = ["subject", "add"])]
    pub relevance_threshold: f64,
    #[command(flatten)]
    pub format: FormatArgs,
    /// Print JSON lines, each with the value of every tried mix, the built-in one first: the generator's share, the share
    /// of the embedding score in the rest, and mean nDCG@10, before any refinement, over all lists with a relevant
    /// passage. The calibration is stored as usual.
    #[arg(long, requires = "ranking", conflicts_with_all = ["show", "remove", "subject", "add"])]
    pub mixes: bool,
    /// Print the stored calibrations of ranking methods, without calibrating.
    #[arg(long, requires = "ranking", conflicts_with_all = ["data", "remove", "subject", "add"])]
    show: bool,
    /// Remove the stored calibrations of these methods, separated by commas, or of all. A running server stops using them
    /// within seconds.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "ranking",
        conflicts_with_all = ["data", "subject", "add"])]
    remove: Vec<String>,
    /// Use only the first N questions of each file.
    #[arg(long, value_name = "N", value_parser = super::count)]
    pub limit: Option<usize>,
    /// Skip the first N questions of each file.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip: usize,
    /// Likelihood to profile.
    #[arg(long, value_enum, default_value_t = SubjectName::Both)]
    subject: SubjectName,
    /// Truncate passages to this many tokens.
    #[arg(long, visible_alias = "passage-tokens", value_name = "TOKENS", value_parser = super::count)]
    pub max_passage_tokens: Option<usize>,
    /// Add to the stored calibration instead of replacing it. The file is written when all questions are measured; the
    /// first calibration of a model is also written meanwhile, unless this option is set. With --ranking, each method is
    /// written when its lists are done.
    #[arg(long)]
    add: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SubjectName {
    /// The reference answer's likelihood: one prompt per position and supporting passage. Preferred for ordering
    /// contexts.
    Answer,
    /// The question's likelihood: the position weights that MOI fits to 3 N random orders of N passages.
    Question,
    Both,
}

/// Questions between two writes of the profiles, if none are stored, so that an interruption loses little.
const BETWEEN_SAVES: usize = 10;

/// The reason if a question has a profile of its answer only.
const TOO_LARGE: &str =
    "too large: orders of all passages exceed what a request may take; --max-passage-tokens shortens them";

/// Results of the questions.
struct Measured {
    profiles: Profiles,
    /// Questions whose fit was not used, by reason.
    refused: BTreeMap<String, usize>,
}

pub(super) async fn run(args: CalibrateArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    if args.show {
        return calibrations::show(args.format.is_json(), settings);
    }
    if !args.remove.is_empty() {
        return calibrations::remove(&args.remove, settings);
    }
    if args.ranking {
        #[cfg(feature = "lab")]
        return Box::pin(super::study::calibrate_ranking::run(args, settings)).await;
        #[cfg(not(feature = "lab"))]
        return Err(Failure::Input("--ranking: this program was built without the feature `lab`".to_owned()));
    }
    let [data] = &args.data[..] else {
        return Err(Failure::Input("FILE: given more than once; only --ranking takes several files".to_owned()));
    };
    let config = settings.load(Vec::new())?;
    telemetry::install(&config, true);
    let mut warnings = Warnings::default();
    // Passages without text have no position to measure.
    let mut questions = input::questions(data, Empty::LeftOut, &mut warnings)?;
    output::warn(&warnings);
    let name = input::name(data);
    questions = questions.into_iter().skip(args.skip).take(args.limit.unwrap_or(usize::MAX)).collect();
    if questions.is_empty() {
        return Err(Failure::Input(format!("{name}: no questions are left of it")));
    }
    if args.subject != SubjectName::Question {
        for question in &mut questions {
            question.fault = question.fault.take().or(question.answers_fault.take()).or(question.labels_fault.take());
        }
    }
    if let Some((line, fault)) = input::without_passages(&questions) {
        return Err(Failure::Input(format!("{name}:{line}: {fault}")));
    }
    let engine = app::engine(&config).await?;
    let file = app::profile_file(&config.store, &engine.generator()?.info.measured_on(), Origin::Calibrated);
    let stored = file.load().map_err(anyhow::Error::from)?;
    // An interrupted run must not replace a finished calibration by a part of its questions. It must not add a part to
    // others either, because the repeated command would count them twice.
    let keeps_parts = stored.is_empty() && !args.add;
    let mut measured = Measured { profiles: Profiles::default(), refused: BTreeMap::new() };
    let save = |profiles: &Profiles| file.save(profiles).map_err(|error| Failure::Other(error.into()));
    let bar = output::progress(questions.len(), "questions");
    let mut failed = Vec::new();
    for (index, question) in questions.iter().enumerate() {
        if let Some(fault) = &question.fault {
            failed.push(format!("{name}:{}: {fault}", question.line));
        } else if let Err(error) = measure(&engine, question, &args, &mut measured).await {
            match error {
                EngineError::Invalid { .. } | EngineError::TooLong { .. } | EngineError::Budget { .. } => {
                    failed.push(format!("{name}:{}: {error}", question.line));
                }
                other => return Err(other.into()),
            }
        }
        bar.inc(1);
        if keeps_parts && (index + 1) % BETWEEN_SAVES == 0 && !measured.profiles.is_empty() {
            save(&measured.profiles)?;
        }
    }
    bar.finish_and_clear();
    for problem in &failed {
        output::complain(problem);
    }
    for (reason, count) in &measured.refused {
        output::complain(&format!("{name}: {count} of {} fits not used, {reason}", questions.len()));
    }
    if measured.profiles.is_empty() {
        return Err(Failure::Input(format!("{name}: none of {} questions could be used", questions.len())));
    }
    if args.add {
        // Read again, because another run may have ended meanwhile.
        measured.profiles.merge(&calibrations::kept(file.load())?);
    }
    save(&measured.profiles)?;
    let (all, failed) = (questions.len(), failed.len());
    output::complain(&format!("written: {}, from {all} questions of which {failed} failed", file.path().display()));
    let info = &engine.generator()?.info;
    let profiles = v1::GetPositionBiasResponse {
        profiles: profiles_to_wire(&[(Origin::Calibrated, measured.profiles)]),
        model_sha256: info.sha256.clone(),
        adapter: info.adapter.as_ref().map(adapter_to_wire),
        template_version: TEMPLATE_VERSION.to_owned(),
        problems: Vec::new(),
    };
    position_bias::show(&profiles, args.format)
}

async fn measure(
    engine: &Engine,
    question: &input::Question,
    args: &CalibrateArgs,
    measured: &mut Measured,
) -> Result<(), EngineError> {
    let mut answer_profile = None;
    if args.subject != SubjectName::Question {
        let task = Labelled {
            question: question.question.clone(),
            answer: question.answers.first().cloned().unwrap_or_default(),
            passages: question.passages.clone(),
            gold: question.labels.iter().map(|label| *label >= RELEVANT).collect(),
            passage_tokens: args.max_passage_tokens,
        };
        answer_profile = Some(engine.positions.profile(&Call::local(), &task).await?);
    }
    if args.subject != SubjectName::Answer {
        let request = whole_orders(question, args.max_passage_tokens);
        let fit = match engine.reranker.rerank(&Call::local(), request, None).await {
            Ok(answer) => answer.fit,
            // Orders of all passages take many times the tokens of the answer's prompts. A retry would fail as well, so
            // the answer's profile counts.
            Err(EngineError::Budget { .. } | EngineError::TooLong { .. }) if answer_profile.is_some() => {
                *measured.refused.entry(TOO_LARGE.to_owned()).or_default() += 1;
                None
            }
            Err(error) => return Err(error),
        };
        if let Some(fit) = fit {
            match refusal(&fit, Origin::Calibrated) {
                Some(reason) => *measured.refused.entry(reason.to_string()).or_default() += 1,
                None => {
                    for weights in &fit.bias {
                        measured.profiles.observe(Subject::Question, &shape(weights));
                    }
                }
            }
        }
    }
    // A failed question contributes nothing, because a retry with --add would count it twice.
    if let Some(values) = answer_profile {
        measured.profiles.observe(Subject::Answer, &values);
    }
    Ok(())
}

/// 3 N random orders identify the weights of N positions; N cyclic or Latin orders leave them to the prior. The seed
/// differs per question, so that no peculiarity of one design enters every fit.
fn whole_orders(question: &input::Question, passage_tokens: Option<usize>) -> RerankRequest {
    let seed = u64::try_from(question.line).unwrap_or_default();
    RerankRequest {
        // The profiles describe the generator, whose contexts they order.
        scorer: "generator".to_owned(),
        query: question.question.clone(),
        passages: question.passages.clone(),
        moi: MoiOptions { scheme: Some(Scheme::Random), seed, ..MoiOptions::default() },
        passage_tokens,
        ..RerankRequest::default()
    }
}
