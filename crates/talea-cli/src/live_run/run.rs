//! Execution of a system's jobs on real threads; the jobs are drawn as in a simulation.

use super::dry_run::LoadEstimate;
use super::place::CpuAssignment;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::AsFd;
use talea_core::{Monotonic, Span, Time};
use talea_exec::run::MAX_RECORD_CAPACITY;
use talea_exec::{
    Calibration, Failure, JobBody, Load, Options, Report, RequestedMechanism, RootPlan, RunControl,
    TaskPlan, execute_until, work,
};
use talea_os::signals::{Signal, Signals, TerminalStopsBlocked};
use talea_sim::rng::root_seed;
use talea_system::system::System;

/// How jobs execute.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WorkMode {
    /// Jobs run until the thread's own CPU clock shows the cost: exact, independent of the CPU's
    /// speed.
    #[default]
    Budget,
    /// Jobs run a number of loop iterations, calibrated before the run: the time depends on the
    /// CPU's speed.
    Iterations,
}

/// Parameters of a run.
pub(crate) struct RunSetup<'s> {
    pub(crate) system: &'s System,
    pub(crate) duration: Span,
    pub(crate) seed: u64,
    pub(crate) places: &'s CpuAssignment,
    pub(crate) work_mode: WorkMode,
    pub(crate) rights: PriorityUse,
    pub(crate) mechanism: RequestedMechanism,
    /// Whether `sched_switch` events are recorded.
    pub(crate) switches: bool,
    /// `estimates[root]`: estimated load.
    pub(crate) estimates: &'s [LoadEstimate],
    /// See [`Options::begin`].
    pub(crate) begin: Option<Monotonic>,
    /// Returns the function that jobs of the task with this name execute, instead of busy waiting.
    pub(crate) bodies: &'s Bodies<'s>,
}

/// Map from the name of a task to its function.
pub(crate) type Bodies<'s> = dyn Fn(&str) -> Option<JobBody<'s>> + 's;

/// Use of real-time priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PriorityUse {
    /// The run fails without them.
    Required,
    /// The run does without them if there is no right to them.
    Preferred,
    /// The run never uses them.
    Unused,
}

/// Result of a run.
pub(crate) struct LiveRun {
    pub(crate) report: Report,
    /// Whether threads had real-time priorities.
    pub(crate) is_real: bool,
    /// Whether a signal ended the run early.
    pub(crate) interrupted: bool,
}

/// Reason why nothing was executed, as a sentence.
pub(crate) struct NotExecutable(pub(crate) String);

/// Executes a system.
///
/// # Errors
/// Outer: a failure. Inner: the system cannot be executed here.
pub(crate) fn run(setup: &RunSetup<'_>) -> anyhow::Result<Result<LiveRun, NotExecutable>> {
    let pace = match setup.work_mode {
        WorkMode::Budget => None,
        WorkMode::Iterations => Some(Calibration::measure()),
    };
    let mut options = Options::new(setup.duration);
    let has_programs =
        setup.system.roots.iter().any(|root| root.programs.iter().any(Option::is_some));
    options.record_capacity =
        record_capacity(setup.estimates).max(if has_programs { MIN_PROGRAM_ENTRIES } else { 0 });
    options.begin = setup.begin;
    options.max_switches = if setup.switches { options.record_capacity } else { 0 };
    options.mechanism = setup.mechanism;
    options.priorities = setup.rights != PriorityUse::Unused;
    let remote = RunControl::default();
    // Without this, a stop signal would stop the run while its programs continue.
    let _unstopped = has_programs
        .then(TerminalStopsBlocked::new)
        .transpose()
        .context("cannot keep signals off")?;
    let attempt = |options: &Options| {
        run_until_signal(&remote, || execute_until(plans(setup, pace), options, &remote))
    };
    let mut ended = attempt(&options)?;
    if matches!(ended, Err(Failure::NoRight(_))) && setup.rights == PriorityUse::Preferred {
        options.priorities = false;
        ended = attempt(&options)?;
    }
    match ended {
        Ok(report) => {
            let interrupted = remote.is_cancelled();
            Ok(Ok(LiveRun { report, is_real: options.priorities, interrupted }))
        }
        Err(failure @ (Failure::Plan(_) | Failure::Tree(_))) => {
            Ok(Err(NotExecutable(failure.to_string())))
        }
        Err(failure @ Failure::NoRight(_)) => Ok(Err(NotExecutable(format!(
            "{failure}, and --best-effort runs without priorities, best effort"
        )))),
        Err(failure) => Err(failure.into()),
    }
}

