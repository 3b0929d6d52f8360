//! Execution of a system's jobs on real threads. The jobs are drawn as in a simulation.

use super::accounts::Accounts;
use super::dry_run::LoadEstimate;
use super::place::CpuAssignment;
use crate::exit::not_executable;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::AsFd;
use talea_core::{Monotonic, Span, Time, Work};
use talea_exec::run::MAX_RECORD_CAPACITY;
use talea_exec::{
    Arrival, Calibration, Failure, JobBody, JobGenerator, Load, Options, RecordSink, Report,
    RequestedMechanism, RootPlan, RunControl, TaskPlan, execute_streaming, execute_until, work,
};
use talea_os::signals::{Signal, Signals, TerminalStopsBlocked};
use talea_sim::JobStream;
use talea_sim::rng::root_seed;
use talea_system::System;

/// How jobs execute.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkMode {
    /// Jobs run until the thread's own CPU clock shows the cost: exact, independent of the CPU's
    /// speed.
    #[default]
    Budget,
    /// Jobs run a number of loop iterations, calibrated before the run: the time depends on the
    /// CPU's speed.
    Iterations,
}

/// Parameters of a run.
pub struct RunSetup<'s> {
    /// System that runs.
    pub system: &'s System,
    /// Length of the run.
    pub duration: Span,
    /// Seed of all random numbers.
    pub seed: u64,
    /// CPUs of each root.
    pub places: &'s CpuAssignment,
    /// Accounts of the programs. Empty if all programs run as this process.
    pub accounts: &'s Accounts,
    /// Form of the generated work.
    pub work_mode: WorkMode,
    /// Use of real-time priorities.
    pub rights: PriorityUse,
    /// Mechanism that enforces the orders.
    pub mechanism: RequestedMechanism,
    /// Whether `sched_switch` events are recorded.
    pub switches: bool,
    /// `estimates[root]`: estimated load of the root.
    pub estimates: &'s [LoadEstimate],
    /// Start of the run: see [`Options::begin`].
    pub begin: Option<Monotonic>,
    /// Function that returns the body of the jobs of the task with this name. The body replaces
    /// busy waiting.
    pub bodies: &'s Bodies<'s>,
}

/// Map from the name of a task to the body of its jobs.
pub(super) type Bodies<'s> = dyn Fn(&str) -> Option<JobBody<'s>> + 's;

/// Use of real-time priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityUse {
    /// The run fails without real-time priorities.
    Required,
    /// The run does without real-time priorities if there is no right to them.
    Preferred,
    /// The run never uses real-time priorities.
    Unused,
}

/// Result of a run.
pub struct LiveRun {
    /// Report of the executor.
    pub report: Report,
    /// Whether threads had real-time priorities.
    pub is_real: bool,
    /// Whether a signal ended the run early.
    pub interrupted: bool,
}

/// Executes a system.
///
/// # Errors
/// The run has failed, or this computer does not execute the system (`NotExecutable`).
pub fn run(setup: &RunSetup<'_>) -> anyhow::Result<LiveRun> {
    run_with(setup, None)
}

/// Executes a system, and passes its record to `sink` while the run goes on. The report then has no
/// record.
///
/// # Errors
/// Those of [`run`].
pub fn run_streaming(setup: &RunSetup<'_>, sink: &mut dyn RecordSink) -> anyhow::Result<LiveRun> {
    run_with(setup, Some(sink))
}

fn run_with(
    setup: &RunSetup<'_>,
    mut sink: Option<&mut dyn RecordSink>,
) -> anyhow::Result<LiveRun> {
    let pace = match setup.work_mode {
        WorkMode::Budget => None,
        WorkMode::Iterations => Some(Calibration::measure()),
    };
    let mut options = Options::new(setup.duration);
    let has_programs =
        setup.system.roots.iter().any(|root| root.programs.iter().any(Option::is_some));
    // A sink takes the entries several times a second.
    let recorded =
        if sink.is_some() { setup.duration.min(STREAMED_LENGTH) } else { setup.duration };
    let least = match (has_programs, sink.is_some()) {
        (false, _) => 0,
        (true, true) => MIN_STREAMED_PROGRAM_ENTRIES,
        (true, false) => MIN_PROGRAM_ENTRIES,
    };
    options.record_capacity = record_capacity(setup.estimates, recorded).max(least);
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
    let mut attempt = |options: &Options| {
        let plans = plans(setup, pace);
        let sink = sink.as_deref_mut();
        run_until_signal(&remote, || match sink {
            Some(sink) => execute_streaming(plans, options, &remote, sink),
            None => execute_until(plans, options, &remote),
        })
    };
    let mut ended = attempt(&options)?;
    if matches!(ended, Err(Failure::NoRight(_))) && setup.rights == PriorityUse::Preferred {
        options.priorities = false;
        ended = attempt(&options)?;
    }
    match ended {
        Ok(report) => {
            let interrupted = remote.is_cancelled();
            Ok(LiveRun { report, is_real: options.priorities, interrupted })
        }
        Err(failure @ (Failure::Plan(_) | Failure::Tree(_))) => {
            Err(not_executable(failure.to_string()))
        }
        Err(failure @ Failure::NoRight(_)) => Err(not_executable(format!(
            "{failure}, and --best-effort runs without priorities, best effort"
        ))),
        Err(failure) => Err(failure.into()),
    }
}

