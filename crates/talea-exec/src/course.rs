//! Who ran in what order: what a run and a simulation must have in common.
//!
//! Model: per instant, the jobs that ended, by number of the task, then the CPUs that went over to
//! somebody else or to nobody, by number of the CPU. What was ordered and taken back within an
//! instant never happened. Times are kept to be shown, not to be compared.

use crate::record::{Entry, What};
use std::collections::BTreeMap;
use talea_core::Time;
use talea_core::machine::{Cpu, Event, Order, TaskId};

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// A job ended.
    Ended {
        /// Whose.
        task: TaskId,
        /// Which, from 0.
        job: u64,
    },
    /// A CPU went over to a job.
    Runs {
        /// Where.
        cpu: Cpu,
        /// Whose.
        task: TaskId,
        /// Which, from 0.
        job: u64,
    },
    /// A CPU went over to nobody.
    Rests {
        /// Where.
        cpu: Cpu,
    },
}

/// All of them, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    turns: Vec<(Time, Turn)>,
    /// Of the instant that is being told.
    now: Time,
    fresh: Vec<Turn>,
    /// By CPU: who has it.
    has: Vec<Option<(TaskId, u64)>>,
}

impl Course {
    /// Of so many CPUs, at rest.
    pub fn new(cpus: u32) -> Course {
        Course { has: vec![None; cpus as usize], ..Course::default() }
    }

    /// What the orders of a record make of it. Turns of CPUs that there are not are left out;
    /// whether a record is one of this machine is for the replay to say.
    pub fn of(cpus: u32, record: &[Entry]) -> Course {
        let mut course = Course::new(cpus);
        // By task: the job that was last ordered to run, which is the one that ends.
        let mut jobs: BTreeMap<TaskId, u64> = BTreeMap::new();
        for entry in record {
            match entry.what {
                What::Step => course.settle(),
                What::Told(Event::Completed { task }) => {
                    let job = jobs.get(&task).copied().unwrap_or(0);
                    course.tell(entry.now, Turn::Ended { task, job });
                }
                What::Ordered(Order::Run { cpu, task, job, .. }) => {
                    _ = jobs.insert(task, job);
                    course.tell(entry.now, Turn::Runs { cpu, task, job });
                }
                What::Ordered(Order::Idle { cpu }) => course.tell(entry.now, Turn::Rests { cpu }),
                What::Told(_) | What::Polled => {}
            }
        }
        course.settle();
        course
    }

    /// One more, of this instant or a later one.
    pub fn tell(&mut self, now: Time, turn: Turn) {
        if now != self.now {
            self.settle();
            self.now = now;
        }
        self.fresh.push(turn);
    }

    /// The instant is over.
    pub fn settle(&mut self) {
        let mut last = self.has.clone();
        let mut ended = Vec::new();
        for turn in self.fresh.drain(..) {
            let (cpu, who) = match turn {
                Turn::Ended { .. } => {
                    ended.push(turn);
                    continue;
                }
                Turn::Runs { cpu, task, job } => (cpu, Some((task, job))),
                Turn::Rests { cpu } => (cpu, None),
            };
            if let Some(last) = last.get_mut(cpu.0 as usize) {
                *last = who;
            }
        }
        ended.sort_unstable();
        self.turns.extend(ended.into_iter().map(|turn| (self.now, turn)));
        for (cpu, (has, last)) in (0..).map(Cpu).zip(self.has.iter_mut().zip(last)) {
            if *has != last {
                let turn = match last {
                    Some((task, job)) => Turn::Runs { cpu, task, job },
                    None => Turn::Rests { cpu },
                };
                self.turns.push((self.now, turn));
                *has = last;
            }
        }
    }

    /// The changes, without their times.
    pub fn turns(&self) -> impl Iterator<Item = Turn> {
        self.turns.iter().map(|&(_, turn)| turn)
    }

    /// The changes with their times.
    pub fn timed(&self) -> &[(Time, Turn)] {
        &self.turns
    }

    /// The first place where this course and another part: the place, what this one has there, and
    /// the other.
    pub fn parts_from(&self, other: &Course) -> Option<(usize, Option<Turn>, Option<Turn>)> {
        let longest = self.turns.len().max(other.turns.len());
        (0..longest).find_map(|at| {
            let turn = |course: &Course| course.turns.get(at).map(|&(_, turn)| turn);
            let (a, b) = (turn(self), turn(other));
            (a != b).then_some((at, a, b))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: Cpu = Cpu(0);

    fn at(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    fn runs(task: u32, job: u64) -> Turn {
        Turn::Runs { cpu: CPU, task: TaskId(task), job }
    }

    #[test]
    fn what_is_taken_back_within_an_instant_never_happened() {
        let mut course = Course::new(1);
        course.tell(at(0), runs(0, 0));
        course.tell(at(0), runs(1, 0));
        course.tell(at(3), Turn::Ended { task: TaskId(1), job: 0 });
        course.tell(at(3), Turn::Rests { cpu: CPU });
        course.tell(at(3), runs(1, 0));
        course.settle();
        let ended = Turn::Ended { task: TaskId(1), job: 0 };
        assert_eq!(course.timed(), [(at(0), runs(1, 0)), (at(3), ended)]);
    }

    #[test]
    fn courses_part_at_the_first_turn_that_differs() {
        let course = |second| {
            let mut course = Course::new(1);
            course.tell(at(0), runs(0, 0));
            course.tell(at(second), runs(second as u32, 0));
            course.settle();
            course
        };
        assert_eq!(course(5).parts_from(&course(5)), None);
        assert_eq!(course(5).parts_from(&course(6)), Some((1, Some(runs(5, 0)), Some(runs(6, 0)))));
        assert_eq!(course(5).parts_from(&Course::new(1)), Some((0, Some(runs(0, 0)), None)));
    }
}
