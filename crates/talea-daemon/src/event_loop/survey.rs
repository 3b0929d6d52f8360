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

use super::Daemon;
use talea_broker::{Input, RealTimeThread, SessionId, ThreadId};
use talea_core::{CpuSet, Monotonic, Span};
use talea_os::sysinfo::RealTimeSurvey;
use talea_os::{Tid, clock};
use talea_proto::Request;

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
}

impl Daemon {
    /// Surveys the real-time threads of the machine if `request` depends on them.
    pub(super) fn survey_for(&mut self, now: Monotonic, session: SessionId, request: &Request) {
        let depends = matches!(
            request,
            Request::Create(_)
                | Request::CreateGroup(_)
                | Request::Change { .. }
                | Request::Explain(_)
        );
        let survey = &self.survey;
        let is_recent = survey.not_before.is_some_and(|at| now < at);
        let is_needed = !is_recent || self.broker.has_ungranted() && !survey.is_long;
        if depends && survey.in_progress.is_none() && is_needed && self.broker.is_served(session) {
            self.survey.in_progress = Some(RealTimeSurvey::start());
            self.survey.spent = Span::ZERO;
            self.continue_survey(now);
        }
    }

    /// Surveys for one slice. The broker gets the result of a complete survey.
    pub(super) fn continue_survey(&mut self, now: Monotonic) {
        let Some(survey) = &mut self.survey.in_progress else { return };
        let begun = clock::now();
        let is_first = self.survey.spent.is_zero() && !self.survey.is_long;
        let slice = if is_first { FIRST_SLICE } else { SLICE };
        let found = survey.run(begun.saturating_add(slice));
        let ended = clock::now();
        let cost = ended.since(begun);
        let pause = Span::from_ns(cost.as_ns().saturating_mul(COST_SHARE));
        self.survey.not_before = Some(ended.saturating_add(pause));
        self.survey.spent = self.survey.spent.checked_add(cost).unwrap_or(cost);
        self.survey.is_long = self.survey.spent > FIRST_SLICE;
        let Some(threads) = found else { return };
        self.survey.in_progress = None;
        // The daemon's own threads enforce limits: they take no CPU time that a grant counts on.
        let own = Tid::of_process();
        let threads = threads.into_iter().filter(|thread| thread.process != own);
        let threads = threads.map(|thread| RealTimeThread {
            tid: thread.tid.as_raw() as u32,
            cpus: thread.cpus,
            policy: crate::convert::policy_of(thread.policy),
        });
        let threads = threads.collect();
        self.handle_input(now, Input::RealTimeThreads { threads });
    }

    /// Passes the CPU time of a thread to the broker, if a canary is silent. Called between two
    /// effects.
    pub(super) fn sample_cpu_time(&mut self, now: Monotonic, thread: ThreadId) {
        if self.samples_cpu_time
            && let Some(consumed) = self.threads.cpu_time(thread)
        {
            self.broker.handle(now, Input::CpuTime { thread, consumed });
        }
    }

    /// Checks the canaries of `cpus`, and passes the result to the broker. Called between two
    /// effects.
    pub(super) fn check_canaries(&mut self, now: Monotonic, cpus: &CpuSet) {
        if self.canaries.is_empty() {
            return;
        }
        let silent = self.canaries.check(cpus);
        self.samples_cpu_time = !silent.is_empty();
        let consumed = self.threads.consumed_on(&silent);
        self.broker.handle(now, Input::CanariesChecked { silent, consumed });
    }
}