/// Estimates the record entries of a dispatcher: several times those of the simulation.
fn record_capacity(estimates: &[LoadEstimate]) -> usize {
    const EACH: u64 = 24;
    const LEAST: usize = 1 << 14;
    let steps = estimates.iter().map(|sketch| sketch.steps).max().unwrap_or(0);
    usize::try_from(steps.saturating_mul(EACH))
        .unwrap_or(MAX_RECORD_CAPACITY)
        .clamp(LEAST, MAX_RECORD_CAPACITY)
}

/// Minimum number of entries with programs, because the number of their wake-ups is unknown.
const MIN_PROGRAM_ENTRIES: usize = 1 << 18;

/// Number of costs beyond the jobs of the simulation.
const SPARE_JOBS: usize = 64;

fn plans<'s>(setup: &RunSetup<'s>, pace: Option<Calibration>) -> Vec<RootPlan<'s>> {
    let until = Time::ZERO + setup.duration;
    let roots = setup.system.roots.iter().zip(setup.places).enumerate();
    let plan = |(number, (root, cpus)): (usize, (&'s talea_system::system::Root, &Vec<u32>))| {
        // Delays in a graph may cause some additional jobs.
        let jobs = |task: usize| setup.estimates[number].begun[task] as usize + SPARE_JOBS;
        let drawn =
            talea_sim::generate_jobs(&root.workload(root_seed(setup.seed, number)), until, jobs);
        let described =
            drawn.into_iter().zip(&root.sources).zip(root.tasks.iter().zip(&root.programs));
        let tasks = described.map(|((drawn, source), (name, program))| {
            let load = match program {
                Some(words) => Load::for_program(words.clone()),
                None => Load::generated(&drawn.arrivals, drawn.costs, source.cost.clone()),
            };
            let generated = || pace.map_or_else(work::spender, work::counter);
            let body: JobBody<'s> = (setup.bodies)(name).unwrap_or_else(generated);
            TaskPlan { load, body }
        });
        let mut changes = root.surroundings.changes.clone();
        changes.sort_by_key(|&(at, _)| at);
        RootPlan {
            tree: &root.tree,
            tasks: tasks.collect(),
            changes,
            flows: Vec::new(),
            cpus: cpus.clone(),
        }
    };
    roots.map(plan).collect()
}

/// Calls `what`, and stops the run on a signal that would end this process.
fn run_until_signal<T: Send>(remote: &RunControl, what: impl FnOnce() -> T) -> anyhow::Result<T> {
    // Before other threads start, because they would leave the signals unblocked.
    let signals = Signals::new(&[Signal::Int, Signal::Term, Signal::Hup])
        .context("cannot wait for signals")?;
    let (ours, theirs) =
        std::os::unix::net::UnixStream::pair().context("cannot create a socket")?;
    let signals = &signals;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut waits = [
                PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(theirs.as_fd(), PollFlags::IN),
            ];
            while matches!(poll(&mut waits, None), Err(rustix::io::Errno::INTR)) {}
            if matches!(signals.take(), Ok(Some(_))) {
                remote.cancel();
            }
        });
        let done = what();
        // Ends the waiting thread.
        drop(ours);
        Ok(done)
    })
}
