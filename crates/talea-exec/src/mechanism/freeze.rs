//! Mechanism for programs: they are frozen and thawed as cgroups, and observed from outside.
//!
//! Model: a program reports nothing. Its cgroup is frozen or not ([`talea_os::cgroup`]). Its
//! threads are all SCHED_RR at one priority that they inherit: below the dispatcher, above the
//! workers. A program is in one of four states.
//!
//! | state | its cgroup | the engine knows | transitions |
//! | --- | --- | --- | --- |
//! | *frozen* | frozen | a job that does not run | to *running*, at its dispatch |
//! | *running* | thawed | a job that runs | to *frozen*, when preempted; to *idle*, when idle |
//! | *idle* | thawed | no job | to *awake*, when it gets the CPU |
//! | *awake* | thawed | a job since this instant | to *running* or *frozen* in the same step |
//!
//! All transitions are made by the thread that steps, under the root lock. Two other threads only
//! report.
//!
//! *Idle detection.* An idle detector on the CPU, a thread one below the programs and level with
//! the workers that may run, is notified whenever a program is started or resumed. It gets the CPU
//! exactly when no thread of the program wants it, and reports the epoch in which that was.
//! Preempted workers stand below it and do not run meanwhile.
//!
//! *Wake-up detection.* An idle program is not frozen, because a frozen one would never wake. It
//! stands above the workers, so it has the CPU as soon as it wakes. The kernel reports a switch to
//! any of its threads or children to its wakeup listener ([`talea_os::wakeup_events`]). Where the
//! kernel refuses that, the listener reads the CPU clock of the program each millisecond. The step
//! releases a new job. Either the engine dispatches that job, and nothing was lost, or the program
//! is frozen until it does. In that case the program had the CPU without an order once, for as long
//! as listener and dispatcher take: some twenty microseconds, or a millisecond without the kernel's
//! help. Its next budget is charged for that.
//!
//! Invariants:
//!
//! - F1. A report of an idle detector holds for one epoch; a report of an earlier epoch is ignored.
//! - F2. The listener is armed before the program becomes *idle*. A wake-up between the report of
//!   the detector and the arming is not lost: the stepping thread has the CPU, so the program gets
//!   it only later, and the listener sees that.
//! - F3. A *frozen* program has a job, even if all its threads sleep: it is thawed at its dispatch,
//!   and found idle at once.
//!
//! Absent on purpose: programs on roots with several CPUs, because the threads of a cgroup would
//! have to be moved one by one. Also absent: restoring a policy or an affinity that a program
//! changes. The kernel refuses such changes where it can ([`talea_os::launch`]), and the run
//! reports them otherwise ([`policy_monitor`](crate::policy_monitor)).

use crate::root_shared::RootShared;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use talea_core::Work;
use talea_core::engine::{Cpu, TaskId};
use talea_core::mutate;

/// A program that can be frozen.
pub(crate) trait Freezable {
    /// Freezes it: no thread of it runs.
    fn freeze(&mut self) -> io::Result<()>;
    /// Thaws it.
    fn thaw(&mut self) -> io::Result<()>;
    /// CPU time that it has consumed.
    fn cpu_time(&mut self) -> io::Result<Work>;
    /// Arms the detection of its next wake-up.
    fn arm_wakeup(&mut self) -> io::Result<()>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Frozen,
    Running,
    Idle,
    Awake,
}

#[derive(Debug)]
struct ProgramState<C> {
    program: C,
    state: State,
}

/// Programs of one root.
#[derive(Debug)]
pub(crate) struct Freeze<C> {
    shared: Arc<RootShared>,
    /// States, by task; all programs are frozen at first.
    programs: Vec<Option<ProgramState<C>>>,
    /// Epoch of the idle detector since the program of a CPU was started or resumed, by CPU.
    epochs: Vec<Option<(u32, TaskId)>>,
}

