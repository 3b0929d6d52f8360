//! Mechanism for programs: they are frozen and thawed as cgroups, and observed from outside.
//!
//! Model: a program reports nothing. Its cgroup is frozen or not ([`talea_os::cgroup`]), and all
//! its threads have the real-time level of its state ([`ProgramLevel`]), below the dispatcher. A
//! program is in one of five states.
//!
//! | state | its cgroup | level | the engine knows | transitions |
//! | --- | --- | --- | --- | --- |
//! | *frozen* | frozen | lowest | a job that does not run | to *running*, at its dispatch |
//! | *running* | thawed | above workers | a job that runs | to *frozen*, when preempted; to *idle* |
//! | *idle* | thawed | above *running* | no job | to *awake*, when it gets the CPU |
//! | *awake* | thawed | above *running* | a job since now | to *running* or *frozen* |
//! | *empty* | frozen | none | no job | to *frozen*, when a process enters |
//!
//! All transitions are made by the thread that steps, under the root lock. Two other threads only
//! report.
//!
//! *Freezing and demotion.* The kernel freezes a thread when it returns to user space, however long
//! its system call takes. So a stopped program is frozen first and then gets the lowest level: a
//! thread that runs on in the kernel runs below all other real-time threads. A dispatched program
//! gets its level first and is thawed then. Each change of the level reads the threads of the
//! cgroup, until no thread has another level: a thread that is created meanwhile has the level of
//! its creator. A real-time control group may limit the program in addition
//! ([`talea_os::cgroup::rt_group`]).
//!
//! *Time while stopped.* CPU time that a program consumes while it is stopped is attributed to the
//! interval between two orders. If no task had the CPU, the program took idle time. If another task
//! had it, the isolation failed ([`StoppedTime`]).
//!
//! *Idle detection.* An idle detector on the CPU, a thread one below the programs and level with
//! the workers that may run, is notified whenever a program is started or resumed. It gets the CPU
//! exactly when no thread of the program wants it, and reports the epoch in which that was.
//! Preempted workers stand below it and do not run meanwhile.
//!
//! *Wake-up detection.* An idle program is not frozen, because a frozen one would never wake. It
//! stands above running programs and workers, so it has the CPU as soon as it wakes. The kernel
//! reports a switch to any of its threads or children to its wakeup listener
//! ([`talea_os::wakeup_events`]). Where the kernel refuses that, the listener reads the CPU clock
//! of the program each millisecond. The step releases a new job. Either the engine dispatches that
//! job, and nothing was lost, or the program is frozen until it does. In that case the program had
//! the CPU without an order once, for as long as listener and dispatcher take: some twenty
//! microseconds, or a millisecond without the kernel's help. Its next budget is charged for that.
//!
//! *Release.* A job of a program is released at the wake-up, not when the engine has the event. The
//! kernel counts for each thread the time with a CPU and the time in a run queue
//! (`/proc/TID/schedstat`). Since the thread slept when the listener was armed, the difference to
//! that time is the time from the wake-up to the listener's report. It includes time in which the
//! program did not get its CPU, for example while the kernel's fair server had it.
//!
//! *Filled groups.* Another process may start and end the program ([`Load::group`](crate::Load)).
//! It freezes the cgroup before a process enters, so the program is frozen from its first
//! instruction. The entry is the release of a job, and the first order thaws the program. The
//! starter may do that in any state, so the stepping thread reads the cgroup at each report:
//!
//! | state | no members | members, frozen by the starter | members, thawed |
//! | --- | --- | --- | --- |
//! | *empty* | none | to *frozen*, a job is released | the same |
//! | *idle* | freezes: to *empty* | to *frozen*, a job is released | to *awake*, a job is released |
//! | *running* | none: found idle soon | none: found idle soon, and reported again | none |
//! | *frozen* | none: found idle at its dispatch | none | none |
//!
//! A program that is found idle becomes *empty* if it has no members. One that the starter has
//! frozen meanwhile is reported again. The kernel may report an exit and the next entry as one
//! change, so a program counts as entered if a step has found the group without members before. A
//! run takes over a filled group in any state: it freezes the
//! group, gives all threads the lowest level, and begins in *empty* with a report.
//!
//! Invariants:
//!
//! - F1. A report of an idle detector holds for one epoch; a report of an earlier epoch is ignored.
//! - F2. The listener is armed before the program becomes *idle*. A wake-up between the report of
//!   the detector and the arming is not lost: the stepping thread has the CPU, so the program gets
//!   it only later, and the listener sees that.
//! - F3. A *frozen* program has a job, even if all its threads sleep: it is thawed at its dispatch,
//!   and found idle at once.
//! - F4. The kernel never throttles the real-time control group of a *running* program, because the
//!   idle detector would get the CPU. The limit of the group exceeds what the servers above can
//!   order ([`talea_os::cgroup::rt_group::limit_of_server`]).
//! - F5. An *empty* group is frozen: the next process that enters does not run before its order. It
//!   is reported, because the stepping thread reads the members again after it has frozen the
//!   group: an entry before that is found, and the kernel reports a later one.
//!
//! Absent on purpose: programs on roots with several CPUs, because the threads of a cgroup would
//! have to be moved one by one. Also absent: restoring a policy or an affinity that a program
//! changes. The kernel refuses such changes where it can ([`talea_os::launch`]), and the run
//! reports them otherwise ([`policy_monitor`](crate::policy_monitor)).

