//! Schedule log: the order of events that a run and a simulation must have in common.
//!
//! Model: for each instant, first the jobs that completed, by task, then the CPUs whose assignment
//! changed, by CPU. An order that was taken back within its instant is not in the log. Times are
//! for display; the comparison ignores them.

use crate::record::{RecordEntry, RecordKind};
use std::collections::BTreeMap;
use talea_core::Time;
use talea_core::engine::{Cpu, Event, Order, TaskId};
use talea_core::sink::{Completion, Sink};

/// A change of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScheduleEvent {
    /// A job completed.
    Completed {
        /// Task of the job.
        task: TaskId,
        /// Number of the job, from 0.
        job: u64,
    },
    /// A CPU was assigned to a job.
    Dispatched {
        /// CPU that was assigned.
        cpu: Cpu,
        /// Task of the job.
        task: TaskId,
        /// Number of the job, from 0.
        job: u64,
    },
    /// A CPU became idle.
    Idle {
        /// CPU that became idle.
        cpu: Cpu,
    },
}

/// All changes of a schedule, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduleLog {
    events: Vec<(Time, ScheduleEvent)>,
    /// Instant of the pending events.
    now: Time,
    pending: Vec<ScheduleEvent>,
    /// `running[c]`: job that is assigned to CPU `c`.
    running: Vec<Option<(TaskId, u64)>>,
}

impl ScheduleLog {
    /// Creates the log of `cpus` idle CPUs.
    pub fn new(cpus: u32) -> ScheduleLog {
        ScheduleLog { running: vec![None; cpus as usize], ..ScheduleLog::default() }
    }

    /// Builds the log from the orders of a record.
    ///
    /// Omits events of CPUs that do not exist. A replay checks whether a record belongs to a
    /// system.
    pub fn from_record(cpus: u32, record: &[RecordEntry]) -> ScheduleLog {
        let mut log = ScheduleLog::new(cpus);
        // Job last dispatched, by task: the one that completes.
        let mut jobs: BTreeMap<TaskId, u64> = BTreeMap::new();
        for entry in record {
            match entry.kind {
                RecordKind::Step => log.end_instant(),
                RecordKind::Event(Event::Completed { task }) => {
                    let job = jobs.get(&task).copied().unwrap_or(0);
                    log.push(entry.now, ScheduleEvent::Completed { task, job });
                }
                RecordKind::Order(Order::Run { cpu, task, job, .. }) => {
                    _ = jobs.insert(task, job);
                    log.on_dispatch(entry.now, cpu, task, job);
                }
                RecordKind::Order(Order::Idle { cpu }) => log.on_idle(entry.now, cpu),
                RecordKind::Event(_) | RecordKind::Polled => {}
            }
        }
        log.end_instant();
        log
    }

    /// Appends an event of the pending instant or of a later one.
    fn push(&mut self, now: Time, event: ScheduleEvent) {
        if now != self.now {
            self.end_instant();
            self.now = now;
        }
        self.pending.push(event);
    }

    /// Ends the pending instant; a run ends with it.
    pub fn end_instant(&mut self) {
        let mut last = self.running.clone();
        let mut ended = Vec::new();
        for event in self.pending.drain(..) {
            let (cpu, who) = match event {
                ScheduleEvent::Completed { .. } => {
                    ended.push(event);
                    continue;
                }
                ScheduleEvent::Dispatched { cpu, task, job } => (cpu, Some((task, job))),
                ScheduleEvent::Idle { cpu } => (cpu, None),
            };
            if let Some(last) = last.get_mut(cpu.0 as usize) {
                *last = who;
            }
        }
        ended.sort_unstable();
        self.events.extend(ended.into_iter().map(|event| (self.now, event)));
        for (cpu, (running, last)) in (0..).map(Cpu).zip(self.running.iter_mut().zip(last)) {
            if *running != last {
                let event = match last {
                    Some((task, job)) => ScheduleEvent::Dispatched { cpu, task, job },
                    None => ScheduleEvent::Idle { cpu },
                };
                self.events.push((self.now, event));
                *running = last;
            }
        }
    }

