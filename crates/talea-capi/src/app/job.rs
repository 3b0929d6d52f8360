//! The call of a version's function, and the job that it is called for.

use crate::layout::TaleaJob;
use libc::c_void;
use std::cell::Cell;
use talea_core::mutate;
use talea_runtime::Job;

thread_local! {
    static UNDER_WAY: Cell<Option<TaleaJob>> = const { Cell::new(None) };
    static CHOOSES: Cell<bool> = const { Cell::new(false) };
}

/// The job that this thread is doing.
pub(crate) fn under_way() -> Option<TaleaJob> {
    UNDER_WAY.try_with(Cell::get).ok().flatten()
}

/// Whether this thread is one of an application's that has called a function of the caller's: it
/// does a job, or chooses a version.
pub(crate) fn is_inside() -> bool {
    under_way().is_some() || CHOOSES.try_with(Cell::get).unwrap_or(false)
}

/// Asks a function of the caller's which version; what it calls meanwhile knows. The scheduler's
/// lock is held: a call in it that waits for the application would deadlock. An exception aborts
/// the program here, before it unwinds through the holder of that lock.
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

/// A function of the caller's and what it is given. An exception must not leave it: the program is
/// aborted then, which Rust does where it would catch one.
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
