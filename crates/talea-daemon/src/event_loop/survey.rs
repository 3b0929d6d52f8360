//! Survey of the machine's real-time threads before a request that depends on them.
//!
//! The kernel offers no event for a thread that becomes real-time, so the daemon lists the threads
//! anew. The cost grows with the threads of the machine and is bounded to a part of the daemon's
//! time ([`COST_SHARE`]). Within that interval the last survey counts, unless it has found deadline
//! threads without a grant, which only privileged programs can start. The kernel's admission test
//! detects a deadline thread that appears meanwhile, at attach.

use super::Daemon;
use talea_broker::{Input, RealTimeThread, ThreadId};
use talea_core::{CpuSet, Monotonic, Span};
use talea_os::{Tid, clock, sysinfo};
use talea_proto::Request;

/// Interval between two surveys in multiples of the cost of one.
const COST_SHARE: u64 = 20;

/// Earliest time of the next survey.
#[derive(Debug, Default)]
pub(super) struct Survey {
    not_before: Option<Monotonic>,
}

impl Daemon {
    /// Passes the real-time threads of the machine to the broker if `request` depends on them.
    pub(super) fn survey_for(&mut self, now: Monotonic, request: &Request) {
        let depends = matches!(
            request,
            Request::Create(_)
                | Request::CreateGroup(_)
                | Request::Change { .. }
                | Request::Explain(_)
        );
        let is_recent = self.survey.not_before.is_some_and(|at| now < at);
        if !depends || is_recent && !self.broker.has_ungranted() {
            return;
        }
        let begun = clock::now();
        // The daemon's own threads enforce limits: they take no CPU time that a grant counts on.
        let own = Tid::of_process();
        let threads = sysinfo::real_time_threads().into_iter();
        let threads = threads.filter(|thread| thread.process != own);
        let threads = threads.map(|thread| RealTimeThread {
            tid: thread.tid.as_raw() as u32,
            cpus: thread.cpus,
            policy: crate::convert::policy_of(thread.policy),
        });
        let threads = threads.collect();
        let ended = clock::now();
        let pause = Span::from_ns(ended.since(begun).as_ns().saturating_mul(COST_SHARE));
        self.survey.not_before = Some(ended.saturating_add(pause));
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
