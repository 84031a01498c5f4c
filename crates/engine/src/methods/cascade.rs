//! The default: cheap scores choose what the generator reads, it reads each passage once, and the first places are decided
//! together.
//!
//! 0. **Embedding.** If the server has an embedding model, its cosines are mixed into the retriever's scores, or into those of
//!    BM25 inside the list. A latency budget that does not suffice for all passages limits it to the first ones.
//! 1. **Choice.** These scores choose which passages the generator reads ([`read_at_most`]).
//! 2. **Alone.** log P(query | passage) - log P(query | no passage), one prompt per passage and one for the zero, fused with the
//!    cheap scores ([`crate::fusion`]).
//! 3. **Together.** If one of the first places is nearly a tie, MOI on the first [`TOGETHER`]: their orders are scored,
//!    utilities and position bias fitted, and the refined utilities replace those of stage 2.
//!
//! Unread passages come after those that were read, in the order of the cheap scores. If a latency budget does not suffice to
//! read one passage, that is the order of all.

mod placing;

use std::sync::Arc;

pub use self::placing::placed;
use super::moi::Moi;
use super::query_prompt::{QueryPrompt, overhead_with};
use super::scored::complete;
use super::{Budget, Interim, Method, Needs, Prompt, PromptShape, Ranking, Scored, Scores, Task};
use crate::fusion::certainty;
use crate::fusion::mixture::Fusion;
use crate::prompt::Language;
use crate::types::{
    DedupMode, EngineError, FusionMode, FusionReport, MoiOptions, Passage, RankingStage, RerankRequest, Role, Scheme,
    ScoreParts,
};
use numeric::{descending, real};
use prefix_scheduler::call::Call;

/// Passages of the third stage. Three orders of three passages hold nine passages, and show the position bias
/// better than two positions can.
const TOGETHER: usize = 3;

/// Passages of a list of twenty that the generator reads. This is within 0.003 of the nDCG@10 of reading all
/// (docs/experiments/speed.md).
const READ: usize = 16;

/// As many are enough for the first three places: within 0.003 of nDCG@3.
const READ_FOR_THREE: usize = 13;

/// Without cosines the cheap scores choose worse: reading 13 of twenty cost 0.03 of nDCG@10 on NQ, so all twenty are read.
const WHOLE: usize = 20;

/// Passages that the generator reads of a list of `n`, of which the caller wants the first `top`: 28 of 100, with the third
/// stage a third of what reading all takes. `thorough` reads lists of up to twenty completely.
fn read_at_most(n: usize, top: usize, thorough: bool) -> usize {
    let more = n.saturating_sub(WHOLE);
    n.min(match top {
        _ if thorough => WHOLE + more / 10,
        ..=3 => READ_FOR_THREE + more * 3 / 20,
        _ => READ + more * 3 / 20,
    })
}

/// The number of first ranks from which the caller's results come. Near-duplicates are found after the ranking, so any
/// rank may then be among the results.
fn ranks_wanted(request: &RerankRequest) -> usize {
    let finds_duplicates = request.dedup.is_some_and(|dedup| dedup.mode != DedupMode::Off);
    if finds_duplicates { usize::MAX } else { request.top_n.unwrap_or(usize::MAX) }
}

/// Utility in nats.
pub(super) struct Cascade;

