//! `rerankd calibrate`

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Failure, SettingsArgs, input, output, position_bias};
use crate::call::Call;
use crate::engine::calibrate::Labelled;
use crate::engine::prompt::TEMPLATE_VERSION;
use crate::engine::rerank::{MoiOptions, RerankRequest, Scheme};
use crate::engine::{Engine, EngineError};
use crate::fit::profile::{Profiles, Subject};
use crate::rpc::{client, v1};
use crate::storage::profiles::Origin;
use crate::{app, telemetry};

/// Measure the generator's position bias on labelled questions and keep it beside the models.
///
/// Lines are objects with "question", "answers" and "passages", each passage with "text", maybe "title", and
/// "supporting": true where it holds the answer. A running server takes the result up within seconds.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rerankd calibrate --data labelled.jsonl --questions 50")]
pub(super) struct CalibrateArgs {
    /// Labelled questions; - for standard input.
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Use only the first so many questions.
    #[arg(long, value_name = "COUNT")]
    questions: Option<usize>,
    /// Whose likelihood is profiled.
    #[arg(long, value_enum, default_value_t = SubjectName::Both)]
    subject: SubjectName,
    /// Most tokens of a passage.
    #[arg(long, value_name = "TOKENS")]
    max_passage_tokens: Option<usize>,
    /// Add to what earlier calibrations measured instead of replacing it.
    #[arg(long)]
    add: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SubjectName {
    /// The reference answer's: what an arrangement needs.
    Answer,
    /// The question's: the weights that MOI fits to whole orders.
    Question,
    Both,
}

/// The profiles are written down after every so many questions, so that an interruption costs little.
const BETWEEN_SAVES: usize = 10;

pub(super) async fn run(args: CalibrateArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let config = settings.load(Vec::new())?;
    telemetry::install(&config, true);
    let mut questions = input::questions(&args.data)?;
    questions.truncate(args.questions.unwrap_or(usize::MAX));
    let name = input::name(&args.data);
    if questions.is_empty() {
        return Err(Failure::Input(format!("{name}: has no questions")));
    }
    let engine = app::engine(&config).await?;
    let file = app::profile_file(&config.store, &engine.generator()?.info.sha256, Origin::Calibrated);
    let mut profiles = if args.add { file.load().map_err(anyhow::Error::from)? } else { Profiles::default() };
    let save = |profiles: &Profiles| file.save(profiles).map_err(|error| Failure::Other(error.into()));
    let bar = output::progress(questions.len());
    let mut failed = Vec::new();
    for (index, question) in questions.iter().enumerate() {
        if let Err(error) = measure(&engine, question, &args, &mut profiles).await {
            match error {
                EngineError::Invalid { .. } | EngineError::TooLong { .. } | EngineError::Budget { .. } => {
                    failed.push(format!("{name}:{}: {error}", question.line));
                }
                other => return Err(Failure::Other(other.into())),
            }
        }
        bar.inc(1);
        if (index + 1) % BETWEEN_SAVES == 0 {
            save(&profiles)?;
        }
    }
    bar.finish_and_clear();
    for problem in &failed {
        output::complain(problem);
    }
    if profiles.iter().next().is_none() {
        return Err(Failure::Input(format!("{name}: none of {} questions could be used", questions.len())));
    }
    save(&profiles)?;
    tracing::info!(path = %file.path().display(), used = questions.len() - failed.len(), failed = failed.len(), "profiles kept");
    position_bias::show(&v1::GetPositionBiasResponse {
        profiles: client::local_profiles(&profiles),
        model_sha256: engine.generator()?.info.sha256.clone(),
        template_version: TEMPLATE_VERSION.to_owned(),
        problems: Vec::new(),
    })
}

async fn measure(
    engine: &Engine,
    question: &input::Question,
    args: &CalibrateArgs,
    profiles: &mut Profiles,
) -> Result<(), EngineError> {
    if args.subject != SubjectName::Question {
        let task = Labelled {
            question: question.question.clone(),
            answer: question.answers.first().cloned().unwrap_or_default(),
            passages: question.passages.clone(),
            gold: question.supporting.clone(),
            passage_tokens: args.max_passage_tokens,
        };
        profiles.observe(Subject::Answer, &engine.answer_profile(&Call::local(), &task).await?);
    }
    if args.subject != SubjectName::Answer {
        let request = RerankRequest {
            query: question.question.clone(),
            passages: question.passages.clone(),
            moi: MoiOptions { scheme: Some(Scheme::Latin), ..MoiOptions::default() },
            passage_tokens: args.max_passage_tokens,
            ..RerankRequest::default()
        };
        let answer = engine.rerank(&Call::local(), request, None).await?;
        for weights in answer.fit.iter().flat_map(|fit| &fit.bias) {
            profiles.observe(Subject::Question, weights);
        }
    }
    Ok(())
}
