//! The threads of a program: which are under a grant, which are not.
//!
//! Linux gives an unprivileged parent no event for a new thread, so `/proc/PID/task` is read at a
//! slow pace. What lives shorter than the pace may never be seen; that is said in the manual rather
//! than hidden by a fast loop.

use crate::kernel;
use crate::link::Link;
use crate::output::{count, note};
use serde::Serialize;
use std::collections::BTreeMap;
use talea_os::{Thread, Tid, proc};
use talea_proto::{SpecId, Task};

/// One thread that was seen.
#[derive(Debug, Serialize, Clone)]
pub(super) struct Seen {
    pub(super) tid: i32,
    pub(super) name: String,
    /// The spec that holds it.
    pub(super) spec: Option<u64>,
    /// Why it is not held although it should be.
    pub(super) why: Option<String>,
}

/// Every thread of the program that was seen.
#[derive(Debug)]
pub(super) struct Threads {
    main: Thread,
    cover: bool,
    seen: BTreeMap<Tid, Seen>,
    /// Specs of threads that were covered on the way, to hold the descriptors open.
    held: Vec<(SpecId, Thread)>,
}

impl Threads {
    /// The threads of the process whose main thread is held; `cover` the others too.
    pub(super) fn new(main: Thread, cover: bool) -> Threads {
        Threads { main, cover, seen: BTreeMap::new(), held: Vec::new() }
    }

    /// Sees which threads there are now, and covers new ones where asked.
    pub(super) fn look(&mut self, link: &mut Link, task: &Task) {
        let Ok(tids) = proc::threads_of(self.main.tid()) else { return };
        self.held.retain(|(_, thread)| thread.is_alive());
        for tid in tids {
            if tid == self.main.tid() {
                continue;
            }
            if self.seen.contains_key(&tid) {
                // Names are given after the start; the last one is the one that people know.
                if let (Some(seen), Some(name)) = (self.seen.get_mut(&tid), name_of(tid)) {
                    seen.name = name;
                }
                continue;
            }
            let Some(name) = name_of(tid) else { continue };
            let mut seen = Seen { tid: tid.as_raw(), name, spec: None, why: None };
            if self.cover {
                match cover(link, task, tid) {
                    Ok((spec, thread)) => {
                        seen.spec = Some(spec.0);
                        self.held.push((spec, thread));
                    }
                    Err(error) => {
                        let why = format!("{error:#}");
                        note(&format!("thread {tid} ({}) is not held: {why}", seen.name));
                        seen.why = Some(why);
                    }
                }
            }
            self.seen.insert(tid, seen);
        }
    }

    /// Every thread but the main one, in order of its number.
    pub(super) fn others(&self) -> impl Iterator<Item = &Seen> {
        self.seen.values()
    }

    /// Tells which threads were not covered.
    pub(super) fn say_not_held(&self) {
        let open: Vec<String> = self
            .others()
            .filter(|seen| seen.spec.is_none())
            .map(|seen| format!("{} ({})", seen.tid, seen.name))
            .collect();
        if !open.is_empty() {
            note(&format!("not held: {}: {}", count(open.len(), "thread"), open.join(", ")));
        }
    }
}

/// A grant for one more thread.
fn cover(link: &mut Link, task: &Task, tid: Tid) -> anyhow::Result<(SpecId, Thread)> {
    let thread = Thread::open(tid)?;
    let granted = link.create(task)?;
    if let Err(error) = link.attach(granted.spec, &thread) {
        link.give_back(granted.spec);
        return Err(error);
    }
    Ok((granted.spec, thread))
}

fn name_of(tid: Tid) -> Option<String> {
    kernel::name_of(u32::try_from(tid.as_raw()).ok()?)
}
