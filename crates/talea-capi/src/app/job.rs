//! Calls of a version's function, and the job for which the function is called.

use crate::layout::TaleaJob;
use libc::c_void;
use std::cell::Cell;
use talea_core::mutate;
use talea_runtime::Job;

thread_local! {
    static UNDER_WAY: Cell<Option<TaleaJob>> = const { Cell::new(None) };
    static CHOOSES: Cell<bool> = const { Cell::new(false) };
}

/// Returns the job that this thread runs, if any.
pub(crate) fn under_way() -> Option<TaleaJob> {
    UNDER_WAY.try_with(Cell::get).ok().flatten()
}

/// Whether this thread belongs to an application and has called a function of the caller: it runs a
/// job, or selects a version.
pub(crate) fn is_inside() -> bool {
    under_way().is_some() || CHOOSES.try_with(Cell::get).unwrap_or(false)
}

/// Calls a function of the caller that selects a version. Marks the thread, so that the function's
/// calls into this library can detect the selection. The engine's lock is held, so a call that
/// waits for the application would deadlock. An exception aborts the program here, before it
/// unwinds through the holder of that lock.
pub(crate) fn choosing<T>(ask: impl FnOnce() -> T) -> T {
    struct Chosen;
    impl Drop for Chosen {
        fn drop(&mut self) {
            CHOOSES.set(false);
        }
    }
    CHOOSES.set(mutate!("capi-chooser-waits", true, false));
    let _chosen = Chosen;
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask))
        .unwrap_or_else(|_| std::process::abort())
}

/// Function of the caller with its argument. An exception must not leave the function: where Rust
/// would catch an exception, the program is aborted.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) function: unsafe extern "C-unwind" fn(*mut c_void),
    pub(crate) argument: *mut c_void,
}

// SAFETY: the header says that any of the application's threads calls the function with its
// argument, one at a time.
unsafe impl Send for Call {}

impl Call {
    pub(crate) fn run(self, task: u32, job: &Job) {
        let this = mutate!(
            "capi-job-number",
            TaleaJob { size: 0, task, number: job.number, version: job.version, zero: 0 },
            TaleaJob { size: 0, task, number: job.number + 1, version: job.version, zero: 0 }
        );
        UNDER_WAY.set(Some(this));
        // SAFETY: the caller's promise: the function and what its argument names live as long as
        // the application.
        unsafe { (self.function)(self.argument) };
        UNDER_WAY.set(None);
    }
}
