//! Workers that are awake by themselves when their next jobs come.
//!
//! Model: a worker that waits for a job sleeps until that job's arrival, below its dispatcher; is
//! awake then, steps the machine as the dispatcher would, and goes on into its job if that is to
//! run. Such a job costs one wake, its worker's own, and is there as soon as a thread that Linux
//! alone schedules. Workers stand by *grades*, which are preemption levels
//! ([`Machine::preemption_levels`]), as many as there is room for: the kernel wakes a worker at
//! once where its arrival may take the CPU from whoever runs, and leaves it waiting, its timer
//! expired, where it may not. Then the arrival is told late, at the next step, whoever makes it:
//! the end of a job is one. The machine is told of it before everything that happened later, so
//! that it does the same as if it had been told in time; at the end of the run at the latest
//! ([`Root::conclude`]).
//!
//! Only tasks may do so that stand above everybody whom they may interrupt, and that queue behind
//! themselves ([`Machine::queues_behind_itself`]): what comes behind an unfinished job of the same
//! task is told at its end at the latest.
//!
//! Of several that come at one instant one is armed, and its step tells of all that stand no
//! higher; those are *covered*.
//!
//! Whoever was armed and is told of before it has come is *rising*: its timer is due, so it is
//! awake as soon as nobody stands in its way. If its job begins by then, it finds it there and is
//! not called, which spares a system call. If it comes before, it goes back to sleep and is called
//! like everybody.
//!
//! Due is by the clock; whether the timer's interrupt has come nobody can see here. Where it has
//! not, a CPU that is ordered to run the job idles until it does. No job begins later for that than
//! if there had been no step before its timer: what is lost is at most by how much that is late,
//! and never the job. It is the price of a call that was spared, and so ours: it is not among what
//! was [late](Root::late), which excuses. The order stands meanwhile, so
//! [`unobeyed`](crate::truth::unobeyed) holds the idle time against it, beside holes of the
//! machine, and by so much an audited order's stretch excuses less. A run that does not ask for the
//! kernel's switches can't tell it from what the machine takes; to see it for itself it would read
//! the clock at the begin of each such job.
//!
//! Invariant: an arrival is missing among the alarms, which the dispatcher is awake for, only while
//! its task has an unfinished job, whose end is a step, or while a worker is armed for its instant.
//!
//! Absent on purpose: arrivals that are seen later than they count from (jitter), which may come
//! before whoever runs; and moving a worker to another grade, which costs as much as it saves.
//!
//! [`Machine::preemption_levels`]: talea_core::machine::Machine::preemption_levels
//! [`Machine::queues_behind_itself`]: talea_core::machine::Machine::queues_behind_itself

use super::Root;
use crate::mechanism::Mechanism;
use crate::record::{Log, What};
use talea_core::Time;
use talea_core::machine::TaskId;
use talea_core::mutate;

/// So many workers may sleep like this at a time: whoever wants to looks at all others.
const MOST: usize = 64;

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
    /// By task: so many levels below the highest its worker stands.
    grades: Vec<u8>,
    /// By task: its worker may; others are called.
    may: Vec<bool>,
    asleep: Vec<Dozer>,
    /// By task: its worker's timer is due, somebody else has told of that, and it has neither come
    /// since nor begun.
    rising: Vec<bool>,
    /// Whose job has begun in this step and who was rising.
    up: Option<TaskId>,
}

impl Dozers {
    pub(super) fn new(tasks: usize) -> Dozers {
        let asleep = Vec::with_capacity(MOST);
        Dozers {
            grades: vec![0; tasks],
            may: vec![false; tasks],
            asleep,
            rising: vec![false; tasks],
            up: None,
        }
    }

    /// A step begins.
    pub(super) fn renew(&mut self) {
        self.up = None;
    }

    /// Whether `task`, whose job has begun in this step, need not be called: it is awake by itself.
    pub(super) fn is_up(&self, task: TaskId) -> bool {
        mutate!(
            "exec-doze-up",
            self.up == Some(task),
            self.up == Some(task) && self.asleep.len() == MOST
        )
    }
}

