//! What a version does: a function of the caller's, and which job it is called for.

use crate::layout::TaleaJob;
use libc::c_void;
use std::cell::Cell;
use talea_runtime::Job;

thread_local! {
    static UNDER_WAY: Cell<Option<TaleaJob>> = const { Cell::new(None) };
}

/// The job that this thread is doing.
pub(crate) fn under_way() -> Option<TaleaJob> {
    UNDER_WAY.try_with(Cell::get).ok().flatten()
}

/// Whether this thread is doing one.
pub(crate) fn is_in_job() -> bool {
    under_way().is_some()
}

/// A function of the caller's and what it is given. An exception must not leave it: the program is aborted then.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) function: unsafe extern "C" fn(*mut c_void),
    pub(crate) argument: *mut c_void,
}

// SAFETY: the header says that any of the application's threads calls the function with its argument, one at a time.
unsafe impl Send for Call {}

impl Call {
    pub(crate) fn run(self, task: u32, job: &Job) {
        let this = TaleaJob { size: 0, task, number: job.number, version: job.version, zero: 0 };
        UNDER_WAY.set(Some(this));
        // SAFETY: the caller's promise: the function and what its argument names live as long as the application.
        unsafe { (self.function)(self.argument) };
        UNDER_WAY.set(None);
    }
}