use crate::root_shared::{ProgramLevel, RootShared};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use talea_core::engine::{Cpu, TaskId};
use talea_core::mutate;
use talea_core::{Span, Time, Work};

/// A program that can be frozen.
pub(crate) trait Freezable {
    /// Returns whether the program has members.
    fn members(&mut self) -> io::Result<Members>;
    /// Sets the lowest level of all threads of a program that another process has started.
    fn adopt(&mut self) -> io::Result<()>;
    /// Sets the level of all threads of the program.
    fn set_level(&mut self, level: ProgramLevel) -> io::Result<()>;
    /// Freezes the program: none of its threads runs in user space.
    fn freeze(&mut self) -> io::Result<()>;
    /// Thaws the program.
    fn thaw(&mut self) -> io::Result<()>;
    /// Whether all threads of the program are frozen.
    fn is_frozen(&mut self) -> io::Result<bool>;
    /// Returns the CPU time that the program has consumed.
    fn cpu_time(&mut self) -> io::Result<Work>;
    /// Arms the detection of the program's next wake-up.
    fn arm_wakeup(&mut self) -> io::Result<()>;
    /// Returns the time since the detected wake-up of the program.
    fn time_since_wakeup(&mut self) -> Span;
}

/// Members of the cgroup of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Members {
    /// The run has started the program. No process enters, and an exited program is idle.
    OfRun,
    /// None, in a group that another process fills.
    None,
    /// Some, in a group that another process fills.
    Some {
        /// Whether the last write to the freezer was a freeze.
        is_freezing: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Frozen,
    Running,
    Idle,
    Awake,
    Empty,
}

/// CPU time that a program consumed while it was stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoppedTime {
    /// CPU time that the stopped program consumed while no task had the CPU.
    pub idle: Work,
    /// CPU time that the stopped program consumed while another task had the CPU.
    pub busy: Work,
    /// The largest part of `busy` between two orders.
    pub max_busy: Work,
}

impl StoppedTime {
    /// CPU time between two orders up to which the isolation is not at fault. The kernel reports
    /// the clock of a cgroup in microseconds, and the reads take time.
    pub const TOLERANCE: Work = Work::from_ns(200_000);

    /// Whether the program ran in place of another task.
    pub fn is_fault(&self) -> bool {
        self.max_busy > StoppedTime::TOLERANCE
    }

