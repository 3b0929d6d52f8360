//! Releases: their delivery to the engine, and the workers that wake for them.
//!
//! The states of the timers and their transitions are in
//! [`release_timers`](super::release_timers).

use super::Executor;
use super::release_timers::{Arming, fifo_levels};
use crate::mechanism::Mechanism;
use crate::record::{Log, RecordKind};
use talea_core::Time;
use talea_core::engine::{Event, Handled, TaskId};
use talea_core::mutate;

impl<M: Mechanism> Executor<M> {
    /// Enables release timers on `room` FIFO levels, and moves the workers to their levels. Tasks
    /// that fulfil E1 and E2 of [`release_timers`](super::release_timers) are eligible.
    pub(crate) fn enable_release_timers(&mut self, room: u8) -> Result<(), M::Error> {
        let levels = fifo_levels(&self.engine.preemption_levels(), room);
        mutate!("exec-release-timer-behind", self.mechanism.set_levels(&levels)?);

        let tasks = || (0..self.tasks.len() as u32).map(TaskId);
        let is_above =
            |task: TaskId, other: TaskId| levels[task.0 as usize] < levels[other.0 as usize];
        let is_eligible = |task: TaskId| {
            let is_served = |other| {
                other == task || is_above(task, other) || self.engine.cannot_preempt(task, other)
            };
            self.engine.release_may_be_deferred(task)
                && mutate!("exec-release-timer-room", tasks().all(is_served), true)
        };
        self.releases.enable(levels.iter().copied().zip(tasks().map(is_eligible)));
        Ok(())
    }

    fn is_idle(&self, task: TaskId) -> bool {
        self.engine.backlog(task) == 0
    }

    /// Schedules the next release of `task`.
    pub(super) fn schedule_next_release(&mut self, task: TaskId) {
        let next = self.tasks[task.0 as usize].next_arrival();
        self.releases.schedule(task, next, self.is_idle(task));
    }

    /// Schedules the next release of `task` again after a completion. Without an unfinished job
    /// I1(a) no longer holds.
    pub(super) fn reschedule_after_completion(&mut self, task: TaskId) {
        if self.releases.is_eligible(task)
            && mutate!("exec-release-timer-slept", self.is_idle(task), !self.is_idle(task))
        {
            self.schedule_next_release(task);
        }
    }

    /// Delivers the next release of `task`.
    fn deliver_release(&mut self, task: TaskId, log: &mut Log) {
        let arrival = self.tasks[task.0 as usize].take_arrival().expect("a scheduled arrival");
        let nominal = self.switch.engine_time(arrival.nominal);
        if self.handle(log, Event::Arrived { task, arrival: nominal }) == Handled::Refused {
            self.refused += 1;
        }
        if let Some(planned) = self.releases.on_release_delivered(task) {
            mutate!(
                "exec-release-timer-excuse",
                {
                    let _ = planned;
                },
                self.record_wakeup(0, planned, self.now)
            );
        }
        self.schedule_next_release(task);
    }

    /// Delivers the releases that are due.
    pub(super) fn deliver_due_releases(&mut self, log: &mut Log) {
        while let Some(task) = self.releases.first_due(self.now) {
            self.deliver_release(task, log);
        }
    }

    /// Delivers the overdue releases that are in no alarm, in the order of their times. Stops at
    /// the first release that is later than another event.
    pub(super) fn deliver_overdue_releases(&mut self, log: &mut Log) {
        let until = self.now.min(self.timed_events.next());
        while let Some(task) = self.releases.first_overdue(until) {
            self.deliver_release(task, log);
        }
    }

    /// Delivers all releases before `end` when the run ends, so that the engine counts them. No
    /// order follows.
    pub(crate) fn finish_run(&mut self, end: Time, log: &mut Log) {
        if mutate!("exec-release-timer-end", !self.closed, self.closed) && !self.stopped {
            self.now = self.now.max(end);
            self.record(log, RecordKind::Step);
            self.deliver_overdue_releases(log);
            self.drain_refusals();
        }
    }

    /// Arms a timer for the worker of `task`, which has stepped and now waits for a job. Returns
    /// the time until which the worker sleeps. Returns `None` if the worker waits for a
    /// notification.
    pub(crate) fn arm_release_timer(&mut self, task: TaskId) -> Result<Option<Time>, M::Error> {
        // The worker is running; its timer may have expired in this very step.
        mutate!("exec-release-timer-risen", self.releases.on_worker_runs(task));

        if !self.releases.is_eligible(task)
            || self.closed
            || self.stopped
            || !self.is_idle(task)
            || !self.releases.has_room()
        {
            return Ok(None);
        }
        let next = self.tasks[task.0 as usize].next_arrival();
        let Some(arrival) = next.filter(|next| next.nominal == next.observed) else {
            return Ok(None);
        };
        let other_event = self.engine.next_timer().min(self.timed_events.next());
        match self.releases.arm(task, arrival.observed, other_event) {
            Arming::Off | Arming::Coalesced => Ok(None),
            Arming::Armed => {
                self.mechanism.unpark(task)?;
                Ok(Some(arrival.observed))
            }
        }
    }

    /// Handles the timeout of the worker of `task` at `now`. Returns whether the worker must step
    /// the root. If not, another step has delivered the release, and the worker is notified when
    /// its job is dispatched.
    pub(crate) fn on_timer_expired(&mut self, task: TaskId, now: Time) -> bool {
        let running = self.cpus[0].running().map(|assignment| assignment.task);
        let Some(expiry) = self.releases.on_timer_expired(task, running) else { return false };
        // A worker behind one of the same or a higher level is not late.
        if mutate!("exec-release-timer-delivered", !expiry.is_behind, expiry.is_behind) {
            self.record_wakeup(0, expiry.due, now.max(expiry.due));
        }
        true
    }
}
