//! Priorities flipped by the dispatcher; a gate where a priority is not enough.
//!
//! Model: four priorities of the band. The dispatcher has the top; whoever sleeps and is to be awake in time, whoever runs then, the one
//! below it; whoever may run the next one; whoever was stopped within a job the bottom. Any other worker between two jobs sleeps, and
//! keeps the priority that it has: of a job that nobody interrupts the kernel hears nothing but the wake-up at its begin and
//! the one at its end.
//!
//! Whoever is awake in time and is interrupted by no arrival keeps its place for its job: then nothing is moved, neither it nor whom it
//! interrupts. That one is lowered when somebody else gets the CPU behind it. Whom another worker calls does not: it would take the CPU
//! from one that has the lock.
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
use talea_core::{CpuSet, Time, Work};
use talea_os::Tid;
use talea_os::sched;
use talea_os::threadclock::ThreadClock;

/// Who a worker is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) tid: Tid,
    pub(crate) clock: ThreadClock,
}

/// At which of the priorities a worker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Prompt,
    Raised,
    Lowered,
}

/// What the kernel has been told about a worker.
#[derive(Clone, Copy, Debug)]
struct Placed {
    who: Identity,
    /// Where it is pinned.
    cpu: Cpu,
    stand: Stand,
    /// No arrival interrupts it.
    is_calm: bool,
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
    /// By CPU: who was let run there last.
    on: Vec<Option<TaskId>>,
    /// By CPU: who was stopped there and still stands where whoever may run does, below one that stands above that.
    owed: Vec<Option<TaskId>>,
    /// Gates are shut at every stop.
    eager: bool,
    /// The worker that does what is done now; none: a dispatcher.
    by: Option<TaskId>,
}

impl Flip {
    /// `workers`: by task, each pinned to the first CPU at the priority of those who may run.
    pub(crate) fn new(stage: Arc<Stage>, ranks: Ranks, workers: &[Identity]) -> Flip {
        let cpus = stage.cpus.len();
        let place = |&who: &Identity| Placed {
            who,
            cpu: Cpu(0),
            stand: Stand::Raised,
            is_calm: false,
            shut: false,
            busy: false,
            listed: false,
        };
        Flip {
            workers: workers.iter().map(place).collect(),
            below: (0..cpus).map(|_| Vec::with_capacity(workers.len())).collect(),
            on: vec![None; cpus],
            owed: vec![None; cpus],
            // Without priorities that can be moved there is nothing else.
            eager: cpus > 1 || ranks.hold != Hold::Own,
            stage,
            ranks,
            by: None,
        }
    }

    fn tid(&self, task: TaskId) -> Tid {
        self.workers[task.0 as usize].who.tid
    }

    /// Whoever goes on or has ended is owed nothing: it may stand elsewhere by the time at which that would be paid.
    fn forget(&mut self, task: TaskId) {
        for owed in &mut self.owed {
            *owed = owed.filter(|&owed| owed != task);
        }
    }

    fn lower(&mut self, task: TaskId) -> io::Result<()> {
        self.ranks.lowered(self.tid(task))?;
        self.workers[task.0 as usize].stand = Stand::Lowered;
        Ok(())
    }

    /// Pins the worker to `cpu` and lets it run there.
    fn raise(&mut self, cpu: Cpu, task: TaskId) -> io::Result<()> {
        let at = task.0 as usize;
        self.on[cpu.0 as usize] = Some(task);
        self.forget(task);
        let is_let = self.by.is_none_or(|by| by == task);
        if self.workers[at].stand == Stand::Prompt && self.workers[at].is_calm && is_let {
            return Ok(());
        }
        if let Some(owed) = self.owed[cpu.0 as usize].take() {
            self.lower(owed)?;
        }
        if self.workers[at].cpu != cpu {
            let physical = self.stage.cpus[cpu.0 as usize].number;
            sched::set_affinity(self.workers[at].who.tid, &CpuSet::single(physical))?;
            self.workers[at].cpu = cpu;
            self.stage.slots[at].cpu.store(cpu.0, Ordering::Release);
        }
        if self.workers[at].stand != Stand::Raised {
            self.ranks.raised(self.tid(task))?;
            self.workers[at].stand = Stand::Raised;
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

    fn at(&mut self, _now: Time, by: Option<TaskId>) {
        self.by = by;
    }

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
            let is_above = |by: TaskId| self.workers[by.0 as usize].stand == Stand::Prompt;
            // A wake from a suspension may interrupt one that no arrival interrupts, and that stands as high.
            let is_below = self.workers[at].stand != Stand::Prompt;
            if is_below && self.on[cpu.0 as usize].is_some_and(is_above) {
                debug_assert_eq!(self.owed[cpu.0 as usize], None, "one stands above the others at a time");
                self.owed[cpu.0 as usize] = Some(task);
            } else {
                self.lower(task)?;
            }
            if !self.eager && !std::mem::replace(&mut self.workers[at].listed, true) {
                self.below[cpu.0 as usize].push(task);
            }
        }
        // Without a successor it keeps its priority, and its gate alone holds it back.
        if self.eager || !successor { self.shut(task) } else { Ok(()) }
    }

    fn ended(&mut self, task: TaskId) -> io::Result<()> {
        self.workers[task.0 as usize].busy = false;
        self.forget(task);
        Ok(())
    }

    fn ready(&mut self, task: TaskId, is_calm: bool) -> io::Result<()> {
        let at = task.0 as usize;
        if self.workers[at].stand != Stand::Prompt {
            self.ranks.prompt(self.tid(task))?;
            self.workers[at].stand = Stand::Prompt;
        }
        self.workers[at].is_calm = is_calm;
        Ok(())
    }

    fn rest(&mut self, cpu: Cpu) -> io::Result<()> {
        let owed = self.owed[cpu.0 as usize].take();
        while let Some(task) = self.below[cpu.0 as usize].pop() {
            let worker = &mut self.workers[task.0 as usize];
            worker.listed = false;
            let is_stopped = worker.stand == Stand::Lowered || owed == Some(task);
            if is_stopped && worker.busy && !worker.shut {
                self.shut(task)?;
            }
        }
        Ok(())
    }
}