    /// Returns the CPU time that the stopped program consumed in total.
    pub fn total(&self) -> Work {
        Work::from_ns(self.idle.as_ns() + self.busy.as_ns())
    }
}

#[derive(Debug)]
struct ProgramState<C> {
    program: C,
    state: State,
    /// CPU clock when the time while stopped was last attributed. `None` if the program is not
    /// stopped, or if all its threads were found frozen.
    stopped_at: Option<Work>,
    stopped: StoppedTime,
    /// Time at which the program last became idle.
    idle_since: Time,
}

impl<C: Freezable> ProgramState<C> {
    /// Promotes the program and thaws it.
    fn thaw(&mut self, level: ProgramLevel) -> io::Result<()> {
        self.stopped_at = None;
        // A thread in the kernel runs at once.
        self.program.set_level(level)?;
        self.program.thaw()
    }

    /// Freezes the program, and demotes the threads that cannot be frozen yet.
    fn freeze(&mut self) -> io::Result<()> {
        self.state = State::Frozen;
        self.program.freeze()?;
        mutate!("exec-freeze-demote", self.program.set_level(ProgramLevel::Stopped)?);
        // On its CPU: afterwards no thread of it has the CPU.
        self.stopped_at = Some(self.program.cpu_time()?);
        Ok(())
    }

    /// Freezes a group without members. Returns whether a process has entered meanwhile.
    fn empty(&mut self) -> io::Result<bool> {
        self.state = State::Empty;
        self.stopped_at = None;
        mutate!("exec-freeze-empty", self.program.freeze()?);
        Ok(self.program.members()? != Members::None)
    }

    /// Freezes a program that another process has started.
    fn enter(&mut self) -> io::Result<()> {
        self.state = State::Frozen;
        self.program.freeze()?;
        self.program.adopt()?;
        self.stopped_at = Some(self.program.cpu_time()?);
        Ok(())
    }

    /// Applies a report about the program. Returns whether a job is released.
    fn note_report(&mut self) -> io::Result<bool> {
        // A report about a program that is not idle any more says nothing new.
        match (self.state, self.program.members()?) {
            (State::Idle, Members::OfRun | Members::Some { is_freezing: false }) => {
                self.state = State::Awake;
                Ok(true)
            }
            (State::Empty, Members::Some { .. })
            | (State::Idle, Members::Some { is_freezing: true }) => {
                self.enter()?;
                Ok(true)
            }
            (State::Idle, Members::None) => {
                let is_entered = self.empty()?;
                if is_entered {
                    self.enter()?;
                }
                Ok(is_entered)
            }
            _ => Ok(false),
        }
    }

    /// Attributes the program's CPU time since the last call. `has_other` says whether another task
    /// had the CPU.
    fn attribute(&mut self, has_other: bool) -> io::Result<()> {
        let Some(before) = self.stopped_at else { return Ok(()) };
        let now = self.program.cpu_time()?;
        let used = now.checked_sub(before).unwrap_or(Work::ZERO);
        self.stopped_at = Some(now);
        if mutate!("exec-freeze-busy", has_other, has_other && used.is_zero()) {
            self.stopped.busy += used;
            self.stopped.max_busy = self.stopped.max_busy.max(used);
        } else {
            self.stopped.idle += used;
            // Its threads are frozen only when they get the CPU, so only on an idle CPU.
            if self.program.is_frozen()? {
                self.stopped_at = None;
            }
        }
        Ok(())
    }
}

/// Programs of one root.
#[derive(Debug)]
pub(crate) struct Freeze<C> {
    shared: Arc<RootShared>,
    /// `programs[n]`: state of the program of task `n`. All programs are frozen at first.
    programs: Vec<Option<ProgramState<C>>>,
    /// `epochs[c]`: epoch of the idle detector when the program on CPU `c` was last started or
    /// resumed, and the task of the program.
    epochs: Vec<Option<(u32, TaskId)>>,
    /// Whether a task has the CPU of the root.
    is_busy: bool,
    /// Time of the decision.
    now: Time,
}

