//! Threads that began under a shield: they inherited what it had made of their parents, and get
//! what these had.
//!
//! Model: whose child a newcomer is goes back, process by process, to one that was there before the
//! shield. What the shield has made of that one the newcomer has inherited; where it made nothing
//! of it, as of whoever was pinned to other CPUs before, the newcomer's CPUs are its own, be they
//! ever so like those of others.
//!
//! Before and after is told by ticks of 10 ms: who began in the tick of the shield began after it.
//!
//! Who has lost its parents is process 1's. It gets what anybody had of whom the same was made: the
//! first in the books.
//!
//! **A newcomer that has asked for exactly those CPUs itself can't be told from one that inherited
//! them**, unless it is real-time: it gets more CPUs than it wanted.

use super::books::{Books, Entry, Restored, Turned, is_ours, wanted};
use super::ground::Ground;
use crate::Tid;
use talea_core::CpuSet;
use talea_core::mutate;

/// Looks for those who have inherited: each may be forking.
const ROUNDS: u32 = 20;
/// Generations of processes that have begun meanwhile, at most.
const GENERATIONS: u32 = 1000;
/// Who takes in orphans.
const INIT: i32 = 1;

/// Whose what a newcomer has may be.
enum Forebear {
    /// A process that was there before the shield.
    Process(Tid),
    /// Nobody who lives.
    Gone,
    /// Somebody who can't be seen from here, and so was not moved either.
    Hidden,
}

impl Books {
    /// For those who began meanwhile. Allocates nothing.
    pub(super) fn bequeath(&self, ground: &dyn Ground, online: &CpuSet, restored: &mut Restored) {
        let began = self.page(0).map_or(u64::MAX, |page| page[4]);
        for _ in 0..ROUNDS {
            let before = restored.inherited;
            ground.each(&mut |process, tid, stat| {
                if stat.start_ticks >= began && !stat.is_bound() {
                    let forebear = forebear(ground, process, began);
                    if let Some(entry) =
                        self.inherited(ground, (tid, stat.start_ticks), &forebear, online)
                        && !ground.is_real_time(tid)
                        && ground.set_affinity(tid, &wanted(&entry)).is_ok()
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

    /// The change that such a thread has inherited, if it has.
    fn inherited(
        &self,
        ground: &dyn Ground,
        (tid, start): (Tid, u64),
        forebear: &Forebear,
        online: &CpuSet,
    ) -> Option<Entry> {
        let found = ground.affinity(tid).ok()?;
        let (mut of_forebear, mut of_anybody, mut was_moved) = (None, None, false);
        for entry in (0..self.entries()).filter_map(|at| self.entry(at)) {
            let Turned::Thread { process: of, tid: number, start: since, .. } = entry.what else {
                continue;
            };
            if (number, since) == (tid, start) {
                // Its own: what there was to put back is, and what is left is somebody else's.
                return None;
            }
            let is_of_forebear = matches!(*forebear, Forebear::Process(process) if process == of);
            was_moved |= is_of_forebear;
            if is_ours(&entry, &found, online) && entry.was.intersection(online) != found {
                of_anybody = of_anybody.or(Some(entry));
                if is_of_forebear {
                    of_forebear = of_forebear.or(Some(entry));
                }
            }
        }
        mutate!(
            "os-shield-foundlings",
            match *forebear {
                Forebear::Gone => of_anybody,
                Forebear::Process(process) if process.as_raw() == INIT && was_moved =>
                    of_forebear.or(of_anybody),
                Forebear::Process(_) => of_forebear,
                Forebear::Hidden => None,
            },
            match *forebear {
                Forebear::Gone => of_anybody,
                Forebear::Process(process) if process.as_raw() == INIT && was_moved =>
                    of_forebear.or(of_anybody),
                Forebear::Process(_) => of_forebear.or(of_anybody),
                Forebear::Hidden => None,
            }
        )
    }
}

/// From whom a thread of this process has its CPUs.
fn forebear(ground: &dyn Ground, process: Tid, began: u64) -> Forebear {
    let mut at = process;
    for _ in 0..GENERATIONS {
        // The process of a number is told by its main thread, which stays until all the others have
        // ended.
        let Ok(stat) = ground.stat(at, at) else { return Forebear::Gone };
        if stat.start_ticks < began {
            return Forebear::Process(at);
        }
        let Some(parent) = Tid::new(stat.parent) else { return Forebear::Hidden };
        at = parent;
    }
    Forebear::Gone
}
