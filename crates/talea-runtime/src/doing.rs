//! Whose job the calling thread does.
//!
//! Model: the ends of a channel belong to jobs. A count that moved from anywhere else would be told
//! to the machine with the next end of somebody's job, as if that job had done it; so whoever does
//! no job of the task at an end is turned away there.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use talea_core::machine::TaskId;
use talea_core::mutate;

/// A task among all of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doing {
    app: u64,
    task: TaskId,
}

impl Doing {
    pub(crate) fn new(app: u64, task: TaskId) -> Doing {
        Doing { app, task }
    }

    /// Whether the calling thread does a job of it.
    pub(crate) fn is_under_way(self) -> bool {
        // A thread that is about to end does nothing any more.
        mutate!(
            "runtime-doing-app",
            UNDER_WAY.try_with(Cell::get).ok().flatten() == Some(self),
            UNDER_WAY
                .try_with(Cell::get)
                .ok()
                .flatten()
                .is_some_and(|doing| doing.task == self.task)
        )
    }

    /// Does a job of it.
    pub(crate) fn during<T>(self, job: impl FnOnce() -> T) -> T {
        struct Over(Option<Doing>);
        impl Drop for Over {
            fn drop(&mut self) {
                UNDER_WAY.set(self.0);
            }
        }
        let _over = Over(UNDER_WAY.replace(Some(self)));
        job()
    }
}

thread_local! {
    static UNDER_WAY: Cell<Option<Doing>> = const { Cell::new(None) };
}

/// Of an application: no two of a process have the same.
pub(crate) fn another_application() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
