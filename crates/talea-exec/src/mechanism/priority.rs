//! Mechanism by priorities, with a stop gate where a priority is not enough.
//!
//! | state of a worker | its priority | its stop gate |
//! | --- | --- | --- |
//! | runs, waits, or sleeps | its level | open |
//! | preempted | its level, or the bottom (*parked*) | open |
//! | waits for a device in a suspended job | above all workers | open |
//! | preempted, and no other worker keeps it from the CPU (P2, P3, P5) | any | closed (*stopped*) |
//!
//! | event | on a root with one CPU | on a root with several CPUs |
//! | --- | --- | --- |
//! | dispatch | restore the level; open the gate | the same, and pin |
//! | preemption by another worker | park, if it would preempt that worker (P1) | park and stop |
//! | preemption without a successor | stop | stop |
//! | the CPU becomes idle | stop all preempted workers of the CPU | nothing is left to do |
//!
//! Invariants:
//!
//! - P1. Of the workers with a job, the dispatched one has the highest priority, or all others are
//!   stopped. Where levels are preemption levels ([`Engine::preemption_levels`]) this needs no
//!   parking: of the started jobs the one to run has the highest level. A job then costs no system
//!   call but the wake-up at its start and the wait at its end. Otherwise (late steps, resumed
//!   suspensions, equal levels) a worker that would preempt is parked. On roots with several CPUs
//!   all workers have one level.
//! - P2. On an idle CPU no preempted worker runs: its gate is closed ([`talea_os::signal_stop`]),
//!   and it sleeps before its next instruction. A priority alone keeps a thread only from a CPU
//!   that another one wants.
//! - P3. On a root with several CPUs each preempted worker is stopped. A dispatcher may wait there
//!   for the lock of the other, while the next worker on its CPU could run.
//! - P4. A stepping worker is not preempted by a worker that it dispatches or resumes. It wakes
//!   that one after it has released the lock, and has the highest level itself while it restores a
//!   higher one.
//! - P5. Without priorities that the run controls, gates are the only means: each preempted worker
//!   is stopped.
//!
//! Absent on purpose: workers that block within a job without reporting it
//! ([`suspension`](crate::suspension)). The kernel then runs the next one, which may be a preempted
//! one on a root with one CPU, unless the load says that the worker sleeps with its CPU.
//!
//! [`Engine::preemption_levels`]: talea_core::engine::Engine::preemption_levels

use super::{Deferred, Mechanism};
use crate::root_shared::{PriorityControl, PriorityMap, RootShared};
use crate::suspension_state::WorkerReport;
use crate::work::Job;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use talea_core::engine::{Cpu, TaskId};
use talea_core::mutate;
use talea_core::{CpuSet, Time, Work};
use talea_os::Tid;
use talea_os::sched;
use talea_os::thread_cpu_clock::ThreadCpuClock;

/// A worker thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerThread {
    pub(crate) tid: Tid,
    pub(crate) clock: ThreadCpuClock,
}

/// State of a worker in the kernel.
#[derive(Clone, Copy, Debug)]
struct WorkerPlacement {
    thread: WorkerThread,
    /// CPU to which the worker is pinned.
    cpu: Cpu,
    /// Level of the worker; level 0 is the highest.
    level: u8,
    /// Whether the worker has the bottom priority.
    is_parked: bool,
    /// Whether the worker has the priority of a wait for a device.
    is_raised: bool,
    /// Whether the stop gate of the worker is closed.
    is_stopped: bool,
    /// Whether the worker is in the list of preempted workers of its CPU.
    is_listed: bool,
}

/// Mechanism of one root.
#[derive(Debug)]
pub(crate) struct PriorityMechanism {
    shared: Arc<RootShared>,
    priorities: PriorityMap,
    workers: Vec<WorkerPlacement>,
    /// `preempted[c]`: workers on CPU `c` that were preempted within a job and that only their
    /// priority keeps from running.
    preempted: Vec<Vec<TaskId>>,
    /// `last_dispatched[c]`: task of the worker that was last dispatched on CPU `c`.
    last_dispatched: Vec<Option<TaskId>>,
    /// Whether each preempted worker is stopped (P3, P5).
    always_stop: bool,
    /// Worker that makes the current step; `None` if a dispatcher makes it.
    stepping_worker: Option<TaskId>,
    /// System calls that the stepping worker makes after its step.
    deferred: Deferred,
}