impl Method for Cascade {
    fn name(&self) -> &'static str {
        "cascade"
    }

    fn summary(&self) -> &'static str {
        "the retriever's scores, an embedding model's cosines and log P(query | passage) fused; near ties by MOI (the default)"
    }

    fn check_options(&self, request: &RerankRequest) -> Result<(), EngineError> {
        if request.moi.asks_for_moi() {
            let problem = "only seed and settle_probability apply to this method: leave the method out, or take moi";
            return Err(EngineError::invalid("moi", problem));
        }
        Ok(())
    }

    fn takes_prefix(&self) -> bool {
        true
    }

    fn outranks_by_value(&self) -> bool {
        true
    }

    fn mixed_model(&self) -> Option<Role> {
        Some(Role::Embedding)
    }

    fn prompts(&self, request: &RerankRequest, language: &Language) -> Option<PromptShape> {
        // Prompts hold one passage. If three do not fit one prompt, the third stage is left out.
        Some(PromptShape { longest: 1, overhead: overhead_with(&request.prefix, language) })
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let prompt = QueryPrompt::of(&task)?;
        let fusion = (task.request.fusion.mode != FusionMode::Off).then(|| Fusion::of(&task.request));
        let mixed_model = task.mixed_model.filter(|_| fusion.is_some());
        let (free, read, utilities) = (Vec::new(), Vec::new(), Vec::new());
        let (none, together, done) = (0.0, None, None);
        let mut running =
            Running { task, prompt, fusion, mixed_model, free, read, utilities, none, together, done, late: false };
        running.choose();
        Ok(Box::new(running))
    }
}

/// Some passages, and the running method that ranks them.
type Together = (Vec<usize>, Box<dyn Ranking>);

struct Running {
    task: Arc<Task>,
    prompt: QueryPrompt,
    fusion: Option<Fusion>,
    /// The model whose scores are yet to be mixed into the other side of the fusion.
    mixed_model: Option<Role>,
    /// All passages by the scores known without the generator, best first.
    free: Vec<usize>,
    /// The passages of stage 2.
    read: Vec<usize>,
    /// Utility of each evaluated passage; not a number for the others. Empty before stage 2.
    utilities: Vec<f64>,
    /// log P(query | no passage), once stage 2 is scored.
    none: f64,
    /// The passages of stage 3 and the running method that ranks them.
    together: Option<Together>,
    /// The outcome of stage 3.
    done: Option<Scored>,
    /// True if stage 3 was left out because of the deadline.
    late: bool,
}

impl Running {
    /// The passages to evaluate, chosen without the generator.
    fn choose(&mut self) {
        let given = || (0..self.task.passages.len()).collect();
        self.free = self.fusion.as_ref().map_or_else(given, Fusion::order);
        let comparable = self.fusion.as_ref().map_or(usize::MAX, |fusion| fusion.comparable);
        let with_cosines = self.fusion.as_ref().is_some_and(|fusion| fusion.report.embedding.is_some());
        let request = &self.task.request;
        let thorough = request.read_all || !with_cosines;
        let most = read_at_most(self.free.len(), ranks_wanted(request), thorough);
        self.read = self.free[..most.min(comparable)].to_vec();
    }

    /// The prompts of stage 2: each passage, and none.
    fn alone(&self) -> Vec<Prompt> {
        let prompt = |order: &[usize]| self.prompt.with(&self.task, order, false);
        // The zero comes first, because every interim order needs it.
        std::iter::once(prompt(&[])).chain(self.read.iter().map(|&passage| prompt(&[passage]))).collect()
    }

    /// The gain of each scored passage over no passage; not a number for the others.
    fn gained(&self, scores: &Scores) -> Vec<f64> {
        let sum = |prompt: usize| scores.last(prompt).iter().sum::<f64>();
        let mut utilities = vec![f64::NAN; self.task.passages.len()];
        for (number, &passage) in self.read.iter().enumerate().filter(|(number, _)| scores.is_complete(number + 1)) {
            utilities[passage] = sum(number + 1) - sum(0);
        }
        utilities
    }

    /// Evaluates fewer passages if the budget does not suffice for all: as many of the first as fit, by the scores
    /// that chose them. `None` if the time does not suffice for one: the caller then gets the known order, not an
    /// error.
    fn within(&mut self, budget: &Budget) -> Result<Option<Vec<Prompt>>, EngineError> {
        let all = std::mem::take(&mut self.read);
        // The cost grows with the passages. All are tried first, because they mostly fit.
        let (mut most, mut too_many, mut tried) = (Vec::new(), all.len() + 1, all.len().max(1));
        loop {
            self.read = all.iter().take(tried).copied().collect();
            let prompts = self.alone();
            if budget.allows(&prompts) {
                most = prompts;
            } else if tried == 1 {
                let needed = Budget::cost(&prompts).tokens;
                if needed > budget.tokens && needed <= budget.counted {
                    self.read.clear();
                    return Ok(None);
                }
                return Err(EngineError::Budget { needed, allowed: budget.tokens });
            } else {
                too_many = tried;
            }
            // The first prompt has no passage.
            let fitting = most.len().saturating_sub(1);
            if too_many - fitting <= 1 {
                self.read = all.into_iter().take(fitting).collect();
                return Ok(Some(most));
            }
            tried = fitting.midpoint(too_many);
        }
    }

