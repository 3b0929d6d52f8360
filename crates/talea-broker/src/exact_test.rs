//! Limits of exact admission tests.
//!
//! Sums decide first. If the sums leave a verdict undecided, the broker lists the tasks of one CPU
//! and tests them exactly. This is pseudo-polynomial work that delays other requests. Therefore
//! three limits bound the work; beyond them the verdict of the sums stands. With these limits one
//! request delays others by less than a millisecond (measured by `talea-lab admission`).

use std::cell::{Cell, RefCell};
use talea_analysis::uni::Scratch;
use talea_core::mutate;
use talea_proto::Rejection;
use talea_proto::refusal::Witness;

/// Maximum number of exact tests per request; several plugins on one CPU count separately.
pub(crate) const MAX_EXACT_TESTS: usize = 4;
/// Maximum number of tasks of a CPU for an exact test.
pub(crate) const MAX_TASKS: usize = 512;
/// Maximum number of steps of a test, of one or two nanoseconds each.
pub(crate) const MAX_STEPS: u64 = 1 << 16;

/// Exact tests left for a request, with their buffers.
#[derive(Debug)]
pub struct ExactTestBudget {
    left: Cell<usize>,
    scratch: RefCell<Scratch>,
}

impl Default for ExactTestBudget {
    fn default() -> ExactTestBudget {
        ExactTestBudget {
            left: Cell::new(MAX_EXACT_TESTS),
            scratch: RefCell::new(Scratch::with_limit(MAX_STEPS)),
        }
    }
}

impl ExactTestBudget {
    /// Returns an unlimited budget.
    #[cfg(test)]
    pub(crate) fn unlimited() -> ExactTestBudget {
        ExactTestBudget { left: Cell::new(usize::MAX), ..ExactTestBudget::default() }
    }

    /// Consumes one test; returns `false` if none is left.
    pub(crate) fn consume(&self) -> bool {
        let left = self.left.get().checked_sub(1);
        self.left.set(left.unwrap_or(0));
        mutate!("plugin-exact-cap", left.is_some(), true)
    }

    /// Runs a test with the buffers.
    pub(crate) fn run<R>(&self, test: impl FnOnce(&mut Scratch) -> R) -> R {
        test(&mut self.scratch.borrow_mut())
    }
}

/// Choice between sums alone and sums with an exact test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestDepth {
    /// Sums only.
    Bounds,
    /// An exact test if the sums leave the verdict undecided.
    Exact,
}

/// Result of an exact test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExactResult {
    /// All deadlines are met.
    Fits,
    /// A task may miss a deadline. The witness is absent if the result depends on rounding.
    Misses(Option<Witness>),
    /// The test was not run, or reached its limits.
    Untried,
}

/// Reason why a guarantee is not proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotProved {
    /// Whether only an exact test can decide.
    pub(crate) undecided: bool,
    /// Witness of an exact test that found a deadline miss.
    pub(crate) witness: Option<Witness>,
}

impl ExactResult {
    /// Returns the final verdict: a test that was not tried proves nothing.
    pub(crate) fn settled(self) -> Result<(), NotProved> {
        match self {
            ExactResult::Fits => Ok(()),
            ExactResult::Misses(witness) => Err(NotProved { undecided: false, witness }),
            ExactResult::Untried => Err(NotProved { undecided: false, witness: None }),
        }
    }
}

/// CPUs on which only an exact test can decide, in the order of detection: at most as many as may
/// be tested.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UndecidedCpus {
    cpus: [u32; MAX_EXACT_TESTS],
    count: usize,
}

impl UndecidedCpus {
    /// Adds a CPU, if there is room.
    pub(crate) fn push(&mut self, cpu: u32) {
        if let Some(place) = self.cpus.get_mut(self.count) {
            *place = cpu;
            self.count += 1;
        }
    }

    /// Iterates over the CPUs.
    pub(crate) fn cpus(self) -> impl Iterator<Item = u32> {
        self.cpus.into_iter().take(self.count)
    }
}

/// Keeps the most informative rejection: one with a witness, then the one with the largest `fits`.
pub(crate) fn keep_most_informative(best: &mut Option<Rejection>, no: Rejection) {
    let rank = |no: &Rejection| (no.witness.is_some(), no.fits);
    if best.is_none_or(|best| rank(&no) > rank(&best)) {
        *best = Some(no);
    }
}