impl PriorityMechanism {
    /// Creates the mechanism. Pins each worker to the first CPU at the highest level. `sleeps` says
    /// whether a worker may sleep while it has a CPU.
    pub(crate) fn new(
        shared: Arc<RootShared>,
        priorities: PriorityMap,
        workers: &[WorkerThread],
        sleeps: bool,
    ) -> PriorityMechanism {
        let cpus = shared.cpus.len();
        let place = |&thread: &WorkerThread| WorkerPlacement {
            thread,
            cpu: Cpu(0),
            level: 0,
            is_parked: false,
            is_raised: false,
            is_stopped: false,
            is_listed: false,
        };
        PriorityMechanism {
            workers: workers.iter().map(place).collect(),
            preempted: (0..cpus).map(|_| Vec::with_capacity(workers.len())).collect(),
            last_dispatched: vec![None; cpus],
            // Without priorities that can be set there are only gates.
            always_stop: cpus > 1
                || mutate!("exec-occupation-stops", sleeps, false)
                || mutate!(
                    "runtime-given-gates",
                    priorities.control != PriorityControl::Full,
                    priorities.control == PriorityControl::None
                ),
            shared,
            priorities,
            stepping_worker: None,
            deferred: Deferred::default(),
        }
    }

    fn tid(&self, task: TaskId) -> Tid {
        self.workers[task.0 as usize].thread.tid
    }

    /// Removes a worker from the list of its CPU, because the worker runs again or its gate is
    /// closed.
    fn unlist(&mut self, task: TaskId) {
        let worker = &mut self.workers[task.0 as usize];
        if std::mem::replace(&mut worker.is_listed, false) {
            self.preempted[worker.cpu.0 as usize].retain(|&stopped| stopped != task);
        }
    }

    fn park(&mut self, task: TaskId) -> io::Result<()> {
        self.priorities.set_parked(self.tid(task))?;
        self.workers[task.0 as usize].is_parked = true;
        Ok(())
    }

    /// Restores the level of a parked or raised worker.
    fn restore_level(&mut self, task: TaskId) -> io::Result<()> {
        let worker = &mut self.workers[task.0 as usize];
        let is_raised = std::mem::replace(&mut worker.is_raised, false);
        if std::mem::replace(&mut worker.is_parked, false)
            || mutate!("exec-suspension-restore", is_raised, false)
        {
            self.priorities.set_runnable(worker.thread.tid, worker.level)?;
        }
        Ok(())
    }

    /// Raises the stepping worker above `task`, which is about to run (P4).
    fn boost_stepper(&mut self, task: TaskId) -> io::Result<()> {
        let Some(by) =
            self.stepping_worker.filter(|_| !self.always_stop && self.deferred.restore.is_none())
        else {
            return Ok(());
        };
        let (worker, stepper) = (self.workers[task.0 as usize], self.workers[by.0 as usize]);
        if mutate!(
            "exec-flip-hold",
            worker.level < stepper.level,
            false && worker.level < stepper.level
        ) {
            self.priorities.set_runnable(stepper.thread.tid, 0)?;
            self.deferred.restore = Some((self.priorities, stepper.thread.tid, stepper.level));
        }
        Ok(())
    }

    /// Whether `task`, which was preempted, would preempt `other` or share its level.
    fn would_preempt(&self, task: TaskId, other: TaskId) -> bool {
        let (task, other) = (&self.workers[task.0 as usize], &self.workers[other.0 as usize]);
        !task.is_parked && task.level <= other.level
    }

    /// Pins the worker to `cpu` and makes it runnable there.
    fn make_runnable(&mut self, cpu: Cpu, task: TaskId) -> io::Result<()> {
        let at = task.0 as usize;
        self.last_dispatched[cpu.0 as usize] = Some(task);
        self.unlist(task);
        for stopped in 0..self.preempted[cpu.0 as usize].len() {
            let stopped = self.preempted[cpu.0 as usize][stopped];
            if mutate!(
                "exec-flip-way",
                self.would_preempt(stopped, task),
                false && self.would_preempt(stopped, task)
            ) {
                self.park(stopped)?;
            }
        }
        if self.workers[at].cpu != cpu {
            let physical = self.shared.cpus[cpu.0 as usize].number;
            sched::set_affinity(self.workers[at].thread.tid, &CpuSet::single(physical))?;
            self.workers[at].cpu = cpu;
            self.shared.slots[at].cpu.store(cpu.0, Ordering::Release);
        }
        if self.workers[at].is_parked || self.workers[at].is_stopped {
            self.boost_stepper(task)?;
        }
        self.restore_level(task)?;
        if self.workers[at].is_stopped {
            mutate!("exec-flip-forgotten", self.shared.slots[at].stop_gate.resume());

            self.workers[at].is_stopped = false;
        }
        Ok(())
    }