    /// Refuses a budget that suffices for no passage, before another model runs. The choice of passages is not
    /// known yet, so the shortest is tried.
    fn check_least(&self, budget: &Budget) -> Result<(), EngineError> {
        let shortest = (0..self.task.passages.len()).min_by_key(|&passage| self.task.passages[passage].len());
        let orders = std::iter::once(Vec::new()).chain(shortest.map(|passage| vec![passage]));
        let prompts: Vec<Prompt> = orders.map(|order| self.prompt.with(&self.task, &order, false)).collect();
        let needed = Budget::cost(&prompts).tokens;
        if needed > budget.counted {
            return Err(EngineError::Budget { needed, allowed: budget.tokens });
        }
        Ok(())
    }

    /// The value of each evaluated passage, in the order of `read`.
    fn values(&self, utilities: &[f64]) -> (Vec<f64>, Option<FusionReport>) {
        let read: Vec<f64> = self.read.iter().map(|&passage| utilities[passage]).collect();
        let Some(fusion) = &self.fusion else { return (read, None) };
        let scores = self.read.iter().map(|&passage| fusion.scores[passage]).collect();
        let (values, report) = fusion.with_scores(scores).values(&read, true, self.unit());
        (values, Some(report))
    }

    /// The value of each passage; not a number if it was not evaluated.
    fn all_values(&self, utilities: &[f64]) -> Vec<f64> {
        let mut all = vec![f64::NAN; utilities.len()];
        for (&passage, value) in self.read.iter().zip(self.values(utilities).0) {
            all[passage] = value;
        }
        all
    }

    /// The part of each score in the value of each passage; utilities of passages that were not evaluated are not
    /// numbers.
    fn score_parts(&self, utilities: &[f64]) -> Vec<ScoreParts> {
        self.fusion.as_ref().map_or_else(Vec::new, |fusion| fusion.score_parts(utilities, true, self.unit()))
    }

    /// Utilities are sums over the tokens of the query.
    fn unit(&self) -> f64 {
        real(self.task.query.len().max(1))
    }

    /// Places of `read`, best first; ties keep the order of the scores that chose the passages.
    fn places(&self, utilities: &[f64]) -> (Vec<f64>, Vec<usize>) {
        let (values, _) = self.values(utilities);
        let order = descending(&values).into_iter().map(|place| self.read[place]).collect();
        (values, order)
    }

    /// All passages in the order known without the generator.
    fn unread(&mut self) -> Scored {
        let utilities = vec![0.0; self.free.len()];
        self.fusion.iter_mut().for_each(|fusion| fusion.report.weight = 0.0);
        let score_parts = self.score_parts(&vec![f64::NAN; self.free.len()]);
        let fusion = self.fusion.take();
        let warnings = fusion.iter().filter_map(|fusion| fusion.warning.clone()).chain([UNREAD.to_owned()]).collect();
        let fusion = fusion.map(|fusion| fusion.values(&utilities, false, 1.0).1);
        Scored {
            fusion,
            score_parts,
            stages: vec![RankingStage::Retriever; utilities.len()],
            ranking: std::mem::take(&mut self.free),
            unit: self.unit(),
            utilities,
            warnings,
            ..Scored::default()
        }
    }

