//! `talea run`: runs a program whose main thread is real-time from its first instruction.
//!
//! Model: the program waits in the [`launcher`] while the broker decides on the request and
//! attaches the main thread. The program starts only afterwards, so a refusal starts nothing. This
//! process stays the parent: it forwards signals, watches the program's threads if requested, and
//! ends with the program's exit code. The thread owns the grant: killing talea does not affect the
//! program.
//!
//! With `--intercept`, the program starts without a grant and its own calls request grants
//! ([`intercept`]).
//!
//! Absent on purpose: a fall-back to an ordinary start after a refusal. `talea run … || prog` does
//! that explicitly. Only `TALEA_DISABLE` starts the program without a grant, so that an
//! administrator can disable Talea from outside.

mod events;
mod intercept;
pub(crate) mod launcher;
mod report;
mod signals;
mod threads;

use crate::args::RunArgs;
use crate::args::task::TaskRequest;
use crate::broker_client::{BrokerClient, Options};
use crate::grant_text;
use anyhow::Context;
use events::{Event, exit_of, wait};
use launcher::StartResult;
use report::Report;
use rustix::event::Timespec;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};
use talea_os::signals::Signals;
use talea_os::{Thread, Tid, sched};
use talea_proto::message::Caveat;
use talea_proto::{Granted, Owner, Task};
use talea_study::exit::Exit;
use talea_study::output::note;
use threads::Threads;

/// Interval at which the command searches for new threads.
const SCAN_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn run(options: &Options, args: &RunArgs) -> anyhow::Result<Exit> {
    if let Some(why) = crate::broker_client::disabled() {
        note(&format!("{why}; nothing is granted, the program runs as an ordinary one"));
        return Ok(exec_ordinary(args));
    }
    if args.intercept {
        return intercept::run(options, args);
    }
    match args.task.to_request(Owner::Thread) {
        TaskRequest::Ordinary { nice } => {
            rustix::process::setpriority_process(None, nice.into())
                .with_context(|| format!("cannot set the nice value to {nice}"))?;
            Ok(exec_ordinary(args))
        }
        TaskRequest::Grant { task, kind } => run_granted(options, args, task, kind),
    }
}

/// Replaces this process by the program, without a grant.
fn exec_ordinary(args: &RunArgs) -> Exit {
    let error = launcher::exec_program(&args.command);
    launcher::print_start_error(args, &error);
    Exit::Program(launcher::start_error_code(&error))
}

fn run_granted(
    options: &Options,
    args: &RunArgs,
    task: Task,
    kind: Option<&str>,
) -> anyhow::Result<Exit> {
    // The child is started before signals are blocked, because it must not inherit the mask. All
    // later threads of this process must inherit it.
    let waiting = launcher::start(&args.command, false)?;
    let signals = signals::collect()?;
    let HeldProgram { mut link, task, granted, plugin, thread } =
        match acquire(options, &waiting, task, kind) {
            Ok(held) => held,
            Err(error) => {
                waiting.cancel();
                return Err(error);
            }
        };
    let main = thread.tid();
    if options.verbose {
        note(&format!(
            "spec {}: {}",
            granted.spec.0,
            grant_text::granted(&granted, &plugin, &task)
        ));
        for sentence in grant_text::notes(granted.notes) {
            note(sentence);
        }
        note(&link.describe());
    }
    let started = Instant::now();
    let (mut child, pidfd, start) = waiting.release()?;
    if let StartResult::Failed(errno) = start {
        launcher::print_start_error(args, &std::io::Error::from_raw_os_error(errno));
    }
    let mut threads = Threads::new(thread, args.all_threads);
    let look = args.all_threads || options.verbose || args.report.is_some();
    let status =
        supervise(&mut link, &mut child, &pidfd, &signals, look.then_some((&mut threads, &task)))?;
    if options.verbose {
        threads.note_uncovered();
    }
    if let Some(path) = &args.report {
        let report =
            Report::new(args, &task, &granted, &plugin, main, &threads, status, started.elapsed());
        std::fs::write(path, talea_study::output::to_json(&report)?)
            .with_context(|| format!("cannot write the report to {}", path.display()))?;
    }
    Ok(exit_of(status))
}

/// Program before its start.
struct HeldProgram {
    link: BrokerClient,
    task: Task,
    granted: Granted,
    plugin: String,
    thread: Thread,
}

/// Requests a grant and attaches the main thread of the waiting child.
fn acquire(
    options: &Options,
    waiting: &launcher::WaitingProgram,
    task: Task,
    kind: Option<&str>,
) -> anyhow::Result<HeldProgram> {
    let mut link = BrokerClient::open(options)?;
    let main = i32::try_from(waiting.child.id())
        .ok()
        .and_then(Tid::new)
        .context("the child has no number")?;
    let thread = Thread::open(main)?;
    let task = link.choose_plugin(task, kind, &thread)?;
    let granted = link.create(&task, &thread)?;
    let mut attach = || -> anyhow::Result<String> {
        let plugin = link.plugin_name(granted.plugin)?;
        if link.attach(granted.spec, &thread)? == Some(Caveat::PendingWakeup) {
            waiting.wake()?;
            await_real_time(main);
        }
        Ok(plugin)
    };
    match attach() {
        Ok(plugin) => Ok(HeldProgram { link, task, granted, plugin, thread }),
        Err(error) => {
            link.release_unused(granted.spec);
            Err(error)
        }
    }
}

/// Waits until the main thread is real-time. The launcher slept in another root domain and has been
/// woken, and the broker retries within milliseconds. After the timeout the program starts without
/// its deadline policy, and gets the policy while it runs.
fn await_real_time(main: Tid) {
    const PATIENCE: Duration = Duration::from_millis(500);
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end && sched::get(main).is_ok_and(|attr| !attr.policy.is_realtime()) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for the end of the program, forwards signals and scans its threads.
fn supervise(
    link: &mut BrokerClient,
    child: &mut Child,
    pidfd: &OwnedFd,
    signals: &Signals,
    mut watched: Option<(&mut Threads, &Task)>,
) -> anyhow::Result<ExitStatus> {
    loop {
        if let Some((threads, task)) = &mut watched {
            threads.scan(link, task);
        }
        link.suspend();
        let timeout = watched.as_ref().map(|_| Timespec::try_from(SCAN_INTERVAL)).transpose()?;
        match wait(pidfd, signals, None, timeout.as_ref())? {
            Event::Signal => signals::forward(signals, child, pidfd)?,
            Event::Ended => return Ok(child.wait()?),
            Event::Call | Event::Timeout => {}
        }
    }
}
