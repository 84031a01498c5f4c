//! Mixture of Interventions: score many orders, fit utilities and position bias, rank by utility (Lee et al., section 3).

mod options;

use std::collections::HashSet;
use std::sync::Arc;

use options::{Size, prompts};

use super::query_prompt::{QueryPrompt, overhead_with};
use super::{Budget, Interim, Method, Prompt, PromptShape, Ranking, Scored, Scores, Task};
use crate::prompt::Language;
use crate::types::{EngineError, FitReport, Limits, MoiOptions, MoiOutcome, RerankRequest, Scheme};
use ::moi::{Estimate, Observation, adaptive, design, estimate, uncertainty, work};
use numeric::{mean, real};
use prefix_scheduler::call::Call;

/// Utility in nats.
pub(super) struct Moi;

impl Moi {
    /// Begins with known single-passage scores and the score of no passage, so that they are not evaluated again.
    /// The design must hold single passages, as the design of prefixes does.
    pub fn begin_known(task: Arc<Task>, alone: Vec<f64>, none: f64) -> Result<Box<dyn Ranking>, EngineError> {
        let observed = |(passage, &score): (usize, &f64)| Observation { order: vec![passage], score };
        let observations = alone.iter().enumerate().map(observed).collect();
        MoiRanking::begin(task, Evidence { observations, anchor: alone, none: Some(none) })
    }
}

impl Method for Moi {
    fn name(&self) -> &'static str {
        "moi"
    }

    fn summary(&self) -> &'static str {
        "Mixture of Interventions: many orders are scored, utilities and position bias fitted (Lee et al.)"
    }

    fn check(&self, request: &RerankRequest, limits: &Limits) -> Result<(), EngineError> {
        if request.passages.len() > MOST {
            let problem = format!("{} given, moi takes at most {MOST}", request.passages.len());
            return Err(EngineError::invalid("passages", problem));
        }
        request.moi.check(&request.passages, limits)
    }

    fn takes_prefix(&self) -> bool {
        true
    }

    /// A design reduced to a smaller budget has the same unit and zero as the whole design.
    fn uncalibrated(&self, request: &RerankRequest) -> Option<&'static str> {
        let design = MoiOptions { fit_budget: false, ..request.moi.clone() };
        design.asks_for_moi().then_some("is calibrated with its default options, and this request sets others")
    }

    /// A prior has one weight per passage.
    fn tells_copies_apart(&self, request: &RerankRequest) -> bool {
        request.moi.position_prior.is_some()
    }

    fn prompts(&self, request: &RerankRequest, language: &Language) -> Option<PromptShape> {
        let longest = request.moi.longest(&request.passages);
        Some(PromptShape { longest, overhead: overhead_with(&request.prefix, language) })
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let anchor = vec![f64::NAN; task.passages.len()];
        MoiRanking::begin(task, Evidence { observations: Vec::new(), anchor, none: None })
    }
}

/// Most passages. With more, their squares take seconds and gigabytes before the fit would be refused.
const MOST: usize = 1_000;

/// An order to score.
struct Probe {
    order: Vec<usize>,
    /// True if it is part of the design; otherwise it only determines the direction of the bias.
    in_design: bool,
}

/// The fit of the scores so far.
#[derive(Clone)]
struct Evidence {
    observations: Vec<Observation>,
    /// Single-passage scores log P(query | passage), in nats; not a number if missing.
    anchor: Vec<f64>,
    /// log P(query | no passage), in nats.
    none: Option<f64>,
}

struct MoiRanking {
    task: Arc<Task>,
    prompt: QueryPrompt,
    /// The orders whose scores are awaited.
    probes: Vec<Probe>,
    evidence: Evidence,
    fitted: Option<Estimate>,
    /// Scored rounds of prompts.
    rounds: usize,
}

impl MoiRanking {
    fn begin(task: Arc<Task>, evidence: Evidence) -> Result<Box<dyn Ranking>, EngineError> {
        let prompt = QueryPrompt::of(&task)?;
        Ok(Box::new(Self { task, prompt, probes: Vec::new(), evidence, fitted: None, rounds: 0 }))
    }

    fn options(&self) -> &MoiOptions {
        &self.task.request.moi
    }

    fn joint(&self) -> bool {
        self.options().outcome == MoiOutcome::Joint
    }

