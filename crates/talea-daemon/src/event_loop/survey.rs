//! Survey of the machine's real-time threads before a request that depends on them.
//!
//! The kernel offers no event for a thread that becomes real-time, so the daemon lists the threads
//! anew, for clients that a rule serves. The cost grows with the threads of the machine, and the
//! loop runs above most of them. So a survey has *slices*, which take one part in [`COST_SHARE`] of
//! the daemon's time. A request waits for the first slice, of at most [`FIRST_SLICE`]: enough for
//! some hundred processes. On a larger machine the survey is *long*: its slices, and the first ones
//! of the next surveys, have [`SLICE`]. They follow by time, and requests use the last complete
//! survey meanwhile.
//!
//! The next survey starts when the cost share permits it, or at once if the last one was not long
//! and has found deadline threads without a grant, which only privileged programs can start. The
//! kernel's admission test detects a deadline thread that appears meanwhile, at attach.

use talea_broker::RealTimeThread;
use talea_core::{Monotonic, Span};
use talea_os::sysinfo::RealTimeSurvey;
use talea_os::{Tid, clock};

/// Interval between two slices in multiples of the cost of one.
const COST_SHARE: u64 = 20;
/// Maximum duration of the first slice.
const FIRST_SLICE: Span = Span::from_ns(4_000_000);
/// Maximum duration of any other slice.
const SLICE: Span = Span::from_ns(1_000_000);

/// Survey in progress, and the earliest time of the next slice.
#[derive(Debug, Default)]
pub(super) struct Survey {
    not_before: Option<Monotonic>,
    in_progress: Option<RealTimeSurvey>,
    /// Duration of its slices.
    spent: Span,
    /// Whether the last survey took longer than [`FIRST_SLICE`].
    is_long: bool,
}

impl Survey {
    /// Returns the time of the next slice of a survey in progress; `None` without one.
    pub(super) fn next_due(&self) -> Option<Monotonic> {
        self.not_before.filter(|_| self.in_progress.is_some())
    }

    /// Whether a request needs a new survey. `has_ungranted`: whether deadline threads without a
    /// grant are known.
    pub(super) fn is_needed(&self, now: Monotonic, has_ungranted: bool) -> bool {
        let is_recent = self.not_before.is_some_and(|at| now < at);
        self.in_progress.is_none() && (!is_recent || has_ungranted && !self.is_long)
    }

    /// Begins a survey.
    pub(super) fn begin(&mut self) {
        self.in_progress = Some(RealTimeSurvey::start());
        self.spent = Span::ZERO;
    }

    /// Surveys for one slice. Returns the threads of other processes after the last slice.
    pub(super) fn run_slice(&mut self) -> Option<Vec<RealTimeThread>> {
        let survey = self.in_progress.as_mut()?;
        let begun = clock::now();
        let is_first = self.spent.is_zero() && !self.is_long;
        let slice = if is_first { FIRST_SLICE } else { SLICE };
        let found = survey.run(begun.saturating_add(slice));
        let ended = clock::now();
        let cost = ended.since(begun);
        let pause = Span::from_ns(cost.as_ns().saturating_mul(COST_SHARE));
        self.not_before = Some(ended.saturating_add(pause));
        self.spent = self.spent.checked_add(cost).unwrap_or(cost);
        self.is_long = self.spent > FIRST_SLICE;
        let threads = found?;
        self.in_progress = None;
        // The daemon's own threads enforce limits: they take no CPU time that a grant counts on.
        let own = Tid::of_process();
        let threads = threads.into_iter().filter(|thread| thread.process != own);
        let threads = threads.map(|thread| RealTimeThread {
            tid: thread.tid.as_raw() as u32,
            cpus: thread.cpus,
            policy: thread.policy.into(),
        });
        Some(threads.collect())
    }
}
