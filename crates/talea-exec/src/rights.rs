//! Priorities that another process grants once before the run, and the policies that the kernel
//! reports.
//!
//! Model: a run that may not set priorities has three levels, set by a rights provider: the
//! watchdog's, below it the dispatchers', below that one level for all workers. No priority changes
//! after that. A preempted worker is stopped by its gate, and a resumed one is woken by a futex
//! ([`MechanismKind::Signal`](crate::MechanismKind::Signal)). So at most one worker of a CPU is
//! awake, and its place among equal priorities does not matter. A dispatcher that stood no higher
//! than a worker would not preempt it: the policies are read back from the kernel and checked.

use crate::root_shared::RootShared;
use std::io;
use std::sync::Arc;
use talea_core::CpuSet;
use talea_core::mutate;
use talea_os::Tid;
use talea_os::mlock;
use talea_os::sched::{self, Policy};

/// Threads of a run for which the run requests priorities. All of them sleep.
#[derive(Clone, Debug, Default)]
pub struct RunThreads {
    /// Thread of the watchdog, which needs a level above the others.
    pub watchdog: Vec<Tid>,
    /// Dispatchers with their CPUs, as the kernel numbers them.
    pub dispatchers: Vec<(Tid, u32)>,
    /// Workers with the CPUs of their root.
    pub workers: Vec<(Tid, Vec<u32>)>,
}

/// Provider of real-time rights for a run.
pub trait RightsProvider: Sync {
    /// Grants each thread the level of its kind, or grants no level to any thread.
    ///
    /// # Errors
    /// `PermissionDenied`, with the reason, if the provider refuses. Otherwise the failure.
    fn grant(&self, threads: &RunThreads) -> io::Result<()>;
}

/// Policies of the threads of a run. The run reads them from the kernel just before it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedPolicies {
    /// Policies of the dispatchers, in the order of roots and CPUs.
    pub dispatchers: Vec<Policy>,
    /// Policies of the workers, in the order of roots and tasks.
    pub workers: Vec<Policy>,
    /// Policy of the watchdog.
    pub watchdog: Vec<Policy>,
    /// Whether the memory of the process was locked.
    pub is_locked: bool,
}

impl ObservedPolicies {
    /// Whether all threads run before ordinary threads, every dispatcher before every worker, and
    /// the watchdog before every dispatcher. So the watchdog can end a dispatcher that hangs.
    pub fn is_real_time(&self) -> bool {
        let levels =
            |of: &[Policy]| -> Vec<u8> { of.iter().map(|&policy| fifo_priority(policy)).collect() };
        let (dispatchers, workers) = (levels(&self.dispatchers), levels(&self.workers));
        let least = dispatchers.iter().min().copied().unwrap_or(0);
        let most = workers.iter().max().copied().unwrap_or(1);
        let top = dispatchers.iter().max().copied().unwrap_or(0);
        workers.iter().all(|&level| level > 0)
            && least > most
            && levels(&self.watchdog)
                .iter()
                .all(|&level| level > mutate!("exec-grant-watchdog", top, 0))
    }
}

/// Returns the priority of `policy`, or 0 for the policy of an ordinary thread.
fn fifo_priority(policy: Policy) -> u8 {
    match policy {
        Policy::Fifo(priority) | Policy::Rr(priority) => priority,
        _ => 0,
    }
}

/// Grants the priorities by the rights provider, if there is one, and reads the policies. Called
/// when all threads are ready and asleep.
pub(crate) fn grant_and_read_policies(
    threads: &RunThreads,
    roots: &[Arc<RootShared>],
    provider: Option<&dyn RightsProvider>,
    locks: bool,
) -> io::Result<ObservedPolicies> {
    if let Some(provider) = provider {
        provider.grant(threads)?;
        // A provider may change affinities, too; the engine decides on CPUs.
        for &(tid, cpu) in &threads.dispatchers {
            sched::set_affinity(tid, &CpuSet::single(cpu))?;
        }
        for root in roots {
            for &tid in root.worker_tids.lock().iter() {
                sched::set_affinity(tid, &CpuSet::single(root.cpus[0].number))?;
            }
        }
        // The watchdog must find a CPU whatever happens on the one where it was put: any CPU of the
        // run, and no other.
        let whole: CpuSet = threads.dispatchers.iter().map(|&(_, cpu)| cpu).collect();
        for &tid in &threads.watchdog {
            sched::set_affinity(tid, &whole)?;
        }
    }
    let policy = |tid: Tid| sched::get(tid).map(|attr| attr.policy);
    let observed = ObservedPolicies {
        dispatchers: threads
            .dispatchers
            .iter()
            .map(|&(tid, _)| policy(tid))
            .collect::<io::Result<_>>()?,
        workers: threads.workers.iter().map(|(tid, _)| policy(*tid)).collect::<io::Result<_>>()?,
        watchdog: threads.watchdog.iter().map(|&tid| policy(tid)).collect::<io::Result<_>>()?,
        // Now, so that the stacks of all threads are included.
        is_locked: mutate!("runtime-unlocked", locks, false && locks) && mlock::lock().is_ok(),
    };
    if provider.is_some() && !observed.is_real_time() {
        let why = format!(
            "the granted priorities do not put the watchdog above the dispatchers and these above the workers: {observed:?}"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(observed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_real_time_if_every_dispatcher_is_above_every_worker() {
        let ordinary = Policy::NORMAL;
        let is = |dispatchers: &[Policy], workers: &[Policy]| {
            let (dispatchers, workers) = (dispatchers.into(), workers.into());
            ObservedPolicies {
                dispatchers,
                workers,
                watchdog: vec![Policy::Fifo(5)],
                is_locked: false,
            }
            .is_real_time()
        };
        assert!(is(&[Policy::Fifo(3), Policy::Rr(4)], &[Policy::Fifo(2), Policy::Fifo(1)]));
        assert!(
            !is(&[Policy::Fifo(3), Policy::Fifo(2)], &[Policy::Fifo(2)]),
            "no higher than a worker"
        );
        assert!(!is(&[Policy::Fifo(3)], &[ordinary]) && !is(&[ordinary], &[ordinary]));
        assert!(is(&[Policy::Fifo(3)], &[]), "there are no workers");
        assert!(
            !is(&[Policy::Fifo(3), Policy::Fifo(5)], &[Policy::Fifo(2)]),
            "the watchdog could not end it"
        );
    }
}
