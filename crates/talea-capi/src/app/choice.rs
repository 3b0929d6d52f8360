//! A function of the caller's that chooses versions.

use super::job::choosing;
use crate::layout::TaleaChoice;
use libc::c_void;
use talea_runtime::{Candidates, Selection};

/// `talea_chooser`
pub type Choose = unsafe extern "C-unwind" fn(*const TaleaChoice, *mut c_void) -> i32;

/// Such a function and what it is given. The machine knows its address, so it stays where it is as
/// long as the application runs.
pub(crate) struct Given {
    pub(crate) choose: Choose,
    pub(crate) data: *mut c_void,
}

// SAFETY: the header says that any of the application's threads calls it, one at a time.
unsafe impl Send for Given {}

impl Given {
    /// The selection that asks it.
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