impl<C: Freezable> Freeze<C> {
    /// Creates the mechanism. `programs[n]` is the program of task `n`, if that task is a program:
    /// one of the run, which is frozen, or a group that another process fills, in any state.
    pub(crate) fn new(shared: Arc<RootShared>, programs: Vec<Option<C>>) -> io::Result<Freeze<C>> {
        let epochs = vec![None; shared.cpus.len()];
        let take_over = |(at, program): (usize, Option<C>)| {
            let Some(program) = program else { return Ok(None) };
            let mut program = ProgramState {
                program,
                state: State::Frozen,
                stopped_at: None,
                stopped: StoppedTime::default(),
                idle_since: Time::ZERO,
            };
            if program.program.members()? != Members::OfRun {
                program.enter()?;
                program.state = State::Empty;
                // The first step finds the members.
                shared.slots[at].has_woken.store(true, Ordering::Release);
            }
            Ok(Some(program))
        };
        let programs = programs.into_iter().enumerate().map(take_over);
        let programs = programs.collect::<io::Result<_>>()?;
        Ok(Freeze { shared, programs, epochs, is_busy: false, now: Time::ZERO })
    }

    /// Starts a decision at `now`.
    pub(crate) fn begin_decision(&mut self, now: Time) {
        self.now = now;
    }

    /// Notes whether a task has the CPU of the root. Attributes the time since the last call.
    pub(crate) fn set_busy(&mut self, is_busy: bool) -> io::Result<()> {
        for program in self.programs.iter_mut().flatten() {
            program.attribute(self.is_busy)?;
        }
        self.is_busy = is_busy;
        Ok(())
    }

    /// Returns the CPU time that the program consumed while it was stopped.
    pub(crate) fn stopped_time(&self, task: TaskId) -> Option<StoppedTime> {
        self.programs[task.0 as usize].as_ref().map(|program| program.stopped)
    }