    /// Returns the events without their times.
    pub fn events(&self) -> impl Iterator<Item = ScheduleEvent> {
        self.events.iter().map(|&(_, event)| event)
    }

    /// Returns the events with their times.
    pub fn timed_events(&self) -> &[(Time, ScheduleEvent)] {
        &self.events
    }

    /// Returns the intervals of jobs on each CPU: element `c` has the tasks of CPU `c` with their
    /// starts and ends, in order. The last interval of a CPU that is not idle has no end.
    pub fn intervals(&self) -> Vec<Vec<(TaskId, Time, Time)>> {
        let mut all: Vec<Vec<(TaskId, Time, Time)>> = vec![Vec::new(); self.running.len()];
        for &(now, event) in &self.events {
            let (cpu, next) = match event {
                // The next event of the CPU is at the same instant.
                ScheduleEvent::Completed { .. } => continue,
                ScheduleEvent::Dispatched { cpu, task, .. } => (cpu, Some(task)),
                ScheduleEvent::Idle { cpu } => (cpu, None),
            };
            let of_cpu = &mut all[cpu.0 as usize];
            if let Some((.., end)) = of_cpu.last_mut() {
                *end = now.min(*end);
            }
            of_cpu.extend(next.map(|task| (task, now, Time::NEVER)));
        }
        all
    }

    /// Returns the first difference from another log: the position, and the event of each log at
    /// this position.
    pub fn first_difference(
        &self,
        other: &ScheduleLog,
    ) -> Option<(usize, Option<ScheduleEvent>, Option<ScheduleEvent>)> {
        let longest = self.events.len().max(other.events.len());
        (0..longest).find_map(|at| {
            let event = |log: &ScheduleLog| log.events.get(at).map(|&(_, event)| event);
            let (a, b) = (event(self), event(other));
            (a != b).then_some((at, a, b))
        })
    }
}

impl Sink for ScheduleLog {
    fn on_dispatch(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
        self.push(now, ScheduleEvent::Dispatched { cpu, task, job });
    }

    fn on_idle(&mut self, now: Time, cpu: Cpu) {
        self.push(now, ScheduleEvent::Idle { cpu });
    }

    fn on_completion(&mut self, job: &Completion) {
        self.push(job.end, ScheduleEvent::Completed { task: job.task, job: job.job });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: Cpu = Cpu(0);

    fn at(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    fn runs(task: u32, job: u64) -> ScheduleEvent {
        ScheduleEvent::Dispatched { cpu: CPU, task: TaskId(task), job }
    }

    #[test]
    fn an_order_taken_back_within_an_instant_is_not_in_the_log() {
        let mut log = ScheduleLog::new(1);
        log.push(at(0), runs(0, 0));
        log.push(at(0), runs(1, 0));
        log.push(at(3), ScheduleEvent::Completed { task: TaskId(1), job: 0 });
        log.push(at(3), ScheduleEvent::Idle { cpu: CPU });
        log.push(at(3), runs(1, 0));
        log.end_instant();
        let ended = ScheduleEvent::Completed { task: TaskId(1), job: 0 };
        assert_eq!(log.timed_events(), [(at(0), runs(1, 0)), (at(3), ended)]);
    }

    #[test]
    fn logs_differ_at_the_first_different_event() {
        let log = |second| {
            let mut log = ScheduleLog::new(1);
            log.push(at(0), runs(0, 0));
            log.push(at(second), runs(second as u32, 0));
            log.end_instant();
            log
        };
        assert_eq!(log(5).first_difference(&log(5)), None);
        assert_eq!(log(5).first_difference(&log(6)), Some((1, Some(runs(5, 0)), Some(runs(6, 0)))));
        assert_eq!(
            log(5).first_difference(&ScheduleLog::new(1)),
            Some((0, Some(runs(0, 0)), None))
        );
    }
}
