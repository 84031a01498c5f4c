//! Mixture of Interventions: score many orders, fit utilities and position bias, rank by utility.

use std::collections::HashMap;
use std::time::Instant;

use super::super::{Engine, EngineError, Limits, milliseconds};
use super::prepared::Prepared;
use super::{FitReport, RerankEvent, RerankRequest, Scored};
use crate::measure::moi::design::{self, Design};
use crate::measure::moi::domain::Domain;
use crate::measure::moi::varpro::Starts;
use crate::measure::moi::{Estimate, Objective, Observation, Settings, estimate};
use crate::plan::{NodeId, Plan};

/// What is scored of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outcome {
    /// log P(query | order). The default.
    #[default]
    QueryLikelihood,
    /// log P(query | order) + log P(order) (MOI, Eq. 3).
    Joint,
}

/// Options of the method. `None` asks for the default.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MoiOptions {
    /// Orders that are scored.
    pub design: Option<Design>,
    /// How many of them.
    pub orders: Option<usize>,
    /// What is scored.
    pub outcome: Outcome,
    /// Scale on which scores are fitted.
    pub domain: Option<Domain>,
    /// The paper's objective instead of the regularised one.
    pub paper_objective: bool,
    /// Assumed share of noise, in (0, 1).
    pub sigma2: Option<f64>,
    /// Prior position weights for complete orders.
    pub position_prior: Option<Vec<f64>>,
    /// Position weights must not increase.
    pub monotone: bool,
    /// Seed of the design.
    pub seed: u64,
}

impl MoiOptions {
    fn design(&self) -> Design {
        self.design.unwrap_or(Design::Random)
    }

    fn count(&self, passages: usize) -> usize {
        self.orders.unwrap_or_else(|| self.design().default_orders(passages))
    }

    pub(super) fn check(&self, passages: usize, limits: &Limits) -> Result<(), EngineError> {
        let orders = self.count(passages);
        if orders == 0 || orders > limits.orders {
            let problem = format!("are {orders}, must be between 1 and {}", limits.orders);
            return Err(EngineError::invalid("moi.orders", problem));
        }
        if let Some(sigma2) = self.sigma2
            && !(sigma2 > 0.0 && sigma2 < 1.0)
        {
            return Err(EngineError::invalid("moi.sigma2", "must lie between 0 and 1, both excluded"));
        }
        if let Some(Domain::Softmax { temperature }) = self.domain
            && !(temperature.is_finite() && temperature > 0.0)
        {
            return Err(EngineError::invalid("moi.softmax_temperature", "must be a finite number above 0"));
        }
        if let Some(prior) = &self.position_prior {
            let sum: f64 = prior.iter().sum();
            let proper = prior.iter().all(|weight| weight.is_finite() && *weight >= 0.0) && (sum - 1.0).abs() < 1e-6;
            if prior.len() != passages || !proper {
                let problem = format!("must be {passages} weights of 0 or more that sum to 1");
                return Err(EngineError::invalid("moi.position_prior", problem));
            }
        }
        Ok(())
    }

    fn settings(&self) -> Settings {
        Settings {
            domain: self.domain.unwrap_or(Domain::LogWinsorZ),
            objective: if self.paper_objective { Objective::Paper } else { Objective::Regularised },
            sigma2: self.sigma2.unwrap_or(0.5),
            monotone: self.monotone,
            prior: self.position_prior.clone(),
            starts: if self.sigma2.is_some_and(|sigma2| sigma2 < 0.5) { Starts::Spectral } else { Starts::Prior },
            ..Settings::default()
        }
    }
}

impl RerankRequest {
    /// Passages in the longest prompt of the method.
    pub(super) fn longest(&self) -> usize {
        match self.method {
            super::Method::Moi => self.passages.len(),
            _ => 1,
        }
    }
}

/// A scored prompt of the plan.
struct Probe {
    order: Vec<usize>,
    path: Vec<NodeId>,
}

