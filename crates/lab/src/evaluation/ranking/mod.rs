//! Calibration of a ranking method on labelled lists, behind `rerankd calibrate --ranking`: the shares of its fusion, its
//! scores as probabilities of relevance, and the probability that one place is ahead of the next.
//!
//! The method ranks every list once, uncalibrated. Shares are then tried on the reported utilities ([`observed`])
//! and the mixed-in cosines; the generator scores nothing again. The fit is judged on lists that it did not see:
//! lists at even places by the fit to lists at odd places, and the reverse.

mod observed;
mod shares;

use observed::{Cosines, Observed};
pub use shares::TriedMix;
use shares::{best, built_in, tried};

use serde::Serialize;

use crate::study::data::Question;
use crate::study::{Record, StudyError};
use engine::Engine;
use engine::fusion::calibration::{Calibration, Mix};
use engine::fusion::certainty;
use engine::fusion::platt::Platt;
use engine::methods;
use engine::rerank::{Copies, RANKED_WITHOUT};
use engine::types::{EngineError, MethodRef, MoiOptions, RankingStage, RerankRequest, Role, Shares};
use numeric::{descending, mean, real, sigmoid, standard_deviation};
use prefix_scheduler::call::Call;
use rag_metrics::cut::{best_cut, none_relevant};
use rag_metrics::probability::{auc, calibration_error};

/// Differences of nDCG up to this are rounding errors.
const ROUNDING: f64 = 1e-12;

/// Fewest lists for a fit. The fit on each half has half of them.
const LEAST_LISTS: usize = 10;

/// Settings of the rankings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Most tokens of a passage.
    pub passage_tokens: Option<usize>,
    /// Least label of a relevant passage.
    pub threshold: f64,
    /// Seed of the designs.
    pub seed: u64,
}

/// Quality of one method's calibration on lists that the fit did not see.
#[derive(Debug, Clone, PartialEq)]
pub struct Worth {
    /// Mean nDCG@10 of the mixture, before any refinement, with the built-in shares; `None` without a relevant passage.
    pub ndcg_before: Option<f64>,
    /// With the shares learnt from the other half, whether or not they are used.
    pub ndcg_after: Option<f64>,
    /// True if a learnt mix is used. The other numbers after the fit then belong to learnt mixes, otherwise to the
    /// built-in mix. The numbers before the fit belong to the built-in mix.
    pub mix_taken: bool,
    /// Expected calibration error of the uncalibrated scores.
    pub error_before: Option<f64>,
    /// Expected calibration error of the probabilities.
    pub error_after: Option<f64>,
    /// `outranks_next` of neighbours with one relevant passage. `None` for a method that does not learn it, and
    /// without such neighbours.
    pub order: Option<Order>,
    /// Measured on the lists with a relevant passage and another. `None` without such lists.
    pub none_relevant: Option<NoneRelevant>,
    /// Quality of `auto_k` on the lists with a relevant passage. `None` without such lists.
    pub auto_k: Option<AutoK>,
}

/// Expected calibration errors of `outranks_next`.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// With the built-in mix and slope.
    pub error_before: f64,
    /// With the learnt slope; `None` if neither half's neighbours determined one.
    pub error_after: Option<f64>,
    /// Number of measured neighbours in the order of the built-in mix.
    pub pairs: usize,
}

/// The probability that no passage of a list is relevant, on lists and on the same lists without their relevant passages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NoneRelevant {
    /// Share of pairs of a list without and a list with them, from any two questions, in which the list without
    /// them has the larger probability.
    pub auc: f64,
    /// Share of the lists without them with a probability of at least one half, so that `none_helps` is true.
    pub true_positive_rate: f64,
    /// Share of the lists with them with such a probability.
    pub false_positive_rate: f64,
}

/// F1 of lists cut by `auto_k`, and cut at one number of results for all.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AutoK {
    /// Mean F1 of the results of `auto_k`.
    pub f1: f64,
    /// Mean number of these results.
    pub results: f64,
    /// Mean F1 of the single number that was best on the lists of the fit.
    pub f1_of_one_number: f64,
}

/// The calibration of one method.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    pub calibration: Calibration,
    pub worth: Worth,
    /// Every tried mix, with its value on all lists, the built-in one first; empty for a method that does not fuse.
    pub tried: Vec<TriedMix>,
}

/// A method's answer on one list.
pub struct Asked {
    observed: Observed,
    /// As in [`Answers`].
    embedding: Option<String>,
    model: Option<String>,
    without: Option<String>,
}

impl Record for Asked {}

