//! Options of the MOI method, and the prompts that they select for a request.

use crate::types::{EngineError, Limits, MoiOptions, MoiOutcome, Passage, RerankRequest, Scheme};
use ::moi::design::{self, Design};
use ::moi::domain::Domain;
use ::moi::prior::{has_no_direction, increases};
use ::moi::varpro::Starts;
use ::moi::{Anchors, FitError, Objective, Settings};
use numeric::Interrupt;

impl MoiOptions {
    fn by_beginnings(&self) -> bool {
        matches!(self.scheme(), Scheme::Prefix | Scheme::Adaptive)
    }

    /// Depth of the scored prefixes, at most the number of passages; `None` if only whole orders are scored.
    pub(super) fn depth(&self, passages: usize) -> Option<usize> {
        let default = self.by_beginnings().then_some(2);
        self.depth.or(default).map(|depth| depth.min(passages))
    }

    fn family(&self) -> Design {
        match self.scheme() {
            Scheme::Random => Design::Random,
            Scheme::Cyclic | Scheme::Pruned => Design::Cyclic,
            Scheme::Latin | Scheme::Prefix | Scheme::Adaptive => Design::Latin,
            Scheme::Trie => Design::Trie { shared: self.shared_columns.unwrap_or(1), copies: self.copies.unwrap_or(3) },
        }
    }

    /// Number of orders: requested, or the default of the design.
    pub(super) fn count(&self, passages: usize) -> usize {
        self.orders.unwrap_or_else(|| self.family().default_orders(passages))
    }

    fn prune_length(&self, passages: usize) -> usize {
        self.prune_length.unwrap_or_else(|| passages.div_ceil(2)).clamp(1, passages.max(1))
    }

    /// The retriever's scores, by which the pruned design cuts its rotations; `None` if all are cut to one length.
    fn pruned_by(&self, passages: &[Passage]) -> Option<Vec<f64>> {
        let varies = self.scheme() == Scheme::Pruned && self.variable_pruning;
        let scores: Option<Vec<f64>> = passages.iter().map(|passage| passage.retriever_score).collect();
        scores.filter(|_| varies)
    }

    /// Number of passages in the longest prompt.
    pub(super) fn longest(&self, passages: &[Passage]) -> usize {
        let count = passages.len();
        let whole = match self.scheme() {
            Scheme::Pruned if self.pruned_by(passages).is_none() => self.prune_length(count),
            _ => count,
        };
        self.depth(count).map_or(whole, |depth| depth.min(whole))
    }

    /// True if every prompt of the design holds every passage.
    fn asks_whole_orders(&self, passages: &[Passage]) -> bool {
        let varies = self.pruned_by(passages).is_some();
        self.depth(passages.len()).is_none() && !varies && self.longest(passages) == passages.len()
    }

    pub(crate) fn check(&self, list: &[Passage], limits: &Limits) -> Result<(), EngineError> {
        let passages = list.len();
        if self.copies.is_some_and(|copies| copies > limits.orders) {
            return Err(EngineError::invalid("moi.copies", format!("must be at most {}", limits.orders)));
        }
        let orders = self.count(passages);
        if self.orders.is_none() && orders > limits.orders {
            let problem =
                format!("this design has {orders} orders of {passages} passages, at most {} allowed", limits.orders);
            let copies = self.scheme() == Scheme::Trie && self.copies.is_some();
            return Err(EngineError::invalid(if copies { "moi.copies" } else { "moi.orders" }, problem));
        }
        if orders == 0 || orders > limits.orders {
            let problem = format!("{orders} given, must be between 1 and {}", limits.orders);
            return Err(EngineError::invalid("moi.orders", problem));
        }
        if let Some(prior) = &self.position_prior {
            if prior.len() != passages {
                let problem = format!("{} weights given for {passages} passages", prior.len());
                return Err(EngineError::invalid("moi.position_prior", problem));
            }
            // The fit would also refuse it, but only after scoring all prompts.
            if self.monotone && increases(prior) {
                let problem = "must not increase where moi.monotone says that the weights must not";
                return Err(EngineError::invalid("moi.position_prior", problem));
            }
            if self.asks_whole_orders(list) && has_no_direction(prior, passages) {
                return Err(EngineError::invalid("moi.position_prior", "has no direction: all weights are equal"));
            }
        }
        Ok(())
    }