    /// MOI on the first places, unless they are decided.
    fn begin_together(&self) -> Result<Option<Together>, EngineError> {
        let (values, order) = self.places(&self.utilities);
        let ranked: Vec<f64> = descending(&values).into_iter().map(|place| values[place]).collect();
        let first = &ranked[..ranked.len().min(TOGETHER)];
        let options = &self.task.request.moi;
        if first.len() < 2 || certainty::first_places(first, options.settle_probability.unwrap_or(certainty::TIE)) {
            return Ok(None);
        }
        let chosen = order[..first.len()].to_vec();
        // Orders are drawn over sorted ids. Using places as ids makes the result independent of the caller's ids
        // and order.
        let named = |(place, &passage): (usize, &usize)| Passage {
            id: place.to_string(),
            ..self.task.request.passages[passage].clone()
        };
        let request = RerankRequest {
            passages: chosen.iter().enumerate().map(named).collect(),
            moi: MoiOptions {
                scheme: Some(Scheme::Prefix),
                depth: Some(TOGETHER),
                seed: options.seed,
                ..MoiOptions::default()
            },
            query: self.task.request.query.clone(),
            prefix: self.task.request.prefix.clone(),
            ..RerankRequest::default()
        };
        let task = Task {
            request,
            language: self.task.language.clone(),
            passages: chosen.iter().map(|&passage| Arc::clone(&self.task.passages[passage])).collect(),
            query: self.task.query.clone(),
            mixed_model: None,
        };
        // Stage 2 scored each of them.
        let alone = chosen.iter().map(|&passage| self.utilities[passage] + self.none).collect();
        Ok(Some((chosen, Moi::begin_known(Arc::new(task), alone, self.none)?)))
    }
}

/// The warning of a ranking without evaluated passages.
const UNREAD: &str = "latency_budget_ms does not suffice to read a passage: the order is that of what is known without the \
                      generator, and utilities and scores say nothing";

/// The warning of a ranking without stage 3.
const LATE: &str = "the first places are nearly tied, and the deadline leaves no time to score their orders (MOI)";

impl Ranking for Running {
    fn needs(&mut self, budget: &Budget, call: &Call) -> Result<Option<Needs>, EngineError> {
        match self.mixed_model {
            Some(role) => {
                self.check_least(budget)?;
                Ok(Some(Needs::PassageScores(role)))
            }
            None => Ok(self.next(budget, call)?.map(Needs::Prompts)),
        }
    }

    fn next(&mut self, budget: &Budget, call: &Call) -> Result<Option<Vec<Prompt>>, EngineError> {
        if self.utilities.is_empty() {
            return self.within(budget);
        }
        if self.together.is_none() && self.done.is_none() && !self.late {
            self.together = self.begin_together()?;
        }
        let Some((_, inner)) = &mut self.together else { return Ok(None) };
        if let Some(prompts) = inner.next(budget, call)? {
            // The rest of the budget may not suffice; the result of stage 2 is then the answer.
            if budget.allows(&prompts) {
                return Ok(Some(prompts));
            }
            self.together = None;
            return Ok(None);
        }
        self.done = Some(inner.finish(call)?);
        Ok(None)
    }

    fn preferred(&self) -> &[usize] {
        &self.free
    }

    /// The result of stage 2 is an answer without stage 3.
    fn is_optional(&self) -> bool {
        self.together.is_some()
    }

    fn skip(&mut self) {
        self.together = None;
        self.late = true;
    }

    /// The prompts of stage 3 begin with the passages that are first after stage 2.
    fn shares(&self) -> usize {
        self.together.as_ref().map_or_else(|| usize::from(self.read.len() > 1), |(_, inner)| inner.shares())
    }

    fn absorb(&mut self, scores: &Scores, call: &Call) -> Result<(), EngineError> {
        if self.mixed_model.take().is_some() {
            // There are none if the model failed.
            if !scores.passages().is_empty() {
                let options = &self.task.request.fusion;
                let cosines = (scores.passages(), scores.unreadable());
                self.fusion = self.fusion.take().map(|fusion| fusion.with_embedding(cosines, options));
                self.choose();
            }
            return Ok(());
        }
        if let Some((_, inner)) = &mut self.together {
            return inner.absorb(scores, call);
        }
        (self.utilities, self.none) = (self.gained(scores), scores.last(0).iter().sum());
        Ok(())
    }

