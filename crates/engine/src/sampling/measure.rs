//! From answers to measures. The entailment model judges only the pairs that the measures need.

use std::collections::HashMap;

use super::similarity::lexical_similarity;
use super::texts::Texts;
use crate::types::{BeliefReport, EngineError, MeasureOptions, Response};
use prefix_scheduler::call::Call;
use prefix_scheduler::model::entailment::{EntailmentInfo, EntailmentProbabilities};
use prefix_scheduler::scheduler::entailment::Judge;
use rag_metrics::belief::cluster::{Clusterer, Clusters};
use rag_metrics::belief::seper::{self, Against};
use rag_metrics::belief::{Estimate, Likelihood, Rule, Verdict, corrected, entropy, uncertainty};

/// The model's probabilities as the measures use them.
pub(crate) const fn verdict(probabilities: EntailmentProbabilities) -> Verdict {
    let EntailmentProbabilities { entailment, neutral, contradiction } = probabilities;
    Verdict { entailment, neutral, contradiction }
}

/// The warning about two long answers, after a question or without one.
pub(crate) fn too_long(model: &EntailmentInfo, question: bool) -> String {
    let tokens = model.most_tokens;
    let (what, cut) = if question {
        ("the question and two answers", "the beginning of the question is left out, then the end of an answer")
    } else {
        ("two answers", "the end of one is left out")
    };
    format!("{what} may be longer than the {tokens} tokens that the entailment model reads: {cut}")
}

/// The verdicts of one request: the caller's and the entailment model's. Texts are identified by number.
pub(crate) struct Verdicts<'a> {
    judge: Option<&'a Judge>,
    texts: Texts,
    call: &'a Call,
    by_pair: HashMap<(usize, usize), Verdict>,
    /// Distinct pairs that this request asked for, including cached verdicts.
    asked: usize,
    /// Most pairs to ask for.
    allowed: usize,
    /// Number of pairs that the model judged.
    pub judged: usize,
    /// The model, once it has judged a pair.
    pub model: Option<EntailmentInfo>,
    /// True if some pairs are probably longer than the model's context.
    long: bool,
    /// True if a verdict came from a model that does not separate neutral from contradiction. Hard SePer is then
    /// not measured. The caller's verdicts always have three classes.
    two_way: bool,
}

impl<'a> Verdicts<'a> {
    /// No verdicts yet. The entailment model will judge at most `allowed` pairs of `texts`.
    pub fn new(judge: Option<&'a Judge>, texts: Texts, call: &'a Call, allowed: usize) -> Self {
        Self {
            judge,
            texts,
            call,
            by_pair: HashMap::new(),
            asked: 0,
            allowed,
            judged: 0,
            model: None,
            long: false,
            two_way: false,
        }
    }

    /// Adds a verdict of the caller on two bare texts.
    pub fn insert(&mut self, premise: &str, hypothesis: &str, verdict: Verdict) -> Result<(), EngineError> {
        let pair = (self.texts.number(premise)?, self.texts.number(hypothesis)?);
        self.by_pair.insert(pair, verdict);
        Ok(())
    }

    /// The numbers of bare texts.
    pub async fn numbers(&mut self, bare: Vec<String>) -> Result<Vec<usize>, EngineError> {
        let mut texts = std::mem::take(&mut self.texts);
        let work = move |_: &Call| {
            let numbers = bare.iter().map(|text| texts.number(text)).collect::<Result<_, _>>()?;
            Ok::<_, EngineError>((texts, numbers))
        };
        let (texts, numbers) = self.call.compute(work).await?;
        self.texts = texts;
        Ok(numbers)
    }

    /// Has the model judge those pairs that have no verdict yet.
    pub async fn judge(&mut self, mut open: Vec<(usize, usize)>, rule: Rule) -> Result<(), EngineError> {
        open.retain(|pair| !self.by_pair.contains_key(pair));
        open.sort_unstable();
        open.dedup();
        if open.is_empty() {
            return Ok(());
        }
        let judge = self.judge.ok_or_else(EngineError::no_judge)?;
        self.asked += open.len();
        if self.asked > self.allowed {
            return Err(EngineError::Pairs { allowed: self.allowed });
        }
        let judged = judge.judge(open.iter().map(|pair| self.texts.pair(*pair)).collect(), self.call).await?;
        MeasureOptions { rule, ..MeasureOptions::default() }.check_model(&judged.model)?;
        self.two_way |= !judged.model.three_way;
        self.judged += judged.judged;
        self.long |= judged.long;
        self.by_pair.extend(open.into_iter().zip(judged.verdicts.into_iter().map(verdict)));
        self.model = Some(judged.model);
        Ok(())
    }

    /// The warning about pairs that are too long; `None` if all fit.
    pub fn warning(&self) -> Option<String> {
        self.model.as_ref().filter(|_| self.long).map(|model| too_long(model, self.texts.have_question()))
    }

    /// The verdict on a pair that was judged.
    pub fn get(&self, premise: usize, hypothesis: usize) -> Option<Verdict> {
        self.by_pair.get(&(premise, hypothesis)).copied()
    }