    fn passages(&self) -> usize {
        self.task.passages.len()
    }

    /// The orders as probes. With `anchors` also each single passage: as prompt prefixes they are nearly free, and
    /// they determine the direction of the bias.
    fn probes(&self, orders: Vec<Vec<usize>>, anchors: bool) -> Vec<Probe> {
        let alone: HashSet<usize> = orders.iter().filter(|order| order.len() == 1).map(|order| order[0]).collect();
        // Observations of the first round; later rounds do not repeat them.
        let observed = |order: &Vec<usize>| self.evidence.observations.iter().any(|one| one.order == *order);
        let orders = orders.into_iter().filter(|order| !observed(order));
        let mut probes: Vec<Probe> = orders.map(|order| Probe { order, in_design: true }).collect();
        if anchors {
            let missing = (0..self.passages())
                .filter(|passage| !alone.contains(passage) && !self.evidence.anchor[*passage].is_finite());
            probes.extend(missing.map(|passage| Probe { order: vec![passage], in_design: false }));
        }
        probes
    }

    fn lay_out(&self, probes: &[Probe]) -> Vec<Prompt> {
        let joint = self.joint();
        let mut prompts: Vec<Prompt> =
            probes.iter().map(|probe| self.prompt.with(&self.task, &probe.order, joint)).collect();
        if !joint && self.fitted.is_none() && self.evidence.none.is_none() {
            // The first round includes the zero of the utilities.
            prompts.push(self.prompt.with(&self.task, &[], false));
        }
        prompts
    }

    /// Operations for the fit of these prompts and the earlier ones; [`work::LARGEST`] bounds them per request.
    fn work(&self, probes: &[Probe]) -> u64 {
        let scored = self.evidence.observations.iter().map(|observation| observation.order.len());
        let asked = probes.iter().filter(|probe| probe.in_design).map(|probe| probe.order.len());
        let lengths = scored.chain(asked).map(|length| (length, 1));
        work::estimate(self.passages(), lengths, true, &self.options().settings())
    }

    /// Refuses a design with a too long fit, before its prompts are scored.
    fn check_work(&self, probes: &[Probe]) -> Result<(), EngineError> {
        let work = self.work(probes);
        if work > work::LARGEST {
            let problem = format!(
                "the fit of these prompts takes about {work} operations, at most {} allowed: ask for fewer orders or less depth",
                work::LARGEST
            );
            return Err(EngineError::invalid("moi", problem));
        }
        Ok(())
    }

    /// The requested design; with `fit_budget`, the largest design whose prompts fit the budget.
    fn first_round(&self, budget: &Budget, call: &Call) -> Result<Vec<Probe>, EngineError> {
        let (request, n) = (&self.task.request, self.passages());
        let of_size = |size: Size| -> Result<Vec<Probe>, EngineError> {
            call.check()?;
            Ok(self.probes(prompts(request, size, &|| call.is_stopped())?, true))
        };
        if !self.options().fit_budget {
            let probes = of_size(Size::asked(self.options(), n))?;
            self.check_work(&probes)?;
            return Ok(probes);
        }
        let sizes = Size::descending(self.options(), n);
        // Cost falls with the size, so bisection finds the largest that fits.
        let (mut too_large, mut fits) = (0, sizes.len());
        while too_large < fits {
            let middle = usize::midpoint(too_large, fits);
            let probes = of_size(sizes[middle])?;
            let allowed = self.work(&probes) <= work::LARGEST && budget.allows(&self.lay_out(&probes));
            if allowed { fits = middle } else { too_large = middle + 1 }
        }
        match sizes.get(fits) {
            Some(size) => of_size(*size),
            None => {
                let least = sizes.last().map_or(Ok(Vec::new()), |size| of_size(*size))?;
                self.check_work(&least)?;
                let needed = Budget::cost(&self.lay_out(&least)).tokens;
                Err(EngineError::Budget { needed, allowed: budget.tokens })
            }
        }
    }

    /// True if another round may follow after `refined` refining rounds.
    fn refines_after(&self, refined: usize) -> bool {
        self.options().scheme() == Scheme::Adaptive && refined < self.options().rounds.unwrap_or(3)
    }

