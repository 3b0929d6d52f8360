//! Task of the job that the calling thread runs.
//!
//! Model: the ends of a channel belong to jobs. Let another thread push or pop. The runtime would
//! report the operation to the engine with the next completion of a job of that task, like an
//! operation of the job. So the runtime rejects threads that do not run a job of the task at an
//! end.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use talea_core::engine::TaskId;
use talea_core::mutate;

/// Task, identified within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CurrentTask {
    app: u64,
    task: TaskId,
}

impl CurrentTask {
    pub(crate) fn new(app: u64, task: TaskId) -> CurrentTask {
        CurrentTask { app, task }
    }

    /// Whether the calling thread runs a job of the task.
    pub(crate) fn is_current(self) -> bool {
        // A thread that is about to exit runs no job.
        mutate!(
            "runtime-doing-app",
            CURRENT.try_with(Cell::get).ok().flatten() == Some(self),
            CURRENT.try_with(Cell::get).ok().flatten().is_some_and(|doing| doing.task == self.task)
        )
    }

    /// Runs `job` as a job of the task.
    pub(crate) fn enter<T>(self, job: impl FnOnce() -> T) -> T {
        struct Over(Option<CurrentTask>);
        impl Drop for Over {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let _over = Over(CURRENT.replace(Some(self)));
        job()
    }
}

thread_local! {
    static CURRENT: Cell<Option<CurrentTask>> = const { Cell::new(None) };
}

/// Returns an id that no other application of the process has.
pub(crate) fn next_application_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