    /// Refuses values that are invalid for every list and method, used or not.
    pub(crate) fn check_options(&self) -> Result<(), EngineError> {
        open("moi.sigma2", self.sigma2)?;
        open("moi.settle_probability", self.settle_probability)?;
        if let Some(prior) = &self.position_prior {
            let sum: f64 = prior.iter().sum();
            if prior.iter().any(|weight| !weight.is_finite() || *weight < 0.0) || (sum - 1.0).abs() >= 1e-6 {
                return Err(EngineError::invalid("moi.position_prior", "must be weights of 0 or more that sum to 1"));
            }
        }
        if let Some(Domain::Softmax { temperature }) = self.domain
            && !(temperature.is_finite() && temperature > 0.0)
        {
            return Err(EngineError::invalid("moi.softmax_temperature", "must be a finite number above 0"));
        }
        if self.rounds.is_some_and(|rounds| rounds > 64) {
            return Err(EngineError::invalid("moi.rounds", "must be at most 64"));
        }
        Ok(())
    }

    pub(super) fn settings(&self) -> Settings {
        Settings {
            domain: self.domain,
            objective: if self.paper_objective { Objective::Paper } else { Objective::Regularised },
            sigma2: self.sigma2.unwrap_or(0.5),
            monotone: self.monotone,
            prior: self.position_prior.clone(),
            starts: if self.sigma2.is_some_and(|sigma2| sigma2 < 0.5) { Starts::Spectral } else { Starts::Prior },
            // Single-passage scores are log P(query | passage), so they are not observations of the joint outcome.
            anchors: if self.outcome == MoiOutcome::Joint { Anchors::Direction } else { Anchors::Observations },
            ..Settings::default()
        }
    }
}

/// Refuses a number that is not between 0 and 1.
fn open(field: &str, value: Option<f64>) -> Result<(), EngineError> {
    match value {
        Some(value) if !(value > 0.0 && value < 1.0) => {
            Err(EngineError::invalid(field, "must lie between 0 and 1, both excluded"))
        }
        _ => Ok(()),
    }
}

/// The size of a design, which may be reduced to fit a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub orders: usize,
    pub depth: Option<usize>,
}

impl Size {
    /// The selected size, before any reduction.
    pub fn asked(options: &MoiOptions, passages: usize) -> Self {
        Self { orders: options.count(passages), depth: options.depth(passages) }
    }

    /// Candidate sizes for a design that may be reduced to a budget, largest first.
    pub fn descending(options: &MoiOptions, passages: usize) -> Vec<Self> {
        let asked = Self::asked(options, passages);
        if options.by_beginnings() {
            // A large budget does not deepen the design beyond its default; only the caller's depth does.
            let deepest = asked.depth.unwrap_or(1);
            return (1..=deepest).rev().map(|depth| Self { depth: Some(depth), ..asked }).collect();
        }
        (1..=asked.orders).rev().map(|orders| Self { orders, ..asked }).collect()
    }
}

/// The prompts of a design; each lists passage indices of the request by position. Random and Latin designs are
/// drawn over the passages sorted by id, so that the prompts do not depend on the order of the request. Cyclic and
/// pruned designs rotate the order of the request.
///
/// # Errors
/// [`FitError::Interrupted`]. Latin squares of many passages take seconds.
pub(super) fn prompts(
    request: &RerankRequest,
    size: Size,
    interrupt: Interrupt<'_>,
) -> Result<Vec<Vec<usize>>, FitError> {
    let options = &request.moi;
    let n = request.passages.len();
    let whole = if options.scheme() == Scheme::Pruned {
        let scores = options.pruned_by(&request.passages);
        let mut cut = design::pruned(n, options.prune_length(n), scores.as_deref());
        cut.truncate(size.orders);
        cut
    } else {
        design::orders(options.family(), n, size.orders, options.seed, interrupt)?
    };
    let drawn = size.depth.map_or_else(|| whole.clone(), |depth| design::prefixes(&whole, depth));
    if matches!(options.scheme(), Scheme::Cyclic | Scheme::Pruned) {
        return Ok(drawn);
    }
    let by_id = by_id(&request.passages);
    Ok(drawn.into_iter().map(|order| order.into_iter().map(|place| by_id[place]).collect()).collect())
}

