//! Runs a ranking method: tokenises, asks the method for prompts, checks their cost, has them scored, reports
//! progress and interim orders, and returns the scores to the method, until it is done.
//!
//! All work of a method runs through [`Call::compute`], off the reactor. While prompts are scored, one interim
//! order at a time may be computed in parallel; it is cancelled when the scores are complete.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::budget::{Allowed, Reserved};
use super::copies::Copies;
use super::mixing::asks_mix;
use super::pending::Pending;
use super::quota::Quota;
use super::single_passage::SinglePassageScores;
use crate::methods::{Interim, Needs, Ranking, Scored, Scores, Task, not_as_trained, spared};
use crate::models::{Models, ServedGenerator};
use crate::truncate::{Fit, FittedPassages, fit_formed};
use crate::types::{EngineError, Limits, RerankEvent, RerankRequest, Role, Usage, milliseconds};
use prefix_scheduler::call::{Call, Lane, Stage};
use prefix_scheduler::model::entailment::TextPair;
use prefix_scheduler::plan::{Cost, NodeId, Plan};
use prefix_scheduler::scheduler::generator::{Event, Outcome, Rounds};

/// A method that runs for a request.
pub(super) struct Driver<'a> {
    pub call: &'a Call,
    /// The generator that scores; `None` for a method that asks none.
    pub model: Option<Arc<ServedGenerator>>,
    /// Tokens per second at which the generator that scores and compresses reads prompts; `None` until it has
    /// worked.
    pub speed: Option<f64>,
    /// The other models.
    pub models: &'a Models,
    pub limits: Limits,
    /// Reserved for the steps after the ranking.
    pub reserved: Reserved,
    pub listener: Option<UnboundedSender<RerankEvent>>,
    /// True if interim orders are reported. They would mislead before a later fusion.
    pub tells_interim: bool,
    pub usage: Usage,
    /// Tokens of the rounds so far. Cached tokens count, so that equal requests get equal rounds.
    pub planned: usize,
    /// The part of `planned` that takes no time, as known at planning; 0 if time is not a bound.
    pub spared: usize,
    /// Bounds that the lists of the request share.
    pub quota: Quota,
    /// State that the rounds of the method share; `None` before the first.
    pub rounds: Option<Rounds>,
    /// Log-probabilities of passages that a compression takes from the method's prompts.
    pub single: SinglePassageScores,
    /// The passages of each document that is ranked.
    pub copies: Copies,
    /// Documents of the request: the first interim order comes when this many prompts, or half of all, are scored.
    pub passages: usize,
}

/// The result of a method.
pub(super) struct Driven {
    pub scored: Scored,
    /// Tokens cut from each document; empty for a method that asks no model.
    pub cut: Vec<usize>,
}

/// A request tokenised, and its method begun.
pub(super) struct Begun {
    task: Arc<Task>,
    pub ranking: Shared,
    cut: Vec<usize>,
    warnings: Vec<String>,
}

/// The ranking is shared between the driver and an interim order in flight.
pub(super) type Shared = Arc<Mutex<Box<dyn Ranking>>>;

pub(super) fn lock(ranking: &Shared) -> MutexGuard<'_, Box<dyn Ranking>> {
    // A panic inside a method ends its request, and the state is not used again.
    ranking.lock()
}

/// Prompts as a plan.
pub(super) struct Round {
    pub plan: Plan,
    pub cost: Cost,
    /// Tokens that take no time; 0 if time is not a bound.
    pub spared: usize,
    /// True if the rest of the budget suffices.
    affordable: bool,
    paths: Vec<Vec<NodeId>>,
    /// The node of each prompt's continuation.
    grown: Vec<Option<NodeId>>,
    /// [`Ranking::shares`].
    shares: usize,
    /// [`Ranking::fits`].
    fits: bool,
    /// [`Ranking::is_optional`].
    optional: bool,
    /// Nodes scored only for the compression. The method does not see them.
    beside: HashSet<NodeId>,
}

/// What a ranking gets before its next step.
pub(super) enum Given {
    /// The first step.
    Nothing,
    Scores(Scores),
    /// The scores of the last round would come after the deadline.
    Late,
}

