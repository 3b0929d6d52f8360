//! The jobs of a system, drawn as a simulation draws them, on real threads.

use super::place::Places;
use super::sketch::Sketch;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::AsFd;
use talea_core::{Span, Time};
use talea_exec::run::MOST_ROOM;
use talea_exec::{
    Body, Failure, Load, Options, Pace, Remote, Report, RootPlan, TaskPlan, Wish, execute_until,
    work,
};
use talea_os::signals::{Signal, Signals, Unstopped};
use talea_sim::dice::of_root;
use talea_system::system::System;

/// How jobs work.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Spending {
    /// Until the thread's own CPU clock says that the cost is used up: exact, whatever the machine
    /// does.
    #[default]
    Budget,
    /// As many rounds of a loop as cost so much when they were measured before the run: as long as
    /// the machine takes for them.
    Iterations,
}

/// What is to be run.
pub(crate) struct Setup<'s> {
    pub(crate) system: &'s System,
    pub(crate) duration: Span,
    pub(crate) seed: u64,
    pub(crate) places: &'s Places,
    pub(crate) spending: Spending,
    pub(crate) rights: Rights,
    pub(crate) wish: Wish,
    /// Whether the kernel is asked to write down who really ran.
    pub(crate) switches: bool,
    /// By root.
    pub(crate) sketches: &'s [Sketch],
    /// As [`Options::begin`].
    pub(crate) begin: Option<Time>,
    /// What jobs of the task with this name do instead of spending their cost.
    pub(crate) bodies: &'s Bodies<'s>,
}

/// By the name of a task.
pub(crate) type Bodies<'s> = dyn Fn(&str) -> Option<Body<'s>> + 's;

/// What becomes of a run where there is no right to real-time priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// There is none.
    Needed,
    /// It does without them.
    Wanted,
    /// It does without them in any case.
    Unused,
}

/// What became of it.
pub(crate) struct Measured {
    pub(crate) report: Report,
    /// Whether threads had real-time priorities.
    pub(crate) is_real: bool,
    /// Whether somebody ended it before its time.
    pub(crate) interrupted: bool,
}

/// Why nothing was run: in words, for whoever asked.
pub(crate) struct Refused(pub(crate) String);

/// Runs it.
///
/// # Errors
/// Outer: something broke. Inner: it can't be run here.
pub(crate) fn run(setup: &Setup<'_>) -> anyhow::Result<Result<Measured, Refused>> {
    let pace = match setup.spending {
        Spending::Budget => None,
        Spending::Iterations => Some(Pace::measure()),
    };
    let mut options = Options::new(setup.duration);
    let has_programs =
        setup.system.roots.iter().any(|root| root.programs.iter().any(Option::is_some));
    options.room = room(setup.sketches).max(if has_programs { SEEN } else { 0 });
    options.begin = setup.begin;
    options.switches = if setup.switches { options.room } else { 0 };
    options.wish = setup.wish;
    options.priorities = setup.rights != Rights::Unused;
    let remote = Remote::default();
    // A program goes on where its run stands still.
    let _unstopped =
        has_programs.then(Unstopped::new).transpose().context("cannot keep signals off")?;
    let attempt = |options: &Options| {
        until_a_signal(&remote, || execute_until(plans(setup, pace), options, &remote))
    };
    let mut ended = attempt(&options)?;
    if matches!(ended, Err(Failure::NoRight(_))) && setup.rights == Rights::Wanted {
        options.priorities = false;
        ended = attempt(&options)?;
    }
    match ended {
        Ok(report) => {
            let interrupted = remote.was_called_off();
            Ok(Ok(Measured { report, is_real: options.priorities, interrupted }))
        }
        Err(failure @ (Failure::Plan(_) | Failure::Tree(_))) => {
            Ok(Err(Refused(failure.to_string())))
        }
        Err(failure @ Failure::NoRight(_)) => Ok(Err(Refused(format!(
            "{failure}, and --best-effort runs without priorities, as well as the kernel lets it"
        )))),
        Err(failure) => Err(failure.into()),
    }
}

/// Entries that a dispatcher may write down: several times what the simulation would.
fn room(sketches: &[Sketch]) -> usize {
    const EACH: u64 = 24;
    const LEAST: usize = 1 << 14;
    let steps = sketches.iter().map(|sketch| sketch.steps).max().unwrap_or(0);
    usize::try_from(steps.saturating_mul(EACH)).unwrap_or(MOST_ROOM).clamp(LEAST, MOST_ROOM)
}

/// At least so many entries where there are programs: how often one wakes is not known.
const SEEN: usize = 1 << 18;

/// Costs for so many more jobs than a simulation has.
const SPARE: usize = 64;

fn plans<'s>(setup: &Setup<'s>, pace: Option<Pace>) -> Vec<RootPlan<'s>> {
    let until = Time::ZERO + setup.duration;
    let roots = setup.system.roots.iter().zip(setup.places).enumerate();
    let plan = |(number, (root, cpus)): (usize, (&'s talea_system::system::Root, &Vec<u32>))| {
        // What a graph makes of delays may be some jobs more.
        let jobs = |task: usize| setup.sketches[number].begun[task] as usize + SPARE;
        let drawn = talea_sim::draw(&root.workload(of_root(setup.seed, number)), until, jobs);
        let described =
            drawn.into_iter().zip(&root.sources).zip(root.tasks.iter().zip(&root.programs));
        let tasks = described.map(|((drawn, source), (name, program))| {
            let load = match program {
                Some(words) => Load::of_program(words.clone()),
                None => Load::drawn(&drawn.arrivals, drawn.costs, source.cost.clone()),
            };
            let generated = || pace.map_or_else(work::spender, work::counter);
            let body: Body<'s> = (setup.bodies)(name).unwrap_or_else(generated);
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

/// Does `what`, which is called off when somebody sends a signal that would end the program.
fn until_a_signal<T: Send>(remote: &Remote, what: impl FnOnce() -> T) -> anyhow::Result<T> {
    // Before there are threads that would have them unblocked.
    let signals = Signals::new(&[Signal::Int, Signal::Term, Signal::Hup])
        .context("cannot wait for signals")?;
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().context("cannot make a socket")?;
    let signals = &signals;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut waits = [
                PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(theirs.as_fd(), PollFlags::IN),
            ];
            while matches!(poll(&mut waits, None), Err(rustix::io::Errno::INTR)) {}
            if matches!(signals.take(), Ok(Some(_))) {
                remote.call_off();
            }
        });
        let done = what();
        // It has nothing to wait for any more.
        drop(ours);
        Ok(done)
    })
}