/// Estimates the steps of the engine of a root in a run of this length.
fn steps_within(sketch: &LoadEstimate, length: Span) -> u64 {
    let steps = u128::from(sketch.steps) * u128::from(length.as_ns());
    u64::try_from(steps.div_ceil(u128::from(sketch.length.as_ns().max(1)))).unwrap_or(u64::MAX)
}

/// Returns the length of a run whose whole record fits into memory.
pub fn longest_whole_record(estimates: &[LoadEstimate]) -> Span {
    const EACH: u64 = 8;
    let of = |sketch: &LoadEstimate| {
        let steps = u128::from(sketch.steps.max(1)) * u128::from(EACH);
        let length = u128::from(sketch.length.as_ns()) * MAX_RECORD_CAPACITY as u128 / steps;
        Span::from_ns(u64::try_from(length).unwrap_or(u64::MAX))
    };
    estimates.iter().map(of).min().unwrap_or(Span::from_ns(u64::MAX))
}

/// Estimates the record entries of a dispatcher: several times those of the simulation.
fn record_capacity(estimates: &[LoadEstimate], length: Span) -> usize {
    const EACH: u64 = 24;
    const LEAST: usize = 1 << 14;
    let steps = estimates.iter().map(|sketch| steps_within(sketch, length)).max().unwrap_or(0);
    usize::try_from(steps.saturating_mul(EACH))
        .unwrap_or(MAX_RECORD_CAPACITY)
        .clamp(LEAST, MAX_RECORD_CAPACITY)
}

/// Length of the part of a run for whose record a streaming run has room. An ordinary thread takes
/// the entries, and other threads may keep that thread from the CPU for a while.
const STREAMED_LENGTH: Span = Span::from_ns(3_000_000_000);

/// Minimum number of entries with programs, because the number of their wake-ups is unknown.
const MIN_PROGRAM_ENTRIES: usize = 1 << 18;

/// Minimum number of entries with programs, if the record is taken while the run goes on.
const MIN_STREAMED_PROGRAM_ENTRIES: usize = 1 << 16;

/// Generator of the jobs of a simulation.
#[derive(Debug)]
struct Generated(JobStream);

impl JobGenerator for Generated {
    fn arrival(&mut self) -> Option<Arrival> {
        self.0.next_arrival().map(|(observed, nominal)| Arrival { observed, nominal })
    }

    fn cost(&mut self, version: u32) -> Work {
        self.0.next_cost(version)
    }
}

/// Number of costs beyond the jobs of the simulation.
const SPARE_JOBS: usize = 64;

fn plans<'s>(setup: &RunSetup<'s>, pace: Option<Calibration>) -> Vec<RootPlan<'s>> {
    let until = Time::ZERO + setup.duration;
    let roots = setup.system.roots.iter().zip(setup.places).enumerate();
    let plan = |(number, (root, cpus)): (usize, (&'s talea_system::Root, &Vec<u32>))| {
        let workload = root.workload(root_seed(setup.seed, number));
        let loads: Vec<Load> = if setup.mechanism == RequestedMechanism::Linux {
            // Delays in a graph may cause some additional jobs.
            let jobs = |task: usize| {
                let LoadEstimate { begun, length, .. } = &setup.estimates[number];
                let begun = u128::from(begun[task]) * u128::from(setup.duration.as_ns());
                let begun = begun.div_ceil(u128::from(length.as_ns().max(1)));
                usize::try_from(begun).unwrap_or(usize::MAX).saturating_add(SPARE_JOBS)
            };
            let drawn = talea_sim::generate_jobs(&workload, until, jobs).into_iter();
            let both = drawn.zip(&root.sources);
            both.map(|(drawn, source)| {
                Load::generated(&drawn.arrivals, drawn.costs, source.cost.clone())
            })
            .collect()
        } else {
            let streams = talea_sim::stream_jobs(&workload, until).into_iter();
            let both = streams.zip(&root.sources);
            both.map(|(stream, source)| {
                Load::streamed(Box::new(Generated(stream)), source.cost.clone())
            })
            .collect()
        };
        let described = loads.into_iter().zip(root.tasks.iter().zip(&root.programs));
        let tasks = described.enumerate().map(|(task, (generated, (name, program)))| {
            let load = match program {
                Some(words) => {
                    let account = setup.accounts.get(number).and_then(|of| of[task].clone());
                    Load { account, ..Load::for_program(words.clone()) }
                }
                None => generated,
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
