//! Start of the programs of a run, each frozen in a cgroup of its own, and their end.
//!
//! A program is started by its run and ends with it, with everything that it has created. All of
//! that is in its cgroup, wherever it is in the process tree; only a process with rights over the
//! hierarchy leaves it. The cgroup is killed however the run ends ([`talea_os::cgroup`]).

use crate::failure::Failure;
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};
use talea_os::Tid;
use talea_os::cgroup::rt_group::RtLimit;
use talea_os::cgroup::{Cgroup, RunCgroups};
use talea_os::launch::Program;
use talea_os::users::Account;

/// Timeout within which a started child must be in its cgroup.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// CPU time beyond the length of the run that a program may consume before the kernel kills the
/// program.
const CPU_TIME_GRACE: Duration = Duration::from_secs(5);
/// Length from which a run has no CPU time limit for programs.
const MIN_UNLIMITED_RUN: Duration = Duration::from_hours(24);

/// Program that a run is to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedProgram {
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    /// Account under which the program runs; `None` stands for the account of this process.
    pub(crate) account: Option<Account>,
    /// Limit of the servers above the program.
    pub(crate) limit: Option<RtLimit>,
}

impl WantedProgram {
    /// Finds the executable file.
    pub(super) fn find(&self) -> Result<Program, Failure> {
        Program::find(&self.words)
            .map(|program| program.run_as(self.account.clone()))
            .map_err(|error| Failure::Plan(format!("{}: {error}", self.words[0])))
    }
}

/// Exit of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramExit {
    /// The run killed the program at its end.
    Killed,
    /// The program exited before the end of the run. Its children may have run on.
    Exited(ExitStatus),
    /// The kernel could not execute the program.
    Failed(String),
}

/// Creates a cgroup for each element of `limits`, with a reaper at FIFO priority `priority`.
pub(super) fn create_cgroups(
    limits: &[Option<RtLimit>],
    priority: u8,
) -> Result<Arc<RunCgroups>, Failure> {
    RunCgroups::create(limits, Some(priority)).map(Arc::new).map_err(|error| {
        Failure::Plan(format!("programs need cgroups (v2), which only root can create: {error}"))
    })
}

/// Started program: its launcher, which waits for its exit, and its first thread.
pub(super) struct Launched<'scope> {
    pub(super) launcher: ScopedJoinHandle<'scope, ProgramExit>,
    pub(super) first: Tid,
}

/// Program with the cgroup, the CPU and the SCHED_RR priority with which it starts.
pub(super) struct Start {
    pub(super) program: Program,
    pub(super) cgroup: Arc<Cgroup>,
    pub(super) cpu: u32,
    pub(super) priority: u8,
    /// Length of the run.
    pub(super) length: Duration,
}

/// Starts a program, frozen in its cgroup. `is_over` says whether the run has killed it.
pub(super) fn launch<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: String,
    start: Start,
    (cgroups, is_over): (&RunCgroups, &'scope AtomicBool),
) -> Result<Launched<'scope>, Failure> {
    let Start { program, cgroup, cpu, priority, length } = start;
    cgroup.freeze()?;
    let most = (length < MIN_UNLIMITED_RUN).then(|| length + CPU_TIME_GRACE);
    let launcher = Builder::new().name(name).spawn_scoped(scope, {
        let cgroup = Arc::clone(&cgroup);
        move || match program.start(&cgroup, cpu, priority, most).and_then(|mut child| child.wait())
        {
            _ if is_over.load(Ordering::Acquire) => ProgramExit::Killed,
            Ok(status) => ProgramExit::Exited(status),
            Err(error) => ProgramExit::Failed(error.to_string()),
        }
    })?;
    let end = Instant::now() + START_TIMEOUT;
    loop {
        if let Some(&first) =
            cgroup.processes()?.first().filter(|_| cgroup.is_frozen().unwrap_or(false))
        {
            return Ok(Launched { launcher, first });
        }
        if launcher.is_finished() {
            let exit = launcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            return Err(Failure::Os(io::Error::other(format!(
                "a program cannot be started: {exit:?}"
            ))));
        }
        if Instant::now() > end {
            // A child that enters after the kill would stay frozen there, and its launcher would
            // wait for it forever.
            while !launcher.is_finished() {
                let _: io::Result<()> = cgroups.kill();
                std::thread::sleep(Duration::from_millis(1));
            }
            return Err(Failure::Os(io::Error::other(
                "a program did not enter its cgroup in time",
            )));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
