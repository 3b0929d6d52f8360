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
//! These functions change the state; the functions of the same names of [`Executor`] call them and
//! do what a transition asks of the engine, the mechanism and the log. All run under the root lock.
//! `on_timer_expired` of an armed worker starts a step: that step delivers the release (armed to
//! expired) and, if the job is dispatched, assigns it (expired to off).
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
//! is not among the [late wake-ups](super::Executor::late_wakeups), which excuse deviations. The
//! order stands meanwhile: [`violations`](crate::kernel_check::violations) counts the idle time
//! against it, together with stalls. The lost time of an audited order shrinks by the same amount.
//! A run without the kernel's switch trace cannot separate the two causes; it would have to read
//! the clock at the start of each such job.
//!
//! Absent on purpose: releases with jitter (E4), and moving a worker to another level, which costs
//! as much as it saves.
//!
//! [`Executor`]: super::Executor
//! [`Executor::finish_run`]: super::Executor::finish_run
//! [`Engine::preemption_levels`]: talea_core::engine::Engine::preemption_levels
//! [`Engine::release_may_be_deferred`]: talea_core::engine::Engine::release_may_be_deferred
//! [`Engine::cannot_preempt`]: talea_core::engine::Engine::cannot_preempt

use crate::load::Arrival;
use talea_core::Time;
use talea_core::engine::TaskId;
use talea_core::heap::Heap;
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

/// Part of a task in the protocol.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// FIFO level of the worker; level 0 is the highest.
    level: u8,
    /// Whether the task may have a release timer (E1 and E2 of the module head).
    is_eligible: bool,
    /// Whether the timer was armed when another step delivered the release. The worker has neither
    /// run since then nor received its job.
    has_expired: bool,
}

/// State that [`ReleaseTimers::arm`] chose for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arming {
    /// *Off*: the worker waits for a notification.
    Off,
    /// *Armed*: the worker sleeps until the release.
    Armed,
    /// *Coalesced*: the worker waits for a notification.
    Coalesced,
}

/// Timeout of a worker whose release no step has delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expiry {
    pub(super) due: Time,
    /// Whether another worker of the same or a higher level delayed this one.
    pub(super) is_behind: bool,
}

/// Releases of a root: their times, and the thread that wakes for each.
#[derive(Debug)]
pub(super) struct ReleaseTimers {
    /// Next release of each task.
    releases: Heap,
    /// Releases for which the executor has to wake a dispatcher.
    dispatcher_alarms: Heap,
    members: Vec<Member>,
    waiting: Vec<ReleaseTimer>,
    /// Task that left the state *expired* in this step because its job was assigned.
    already_awake: Option<TaskId>,
}

impl ReleaseTimers {
    pub(super) fn new(tasks: usize) -> ReleaseTimers {
        ReleaseTimers {
            releases: Heap::new(tasks),
            dispatcher_alarms: Heap::new(tasks),
            members: vec![Member::default(); tasks],
            waiting: Vec::with_capacity(MAX_TIMERS),
            already_awake: None,
        }
    }

