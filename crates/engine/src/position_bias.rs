//! Position-bias profiles of the generator in use, and the arrangement of a context by them.
//!
//! There are three sets of profiles. The operator measures the calibrated ones with `rerankd calibrate`. The
//! built-in ones come with the program, for generators of its catalogue, and count if no calibrated profile of
//! answers applies. The learnt ones grow with the fits of served requests, so clients influence them.
//! [`ContextOrder::Auto`] therefore ignores them unless `position_bias.profiles` is `learnt`.

mod evidence;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::types::{Arrangement, Basis, ContextOrder, EngineError, FitReport, Ground};
use evidence::Recent;
pub use evidence::{Refusal, refusal};
pub use moi::profile::Origin;
use moi::profile::{Profile, Profiles, Subject, shape};

/// Writes the learnt profiles to disk.
pub type Keeper = Box<dyn Fn(&Profiles) -> Result<(), String> + Send + Sync>;

/// Fewest fits of a question profile that [`ContextOrder::Auto`] uses.
const LEAST_FITS: u64 = 32;
/// Fewest labelled questions of an answer profile that [`ContextOrder::Auto`] uses.
const LEAST_LABELLED: u64 = 8;
/// Fewest observations of a profile that the caller requests: a standard error needs two.
const LEAST_REQUESTED: u64 = 2;
/// Least time between two writes of the learnt profiles. A stopping server writes once more.
const BETWEEN_SAVES: Duration = Duration::from_secs(10);

struct Calibrated {
    profiles: Profiles,
    /// Files that could not be used, each with its reason.
    problems: Vec<String>,
    /// Why the last read of the calibrated profiles' file failed, if it did.
    unread: Option<String>,
}

struct Learnt {
    profiles: Profiles,
    /// Recent fits: a request repeated many times counts once.
    recent: Recent,
    /// True if observations were added since the last write.
    unsaved: bool,
    saved: Option<Instant>,
    /// True if the last write failed, which was logged.
    failing: bool,
}

/// The profiles of one generator.
pub struct PositionBias {
    calibrated: Mutex<Calibrated>,
    built_in: Profiles,
    learnt: Mutex<Learnt>,
    /// Held while profiles are written.
    writing: Mutex<()>,
    keeper: Keeper,
    learning: AtomicBool,
    use_learnt: AtomicBool,
}

impl std::fmt::Debug for PositionBias {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PositionBias").field("profiles", &self.profiles()).finish_non_exhaustive()
    }
}

impl Default for PositionBias {
    fn default() -> Self {
        Self::new(Profiles::default(), Profiles::default(), Box::new(|_| Ok(())), Vec::new())
    }
}

impl PositionBias {
    /// Starts from profiles read from disk. `problems` names unusable files. Learning and the use of learnt
    /// profiles by [`ContextOrder::Auto`] are off until they are switched on.
    #[must_use]
    pub fn new(calibrated: Profiles, learnt: Profiles, keeper: Keeper, problems: Vec<String>) -> Self {
        let learnt =
            Learnt { profiles: learnt, recent: Recent::default(), unsaved: false, saved: None, failing: false };
        Self {
            calibrated: Mutex::new(Calibrated { profiles: calibrated, problems, unread: None }),
            built_in: Profiles::default(),
            learnt: Mutex::new(learnt),
            writing: Mutex::default(),
            keeper,
            learning: AtomicBool::new(false),
            use_learnt: AtomicBool::new(false),
        }
    }

    /// Adds the profiles that come with the program.
    #[must_use]
    pub fn with_built_in(mut self, profiles: Profiles) -> Self {
        self.built_in = profiles;
        self
    }

    /// Replaces the calibrated profiles. True if the new ones differ.
    pub fn recalibrate(&self, profiles: Profiles) -> bool {
        let mut calibrated = lock(&self.calibrated);
        let differ = calibrated.profiles != profiles;
        calibrated.profiles = profiles;
        calibrated.unread = None;
        differ
    }