/// Ranks one list with an engine that has no calibration.
///
/// # Errors
/// [`EngineError`]; the list then does not count.
pub async fn ask(
    engine: &Engine,
    method: MethodRef,
    settings: &Settings,
    question: &Question,
) -> Result<Asked, EngineError> {
    let request = RerankRequest {
        query: question.list.question.clone(),
        passages: question.list.passages.clone(),
        method: Some(method),
        moi: MoiOptions { seed: settings.seed, ..MoiOptions::default() },
        passage_tokens: settings.passage_tokens,
        ..RerankRequest::default()
    };
    // The server mixes and scores documents with equal text as one.
    let copies = Copies::of(&request);
    let (request, labels) = (copies.without(&request), copies.largest(&question.list.labels));
    if let Some(why) = method.uncalibrated(&request) {
        return Err(EngineError::invalid("passages", format!("{} {why}", method.name())));
    }
    let call = Call::local();
    let answer = engine.reranker.rerank(&call, request.clone(), None).await?;
    let scored_by = |role| Ok::<_, EngineError>(engine.models().scorer(role)?.scores_sha256());
    let model = method.passage_model().map(scored_by).transpose()?;
    let (mut cosines, mut embedding, mut without) = (None, None, None);
    if answer.fusion.is_some_and(|fusion| fusion.embedding.is_some()) {
        // The answer only has the mixture. If the model caches vectors, the passages are not evaluated again.
        let method = methods::find("embedding");
        let alone = RerankRequest { method, truncate: Some(true), ..request.clone() };
        let mut passages = engine.reranker.rerank(&call, alone, None).await?.passages;
        passages.sort_by_key(|passage| passage.index);
        cosines = Some(Cosines {
            scores: passages.iter().map(|passage| passage.utility).collect(),
            unreadable: passages.iter().map(|passage| passage.stage == RankingStage::Retriever).collect(),
        });
        embedding = Some(scored_by(Role::Embedding)?);
    } else {
        without = answer.warnings.iter().find(|warning| warning.starts_with(RANKED_WITHOUT)).cloned();
    }
    let observed = Observed::new(&request, &answer, cosines, &labels, settings.threshold);
    Ok(Asked { observed, embedding, model, without })
}

/// A method's answers on all lists.
pub struct Answers {
    method: MethodRef,
    observed: Vec<Observed>,
    /// Identity of the model of the mixed-in cosines ([`PassageScorer::scores_sha256`]).
    ///
    /// [`PassageScorer::scores_sha256`]: prefix_scheduler::scheduler::reranker::PassageScorer::scores_sha256
    embedding: Option<String>,
    /// Identity of the other model that the method asks.
    model: Option<String>,
    /// See [`Self::without`].
    without: Option<String>,
}

impl Answers {
    pub fn new(method: MethodRef) -> Self {
        Self { method, observed: Vec::new(), embedding: None, model: None, without: None }
    }

    /// Adds a list.
    pub fn add(&mut self, asked: Asked) {
        self.observed.push(asked.observed);
        self.embedding = asked.embedding.or(self.embedding.take());
        self.model = asked.model.or(self.model.take());
        self.without = self.without.take().or(asked.without);
    }

    /// The reason why a list was ranked without the model whose scores the method mixes in; `None` if all were ranked
    /// with it.
    pub fn without(&self) -> Option<&str> {
        self.without.as_deref()
    }

    /// Fits shares and probabilities. A method that mixes in cosines is fitted with them first, and then without, for
    /// servers without the embedding model and for lists of one passage. Also returns the failed fits:
    /// [`StudyError::Input`] if the lists do not determine one.
    pub fn fit(&self) -> (Vec<Fitted>, Vec<StudyError>) {
        let beside: Vec<&Observed> = self.observed.iter().filter(|one| one.has_cosines()).collect();
        let alone: Vec<Observed> = self.observed.iter().map(Observed::without_cosines).collect();
        let with = (!beside.is_empty()).then(|| self.fit_to(&beside, self.embedding.clone()));
        let without = self.fit_to(&alone.iter().collect::<Vec<_>>(), None);
        let (mut fitted, mut problems) = (Vec::new(), Vec::new());
        for outcome in with.into_iter().chain([without]) {
            match outcome {
                Ok(one) => fitted.push(one),
                Err(problem) => problems.push(problem),
            }
        }
        (fitted, problems)
    }