    /// Passages in the prompts of refining rounds.
    fn refined_length(&self) -> usize {
        self.options().depth(self.passages()).unwrap_or(2).max(1)
    }

    /// Further prompts for the least certain of the first places; empty when they are decided, the budget is spent
    /// or no order is left to score.
    fn next_round(&self, fitted: &Estimate, budget: &Budget, call: &Call) -> Result<Vec<Probe>, EngineError> {
        let (options, n) = (self.options(), self.passages());
        let goal = adaptive::Goal {
            top: options.settle_top.unwrap_or(3),
            probability: options.settle_probability.unwrap_or(0.9),
        };
        let refined = self.rounds.saturating_sub(1);
        if !self.refines_after(refined) || goal.reached(fitted) {
            return Ok(Vec::new());
        }
        let length = self.refined_length();
        let seed = options.seed.wrapping_add(1 + refined as u64);
        let seen = self.evidence.observations.iter().map(|observation| observation.order.clone()).collect();
        let named = options::by_id(&self.task.request.passages);
        let interrupt = || call.is_stopped();
        let orders = adaptive::next_orders(fitted, length, n.div_ceil(2), (&seen, &named), goal, seed, &interrupt)?;
        let probes = self.probes(orders, false);
        if !budget.affords(&self.lay_out(&probes)) || self.work(&probes) > work::LARGEST {
            return Ok(Vec::new());
        }
        Ok(probes)
    }

    /// Adds the available scores to the evidence. Scores of the query anchor the direction; the fit uses the
    /// requested outcome.
    fn gather(&self, evidence: &mut Evidence, scores: &Scores) {
        let joint = self.joint();
        if scores.len() > self.probes.len() && scores.is_complete(self.probes.len()) {
            evidence.none = Some(scores.last(self.probes.len()).iter().sum());
        }
        for (number, probe) in self.probes.iter().enumerate().filter(|(number, _)| scores.is_complete(*number)) {
            if let [passage] = probe.order[..] {
                evidence.anchor[passage] = scores.last(number).iter().sum();
            }
            if probe.in_design {
                // The prompt prefix is the first segment.
                let score = if joint { scores.sum_from(number, 1) } else { scores.last(number).iter().sum() };
                evidence.observations.push(Observation { order: probe.order.clone(), score });
            }
        }
    }

    /// Shifts the fitted utilities so that 0 means "no better than no passage": their mean becomes the mean of the
    /// single-passage scores minus the score without passages. The fit only determines differences; the level of
    /// its scores belongs to longer prompts.
    fn zero(&self, utilities: &[f64]) -> Option<f64> {
        let known = self.evidence.anchor.iter().all(|score| score.is_finite());
        let none = self.evidence.none.filter(|_| known)?;
        Some(mean(&self.evidence.anchor) - none - mean(utilities))
    }

    fn fit(&self, evidence: &Evidence, call: &Call) -> Result<Estimate, EngineError> {
        let anchor = Some(&evidence.anchor[..]).filter(|scores| scores.iter().all(|score| score.is_finite()));
        let interrupt = || call.is_stopped();
        Ok(estimate(self.passages(), &evidence.observations, anchor, &self.options().settings(), &interrupt)?)
    }
}

impl Ranking for MoiRanking {
    fn next(&mut self, budget: &Budget, call: &Call) -> Result<Option<Vec<Prompt>>, EngineError> {
        let probes = match &self.fitted {
            None => self.first_round(budget, call)?,
            Some(fitted) => self.next_round(fitted, budget, call)?,
        };
        if probes.is_empty() {
            return Ok(None);
        }
        let prompts = self.lay_out(&probes);
        self.probes = probes;
        Ok(Some(prompts))
    }

    /// Refining rounds request orders of one length that were not scored.
    fn shares(&self) -> usize {
        if self.refines_after(self.rounds) { self.refined_length() - 1 } else { 0 }
    }

    fn fits(&self) -> bool {
        true
    }

    fn absorb(&mut self, scores: &Scores, call: &Call) -> Result<(), EngineError> {
        let mut evidence = std::mem::replace(
            &mut self.evidence,
            Evidence { observations: Vec::new(), anchor: Vec::new(), none: None },
        );
        self.gather(&mut evidence, scores);
        self.evidence = evidence;
        self.fitted = Some(self.fit(&self.evidence, call)?);
        self.rounds += 1;
        Ok(())
    }