pub(super) enum Step {
    Score(Box<Round>),
    ScorePassages(Role),
    Judge(Vec<TextPair>),
    Done(Box<Scored>),
}

impl<'a> Driver<'a> {
    /// Ready to rank `request` with the generator `scorer`, without a reserve or a listener.
    pub fn new(
        call: &'a Call,
        models: &'a Models,
        limits: Limits,
        request: &RerankRequest,
        scorer: &Arc<ServedGenerator>,
        copies: Copies,
    ) -> Self {
        Self {
            call,
            model: request.method().asks_generator().then(|| Arc::clone(scorer)),
            speed: scorer.scheduler.stats().reading_speed(),
            models,
            limits,
            reserved: Reserved::default(),
            listener: None,
            tells_interim: request.method().mixed_model().is_some() || !asks_mix(request),
            usage: Usage::default(),
            planned: 0,
            spared: 0,
            quota: Quota::default(),
            rounds: None,
            single: SinglePassageScores::default(),
            copies,
            passages: request.passages.len(),
        }
    }

    pub async fn drive(&mut self, request: RerankRequest) -> Result<Driven, EngineError> {
        let mut allowed = self.allowed(&request);
        let at_first = allowed.tokens;
        let mixed_model = self.mixed_model(&request);
        let unmeasured = request.latency_budget_ms.is_some() && self.speed.is_none();
        let Begun { task, ranking, mut cut, mut warnings } = self.begin(request, mixed_model).await?;
        if unmeasured {
            warnings.push("latency_budget_ms had no effect: the generator has not read anything yet".to_owned());
        }
        let (mut given, mut fits) = (Given::Nothing, lock(&ranking).fits());
        loop {
            let fitting = !matches!(given, Given::Nothing);
            let started = Instant::now();
            let timed = self.call.stage(if fitting { Stage::Fit } else { Stage::Tokenise });
            let step = self.step(&ranking, given, allowed, fits).await?;
            fits = matches!(&step, Step::Score(round) if round.fits);
            if let Step::Score(round) = &step {
                timed.record_tokens(round.cost.tokens, 0);
            }
            drop(timed);
            let elapsed = milliseconds(started);
            if fitting {
                self.usage.fit_ms += elapsed;
            } else {
                self.usage.tokenise_ms += elapsed;
            }
            match step {
                Step::Done(mut scored) => {
                    // A method that asks no model is not refused before. A request that fitted on arrival is not
                    // refused because a reranker or embedding model took a little longer than its share.
                    let needed = self.evaluated();
                    let most = allowed.tokens.max(at_first);
                    if needed > most {
                        return Err(EngineError::Budget { needed, allowed: most });
                    }
                    if let Some(model) = self.model.as_ref().filter(|_| !scored.is_measured()) {
                        model.scheduler.stats().mark_idle();
                    }
                    warnings.append(&mut scored.warnings);
                    scored.warnings = warnings;
                    let of_passages = self.copies.spread(&cut);
                    self.call.tally().add_cut(of_passages.iter().filter(|dropped| **dropped > 0).count());
                    return Ok(Driven { scored: *scored, cut });
                }
                Step::Score(round) => given = self.score_in_time(&ranking, *round, allowed).await?,
                Step::Judge(pairs) => given = Given::Scores(self.judge(pairs, &mut warnings).await?),
                Step::ScorePassages(role) if mixed_model == Some(role) => {
                    let preferred = lock(&ranking).preferred().to_vec();
                    given = Given::Scores(self.mix_in(role, (&task, preferred), &mut warnings).await?);
                    // The generator has that much less time.
                    allowed = self.allowed(&task.request);
                }
                Step::ScorePassages(role) => {
                    let scored = self.score_passages(role, &task, allowed.tokens).await?;
                    cut = scored.cut;
                    warnings.extend(shortened(&self.copies.spread(&cut)).into_iter().chain(scored.warnings));
                    given = Given::Scores(scored.scores);
                }
            }
        }
    }

