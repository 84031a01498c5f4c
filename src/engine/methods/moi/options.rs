//! Options of the method, and what of a request they ask to be scored.

use crate::engine::rerank::RerankRequest;
use crate::engine::{EngineError, Limits};
use crate::fit::design::{self, Design};
use crate::fit::domain::Domain;
use crate::fit::varpro::Starts;
use crate::fit::{Anchors, FitError, Objective, Settings};
use crate::numeric::Interrupt;

/// What is scored of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outcome {
    /// log P(query | order). The default.
    #[default]
    QueryLikelihood,
    /// log P(query | order) + log P(order) (MOI, Eq. 3).
    Joint,
}

/// Which prompts are scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Random whole orders, the paper's way.
    Random,
    /// The rotations of the given order.
    Cyclic,
    /// Optimised Latin squares.
    Latin,
    /// A Latin square and copies that share its leading columns.
    Trie,
    /// Rotations cut to their first passages.
    Pruned,
    /// Every beginning, down to a depth, of the orders of a Latin square. The default.
    Prefix,
    /// `Prefix`, then rounds of further prompts where the ranking is least certain.
    Adaptive,
}

/// Options of the method. `None` asks for the default.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MoiOptions {
    /// Which prompts are scored.
    pub scheme: Option<Scheme>,
    /// How many orders.
    pub orders: Option<usize>,
    /// Score the query after every beginning of an order down to this many passages; whole orders alone where `None`, but
    /// 2 for the schemes made of beginnings.
    pub depth: Option<usize>,
    /// Leading columns that the copies of a trie share; 1 where `None`.
    pub shared_columns: Option<usize>,
    /// Copies of a trie; 3 where `None`.
    pub copies: Option<usize>,
    /// Passages of a pruned prompt; half of them where `None`.
    pub prune_length: Option<usize>,
    /// Prune by the mass of the retriever's scores instead of a fixed length.
    pub variable_pruning: bool,
    /// What is scored.
    pub outcome: Outcome,
    /// Scale on which scores are fitted.
    pub domain: Option<Domain>,
    /// The paper's objective instead of the regularised one.
    pub paper_objective: bool,
    /// Assumed share of noise, in (0, 1).
    pub sigma2: Option<f64>,
    /// Prior position weights for whole orders.
    pub position_prior: Option<Vec<f64>>,
    /// Position weights must not increase.
    pub monotone: bool,
    /// Seed of the design.
    pub seed: u64,
    /// Most tokens to evaluate; the server's limit where `None`.
    pub token_budget: Option<usize>,
    /// Take the largest design within the budget instead of refusing one that exceeds it.
    pub fit_budget: bool,
    /// Places that must be settled before an adaptive run stops early; 3 where `None`.
    pub settle_top: Option<usize>,
    /// Probability at which a place counts as settled; 0.9 where `None`.
    pub settle_probability: Option<f64>,
    /// Most rounds after the first of an adaptive run; 3 where `None`.
    pub rounds: Option<usize>,
}