    fn interim(&self, partial: &Scores, call: &Call) -> Option<Interim> {
        let mut evidence = self.evidence.clone();
        self.gather(&mut evidence, partial);
        if evidence.observations.is_empty() {
            // Only single passages were scored so far: their order is the best available.
            let alone = evidence.anchor.iter().enumerate().filter(|(_, score)| score.is_finite());
            let alone = alone.map(|(passage, &score)| Observation { order: vec![passage], score });
            evidence.observations = alone.collect();
        }
        let observations = evidence.observations.len();
        let order = self.fit(&evidence, call).ok()?.ranking;
        Some(Interim { order, observations })
    }

    fn finish(&mut self, _: &Call) -> Result<Scored, EngineError> {
        let fitted = self.fitted.take().ok_or_else(|| EngineError::Internal("nothing was scored".into()))?;
        let orders: Vec<Vec<usize>> =
            self.evidence.observations.iter().map(|observation| observation.order.clone()).collect();
        let warnings = warnings(&fitted);
        let fit = FitReport {
            bias: fitted.bias,
            diagnostics: fitted.diagnostics,
            orientation: fitted.orientation,
            anchor_correlation: fitted.anchor_correlation,
            expected_tau: fitted.expected_tau,
            scheme: self.options().scheme(),
            observations: orders.len(),
            blocks: design::blocks(&orders),
            depth: orders.iter().map(Vec::len).max().unwrap_or(0),
            rounds: self.rounds,
            objective: fitted.objective,
        };
        let zero = self.zero(&fitted.utilities);
        Ok(Scored {
            utilities: fitted.utilities.iter().map(|utility| utility + zero.unwrap_or(0.0)).collect(),
            has_zero: zero.is_some(),
            standard_errors: fitted.standard_errors,
            ranking: fitted.ranking,
            outranks_next: Some(fitted.outranks_next),
            fit: Some(fit),
            unit: real(self.task.query.len().max(1)),
            warnings,
            ..Scored::default()
        })
    }
}

fn warnings(fitted: &Estimate) -> Vec<String> {
    let mut warnings = Vec::new();
    let several = fitted.ranking.len() > 1;
    // With equal scores the prior has nothing to decide.
    if several && !fitted.diagnostics.identifiable && fitted.diagnostics.r2.is_some() {
        warnings
            .push("the scores alone do not settle utilities and position bias: the prior decided the rest".to_owned());
    }
    if several && !fitted.diagnostics.scale_identified && fitted.diagnostics.r2.is_some() {
        warnings.push(uncertainty::SCALE_FROM_PRIOR.to_owned());
    }
    if !fitted.diagnostics.converged {
        warnings.push(uncertainty::NOT_CONVERGED.to_owned());
    }
    if several && fitted.diagnostics.r2.is_none() {
        warnings.push("every order scored the same: the given order is kept".to_owned());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::tests::{noise, order, run_on, task};

    /// The refining rounds begin with passages that the first round announced for the KV cache; the last one
    /// announces none.
    #[test]
    fn adaptive_rounds_share_what_was_announced() {
        let mut task = Arc::into_inner(task(8)).unwrap();
        task.request.moi =
            MoiOptions { scheme: Some(Scheme::Adaptive), settle_probability: Some(0.999), ..MoiOptions::default() };
        let mut source = noise(3);
        let table: Vec<f64> = (0..8).map(|_| source()).collect();
        let answer = |prompt: &Prompt| order(prompt).iter().map(|&passage| table[passage]).sum::<f64>() - 20.0;
        let ran = run_on(&Moi, Arc::new(task), usize::MAX, &answer);
        assert!(ran.rounds.len() > 1, "nothing was refined");
        let alone = |prompts: &[Prompt]| prompts.iter().filter(|prompt| order(prompt).len() == 1).count();
        assert_eq!((alone(&ran.rounds[0]), alone(&ran.rounds[1])), (8, 0));
    }

    #[test]
    fn of_equal_scores_nothing_is_left_for_the_prior() {
        let warnings = run_on(&Moi, task(2), usize::MAX, &|_| -20.0).scored.warnings;
        assert_eq!(warnings, ["every order scored the same: the given order is kept"]);
    }
}
