//! `talea run`: a program whose main thread is real-time from its first instruction.
//!
//! Model: the program waits at the [`gate`] while the request is decided and its main thread is
//! attached; only then it starts, so that a refusal starts nothing. This process stays as its
//! parent: it passes signals on, watches threads where asked, and ends as the program ended. The
//! grant is owned by the thread: killing talea takes nothing from the program.
//!
//! Absent on purpose: a fall-back to an ordinary start when the request is refused. Who wants it
//! writes `talea run … || prog`; only `TALEA_DISABLE` does it, for whoever must switch Talea off
//! from outside.

pub(crate) mod gate;
mod report;
mod signals;
mod threads;

use crate::args::RunArgs;
use crate::args::task::Wanted;
use crate::exit::{Exit, RUN_FAILED};
use crate::link::{Link, Options};
use crate::output::note;
use crate::words;
use anyhow::Context;
use report::Report;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};
use talea_os::signals::Signals;
use talea_os::{Thread, Tid, sched};
use talea_proto::message::But;
use talea_proto::{Granted, Owner, Task};
use threads::Threads;

/// How long new threads may stay unnoticed.
const LOOK: Duration = Duration::from_millis(100);

/// How the program came to life, or not.
pub(crate) enum Start {
    /// It is running.
    Started,
    /// The kernel's number for why not.
    Failed(i32),
}

pub(crate) fn run(options: &Options, args: &RunArgs) -> anyhow::Result<Exit> {
    if let Some(why) = crate::link::disabled() {
        note(&format!("{why}; nothing is held, the program runs as an ordinary one"));
        return Ok(plain(args));
    }
    match args.task.wanted(Owner::Thread) {
        Wanted::Ordinary { nice } => {
            rustix::process::setpriority_process(None, nice.into())
                .with_context(|| format!("cannot set the nice value to {nice}"))?;
            Ok(plain(args))
        }
        Wanted::Grant { task, kind } => held(options, args, task, kind),
    }
}

/// Becomes the program, without a grant.
fn plain(args: &RunArgs) -> Exit {
    let error = gate::become_program(&args.command);
    cannot_start(args, &error);
    Exit::Program(gate::not_started(&error))
}

fn cannot_start(args: &RunArgs, error: &std::io::Error) {
    note(&format!("cannot run {}: {error}", args.command[0].display()));
}

fn held(options: &Options, args: &RunArgs, task: Task, kind: Option<&str>) -> anyhow::Result<Exit> {
    // First the child, then the signals, then everything else: the child must not inherit blocked
    // signals, and every later thread of this process must.
    let waiting = gate::start(&args.command)?;
    let signals = signals::collect()?;
    let Held { mut link, task, granted, plugin, thread } = match hold(options, &waiting, task, kind)
    {
        Ok(held) => held,
        Err(error) => {
            waiting.abandon();
            return Err(error);
        }
    };
    let main = thread.tid();
    if options.verbose {
        note(&format!("spec {}: {}", granted.spec.0, words::granted(&granted, &plugin, &task)));
        for sentence in words::notes(granted.notes) {
            note(sentence);
        }
        note(&link.who());
    }
    let started = Instant::now();
    let (mut child, pidfd, start) = waiting.open()?;
    if let Start::Failed(errno) = start {
        cannot_start(args, &std::io::Error::from_raw_os_error(errno));
    }
    let mut threads = Threads::new(thread, args.all_threads);
    let look = args.all_threads || options.verbose || args.report.is_some();
    let status =
        accompany(&mut link, &mut child, &pidfd, &signals, look.then_some((&mut threads, &task)))?;
    if options.verbose {
        threads.say_not_held();
    }
    if let Some(path) = &args.report {
        let report =
            Report::new(args, &task, &granted, &plugin, main, &threads, status, started.elapsed());
        std::fs::write(path, crate::output::to_json(&report)?)
            .with_context(|| format!("cannot write the report to {}", path.display()))?;
    }
    Ok(exit_of(status))
}

/// Everything that was decided before the program starts.
struct Held {
    link: Link,
    task: Task,
    granted: Granted,
    plugin: String,
    thread: Thread,
}

/// Gets a grant and attaches the main thread of the waiting child.
fn hold(
    options: &Options,
    waiting: &gate::Waiting,
    task: Task,
    kind: Option<&str>,
) -> anyhow::Result<Held> {
    let mut link = Link::open(options)?;
    let task = link.choose(task, kind)?;
    let granted = link.create(&task)?;
    let main = i32::try_from(waiting.child.id())
        .ok()
        .and_then(Tid::new)
        .context("the child has no number")?;
    let mut attach = || -> anyhow::Result<(String, Thread)> {
        let plugin = link.plugin_name(granted.plugin)?;
        let thread = Thread::open(main)?;
        if link.attach(granted.spec, &thread)? == Some(But::Asleep) {
            waiting.stir()?;
            await_real_time(main);
        }
        Ok((plugin, thread))
    };
    match attach() {
        Ok((plugin, thread)) => Ok(Held { link, task, granted, plugin, thread }),
        Err(error) => {
            link.give_back(granted.spec);
            Err(error)
        }
    }
}

/// The gate slept in another root domain and has been woken: the broker looks again within
/// milliseconds. Should it be late, the program starts as it is, and gets its deadline while it
/// runs.
fn await_real_time(main: Tid) {
    const PATIENCE: Duration = Duration::from_millis(500);
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end && sched::get(main).is_ok_and(|attr| !attr.policy.is_realtime()) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Stays with the program until it ends.
fn accompany(
    link: &mut Link,
    child: &mut Child,
    pidfd: &OwnedFd,
    signals: &Signals,
    mut watched: Option<(&mut Threads, &Task)>,
) -> anyhow::Result<ExitStatus> {
    loop {
        if let Some((threads, task)) = &mut watched {
            threads.look(link, task);
        }
        link.rest();
        let timeout = watched.as_ref().map(|_| Timespec::try_from(LOOK)).transpose()?;
        let (ended, signalled) = {
            let mut fds = [
                PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            (!fds[0].revents().is_empty(), !fds[1].revents().is_empty())
        };
        if signalled {
            signals::pass_on(signals, child, pidfd)?;
        }
        if ended {
            return Ok(child.wait()?);
        }
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(RUN_FAILED),
        (None, Some(signal)) => 128 + u8::try_from(signal).unwrap_or(0),
        (None, None) => RUN_FAILED,
    };
    Exit::Program(code)
}
