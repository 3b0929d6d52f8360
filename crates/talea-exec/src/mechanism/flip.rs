//! Priorities flipped by the dispatcher; a gate where a priority is not enough.
//!
//! Model: the dispatcher has the top of the band; below it stands each worker at its grade, whether
//! it sleeps, runs or was stopped within a job, and at the bottom whoever was stopped and would be
//! in the way. Where the grades are preemption levels nobody ever is: of the jobs that have begun,
//! the one that is to run stands highest ([`Machine::preemption_levels`]), and of a job the kernel
//! hears nothing but the wake-up at its begin and the one at its end. Where they are not, or
//! somebody comes late or wakes from a suspension, whoever was stopped and stands as high as the
//! one that gets the CPU is lowered. On roots with several CPUs all have one grade.
//!
//! Whom another worker gives a job is called when that one has given back the lock: it may stand
//! higher, and would take the CPU from one that has it. For the same reason a worker that puts
//! somebody back at a higher level stands as high for the rest of its step.
//!
//! A priority keeps nobody from a CPU that nobody else wants. So where a CPU rests, the gates of
//! those that were stopped there within a job are shut ([`talea_os::gate`]): they sleep before they
//! take another step of their own. On a root with several CPUs a gate is shut at every stop,
//! because there a dispatcher may have to wait for the other one's lock while the next on its CPU
//! could step forward. Where there is no right to priorities, or none to move them, gates are all
//! there is.
//!
//! Absent on purpose: workers that block within a job without telling. Then the kernel lets the
//! next in line go on, which on a root with one CPU may be one that was stopped.
//!
//! [`Machine::preemption_levels`]: talea_core::machine::Machine::preemption_levels

use super::{After, Mechanism};
use crate::stage::{Hold, Ranks, Stage};
use crate::work::Job;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use talea_core::machine::{Cpu, TaskId};
use talea_core::mutate;
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

/// What the kernel has been told about a worker.
#[derive(Clone, Copy, Debug)]
struct Placed {
    who: Identity,
    /// Where it is pinned.
    cpu: Cpu,
    /// So many levels below the highest.
    grade: u8,
    /// It stands at the bottom instead.
    lowered: bool,
    /// Its gate is shut.
    shut: bool,
    /// It is in the list of its CPU.
    listed: bool,
}

/// The mechanism of one root.
#[derive(Debug)]
pub(crate) struct Flip {
    stage: Arc<Stage>,
    ranks: Ranks,
    workers: Vec<Placed>,
    /// By CPU: those that were stopped there within a job and are held back by nothing but their
    /// priority.
    below: Vec<Vec<TaskId>>,
    /// By CPU: who was let run there last.
    on: Vec<Option<TaskId>>,
    /// Gates are shut at every stop.
    eager: bool,
    /// The worker that does what is done now; none: a dispatcher.
    by: Option<TaskId>,
    /// What it has yet to do.
    after: After,
}

impl Flip {
    /// `workers`: by task, each pinned to the first CPU at the highest grade.
    pub(crate) fn new(stage: Arc<Stage>, ranks: Ranks, workers: &[Identity]) -> Flip {
        let cpus = stage.cpus.len();
        let place = |&who: &Identity| Placed {
            who,
            cpu: Cpu(0),
            grade: 0,
            lowered: false,
            shut: false,
            listed: false,
        };
        Flip {
            workers: workers.iter().map(place).collect(),
            below: (0..cpus).map(|_| Vec::with_capacity(workers.len())).collect(),
            on: vec![None; cpus],
            // Without priorities that can be moved there is nothing else.
            eager: cpus > 1
                || mutate!(
                    "runtime-given-gates",
                    ranks.hold != Hold::Own,
                    ranks.hold == Hold::Nothing
                ),
            stage,
            ranks,
            by: None,
            after: After::default(),
        }
    }

    fn tid(&self, task: TaskId) -> Tid {
        self.workers[task.0 as usize].who.tid
    }

    /// It was stopped and is no more, or something else holds it back.
    fn unlist(&mut self, task: TaskId) {
        let worker = &mut self.workers[task.0 as usize];
        if std::mem::replace(&mut worker.listed, false) {
            self.below[worker.cpu.0 as usize].retain(|&stopped| stopped != task);
        }
    }

    fn lower(&mut self, task: TaskId) -> io::Result<()> {
        self.ranks.lowered(self.tid(task))?;
        self.workers[task.0 as usize].lowered = true;
        Ok(())
    }

    /// Puts it back where it stands.
    fn lift(&mut self, task: TaskId) -> io::Result<()> {
        let worker = &mut self.workers[task.0 as usize];
        if std::mem::replace(&mut worker.lowered, false) {
            self.ranks.raised(worker.who.tid, worker.grade)?;
        }
        Ok(())
    }