    /// The numbers of responses; `None` for one without a word, which no model judges.
    async fn numbers_of(&mut self, responses: &[String]) -> Result<Vec<Option<usize>>, EngineError> {
        let numbers = self.numbers(responses.to_vec()).await?;
        let numbered = responses.iter().zip(numbers);
        Ok(numbered.map(|(text, number)| Some(number).filter(|_| !text.trim().is_empty())).collect())
    }

    /// The verdicts on every response against one reference.
    fn against(&self, responses: &[Option<usize>], reference: usize) -> Against {
        let nothing = Some(Verdict::NEITHER);
        let entails = |response: &Option<usize>| response.map_or(nothing, |response| self.get(response, reference));
        let entailed = |response: &Option<usize>| response.map_or(nothing, |response| self.get(reference, response));
        Against {
            response_entails: responses.iter().map(entails).collect(),
            reference_entails: responses.iter().map(entailed).collect(),
        }
    }
}

/// Clusters texts; the model judges the pairs that the clusterer needs, step by step.
pub(crate) async fn cluster(
    verdicts: &mut Verdicts<'_>,
    texts: &[String],
    rule: Rule,
) -> Result<Clusters, EngineError> {
    let numbers = verdicts.numbers(texts.to_vec()).await?;
    let mut clusterer = Clusterer::new(texts, rule);
    let first = clusterer.representatives();
    loop {
        let needed = clusterer.needed();
        if needed.is_empty() {
            break;
        }
        let number = |text: usize| numbers[first[text]];
        let numbered = |&(left, right): &(usize, usize)| (number(left), number(right));
        verdicts.judge(needed.iter().map(numbered).collect(), rule).await?;
        for pair in needed {
            let (left, right) = numbered(&pair);
            let missing = || EngineError::Internal("a verdict is missing".into());
            clusterer.absorb(pair, verdicts.get(left, right).ok_or_else(missing)?);
        }
    }
    clusterer.finish().ok_or_else(|| EngineError::Internal("a text has no cluster".into()))
}

/// Only soft SePer. It needs no clusters, only one pair per distinct response and reference.
pub(crate) async fn measure_soft(
    verdicts: &mut Verdicts<'_>,
    responses: &[Response],
    references: &[String],
    options: &MeasureOptions,
) -> Result<Option<Estimate>, EngineError> {
    let likelihoods: Vec<Likelihood> = responses.iter().map(|response| response.likelihood).collect();
    let texts: Vec<String> = responses.iter().map(|response| response.text.clone()).collect();
    let texts = verdicts.numbers_of(&texts).await?;
    let mut against = Vec::with_capacity(references.len());
    for reference in verdicts.numbers(references.to_vec()).await? {
        let forward = texts.iter().flatten().map(|&text| (text, reference));
        let backward = texts.iter().flatten().map(|&text| (reference, text)).filter(|_| options.either_direction);
        // The rule only concerns clusters: a two-way model is enough here.
        verdicts.judge(forward.chain(backward).collect(), Rule::Strict).await?;
        against.push(verdicts.against(&texts, reference));
    }
    Ok(seper::soft(&options.weighting.weights(&likelihoods), &against, options.either_direction, options.aggregate))
}

/// Measures a set of responses against references.
pub(crate) async fn measure(
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
        let numbers = verdicts.numbers_of(&texts).await?;
        let references = verdicts.numbers(references.to_vec()).await?;
        let forward = references.iter().flat_map(|&a| numbers.iter().flatten().map(move |&r| (r, a)));
        verdicts.judge(forward.collect(), options.rule).await?;
        let three_way = !verdicts.two_way;
        // Reference to response: soft SePer needs all pairs with `either_direction`, hard SePer those of the
        // founders.
        let needed = |index: &usize| options.either_direction || three_way && clusters.founders.contains(index);
        let responses: Vec<usize> = (0..texts.len()).filter(needed).filter_map(|index| numbers[index]).collect();
        let backward = references.iter().flat_map(|&a| responses.iter().map(move |&r| (a, r)));
        verdicts.judge(backward.collect(), options.rule).await?;
        against.extend(references.iter().map(|&reference| verdicts.against(&numbers, reference)));
    }
    let (hard, options) = (!verdicts.two_way, *options);
    // The bootstrap of the corrected entropy takes a millisecond at a hundred samples.
    let arithmetic = move |call: &Call| {
        Ok(BeliefReport {
            seper_soft: seper::soft(&weights, &against, options.either_direction, options.aggregate),
            seper_hard: if hard { seper::hard(&weights, &clusters, &against, options.aggregate) } else { None },
            semantic_entropy: entropy::semantic(&clusters, &weights),
            semantic_entropy_count: entropy::semantic_by_count(&clusters),
            semantic_entropy_corrected: corrected::semantic(&clusters),
            predictive_entropy: entropy::predictive(&likelihoods, options.weighting),
            perplexity: uncertainty::perplexity(&likelihoods),
            lexical_similarity: lexical_similarity(&texts, call)?,
            clusters,
            weights,
            empty: texts.iter().filter(|text| text.trim().is_empty()).count(),
        })
    };
    verdicts.call.compute(arithmetic).await
}
