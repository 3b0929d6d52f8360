//! Priorities flipped by the dispatcher; a gate where a priority is not enough.
//!
//! Model: three priorities of the band. The dispatcher has the top, whoever may run the one below it, whoever was
//! stopped within a job the bottom. A worker between two jobs sleeps, and keeps the priority that it has: of a job that
//! nobody interrupts the kernel hears nothing but the wake-up at its begin and the one at its end.
//!
//! A priority keeps nobody from a CPU that nobody else wants. So where a CPU rests, the gates of those that were stopped
//! there within a job are shut ([`talea_os::gate`]): they sleep before they take another step of their own. On a root with
//! several CPUs a gate is shut at every stop, because there a dispatcher may have to wait for the other one's lock while the
//! next on its CPU could step forward. Where there is no right to priorities, or none to move them, gates are all there is.
//!
//! Absent on purpose: workers that block within a job without telling. Then the kernel lets the next in line go on,
//! which on a root with one CPU may be one that was stopped.

use super::Mechanism;
use crate::stage::{Hold, Ranks, Stage};
use crate::work::Job;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use talea_core::machine::{Cpu, TaskId};
use talea_core::{CpuSet, Work};
use talea_os::Tid;
use talea_os::sched;
use talea_os::threadclock::ThreadClock;

/// Who a worker is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) tid: Tid,
    pub(crate) clock: ThreadClock,
}

/// What the kernel has been told about a worker.
#[derive(Clone, Copy, Debug)]
struct Placed {
    who: Identity,
    /// Where it is pinned.
    cpu: Cpu,
    /// It stands at the bottom of the band.
    low: bool,
    /// Its gate is shut.
    shut: bool,
    /// A job is under way.
    busy: bool,
    /// It is in the list of its CPU.
    listed: bool,
}

/// The mechanism of one root.
#[derive(Debug)]
pub(crate) struct Flip {
    stage: Arc<Stage>,
    ranks: Ranks,
    workers: Vec<Placed>,
    /// By CPU: those that were stopped there and are held back by nothing but their priority; some may have gone on since.
    below: Vec<Vec<TaskId>>,
    /// Gates are shut at every stop.
    eager: bool,
}

impl Flip {
    /// `workers`: by task, each pinned to the first CPU at the priority of those who may run.
    pub(crate) fn new(stage: Arc<Stage>, ranks: Ranks, workers: &[Identity]) -> Flip {
        let cpus = stage.cpus.len();
        let place = |&who: &Identity| Placed {
            who,
            cpu: Cpu(0),
            low: false,
            shut: false,
            busy: false,
            listed: false,
        };
        Flip {
            workers: workers.iter().map(place).collect(),
            below: (0..cpus).map(|_| Vec::with_capacity(workers.len())).collect(),
            // Without priorities that can be moved there is nothing else.
            eager: cpus > 1 || ranks.hold != Hold::Own,
            stage,
            ranks,
        }
    }

    fn tid(&self, task: TaskId) -> Tid {
        self.workers[task.0 as usize].who.tid
    }

    /// Pins the worker to `cpu` and lets it run there.
    fn raise(&mut self, cpu: Cpu, task: TaskId) -> io::Result<()> {
        let at = task.0 as usize;
        if self.workers[at].cpu != cpu {
            let physical = self.stage.cpus[cpu.0 as usize].number;
            sched::set_affinity(self.workers[at].who.tid, &CpuSet::single(physical))?;
            self.workers[at].cpu = cpu;
            self.stage.slots[at].cpu.store(cpu.0, Ordering::Release);
        }
        if self.workers[at].low {
            self.ranks.raised(self.tid(task))?;
            self.workers[at].low = false;
        }
        if self.workers[at].shut {
            self.stage.slots[at].gate.open();
            self.workers[at].shut = false;
        }
        Ok(())
    }

    fn shut(&mut self, task: TaskId) -> io::Result<()> {
        let at = task.0 as usize;
        self.workers[at].shut = true;
        self.stage.slots[at].gate.shut(self.workers[at].who.tid)
    }
}

impl Mechanism for Flip {
    type Error = io::Error;

    fn used(&mut self, task: TaskId) -> io::Result<Work> {
        self.workers[task.0 as usize].who.clock.read()
    }

    fn begin(&mut self, cpu: Cpu, task: TaskId, job: Job) -> io::Result<()> {
        self.raise(cpu, task)?;
        let at = task.0 as usize;
        self.workers[at].busy = true;
        self.stage.slots[at].give(job);
        Ok(())
    }

    fn resume(&mut self, cpu: Cpu, task: TaskId) -> io::Result<()> {
        self.raise(cpu, task)
    }

    fn stop(&mut self, cpu: Cpu, task: TaskId, successor: bool) -> io::Result<()> {
        let at = task.0 as usize;
        if successor {
            self.ranks.lowered(self.tid(task))?;
            self.workers[at].low = true;
            if !self.eager && !std::mem::replace(&mut self.workers[at].listed, true) {
                self.below[cpu.0 as usize].push(task);
            }
        }
        // Without a successor it keeps its priority, and its gate alone holds it back.
        if self.eager || !successor { self.shut(task) } else { Ok(()) }
    }

    fn ended(&mut self, task: TaskId) -> io::Result<()> {
        self.workers[task.0 as usize].busy = false;
        Ok(())
    }

    fn rest(&mut self, cpu: Cpu) -> io::Result<()> {
        while let Some(task) = self.below[cpu.0 as usize].pop() {
            let worker = &mut self.workers[task.0 as usize];
            worker.listed = false;
            if worker.low && worker.busy && !worker.shut {
                self.shut(task)?;
            }
        }
        Ok(())
    }
}
