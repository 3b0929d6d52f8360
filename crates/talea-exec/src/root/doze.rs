//! Workers that are awake by themselves when their next jobs come.
//!
//! Model: a worker that waits for a job sleeps until that job's arrival, below its dispatcher; is awake then, steps the machine as the
//! dispatcher would, and goes on into its job if that is to run. Such a job costs one wake, its worker's own, and is there as soon as
//! a thread that Linux alone schedules. In one of two manners:
//!
//! A *prompt* worker sleeps above whoever runs, and is awake in time. If its job is not to run yet it sleeps on until it is called, and
//! has cost a wake as the dispatcher's would have been. One that no arrival interrupts ([`Machine::is_interrupted_by_nobody`]) may stay above
//! the others for its job; another prompt one that comes meanwhile is late then, and told late, but before the end of that job.
//!
//! A *patient* one sleeps where whoever runs stands, and is awake when nobody of its root computes. While somebody does the arrival is told
//! late, at the next step, whoever makes it: the end of a job is one. Only tasks whose arrivals change nothing before that may do so
//! ([`Machine::interrupts_nobody`]).
//!
//! An arrival behind an unfinished job of the same task is told late in both manners ([`Machine::queues_behind_itself`]). The machine is
//! told of late arrivals before everything that happened later, so that it does the same as if it had been told in time; at the end
//! of the run at the latest ([`Root::conclude`]).
//!
//! Of several that come at one instant one is armed, the prompt before the patient, and its step tells of all of them; the others are
//! *covered*.
//!
//! Invariant: an arrival is missing among the alarms, which the dispatcher is awake for, only while its task has an unfinished job,
//! whose end is a step, or while a worker is armed for its instant.
//!
//! Absent on purpose: arrivals that are seen later than they count from (jitter), which may come before whoever runs; and patience that
//! depends on who runs, which costs as many rings as it saves wakes.
//!
//! [`Machine::interrupts_nobody`]: talea_core::machine::Machine::interrupts_nobody
//! [`Machine::is_interrupted_by_nobody`]: talea_core::machine::Machine::is_interrupted_by_nobody
//! [`Machine::queues_behind_itself`]: talea_core::machine::Machine::queues_behind_itself

use super::Root;
use crate::mechanism::Mechanism;
use crate::record::{Log, What};
use talea_core::Time;
use talea_core::machine::TaskId;

/// So many workers may sleep like this at a time: whoever wants to looks at all others.
const MOST: usize = 64;

/// How a worker is awake by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Prompt,
    Patient,
}

/// A worker that waits for a job that comes.
#[derive(Clone, Copy, Debug)]
struct Dozer {
    task: TaskId,
    manner: Manner,
    until: Time,
    /// It is awake by itself then; otherwise another one is.
    is_armed: bool,
}

/// Who sleeps like this, and who may.
#[derive(Debug)]
pub(super) struct Dozers {
    /// By task; none: its worker is called.
    manners: Vec<Option<Manner>>,
    /// By task: no arrival interrupts it.
    calm: Vec<bool>,
    asleep: Vec<Dozer>,
}

impl Dozers {
    pub(super) fn new(tasks: usize) -> Dozers {
        Dozers { manners: vec![None; tasks], calm: vec![false; tasks], asleep: Vec::with_capacity(MOST) }
    }
}

impl<M: Mechanism> Root<M> {
    /// Its workers step it, at priorities of its own: those may come by themselves whom nobody has to be interrupted for, and, if there
    /// is a level above whoever runs (`is_roomy`), those who may interrupt.
    pub(crate) fn let_doze(&mut self, is_roomy: bool) {
        let manner = |task: TaskId| {
            if self.machine.interrupts_nobody(task) {
                Some(Manner::Patient)
            } else {
                (is_roomy && self.machine.queues_behind_itself(task)).then_some(Manner::Prompt)
            }
        };
        let tasks = || (0..self.loads.len() as u32).map(TaskId);
        self.dozers.manners = tasks().map(manner).collect();
        self.dozers.calm = tasks().map(|task| self.machine.is_interrupted_by_nobody(task)).collect();
    }

    fn manner(&self, task: TaskId) -> Option<Manner> {
        self.dozers.manners[task.0 as usize]
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
        if self.manner(task).is_some() && !self.is_idle(task) && arrival.nominal == arrival.seen {
            self.alarms.remove(task.0);
        } else {
            self.alarms.set(task.0, arrival.seen.as_ns());
        }
    }

    /// A job of `task` has ended: if that was the last, somebody has to be awake for the next.
    pub(super) fn look_out(&mut self, task: TaskId) {
        if self.manner(task).is_some() && self.is_idle(task) {
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
            && self.manner(TaskId(task)).is_some()
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

    /// The worker of `task`, which steps, waits for a job: until when it is to sleep by itself; nothing: until it is called.
    pub(crate) fn doze(&mut self, task: TaskId) -> Result<Option<Time>, M::Error> {
        let Some(manner) = self.manner(task) else { return Ok(None) };
        if self.closed || self.stopped || !self.is_idle(task) || self.dozers.asleep.len() == MOST {
            return Ok(None);
        }
        let Some(arrival) = self.loads[task.0 as usize].next().filter(|next| next.nominal == next.seen)
        else {
            return Ok(None);
        };
        let until = arrival.seen;
        self.alarms.remove(task.0);
        if self.general() == until {
            // The dispatcher is awake then anyway.
            self.alarms.set(task.0, until.as_ns());
            return Ok(None);
        }
        // A patient one may be awake too late for a prompt one.
        let covers = |other: &Dozer| {
            other.until == until
                && other.is_armed
                && (other.manner == Manner::Prompt || other.manner == manner)
        };
        let is_armed = !self.dozers.asleep.iter().any(covers);
        self.dozers.asleep.push(Dozer { task, manner, until, is_armed });
        if is_armed && manner == Manner::Prompt {
            self.mechanism.ready(task, self.dozers.calm[task.0 as usize])?;
        }
        Ok(is_armed.then_some(until))
    }

    /// The worker of `task` is awake by itself, at `now`: whether the root is to be stepped. If not, somebody has told of its
    /// arrival already, and calls the worker when it is to run.
    pub(crate) fn comes(&mut self, task: TaskId, now: Time) -> bool {
        let Some(dozer) = self.dozers.asleep.iter().find(|dozer| dozer.task == task) else { return false };
        let (due, manner) = (dozer.until, dozer.manner);
        // While somebody computes a patient one is not late.
        if manner == Manner::Prompt || self.running[0].is_none() {
            self.awake(0, due, now.max(due));
        }
        true
    }
}
