//! From answers to measures: asks the entailment model for what is needed, and no more.

use std::collections::HashMap;

use super::options::MeasureOptions;
use crate::belief::cluster::{Clusterer, Clusters};
use crate::belief::seper::{self, Against};
use crate::belief::{Likelihood, Measured, Rule, Verdict, entropy};
use crate::call::Call;
use crate::engine::{EngineError, no_judge};
use crate::model::entailment::TextPair;
use crate::scheduler::entailment::Judge;

/// A response to be measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// Its text.
    pub text: String,
    /// Its likelihood.
    pub likelihood: Likelihood,
}

/// What a set of responses says.
#[derive(Debug, Clone, PartialEq)]
pub struct BeliefReport {
    /// Belief mass on the references by soft matching; absent without references.
    pub seper_soft: Option<Measured>,
    /// By clusters; absent without references or with a two-way model.
    pub seper_hard: Option<Measured>,
    /// Over the clusters' weights, in nats.
    pub semantic_entropy: Measured,
    /// Over the clusters' counts, in nats.
    pub semantic_entropy_count: Measured,
    /// Mean negative log-likelihood, in nats.
    pub predictive_entropy: Measured,
    /// Which responses mean the same.
    pub clusters: Clusters,
    /// Weight of each response; they sum to 1.
    pub weights: Vec<f64>,
    /// Responses without text.
    pub empty: usize,
}

/// Answers that a caller brings, with context and without, and what is known of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Brought {
    /// Set before every text that the entailment model judges; empty for nothing.
    pub question: String,
    /// Reference answers.
    pub references: Vec<String>,
    /// Answers with context.
    pub with: Vec<Response>,
    /// Answers without it; may be empty, then nothing is subtracted.
    pub without: Vec<Response>,
    /// Verdicts by text: premise, hypothesis. What is not here is asked of the entailment model.
    pub verdicts: Vec<(String, String, Verdict)>,
    /// How they are measured.
    pub options: MeasureOptions,
}

/// Measures answers that a caller brings: the belief with context, the one without, and the pairs that were judged.
///
/// # Errors
/// [`EngineError`] with the field at fault; [`EngineError::Precondition`] where a verdict is missing and there is no
/// entailment model to ask.
pub async fn measure_brought(
    call: &Call,
    brought: &Brought,
    judge: Option<&Judge>,
) -> Result<(BeliefReport, Option<BeliefReport>, usize), EngineError> {
    brought.options.check()?;
    if brought.with.is_empty() {
        return Err(EngineError::invalid("with", "must hold at least one answer"));
    }
    for (field, responses) in [("with", &brought.with), ("without", &brought.without)] {
        for (index, response) in responses.iter().enumerate() {
            if !response.likelihood.sum.is_finite() {
                return Err(EngineError::invalid(
                    format!("{field}[{index}].log_likelihood"),
                    "must be a finite number",
                ));
            }
            if response.likelihood.tokens == 0 {
                return Err(EngineError::invalid(format!("{field}[{index}].tokens"), "must be at least 1"));
            }
        }
    }
    let question =
        Some(brought.question.as_str()).filter(|text| brought.options.conditioned && !text.trim().is_empty());
    let mut verdicts = Verdicts::new(judge, question, call);
    for (index, (premise, hypothesis, verdict)) in brought.verdicts.iter().enumerate() {
        let parts = [verdict.entailment, verdict.neutral, verdict.contradiction];
        let sum: f64 = parts.iter().sum();
        if !parts.iter().all(|part| (0.0..=1.0).contains(part)) || (sum - 1.0).abs() > 1e-3 {
            let problem = "must be three probabilities that sum to 1";
            return Err(EngineError::invalid(format!("verdicts[{index}]"), problem));
        }
        verdicts.bring(premise, hypothesis, *verdict);
    }
    let with = measure(&mut verdicts, &brought.with, &brought.references, &brought.options).await?;
    let without = match &brought.without[..] {
        [] => None,
        responses => Some(measure(&mut verdicts, responses, &brought.references, &brought.options).await?),
    };
    Ok((with, without, verdicts.judged))
}

/// Where verdicts come from.
pub(in crate::engine) struct Verdicts<'a> {
    judge: Option<&'a Judge>,
    question: Option<String>,
    call: &'a Call,
    known: HashMap<TextPair, Verdict>,
    /// Pairs that the model judged.
    pub judged: usize,
    /// A model was asked that tells no neutral from contradiction; hard SePer cannot be had of it. Verdicts that are brought
    /// are three-way by their schema.
    two_way: bool,
}

impl<'a> Verdicts<'a> {
    /// Verdicts of the entailment model on texts that follow `question`, if one is given.
    pub fn new(judge: Option<&'a Judge>, question: Option<&str>, call: &'a Call) -> Self {
        let question = question.map(|question| {
            let plain = question.trim();
            if plain.ends_with('?') { plain.to_owned() } else { format!("{plain}?") }
        });
        Self { judge, question, call, known: HashMap::new(), judged: 0, two_way: false }
    }

    /// Takes in verdicts that the caller brings, by the bare texts.
    pub fn bring(&mut self, premise: &str, hypothesis: &str, verdict: Verdict) {
        let pair = self.pair(premise, hypothesis);
        self.known.insert(pair, verdict);
    }

    pub(super) fn pair(&self, premise: &str, hypothesis: &str) -> TextPair {
        let text = |text: &str| match &self.question {
            Some(question) => format!("{question} {text}").trim_end().to_owned(),
            None => text.to_owned(),
        };
        TextPair { premise: text(premise), hypothesis: text(hypothesis) }
    }