/// By task: which of so many grades the worker has, the highest first; the last one takes all for
/// whom there is no room.
fn grades(levels: &[u32], room: u8) -> Vec<u8> {
    let mut distinct = levels.to_vec();
    distinct.sort_unstable_by(|a, b| b.cmp(a));
    distinct.dedup();
    let last = usize::from(room.max(1)) - 1;
    let grade = |level: &u32| distinct.partition_point(|other| other > level).min(last) as u8;
    levels.iter().map(grade).collect()
}

impl<M: Mechanism> Root<M> {
    /// Its workers step it, and have so many levels of their own: those may come by themselves who
    /// stand above everybody whom they may interrupt.
    pub(crate) fn let_doze(&mut self, room: u8) -> Result<(), M::Error> {
        let grades = grades(&self.machine.preemption_levels(), room);
        mutate!(
            "exec-doze-behind",
            {
                self.mechanism.grade(&grades)?;
            },
            {}
        );

        let tasks = || (0..self.loads.len() as u32).map(TaskId);
        let is_above =
            |task: TaskId, other: TaskId| grades[task.0 as usize] < grades[other.0 as usize];
        let may = |task: TaskId| {
            let is_heard = |other| {
                other == task || is_above(task, other) || self.machine.leaves_alone(task, other)
            };
            self.machine.queues_behind_itself(task) && tasks().all(is_heard)
        };
        self.dozers.may = tasks().map(may).collect();
        self.dozers.grades = grades;
        Ok(())
    }

    fn grade(&self, task: TaskId) -> u8 {
        self.dozers.grades[task.0 as usize]
    }

    fn may_doze(&self, task: TaskId) -> bool {
        self.dozers.may[task.0 as usize]
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
        if self.may_doze(task) && !self.is_idle(task) && arrival.nominal == arrival.seen {
            self.alarms.remove(task.0);
        } else {
            self.alarms.set(task.0, arrival.seen.as_ns());
        }
    }

    /// A job of `task` has ended: if that was the last, somebody has to be awake for the next.
    pub(super) fn look_out(&mut self, task: TaskId) {
        if self.may_doze(task)
            && mutate!("exec-doze-slept", self.is_idle(task), !self.is_idle(task))
        {
            self.expect(task);
        }
    }

    /// Arrivals that nobody was awake for and that came before this instant; in their order, as far
    /// as nobody else's is between them.
    pub(super) fn catch_up(&mut self, log: &mut Log) {
        let change = self.changes.get(self.changed).map_or(u64::MAX, |&(at, _)| at.as_ns());
        let woken = self.wakes.first().map_or(u64::MAX, |(at, _)| at);
        let until = self.now.as_ns().min(change).min(woken);
        while let Some((at, task)) = self.arrivals.first()
            && at < until
            && self.may_doze(TaskId(task))
            && !self.alarms.contains(task)
        {
            self.arrive(TaskId(task), log);
        }
    }

    /// The run ends: what came before `end` and nobody was awake for is told, so that it is known
    /// of. No order follows.
    pub(crate) fn conclude(&mut self, end: Time, log: &mut Log) {
        if mutate!("exec-doze-end", !self.closed, self.closed) && !self.stopped {
            self.now = self.now.max(end);
            self.put(log, What::Step);
            self.catch_up(log);
            self.see_refused();
        }
    }

    /// An arrival of `task` was told: nobody is to be awake for it any more.
    pub(super) fn is_told(&mut self, task: TaskId) {
        let Some(at) = self.dozers.asleep.iter().position(|dozer| dozer.task == task) else {
            return;
        };
        // What it slept for has come.
        self.dozers.rising[task.0 as usize] = mutate!(
            "exec-doze-sleepers",
            self.dozers.asleep.swap_remove(at).is_armed,
            self.dozers.asleep.swap_remove(at).until <= self.now
        );
    }

