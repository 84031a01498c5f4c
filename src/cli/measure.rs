//! `rerankd measure`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Failure, SettingsArgs, input, models, output, utility};
use crate::app;
use engine::sampling::measure_answers;
use engine::types::{BeliefReport, MeasureInput, MeasureOptions, Response};
use files::Warnings;
use protocol::convert_belief;
use rag_metrics::belief::seper::Aggregate;
use rag_metrics::belief::{Estimate, Likelihood, Measured, Pairing, ROUNDING, Rule, Verdict, Weighting};

/// Measure answers that another program sampled: SePer, semantic and predictive entropies, perplexity, lexical
/// similarity, and their changes by context.
///
/// The input is a JSON object. "with" is a list of answers given with context, "without" an optional list of answers given
/// without it. An answer is an object with "text" and either "token_log_probabilities" or "log_likelihood" and "tokens". These are
/// natural logarithms, so none may be above 0.
///
/// Optional: "question"; "references", a list of texts; "verdicts", a list of objects with "premise", "hypothesis",
/// "entailment", "neutral" and "contradiction". The entailment model judges the needed pairs that are not listed. The
/// generator is not loaded.
///
/// Set "paired" to true if answer i of both lists was drawn with the same random numbers (the same seed). Standard errors
/// of the changes then leave answer i out of both lists at once; otherwise the two lists are taken as independent.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rerankd measure belief.json --rule strict")]
pub(super) struct MeasureArgs {
    /// The JSON object; - for standard input.
    #[arg(default_value = "-", value_name = "FILE")]
    input: PathBuf,
    #[command(flatten)]
    options: OptionArgs,
}

/// Options for measuring answers, shared with `utility`.
#[derive(Debug, Args)]
pub(super) struct OptionArgs {
    /// Weights of the answers: by mean token log-probability, by their sum, or equal.
    #[arg(long, value_enum, default_value_t = WeightingName::Mean)]
    weighting: WeightingName,
    /// Rule for two answers with the same meaning: both directions entail each other, neither contradicts and one
    /// entails, or both reach --threshold.
    #[arg(long, value_enum, default_value_t = RuleName::Strict)]
    rule: RuleName,
    /// For --rule threshold: least probability of entailment in both directions.
    #[arg(long, default_value_t = 0.5, value_parser = super::probability)]
    threshold: f64,
    /// Soft SePer uses the larger entailment of the two directions instead of answer to reference.
    #[arg(long)]
    either_direction: bool,
    /// Aggregation of the values for several references.
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
    paired: bool,
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
            (Some(sum), Some(tokens), None) => Likelihood::new(sum, tokens),
            (None, None, Some(tokens)) if tokens.is_empty() => {
                return Err(Failure::Input(format!("{field}: token_log_probabilities: must not be empty")));
            }
            (None, None, Some(tokens)) => {
                if let Some(at) = tokens.iter().position(|log| *log > ROUNDING) {
                    let problem = "but a log-probability is at most 0: give the logarithms of the probabilities";
                    let field = format!("{field}.token_log_probabilities[{at}]");
                    return Err(Failure::Input(format!("{field}: is {}, {problem}", tokens[at])));
                }
                Likelihood::new(tokens.iter().sum(), tokens.len())
            }
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
    let mut warnings = Warnings::default();
    let document: Document = input::whole(&input::read(&args.input)?, &args.input, &mut warnings)?;
    output::warn(&warnings);
    let responses = |field: &str, entries: Vec<AnswerEntry>| {
        let response = |(index, entry): (usize, AnswerEntry)| entry.response(&format!("{name}: {field}[{index}]"));
        entries.into_iter().enumerate().map(response).collect::<Result<Vec<_>, _>>()
    };
    let verdict = |entry: VerdictEntry| {
        let verdict =
            Verdict { entailment: entry.entailment, neutral: entry.neutral, contradiction: entry.contradiction };
        // Trimmed like answers, because a verdict is found by its texts.
        (entry.premise.trim().to_owned(), entry.hypothesis.trim().to_owned(), verdict)
    };
    let input = MeasureInput {
        question: document.question,
        // Trimmed like the texts of verdicts.
        references: document.references.into_iter().map(|reference| reference.trim().to_owned()).collect(),
        with_context: responses("with", document.with)?,
        context_free: responses("without", document.without)?,
        pairing: if document.paired { Pairing::Paired } else { Pairing::Independent },
        verdicts: document.verdicts.into_iter().map(verdict).collect(),
        options: args.options.options(),
    };
    // Given verdicts may suffice.
    if input.verdicts.is_empty() {
        models::fetch_entailment(&config).await?;
    }
    let judge = app::judge(&config)?;
    let (with_context, context_free, judged) =
        measure_answers(&prefix_scheduler::call::Call::local(), &input, judge.as_ref()).await?;
    output::json(&report(&with_context, context_free.as_ref(), input.pairing, judged))
}

fn report(
    with_context: &BeliefReport,
    context_free: Option<&BeliefReport>,
    pairing: Pairing,
    judged_pairs: usize,
) -> Value {
    type Pick = fn(&BeliefReport) -> Option<&Estimate>;
    let rise = |pick: Pick| Some(measured(pick(with_context)?.minus(pick(context_free?)?, pairing)));
    let fall = |pick: Pick| Some(measured(pick(context_free?)?.minus(pick(with_context)?, pairing)));
    json!({
        "with": belief(with_context),
        "without": context_free.map(belief),
        "delta_seper_soft": rise(|belief| belief.seper_soft.as_ref()),
        "delta_seper_hard": rise(|belief| belief.seper_hard.as_ref()),
        "semantic_entropy_reduction": fall(|belief| Some(&belief.semantic_entropy)),
        "semantic_entropy_count_reduction": fall(|belief| Some(&belief.semantic_entropy_count)),
        "semantic_entropy_corrected_reduction": fall(|belief| belief.semantic_entropy_corrected.as_ref()),
        "predictive_entropy_reduction": fall(|belief| Some(&belief.predictive_entropy)),
        "perplexity_reduction": fall(|belief| belief.perplexity.as_ref()),
        "lexical_similarity_increase": rise(|belief| belief.lexical_similarity.as_ref()),
        "judged_pairs": judged_pairs,
    })
}

fn measured(measured: Measured) -> Value {
    json!({ "value": measured.value, "standard_error": measured.standard_error })
}

fn belief(belief: &BeliefReport) -> Value {
    utility::measures(&convert_belief::belief(belief, None))
}