    fn fit_to(&self, lists: &[&Observed], embedding: Option<String>) -> Result<Fitted, StudyError> {
        let beside = if embedding.is_some() { " with the embedding model" } else { "" };
        let name = format!("{}{beside}", self.method.name());
        let refused = |problem: String| Err(StudyError::Input(format!("{name}: {problem}")));
        if lists.len() < LEAST_LISTS {
            return refused(format!("{} lists, at least {LEAST_LISTS} are needed", lists.len()));
        }
        let mut sources: Vec<_> = lists.iter().map(|one| one.source()).collect();
        sources.dedup();
        if sources.len() > 1 {
            let problem = "some lists have retriever scores and some have not: calibrate on one kind";
            return refused(problem.to_owned());
        }
        let order = self.method.outranks_by_value();
        let learnt = judge(lists, true, order);
        let (ndcg_before, ndcg_after) = (learnt.ndcg_before, learnt.ndcg_after);
        // A mix that gains nothing on unseen lists is not used.
        let gains = ndcg_before.zip(ndcg_after).is_some_and(|(before, after)| after > before + ROUNDING);
        let mixes = tried(lists);
        let (preset, taught) = (built_in(lists), best(lists, &mixes));
        let mix_taken = gains && taught != preset && fit(lists, taught).is_some();
        let shares = if mix_taken { taught } else { preset };
        let judged = if mix_taken { learnt } else { judge(lists, false, order) };
        let worth = Worth { ndcg_before, ndcg_after, mix_taken, ..judged };
        let Some(score) = fit(lists, shares) else {
            return refused(
                "higher scores are not more relevant, or all or no passages are: nothing to fit".to_owned(),
            );
        };
        let slope_tried = worth.order.as_ref().is_some_and(|order| order.error_after.is_some());
        let calibration = Calibration {
            method: self.method.name().to_owned(),
            mix: sources[0].map(|source| Mix {
                source,
                weight: shares.weight,
                embedding: embedding.as_ref().map(|_| shares.embedding),
            }),
            embedding,
            model: self.model.clone(),
            score,
            // A slope that was not tried on unseen lists is not stored.
            outranks_per_nat: slope_tried.then(|| slope(lists, shares)).flatten(),
            lists: lists.len(),
            passages: lists.iter().map(|one| one.relevant.len()).sum(),
            calibration_error: worth.error_after,
        };
        Ok(Fitted { calibration, worth, tried: mixes })
    }
}

/// Probabilities for these lists, mixed with these shares.
fn fit(lists: &[&Observed], shares: Shares) -> Option<Platt> {
    let (logits, relevant) = pairs(lists, shares);
    Platt::fit(&logits, &relevant)
}

/// The slope of `outranks_next` from these lists' neighbours, if it makes their labels likelier than the built-in one
/// beyond the standard error over lists.
fn slope(lists: &[&Observed], shares: Shares) -> Option<f64> {
    // The order of equal values carries no information.
    let unequal = |one: &&Observed| one.neighbours(shares).into_iter().filter(|(gap, _)| *gap > 0.0).collect();
    let by_list: Vec<Vec<(f64, bool)>> = lists.iter().map(unequal).collect();
    let learnt = certainty::per_nat(&by_list.concat())?;
    let likelihood = |pairs: &[(f64, bool)], slope: f64| -> f64 {
        let of = |&(gap, right): &(f64, bool)| certainty::outranks(if right { gap } else { -gap }, slope);
        pairs.iter().map(|pair| of(pair).max(f64::MIN_POSITIVE).ln()).sum()
    };
    let gains: Vec<f64> =
        by_list.iter().map(|pairs| likelihood(pairs, learnt) - likelihood(pairs, certainty::PER_NAT)).collect();
    (mean(&gains) > standard_error(&gains)).then_some(learnt)
}

/// Logit and label of every passage.
fn pairs(lists: &[&Observed], shares: Shares) -> (Vec<f64>, Vec<bool>) {
    let logits = lists.iter().flat_map(|one| one.logits(shares)).collect();
    (logits, lists.iter().flat_map(|one| one.relevant.iter().copied()).collect())
}

/// Standard error of the mean.
fn standard_error(values: &[f64]) -> f64 {
    standard_deviation(values) / real(values.len().saturating_sub(1).max(1)).sqrt()
}

/// `None` if no half could be judged by the fit of the other.
fn mean_of(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| mean(values))
}