    fn stop_thread(&mut self, task: TaskId) -> io::Result<()> {
        let at = task.0 as usize;
        mutate!(
            "exec-flip-gate",
            {
                self.workers[at].is_stopped = true;
                self.shared.slots[at].stop_gate.stop(self.workers[at].thread.tid)
            },
            Ok(())
        )
    }
}

impl Mechanism for PriorityMechanism {
    type Error = io::Error;

    fn begin_decision(&mut self, _now: Time, by: Option<TaskId>) {
        self.stepping_worker = by;
    }

    fn cpu_time(&mut self, task: TaskId) -> io::Result<Work> {
        self.workers[task.0 as usize].thread.clock.read()
    }

    fn begin(&mut self, cpu: Cpu, task: TaskId, job: Job) -> io::Result<()> {
        self.make_runnable(cpu, task)?;
        let slot = &self.shared.slots[task.0 as usize];
        slot.assign(job);
        match self.stepping_worker {
            // It runs already.
            Some(by) if by == task => {}
            Some(_) if mutate!("exec-flip-behind", !self.always_stop, false) => {
                self.deferred.wake = Some(task);
            }
            _ => slot.wake(),
        }
        Ok(())
    }

    fn resume(&mut self, cpu: Cpu, task: TaskId) -> io::Result<()> {
        self.make_runnable(cpu, task)
    }

    fn stop(&mut self, cpu: Cpu, task: TaskId, successor: bool) -> io::Result<()> {
        if successor {
            // A program stands above all workers, and is none.
            let successor = self.last_dispatched[cpu.0 as usize].filter(|&on| on != task);
            if self.always_stop
                || mutate!(
                    "exec-flip-priority",
                    successor.is_none_or(|successor| self.would_preempt(task, successor)),
                    successor.is_none()
                )
            {
                self.park(task)?;
            }
            if !self.always_stop
                && !std::mem::replace(&mut self.workers[task.0 as usize].is_listed, true)
            {
                self.preempted[cpu.0 as usize].push(task);
            }
        }
        // Without a successor it keeps its priority, and only its gate keeps it from running.
        if self.always_stop || !successor { self.stop_thread(task) } else { Ok(()) }
    }

    fn complete(&mut self, task: TaskId) -> io::Result<()> {
        self.unlist(task);
        Ok(())
    }

    fn read_report(&mut self, task: TaskId, is_suspended: bool) -> WorkerReport {
        self.shared.slots[task.0 as usize].suspension.read(is_suspended)
    }

    fn suspend(&mut self, task: TaskId) -> io::Result<()> {
        self.unlist(task);
        let (at, tid) = (task.0 as usize, self.tid(task));
        mutate!("exec-suspension-raise", self.priorities.set_waiting(tid)?, {});
        self.workers[at].is_raised = true;
        self.workers[at].is_parked = false;
        // A step may have stopped the worker between its report and this step.
        if std::mem::replace(&mut self.workers[at].is_stopped, false) {
            self.shared.slots[at].stop_gate.resume();
        }
        Ok(())
    }

    fn set_levels(&mut self, levels: &[u8]) -> io::Result<()> {
        for (worker, &level) in self.workers.iter_mut().zip(levels) {
            if std::mem::replace(&mut worker.level, level) != level
                && !worker.is_parked
                && !worker.is_raised
            {
                let tid = worker.thread.tid;
                mutate!("exec-flip-level", self.priorities.set_runnable(tid, level)?);
            }
        }
        Ok(())
    }

    fn unpark(&mut self, task: TaskId) -> io::Result<()> {
        self.restore_level(task)
    }

    fn take_deferred(&mut self) -> Deferred {
        std::mem::take(&mut self.deferred)
    }

    fn idle(&mut self, cpu: Cpu) -> io::Result<()> {
        while let Some(task) = self.preempted[cpu.0 as usize].pop() {
            let worker = &mut self.workers[task.0 as usize];
            worker.is_listed = false;
            if mutate!("exec-flip-rest", !worker.is_stopped, false) {
                self.stop_thread(task)?;
            }
        }
        Ok(())
    }
}