/// The passages sorted by id: independent of the order of the request.
pub(super) fn by_id(passages: &[Passage]) -> Vec<usize> {
    let mut sorted: Vec<usize> = (0..passages.len()).collect();
    sorted.sort_by(|&left, &right| passages[left].id.cmp(&passages[right].id));
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use numeric::real;

    fn request(n: usize, moi: MoiOptions) -> RerankRequest {
        let passage =
            |index: usize| Passage { id: format!("{:02}", n - index), text: "x".into(), ..Passage::default() };
        RerankRequest { query: "q".into(), passages: (0..n).map(passage).collect(), moi, ..RerankRequest::default() }
    }

    fn all(scheme: Scheme, n: usize) -> Vec<Vec<usize>> {
        let request = request(n, MoiOptions { scheme: Some(scheme), ..MoiOptions::default() });
        prompts(&request, Size::asked(&request.moi, n), &|| false).unwrap()
    }

    #[test]
    fn what_moves_the_weights_is_not_learnt() {
        let plain = MoiOptions { scheme: Some(Scheme::Random), ..MoiOptions::default() };
        assert!(plain.is_plain());
        assert!(!MoiOptions { sigma2: Some(0.9999), ..plain.clone() }.is_plain());
        assert!(!MoiOptions { paper_objective: true, ..plain.clone() }.is_plain());
        assert!(!MoiOptions { domain: Some(Domain::Softmax { temperature: 1.0 }), ..plain }.is_plain());
    }

    #[test]
    fn schemes_have_their_lengths() {
        for n in [1, 2, 5, 10] {
            for scheme in [Scheme::Random, Scheme::Cyclic, Scheme::Latin, Scheme::Trie] {
                assert!(all(scheme, n).iter().all(|order| order.len() == n), "{scheme:?} {n}");
            }
            assert!(all(Scheme::Pruned, n).iter().all(|order| order.len() == n.div_ceil(2)));
        }
        let beginnings = all(Scheme::Prefix, 10);
        assert_eq!(beginnings.iter().filter(|order| order.len() == 1).count(), 10);
        assert_eq!(beginnings.iter().filter(|order| order.len() == 2).count(), 10);
        assert_eq!(design::blocks(&beginnings).1, 20);
    }

    /// Passages are cut so that the longest prompt fits, so its length must not be overestimated.
    #[test]
    fn no_prompt_is_longer_than_the_longest() {
        let schemes = [Scheme::Random, Scheme::Cyclic, Scheme::Latin, Scheme::Trie, Scheme::Pruned, Scheme::Prefix];
        for scheme in schemes {
            for depth in [None, Some(1), Some(2), Some(9)] {
                let request = request(6, MoiOptions { scheme: Some(scheme), depth, ..MoiOptions::default() });
                let drawn = prompts(&request, Size::asked(&request.moi, 6), &|| false).unwrap();
                let longest = drawn.iter().map(Vec::len).max();
                assert_eq!(longest, Some(request.moi.longest(&request.passages)), "{scheme:?} {depth:?}");
            }
        }
    }

    #[test]
    fn equal_weights_are_a_prior_for_beginnings_and_none_for_whole_orders() {
        let limits = Limits::WIDE;
        let check = |scheme, depth, passages: usize| {
            let position_prior = Some(vec![1.0 / real(passages); passages]);
            let moi = MoiOptions { scheme: Some(scheme), depth, position_prior, ..MoiOptions::default() };
            moi.check(&request(passages, MoiOptions::default()).passages, &limits)
        };
        for scheme in [Scheme::Random, Scheme::Cyclic, Scheme::Latin, Scheme::Trie] {
            let refused = check(scheme, None, 4).unwrap_err();
            assert!(matches!(refused, EngineError::Invalid { field, .. } if field == "moi.position_prior"));
            assert!(check(scheme, Some(2), 4).is_ok() && check(scheme, None, 1).is_ok());
        }
        assert!(check(Scheme::Prefix, None, 4).is_ok() && check(Scheme::Pruned, None, 4).is_ok());
    }

    #[test]
    fn sizes_shrink_to_one() {
        let prefix = MoiOptions { fit_budget: true, ..MoiOptions::default() };
        let depths: Vec<_> = Size::descending(&prefix, 4).into_iter().map(|size| size.depth.unwrap()).collect();
        assert_eq!(depths, vec![2, 1], "letter (h): without a depth the default is the most");
        let deep = MoiOptions { depth: Some(9), ..prefix };
        let depths: Vec<_> = Size::descending(&deep, 4).into_iter().map(|size| size.depth.unwrap()).collect();
        assert_eq!(depths, vec![4, 3, 2, 1]);
        let random = MoiOptions { scheme: Some(Scheme::Random), ..MoiOptions::default() };
        assert_eq!(Size::descending(&random, 4).len(), 12);
    }

    #[test]
    fn variable_pruning_needs_every_score() {
        let mut request =
            request(4, MoiOptions { scheme: Some(Scheme::Pruned), variable_pruning: true, ..MoiOptions::default() });
        let size = Size::asked(&request.moi, 4);
        assert!(prompts(&request, size, &|| false).unwrap().iter().all(|order| order.len() == 2));
        assert_eq!(request.moi.longest(&request.passages), 2);
        for (index, passage) in request.passages.iter_mut().enumerate() {
            passage.retriever_score = Some(if index == 0 { 9.0 } else { 0.0 });
        }
        assert_eq!(prompts(&request, size, &|| false).unwrap()[0], vec![0]);
        assert_eq!(request.moi.longest(&request.passages), 4);
    }
}