    /// Tokenises, cuts texts to fit, and begins the method.
    pub(super) async fn begin(
        &mut self,
        request: RerankRequest,
        mixed_model: Option<Role>,
    ) -> Result<Begun, EngineError> {
        let started = Instant::now();
        let _timed = self.call.stage(Stage::Tokenise);
        let (model, limits, copies) = (self.model.clone(), self.limits, self.copies.clone());
        let work = move |call: &Call| begin(call, model.as_deref(), limits, (request, mixed_model), &copies);
        let begun = self.call.compute(work).await.map_err(|error| self.copies.named(error))?;
        self.usage.tokenise_ms += milliseconds(started);
        Ok(begun)
    }

    /// Passes scores to the method and asks for its next step; in the lane of the fits if `fits`. Optional prompts that
    /// would end after the deadline, as far as the speed is known, are skipped.
    pub(super) async fn step(
        &self,
        ranking: &Shared,
        given: Given,
        allowed: Allowed,
        fits: bool,
    ) -> Result<Step, EngineError> {
        let context = self.model.as_ref().map_or(Ok(0), |model| model.context())?;
        let spent = self.evaluated();
        let budget = self.left(allowed, context);
        let allowed = allowed.tokens;
        // The method knows the rest of the budget; the caller set the whole.
        let whole = move |error| match error {
            EngineError::Budget { needed, .. } => EngineError::Budget { needed: needed.saturating_add(spent), allowed },
            other => other,
        };
        let ranking = Arc::clone(ranking);
        let wanted = self.single.wanted();
        // Prompts are planned in the lane of tokenisation: they must not wait for other requests' fits.
        let lane = if fits { Lane::Fit } else { Lane::Request };
        let (model, rounds) = (self.model.clone(), self.rounds.clone());
        let is_in_time = move |call: &Call, plan: &Plan, tokens: usize| {
            model.as_ref().filter(|_| call.deadline().is_some()).is_none_or(|model| {
                let kept = model.scheduler.kept(rounds.as_ref());
                model.scheduler.is_in_time(call, tokens - spared(kept.as_ref(), plan))
            })
        };
        let work = move |call: &Call| {
            let mut ranking = lock(&ranking);
            match given {
                Given::Nothing => {}
                Given::Scores(scores) => ranking.absorb(&scores, call)?,
                Given::Late => ranking.skip(),
            }
            loop {
                let prompts = match ranking.needs(&budget, call).map_err(&whole)? {
                    None => return Ok(Step::Done(Box::new(ranking.finish(call)?))),
                    Some(Needs::PassageScores(role)) => return Ok(Step::ScorePassages(role)),
                    Some(Needs::Verdicts(pairs)) => return Ok(Step::Judge(pairs)),
                    Some(Needs::Prompts(prompts)) => prompts,
                };
                let mut plan = Plan::new();
                let (paths, grown) = prompts.iter().map(|prompt| prompt.add_to(&mut plan)).unzip();
                let beside = wanted.as_ref().map_or_else(HashSet::new, |wanted| wanted.score(&mut plan));
                let (shares, fits, optional) = (ranking.shares(), ranking.fits(), ranking.is_optional());
                let cost = plan.cost();
                if optional && !is_in_time(call, &plan, cost.tokens) {
                    ranking.skip();
                    continue;
                }
                let spared = budget.spared(&plan);
                let affordable = budget.suffices(cost.tokens, spared);
                let round = Round { plan, cost, spared, affordable, paths, grown, shares, fits, optional, beside };
                return Ok(Step::Score(Box::new(round)));
            }
        };
        self.call.compute_in(lane, work).await
    }

    /// As [`Driver::score`]. The scheduler gives up an optional round while the call has time left for an answer.
    async fn score_in_time(&mut self, ranking: &Shared, round: Round, allowed: Allowed) -> Result<Given, EngineError> {
        let (optional, planned, before) = (round.optional, round.cost.tokens, self.call.spent());
        match self.score(ranking, round, allowed).await {
            Err(EngineError::DeadlineExceeded) if optional && self.call.check().is_ok() => {
                let evaluated = (self.call.spent() - before).min(planned);
                self.planned += evaluated;
                self.usage.tokens += evaluated;
                self.release_estimate();
                Ok(Given::Late)
            }
            scored => scored.map(Given::Scores),
        }
    }

