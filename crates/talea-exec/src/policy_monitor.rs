//! Policy monitor: whether programs still have the policy and affinity that the run gave them.
//!
//! Model: an ordinary thread, below everything of the run, periodically reads the threads of each
//! program's cgroup. A thread with another policy, priority or affinity breaks the ordering of the
//! run. A dispatcher may then not get its CPU, or the idle detector may get it while the program
//! wants it. The change is reported with the run. The stepping thread reads the policies, too, when
//! it sets the level of a program ([`freeze`](crate::mechanism::freeze)), and replaces them.
//!
//! Absent on purpose: threads that have left the cgroup (that takes rights over the hierarchy, and
//! then they are outside of the run), and changes that are undone before the next check.

use crate::failure::Failure;
use crate::root_shared::{PriorityMap, ProgramLevel};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, Scope};
use std::time::Duration;
use talea_core::CpuSet;
use talea_core::mutate;
use talea_os::cgroup::Cgroup;
use talea_os::sched::{self, Policy};
use talea_os::{Tid, proc};

/// Period of the checks.
const CHECK_PERIOD: Duration = Duration::from_millis(100);
/// Maximum number of threads of each program that one check reads.
const MAX_THREADS: usize = 256;

/// Program that the monitor watches, and the changes that the monitor found.
#[derive(Debug)]
pub(crate) struct WatchedProgram {
    /// Cgroup of the program.
    pub(crate) cgroup: Arc<Cgroup>,
    pub(crate) cpu: u32,
    pub(crate) policies: ProgramPolicies,
    /// Description of the first change.
    pub(crate) policy_changed: Arc<OnceLock<String>>,
}

/// Starts the monitor, which runs until the other end of `over` is dropped.
pub(crate) fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    programs: Vec<WatchedProgram>,
    over: Receiver<()>,
) -> Result<(), Failure> {
    let monitor = move || {
        while over.recv_timeout(CHECK_PERIOD) == Err(RecvTimeoutError::Timeout) {
            for program in programs.iter().filter(|program| program.policy_changed.get().is_none())
            {
                let threads = program.cgroup.threads().unwrap_or_default();
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

/// Policies that a run gives to the threads of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramPolicies(PriorityMap);

impl ProgramPolicies {
    pub(crate) fn new(priorities: PriorityMap) -> ProgramPolicies {
        ProgramPolicies(priorities)
    }

    /// Returns the policy of a level.
    pub(crate) fn of(self, level: ProgramLevel) -> Policy {
        self.0.program_policy(level)
    }

    /// Whether the run gives this policy at some level. A new thread may have the policy that its
    /// creator had a moment ago.
    pub(crate) fn contain(self, policy: Policy) -> bool {
        ProgramLevel::ALL.iter().any(|&level| self.of(level) == policy)
    }

    /// Describes the policy of a thread that the run did not give.
    pub(crate) fn describe_change(self, tid: Tid, policy: Policy) -> String {
        let (wanted, name) = (self.of(ProgramLevel::Running), proc::comm(tid).unwrap_or_default());
        format!("thread {tid} ({name}) is {policy:?} instead of {wanted:?}")
    }
}

impl WatchedProgram {
    /// Returns the policy change of a thread, if any. A thread that has just exited has none.
    fn find_change(&self, tid: Tid) -> Option<String> {
        let policy = sched::get(tid).ok()?.policy;
        let cpus = sched::get_affinity(tid).ok()?;
        if !self.policies.contain(policy) {
            Some(self.policies.describe_change(tid, policy))
        } else if mutate!("exec-policy-monitor", cpus != CpuSet::single(self.cpu), cpus.is_empty())
        {
            let name = proc::comm(tid).unwrap_or_default();
            Some(format!("thread {tid} ({name}) may run on CPUs {cpus} instead of {}", self.cpu))
        } else {
            None
        }
    }
}