    /// Records why the file of the calibrated profiles cannot be read, until [`Self::recalibrate`].
    pub fn report_unread(&self, problem: String) {
        lock(&self.calibrated).unread = Some(problem);
    }

    /// Records an unusable file.
    pub fn report(&self, problem: String) {
        let mut calibrated = lock(&self.calibrated);
        if !calibrated.problems.contains(&problem) {
            calibrated.problems.push(problem);
        }
    }

    /// True if fits of requests add to the learnt profiles (`position_bias.learn`).
    pub fn set_learning(&self, on: bool) {
        self.learning.store(on, Ordering::Relaxed);
    }

    /// True if [`ContextOrder::Auto`] may use learnt profiles (`position_bias.profiles = "learnt"`).
    pub fn set_use_learnt(&self, on: bool) {
        self.use_learnt.store(on, Ordering::Relaxed);
    }

    /// Unusable files, each with its reason.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let calibrated = lock(&self.calibrated);
        calibrated.problems.iter().chain(&calibrated.unread).cloned().collect()
    }

    /// All profiles: calibrated, learnt, built-in.
    #[must_use]
    pub fn profiles(&self) -> [(Origin, Profiles); 3] {
        let calibrated = lock(&self.calibrated).profiles.clone();
        let learnt = lock(&self.learnt).profiles.clone();
        [(Origin::Calibrated, calibrated), (Origin::Learnt, learnt), (Origin::BuiltIn, self.built_in.clone())]
    }

    /// Adds the shapes of a fit's weights to the learnt profiles, unless [`refusal`] gives a reason against it.
    /// True when the profiles should be written to disk.
    pub(super) fn learn(&self, fit: &FitReport) -> bool {
        if !self.learning.load(Ordering::Relaxed) || refusal(fit, Origin::Learnt).is_some() {
            return false;
        }
        let mut learnt = lock(&self.learnt);
        if learnt.recent.insert(fit) {
            for weights in &fit.bias {
                learnt.unsaved |= learnt.profiles.observe(Subject::Question, &shape(weights));
            }
        }
        let due = learnt.unsaved && learnt.saved.is_none_or(|at| at.elapsed() >= BETWEEN_SAVES);
        if due {
            // Set before the write begins: while one hangs, each request would leave another waiting thread.
            learnt.saved = Some(Instant::now());
        }
        due
    }

    /// Writes the learnt profiles if they changed since the last write. Of consecutive failures only the first is
    /// logged; the next call tries again.
    pub fn save(&self) {
        // The last profiles are written last, and the end of the process waits for a running write.
        self.write(&lock(&self.writing));
    }

    /// [`Self::save`], unless a write is running: threads would queue behind a write that hangs. The next call
    /// tries again.
    pub fn save_unless_busy(&self) {
        if let Some(writing) = self.writing.try_lock() {
            self.write(&writing);
        }
    }

    fn write(&self, _: &MutexGuard<'_, ()>) {
        let (profiles, due) = {
            let mut learnt = lock(&self.learnt);
            learnt.saved = Some(Instant::now());
            (learnt.profiles.clone(), std::mem::take(&mut learnt.unsaved))
        };
        if !due {
            return;
        }
        let outcome = (self.keeper)(&profiles);
        let failed_before = {
            let mut learnt = lock(&self.learnt);
            learnt.unsaved |= outcome.is_err();
            std::mem::replace(&mut learnt.failing, outcome.is_err())
        };
        // Otherwise a read-only store would add a log line every few seconds.
        if let Err(problem) = outcome
            && !failed_before
        {
            tracing::error!(%problem, "learnt position-bias profiles not saved");
        }
    }

    /// Refuses a requested order before any work: [`ContextOrder::ByPositionBias`] if the generator has no profile.
    ///
    /// # Errors
    /// [`EngineError::Precondition`]
    pub(super) fn check(&self, requested: ContextOrder) -> Result<(), EngineError> {
        let none = || {
            self.built_in.is_empty()
                && lock(&self.calibrated).profiles.is_empty()
                && lock(&self.learnt).profiles.is_empty()
        };
        if requested != ContextOrder::ByPositionBias || !none() {
            return Ok(());
        }
        let problem = "context_order: this generator has no position-bias profile; `rerankd calibrate` measures one";
        Err(EngineError::Precondition(problem.into()))
    }

    /// Whose profile decides the order of this many passages; `None` if no profile does.
    pub(super) fn decides(&self, passages: usize, requested: ContextOrder) -> Option<Subject> {
        let by_profile = matches!(requested, ContextOrder::Auto | ContextOrder::ByPositionBias);
        let deciding = if by_profile { self.select(passages, requested) } else { None };
        deciding.map(|(subject, ..)| subject)
    }

    /// Arranges the passages of `ranking`, best first, as `requested`.
    ///
    /// # Errors
    /// As [`PositionBias::check`].
    pub(super) fn arrange(&self, ranking: &[usize], requested: ContextOrder) -> Result<Arrangement, EngineError> {
        self.check(requested)?;
        let (order, applied, ground) = match requested {
            ContextOrder::Descending => (ranking.to_vec(), requested, Ground::Requested),
            ContextOrder::Reverse => (ranking.iter().rev().copied().collect(), requested, Ground::Requested),
            ContextOrder::Input => {
                let mut order = ranking.to_vec();
                order.sort_unstable();
                (order, requested, Ground::Requested)
            }
            ContextOrder::Auto | ContextOrder::ByPositionBias => self.by_profile(ranking, requested),
        };
        Ok(Arrangement { order, applied, ground })
    }

    fn by_profile(&self, ranking: &[usize], requested: ContextOrder) -> (Vec<usize>, ContextOrder, Ground) {
        let best_first = |ground| (ranking.to_vec(), ContextOrder::Descending, ground);
        let Some((subject, origin, profile)) = self.select(ranking.len(), requested) else {
            return best_first(Ground::NoProfile);
        };
        let basis = Basis { subject, origin, passages: profile.positions(), observations: profile.count() };
        match profile.propose(ranking, subject, origin) {
            Some(order) => (order, ContextOrder::ByPositionBias, Ground::Profile(basis)),
            None => best_first(Ground::EffectWithinError(basis)),
        }
    }

    /// The first applicable profile of: answer calibrated, answer built-in, question calibrated, question learnt.
    /// An arrangement needs the answer's profile; if it exists and shows no effect, the others do not overrule it.
    fn select(&self, passages: usize, requested: ContextOrder) -> Option<(Subject, Origin, Profile)> {
        let by_request = requested == ContextOrder::ByPositionBias;
        let (labelled, fits) =
            if by_request { (LEAST_REQUESTED, LEAST_REQUESTED) } else { (LEAST_LABELLED, LEAST_FITS) };
        // Copies only the applicable profile of each set, because every ranking asks.
        let served = |subject: Subject, origin: Origin, least: u64| {
            let of = |profiles: &Profiles| profiles.serving(subject, passages, least).cloned();
            let profile = match origin {
                Origin::Calibrated => of(&lock(&self.calibrated).profiles),
                Origin::BuiltIn => of(&self.built_in),
                Origin::Learnt => of(&lock(&self.learnt).profiles),
            };
            Some((subject, origin, profile?))
        };
        let learnt = by_request || self.use_learnt.load(Ordering::Relaxed);
        served(Subject::Answer, Origin::Calibrated, labelled)
            .or_else(|| served(Subject::Answer, Origin::BuiltIn, labelled))
            .or_else(|| served(Subject::Question, Origin::Calibrated, fits))
            .or_else(|| if learnt { served(Subject::Question, Origin::Learnt, fits) } else { None })
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic cannot leave profiles half-changed, so a poisoned lock is still good.
    state.lock()
}

#[cfg(test)]
mod tests;