    /// Checks and reports the cost of a round, and has it scored.
    async fn score(&mut self, ranking: &Shared, round: Round, allowed: Allowed) -> Result<Scores, EngineError> {
        if !round.affordable {
            return Err(self.exceeded(&round, allowed));
        }
        let together = self.quota.add(round.cost.tokens);
        if together > self.limits.tokens {
            return Err(EngineError::Budget { needed: together, allowed: self.limits.tokens });
        }
        let model = self.model.clone().ok_or_else(|| EngineError::Internal("a method without a model".into()))?;
        let mut scores = Scores::awaited(&round.plan, round.paths, &round.beside);
        self.tell(RerankEvent::Planned(round.cost));
        let plan = Arc::new(round.plan);
        let rounds = self.rounds.get_or_insert_with(|| model.scheduler.rounds()).of(round.shares, round.optional);
        let mut outcome = match &self.listener {
            None => model.scheduler.run_round(Arc::clone(&plan), self.call, None, rounds).await?,
            Some(_) => self.watch(ranking, &model, (Arc::clone(&plan), rounds), &mut scores, &round.beside).await?,
        };
        self.single.learn(&plan, &outcome.scores);
        round.beside.iter().for_each(|node| outcome.scores[node.0].clear());
        if round.shares == 0 {
            // No later prompt shares a beginning with these.
            self.rounds = self.rounds.take().map(|rounds| model.scheduler.rounds_after(&rounds));
        }
        self.planned += round.cost.tokens;
        self.spared += round.spared;
        self.usage.add(&outcome);
        self.usage.naive_tokens += round.cost.naive_tokens;
        let samples = round.grown.iter().enumerate().filter_map(|(prompt, node)| {
            node.and_then(|node| outcome.samples.get(&node)).map(|sample| (prompt, sample.clone()))
        });
        scores.samples = samples.collect();
        scores.complete(outcome.scores);
        Ok(scores)
    }

    /// Has a plan scored, and meanwhile reports progress and interim orders.
    async fn watch(
        &self,
        ranking: &Shared,
        model: &ServedGenerator,
        (plan, rounds): (Arc<Plan>, Rounds),
        scores: &mut Scores,
        beside: &HashSet<NodeId>,
    ) -> Result<Outcome, EngineError> {
        let passages = self.passages;
        let lane = if lock(ranking).fits() { Lane::Fit } else { Lane::Request };
        let (sender, mut events) = unbounded_channel();
        let mut work = std::pin::pin!(model.scheduler.run_round(plan, self.call, Some(sender), rounds));
        let child = self.call.child();
        let mut interim: Option<std::pin::Pin<Box<dyn Future<Output = Option<Interim>> + Send + '_>>> = None;
        let mut pending = Pending::new(scores);
        let mut due = if self.tells_interim { passages.min(scores.len() / 2).max(2) } else { usize::MAX };
        let outcome = loop {
            tokio::select! {
                biased;
                Some(event) = events.recv() => match event {
                    Event::Progress { done, total } => self.tell(RerankEvent::Progress { done, total }),
                    Event::Scored(node, _) if beside.contains(&node) => {}
                    Event::Scored(node, values) => {
                        scores.nodes.insert(node, values);
                        let complete = pending.scored(node, scores);
                        if complete >= due && complete < scores.len() && interim.is_none() {
                            due = complete + complete.div_ceil(2);
                            interim = Some(Box::pin(interim_order(&child, ranking, scores.clone(), lane)));
                        }
                    }
                    Event::Sampled(..) => {}
                },
                outcome = &mut work => break outcome,
                order = async { match &mut interim {
                    Some(order) => order.await,
                    None => std::future::pending().await,
                }} => {
                    interim = None;
                    if let Some(Interim { order, observations }) = order {
                        let order = self.copies.order(&order);
                        self.tell(RerankEvent::Interim { order, observations });
                    }
                }
            }
        };
        // An interim order in flight holds the ranking.
        child.cancel();
        let outcome = outcome?;
        // The answer may overtake events that were sent before it.
        while let Ok(event) = events.try_recv() {
            if let Event::Progress { done, total } = event {
                self.tell(RerankEvent::Progress { done, total });
            }
        }
        Ok(outcome)
    }