pub(super) async fn score(engine: &Engine, task: &mut Prepared) -> Result<Scored, EngineError> {
    let planning = Instant::now();
    let options = task.request.moi.clone();
    let n = task.passages.len();
    let orders = orders(&task.request);
    let joint = options.outcome == Outcome::Joint;
    let mut plan = Plan::new();
    let probes: Vec<Probe> = orders
        .iter()
        .map(|order| Probe { order: order.clone(), path: task.add_prompt(engine, &mut plan, order, joint) })
        .collect();
    // One-passage prompts settle the direction of the bias. As first prefixes of the orders they are nearly free.
    let anchors: Vec<Probe> =
        (0..n).map(|p| Probe { order: vec![p], path: task.add_prompt(engine, &mut plan, &[p], joint) }).collect();
    task.usage.tokenise_ms += milliseconds(planning);

    let settings = options.settings();
    let mut interim = Interim::new(n, &probes, &settings, joint);
    let outcome = task.run(engine, plan, move |node, score| interim.scored(node, score)).await?;

    let query = |probe: &Probe| probe.path.last().map_or(0.0, |node| outcome.scores[node.0].iter().sum());
    let passages = |probe: &Probe| -> f64 {
        let inner = &probe.path[..probe.path.len() - 1];
        inner.iter().map(|node| outcome.scores[node.0].iter().sum::<f64>()).sum()
    };
    let observations: Vec<Observation> = probes
        .iter()
        .map(|probe| Observation {
            order: probe.order.clone(),
            score: query(probe) + if joint { passages(probe) } else { 0.0 },
        })
        .collect();
    let anchor: Vec<f64> = anchors.iter().map(query).collect();
    let fitting = Instant::now();
    let fitted = fit(n, observations, anchor, settings).await?;
    task.usage.fit_ms = milliseconds(fitting);
    warn(&mut task.warnings, &fitted);
    let fit = FitReport {
        bias: fitted.bias,
        diagnostics: fitted.diagnostics,
        orientation: fitted.orientation,
        anchor_correlation: fitted.anchor_correlation,
        expected_tau: fitted.expected_tau,
        design: options.design(),
        observations: orders.len(),
        blocks: design::blocks(&orders),
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

/// The orders to score, over indices of the request. A random design is drawn over the passages sorted by id, so that the
/// caller's order has no part in it; the rotations of a cyclic one are those of the given order.
fn orders(request: &RerankRequest) -> Vec<Vec<usize>> {
    let n = request.passages.len();
    let design = request.moi.design();
    let drawn = design::orders(design, n, request.moi.count(n), request.moi.seed);
    if design == Design::Cyclic {
        return drawn;
    }
    let mut by_id: Vec<usize> = (0..n).collect();
    by_id.sort_by(|&left, &right| request.passages[left].id.cmp(&request.passages[right].id));
    drawn.into_iter().map(|order| order.into_iter().map(|place| by_id[place]).collect()).collect()
}

/// The fit is a millisecond for ten passages and a second for a hundred: it runs beside the reactor, not on it.
async fn fit(
    passages: usize,
    observations: Vec<Observation>,
    anchor: Vec<f64>,
    settings: Settings,
) -> Result<Estimate, EngineError> {
    let task = tokio::task::spawn_blocking(move || estimate(passages, &observations, Some(&anchor), &settings));
    Ok(task.await.map_err(|error| EngineError::Internal(error.to_string()))??)
}

fn warn(warnings: &mut Vec<String>, fitted: &Estimate) {
    if !fitted.diagnostics.identifiable && fitted.ranking.len() > 1 {
        warnings
            .push("the scores alone do not settle utilities and position bias: the prior decided the rest".to_owned());
    }
    if fitted.diagnostics.r2.is_none() && fitted.ranking.len() > 1 {
        warnings.push("every order scored the same: the given order is kept".to_owned());
    }
}

/// The order so far, refitted each time the number of scores has grown by half.
struct Interim {
    passages: usize,
    settings: Settings,
    joint: bool,
    of_node: HashMap<NodeId, Vec<usize>>,
    orders: Vec<(Vec<usize>, usize)>,
    sums: Vec<f64>,
    complete: Vec<usize>,
    next: usize,
}

impl Interim {
    fn new(passages: usize, probes: &[Probe], settings: &Settings, joint: bool) -> Self {
        let mut of_node: HashMap<NodeId, Vec<usize>> = HashMap::new();
        let mut orders = Vec::new();
        for (index, probe) in probes.iter().enumerate() {
            let nodes = if joint { &probe.path[1..] } else { &probe.path[probe.path.len() - 1..] };
            for node in nodes {
                of_node.entry(*node).or_default().push(index);
            }
            orders.push((probe.order.clone(), nodes.len()));
        }
        let sums = vec![0.0; probes.len()];
        Self {
            passages,
            settings: settings.clone(),
            joint,
            of_node,
            orders,
            sums,
            complete: Vec::new(),
            next: passages,
        }
    }

    fn scored(&mut self, node: NodeId, score: f64) -> Option<RerankEvent> {
        for &probe in self.of_node.get(&node)? {
            self.sums[probe] += score;
            self.orders[probe].1 -= 1;
            if self.orders[probe].1 == 0 {
                self.complete.push(probe);
            }
        }
        if self.complete.len() < self.next.max(2) || self.complete.len() == self.orders.len() {
            return None;
        }
        debug_assert!(self.joint || self.complete.len() <= self.orders.len());
        self.next = self.complete.len() + self.complete.len().div_ceil(2);
        let observations: Vec<Observation> = self
            .complete
            .iter()
            .map(|&probe| Observation { order: self.orders[probe].0.clone(), score: self.sums[probe] })
            .collect();
        let fitted = estimate(self.passages, &observations, None, &self.settings).ok()?;
        Some(RerankEvent::Interim { order: fitted.ranking, observations: observations.len() })
    }
}
