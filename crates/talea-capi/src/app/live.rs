//! Calls on a running application. Jobs may make the calls that neither start nor stop the
//! application: these calls take no lock, allocate nothing, and keep no message.

use super::job::under_way;
use super::state::App;
use super::{Not, Pipe};
use crate::ffi::{CallResult, can_be_written, given, protect, write};
use crate::layout::{TaleaAppReport, TaleaJob};
use crate::message::call;
use libc::{c_int, c_void, size_t};
use talea_core::mutate;
use talea_runtime::{Condition, RunHandle, TaskId};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_start(app: *mut App) -> c_int {
    // SAFETY: as the header says.
    call(|| unsafe { given(app, "app is NULL") }?.start())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_stop(app: *mut App, report: *mut TaleaAppReport) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let app = unsafe { given(app, "app is NULL") }?;
        if !report.is_null() {
            // Tested first: an invalid report must not stop the application.
            // SAFETY: as the header says.
            unsafe { can_be_written(report) }?;
        }
        let known = app.stop()?;
        if report.is_null() {
            return Ok(());
        }
        // SAFETY: as the header says.
        unsafe { write(report, &super::report::whole(&known)) }
    })
}

/// Returns the result of `inside`, or a negative errno without a message.
fn quietly(inside: impl FnOnce() -> CallResult<c_int>) -> c_int {
    let number = protect(inside).unwrap_or_else(|error| error.number());
    mutate!("capi-quiet", {}, crate::message::set("refused", None));
    number
}

/// Calls `action` with the handle of the run of an application.
///
/// # Safety
/// `app` is NULL or a handle that no thread frees meanwhile.
unsafe fn with_run(app: *const App, action: impl FnOnce(&RunHandle) -> bool) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { app.as_ref() } {
        None => -libc::EINVAL,
        Some(app) => quietly(|| app.with_run(action).map(|()| 0)),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_activate(app: *mut App, task: u32) -> c_int {
    // SAFETY: as the header says.
    unsafe { with_run(app, |run| run.activate(TaskId::from_number(task))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_battery(app: *mut App, battery: u64) -> c_int {
    // SAFETY: as the header says.
    unsafe { with_run(app, |run| run.change(Condition::Battery(battery))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_mode(app: *mut App, mode: u32) -> c_int {
    match u8::try_from(mode) {
        // SAFETY: as the header says.
        Ok(mode) if mode < 64 => unsafe { with_run(app, |run| run.change(Condition::Mode(mode))) },
        _ => -libc::EINVAL,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_permit(app: *mut App, permitted: u64) -> c_int {
    // SAFETY: as the header says.
    unsafe { with_run(app, |run| run.change(Condition::Permitted(permitted))) }
}

/// Converts a channel result to the errno of the header.
fn moved(what: Result<(), Not>) -> c_int {
    match what {
        Ok(()) => 0,
        Err(Not::Allowed) => -libc::EPERM,
        Err(Not::Fitting) => -libc::EMSGSIZE,
        Err(Not::Now) => -libc::EAGAIN,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_channel_push(
    channel: *mut Pipe,
    item: *const c_void,
    size: size_t,
) -> c_int {
    // SAFETY: as the header says.
    let Some(pipe) = (unsafe { channel.as_ref() }).filter(|_| !item.is_null()) else {
        return -libc::EINVAL;
    };
    // SAFETY: it names `size` bytes, says the header.
    quietly(|| Ok(moved(unsafe { pipe.push(item, size) })))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_channel_pop(
    channel: *mut Pipe,
    item: *mut c_void,
    size: size_t,
) -> c_int {
    // SAFETY: as the header says.
    let Some(pipe) = (unsafe { channel.as_ref() }).filter(|_| !item.is_null()) else {
        return -libc::EINVAL;
    };
    // SAFETY: there is room for `size` bytes, says the header.
    quietly(|| Ok(moved(unsafe { pipe.pop(item, size) })))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_job_get(job: *mut TaleaJob) -> c_int {
    let Some(known) = under_way() else { return -libc::ENOENT };
    // SAFETY: as the header says.
    match protect(|| unsafe { write(job, &known) }) {
        Ok(()) => 0,
        Err(error) => error.number(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_job_wait(
    wait: Option<unsafe extern "C-unwind" fn(*mut c_void) -> c_int>,
    argument: *mut c_void,
) -> c_int {
    let Some(wait) = wait else { return -libc::EINVAL };
    // SAFETY: the caller's promise: the function may be called with its argument.
    talea_runtime::wait_for_device(|| unsafe { wait(argument) })
}
