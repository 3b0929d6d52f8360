//! Functions of `yasmin.h` that start and stop the application, and functions that jobs may call.

use super::state::{app, declared, forget};
use crate::app::{App, is_inside};
use crate::ffi::{CallError, CallResult, protect};
use crate::message::{self, call};
use libc::c_char;
use std::sync::Arc;
use talea_core::mutate;
use talea_runtime::{Condition, RunHandle, TaskId};

/// Returns the declared application.
fn declared_app() -> CallResult<Arc<App>> {
    let app = declared()?.as_ref().map(|yasmin| Arc::clone(&yasmin.app));
    app.ok_or(CallError::Caller(libc::EINVAL, "init() was not called"))
}

fn stop() -> CallResult {
    // Without the lock of what is declared: it takes as long as the jobs do.
    declared_app()?.stop().map(drop)
}

/// Stops the run, if there is one, and forgets the declarations. If the run had to be ended, the
/// function keeps the message of that error and forgets the declarations, too.
pub(crate) fn end() -> CallResult {
    let runs = || -> CallResult<bool> {
        Ok(declared()?.as_ref().is_some_and(|yasmin| yasmin.app.is_stopped().is_err()))
    };
    if runs()?
        && let Err(error) = stop()
    {
        mutate!(
            "capi-yasmin-ended",
            {
                if runs()? {
                    // The calling thread may not stop the application.
                    return Err(error);
                }
                message::remember(error);
            },
            {
                return Err(error);
            }
        );
    }
    forget()
}

#[unsafe(no_mangle)]
pub extern "C" fn yas_start() -> bool {
    let result = call(|| {
        let mut declared = declared()?;
        let yasmin =
            declared.as_mut().ok_or(CallError::Caller(libc::EINVAL, "init() was not called"))?;
        yasmin.app.is_stopped()?;
        yasmin.prepare()?;
        let app = Arc::clone(&yasmin.app);
        drop(declared);
        app.start()
    });
    result == 0
}

#[unsafe(no_mangle)]
pub extern "C" fn yas_stop() {
    call(stop);
}

#[unsafe(no_mangle)]
pub extern "C" fn yas_cleanup() {
    call(end);
}

/// Calls `action` with the handle of the run. Returns whether there is a run and `action`
/// succeeded. Does not block and sets no message.
fn with_run(action: impl FnOnce(&RunHandle) -> bool) -> bool {
    protect(|| Ok(app().is_some_and(|app| app.with_run(action).is_ok()))).unwrap_or(false)
}

#[unsafe(no_mangle)]
pub extern "C" fn yas_task_activate(task: i32) {
    if let Ok(number) = u32::try_from(task) {
        with_run(|run| run.activate(TaskId::from_number(number)));
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn yas_mode(mode: u32) -> bool {
    let mode = u8::try_from(mode).ok().filter(|&mode| mode < 64);
    mode.is_some_and(|mode| with_run(|run| run.change(Condition::Mode(mode))))
}

#[unsafe(no_mangle)]
pub extern "C" fn yas_permit(permissions: u64) -> bool {
    with_run(|run| run.change(Condition::Permitted(permissions)))
}

#[unsafe(no_mangle)]
pub extern "C" fn yas_battery(energy: u64) -> bool {
    with_run(|run| run.change(Condition::Battery(energy)))
}

#[unsafe(no_mangle)]
pub extern "C" fn yas_message() -> *const c_char {
    message::talea_last_error()
}

#[unsafe(no_mangle)]
pub extern "C" fn yas_application() -> *mut App {
    let known = if is_inside() { app() } else { declared_app().ok() };
    known.map_or(std::ptr::null_mut(), |app| Arc::as_ptr(&app).cast_mut())
}