impl<C: Freezable> Freeze<C> {
    /// Creates the mechanism for these programs, by task; all are frozen.
    pub(crate) fn new(shared: Arc<RootShared>, programs: Vec<Option<C>>) -> Freeze<C> {
        let epochs = vec![None; shared.cpus.len()];
        let frozen = |program| ProgramState { program, state: State::Frozen };
        Freeze {
            shared,
            programs: programs.into_iter().map(|program| program.map(frozen)).collect(),
            epochs,
        }
    }

    /// Whether `task` is a program.
    pub(crate) fn contains(&self, task: TaskId) -> bool {
        self.programs[task.0 as usize].is_some()
    }

    fn program(&mut self, task: TaskId) -> &mut ProgramState<C> {
        self.programs[task.0 as usize].as_mut().expect("one of the programs")
    }

    pub(crate) fn cpu_time(&mut self, task: TaskId) -> io::Result<Work> {
        self.program(task).program.cpu_time()
    }

    /// Runs the program on `cpu`, within a job or with a new one.
    pub(crate) fn run(&mut self, cpu: Cpu, task: TaskId) -> io::Result<()> {
        let program = self.program(task);
        if program.state == State::Frozen {
            program.program.thaw()?;
        }
        program.state = State::Running;
        let epoch = &self.shared.cpus[cpu.0 as usize].idle_detector.epoch;
        epoch.notify();
        // Only this function advances the epoch before the run is over.
        self.epochs[cpu.0 as usize] = Some((epoch.key(), task));
        Ok(())
    }

    pub(crate) fn stop(&mut self, cpu: Cpu, task: TaskId) -> io::Result<()> {
        // The epoch of its successor may have begun.
        self.epochs[cpu.0 as usize].take_if(|&mut (_, of)| of == task);
        let program = self.program(task);
        program.state = State::Frozen;
        program.program.freeze()
    }

    /// Completes the job of an idle program.
    pub(crate) fn complete(&mut self, task: TaskId) -> io::Result<()> {
        for epoch in &mut self.epochs {
            epoch.take_if(|&mut (_, of)| of == task);
        }
        let program = self.program(task);
        if program.state == State::Frozen {
            program.program.thaw()?;
        }
        program.state = State::Idle;
        mutate!("exec-freeze-arm", program.program.arm_wakeup(), Ok(()))
    }

    /// Returns the program that has `cpu`, if it was found idle in this epoch.
    pub(crate) fn take_idle(&mut self, cpu: Cpu) -> Option<TaskId> {
        let (epoch, task) = self.epochs[cpu.0 as usize]?;
        let idle_epoch =
            self.shared.cpus[cpu.0 as usize].idle_detector.idle_epoch.load(Ordering::Acquire);
        (mutate!("exec-freeze-turn", idle_epoch == epoch, idle_epoch != 0)).then_some(task)
    }

    /// Returns a program that was idle and has woken, if any.
    pub(crate) fn take_woken(&mut self) -> Option<TaskId> {
        for (at, slot) in self.shared.slots.iter().enumerate() {
            let Some(program) = &mut self.programs[at] else { continue };
            // A report about a program that is not idle any more says nothing new.
            if slot.has_woken.swap(false, Ordering::AcqRel) && program.state == State::Idle {
                program.state = State::Awake;
                return Some(TaskId(at as u32));
            }
        }
        None
    }

    /// Freezes each program that is awake and was not dispatched.
    pub(crate) fn commit(&mut self) -> io::Result<()> {
        for program in
            self.programs.iter_mut().flatten().filter(|program| program.state == State::Awake)
        {
            program.state = State::Frozen;
            mutate!(
                "exec-freeze-settle",
                {
                    program.program.freeze()?;
                },
                {}
            );
        }
        Ok(())
    }

    /// Freezes all programs.
    pub(crate) fn shut_down(&mut self) {
        for program in self.programs.iter_mut().flatten() {
            program.state = State::Frozen;
            // A program that cannot be frozen is about to be killed.
            let _: io::Result<()> = program.program.freeze();
        }
    }
}
