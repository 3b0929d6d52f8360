//! Restores the affinity of threads created while a shield was active. Such a thread inherited its
//! parent's shielded affinity and now gets the affinity that the parent had before the shield.
//!
//! Model: the ancestors of the thread are followed, process by process, to one that existed before
//! the shield. If the shield changed that ancestor, the thread has inherited the applied affinity.
//! If it did not, as for an ancestor pinned to other CPUs before, the thread's affinity is its own,
//! even if it equals an applied one.
//!
//! Before and after are distinguished by the start time in ticks of 10 ms: a thread that started in
//! the tick of the shield counts as started after it.
//!
//! A thread whose parent has ended is a child of process 1. It gets the affinity before of any
//! thread with the same applied affinity: the first in the journal.
//!
//! **A new thread that requested exactly an applied affinity cannot be distinguished from one that
//! inherited it**, unless it is real-time: it gets more CPUs than it requested.

use super::journal::{Change, Entry, Journal, Restored, affinity_to_restore, has_applied_affinity};
use super::ops::SystemOps;
use crate::Tid;
use talea_core::CpuSet;
use talea_core::mutate;

/// Maximum number of scans for new threads. A thread may fork during each scan.
const MAX_SCANS: u32 = 20;
/// Maximum number of generations of processes created while the shield was active.
const MAX_GENERATIONS: u32 = 1000;
/// Number of the process that becomes the parent of orphaned processes.
const INIT: i32 = 1;

/// Ancestor whose affinity a new thread may have inherited.
enum Ancestor {
    /// Process that existed before the shield.
    Process(Tid),
    /// Ancestor that has ended: no living process is left.
    Ended,
    /// Process that is invisible in this PID namespace, so the shield did not move it.
    Invisible,
}

impl Journal {
    /// Restores the affinity of threads created while the shield was active. Allocates nothing.
    pub(super) fn restore_inherited(
        &self,
        ops: &dyn SystemOps,
        online: &CpuSet,
        restored: &mut Restored,
    ) {
        let began = self.read_record(0).map_or(u64::MAX, |page| page[4]);
        for _ in 0..MAX_SCANS {
            let before = restored.inherited;
            ops.for_each_thread(&mut |process, tid, stat| {
                if stat.start_ticks >= began && !stat.is_bound() {
                    let ancestor = find_ancestor(ops, process, began);
                    if let Some(entry) =
                        self.inherited_entry(ops, (tid, stat.start_ticks), &ancestor, online)
                        && !ops.is_real_time(tid)
                        && ops.set_affinity(tid, &affinity_to_restore(&entry)).is_ok()
                    {
                        restored.inherited += 1;
                    }
                }
            });
            if restored.inherited == before {
                break;
            }
        }
    }

    /// Returns the change that a new thread has inherited, if any.
    fn inherited_entry(
        &self,
        ops: &dyn SystemOps,
        (tid, start): (Tid, u64),
        ancestor: &Ancestor,
        online: &CpuSet,
    ) -> Option<Entry> {
        let found = ops.affinity(tid).ok()?;
        let (mut of_ancestor, mut of_any, mut was_moved) = (None, None, false);
        for entry in (0..self.len()).filter_map(|at| self.entry(at)) {
            let Change::Thread { process: of, tid: number, start: since, .. } = entry.change else {
                continue;
            };
            if (number, since) == (tid, start) {
                // The thread has a record of its own, which is restored already; what it has now
                // was set by another process.
                return None;
            }
            let is_of_ancestor = matches!(*ancestor, Ancestor::Process(process) if process == of);
            was_moved |= is_of_ancestor;
            if has_applied_affinity(&entry, &found, online)
                && entry.before.intersection(online) != found
            {
                of_any = of_any.or(Some(entry));
                if is_of_ancestor {
                    of_ancestor = of_ancestor.or(Some(entry));
                }
            }
        }
        match *ancestor {
            Ancestor::Ended => of_any,
            Ancestor::Process(process) if process.as_raw() == INIT && was_moved => {
                of_ancestor.or(of_any)
            }
            Ancestor::Process(_) => {
                mutate!("os-shield-foundlings", of_ancestor, of_ancestor.or(of_any))
            }
            Ancestor::Invisible => None,
        }
    }
}

/// Finds the ancestor from which the threads of this process inherited their affinity.
fn find_ancestor(ops: &dyn SystemOps, process: Tid, began: u64) -> Ancestor {
    let mut at = process;
    for _ in 0..MAX_GENERATIONS {
        // A process is identified by its main thread, which exists until all others have ended.
        let Ok(stat) = ops.stat(at, at) else { return Ancestor::Ended };
        if stat.start_ticks < began {
            return Ancestor::Process(at);
        }
        let Some(parent) = Tid::new(stat.parent) else { return Ancestor::Invisible };
        at = parent;
    }
    Ancestor::Ended
}
