//! Workers that are awake by themselves when their next jobs come.
//!
//! Model: a worker that waits for a job sleeps until that job's arrival, below its dispatcher. So it is awake when the
//! job has come and nobody of its root computes, steps the machine as the dispatcher would, and goes on into its job: a job costs one
//! wake then, its worker's own. While somebody computes the arrival is told late, at the next step, whoever makes it: the end of
//! a job is one. Only tasks whose arrivals change nothing before that may do so ([`Machine::interrupts_nobody`]), and the machine
//! is told of such arrivals before everything that happens later, so that it does the same as if it had been told in time; at the end
//! of the run at the latest ([`Root::conclude`]).
//!
//! Of several that come at one instant one is armed, and its step tells of all of them; the others are *covered*.
//!
//! Invariant: an arrival is missing among the alarms, which the dispatcher is awake for, only while its task has an unfinished job,
//! whose end is a step, or while a worker is armed for its instant.
//!
//! Absent on purpose: arrivals that are seen later than they count from (jitter), which may come before whoever runs; and laziness that
//! depends on who runs, which costs as many rings as it saves wakes.
//!
//! [`Machine::interrupts_nobody`]: talea_core::machine::Machine::interrupts_nobody

use super::Root;
use crate::mechanism::Mechanism;
use crate::record::{Log, What};
use talea_core::Time;
use talea_core::machine::TaskId;

/// So many workers may sleep like this at a time: whoever wants to looks at all others.
const MOST: usize = 16;

/// A worker that waits for a job that comes.
#[derive(Clone, Copy, Debug)]
struct Dozer {
    task: TaskId,
    until: Time,
    /// It is awake by itself then; otherwise another one is.
    is_armed: bool,
}

/// Who sleeps like this, and who may.
#[derive(Debug)]
pub(super) struct Dozers {
    /// By task.
    may: Vec<bool>,
    asleep: Vec<Dozer>,
}

impl Dozers {
    pub(super) fn new(tasks: usize) -> Dozers {
        Dozers { may: vec![false; tasks], asleep: Vec::with_capacity(MOST) }
    }
}

impl<M: Mechanism> Root<M> {
    /// Its workers step it, at priorities of its own: those may come by themselves whom nobody has to be interrupted for.
    pub(crate) fn let_doze(&mut self) {
        for task in 0..self.dozers.may.len() {
            self.dozers.may[task] = self.machine.interrupts_nobody(TaskId(task as u32));
        }
    }

    fn is_idle(&self, task: TaskId) -> bool {
        self.machine.backlog(task) == 0
    }

    /// Notes when the next job of `task` comes.
    pub(super) fn expect(&mut self, task: TaskId) {
        let Some(arrival) = self.loads[task.0 as usize].next() else {
            self.arrivals.remove(task.0);
            self.alarms.remove(task.0);
            return;
        };
        self.arrivals.set(task.0, arrival.seen.as_ns());
        // What comes behind an unfinished job is told at its end at the latest.
        if self.dozers.may[task.0 as usize] && !self.is_idle(task) && arrival.nominal == arrival.seen {
            self.alarms.remove(task.0);
        } else {
            self.alarms.set(task.0, arrival.seen.as_ns());
        }
    }

    /// A job of `task` has ended: if that was the last, somebody has to be awake for the next.
    pub(super) fn look_out(&mut self, task: TaskId) {
        if self.dozers.may[task.0 as usize] && self.is_idle(task) {
            self.expect(task);
        }
    }

    /// Arrivals that nobody was awake for and that came before this instant; in their order, as far as nobody else's is between them.
    pub(super) fn catch_up(&mut self, log: &mut Log) {
        let change = self.changes.get(self.changed).map_or(u64::MAX, |&(at, _)| at.as_ns());
        let woken = self.wakes.first().map_or(u64::MAX, |(at, _)| at);
        let until = self.now.as_ns().min(change).min(woken);
        while let Some((at, task)) = self.arrivals.first()
            && at < until
            && self.dozers.may[task as usize]
            && !self.alarms.contains(task)
        {
            self.arrive(TaskId(task), log);
        }
    }

    /// The run ends: what came before `end` and nobody was awake for is told, so that it is known of. No order follows.
    pub(crate) fn conclude(&mut self, end: Time, log: &mut Log) {
        if !self.closed && !self.stopped {
            self.now = self.now.max(end);
            self.put(log, What::Step);
            self.catch_up(log);
            self.see_refused();
        }
    }

    /// An arrival of `task` was told: nobody is to be awake for it any more.
    pub(super) fn is_told(&mut self, task: TaskId) {
        self.dozers.asleep.retain(|dozer| dozer.task != task);
    }

    /// The worker of `task` was called. If that is for another job than the one that it slept for, somebody has asked for it: the dispatcher
    /// looks after whom that worker was armed for.
    pub(super) fn is_called(&mut self, task: TaskId) {
        let Some(at) = self.dozers.asleep.iter().position(|dozer| dozer.task == task) else { return };
        let called = self.dozers.asleep.swap_remove(at);
        if called.is_armed {
            while let Some(at) = self.dozers.asleep.iter().position(|dozer| dozer.until == called.until) {
                let covered = self.dozers.asleep.swap_remove(at);
                self.alarms.set(covered.task.0, covered.until.as_ns());
            }
        }
    }

    /// The worker of `task` waits for a job: until when it is to sleep by itself; nothing: until it is called.
    pub(crate) fn doze(&mut self, task: TaskId) -> Option<Time> {
        if !self.dozers.may[task.0 as usize] || self.closed || self.stopped || !self.is_idle(task) {
            return None;
        }
        let arrival = self.loads[task.0 as usize].next()?;
        let until = arrival.seen;
        if arrival.nominal != until || self.dozers.asleep.len() == MOST {
            return None;
        }
        self.alarms.remove(task.0);
        if self.general() == until {
            // The dispatcher is awake then anyway.
            self.alarms.set(task.0, until.as_ns());
            return None;
        }
        let is_armed = !self.dozers.asleep.iter().any(|other| other.until == until);
        self.dozers.asleep.push(Dozer { task, until, is_armed });
        is_armed.then_some(until)
    }

    /// The worker of `task` is awake by itself, at `now`: whether the root is to be stepped. If not, somebody has told of its
    /// arrival already, and calls the worker when it is to run.
    pub(crate) fn comes(&mut self, task: TaskId, now: Time) -> bool {
        let Some(dozer) = self.dozers.asleep.iter().find(|dozer| dozer.task == task) else { return false };
        let due = dozer.until;
        // Whoever computed meanwhile was not late, and neither is this one.
        if self.running[0].is_none() {
            self.awake(0, due, now.max(due));
        }
        true
    }
}
