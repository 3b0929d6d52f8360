//! Threads of a program, with and without a grant.
//!
//! Linux reports new threads to no unprivileged parent, so the command polls `/proc/PID/task` at a
//! low rate. It may miss a thread whose life is shorter than the interval, as the manual says.

use crate::broker_client::BrokerClient;
use crate::kernel;
use serde::Serialize;
use std::collections::BTreeMap;
use talea_os::{Thread, Tid, proc};
use talea_proto::{SpecId, Task};
use talea_study::output::{count, note};

/// Detected thread of a program.
#[derive(Debug, Serialize, Clone)]
pub(super) struct ThreadReport {
    pub(super) tid: i32,
    pub(super) name: String,
    /// Spec of the thread's grant.
    pub(super) spec: Option<u64>,
    /// Reason why the thread has no grant although it should have one.
    pub(super) why: Option<String>,
}

/// All detected threads of the program.
#[derive(Debug)]
pub(super) struct Threads {
    main: Thread,
    cover: bool,
    seen: BTreeMap<Tid, ThreadReport>,
    /// Specs of threads that got a grant after their detection, with their open descriptors.
    held: Vec<(SpecId, Thread)>,
}

impl Threads {
    /// Creates the list for the process with this main thread. With `cover`, the other threads get
    /// grants, too.
    pub(super) fn new(main: Thread, cover: bool) -> Threads {
        Threads { main, cover, seen: BTreeMap::new(), held: Vec::new() }
    }

    /// Detects new threads and covers them if requested.
    pub(super) fn scan(&mut self, link: &mut BrokerClient, task: &Task) {
        let Ok(tids) = proc::threads_of(self.main.tid()) else { return };
        self.held.retain(|(_, thread)| thread.is_alive());
        for tid in tids {
            if tid == self.main.tid() {
                continue;
            }
            if self.seen.contains_key(&tid) {
                // Threads are named after their start; the last name is the relevant one.
                if let (Some(seen), Some(name)) = (self.seen.get_mut(&tid), name_of(tid)) {
                    seen.name = name;
                }
                continue;
            }
            let Some(name) = name_of(tid) else { continue };
            let mut seen = ThreadReport { tid: tid.as_raw(), name, spec: None, why: None };
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

    /// Returns every thread but the main thread, in ascending order of their numbers.
    pub(super) fn others(&self) -> impl Iterator<Item = &ThreadReport> {
        self.seen.values()
    }

    /// Prints the threads that are not covered.
    pub(super) fn note_uncovered(&self) {
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

/// Requests a grant for one more thread.
fn cover(link: &mut BrokerClient, task: &Task, tid: Tid) -> anyhow::Result<(SpecId, Thread)> {
    let thread = Thread::open(tid)?;
    let granted = link.create(task, &thread)?;
    if let Err(error) = link.attach(granted.spec, &thread) {
        link.release_unused(granted.spec);
        return Err(error);
    }
    Ok((granted.spec, thread))
}

fn name_of(tid: Tid) -> Option<String> {
    kernel::name_of(u32::try_from(tid.as_raw()).ok()?)
}