    /// Returns the program that plays `task`.
    pub(crate) fn handle(&self, task: TaskId) -> Option<&C> {
        self.programs[task.0 as usize].as_ref().map(|program| &program.program)
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

    /// Runs the program on `cpu`: resumes its job, or starts a new one. [`Freeze::set_busy`] has
    /// attributed its time while it was stopped.
    pub(crate) fn run(&mut self, cpu: Cpu, task: TaskId) -> io::Result<()> {
        let program = self.program(task);
        match program.state {
            State::Frozen | State::Empty => program.thaw(ProgramLevel::Running)?,
            State::Running => {}
            State::Idle | State::Awake => program.program.set_level(ProgramLevel::Running)?,
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
        self.program(task).freeze()
    }

    /// Completes the job of an idle program.
    pub(crate) fn complete(&mut self, task: TaskId) -> io::Result<()> {
        for epoch in &mut self.epochs {
            epoch.take_if(|&mut (_, of)| of == task);
        }
        let (has_other, now) = (self.is_busy, self.now);
        let program = self.program(task);
        program.idle_since = now;
        let is_replaced = match program.program.members()? {
            Members::None => {
                if program.empty()? {
                    self.shared.slots[task.0 as usize].has_woken.store(true, Ordering::Release);
                }
                return Ok(());
            }
            Members::Some { is_freezing } => is_freezing && program.state != State::Frozen,
            Members::OfRun => false,
        };
        match program.state {
            State::Frozen => {
                program.attribute(has_other)?;
                program.thaw(ProgramLevel::Idle)?;
            }
            State::Running => program.program.set_level(ProgramLevel::Idle)?,
            State::Idle | State::Awake | State::Empty => {}
        }
        program.state = State::Idle;
        mutate!("exec-freeze-arm", program.program.arm_wakeup()?);
        if mutate!("exec-freeze-replaced", is_replaced, false) {
            self.shared.slots[task.0 as usize].has_woken.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Returns the program on `cpu` if the idle detector found the program idle in the current
    /// epoch.
    pub(crate) fn take_idle(&mut self, cpu: Cpu) -> Option<TaskId> {
        let (epoch, task) = self.epochs[cpu.0 as usize]?;
        let idle_epoch =
            self.shared.cpus[cpu.0 as usize].idle_detector.idle_epoch.load(Ordering::Acquire);
        (mutate!("exec-freeze-turn", idle_epoch == epoch, idle_epoch != 0)).then_some(task)
    }

    /// Returns a program that was idle and has woken, and the time since its wake-up.
    pub(crate) fn take_woken(&mut self) -> io::Result<Option<(TaskId, Span)>> {
        for (at, slot) in self.shared.slots.iter().enumerate() {
            let Some(program) = &mut self.programs[at] else { continue };
            if slot.has_woken.swap(false, Ordering::AcqRel) && program.note_report()? {
                let task = TaskId(at as u32);
                if program.state != State::Awake {
                    return Ok(Some((task, Span::ZERO)));
                }
                let since = program.program.time_since_wakeup();
                let ago = mutate!("exec-freeze-wake-time", since, Span::ZERO);
                return Ok(Some((task, ago.min(self.now.since(program.idle_since)))));
            }
        }
        Ok(None)
    }

    /// Freezes each program that is awake and was not dispatched.
    pub(crate) fn commit(&mut self) -> io::Result<()> {
        for program in
            self.programs.iter_mut().flatten().filter(|program| program.state == State::Awake)
        {
            mutate!("exec-freeze-settle", program.freeze()?, program.state = State::Frozen);
        }
        Ok(())
    }

    /// Freezes all programs.
    pub(crate) fn shut_down(&mut self) {
        for program in self.programs.iter_mut().flatten() {
            // A program that cannot be frozen is about to be killed.
            let _: io::Result<()> = program.attribute(self.is_busy);
            let _: io::Result<()> = program.freeze();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;
    use talea_core::CpuSet;

    /// A program that the test drives.
    #[derive(Debug, Default)]
    struct Stuck {
        calls: Vec<String>,
        used_us: u64,
        is_frozen: bool,
    }

    impl Freezable for Rc<RefCell<Stuck>> {
        fn members(&mut self) -> io::Result<Members> {
            Ok(Members::OfRun)
        }

        fn adopt(&mut self) -> io::Result<()> {
            unreachable!("the run has started it")
        }

        fn set_level(&mut self, level: ProgramLevel) -> io::Result<()> {
            self.borrow_mut().calls.push(format!("{level:?}"));
            Ok(())
        }

        fn freeze(&mut self) -> io::Result<()> {
            self.borrow_mut().calls.push("freeze".to_owned());
            Ok(())
        }

        fn thaw(&mut self) -> io::Result<()> {
            self.borrow_mut().calls.push("thaw".to_owned());
            Ok(())
        }

        fn is_frozen(&mut self) -> io::Result<bool> {
            Ok(self.borrow().is_frozen)
        }

        fn cpu_time(&mut self) -> io::Result<Work> {
            Ok(Work::from_ns(self.borrow().used_us * 1_000))
        }

        fn arm_wakeup(&mut self) -> io::Result<()> {
            self.borrow_mut().calls.push("arm".to_owned());
            Ok(())
        }

        fn time_since_wakeup(&mut self) -> Span {
            Span::from_ns(7_000)
        }
    }

    const CPU: Cpu = Cpu(0);
    const TASK: TaskId = TaskId(0);

    type Shared = Rc<RefCell<Stuck>>;

    fn one() -> (Shared, Freeze<Shared>, Arc<RootShared>) {
        let shared = Arc::new(RootShared::new(&[0], 1, false, &CpuSet::single(0)));
        let program = Rc::new(RefCell::new(Stuck::default()));
        let freeze = Freeze::new(Arc::clone(&shared), vec![Some(Rc::clone(&program))]);
        let freeze = freeze.expect("no kernel");
        (program, freeze, shared)
    }

    #[test]
    fn a_program_is_demoted_after_it_is_frozen_and_promoted_before_it_is_thawed() {
        let (program, mut freeze, shared) = one();
        let calls = |wanted: &[&str]| {
            assert_eq!(std::mem::take(&mut program.borrow_mut().calls), wanted);
        };
        freeze.run(CPU, TASK).expect("no kernel");
        calls(&["Running", "thaw"]);
        freeze.stop(CPU, TASK).expect("no kernel");
        calls(&["freeze", "Stopped"]);
        // Found idle at its dispatch: it wakes above a running program.
        freeze.complete(TASK).expect("no kernel");
        calls(&["Idle", "thaw", "arm"]);
        let mut wake = |dispatch: bool| {
            shared.slots[0].has_woken.store(true, Ordering::Relaxed);
            freeze.begin_decision(Time::from_ns(10_000));
            let woken = freeze.take_woken().expect("no kernel");
            assert_eq!(woken, Some((TASK, Span::from_ns(7_000))));
            if dispatch {
                freeze.run(CPU, TASK).expect("no kernel");
            }
            freeze.commit().expect("no kernel");
            freeze.complete(TASK).expect("no kernel");
        };
        wake(true);
        calls(&["Running", "Idle", "arm"]);
        // Idle since the same instant: a wake-up is not earlier.
        freeze.begin_decision(Time::from_ns(10_000));
        shared.slots[0].has_woken.store(true, Ordering::Relaxed);
        assert_eq!(freeze.take_woken().expect("no kernel"), Some((TASK, Span::ZERO)));
        freeze.commit().expect("no kernel");
        calls(&["freeze", "Stopped"]);
    }

    #[test]
    fn time_while_stopped_is_a_fault_only_if_another_task_had_the_cpu() {
        let (program, mut freeze, _shared) = one();
        let uses = |us: u64| program.borrow_mut().used_us += us;
        let stopped = |freeze: &Freeze<_>| freeze.stopped_time(TASK).expect("a program");
        let us = |us: u64| Work::from_ns(us * 1_000);
        freeze.set_busy(true).expect("no kernel");
        freeze.run(CPU, TASK).expect("no kernel");
        uses(1_000);
        freeze.stop(CPU, TASK).expect("no kernel");
        freeze.set_busy(false).expect("no kernel");
        assert_eq!(stopped(&freeze), StoppedTime::default(), "it had an order");
        // No task has the CPU: idle time is taken.
        uses(30_000);
        freeze.set_busy(true).expect("no kernel");
        assert_eq!(stopped(&freeze).idle, us(30_000));
        assert!(!stopped(&freeze).is_fault());
        // Another task has it.
        uses(90);
        freeze.set_busy(true).expect("no kernel");
        assert_eq!((stopped(&freeze).busy, stopped(&freeze).is_fault()), (us(90), false));
        uses(5_000);
        freeze.set_busy(false).expect("no kernel");
        let all = StoppedTime { idle: us(30_000), busy: us(5_090), max_busy: us(5_000) };
        assert_eq!((stopped(&freeze), all.is_fault()), (all, true));
        // Once frozen it is not read any more, until it is stopped again.
        program.borrow_mut().is_frozen = true;
        freeze.set_busy(true).expect("no kernel");
        uses(5_000);
        freeze.set_busy(false).expect("no kernel");
        assert_eq!(stopped(&freeze), all);
        freeze.run(CPU, TASK).expect("no kernel");
        uses(1_000);
        freeze.stop(CPU, TASK).expect("no kernel");
        assert_eq!(stopped(&freeze), all);
    }
}
