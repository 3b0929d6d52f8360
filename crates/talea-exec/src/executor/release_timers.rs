//! Release timers: workers that wake themselves at their next release.
//!
//! Model: a worker that waits for its next job can sleep with a timeout, the release time of that
//! job. At the timeout it steps the engine itself and runs its job if the engine dispatches it.
//! Such a job costs one wake-up, that of its worker, and no wake-up of the dispatcher. Each worker
//! has a FIFO *level*, 0 the highest, derived from its preemption level
//! ([`Engine::preemption_levels`]). At the timeout the kernel therefore runs the worker at once
//! where its release may preempt. Where it may not, the worker stays runnable behind the running
//! one, and its release is *overdue*: the next step delivers it. The end of the running job is such
//! a step. The engine receives an overdue release with its own time and before all later events, so
//! it decides as if it had been on time.
//!
//! | state of a task | `waiting` | `expired` | its worker | who delivers its next release |
//! | --- | --- | --- | --- | --- |
//! | *off* | no entry | no | runs, or waits for a notification | the dispatcher (alarm), or I1(a) |
//! | *armed* | `is_armed` | no | sleeps until `expires_at` | this worker, or an earlier step |
//! | *coalesced* | not `is_armed` | no | waits for a notification | the worker of an armed timer |
//! | *expired* | no entry | yes | wakes at once, timeout passed | delivered already |
//!
//! | from | to | function | step made by | condition |
//! | --- | --- | --- | --- | --- |
//! | any | armed | `arm_release_timer` | this worker, at its end | E1 to E5 |
//! | any | coalesced | `arm_release_timer` | this worker, at its end | E1 to E5; I2 holds |
//! | any | off | `arm_release_timer` | this worker, at its end | otherwise |
//! | armed | expired | `on_release_delivered` | any | its release was delivered |
//! | coalesced | off | `on_release_delivered` | any | its release was delivered |
//! | armed, coalesced | off | `on_job_assigned` | any | an activated job came first |
//! | coalesced | off, alarm set | `on_job_assigned` | any | the armed timer of its time was removed |
//! | expired | off | `on_job_assigned` | any | its job starts: no wake system call |
//! | expired | off | `on_timer_expired` | no step | its job has not started: it waits again |
//!
//! All functions run under the root lock. `on_timer_expired` of an armed worker starts a step: that
//! step delivers the release (armed to expired) and, if the job is dispatched, assigns it (expired
//! to off).
//!
//! Eligibility, checked once (E1, E2) or at each arming (E3 to E5):
//!
//! - E1. A release behind an unfinished job of the same task may be deferred to the end of that job
//!   ([`Engine::release_may_be_deferred`]).
//! - E2. For every other task, the worker has a higher level, or its releases cannot preempt that
//!   task ([`Engine::cannot_preempt`]).
//! - E3. The task has no unfinished job, and the root is neither closed nor stopped.
//! - E4. The next release has no jitter: one with jitter could come before the running job ends and
//!   yet count from earlier.
//! - E5. Fewer than [`MAX_TIMERS`] timers are in use, and the dispatcher is not awake at that time
//!   for another reason.
//!
//! Invariants:
//!
//! - I1. An arrival is missing in `dispatcher_alarms` only while (a) its task has an unfinished
//!   job, whose end is a step, or (b) a timer is armed for its time.
//! - I2. For each coalesced timer an armed one has the same `expires_at` and the same or a higher
//!   level.
//! - I3. `expired` implies that the timeout of the worker has passed by the clock: the worker runs
//!   without a wake system call.
//! - I4. A release is delivered before every event that is later than it, and before the run ends
//!   ([`Executor::finish_run`]).
//!
//! *Late timers.* I3 is by the clock; this code cannot see whether the timer interrupt has come.
//! Where it has not, the CPU idles after the dispatch order until the interrupt comes. The job
//! starts no later than it would without the earlier step: what is lost is at most the lateness of
//! the timer. That time is the price of the omitted system call and belongs to the executor. So it
//! is not among the [late wake-ups](Executor::late_wakeups), which excuse deviations. The order
//! stands meanwhile: [`violations`](crate::kernel_check::violations) counts the idle time against
//! it, together with stalls. The lost time of an audited order shrinks by the same amount. A run
//! without the kernel's switch trace cannot separate the two causes; it would have to read the
//! clock at the start of each such job.
//!
//! Absent on purpose: releases with jitter (E4), and moving a worker to another level, which costs
//! as much as it saves.
//!
//! [`Engine::preemption_levels`]: talea_core::engine::Engine::preemption_levels
//! [`Engine::release_may_be_deferred`]: talea_core::engine::Engine::release_may_be_deferred
//! [`Engine::cannot_preempt`]: talea_core::engine::Engine::cannot_preempt