    async fn judge(&mut self, pairs: &[(&str, &str)], rule: Rule) -> Result<(), EngineError> {
        let mut open: Vec<TextPair> =
            pairs.iter().map(|(premise, hypothesis)| self.pair(premise, hypothesis)).collect();
        open.retain(|pair| !self.known.contains_key(pair));
        open.sort();
        open.dedup();
        if open.is_empty() {
            return Ok(());
        }
        let judge = self.judge.ok_or_else(no_judge)?;
        let judged = judge.judge(open.clone(), self.call).await?;
        if rule == Rule::Loose && !judged.model.three_way {
            let problem = "the entailment model tells no neutral from contradiction: `loose` needs a three-way model";
            return Err(EngineError::Precondition(problem.into()));
        }
        self.two_way |= !judged.model.three_way;
        self.judged += judged.judged;
        self.known.extend(open.into_iter().zip(judged.verdicts));
        Ok(())
    }

    fn of(&self, premise: &str, hypothesis: &str) -> Option<Verdict> {
        self.known.get(&self.pair(premise, hypothesis)).copied()
    }
}

/// Clusters texts.
pub(in crate::engine) async fn cluster(
    verdicts: &mut Verdicts<'_>,
    texts: &[String],
    rule: Rule,
) -> Result<Clusters, EngineError> {
    let mut clusterer = Clusterer::new(texts, rule);
    let first = clusterer.representatives();
    loop {
        let needed = clusterer.needed();
        if needed.is_empty() {
            break;
        }
        let text = |number: usize| texts[first[number]].as_str();
        let pairs: Vec<(&str, &str)> = needed.iter().map(|&(left, right)| (text(left), text(right))).collect();
        verdicts.judge(&pairs, rule).await?;
        for (pair, (left, right)) in needed.into_iter().zip(pairs) {
            let missing = || EngineError::Internal("a verdict is missing".into());
            clusterer.absorb(pair, verdicts.of(left, right).ok_or_else(missing)?);
        }
    }
    clusterer.finish().ok_or_else(|| EngineError::Internal("a text has no cluster".into()))
}

/// Soft SePer alone, which needs no clusters: one pair a distinct response and reference.
pub(in crate::engine) async fn measure_soft(
    verdicts: &mut Verdicts<'_>,
    responses: &[Response],
    references: &[String],
    options: &MeasureOptions,
) -> Result<Option<Measured>, EngineError> {
    let likelihoods: Vec<Likelihood> = responses.iter().map(|response| response.likelihood).collect();
    let mut against = Vec::with_capacity(references.len());
    for reference in references {
        let there = responses.iter().map(|response| (response.text.as_str(), reference.as_str()));
        let back =
            there.clone().map(|(response, reference)| (reference, response)).filter(|_| options.either_direction);
        // The rule matters to clusters only; a two-way model is as good here.
        verdicts.judge(&there.chain(back).collect::<Vec<_>>(), Rule::Strict).await?;
        against.push(Against {
            response_entails: responses.iter().map(|response| verdicts.of(&response.text, reference)).collect(),
            reference_entails: responses.iter().map(|response| verdicts.of(reference, &response.text)).collect(),
        });
    }
    Ok(seper::soft(&options.weighting.weights(&likelihoods), &against, options.either_direction, options.aggregate))
}

/// Measures a set of responses against references.
pub(in crate::engine) async fn measure(
    verdicts: &mut Verdicts<'_>,
    responses: &[Response],
    references: &[String],
    options: &MeasureOptions,
) -> Result<BeliefReport, EngineError> {
    let texts: Vec<String> = responses.iter().map(|response| response.text.clone()).collect();
    let likelihoods: Vec<Likelihood> = responses.iter().map(|response| response.likelihood).collect();
    let weights = options.weighting.weights(&likelihoods);
    let clusters = cluster(verdicts, &texts, options.rule).await?;
    let mut against = Vec::with_capacity(references.len());
    if !references.is_empty() && !texts.is_empty() {
        let there = references.iter().flat_map(|a| texts.iter().map(move |r| (r.as_str(), a.as_str())));
        verdicts.judge(&there.collect::<Vec<_>>(), options.rule).await?;
        let three_way = !verdicts.two_way;
        // The way back is needed of the founders, and of all where either direction counts.
        let whole: Vec<usize> = (0..texts.len()).collect();
        let asked: &[usize] = if options.either_direction {
            &whole
        } else if three_way {
            &clusters.founders
        } else {
            &[]
        };
        let asked: Vec<&str> = asked.iter().map(|&index| texts[index].as_str()).collect();
        let back = references.iter().flat_map(|a| asked.iter().map(move |r| (a.as_str(), *r)));
        verdicts.judge(&back.collect::<Vec<_>>(), options.rule).await?;
        for reference in references {
            against.push(Against {
                response_entails: texts.iter().map(|text| verdicts.of(text, reference)).collect(),
                reference_entails: texts.iter().map(|text| verdicts.of(reference, text)).collect(),
            });
        }
    }
    let hard = !verdicts.two_way;
    Ok(BeliefReport {
        seper_soft: seper::soft(&weights, &against, options.either_direction, options.aggregate),
        seper_hard: if hard { seper::hard(&weights, &clusters, &against, options.aggregate) } else { None },
        semantic_entropy: entropy::semantic(&clusters, &weights),
        semantic_entropy_count: entropy::semantic_by_count(&clusters),
        predictive_entropy: entropy::predictive(&likelihoods, options.weighting),
        clusters,
        weights,
        empty: texts.iter().filter(|text| text.is_empty()).count(),
    })
}
