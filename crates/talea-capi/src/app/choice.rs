//! Function of the caller that selects versions.

use super::job::choosing;
use crate::layout::TaleaChoice;
use libc::c_void;
use talea_runtime::{Candidates, Selection};

/// Type `talea_chooser` of the header.
pub type Choose = unsafe extern "C-unwind" fn(*const TaleaChoice, *mut c_void) -> i32;

/// Function of the caller that selects versions, with its argument. The engine has its address, so
/// the value must not move while the application runs.
pub(crate) struct Given {
    pub(crate) choose: Choose,
    pub(crate) data: *mut c_void,
}

// SAFETY: the header says that any of the application's threads calls it, one at a time.
unsafe impl Send for Given {}

impl Given {
    /// Returns the selection that calls the function.
    pub(crate) fn selection(&self) -> Selection {
        Selection::UserWithContext(ask, std::ptr::from_ref(self).expose_provenance() as u64)
    }
}

fn ask(of: &Candidates, address: u64) -> Option<u32> {
    // SAFETY: `Given::selection` put it there, and the application keeps it boxed until no machine
    // is left that could ask.
    let given = unsafe { &*std::ptr::with_exposed_provenance::<Given>(address as usize) };
    let choice = TaleaChoice {
        size: size_of::<TaleaChoice>() as u32,
        task: of.task.0,
        job: of.job,
        free: of.available,
        battery: of.conditions.battery,
        permitted: of.conditions.permitted,
        mode: of.conditions.mode.into(),
        versions: of.versions.len() as u32,
    };
    // SAFETY: the caller's promise: the function and its data live as long as the application.
    u32::try_from(choosing(|| unsafe { (given.choose)(&raw const choice, given.data) })).ok()
}
