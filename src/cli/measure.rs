//! `rerankd measure`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Failure, SettingsArgs, input, output};
use crate::app;
use crate::belief::seper::Aggregate;
use crate::belief::{Likelihood, Measured, Rule, Verdict, Weighting};
use crate::engine::belief::MeasureOptions;
use crate::engine::belief::report::{BeliefReport, Brought, Response, measure_brought};

/// Measure answers sampled elsewhere: SePer, semantic and predictive entropies, and what context changed of them.
///
/// The document is an object: "with" and maybe "without", lists of answers {"text", and "log_likelihood" with "tokens" or
/// "token_log_probabilities"}; maybe "question", "references", and "verdicts", a list of {"premise", "hypothesis",
/// "entailment", "neutral", "contradiction"} by the bare texts. Verdicts that are needed and not there are asked of the
/// entailment model. The generator is not needed.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rerankd measure --input belief.json --rule strict")]
pub(super) struct MeasureArgs {
    /// The document; - for standard input.
    #[arg(long, default_value = "-", value_name = "FILE")]
    input: PathBuf,
    #[command(flatten)]
    options: OptionArgs,
}

/// How answers are measured; `utility` takes the same.
#[derive(Debug, Args)]
pub(super) struct OptionArgs {
    /// How answers are weighed.
    #[arg(long, value_enum, default_value_t = WeightingName::Mean)]
    weighting: WeightingName,
    /// When two answers mean the same.
    #[arg(long, value_enum, default_value_t = RuleName::Strict)]
    rule: RuleName,
    /// For `--rule threshold`: least probability of entailment in both directions.
    #[arg(long, default_value_t = 0.5)]
    threshold: f64,
    /// Soft SePer takes the better of the two directions.
    #[arg(long)]
    either_direction: bool,
    /// How several references become one number.
    #[arg(long, value_enum, default_value_t = AggregateName::Mean)]
    aggregate: AggregateName,
    /// Judge texts without the question before them.
    #[arg(long)]
    unconditioned: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum WeightingName {
    Mean,
    Sum,
    Frequency,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RuleName {
    Strict,
    Loose,
    Threshold,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AggregateName {
    Mean,
    Max,
}

impl OptionArgs {
    pub fn options(&self) -> MeasureOptions {
        MeasureOptions {
            weighting: match self.weighting {
                WeightingName::Mean => Weighting::Mean,
                WeightingName::Sum => Weighting::Sum,
                WeightingName::Frequency => Weighting::Frequency,
            },
            rule: match self.rule {
                RuleName::Strict => Rule::Strict,
                RuleName::Loose => Rule::Loose,
                RuleName::Threshold => Rule::Threshold(self.threshold),
            },
            either_direction: self.either_direction,
            aggregate: match self.aggregate {
                AggregateName::Mean => Aggregate::Mean,
                AggregateName::Max => Aggregate::Max,
            },
            conditioned: !self.unconditioned,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    question: String,
    #[serde(default)]
    references: Vec<String>,
    with: Vec<AnswerEntry>,
    #[serde(default)]
    without: Vec<AnswerEntry>,
    #[serde(default)]
    verdicts: Vec<VerdictEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerEntry {
    text: String,
    log_likelihood: Option<f64>,
    tokens: Option<usize>,
    token_log_probabilities: Option<Vec<f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VerdictEntry {
    premise: String,
    hypothesis: String,
    entailment: f64,
    neutral: f64,
    contradiction: f64,
}

impl AnswerEntry {
    fn response(self, field: &str) -> Result<Response, Failure> {
        let likelihood = match (self.log_likelihood, self.tokens, &self.token_log_probabilities) {
            (Some(sum), Some(tokens), None) => Likelihood { sum, tokens },
            (None, None, Some(tokens)) => Likelihood { sum: tokens.iter().sum(), tokens: tokens.len() },
            _ => {
                let problem = "needs either log_likelihood and tokens, or token_log_probabilities";
                return Err(Failure::Input(format!("{field}: {problem}")));
            }
        };
        Ok(Response { text: self.text.trim().to_owned(), likelihood })
    }
}

pub(super) async fn run(args: MeasureArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let config = settings.load(Vec::new())?;
    crate::telemetry::install(&config, true);
    let name = input::name(&args.input);
    let document: Document =
        serde_json::from_str(&input::read(&args.input)?).map_err(|error| Failure::Input(format!("{name}: {error}")))?;
    let responses = |field: &str, entries: Vec<AnswerEntry>| {
        let response = |(index, entry): (usize, AnswerEntry)| entry.response(&format!("{name}: {field}[{index}]"));
        entries.into_iter().enumerate().map(response).collect::<Result<Vec<_>, _>>()
    };
    let verdict = |entry: VerdictEntry| {
        let verdict =
            Verdict { entailment: entry.entailment, neutral: entry.neutral, contradiction: entry.contradiction };
        (entry.premise, entry.hypothesis, verdict)
    };
    let brought = Brought {
        question: document.question,
        references: document.references,
        with: responses("with", document.with)?,
        without: responses("without", document.without)?,
        verdicts: document.verdicts.into_iter().map(verdict).collect(),
        options: args.options.options(),
    };
    let judge = app::judge(&config)?;
    let (with, without, judged) = measure_brought(&crate::call::Call::local(), &brought, judge.as_ref()).await?;
    output::json(&report(&with, without.as_ref(), judged))
}

fn report(with: &BeliefReport, without: Option<&BeliefReport>, judged: usize) -> Value {
    let change = |pick: fn(&BeliefReport) -> Option<Measured>, rises: bool| {
        let (with, without) = (pick(with)?, pick(without?)?);
        Some(measured(if rises { with.minus(&without) } else { without.minus(&with) }))
    };
    json!({
        "with": belief(with),
        "without": without.map(belief),
        "delta_seper_soft": change(|belief| belief.seper_soft, true),
        "delta_seper_hard": change(|belief| belief.seper_hard, true),
        "semantic_entropy_reduction": change(|belief| Some(belief.semantic_entropy), false),
        "semantic_entropy_count_reduction": change(|belief| Some(belief.semantic_entropy_count), false),
        "predictive_entropy_reduction": change(|belief| Some(belief.predictive_entropy), false),
        "judged_pairs": judged,
    })
}

fn measured(measured: Measured) -> Value {
    json!({ "value": measured.value, "standard_error": measured.standard_error })
}

fn belief(belief: &BeliefReport) -> Value {
    json!({
        "seper_soft": belief.seper_soft.map(measured),
        "seper_hard": belief.seper_hard.map(measured),
        "semantic_entropy": measured(belief.semantic_entropy),
        "semantic_entropy_count": measured(belief.semantic_entropy_count),
        "predictive_entropy": measured(belief.predictive_entropy),
        "cluster_of": belief.clusters.of,
        "founders": belief.clusters.founders,
        "weights": belief.weights,
        "empty_answers": belief.empty,
    })
}
