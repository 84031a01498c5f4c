//! What is known of the generator's position bias, and the arrangement of a context that follows from it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::EngineError;
use super::rerank::FitReport;
use crate::fit::Orientation;
use crate::fit::profile::{Profiles, Subject, arrange};

/// Writes learnt profiles down.
pub type Keeper = Box<dyn Fn(&Profiles) -> Result<(), String> + Send + Sync>;

/// Fits a question profile must rest on before a context is arranged by it unasked.
const LEAST_FITS: u64 = 32;
/// Labelled questions an answer profile must rest on.
const LEAST_LABELLED: u64 = 8;
/// Log-likelihood ratio above which a fit found signal (moi-fit, the 5 % point of a chi-squared half).
const SIGNAL: f64 = 1.35;
/// Learnt profiles are written down at most this often, and when the server ends.
const BETWEEN_SAVES: Duration = Duration::from_secs(10);

/// The order in which ranked passages are to stand in the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContextOrder {
    /// By the answer profile, failing that by the question profile, failing that descending. The default.
    #[default]
    Auto,
    /// By a profile; an error where there is none.
    ByPositionBias,
    /// Best first (the paper).
    Descending,
    /// Best last.
    Reverse,
    /// As they came.
    Given,
}

/// Why an arrangement is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// The caller named it.
    Requested,
    /// A profile of this subject, measured for so many passages over so many observations.
    Profile {
        /// Whose likelihood.
        subject: Subject,
        /// Passages of the prompts it was measured on.
        passages: usize,
        /// Observations.
        observations: u64,
    },
    /// No profile rests on enough observations: best first.
    NoProfile,
}

/// A context's order and its ground.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrangement {
    /// Indices of the request, first in the prompt to last.
    pub order: Vec<usize>,
    /// What was applied; never `Auto`.
    pub applied: ContextOrder,
    /// Why.
    pub ground: Ground,
}

struct Learnt {
    profiles: Profiles,
    /// Observed since the last save.
    unsaved: bool,
    saved: Option<Instant>,
}

/// Calibrated profiles, and what could not be used of files.
struct Found {
    calibrated: Profiles,
    problems: Vec<String>,
}

/// The profiles of one generator: calibrated ones, which stay until they are measured again, and learnt ones, which grow.
pub struct PositionBias {
    found: Mutex<Found>,
    learnt: Mutex<Learnt>,
    keeper: Keeper,
    learning: AtomicBool,
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
    /// Profiles as they were found; `problems` tells of files that could not be used.
    #[must_use]
    pub fn new(calibrated: Profiles, learnt: Profiles, keeper: Keeper, problems: Vec<String>) -> Self {
        let learnt = Mutex::new(Learnt { profiles: learnt, unsaved: false, saved: None });
        Self { found: Mutex::new(Found { calibrated, problems }), learnt, keeper, learning: AtomicBool::new(false) }
    }

    /// Puts these in the place of the calibrated profiles; true where they differ.
    pub fn recalibrate(&self, profiles: Profiles) -> bool {
        let mut found = lock(&self.found);
        let differ = found.calibrated != profiles;
        found.calibrated = profiles;
        differ
    }

    /// Tells of a file that cannot be used.
    pub fn report(&self, problem: String) {
        lock(&self.found).problems.push(problem);
    }

    /// Whether fits of requests add to the learnt profiles.
    pub fn set_learning(&self, on: bool) {
        self.learning.store(on, Ordering::Relaxed);
    }

