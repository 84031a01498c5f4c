//! Mixture of Interventions: score many orders, fit utilities and position bias, rank by utility.

mod interim;
mod options;

use std::collections::HashSet;
use std::time::Instant;

use interim::Interim;
pub use options::{MoiOptions, Outcome, Scheme};
use options::{Size, prompts};

use super::super::{Engine, EngineError, milliseconds};
use super::prepared::Prepared;
use super::{FitReport, RerankRequest, Scored};
use crate::fit::{Estimate, Observation, Settings, adaptive, design, estimate, uncertainty};
use crate::plan::{NodeId, Plan};
use crate::scheduler;

impl RerankRequest {
    /// Passages in the longest prompt of the method.
    pub(super) fn longest(&self) -> usize {
        match self.method {
            super::Method::Moi => self.moi.longest(self.passages.len()),
            _ => 1,
        }
    }
}

/// A scored prompt of the plan.
struct Probe {
    order: Vec<usize>,
    path: Vec<NodeId>,
    /// Part of the design, or only there to settle the direction.
    counts: bool,
}

impl Probe {
    /// The nodes whose scores make the outcome: the query, and with `joint` the passages.
    fn scored_nodes(&self, joint: bool) -> &[NodeId] {
        let first = if joint { 1 } else { self.path.len() - 1 };
        &self.path[first..]
    }

    fn score(&self, outcome: &scheduler::Outcome, joint: bool) -> f64 {
        self.scored_nodes(joint).iter().flat_map(|node| &outcome.scores[node.0]).sum()
    }
}

/// What has been scored so far.
struct Evidence {
    observations: Vec<Observation>,
    /// log P(query | passage) of each passage alone, in nats.
    anchor: Vec<f64>,
    seen: HashSet<Vec<usize>>,
}

pub(super) async fn score(engine: &Engine, task: &mut Prepared) -> Result<Scored, EngineError> {
    let options = task.request.moi.clone();
    let settings = options.settings();
    let n = task.passages.len();
    let planning = Instant::now();
    let first = within_budget(engine, task)?;
    task.usage.tokenise_ms += milliseconds(planning);
    let mut evidence = Evidence { observations: Vec::new(), anchor: vec![f64::NAN; n], seen: HashSet::new() };
    observe(engine, task, first, &mut evidence, true).await?;
    let mut fitted = fit(task, &evidence, &settings).await?;
    let mut rounds = 1;
    if options.scheme() == Scheme::Adaptive {
        rounds += refine(engine, task, &mut evidence, &mut fitted).await?;
    }
    warn(&mut task.warnings, &fitted);
    let orders: Vec<Vec<usize>> = evidence.observations.iter().map(|observation| observation.order.clone()).collect();
    let fit = FitReport {
        bias: fitted.bias,
        diagnostics: fitted.diagnostics,
        orientation: fitted.orientation,
        anchor_correlation: fitted.anchor_correlation,
        expected_tau: fitted.expected_tau,
        scheme: options.scheme(),
        observations: orders.len(),
        blocks: design::blocks(&orders),
        depth: orders.iter().map(Vec::len).max().unwrap_or(0),
        rounds,
        objective: fitted.objective,
    };
    Ok(Scored {
        utilities: fitted.utilities,
        standard_errors: Some(fitted.standard_errors),
        ranking: fitted.ranking,
        outranks_next: Some(fitted.outranks_next),
        fit: Some(fit),
    })
}

/// The plan of the first round.
pub(super) fn plan(engine: &Engine, task: &Prepared) -> Result<Plan, EngineError> {
    let mut plan = Plan::new();
    lay_out(engine, task, &mut plan, &within_budget(engine, task)?, true);
    Ok(plan)
}

/// The prompts of the design as asked for, or with `fit_budget` of the largest size whose plan fits the budget. A design that
/// is not fitted is laid out once, where it runs, and refused there before any work if it is too large.
fn within_budget(engine: &Engine, task: &Prepared) -> Result<Vec<Vec<usize>>, EngineError> {
    let options = &task.request.moi;
    let n = task.passages.len();
    if !options.fit_budget {
        return Ok(prompts(&task.request, Size::asked(options, n)));
    }
    let allowed = task.budget(engine);
    let cost = |orders: &[Vec<usize>]| {
        let mut plan = Plan::new();
        lay_out(engine, task, &mut plan, orders, true);
        plan.cost()
    };
    let context = engine.context()?;
    let sizes = Size::descending(options, n);
    let fits = |size: &Size| {
        let cost = cost(&prompts(&task.request, *size));
        cost.tokens <= allowed && cost.path_cells <= context
    };
    // Cost falls with the size, so the first that fits is found by bisection.
    let at = sizes.partition_point(|size| !fits(size));
    match sizes.get(at) {
        Some(size) => Ok(prompts(&task.request, *size)),
        None => {
            let least = sizes.last().map_or(0, |size| cost(&prompts(&task.request, *size)).tokens);
            Err(EngineError::Budget { needed: least, allowed })
        }
    }
}