    fn interim(&self, partial: &Scores, _: &Call) -> Option<Interim> {
        if self.together.is_some() || !partial.is_complete(0) {
            return None;
        }
        let utilities = self.gained(partial);
        let observations = utilities.iter().filter(|utility| utility.is_finite()).count();
        let (_, mut order) = self.places(&complete(&utilities));
        order.extend(self.free.iter().copied().filter(|passage| !self.read.contains(passage)));
        Some(Interim { order, observations })
    }

    fn finish(&mut self, _: &Call) -> Result<Scored, EngineError> {
        if self.utilities.is_empty() {
            return Ok(self.unread());
        }
        let (alone, mut score_parts) = (self.all_values(&self.utilities), self.score_parts(&self.utilities));
        let (mut unrefined, mut errors, mut fit) = (None, None, None);
        let mut warnings: Vec<String> = self.fusion.iter().filter_map(|fusion| fusion.warning.clone()).collect();
        warnings.extend(self.late.then(|| LATE.to_owned()));
        let mut stages = vec![RankingStage::Retriever; self.utilities.len()];
        for &passage in &self.read {
            stages[passage] = RankingStage::Alone;
        }
        if let (Some((chosen, _)), Some(mut scored)) = (self.together.take(), self.done.take()) {
            let mut all = vec![f64::NAN; self.utilities.len()];
            unrefined = Some(complete(&self.utilities));
            for (place, &passage) in chosen.iter().enumerate() {
                self.utilities[passage] = scored.utilities[place];
                stages[passage] = RankingStage::Together;
                if let Some(errors) = &scored.standard_errors {
                    all[passage] = errors[place];
                }
            }
            // As for the values: parts of the first places come from stage 3, the others from stage 2. Empty
            // without fusion.
            let refined = self.score_parts(&self.utilities);
            chosen.iter().filter(|_| !refined.is_empty()).for_each(|&passage| score_parts[passage] = refined[passage]);
            errors = scored.standard_errors.is_some().then_some(all);
            fit = scored.fit.take();
            warnings.append(&mut scored.warnings);
        }
        let (values, ranking) = placed(&stages, &alone, &self.all_values(&self.utilities), &self.free);
        let utilities = complete(&self.utilities);
        Ok(Scored {
            utilities,
            has_zero: true,
            values: Some(values),
            alone: unrefined,
            fusion: self.values(&self.utilities).1,
            score_parts,
            stages,
            standard_errors: errors,
            ranking,
            outranks_next: None,
            fit,
            unit: self.unit(),
            warnings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Dedup;

    #[test]
    fn a_list_is_read_in_part() {
        let all = usize::MAX;
        let [lists, counts]: [Vec<_>; 2] = [
            vec![(20, all, false), (20, 4, false), (20, 3, false), (10, 3, false), (100, all, false), (100, 1, false)],
            vec![(20, all, true), (20, 3, true), (60, all, true), (100, all, true), (0, 3, true), (13, all, true)],
        ]
        .map(|lists| lists.into_iter().map(|(n, top, thorough)| read_at_most(n, top, thorough)).collect());
        assert_eq!(lists, [16, 16, 13, 10, 28, 25]);
        assert_eq!(counts, [20, 20, 24, 28, 0, 13]);
    }

    #[test]
    fn near_duplicates_may_bring_any_rank_among_the_results() {
        let wanted = |top_n, mode: Option<DedupMode>| {
            let dedup = mode.map(|mode| Dedup { mode, ..Dedup::default() });
            ranks_wanted(&RerankRequest { top_n, dedup, ..RerankRequest::default() })
        };
        assert_eq!([wanted(Some(3), None), wanted(Some(3), Some(DedupMode::Off))], [3, 3]);
        let found = [DedupMode::OnePlace, DedupMode::PushDown].map(|mode| wanted(Some(3), Some(mode)));
        assert_eq!((wanted(None, None), found), (usize::MAX, [usize::MAX; 2]));
    }
}
