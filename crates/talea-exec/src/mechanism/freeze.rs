//! Whole programs: stopped and let go as groups, seen from outside.
//!
//! Model: nobody tells what a program does. It stands in a group that is frozen or not
//! ([`talea_os::groups`]), and its threads, all of SCHED_RR at one priority that they inherit, have
//! a place of their own in the band: below the dispatcher, above the workers. It is in one of four
//! states.
//!
//! | state | its group | the machine knows | goes over |
//! | --- | --- | --- | --- |
//! | *held* | frozen | a job, which does not run | to *runs*, when it is ordered to |
//! | *runs* | not frozen | a job that runs | to *held*, when it is stopped; to *idle*, when it is quiet |
//! | *idle* | not frozen | no job | to *awake*, when it gets the CPU |
//! | *awake* | not frozen | a job since this instant | to *runs* or *held*, before the instant is over |
//!
//! *Quiet.* A sentinel on the CPU, a thread one below the programs and level with the workers that
//! may run, is rung whenever a program is let go. It gets the CPU exactly when nothing of the
//! program wants it, and says so; workers that were stopped stand below it and take no step
//! meanwhile. What it says is about one turn, the count of its bell: of an earlier one it means
//! nothing.
//!
//! *Awake.* An idle program is not frozen, or it would never wake. When it does, it has the CPU at
//! once, since it stands above the workers, and an ear hears that (a switch to any of its threads
//! or children, [`talea_os::wakes`]; or, where the kernel refuses that, a look at its clock each
//! millisecond). The machine is told of a new job. Either that is ordered to run, and then nothing
//! was lost, or the program is frozen until it is: it has had the CPU without an order for as long
//! as the ear and the dispatcher take, some twenty microseconds (a millisecond without the kernel's
//! help), once, and pays for that from its next budget.
//!
//! *Nothing is lost.* The ear is armed before the dispatcher, who has the CPU, calls a program
//! idle. If it has woken between the sentinel's word and that, it has not had the CPU since, and it
//! is heard when it gets it. Whoever is held has a job, also if all its threads sleep: it is let go
//! when it is its turn, and is quiet at once.
//!
//! Absent on purpose: programs on roots with several CPUs, of which a group would have to be moved
//! thread by thread; and putting back who changes its own policy or affinity, which is refused
//! where the kernel can ([`talea_os::launch`]), and told where it can't (the warden).

use crate::stage::Stage;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use talea_core::Work;
use talea_core::machine::{Cpu, TaskId};
use talea_core::mutate;

/// A program as the mechanism handles it.
pub(crate) trait Cage {
    /// It takes no step of its own any more.
    fn freeze(&mut self) -> io::Result<()>;
    /// It goes on.
    fn thaw(&mut self) -> io::Result<()>;
    /// What it has consumed in all.
    fn used(&mut self) -> io::Result<Work>;
    /// From now on its next step is heard.
    fn arm(&mut self) -> io::Result<()>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    Runs,
    Idle,
    Awake,
}

#[derive(Debug)]
struct Caged<C> {
    cage: C,
    state: State,
}

/// The programs of one root.
#[derive(Debug)]
pub(crate) struct Freeze<C> {
    stage: Arc<Stage>,
    /// By task; all of them are held at first.
    programs: Vec<Option<Caged<C>>>,
    /// By CPU: the count of its sentinel's bell since the program that it belongs to was let go.
    turns: Vec<Option<(u32, TaskId)>>,
}

impl<C: Cage> Freeze<C> {
    /// `cages`, by task, are frozen.
    pub(crate) fn new(stage: Arc<Stage>, cages: Vec<Option<C>>) -> Freeze<C> {
        let turns = vec![None; stage.cpus.len()];
        let held = |cage| Caged { cage, state: State::Held };
        Freeze { stage, programs: cages.into_iter().map(|cage| cage.map(held)).collect(), turns }
    }

    /// Whether `task` is one of them.
    pub(crate) fn has(&self, task: TaskId) -> bool {
        self.programs[task.0 as usize].is_some()
    }

    fn program(&mut self, task: TaskId) -> &mut Caged<C> {
        self.programs[task.0 as usize].as_mut().expect("one of the programs")
    }

    pub(crate) fn used(&mut self, task: TaskId) -> io::Result<Work> {
        self.program(task).cage.used()
    }

    /// It has `cpu` from now on, within a job or with a new one.
    pub(crate) fn run(&mut self, cpu: Cpu, task: TaskId) -> io::Result<()> {
        let program = self.program(task);
        if program.state == State::Held {
            program.cage.thaw()?;
        }
        program.state = State::Runs;
        let bell = &self.stage.cpus[cpu.0 as usize].sentinel.bell;
        bell.ring();
        // Nobody else rings it before the run is over.
        self.turns[cpu.0 as usize] = Some((bell.heard(), task));
        Ok(())
    }

    pub(crate) fn stop(&mut self, cpu: Cpu, task: TaskId) -> io::Result<()> {
        // Its successor's turn may have begun.
        self.turns[cpu.0 as usize].take_if(|&mut (_, of)| of == task);
        let program = self.program(task);
        program.state = State::Held;
        program.cage.freeze()
    }

    /// It has nothing to do.
    pub(crate) fn ended(&mut self, task: TaskId) -> io::Result<()> {
        for turn in &mut self.turns {
            turn.take_if(|&mut (_, of)| of == task);
        }
        let program = self.program(task);
        if program.state == State::Held {
            program.cage.thaw()?;
        }
        program.state = State::Idle;
        mutate!("exec-freeze-arm", program.cage.arm(), Ok(()))
    }

    /// The program that has `cpu`, if it was seen to have nothing to do in this turn.
    pub(crate) fn quiet(&mut self, cpu: Cpu) -> Option<TaskId> {
        let (turn, task) = self.turns[cpu.0 as usize]?;
        let said = self.stage.cpus[cpu.0 as usize].sentinel.quiet.load(Ordering::Acquire);
        (mutate!("exec-freeze-turn", said == turn, said != 0)).then_some(task)
    }

    /// One that was idle and is awake.
    pub(crate) fn woke(&mut self) -> Option<TaskId> {
        for (at, slot) in self.stage.slots.iter().enumerate() {
            let Some(program) = &mut self.programs[at] else { continue };
            // Of one that is not idle any more it says nothing new.
            if slot.woke.swap(false, Ordering::AcqRel) && program.state == State::Idle {
                program.state = State::Awake;
                return Some(TaskId(at as u32));
            }
        }
        None
    }

    /// Whoever is awake and was not ordered to run has to wait.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        for program in
            self.programs.iter_mut().flatten().filter(|program| program.state == State::Awake)
        {
            program.state = State::Held;
            mutate!(
                "exec-freeze-settle",
                {
                    program.cage.freeze()?;
                },
                {}
            );
        }
        Ok(())
    }

    /// Nobody takes a step any more.
    pub(crate) fn leave(&mut self) {
        for program in self.programs.iter_mut().flatten() {
            program.state = State::Held;
            // Whoever can't be frozen is about to be killed.
            let _: io::Result<()> = program.cage.freeze();
        }
    }
}
