//! Priorities that somebody else gives, once, before the run begins; and what the kernel says of
//! everybody's in the end.
//!
//! Model: who may not move priorities has three levels, given by whoever may: the watchdog's, below
//! it the dispatchers', below that one for all workers. Nobody is moved after that. Whoever is to
//! stop is stopped by its gate, and whoever goes on is let go by a futex
//! ([`Flip`](crate::mechanism)); so of the workers of a CPU one is awake, and where the kernel
//! would put it among its equals does not matter. A dispatcher that stood no higher than a worker
//! would not get its CPU from it: that is looked at here, by the kernel's word.

use crate::stage::Stage;
use std::io;
use std::sync::Arc;
use talea_core::CpuSet;
use talea_core::mutate;
use talea_os::Tid;
use talea_os::memory;
use talea_os::sched::{self, Policy};

/// The threads of a run that want a priority. All of them sleep.
#[derive(Clone, Debug, Default)]
pub struct Crew {
    /// Above the others.
    pub watchdog: Vec<Tid>,
    /// With the CPU that each drives.
    pub dispatchers: Vec<(Tid, u32)>,
    /// With the CPUs of its root.
    pub workers: Vec<(Tid, Vec<u32>)>,
}

/// Whoever gives a run its rights.
pub trait Grantor: Sync {
    /// Gives every thread of the crew the level where it belongs, or none of them any.
    ///
    /// # Errors
    /// `PermissionDenied`, with the reason, where it is refused; else what broke.
    fn grant(&self, crew: &Crew) -> io::Result<()>;
}

/// How the kernel schedules the threads of a run, read back from it just before the run begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// By CPU, over all roots.
    pub dispatchers: Vec<Policy>,
    /// By task, over all roots.
    pub workers: Vec<Policy>,
    /// Of whoever ends a run that does not end.
    pub watchdog: Vec<Policy>,
    /// Whether the process's memory was locked for it.
    pub is_locked: bool,
}

impl Standing {
    /// Whether all of them run before ordinary threads, every dispatcher before every worker, and
    /// nobody before the watchdog, wherever it stands: it could not end a dispatcher that hangs.
    pub fn is_real_time(&self) -> bool {
        let levels =
            |of: &[Policy]| -> Vec<u8> { of.iter().map(|&policy| level(policy)).collect() };
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

/// 0: an ordinary thread.
fn level(policy: Policy) -> u8 {
    match policy {
        Policy::Fifo(priority) | Policy::Rr(priority) => priority,
        _ => 0,
    }
}

/// Everybody is in, and asleep: gives them what they are to have, if it is somebody else's to give,
/// and says what they have.
pub(crate) fn settle(
    crew: &Crew,
    stages: &[Arc<Stage>],
    grantor: Option<&dyn Grantor>,
    locks: bool,
) -> io::Result<Standing> {
    if let Some(grantor) = grantor {
        grantor.grant(crew)?;
        // Whoever gives priorities may have a place in mind, too; who runs where is said by the
        // machine.
        for &(tid, cpu) in &crew.dispatchers {
            sched::set_affinity(tid, &CpuSet::single(cpu))?;
        }
        for stage in stages {
            for &tid in stage.workers.lock().iter() {
                sched::set_affinity(tid, &CpuSet::single(stage.cpus[0].number))?;
            }
        }
        // It is to find a CPU whatever happens on the one where it was put: any that the run
        // drives, where it is granted, and no other.
        let whole: CpuSet = crew.dispatchers.iter().map(|&(_, cpu)| cpu).collect();
        for &tid in &crew.watchdog {
            sched::set_affinity(tid, &whole)?;
        }
    }
    let policy = |tid: Tid| sched::get(tid).map(|attr| attr.policy);
    let standing = Standing {
        dispatchers: crew
            .dispatchers
            .iter()
            .map(|&(tid, _)| policy(tid))
            .collect::<io::Result<_>>()?,
        workers: crew.workers.iter().map(|(tid, _)| policy(*tid)).collect::<io::Result<_>>()?,
        watchdog: crew.watchdog.iter().map(|&tid| policy(tid)).collect::<io::Result<_>>()?,
        // With the stacks of all of them.
        is_locked: mutate!("runtime-unlocked", locks, false && locks) && memory::lock().is_ok(),
    };
    if grantor.is_some() && !standing.is_real_time() {
        let why = format!(
            "what was granted does not put the watchdog above dispatchers and these above workers: {standing:?}"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(standing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crew_is_real_time_when_every_dispatcher_stands_above_every_worker() {
        let ordinary = Policy::NORMAL;
        let is = |dispatchers: &[Policy], workers: &[Policy]| {
            let (dispatchers, workers) = (dispatchers.into(), workers.into());
            Standing { dispatchers, workers, watchdog: vec![Policy::Fifo(5)], is_locked: false }
                .is_real_time()
        };
        assert!(is(&[Policy::Fifo(3), Policy::Rr(4)], &[Policy::Fifo(2), Policy::Fifo(1)]));
        assert!(
            !is(&[Policy::Fifo(3), Policy::Fifo(2)], &[Policy::Fifo(2)]),
            "no higher than a worker"
        );
        assert!(!is(&[Policy::Fifo(3)], &[ordinary]) && !is(&[ordinary], &[ordinary]));
        assert!(is(&[Policy::Fifo(3)], &[]), "nobody to stand above");
        assert!(
            !is(&[Policy::Fifo(3), Policy::Fifo(5)], &[Policy::Fifo(2)]),
            "the watchdog could not end it"
        );
    }
}