impl MoiOptions {
    /// The scheme in force.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme.unwrap_or(Scheme::Prefix)
    }

    fn by_beginnings(&self) -> bool {
        matches!(self.scheme(), Scheme::Prefix | Scheme::Adaptive)
    }

    /// Depth of the beginnings that are scored, bounded by the passages; `None` for whole orders alone.
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

    /// Orders asked for.
    pub(super) fn count(&self, passages: usize) -> usize {
        self.orders.unwrap_or_else(|| self.family().default_orders(passages))
    }

    fn prune_length(&self, passages: usize) -> usize {
        self.prune_length.unwrap_or_else(|| passages.div_ceil(2)).clamp(1, passages.max(1))
    }

    /// Whether the fitted position weights are the generator's own: no constraint or prior of the caller's, and the outcome
    /// whose profile is learnt.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.outcome == Outcome::QueryLikelihood && !self.monotone && self.position_prior.is_none()
    }

    /// Passages in the longest prompt.
    pub(super) fn longest(&self, passages: usize) -> usize {
        match self.scheme() {
            Scheme::Pruned if !self.variable_pruning => self.prune_length(passages),
            Scheme::Prefix | Scheme::Adaptive => self.depth(passages).unwrap_or(passages),
            _ => passages,
        }
    }

    pub(super) fn check(&self, passages: usize, limits: &Limits) -> Result<(), EngineError> {
        let orders = self.count(passages);
        if orders == 0 || orders > limits.orders {
            let problem = format!("are {orders}, must be between 1 and {}", limits.orders);
            return Err(EngineError::invalid("moi.orders", problem));
        }
        let open = |field: &str, value: Option<f64>| match value {
            Some(value) if !(value > 0.0 && value < 1.0) => {
                Err(EngineError::invalid(field, "must lie between 0 and 1, both excluded"))
            }
            _ => Ok(()),
        };
        open("moi.sigma2", self.sigma2)?;
        open("moi.settle_probability", self.settle_probability)?;
        if let Some(Domain::Softmax { temperature }) = self.domain
            && !(temperature.is_finite() && temperature > 0.0)
        {
            return Err(EngineError::invalid("moi.softmax_temperature", "must be a finite number above 0"));
        }
        if self.rounds.is_some_and(|rounds| rounds > 64) {
            return Err(EngineError::invalid("moi.rounds", "must be at most 64"));
        }
        if self.copies.is_some_and(|copies| copies > limits.orders) {
            return Err(EngineError::invalid("moi.copies", format!("must be at most {}", limits.orders)));
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

    pub(super) fn settings(&self) -> Settings {
        Settings {
            domain: self.domain,
            objective: if self.paper_objective { Objective::Paper } else { Objective::Regularised },
            sigma2: self.sigma2.unwrap_or(0.5),
            monotone: self.monotone,
            prior: self.position_prior.clone(),
            starts: if self.sigma2.is_some_and(|sigma2| sigma2 < 0.5) { Starts::Spectral } else { Starts::Prior },
            // The one-passage scores are log P(query | passage) whatever the outcome.
            anchors: if self.outcome == Outcome::Joint { Anchors::Direction } else { Anchors::Observations },
            ..Settings::default()
        }
    }
}

/// The size of a design: what is varied to fit a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub orders: usize,
    pub depth: Option<usize>,
}

impl Size {
    /// What the options ask for.
    pub fn asked(options: &MoiOptions, passages: usize) -> Self {
        Self { orders: options.count(passages), depth: options.depth(passages) }
    }

    /// Sizes from the largest worth trying to the smallest, for a design that may be fitted to a budget.
    pub fn descending(options: &MoiOptions, passages: usize) -> Vec<Self> {
        let asked = Self::asked(options, passages);
        if options.by_beginnings() {
            // Without a depth of the caller's, fitting only ever shrinks the default: a budget is no reason to spend it.
            let deepest = asked.depth.unwrap_or(1);
            return (1..=deepest).rev().map(|depth| Self { depth: Some(depth), ..asked }).collect();
        }
        (1..=asked.orders).rev().map(|orders| Self { orders, ..asked }).collect()
    }
}

/// The prompts of a design, over indices of the request: passages by position. A random or Latin design is drawn over the
/// passages sorted by id, so that the caller's order has no part in it; rotations are those of the given order.
///
/// # Errors
/// [`FitError::Interrupted`]: the Latin squares of many passages take seconds.
pub(super) fn prompts(
    request: &RerankRequest,
    size: Size,
    interrupt: Interrupt<'_>,
) -> Result<Vec<Vec<usize>>, FitError> {
    let options = &request.moi;
    let n = request.passages.len();
    let whole = if options.scheme() == Scheme::Pruned {
        let scores: Option<Vec<f64>> = request.passages.iter().map(|passage| passage.retriever_score).collect();
        let scores = scores.filter(|_| options.variable_pruning);
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
    let mut by_id: Vec<usize> = (0..n).collect();
    by_id.sort_by(|&left, &right| request.passages[left].id.cmp(&request.passages[right].id));
    Ok(drawn.into_iter().map(|order| order.into_iter().map(|place| by_id[place]).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::rerank::Passage;

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
        for (index, passage) in request.passages.iter_mut().enumerate() {
            passage.retriever_score = Some(if index == 0 { 9.0 } else { 0.0 });
        }
        assert_eq!(prompts(&request, size, &|| false).unwrap()[0], vec![0]);
    }
}
