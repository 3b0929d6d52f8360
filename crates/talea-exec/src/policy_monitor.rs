//! Policy monitor: whether programs still have the policy and affinity that the run gave them.
//!
//! Model: an ordinary thread, below everything of the run, periodically reads the threads of each
//! program's cgroup. A thread with another policy, priority or affinity breaks the ordering of the
//! run. A dispatcher may then not get its CPU, or the idle detector may get it while the program
//! wants it. The change is reported with the run, and not corrected: a corrected thread may change
//! again before the next check.
//!
//! Absent on purpose: threads that have left the cgroup (that takes rights over the hierarchy, and
//! then they are outside of the run), and changes that are undone before the next check.

use crate::run::Failure;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, Scope};
use std::time::Duration;
use talea_core::CpuSet;
use talea_core::mutate;
use talea_os::cgroup::RunCgroups;
use talea_os::sched::{self, Policy};
use talea_os::{Tid, proc};

/// Period of the checks.
const CHECK_PERIOD: Duration = Duration::from_millis(100);
/// Maximum number of threads per program that are checked each time.
const MAX_THREADS: usize = 256;

/// A program, and what was found.
#[derive(Debug)]
pub(crate) struct WatchedProgram {
    /// Index of its cgroup.
    pub(crate) group: usize,
    pub(crate) cpu: u32,
    pub(crate) priority: u8,
    /// Description of the first change.
    pub(crate) policy_changed: Arc<OnceLock<String>>,
}

/// Starts the monitor; it runs until the other end of `over` is dropped.
pub(crate) fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    cgroups: Arc<RunCgroups>,
    programs: Vec<WatchedProgram>,
    over: Receiver<()>,
) -> Result<(), Failure> {
    let monitor = move || {
        while over.recv_timeout(CHECK_PERIOD) == Err(RecvTimeoutError::Timeout) {
            for program in programs.iter().filter(|program| program.policy_changed.get().is_none())
            {
                let threads = cgroups.cgroup(program.group).threads().unwrap_or_default();
                if let Some(what) =
                    threads.into_iter().take(MAX_THREADS).find_map(|tid| program.find_change(tid))
                {
                    // Only this thread writes there.
                    let _ = program.policy_changed.set(what);
                }
            }
        }
    };
    Builder::new().name("talea-progmon".into()).spawn_scoped(scope, monitor)?;
    Ok(())
}

impl WatchedProgram {
    /// Returns the change of a thread, if any; a thread that has just exited has none.
    fn find_change(&self, tid: Tid) -> Option<String> {
        let policy = sched::get(tid).ok()?.policy;
        let cpus = sched::get_affinity(tid).ok()?;
        let name = || proc::comm(tid).unwrap_or_default();
        if policy != Policy::Rr(self.priority) {
            let wanted = Policy::Rr(self.priority);
            Some(format!("thread {tid} ({}) is {policy:?} instead of {wanted:?}", name()))
        } else if mutate!("exec-policy-monitor", cpus != CpuSet::single(self.cpu), cpus.is_empty())
        {
            Some(format!(
                "thread {tid} ({}) may run on CPUs {cpus} instead of {}",
                name(),
                self.cpu
            ))
        } else {
            None
        }
    }
}
