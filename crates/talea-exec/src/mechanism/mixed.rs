//! Mechanism that uses priorities for threads and cgroups for programs.

use super::freeze::{Freezable, Freeze, StoppedTime};
use super::{Deferred, Mechanism, PriorityMechanism};
use crate::suspension_state::WorkerReport;
use crate::work::Job;
use std::io;
use talea_core::engine::{Cpu, TaskId};
use talea_core::{Span, Time, Work};

/// Mechanism of a root whose tasks are threads, programs, or both.
#[derive(Debug)]
pub(crate) struct Mixed<C> {
    threads: PriorityMechanism,
    programs: Option<Freeze<C>>,
}

impl<C: Freezable> Mixed<C> {
    /// Creates the mechanism. `freeze` is present if the root has programs.
    pub(crate) fn new(flip: PriorityMechanism, freeze: Option<Freeze<C>>) -> Mixed<C> {
        Mixed { threads: flip, programs: freeze }
    }

    /// Notes whether a task has the CPU of the root.
    fn set_busy(&mut self, is_busy: bool) -> io::Result<()> {
        self.programs.as_mut().map_or(Ok(()), |freeze| freeze.set_busy(is_busy))
    }

    /// Returns the CPU time that a program consumed while it was stopped, or `None` for a thread.
    pub(crate) fn stopped_time(&self, task: TaskId) -> Option<StoppedTime> {
        self.programs.as_ref()?.stopped_time(task)
    }

    /// Returns the program that plays a task, or `None` for a thread.
    pub(crate) fn program(&self, task: TaskId) -> Option<&C> {
        self.programs.as_ref()?.handle(task)
    }

    fn programs_with(&mut self, task: TaskId) -> Option<&mut Freeze<C>> {
        self.programs.as_mut().filter(|freeze| freeze.contains(task))
    }
}

impl<C: Freezable> Mechanism for Mixed<C> {
    type Error = io::Error;

    fn begin_decision(&mut self, now: Time, by: Option<TaskId>) {
        self.threads.begin_decision(now, by);
        if let Some(freeze) = &mut self.programs {
            freeze.begin_decision(now);
        }
    }

    fn cpu_time(&mut self, task: TaskId) -> io::Result<Work> {
        match self.programs_with(task) {
            Some(freeze) => freeze.cpu_time(task),
            None => self.threads.cpu_time(task),
        }
    }

    fn begin(&mut self, cpu: Cpu, task: TaskId, job: Job) -> io::Result<()> {
        self.set_busy(true)?;
        match self.programs_with(task) {
            Some(freeze) => freeze.run(cpu, task),
            None => self.threads.begin(cpu, task, job),
        }
    }

    fn resume(&mut self, cpu: Cpu, task: TaskId) -> io::Result<()> {
        self.set_busy(true)?;
        match self.programs_with(task) {
            Some(freeze) => freeze.run(cpu, task),
            None => self.threads.resume(cpu, task),
        }
    }

    fn stop(&mut self, cpu: Cpu, task: TaskId, successor: bool) -> io::Result<()> {
        match self.programs_with(task) {
            Some(freeze) => freeze.stop(cpu, task),
            None => self.threads.stop(cpu, task, successor),
        }
    }

    fn complete(&mut self, task: TaskId) -> io::Result<()> {
        match self.programs_with(task) {
            Some(freeze) => freeze.complete(task),
            None => self.threads.complete(task),
        }
    }

    fn read_report(&mut self, task: TaskId, is_suspended: bool) -> WorkerReport {
        self.threads.read_report(task, is_suspended)
    }

    fn suspend(&mut self, task: TaskId) -> io::Result<()> {
        self.threads.suspend(task)
    }

    fn set_levels(&mut self, levels: &[u8]) -> io::Result<()> {
        self.threads.set_levels(levels)
    }

    fn unpark(&mut self, task: TaskId) -> io::Result<()> {
        self.threads.unpark(task)
    }

    fn take_deferred(&mut self) -> Deferred {
        self.threads.take_deferred()
    }

    fn idle(&mut self, cpu: Cpu) -> io::Result<()> {
        self.set_busy(false)?;
        self.threads.idle(cpu)
    }

    fn take_idle(&mut self, cpu: Cpu) -> Option<TaskId> {
        self.programs.as_mut()?.take_idle(cpu)
    }

    fn take_woken(&mut self) -> io::Result<Option<(TaskId, Span)>> {
        self.programs.as_mut().map_or(Ok(None), Freeze::take_woken)
    }

    fn commit(&mut self) -> io::Result<()> {
        self.programs.as_mut().map_or(Ok(()), Freeze::commit)
    }

    fn shut_down(&mut self) {
        if let Some(freeze) = &mut self.programs {
            freeze.shut_down();
        }
    }
}