use super::Executor;
use crate::mechanism::Mechanism;
use crate::record::{Log, RecordKind};
use talea_core::Time;
use talea_core::engine::TaskId;
use talea_core::mutate;

/// Maximum number of release timers in use. Arming a timer scans all others.
const MAX_TIMERS: usize = 64;

/// The release timer of a task whose worker waits for its next job.
#[derive(Clone, Copy, Debug)]
struct ReleaseTimer {
    task: TaskId,
    expires_at: Time,
    /// Whether the worker sleeps until `expires_at`. Otherwise the worker of another timer delivers
    /// the release.
    is_armed: bool,
}

/// Release timers of a root, and the tasks that may have one.
#[derive(Debug)]
pub(super) struct ReleaseTimers {
    /// `levels[n]`: FIFO level of the worker of task `n`; level 0 is the highest.
    levels: Vec<u8>,
    /// `eligible[n]`: whether task `n` may have a release timer (E1 and E2 of the module head).
    eligible: Vec<bool>,
    waiting: Vec<ReleaseTimer>,
    /// `expired[n]`: whether the timer of task `n` was armed when another step delivered its
    /// release. The worker of task `n` has neither run since then nor received its job.
    expired: Vec<bool>,
    /// Task that left the state *expired* in this step because its job was assigned.
    already_awake: Option<TaskId>,
}

impl ReleaseTimers {
    pub(super) fn new(tasks: usize) -> ReleaseTimers {
        let waiting = Vec::with_capacity(MAX_TIMERS);
        ReleaseTimers {
            levels: vec![0; tasks],
            eligible: vec![false; tasks],
            waiting,
            expired: vec![false; tasks],
            already_awake: None,
        }
    }

    /// Starts a step.
    pub(super) fn begin_step(&mut self) {
        self.already_awake = None;
    }

    /// Whether the worker of `task`, whose job was assigned in this step, wakes by its own timer
    /// and needs no wake system call.
    pub(super) fn is_already_awake(&self, task: TaskId) -> bool {
        mutate!(
            "exec-release-timer-up",
            self.already_awake == Some(task),
            self.already_awake == Some(task) && self.waiting.len() == MAX_TIMERS
        )
    }
}

/// Returns the FIFO level of each task; level 0 is for the highest preemption level. There are
/// `room` levels: the last one takes all tasks for which no level is left.
fn fifo_levels(levels: &[u32], room: u8) -> Vec<u8> {
    let mut distinct = levels.to_vec();
    distinct.sort_unstable_by(|a, b| b.cmp(a));
    distinct.dedup();
    let last = usize::from(room.max(1)) - 1;
    let fifo_level = |level: &u32| distinct.partition_point(|other| other > level).min(last) as u8;
    levels.iter().map(fifo_level).collect()
}

impl<M: Mechanism> Executor<M> {
    /// Enables release timers on `room` FIFO levels, and moves the workers to their levels. Tasks
    /// that fulfil E1 and E2 of the module head are eligible.
    pub(crate) fn enable_release_timers(&mut self, room: u8) -> Result<(), M::Error> {
        let levels = fifo_levels(&self.engine.preemption_levels(), room);
        mutate!(
            "exec-release-timer-behind",
            {
                self.mechanism.set_levels(&levels)?;
            },
            {}
        );

        let tasks = || (0..self.loads.len() as u32).map(TaskId);
        let is_above =
            |task: TaskId, other: TaskId| levels[task.0 as usize] < levels[other.0 as usize];
        let is_eligible = |task: TaskId| {
            let is_served = |other| {
                other == task || is_above(task, other) || self.engine.cannot_preempt(task, other)
            };
            self.engine.release_may_be_deferred(task)
                && mutate!("exec-release-timer-room", tasks().all(is_served), true)
        };
        self.timers.eligible = tasks().map(is_eligible).collect();
        self.timers.levels = levels;
        Ok(())
    }