/// Quality of fits to one half of the lists on the other half.
fn judge(lists: &[&Observed], learns_mix: bool, learns_order: bool) -> Worth {
    let preset = built_in(lists);
    let half = |odd: usize| -> Vec<&Observed> { lists.iter().copied().skip(odd).step_by(2).collect() };
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let (mut logits, mut probabilities, mut relevant) = (Vec::new(), Vec::new(), Vec::new());
    let (mut order_before, mut order_after, mut learnt_order) = (Vec::new(), Vec::new(), false);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let (mut auto, mut results, mut fixed) = (Vec::new(), Vec::new(), Vec::new());
    for (seen, unseen) in [(half(0), half(1)), (half(1), half(0))] {
        let shares = if learns_mix { best(&seen, &tried(&seen)) } else { preset };
        before.extend(unseen.iter().filter_map(|one| one.ndcg(preset)));
        after.extend(unseen.iter().filter_map(|one| one.ndcg(shares)));
        let Some(platt) = fit(&seen, shares) else { continue };
        let (own, labels) = pairs(&unseen, shares);
        probabilities.extend(own.iter().map(|logit| platt.probability(*logit)));
        logits.extend(pairs(&unseen, preset).0);
        relevant.extend(labels);
        if learns_order {
            let per_nat = slope(&seen, shares);
            learnt_order |= per_nat.is_some();
            order_before.extend(ahead(&unseen, preset, certainty::PER_NAT));
            order_after.extend(ahead(&unseen, shares, per_nat.unwrap_or(certainty::PER_NAT)));
        }
        let number = best_number(&seen, shares);
        for one in &unseen {
            let mut ranked: Vec<f64> = one.logits(shares).iter().map(|logit| platt.probability(*logit)).collect();
            ranked.sort_by(|left, right| right.total_cmp(left));
            let cut = best_cut(&ranked);
            let Some(f1) = one.f1_by_number(shares) else { continue };
            auto.push(f1[cut - 1]);
            results.push(real(cut));
            fixed.push(f1[number.min(f1.len()) - 1]);
        }
        for one in unseen.iter().filter(|one| one.relevant.contains(&true) && one.relevant.contains(&false)) {
            let none = |list: &Observed| {
                none_relevant(&list.logits(shares).iter().map(|logit| platt.probability(*logit)).collect::<Vec<_>>())
            };
            with.push(none(one));
            without.push(none(&one.without_relevant()));
        }
    }
    let scores: Vec<f64> = logits.iter().map(|logit| sigmoid(*logit)).collect();
    Worth {
        mix_taken: learns_mix,
        ndcg_before: mean_of(&before),
        ndcg_after: mean_of(&after),
        error_before: calibration_error(&scores, &relevant),
        error_after: calibration_error(&probabilities, &relevant),
        order: of_order(order_before, order_after.into_iter().filter(|_| learnt_order)),
        none_relevant: of_none(&with, &without),
        auto_k: (!auto.is_empty()).then(|| AutoK {
            f1: mean(&auto),
            results: mean(&results),
            f1_of_one_number: mean(&fixed),
        }),
    }
}

/// `outranks_next` of the neighbours of these lists, and true for the right order.
fn ahead(lists: &[&Observed], shares: Shares, per_nat: f64) -> Vec<(f64, bool)> {
    let neighbours = lists.iter().flat_map(|one| one.neighbours(shares));
    neighbours.map(|(gap, right)| (certainty::outranks(gap, per_nat), right)).collect()
}

/// Quality of `outranks_next` before and after the fit. Without a learnt slope there is nothing after it.
fn of_order(before: Vec<(f64, bool)>, after: impl Iterator<Item = (f64, bool)>) -> Option<Order> {
    let pairs = before.len();
    let error = |judged: (Vec<f64>, Vec<bool>)| calibration_error(&judged.0, &judged.1);
    Some(Order { error_before: error(before.into_iter().unzip())?, error_after: error(after.unzip()), pairs })
}

/// Quality of these probabilities, of lists with their relevant passages and without.
fn of_none(with: &[f64], without: &[f64]) -> Option<NoneRelevant> {
    let is_without: Vec<bool> = with.iter().map(|_| false).chain(without.iter().map(|_| true)).collect();
    let said = |of: &[f64]| mean(&of.iter().map(|one| f64::from(u8::from(*one >= 0.5))).collect::<Vec<_>>());
    let auc = auc(&[with, without].concat(), &is_without)?;
    Some(NoneRelevant { auc, true_positive_rate: said(without), false_positive_rate: said(with) })
}

/// The number of first results with the best mean F1 on these lists; ties take the least.
fn best_number(lists: &[&Observed], shares: Shares) -> usize {
    let by_list: Vec<Vec<f64>> = lists.iter().filter_map(|one| one.f1_by_number(shares)).collect();
    // A shorter list is returned whole.
    let of = |number: usize| mean(&by_list.iter().map(|f1| f1[number.min(f1.len()) - 1]).collect::<Vec<_>>());
    let longest = by_list.iter().map(Vec::len).max().unwrap_or(1);
    let by_number: Vec<f64> = (1..=longest).map(of).collect();
    descending(&by_number).first().map_or(1, |first| first + 1)
}

#[cfg(test)]
mod tests;