    /// Whoever steps is not interrupted by `task`, which is let go.
    fn hold_on(&mut self, task: TaskId) -> io::Result<()> {
        let Some(by) = self.by.filter(|_| !self.eager && self.after.back.is_none()) else {
            return Ok(());
        };
        let (worker, stepper) = (self.workers[task.0 as usize], self.workers[by.0 as usize]);
        if mutate!(
            "exec-flip-hold",
            worker.grade < stepper.grade,
            false && worker.grade < stepper.grade
        ) {
            self.ranks.raised(stepper.who.tid, 0)?;
            self.after.back = Some((self.ranks, stepper.who.tid, stepper.grade));
        }
        Ok(())
    }

    /// Whether `task`, which was stopped, would run before `other` or take its turn behind it.
    fn is_in_the_way(&self, task: TaskId, other: TaskId) -> bool {
        let (task, other) = (&self.workers[task.0 as usize], &self.workers[other.0 as usize]);
        !task.lowered && task.grade <= other.grade
    }

    /// Pins the worker to `cpu` and lets it run there.
    fn raise(&mut self, cpu: Cpu, task: TaskId) -> io::Result<()> {
        let at = task.0 as usize;
        self.on[cpu.0 as usize] = Some(task);
        self.unlist(task);
        for stopped in 0..self.below[cpu.0 as usize].len() {
            let stopped = self.below[cpu.0 as usize][stopped];
            if mutate!(
                "exec-flip-way",
                self.is_in_the_way(stopped, task),
                false && self.is_in_the_way(stopped, task)
            ) {
                self.lower(stopped)?;
            }
        }
        if self.workers[at].cpu != cpu {
            let physical = self.stage.cpus[cpu.0 as usize].number;
            sched::set_affinity(self.workers[at].who.tid, &CpuSet::single(physical))?;
            self.workers[at].cpu = cpu;
            self.stage.slots[at].cpu.store(cpu.0, Ordering::Release);
        }
        if self.workers[at].lowered || self.workers[at].shut {
            self.hold_on(task)?;
        }
        self.lift(task)?;
        if self.workers[at].shut {
            mutate!(
                "exec-flip-forgotten",
                {
                    self.stage.slots[at].gate.open();
                },
                {}
            );

            self.workers[at].shut = false;
        }
        Ok(())
    }

    fn shut(&mut self, task: TaskId) -> io::Result<()> {
        let at = task.0 as usize;
        mutate!(
            "exec-flip-gate",
            {
                self.workers[at].shut = true;
                self.stage.slots[at].gate.shut(self.workers[at].who.tid)
            },
            { Ok(()) }
        )
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
        let slot = &self.stage.slots[task.0 as usize];
        slot.give(job);
        mutate!(
            "exec-flip-behind",
            match self.by {
                // It is awake.
                Some(by) if by == task => {}
                Some(_) if !self.eager => self.after.call = Some(task),
                _ => slot.call(),
            },
            match self.by {
                // It is awake.
                Some(by) if by == task => {}
                _ => slot.call(),
            }
        );
        Ok(())
    }

    fn resume(&mut self, cpu: Cpu, task: TaskId) -> io::Result<()> {
        self.raise(cpu, task)
    }

    fn stop(&mut self, cpu: Cpu, task: TaskId, successor: bool) -> io::Result<()> {
        if successor {
            // A program stands above all workers, and is none.
            let successor = self.on[cpu.0 as usize].filter(|&on| on != task);
            if self.eager
                || mutate!(
                    "exec-flip-priority",
                    successor.is_none_or(|successor| self.is_in_the_way(task, successor)),
                    successor.is_none()
                )
            {
                self.lower(task)?;
            }
            if !self.eager && !std::mem::replace(&mut self.workers[task.0 as usize].listed, true) {
                self.below[cpu.0 as usize].push(task);
            }
        }
        // Without a successor it keeps its priority, and its gate alone holds it back.
        if self.eager || !successor { self.shut(task) } else { Ok(()) }
    }

    fn ended(&mut self, task: TaskId) -> io::Result<()> {
        self.unlist(task);
        Ok(())
    }

    fn grade(&mut self, grades: &[u8]) -> io::Result<()> {
        for (worker, &grade) in self.workers.iter_mut().zip(grades) {
            if std::mem::replace(&mut worker.grade, grade) != grade && !worker.lowered {
                self.ranks.raised(worker.who.tid, grade)?;
            }
        }
        Ok(())
    }

    fn ready(&mut self, task: TaskId) -> io::Result<()> {
        self.lift(task)
    }

    fn after(&mut self) -> After {
        std::mem::take(&mut self.after)
    }

    fn rest(&mut self, cpu: Cpu) -> io::Result<()> {
        while let Some(task) = self.below[cpu.0 as usize].pop() {
            let worker = &mut self.workers[task.0 as usize];
            worker.listed = false;
            if mutate!("exec-flip-rest", !worker.shut, false) {
                self.shut(task)?;
            }
        }
        Ok(())
    }
}
