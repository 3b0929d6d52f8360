//! The run of a governor, its signals and its events.

use crate::options::Options;
use crate::plan::{self, Plan};
use crate::stats;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sd_notify::NotifyState;
use std::io::PipeReader;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use talea_core::{CpuSet, mutate};
use talea_exec::{
    Failure, Load, RootPlan, RunControl, SwitchRequest, TaskPlan, execute_until, work,
};
use talea_os::cgroup::CgroupChanges;
use talea_os::cgroup::handover::Handover;
use talea_os::signals::{Signal, Signals};
use talea_os::{Tid, clock, sched};

/// Pause between two checks of whether the run has begun.
const START_POLL: Duration = Duration::from_millis(1);
/// Pause between two checks of whether the root has switched to the requested file.
const SWITCH_POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// Governor whose groups are locked.
pub(crate) struct Prepared {
    plan: Plan,
    options: Options,
    signals: Signals,
    /// `changes[t]`: changes of the membership of the group of task `t`.
    changes: Vec<CgroupChanges>,
    _handover: Handover,
}

/// Reads the system, and locks the groups.
pub(crate) fn prepare(options: Options) -> anyhow::Result<Prepared> {
    // Before other threads start, because they would leave the signals unblocked.
    let signals = Signals::new(&[Signal::Term, Signal::Int, Signal::Usr1, Signal::Hup])
        .context("cannot wait for signals")?;
    let plan = plan::plan(plan::read(&options.system)?, &options)?;
    leave_cpus(&plan.cpus)?;
    let changes = plan.groups.iter().map(|group| group.changes()).collect::<Result<_, _>>()?;
    let paths: Vec<PathBuf> = plan.groups.iter().map(|group| group.path().to_owned()).collect();
    let top = talea_os::cgroup::mount_point();
    let priority = talea_exec::Options::endless().band.top + 1;
    let handover = Handover::take(&paths, top.as_deref(), priority)?;
    Ok(Prepared { plan, options, signals, changes, _handover: handover })
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
            report_in_force(plan.label.as_deref(), &[NotifyState::Ready]);
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
    mutate!("governor-ready", control.zero().is_some_and(|zero| clock::now() >= zero), true)
}

/// Reports the label of the file in force, with `states`.
fn report_in_force(label: Option<&str>, states: &[NotifyState<'_>]) {
    let governs = label.map(|label| format!("X_TALEA_GOVERNS={label}"));
    let governs = governs.as_deref().map(NotifyState::Custom);
    let states: Vec<NotifyState<'_>> = states.iter().cloned().chain(governs).collect();
    // Without a service manager there is no socket.
    let _ = sd_notify::notify(&states);
}

/// Files of a governor: the one in force, and one that is requested.
///
/// | state | event | next state |
/// | --- | --- | --- |
/// | *in force* | SIGHUP, and the file has the same label | *in force*, reported again |
/// | *in force* | SIGHUP, and the file has another label | *requested* |
/// | *requested* | SIGHUP | *requested*, with the file that was read last |
/// | *requested* | the root has switched | *in force*, reported |
/// | any | SIGHUP, and the file is refused | the same |
struct Files<'p> {
    prepared: &'p Prepared,
    control: &'p RunControl,
    /// Label of the file in force.
    in_force: Option<String>,
    /// Number and label of the requested file.
    requested: Option<(u64, Option<String>)>,
    requests: u64,
}

impl Files<'_> {
    /// Reads the file again.
    fn read_again(&mut self) -> anyhow::Result<()> {
        self.note_switch();
        let Prepared { plan, options, .. } = self.prepared;
        let (root, label) = plan::read_again(options, plan)?;
        let last = self.requested.as_ref().map_or(&self.in_force, |(_, label)| label);
        if label.is_some() && label == *last {
            if self.requested.is_none() {
                report_in_force(label.as_deref(), &[]);
            }
            return Ok(());
        }
        let mut changes = root.surroundings.changes;
        changes.sort_by_key(|&(at, _)| at);
        self.note_switch();
        let number = self.requests + 1;
        let request = SwitchRequest { number, tree: &root.tree, changes };
        if self.control.request_switch(0, request)? {
            self.requests = number;
            self.requested = Some((number, label));
        }
        Ok(())
    }

    /// Notes that the requested file is in force, if it is.
    fn note_switch(&mut self) {
        let in_force = self.control.tree_in_force(0);
        let is_in_force = |(number, _): &mut (u64, _)| in_force == Some(*number);
        let Some((_, label)) = self.requested.take_if(is_in_force) else { return };
        let name = &self.prepared.plan.root.name;
        let tree = self.control.statistics().first().map(|root| root.tree).unwrap_or_default();
        let cause = tree.cause.map_or("the start", stats::cause);
        eprintln!(
            "talea-governor: {name}: another table since {} ns of the run, at {cause}",
            tree.began.as_ns()
        );
        report_in_force(label.as_deref(), &[]);
        self.in_force = label;
    }
}

/// Reports events, reads the file again at SIGHUP, and writes statistics at SIGUSR1, until SIGTERM,
/// SIGINT or the end of the run.
fn wait(prepared: &Prepared, control: &RunControl, over: &PipeReader) -> anyhow::Result<()> {
    let Prepared { plan, options, signals, changes, .. } = prepared;
    let in_force = plan.label.clone();
    let mut files = Files { prepared, control, in_force, requested: None, requests: 0 };
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
        let timeout = files.requested.as_ref().map(|_| &SWITCH_POLL);
        match poll(&mut waits, timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !waits[1].revents().is_empty() {
            return Ok(());
        }
        files.note_switch();
        while let Some(signal) = signals.take()? {
            match (signal, &options.stats) {
                (Signal::Usr1, Some(path)) => {
                    files.note_switch();
                    let label = files.in_force.as_deref();
                    if let Err(error) = stats::write(path, (plan, label), control) {
                        eprintln!("talea-governor: {}: {error}", path.display());
                    }
                }
                (Signal::Usr1, None) => {
                    eprintln!("talea-governor: no statistics are written without --stats");
                }
                (Signal::Hup, _) => {
                    // The file in force governs on.
                    if let Err(error) = files.read_again() {
                        eprintln!("talea-governor: {}: {error:#}", plan.root.name);
                    }
                }
                _ => return Ok(()),
            }
        }
    }
}