    pub(super) fn tell(&self, event: RerankEvent) {
        if let Some(listener) = &self.listener {
            // A listener that left is not an error; the work continues until its call stops.
            let _ = listener.send(event);
        }
    }
}

async fn interim_order(call: &Call, ranking: &Shared, partial: Scores, lane: Lane) -> Option<Interim> {
    let ranking = Arc::clone(ranking);
    let work = move |call: &Call| Ok::<_, EngineError>(lock(&ranking).interim(&partial, call));
    call.compute_in(lane, work).await.ok().flatten()
}

/// Blocking: tokenising takes milliseconds for large passages.
fn begin(
    call: &Call,
    model: Option<&ServedGenerator>,
    limits: Limits,
    (mut request, mixed_model): (RerankRequest, Option<Role>),
    copies: &Copies,
) -> Result<Begun, EngineError> {
    let method = request.method();
    method.prepare(&mut request);
    let language = model.map(|model| model.language.clone());
    let mut task = Task { language, passages: Vec::new(), query: Vec::new(), request, mixed_model };
    let (mut cut, mut warnings) = (Vec::new(), Vec::new());
    if let Some(model) = model
        && let Some(shape) = method.prompts(&task.request, &model.language)
    {
        task.query = model.language.query(&task.request.query);
        let (context, query) = (model.context()?, task.query.len());
        let prefix = &task.request.prefix;
        if !prefix.is_built_in() && shape.overhead > context / 2 {
            let (field, needed) = (prefix.field().to_owned(), shape.overhead);
            return Err(EngineError::TooLong { field, needed, available: context / 2 });
        }
        warnings.extend(not_as_trained(method, &model.language).map(str::to_owned));
        if method.takes_prefix() {
            warnings.extend(prefix.not_kept(&model.language, model.scheduler.largest_prefix()));
        }
        let Some(available) = context.checked_sub(shape.overhead + query).filter(|left| *left > 0) else {
            let available = context.saturating_sub(shape.overhead);
            return Err(EngineError::TooLong { field: "query".into(), needed: query, available });
        };
        let truncate = task.request.truncate.unwrap_or(limits.truncate);
        let passage_tokens = task.request.passage_tokens;
        let side = task.request.cut_side;
        let fit = Fit { available, longest: shape.longest, passage_tokens, truncate, side };
        let form = method.passage_form(&model.language);
        let fitted: FittedPassages = fit_formed(form, &model.language, &task.request.passages, fit, call)?;
        (task.passages, cut) = (fitted.tokens, fitted.cut);
        warnings.extend(shortened(&copies.spread(&cut)));
    }
    let task = Arc::new(task);
    let ranking = method.begin(Arc::clone(&task))?;
    Ok(Begun { task, ranking: Arc::new(Mutex::new(ranking)), cut, warnings })
}

/// The warning that passages were cut, if any were.
pub(super) fn shortened(cut: &[usize]) -> Option<String> {
    let shortened = cut.iter().filter(|dropped| **dropped > 0).count();
    (shortened > 0).then(|| format!("{shortened} passages were cut to fit; tokens_cut says by how much"))
}

impl Scores {
    /// The scores of a plan before any is available.
    fn awaited(plan: &Plan, paths: Vec<Vec<NodeId>>, beside: &HashSet<NodeId>) -> Self {
        let wanted = |node: &NodeId| plan.scored_tokens(*node) > 0 && !beside.contains(node);
        let scored = |path: &Vec<NodeId>| path.iter().filter(|node| wanted(node)).count();
        let missing = paths.iter().map(scored).collect();
        Self { paths: Arc::new(paths), missing, ..Self::default() }
    }

    /// Adds the scores of all nodes, by node.
    fn complete(&mut self, scores: Vec<Vec<f64>>) {
        let nodes = scores.into_iter().enumerate().filter(|(_, values)| !values.is_empty());
        self.nodes = nodes.map(|(node, values)| (NodeId(node), values)).collect();
        self.missing.fill(0);
    }
}
