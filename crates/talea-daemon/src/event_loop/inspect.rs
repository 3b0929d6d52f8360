//! Reports to the broker about threads and CPUs: changes, overruns, real-time threads without a
//! grant, and starved CPUs.

use super::Daemon;
use talea_broker::{Input, SessionId, ThreadId};
use talea_core::{CpuSet, Monotonic, mutate};
use talea_os::proc_events::ProcEvent;
use talea_os::{Tid, clock};
use talea_proto::Request;

/// Maximum number of process events handled per round.
const MAX_EVENTS: usize = 64;

impl Daemon {
    /// Updates the subscription to process events after a round.
    #[inline]
    pub(super) fn update_change_events(&mut self, now: Monotonic) {
        if self.threads.changes.is_due(now) {
            self.update_stale_change_events(now);
        }
    }

    #[cold]
    fn update_stale_change_events(&mut self, now: Monotonic) {
        match self.threads.changes.update(now, &self.epoll) {
            Ok(added) => {
                for process in added {
                    self.check_process(now, process);
                }
            }
            Err(error) => {
                // The next inspection detects what the socket does not report.
                self.threads.changes.close();
                if self.limiters.unwatched.allows(now) {
                    self.log.warning(format_args!(
                        "process events are not received: {error}; changes of credentials are \
                         detected by inspection"
                    ));
                }
            }
        }
    }

    /// Handles process events: checks each thread of the processes that have changed once, and
    /// charges its user's share.
    pub(super) fn on_proc_events(&mut self, now: Monotonic) {
        let events: Vec<ProcEvent> =
            std::iter::from_fn(|| self.threads.changes.next()).take(MAX_EVENTS).collect();
        for thread in self.threads.changes.affected(&events) {
            let begun = clock::now();
            let subject = self.broker.subject_of_specs(self.threads.owner(thread));
            self.check_credentials(now, thread);
            self.priority.charge_share(subject.number(), begun, clock::now());
        }
    }

    fn check_process(&mut self, now: Monotonic, process: Tid) {
        let threads: Vec<ThreadId> = self.threads.changes.of_process(process).collect();
        for thread in threads {
            self.check_credentials(now, thread);
        }
    }

    /// Informs the broker if the credentials of a thread have changed.
    pub(super) fn check_credentials(&mut self, now: Monotonic, thread: ThreadId) {
        if let Some(uids) = self.threads.changed_uids(thread) {
            self.handle_input(now, Input::CredentialsChanged { thread, uids });
        }
    }

    /// Informs the broker of the thread's overruns since the last report.
    pub(super) fn report_overruns(&mut self, now: Monotonic, thread: ThreadId) {
        if let Some((overruns, consumed)) = self.threads.new_overruns(thread) {
            self.broker.handle(now, Input::Overran { thread, overruns, consumed });
        }
    }

    /// Compares the next threads with what the broker knows of them. Called between two effects.
    pub(super) fn inspect(&mut self, now: Monotonic, count: u32) {
        // A demoted thread differs, too; the broker must know the reason first.
        for thread in self.threads.take_demoted() {
            self.report_overruns(now, thread);
            self.broker.handle(now, Input::Overrun { thread });
        }
        self.check_cpus(now);
        let reads_uids = !self.threads.changes.is_open();
        for _ in 0..count.min(self.threads.changes.len() as u32) {
            let Some(thread) = self.threads.next_to_inspect() else { return };
            self.report_overruns(now, thread);
            if reads_uids && let Some(uids) = self.threads.changed_uids(thread) {
                self.broker.handle(now, Input::CredentialsChanged { thread, uids });
            }
            if let Some(attr) = self.threads.changed_attr(thread) {
                self.broker.handle(now, Input::AttrChanged { thread, attr });
            }
        }
    }

    /// Handles device events.
    pub(super) fn on_cpu_events(&mut self, now: Monotonic) {
        if self.cpus.take_events() && self.check_cpus(now) {
            self.run_effects(now);
        }
    }

    /// Informs the enforcers and the broker if CPUs went off-line or came back. Returns whether
    /// they did; then the caller must execute the broker's effects.
    pub(super) fn check_cpus(&mut self, now: Monotonic) -> bool {
        let Some(online) = self.cpus.online_now() else { return false };
        let Some(offline) = self.cpus.set_online(online) else {
            if mutate!("daemon-enforcer-retry", self.cpus.is_unpinned, false) {
                self.cpus.is_unpinned = self.threads.pin_enforcers(&online).is_err();
            }
            return false;
        };
        self.log.warning(format_args!(
            "CPUs that are on-line now: {online}{}",
            if offline.is_empty() { String::new() } else { format!("; off-line: {offline}") }
        ));
        let pinned = self.threads.pin_enforcers(&online);
        let was_unpinned = std::mem::replace(&mut self.cpus.is_unpinned, pinned.is_err());
        if let Err(error) = pinned
            && !was_unpinned
        {
            self.log.error(format_args!(
                "the thread that enforces the budgets of a CPU is on another CPU, which is less \
                 precise: {error}; the daemon tries again while threads have grants"
            ));
        }
        self.broker.handle(now, Input::CpusChanged { offline });
        true
    }

    /// Surveys the real-time threads of the machine if `request` depends on them.
    pub(super) fn survey_for(&mut self, now: Monotonic, session: SessionId, request: &Request) {
        let depends = matches!(
            request,
            Request::Create(_)
                | Request::CreateGroup(_)
                | Request::Change { .. }
                | Request::Explain(_)
        );
        if depends
            && self.survey.is_needed(now, self.broker.has_ungranted())
            && self.broker.is_served(session)
        {
            self.survey.begin();
            self.continue_survey(now);
        }
    }

    /// Surveys for one slice. The broker gets the result of a complete survey.
    pub(super) fn continue_survey(&mut self, now: Monotonic) {
        if let Some(threads) = self.survey.run_slice() {
            self.handle_input(now, Input::RealTimeThreads { threads });
        }
    }

    /// Passes the CPU time of a thread to the broker, if a canary is silent. Called between two
    /// effects.
    pub(super) fn sample_cpu_time(&mut self, now: Monotonic, thread: ThreadId) {
        if self.canaries.is_any_silent()
            && let Some(consumed) = self.threads.cpu_time(thread)
        {
            self.broker.handle(now, Input::CpuTime { thread, consumed });
        }
    }

    /// Begins to check the canaries of `cpus`. The broker orders no further check before it has the
    /// result. Called between two effects.
    pub(super) fn check_canaries(&mut self, now: Monotonic, cpus: &CpuSet) {
        if self.canaries.is_empty() {
            return;
        }
        let silent = self.canaries.check(cpus);
        self.canaries.cpu_times.begin(silent, self.threads.fifo_on(&silent));
        self.continue_check(now);
    }

    /// Reads CPU times for one slice. The broker gets the result of a complete check; then the
    /// caller must execute the broker's effects.
    pub(super) fn continue_check(&mut self, now: Monotonic) {
        let threads = &self.threads;
        let checked = self.canaries.cpu_times.run_slice(|thread| threads.cpu_time(thread));
        if let Some((silent, mut consumed)) = checked {
            // A thread that was detached meanwhile has had a last sample.
            consumed.retain(|&(thread, _)| threads.is_applied(thread));
            self.broker.handle(now, Input::CanariesChecked { silent, consumed });
        }
    }
}