    fn level(&self, task: TaskId) -> u8 {
        self.timers.levels[task.0 as usize]
    }

    fn is_eligible(&self, task: TaskId) -> bool {
        self.timers.eligible[task.0 as usize]
    }

    fn is_idle(&self, task: TaskId) -> bool {
        self.engine.backlog(task) == 0
    }

    /// Schedules the next release of `task`: in `arrivals`, and in `dispatcher_alarms` unless I1(a)
    /// holds.
    pub(super) fn schedule_next_release(&mut self, task: TaskId) {
        let Some(arrival) = self.loads[task.0 as usize].next() else {
            self.arrivals.remove(task.0);
            self.dispatcher_alarms.remove(task.0);
            return;
        };
        self.arrivals.set(task.0, arrival.observed.as_ns());
        // The end of the unfinished job delivers this release at the latest.
        if self.is_eligible(task) && !self.is_idle(task) && arrival.nominal == arrival.observed {
            self.dispatcher_alarms.remove(task.0);
        } else {
            self.dispatcher_alarms.set(task.0, arrival.observed.as_ns());
        }
    }

    /// Schedules the next release of `task` again after a completion. Without an unfinished job
    /// I1(a) no longer holds.
    pub(super) fn reschedule_after_completion(&mut self, task: TaskId) {
        if self.is_eligible(task)
            && mutate!("exec-release-timer-slept", self.is_idle(task), !self.is_idle(task))
        {
            self.schedule_next_release(task);
        }
    }

