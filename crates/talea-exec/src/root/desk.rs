//! The pieces of a job, and what it does between them.
//!
//! Model: a job's work is cut into pieces where it locks, suspends itself, or moves tokens
//! ([`Script`]). Its worker does one piece after the other and tells when each is over; all the
//! rest is said to the machine here, in the same order as in a simulation, and whether the job goes
//! on is the machine's to say. A piece without work is nobody's: it is over when it begins.
//!
//! Resources, channels and accelerators are books that the machine keeps: nothing but its orders
//! keeps a worker from going on.
//!
//! [`Script`]: talea_core::workload::script::Script

use super::{Doing, Root};
use crate::mechanism::Mechanism;
use crate::record::Log;
use crate::work::Job;
use std::sync::Arc;
use talea_core::Work;
use talea_core::machine::{Cpu, Event, Handled, TaskId};
use talea_core::mutate;
use talea_core::workload::script::Deed;

/// What lies on the desk of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Desk {
    /// Nothing: no job, or none that goes on.
    Empty,
    /// A piece, so long, for when it is next ordered to run. It waits.
    Piece(Work),
    /// What it works on.
    Taken,
}

impl<M: Mechanism> Root<M> {
    /// A piece of the job of `task` is over: what the job does now, up to its next piece or its
    /// end.
    pub(super) fn reach(&mut self, task: TaskId, log: &mut Log) {
        let at = task.0 as usize;
        self.desks[at] = Desk::Empty;
        while let Some(script) = &mut self.scripts[at] {
            let deed = script.act();
            if let Some(deed) = deed
                && self.does(task, deed, log)
            {
                continue;
            }
            let Some(script) = &mut self.scripts[at] else { break };
            match (script.turn(), deed) {
                (Some(left), _) => self.desks[at] = Desk::Piece(left),
                // It stops here, and has nothing left to do when it goes on but to end.
                (None, Some(_)) => self.desks[at] = Desk::Piece(Work::ZERO),
                (None, None) => break,
            }
            return;
        }
        if self.loads[at].tells() {
            self.settle(task, log);
        }
        self.jobs[at] = None;
        if let Some(job) = self.machine.unfinished(task).next() {
            self.tallies[at].count(job, self.now);
        }
        let _ = self.tell(log, Event::Completed { task });
        self.look_out(task);
    }

    /// A job that moves tokens itself is over: what it has taken, and what it has put.
    fn settle(&mut self, task: TaskId, log: &mut Log) {
        for at in 0..self.ends[task.0 as usize].len() {
            let channel = self.ends[task.0 as usize][at];
            let flow = Arc::clone(&self.flows[channel.0 as usize]);
            let (popped, pushed) = flow.moved_by(task);
            for _ in 0..popped {
                let _ = self.tell(log, Event::Popped { channel });
            }
            for _ in 0..pushed {
                let _ = self.tell(log, Event::Pushed { channel });
            }
            flow.settle(popped, pushed);
        }
    }

    /// A job does something; whether it goes on at once.
    fn does(&mut self, task: TaskId, deed: Deed, log: &mut Log) -> bool {
        match deed {
            Deed::Lock(resource) => {
                self.tell(log, Event::Locked { task, resource }) != Handled::Waits
            }
            Deed::Unlock(resource) => {
                let _ = self.tell(log, Event::Unlocked { task, resource });
                true
            }
            Deed::Suspend(span) => {
                self.wakes.set(task.0, (self.now + span).as_ns());
                let _ = self.tell(log, Event::Blocked { task });
                false
            }
            Deed::Push(channel, count) => {
                for _ in 0..count {
                    let _ = self.tell(log, Event::Pushed { channel });
                }
                true
            }
            Deed::Pop(channel, count) => {
                for _ in 0..count {
                    let _ = self.tell(log, Event::Popped { channel });
                }
                true
            }
        }
    }

    /// Suspensions that are over, and changes of the world that are due.
    pub(super) fn go_on(&mut self, log: &mut Log) {
        while let Some((_, task)) = self.wakes.first().filter(|&(at, _)| at <= self.now.as_ns()) {
            self.wakes.remove(task);
            let _ = self.tell(log, Event::Woke { task: TaskId(task) });
        }
        while let Some(&(_, condition)) =
            self.changes.get(self.changed).filter(|&&(at, _)| at <= self.now)
        {
            self.changed += 1;
            let _ = self.tell(log, Event::Changed(condition));
        }
    }

    /// Jobs that were ordered to run for the first time get their cost and their first piece;
    /// whether any of those that were ordered to run has done something without working. Then the
    /// machine is to be asked again.
    pub(super) fn begin(&mut self, log: &mut Log) -> bool {
        let mut any = false;
        for cpu in 0..self.wanted.len() {
            let Some(Doing { task, job, version }) = self.wanted[cpu] else { continue };
            let at = task.0 as usize;
            if self.jobs[at] != Some(job) {
                self.jobs[at] = Some(job);
                let cost = self.loads[at].cost(mutate!("exec-desk-version", version, 0));
                let script = self.scripts[at].as_mut();
                self.desks[at] =
                    Desk::Piece(script.map_or(cost, |script| script.begin(job, version, cost)));
            }
            if self.scripts[at].is_some() && self.desks[at] == Desk::Piece(Work::ZERO) {
                self.reach(task, log);
                any = true;
            }
        }
        any
    }

    /// Whether the worker of whoever runs there waits for its next piece.
    pub(super) fn has_piece(&self, doing: Option<Doing>) -> bool {
        doing
            .is_some_and(|Doing { task, .. }| matches!(self.desks[task.0 as usize], Desk::Piece(_)))
    }

    /// Whoever is to have `cpu` begins or goes on there.
    pub(super) fn enter(&mut self, cpu: usize) -> Result<(), M::Error> {
        let Some(Doing { task, job, version }) = self.wanted[cpu] else { return Ok(()) };
        let at = Cpu(cpu as u32);
        let desk = &mut self.desks[task.0 as usize];
        if let Desk::Piece(cost) = *desk {
            *desk = Desk::Taken;
            self.begins(task);
            self.mechanism.begin(at, task, Job { number: job, version, cost })
        } else {
            self.mechanism.resume(at, task)
        }
    }

    /// Whoever has had `cpu` until now stops there, if it has not ended and runs nowhere else.
    pub(super) fn vacate(&mut self, cpu: usize) -> Result<(), M::Error> {
        let Some(from) = self.running[cpu] else { return Ok(()) };
        let has_more = self.desks[from.task.0 as usize] == Desk::Taken
            && self.jobs[from.task.0 as usize] == Some(from.job)
            && !self.wanted.contains(&Some(from));
        if has_more {
            self.mechanism.stop(Cpu(cpu as u32), from.task, self.wanted[cpu].is_some())?;
        }
        Ok(())
    }
}
