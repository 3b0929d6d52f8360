//! Each task by the mechanism that fits it: threads by their priorities, programs by their groups.

use super::freeze::{Cage, Freeze};
use super::{After, Flip, Mechanism};
use crate::work::Job;
use std::io;
use talea_core::machine::{Cpu, TaskId};
use talea_core::{Time, Work};

/// The mechanism of a root whose tasks are threads, or programs, or both.
#[derive(Debug)]
pub(crate) struct Mixed<C> {
    flip: Flip,
    freeze: Option<Freeze<C>>,
}

impl<C: Cage> Mixed<C> {
    /// `freeze`: where there are programs.
    pub(crate) fn new(flip: Flip, freeze: Option<Freeze<C>>) -> Mixed<C> {
        Mixed { flip, freeze }
    }

    fn freeze(&mut self, task: TaskId) -> Option<&mut Freeze<C>> {
        self.freeze.as_mut().filter(|freeze| freeze.has(task))
    }
}

impl<C: Cage> Mechanism for Mixed<C> {
    type Error = io::Error;

    fn at(&mut self, now: Time, by: Option<TaskId>) {
        self.flip.at(now, by);
    }

    fn used(&mut self, task: TaskId) -> io::Result<Work> {
        match self.freeze(task) {
            Some(freeze) => freeze.used(task),
            None => self.flip.used(task),
        }
    }

    fn begin(&mut self, cpu: Cpu, task: TaskId, job: Job) -> io::Result<()> {
        match self.freeze(task) {
            Some(freeze) => freeze.run(cpu, task),
            None => self.flip.begin(cpu, task, job),
        }
    }

    fn resume(&mut self, cpu: Cpu, task: TaskId) -> io::Result<()> {
        match self.freeze(task) {
            Some(freeze) => freeze.run(cpu, task),
            None => self.flip.resume(cpu, task),
        }
    }

    fn stop(&mut self, cpu: Cpu, task: TaskId, successor: bool) -> io::Result<()> {
        match self.freeze(task) {
            Some(freeze) => freeze.stop(cpu, task),
            None => self.flip.stop(cpu, task, successor),
        }
    }

    fn ended(&mut self, task: TaskId) -> io::Result<()> {
        match self.freeze(task) {
            Some(freeze) => freeze.ended(task),
            None => self.flip.ended(task),
        }
    }

    fn grade(&mut self, grades: &[u8]) -> io::Result<()> {
        self.flip.grade(grades)
    }

    fn ready(&mut self, task: TaskId) -> io::Result<()> {
        self.flip.ready(task)
    }

    fn after(&mut self) -> After {
        self.flip.after()
    }

    fn rest(&mut self, cpu: Cpu) -> io::Result<()> {
        self.flip.rest(cpu)
    }

    fn quiet(&mut self, cpu: Cpu) -> Option<TaskId> {
        self.freeze.as_mut()?.quiet(cpu)
    }

    fn woke(&mut self) -> Option<TaskId> {
        self.freeze.as_mut()?.woke()
    }

    fn settle(&mut self) -> io::Result<()> {
        self.freeze.as_mut().map_or(Ok(()), Freeze::settle)
    }

    fn leave(&mut self) {
        if let Some(freeze) = &mut self.freeze {
            freeze.leave();
        }
    }
}
