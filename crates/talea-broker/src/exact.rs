//! How much exactness a request may ask for.
//!
//! Sums decide first; where they leave a verdict open, the list of one CPU is built and tested
//! exactly: pseudo-polynomial work, beside which others wait. So it is bounded three times, and
//! whoever needs more gets what the sums said. With these bounds one request keeps others waiting
//! for less than a millisecond (`talea lab admission` measures it).

use std::cell::{Cell, RefCell};
use talea_analysis::uni::Scratch;
use talea_core::mutate;
use talea_proto::No;
use talea_proto::refusal::Witness;

/// On so many CPUs one request may try an exact test; where several plugins on one CPU need one,
/// each counts.
pub(crate) const TRIES_MAX: usize = 4;
/// CPUs with more tasks than this are not listed.
pub(crate) const TASKS_MAX: usize = 512;
/// A test looks at tasks this often, or gives up: one or two nanoseconds each.
pub(crate) const STEPS_MAX: u64 = 1 << 16;

/// The exact tests that a request may still have, and the memory for them.
#[derive(Debug)]
pub struct Tries {
    left: Cell<usize>,
    scratch: RefCell<Scratch>,
}

impl Default for Tries {
    fn default() -> Tries {
        Tries { left: Cell::new(TRIES_MAX), scratch: RefCell::new(Scratch::with_limit(STEPS_MAX)) }
    }
}

impl Tries {
    /// More than any test asks for.
    #[cfg(test)]
    pub(crate) fn plenty() -> Tries {
        Tries { left: Cell::new(usize::MAX), ..Tries::default() }
    }

    /// Takes one, if there is one left.
    pub(crate) fn take(&self) -> bool {
        let left = self.left.get().checked_sub(1);
        self.left.set(left.unwrap_or(0));
        mutate!("plugin-exact-cap", left.is_some(), true)
    }

    /// Runs a test.
    pub(crate) fn test<R>(&self, test: impl FnOnce(&mut Scratch) -> R) -> R {
        test(&mut self.scratch.borrow_mut())
    }
}

/// How far to go for a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// What sums say.
    Bounds,
    /// Where they leave it open, an exact test.
    Exact,
}

/// What an exact test says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exactly {
    /// All deadlines are met.
    Fits,
    /// Some deadline could be missed: here is how, unless that lies in a rounding.
    Misses(Option<Witness>),
    /// It was not tried, or gave up.
    Untried,
}

/// Why a guarantee would not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// Whether only an exact test knows.
    pub(crate) open: bool,
    /// What such a test has found.
    pub(crate) witness: Option<Witness>,
}

impl Exactly {
    /// As a verdict after which nothing is open.
    pub(crate) fn settled(self) -> Result<(), Broken> {
        match self {
            Exactly::Fits => Ok(()),
            Exactly::Misses(witness) => Err(Broken { open: false, witness }),
            Exactly::Untried => Err(Broken { open: false, witness: None }),
        }
    }
}

/// The CPUs on which only an exact test knows, in the order in which they were found: no more than
/// may be tried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Open {
    cpus: [u32; TRIES_MAX],
    count: usize,
}

impl Open {
    /// One more, if there is room.
    pub(crate) fn push(&mut self, cpu: u32) {
        if let Some(place) = self.cpus.get_mut(self.count) {
            *place = cpu;
            self.count += 1;
        }
    }

    /// All of them.
    pub(crate) fn cpus(self) -> impl Iterator<Item = u32> {
        self.cpus.into_iter().take(self.count)
    }
}

/// Keeps the "no" that teaches most: one with a witness, then the one that came closest.
pub(crate) fn keep_telling(best: &mut Option<No>, no: No) {
    let worth = |no: &No| (no.witness.is_some(), no.fits);
    if best.is_none_or(|best| worth(&no) > worth(&best)) {
        *best = Some(no);
    }
}
