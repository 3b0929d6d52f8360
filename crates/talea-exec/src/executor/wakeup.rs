//! Wake-up times of dispatchers.
//!
//! | event | dispatcher that wakes for it |
//! | --- | --- |
//! | a budget ends on CPU c | the one of c, because the clock of c's worker stands still meanwhile |
//! | any other timed event | the one that wakes first; the others rely on it (W1) |
//!
//! Invariants, after each `next_wakeup` under the root lock:
//!
//! - W1. At least one `wakeup` of a CPU is not later than `next_non_budget_event`.
//! - W2. The `wakeup` of CPU c is not later than the time at which the budget in use on c is to be
//!   checked.
//! - W3. A step by a worker may break W1 or W2; `notify_late_dispatchers` then reports the
//!   dispatchers to notify, and the worker notifies them after it has released the lock.
//!
//! The sleep until a budget is checked is in [`budget_sleep`](super::budget_sleep).

use super::Executor;
use crate::mechanism::Mechanism;
use talea_core::engine::Cpu;
use talea_core::mutate;
use talea_core::{Span, Time};

impl<M: Mechanism> Executor<M> {
    /// Sets the minimum wake-up latency of the dispatcher of `cpu`.
    pub(crate) fn calibrate_latency(&mut self, cpu: usize, late: Span) {
        self.cpus[cpu].budget_sleep.calibrate(late);
    }

    /// Returns the time of the next event that is not the end of a budget and that no worker
    /// delivers.
    fn next_non_budget_event(&self) -> Time {
        let timer = self.switch.run_time(self.engine.next_timer()).min(self.switch.next_wakeup());
        timer.min(self.releases.next_alarm()).min(self.timed_events.next())
    }

    /// Returns the time at which the budget in use on `cpu` ends if its worker runs.
    pub(super) fn budget_end(&self, cpu: usize) -> Time {
        self.switch.run_time(self.engine.budget_end(Cpu(cpu as u32)))
    }

    /// Returns the wake-up time of the dispatcher of `cpu`, which has stepped and goes to sleep at
    /// `clock`. Calls `notify` for each other dispatcher that must wake earlier than planned (W2).
    pub(crate) fn next_wakeup(
        &mut self,
        cpu: usize,
        clock: Time,
        mut notify: impl FnMut(usize),
    ) -> Time {
        let next_event = self.next_non_budget_event();
        let mut first = Time::NEVER;
        for other in (0..self.cpus.len()).filter(|&other| other != cpu) {
            if self.budget_end(other) < self.cpus[other].wakeup {
                // It is notified now.
                self.cpus[other].wakeup = self.now;
                mutate!("exec-loop-ring", notify(other));
            }
            first = first.min(self.cpus[other].wakeup);
        }
        let own = self.budget_wakeup(cpu, clock);
        let wakeup = if first <= next_event { own } else { own.min(next_event) };
        self.cpus[cpu].wakeup = wakeup;
        wakeup
    }

    /// Calls `notify` for each other dispatcher that must wake earlier than planned, after a step
    /// by a worker on `cpu` (W3). When all jobs are done, it also calls `notify` for the dispatcher
    /// of `cpu`, which ends the run.
    pub(crate) fn notify_late_dispatchers(&self, cpu: usize, mut notify: impl FnMut(usize)) {
        let next_event = self.next_non_budget_event();
        for (other, state) in self.cpus.iter().enumerate() {
            let end = self.budget_end(other);
            let left = end.since(self.now.min(end));
            let check_at = self.now.saturating_add(state.budget_sleep.length_for(left));
            let is_used_up = mutate!(
                "exec-release-timer-free",
                mutate!("exec-root-state-alarm", end != Time::NEVER, end == Time::ZERO)
                    && check_at < state.wakeup,
                check_at < state.wakeup
            );
            let is_late = || self.cpus.iter().all(|cpu| cpu.wakeup > next_event);
            // Its `wakeup` stays: the worker notifies it later and may be preempted before that.
            if is_used_up || (other == cpu && (is_late() || self.is_done())) {
                notify(other);
            }
        }
    }

    /// Returns the time at which the dispatcher of `cpu` checks the budget in use.
    fn budget_wakeup(&mut self, cpu: usize, clock: Time) -> Time {
        let end = self.budget_end(cpu);
        let sleep = &mut self.cpus[cpu].budget_sleep;
        if end == Time::NEVER {
            sleep.clear();
            return end;
        }
        // The engine counts from the step, but the worker gets its CPU only now. Otherwise a longer
        // step would let the next check find less of the budget used.
        sleep.begin(clock.max(self.now), end.since(self.now.min(end)))
    }
}
