//! Whether programs are still what their run has made of them.
//!
//! Model: an ordinary thread, below everything of the run, looks at the threads of each program's
//! group now and then. One that has another policy, priority or place than it began with stands to
//! others as nobody ordered: who is to stop it may not get the CPU, the sentinel may get it while
//! the program wants it. What was seen is told with the run, and nothing is done about it: a thread
//! that is put back may change again before it is looked at next.
//!
//! Absent on purpose: who has left the group (that takes rights over the hierarchy, and then
//! nothing of the run reaches it); and who changes and is back before the next look.

use crate::run::Failure;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, Scope};
use std::time::Duration;
use talea_core::CpuSet;
use talea_core::mutate;
use talea_os::groups::Family;
use talea_os::sched::{self, Policy};
use talea_os::{Tid, proc};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// So many threads of a program are looked at each time.
const MOST: usize = 256;

/// A program's place and what was seen of it.
#[derive(Debug)]
pub(crate) struct Post {
    /// Which of the family's groups.
    pub(crate) at: usize,
    pub(crate) cpu: u32,
    pub(crate) priority: u8,
    /// The first thing that was wrong, in words.
    pub(crate) strayed: Arc<OnceLock<String>>,
}

/// Watches until whoever holds the other end of `over` lets go.
pub(crate) fn stand<'scope>(
    scope: &'scope Scope<'scope, '_>,
    family: Arc<Family>,
    posts: Vec<Post>,
    over: Receiver<()>,
) -> Result<(), Failure> {
    let watch = move || {
        while over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            for post in posts.iter().filter(|post| post.strayed.get().is_none()) {
                let threads = family.group(post.at).threads().unwrap_or_default();
                if let Some(what) = threads.into_iter().take(MOST).find_map(|tid| post.look(tid)) {
                    // Nobody else writes there.
                    let _ = post.strayed.set(what);
                }
            }
        }
    };
    Builder::new().name("exec-warden".into()).spawn_scoped(scope, watch)?;
    Ok(())
}

impl Post {
    /// What is wrong with a thread; of one that has just ended nothing is.
    fn look(&self, tid: Tid) -> Option<String> {
        let policy = sched::get(tid).ok()?.policy;
        let cpus = sched::get_affinity(tid).ok()?;
        let name = || proc::comm(tid).unwrap_or_default();
        if policy != Policy::Rr(self.priority) {
            let wanted = Policy::Rr(self.priority);
            Some(format!("thread {tid} ({}) is {policy:?} instead of {wanted:?}", name()))
        } else if mutate!("exec-warden", cpus != CpuSet::single(self.cpu), cpus.is_empty()) {
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