    /// Sets the FIFO level of each task, and whether the task is eligible: element `n` for task
    /// `n`.
    pub(super) fn enable(&mut self, members: impl Iterator<Item = (u8, bool)>) {
        for (member, (level, is_eligible)) in self.members.iter_mut().zip(members) {
            *member = Member { level, is_eligible, ..*member };
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

    pub(super) fn is_eligible(&self, task: TaskId) -> bool {
        self.members[task.0 as usize].is_eligible
    }

    fn level(&self, task: TaskId) -> u8 {
        self.members[task.0 as usize].level
    }

    /// Schedules the next release of `task`, and an alarm of a dispatcher unless I1(a) holds.
    /// `is_idle` says whether the task has no unfinished job.
    pub(super) fn schedule(&mut self, task: TaskId, next: Option<Arrival>, is_idle: bool) {
        let Some(arrival) = next else {
            self.releases.remove(task.0);
            self.dispatcher_alarms.remove(task.0);
            return;
        };
        self.releases.set(task.0, arrival.observed.as_ns());
        // The end of the unfinished job delivers this release at the latest.
        if self.is_eligible(task) && !is_idle && arrival.nominal == arrival.observed {
            self.dispatcher_alarms.remove(task.0);
        } else {
            self.dispatcher_alarms.set(task.0, arrival.observed.as_ns());
        }
    }

    /// Returns the task of the first release, if that is due at `now`.
    pub(super) fn first_due(&self, now: Time) -> Option<TaskId> {
        self.releases.first().filter(|&(at, _)| at <= now.as_ns()).map(|(_, task)| TaskId(task))
    }

    /// Returns the task of the first release, if that is before `until` and in no alarm.
    pub(super) fn first_overdue(&self, until: Time) -> Option<TaskId> {
        let (at, task) = self.releases.first()?;
        let is_overdue = at < until.as_ns()
            && self.is_eligible(TaskId(task))
            && !self.dispatcher_alarms.contains(task);
        is_overdue.then_some(TaskId(task))
    }

    /// Returns the first release for which a dispatcher has to wake.
    pub(super) fn next_alarm(&self) -> Time {
        self.dispatcher_alarms.first().map_or(Time::NEVER, |(at, _)| Time::from_ns(at))
    }

    /// Moves the timer of `task`, whose release was delivered, from armed to expired or
    /// from coalesced to off. Returns the time of the timer, if there was one.
    pub(super) fn on_release_delivered(&mut self, task: TaskId) -> Option<Time> {
        let at = self.waiting.iter().position(|timer| timer.task == task)?;
        let timer = self.waiting.swap_remove(at);
        // Its timeout has passed.
        self.members[task.0 as usize].has_expired =
            mutate!("exec-release-timer-sleepers", timer.is_armed, true);
        Some(timer.expires_at)
    }

    /// Moves the timer of `task` to off, because the task's worker gets a job. If the timer was
    /// still armed, the job is an activated one. Then the dispatcher gets the alarms of the timers
    /// that were coalesced with this timer.
    pub(super) fn on_job_assigned(&mut self, task: TaskId) {
        let is_awake = mutate!(
            "exec-release-timer-asked",
            false,
            self.waiting.iter().any(|timer| timer.task == task && timer.is_armed)
        );
        if std::mem::take(&mut self.members[task.0 as usize].has_expired) || is_awake {
            self.already_awake = Some(task);
        }
        let Some(at) = self.waiting.iter().position(|timer| timer.task == task) else {
            return;
        };
        let removed = self.waiting.swap_remove(at);
        if mutate!(
            "exec-release-timer-covered",
            removed.is_armed,
            removed.is_armed && removed.expires_at == Time::NEVER
        ) {
            self.alarm_coalesced(removed.expires_at);
        }
    }

    /// Moves the timers that were coalesced at `at` to off, with an alarm of the dispatcher.
    fn alarm_coalesced(&mut self, at: Time) {
        while let Some(index) = self.waiting.iter().position(|timer| timer.expires_at == at) {
            let coalesced = self.waiting.swap_remove(index);
            self.dispatcher_alarms.set(coalesced.task.0, coalesced.expires_at.as_ns());
        }
    }

    /// Moves the timer of `task` from expired to off, because the task's worker runs.
    pub(super) fn on_worker_runs(&mut self, task: TaskId) {
        self.members[task.0 as usize].has_expired = false;
    }

    /// Whether another timer may be armed (E5).
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < MAX_TIMERS
    }

    /// Arms or coalesces the timer of `task`, which fulfils E1 to E4, for its release at `until`.
    /// `other_event` is the next event for which a dispatcher wakes besides releases.
    pub(super) fn arm(&mut self, task: TaskId, until: Time, other_event: Time) -> Arming {
        mutate!(
            "exec-release-timer-armed",
            {
                self.dispatcher_alarms.remove(task.0);
            },
            self.dispatcher_alarms.set(task.0, until.as_ns())
        );
        if other_event.min(self.next_alarm()) == until {
            // The dispatcher is awake at that time anyway.
            self.dispatcher_alarms.set(task.0, until.as_ns());
            return Arming::Off;
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
        let is_armed = !self.waiting.iter().any(is_coalesced_with);
        self.waiting.push(ReleaseTimer { task, expires_at: until, is_armed });
        if is_armed { Arming::Armed } else { Arming::Coalesced }
    }

    /// Handles the timeout of the worker of `task`, while the CPU runs the worker of `running`.
    /// Returns `None` if another step has delivered the release.
    pub(super) fn on_timer_expired(
        &mut self,
        task: TaskId,
        running: Option<TaskId>,
    ) -> Option<Expiry> {
        mutate!("exec-release-timer-rising", self.on_worker_runs(task));

        let due = self.waiting.iter().find(|timer| timer.task == task)?.expires_at;
        let is_behind = running.is_some_and(|running| self.level(running) <= self.level(task));
        Some(Expiry { due, is_behind })
    }
}

/// Returns the FIFO level of each task; level 0 is for the highest preemption level. There are
/// `room` levels: the last one takes all tasks for which no level is left.
pub(super) fn fifo_levels(levels: &[u32], room: u8) -> Vec<u8> {
    let mut distinct = levels.to_vec();
    distinct.sort_unstable_by(|a, b| b.cmp(a));
    distinct.dedup();
    let last = usize::from(room.max(1)) - 1;
    let fifo_level = |level: &u32| distinct.partition_point(|other| other > level).min(last) as u8;
    levels.iter().map(fifo_level).collect()
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