    /// The worker of `task` gets a job. If that is another one than it slept for, somebody has
    /// asked for it: the dispatcher looks after whom that worker was armed for.
    pub(super) fn begins(&mut self, task: TaskId) {
        if std::mem::take(&mut self.dozers.rising[task.0 as usize]) {
            self.dozers.up = Some(task);
        }
        let Some(at) = self.dozers.asleep.iter().position(|dozer| dozer.task == task) else {
            return;
        };
        let called = self.dozers.asleep.swap_remove(at);
        mutate!(
            "exec-doze-covered",
            if called.is_armed {
                while let Some(at) =
                    self.dozers.asleep.iter().position(|dozer| dozer.until == called.until)
                {
                    let covered = self.dozers.asleep.swap_remove(at);
                    self.alarms.set(covered.task.0, covered.until.as_ns());
                }
            },
            if called.is_armed && called.until == Time::NEVER {
                while let Some(at) =
                    self.dozers.asleep.iter().position(|dozer| dozer.until == called.until)
                {
                    let covered = self.dozers.asleep.swap_remove(at);
                    self.alarms.set(covered.task.0, covered.until.as_ns());
                }
            }
        )
    }

    /// The worker of `task`, which steps, waits for a job: until when it is to sleep by itself;
    /// nothing: until it is called.
    pub(crate) fn doze(&mut self, task: TaskId) -> Result<Option<Time>, M::Error> {
        // It is about to sleep, and may have risen in this very step.
        mutate!(
            "exec-doze-risen",
            {
                self.dozers.rising[task.0 as usize] = false;
            },
            {}
        );

        if !self.may_doze(task)
            || self.closed
            || self.stopped
            || !self.is_idle(task)
            || self.dozers.asleep.len() == MOST
        {
            return Ok(None);
        }
        let Some(arrival) =
            self.loads[task.0 as usize].next().filter(|next| next.nominal == next.seen)
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
        // One that stands lower may be awake too late.
        let covers = |other: &Dozer| {
            other.until == until
                && other.is_armed
                && mutate!(
                    "exec-doze-convoy",
                    self.grade(other.task) <= self.grade(task),
                    self.grade(other.task) != 99
                )
        };
        let is_armed = !self.dozers.asleep.iter().any(covers);
        self.dozers.asleep.push(Dozer { task, until, is_armed });
        if is_armed {
            self.mechanism.ready(task)?;
        }
        Ok(is_armed.then_some(until))
    }

    /// The worker of `task` is awake by itself, at `now`: whether the root is to be stepped. If
    /// not, somebody has told of its arrival already, and calls the worker when it is to run.
    pub(crate) fn comes(&mut self, task: TaskId, now: Time) -> bool {
        mutate!(
            "exec-doze-rising",
            {
                self.dozers.rising[task.0 as usize] = false;
            },
            {}
        );

        let Some(dozer) = self.dozers.asleep.iter().find(|dozer| dozer.task == task) else {
            return false;
        };
        let due = dozer.until;
        // Behind one that stands as high or higher it is not late.
        let is_behind =
            self.running[0].is_some_and(|doing| self.grade(doing.task) <= self.grade(task));
        if mutate!("exec-doze-told", !is_behind, is_behind) {
            self.awake(0, due, now.max(due));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::grades;

    #[test]
    fn s8_the_highest_preemption_level_is_the_first_grade_and_the_last_takes_all_others() {
        let levels = [5, 0, 2, 5, 9];
        assert_eq!(grades(&levels, 40), [1, 3, 2, 1, 0]);
        assert_eq!(grades(&levels, 4), [1, 3, 2, 1, 0]);
        assert_eq!(grades(&levels, 2), [1, 1, 1, 1, 0]);
        assert_eq!(grades(&levels, 1), [0; 5]);
        assert_eq!(grades(&[0; 3], 40), [0; 3]);
    }
}