    /// Files that could not be used, each with its reason.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        lock(&self.found).problems.clone()
    }

    /// All profiles, learnt and calibrated together.
    #[must_use]
    pub fn profiles(&self) -> Profiles {
        let mut all = lock(&self.found).calibrated.clone();
        all.merge(&lock(&self.learnt).profiles);
        all
    }

    /// Takes in a fit whose direction the data settled and which found signal. True when it is time to save.
    pub(super) fn learn(&self, fit: &FitReport) -> bool {
        let settled = matches!(fit.orientation, Orientation::OnePassageScores | Orientation::Lengths);
        let signal = fit.diagnostics.signal > SIGNAL;
        if !self.learning.load(Ordering::Relaxed) || !settled || !signal {
            return false;
        }
        let mut learnt = lock(&self.learnt);
        for weights in &fit.bias {
            learnt.unsaved |= learnt.profiles.observe(Subject::Question, weights);
        }
        learnt.unsaved && learnt.saved.is_none_or(|at| at.elapsed() >= BETWEEN_SAVES)
    }

    /// Writes down what is not yet written. A failure is logged and tried again at the next occasion.
    pub fn save(&self) {
        let (profiles, due) = {
            let mut learnt = lock(&self.learnt);
            learnt.saved = Some(Instant::now());
            (learnt.profiles.clone(), std::mem::take(&mut learnt.unsaved))
        };
        if due && let Err(problem) = (self.keeper)(&profiles) {
            tracing::error!(%problem, "learnt position-bias profiles not saved");
            lock(&self.learnt).unsaved = true;
        }
    }

    /// Refuses what [`PositionBias::arrange`] would refuse, before any work.
    pub(super) fn check(&self, asked: ContextOrder) -> Result<(), EngineError> {
        self.arrange(&[], asked).map(drop)
    }

    /// Arranges the passages of `ranking`, best first, as `asked`.
    ///
    /// # Errors
    /// [`EngineError::Precondition`] where a profile is asked for and none is known.
    pub(super) fn arrange(&self, ranking: &[usize], asked: ContextOrder) -> Result<Arrangement, EngineError> {
        let requested = |order, applied| Ok(Arrangement { order, applied, ground: Ground::Requested });
        match asked {
            ContextOrder::Descending => requested(ranking.to_vec(), asked),
            ContextOrder::Reverse => requested(ranking.iter().rev().copied().collect(), asked),
            ContextOrder::Given => {
                let mut order = ranking.to_vec();
                order.sort_unstable();
                requested(order, asked)
            }
            ContextOrder::Auto | ContextOrder::ByPositionBias => {
                let strict = asked == ContextOrder::ByPositionBias;
                let profiles = self.profiles();
                let n = ranking.len();
                let (labelled, fits) = if strict { (1, 1) } else { (LEAST_LABELLED, LEAST_FITS) };
                let found = [(Subject::Answer, labelled), (Subject::Question, fits)].into_iter().find_map(
                    |(subject, least)| {
                        profiles.nearest(subject, n, least).map(|(passages, profile)| (subject, passages, profile))
                    },
                );
                let Some((subject, passages, profile)) = found else {
                    if strict {
                        let problem = "no position-bias profile of this generator is known: run `rerankd calibrate`";
                        return Err(EngineError::Precondition(problem.into()));
                    }
                    let applied = ContextOrder::Descending;
                    return Ok(Arrangement { order: ranking.to_vec(), applied, ground: Ground::NoProfile });
                };
                let order = arrange(ranking, &profile.stretched(n));
                let ground = Ground::Profile { subject, passages, observations: profile.count() };
                Ok(Arrangement { order, applied: ContextOrder::ByPositionBias, ground })
            }
        }
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here leaves the profiles half-changed.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(subject: Subject, values: &[f64], times: u64) -> PositionBias {
        let mut profiles = Profiles::default();
        for _ in 0..times {
            assert!(profiles.observe(subject, values));
        }
        PositionBias::new(profiles, Profiles::default(), Box::new(|_| Ok(())), Vec::new())
    }

    #[test]
    fn an_answer_profile_wins_over_a_question_profile_and_few_observations_do_not_count() {
        let known = with(Subject::Answer, &[-1.0, 0.0, 1.0], LEAST_LABELLED);
        let arranged = known.arrange(&[5, 3, 8], ContextOrder::Auto).unwrap();
        assert_eq!((arranged.order, arranged.applied), (vec![8, 3, 5], ContextOrder::ByPositionBias));
        let few = with(Subject::Answer, &[-1.0, 0.0, 1.0], LEAST_LABELLED - 1);
        let arranged = few.arrange(&[5, 3, 8], ContextOrder::Auto).unwrap();
        assert_eq!((arranged.order, arranged.ground), (vec![5, 3, 8], Ground::NoProfile));
        assert_eq!(few.arrange(&[5, 3, 8], ContextOrder::ByPositionBias).unwrap().order, vec![8, 3, 5]);
        let none = PositionBias::default().arrange(&[1], ContextOrder::ByPositionBias).unwrap_err();
        assert!(matches!(none, EngineError::Precondition(_)));
    }

    #[test]
    fn a_profile_of_another_length_is_stretched() {
        let known = with(Subject::Question, &[0.2, 0.8], LEAST_FITS);
        let arranged = known.arrange(&[0, 1, 2, 3], ContextOrder::Auto).unwrap();
        assert_eq!(arranged.order, vec![3, 2, 1, 0]);
        let ground = Ground::Profile { subject: Subject::Question, passages: 2, observations: LEAST_FITS };
        assert_eq!(arranged.ground, ground);
        assert_eq!(known.arrange(&[3, 0, 2], ContextOrder::Given).unwrap().order, vec![0, 2, 3]);
        assert_eq!(known.arrange(&[3, 0, 2], ContextOrder::Reverse).unwrap().order, vec![2, 0, 3]);
    }

    #[test]
    fn what_could_not_be_saved_is_tried_again() {
        let tries = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = std::sync::Arc::clone(&tries);
        let keeper: Keeper =
            Box::new(
                move |_| {
                    if counted.fetch_add(1, Ordering::SeqCst) == 0 { Err("disk full".into()) } else { Ok(()) }
                },
            );
        let known = PositionBias::new(Profiles::default(), Profiles::default(), keeper, Vec::new());
        lock(&known.learnt).unsaved = true;
        known.save();
        known.save();
        known.save();
        assert_eq!(tries.load(Ordering::SeqCst), 2);
    }
}