    /// Delivers the overdue releases that are in no alarm, in the order of their times. Stops at
    /// the first release that is later than another event.
    pub(super) fn deliver_overdue_releases(&mut self, log: &mut Log) {
        let change = self.changes.get(self.next_change).map_or(u64::MAX, |&(at, _)| at.as_ns());
        let woken = self.resumptions.first().map_or(u64::MAX, |(at, _)| at);
        let until = self.now.as_ns().min(change).min(woken);
        while let Some((at, task)) = self.arrivals.first()
            && at < until
            && self.is_eligible(TaskId(task))
            && !self.dispatcher_alarms.contains(task)
        {
            self.deliver_release(TaskId(task), log);
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

    /// Moves the timer of `task`, whose release was delivered, from armed to expired or from
    /// coalesced to off.
    pub(super) fn on_release_delivered(&mut self, task: TaskId) {
        let Some(at) = self.timers.waiting.iter().position(|timer| timer.task == task) else {
            return;
        };
        let timer = self.timers.waiting.swap_remove(at);
        // Its timeout has passed.
        self.timers.expired[task.0 as usize] =
            mutate!("exec-release-timer-sleepers", timer.is_armed, timer.expires_at <= self.now);
        mutate!("exec-release-timer-excuse", {}, self.record_wakeup(0, timer.expires_at, self.now));
    }

    /// Moves the timer of `task` to off, because the task's worker gets a job. If the timer was
    /// still armed, the job is an activated one. Then the dispatcher gets the alarms of the timers
    /// that were coalesced with this timer.
    pub(super) fn on_job_assigned(&mut self, task: TaskId) {
        let is_awake = mutate!(
            "exec-release-timer-asked",
            false,
            self.timers.waiting.iter().any(|timer| timer.task == task && timer.is_armed)
        );
        if std::mem::take(&mut self.timers.expired[task.0 as usize]) || is_awake {
            self.timers.already_awake = Some(task);
        }
        let Some(at) = self.timers.waiting.iter().position(|timer| timer.task == task) else {
            return;
        };
        let removed = self.timers.waiting.swap_remove(at);
        mutate!(
            "exec-release-timer-covered",
            if removed.is_armed {
                while let Some(at) = self
                    .timers
                    .waiting
                    .iter()
                    .position(|timer| timer.expires_at == removed.expires_at)
                {
                    let coalesced = self.timers.waiting.swap_remove(at);
                    self.dispatcher_alarms.set(coalesced.task.0, coalesced.expires_at.as_ns());
                }
            },
            if removed.is_armed && removed.expires_at == Time::NEVER {
                while let Some(at) = self
                    .timers
                    .waiting
                    .iter()
                    .position(|timer| timer.expires_at == removed.expires_at)
                {
                    let coalesced = self.timers.waiting.swap_remove(at);
                    self.dispatcher_alarms.set(coalesced.task.0, coalesced.expires_at.as_ns());
                }
            }
        )
    }

    /// Arms a timer for the worker of `task`, which has stepped and now waits for a job. Returns
    /// the time until which the worker sleeps. Returns `None` if the worker waits for a
    /// notification.
    pub(crate) fn arm_release_timer(&mut self, task: TaskId) -> Result<Option<Time>, M::Error> {
        // The worker is running; its timer may have expired in this very step.
        mutate!(
            "exec-release-timer-risen",
            {
                self.timers.expired[task.0 as usize] = false;
            },
            {}
        );

        if !self.is_eligible(task)
            || self.closed
            || self.stopped
            || !self.is_idle(task)
            || self.timers.waiting.len() == MAX_TIMERS
        {
            return Ok(None);
        }
        let Some(arrival) =
            self.loads[task.0 as usize].next().filter(|next| next.nominal == next.observed)
        else {
            return Ok(None);
        };
        let until = arrival.observed;
        mutate!(
            "exec-release-timer-armed",
            {
                self.dispatcher_alarms.remove(task.0);
            },
            self.dispatcher_alarms.set(task.0, until.as_ns())
        );
        if self.next_non_budget_event() == until {
            // The dispatcher is awake at that time anyway.
            self.dispatcher_alarms.set(task.0, until.as_ns());
            return Ok(None);
        }
        // The worker of a lower level could run too late.
        let is_coalesced_with = |other: &ReleaseTimer| {
            other.expires_at == until
                && other.is_armed
                && mutate!(
                    "exec-release-timer-convoy",
                    self.level(other.task) <= self.level(task),
                    self.level(other.task) != 99
                )
        };
        let is_armed = !self.timers.waiting.iter().any(is_coalesced_with);
        self.timers.waiting.push(ReleaseTimer { task, expires_at: until, is_armed });
        if is_armed {
            self.mechanism.unpark(task)?;
        }
        Ok(is_armed.then_some(until))
    }

    /// Handles the timeout of the worker of `task` at `now`. Returns whether the worker must step
    /// the root. If not, another step has delivered the release, and the worker is notified when
    /// its job is dispatched.
    pub(crate) fn on_timer_expired(&mut self, task: TaskId, now: Time) -> bool {
        mutate!(
            "exec-release-timer-rising",
            {
                self.timers.expired[task.0 as usize] = false;
            },
            {}
        );

        let Some(timer) = self.timers.waiting.iter().find(|timer| timer.task == task) else {
            return false;
        };
        let due = timer.expires_at;
        // A worker behind one of the same or a higher level is not late.
        let is_behind = self.running[0]
            .is_some_and(|assignment| self.level(assignment.task) <= self.level(task));
        if mutate!("exec-release-timer-delivered", !is_behind, is_behind) {
            self.record_wakeup(0, due, now.max(due));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::fifo_levels;

    #[test]
    fn s8_the_highest_preemption_level_gets_level_0_and_the_last_level_takes_all_others() {
        let levels = [5, 0, 2, 5, 9];
        assert_eq!(fifo_levels(&levels, 40), [1, 3, 2, 1, 0]);
        assert_eq!(fifo_levels(&levels, 4), [1, 3, 2, 1, 0]);
        assert_eq!(fifo_levels(&levels, 2), [1, 1, 1, 1, 0]);
        assert_eq!(fifo_levels(&levels, 1), [0; 5]);
        assert_eq!(fifo_levels(&[0; 3], 40), [0; 3]);
    }
}
