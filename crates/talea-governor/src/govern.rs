//! The run of a governor, its signals and its events.

use crate::options::Options;
use crate::plan::{self, Plan};
use crate::stats;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use sd_notify::NotifyState;
use std::io::PipeReader;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use talea_core::CpuSet;
use talea_exec::{Failure, Load, RootPlan, RunControl, TaskPlan, execute_until, work};
use talea_os::cgroup::CgroupChanges;
use talea_os::cgroup::handover::Handover;
use talea_os::signals::{Signal, Signals};
use talea_os::{Tid, clock, sched};

/// Pause between two checks of whether the run has begun.
const START_POLL: Duration = Duration::from_millis(1);

/// Governor whose groups are locked.
pub(crate) struct Prepared {
    plan: Plan,
    stats: Option<PathBuf>,
    signals: Signals,
    /// `changes[t]`: changes of the membership of the group of task `t`.
    changes: Vec<CgroupChanges>,
    _handover: Handover,
}

/// Reads the system, and locks the groups.
pub(crate) fn prepare(options: Options) -> anyhow::Result<Prepared> {
    // Before other threads start, because they would leave the signals unblocked.
    let signals = Signals::new(&[Signal::Term, Signal::Int, Signal::Usr1])
        .context("cannot wait for signals")?;
    let plan = plan::plan(plan::read(&options.system)?, &options)?;
    leave_cpus(&plan.cpus)?;
    let changes = plan.groups.iter().map(|group| group.changes()).collect::<Result<_, _>>()?;
    let paths: Vec<PathBuf> = plan.groups.iter().map(|group| group.path().to_owned()).collect();
    let top = talea_os::cgroup::mount_point();
    let priority = talea_exec::Options::endless().band.top + 1;
    let handover = Handover::take(&paths, top.as_deref(), priority)?;
    Ok(Prepared { plan, stats: options.stats, signals, changes, _handover: handover })
}

/// Moves the calling thread off the CPUs of the root, where there are other ones. An ordinary
/// thread would wait for the programs.
fn leave_cpus(cpus: &[u32]) -> anyhow::Result<()> {
    let me = Tid::current();
    let others = sched::get_affinity(me)?.difference(&cpus.iter().copied().collect::<CpuSet>());
    if !others.is_empty() {
        sched::set_affinity(me, &others)?;
    }
    Ok(())
}

/// Governs the groups until SIGTERM or SIGINT.
pub(crate) fn run(prepared: &Prepared) -> anyhow::Result<()> {
    let control = RunControl::default();
    let (over, ended) = std::io::pipe()?;
    let plan = &prepared.plan;
    let failure = std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let _ended = ended;
            let load = |group| TaskPlan { load: Load::for_group(group), body: work::spender() };
            let mut changes = plan.root.surroundings.changes.clone();
            changes.sort_by_key(|&(at, _)| at);
            let root = RootPlan {
                tree: &plan.root.tree,
                tasks: plan.groups.iter().map(Arc::clone).map(load).collect(),
                changes,
                flows: Vec::new(),
                cpus: plan.cpus.clone(),
            };
            execute_until(vec![root], &talea_exec::Options::endless(), &control)
        });
        while !run.is_finished() && !has_begun(&control) {
            std::thread::sleep(START_POLL);
        }
        if !run.is_finished() {
            let (name, cpu, count) = (&plan.root.name, plan.cpus[0], plan.groups.len());
            eprintln!("talea-governor: {name} on CPU {cpu}: {count} groups are governed");
            // Without a service manager there is no socket.
            let _ = sd_notify::notify(&[NotifyState::Ready]);
        }
        let waited = wait(prepared, &control, &over);
        control.cancel();
        let report = run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        waited.map(|()| report.err())
    })?;
    match failure {
        None => {
            eprintln!("talea-governor: {}: ended, the groups are frozen", plan.root.name);
            Ok(())
        }
        Some(failure @ Failure::NoRight(_)) => Err(failure).context("a governor runs as root"),
        Some(failure) => Err(failure.into()),
    }
}

fn has_begun(control: &RunControl) -> bool {
    control.zero().is_some_and(|zero| clock::now() >= zero)
}

/// Reports events, and writes statistics at SIGUSR1, until SIGTERM, SIGINT or the end of the run.
fn wait(prepared: &Prepared, control: &RunControl, over: &PipeReader) -> anyhow::Result<()> {
    let Prepared { plan, stats, signals, changes, .. } = prepared;
    let mut had_members = vec![false; changes.len()];
    loop {
        let mut waits = vec![
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(over.as_fd(), PollFlags::IN),
        ];
        for ((changes, had), name) in changes.iter().zip(&mut had_members).zip(&plan.root.tasks) {
            // Arms the next report. A removed group has no members, and would be ready at once.
            let found = changes.is_populated();
            if found.is_ok() {
                waits.push(PollFd::from_borrowed_fd(changes.as_fd(), PollFlags::PRI));
            }
            let has_members = found.unwrap_or(false);
            if *had != has_members {
                *had = has_members;
                let what = if has_members { "a process has entered" } else { "the group is empty" };
                eprintln!("talea-governor: {name}: {what}");
            }
        }
        match poll(&mut waits, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !waits[1].revents().is_empty() {
            return Ok(());
        }
        while let Some(signal) = signals.take()? {
            match (signal, stats) {
                (Signal::Usr1, Some(path)) => {
                    if let Err(error) = stats::write(path, plan, control) {
                        eprintln!("talea-governor: {}: {error}", path.display());
                    }
                }
                (Signal::Usr1, None) => {
                    eprintln!("talea-governor: no statistics are written without --stats");
                }
                _ => return Ok(()),
            }
        }
    }
}
