//! Functions on tasks under each of their names.

use super::layout::{RtfParams, RtfTask};
use super::task::{
    ErrorStyle, accepted, attach, change, connect, create, detach, init, release_task, result,
};
use super::{explain, period};
use crate::ffi::protect;
use libc::{c_char, c_int, pid_t, size_t};

macro_rules! spelled {
    ($($style:ident $init:ident $create:ident $change:ident $attach:ident $detach:ident
         $release:ident
       $start:ident $wait:ident $accepted:ident)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $init(task: *mut RtfTask) {
            // SAFETY: as the header says.
            unsafe { init(task) }
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $create(task: *mut RtfTask, params: *mut RtfParams) -> c_int {
            // SAFETY: as the header says.
            result(ErrorStyle::$style, || unsafe { create(task, params) })
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $change(task: *mut RtfTask, params: *mut RtfParams) -> c_int {
            // SAFETY: as the header says.
            result(ErrorStyle::$style, || unsafe { change(task, params) })
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $attach(task: *mut RtfTask, pid: pid_t) -> c_int {
            // SAFETY: as the header says.
            result(ErrorStyle::$style, || unsafe { attach(task, pid) })
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $detach(task: *mut RtfTask) -> c_int {
            // SAFETY: as the header says.
            result(ErrorStyle::$style, || unsafe { detach(task) })
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $release(task: *mut RtfTask) -> c_int {
            // SAFETY: as the header says.
            result(ErrorStyle::$style, || unsafe { release_task(task) })
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $start(task: *mut RtfTask) {
            // SAFETY: as the header says. Arithmetic on what a program wrote into the structure
            // saturates.
            drop(protect(|| { unsafe { period::start(task) }; Ok(()) }));
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $wait(task: *mut RtfTask) {
            // SAFETY: as the header says.
            drop(protect(|| { unsafe { period::wait(task) }; Ok(()) }));
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $accepted(task: *mut RtfTask) -> u64 {
            // SAFETY: as the header says.
            protect(|| unsafe { accepted(task) }).unwrap_or(0)
        }
    )* };
}

spelled! {
    Plain
    rtf_task_init rtf_task_create rtf_task_change rtf_task_attach rtf_task_detach rtf_task_release
    rtf_task_start rtf_task_wait_period rtf_task_get_accepted_runtime

    Distinct
    rtf_spec_init rtf_spec_create rtf_spec_change rtf_spec_attach rtf_spec_detach rtf_spec_release
    rtf_spec_start rtf_spec_wait_period rtf_spec_get_accepted_runtime

    Plain
    rts_task_init rts_task_create rts_task_change rts_task_attach rts_task_detach rts_task_release
    rts_task_start rts_task_wait_period rts_task_get_accepted_runtime
}

#[unsafe(no_mangle)]
pub extern "C" fn rtf_connect() -> c_int {
    match result(ErrorStyle::Plain, connect) {
        1 => 1,
        // Refused connections are connections that did not come about.
        _ => -1,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn rts_connect() -> c_int {
    rtf_connect()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtf_task_get_accepted_budget(task: *mut RtfTask) -> u64 {
    // SAFETY: as the header says.
    unsafe { rtf_task_get_accepted_runtime(task) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtf_task_explain(
    task: *const RtfTask,
    text: *mut c_char,
    size: size_t,
) -> size_t {
    // SAFETY: as the header says.
    unsafe { explain::explain(task, text, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtf_spec_explain(
    task: *const RtfTask,
    text: *mut c_char,
    size: size_t,
) -> size_t {
    // SAFETY: as the header says.
    unsafe { explain::explain(task, text, size) }
}