/// Adds the prompts to the plan; with `anchors` also every passage alone, which as first beginnings are nearly free and
/// settle the direction of the bias.
fn lay_out(engine: &Engine, task: &Prepared, plan: &mut Plan, orders: &[Vec<usize>], anchors: bool) -> Vec<Probe> {
    let joint = task.request.moi.outcome == Outcome::Joint;
    let mut probes: Vec<Probe> = orders
        .iter()
        .map(|order| Probe { order: order.clone(), path: task.add_prompt(engine, plan, order, joint), counts: true })
        .collect();
    if anchors {
        let alone: HashSet<usize> = orders.iter().filter(|order| order.len() == 1).map(|order| order[0]).collect();
        for p in (0..task.passages.len()).filter(|p| !alone.contains(p)) {
            probes.push(Probe { order: vec![p], path: task.add_prompt(engine, plan, &[p], joint), counts: false });
        }
    }
    probes
}

/// Has the prompts scored and adds what they say to the evidence.
async fn observe(
    engine: &Engine,
    task: &mut Prepared,
    orders: Vec<Vec<usize>>,
    evidence: &mut Evidence,
    anchors: bool,
) -> Result<(), EngineError> {
    let joint = task.request.moi.outcome == Outcome::Joint;
    let mut plan = Plan::new();
    let probes = lay_out(engine, task, &mut plan, &orders, anchors);
    let settings = task.request.moi.settings();
    let watched = task.listener.is_some();
    let mut interim = watched.then(|| Interim::new(task.passages.len(), &probes, &settings, joint));
    let outcome = task.run(engine, plan, move |node, score| interim.as_mut()?.scored(node, score)).await?;
    for probe in probes {
        if probe.order.len() == 1 {
            evidence.anchor[probe.order[0]] = probe.score(&outcome, false);
        }
        if probe.counts {
            evidence.seen.insert(probe.order.clone());
            let score = probe.score(&outcome, joint);
            evidence.observations.push(Observation { order: probe.order, score });
        }
    }
    Ok(())
}

/// Rounds of further prompts, each where the current fit is least sure of the first places; ends when they are settled, the
/// budget is spent or nothing is left to ask. Returns the rounds that were run.
async fn refine(
    engine: &Engine,
    task: &mut Prepared,
    evidence: &mut Evidence,
    fitted: &mut Estimate,
) -> Result<usize, EngineError> {
    let options = task.request.moi.clone();
    let n = task.passages.len();
    let goal =
        adaptive::Goal { top: options.settle_top.unwrap_or(3), probability: options.settle_probability.unwrap_or(0.9) };
    let length = options.depth(n).unwrap_or(2);
    let mut rounds = 0;
    while rounds < options.rounds.unwrap_or(3) && !goal.reached(fitted) {
        let seed = options.seed.wrapping_add(1 + rounds as u64);
        let next = adaptive::next_orders(fitted, length, n.div_ceil(2), &evidence.seen, goal, seed, &|| false)?;
        let mut draft = Plan::new();
        lay_out(engine, task, &mut draft, &next, false);
        if next.is_empty() || task.usage.tokens + draft.cost().tokens > task.budget(engine) {
            break;
        }
        observe(engine, task, next, evidence, false).await?;
        *fitted = fit(task, evidence, &options.settings()).await?;
        rounds += 1;
    }
    Ok(rounds)
}

/// The fit is a millisecond for ten passages and a second for a hundred: it runs beside the reactor, not on it.
async fn fit(task: &mut Prepared, evidence: &Evidence, settings: &Settings) -> Result<Estimate, EngineError> {
    let started = Instant::now();
    let (observations, anchor) = (evidence.observations.clone(), evidence.anchor.clone());
    let (passages, settings) = (task.passages.len(), settings.clone());
    let work =
        tokio::task::spawn_blocking(move || estimate(passages, &observations, Some(&anchor), &settings, &|| false));
    let fitted = work.await.map_err(|error| EngineError::Internal(error.to_string()))??;
    task.usage.fit_ms += milliseconds(started);
    Ok(fitted)
}

fn warn(warnings: &mut Vec<String>, fitted: &Estimate) {
    if !fitted.diagnostics.identifiable && fitted.ranking.len() > 1 {
        warnings
            .push("the scores alone do not settle utilities and position bias: the prior decided the rest".to_owned());
    }
    if !fitted.diagnostics.converged {
        warnings.push(uncertainty::NOT_CONVERGED.to_owned());
    }
    if fitted.diagnostics.r2.is_none() && fitted.ranking.len() > 1 {
        warnings.push("every order scored the same: the given order is kept".to_owned());
    }
}
