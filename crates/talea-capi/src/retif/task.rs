//! Operations on a task, shared by the functions of all names.

use super::layout::{RtfParams, RtfTask, Timespec};
use super::registry::{self, Entry};
use crate::ffi::{CallError, CallResult, protect};
use crate::message;
use libc::{c_int, pid_t};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use talea_client::{Code, Refusal};
use talea_core::Work;
use talea_proto::refusal::PluginVerdict;

const OK: c_int = 1;
const FAIL: c_int = 0;
const ERROR: c_int = -1;
const ACL_FAIL: c_int = -2;

/// Style of the results.
#[derive(Clone, Copy)]
pub(super) enum ErrorStyle {
    /// The results are `RTF_OK`, `RTF_FAIL` and `RTF_ERROR`.
    Plain,
    /// Refusals for lack of permission have a value of their own, as in the journal paper.
    Distinct,
}

/// Runs the body of a function and converts its outcome to a result.
pub(super) fn result(style: ErrorStyle, inside: impl FnOnce() -> CallResult) -> c_int {
    let error = match protect(inside) {
        Ok(()) => return OK,
        Err(error) => error,
    };
    let result = match (&error, style) {
        (CallError::Refused(refusal), ErrorStyle::Distinct) if is_denial(refusal) => ACL_FAIL,
        (CallError::Refused(_), _) => FAIL,
        _ => {
            // SAFETY: the calling thread's own errno.
            unsafe { *libc::__errno_location() = -error.number() };
            ERROR
        }
    };
    message::remember(error);
    result
}

/// Whether rules or rights are the reason of a refusal, rather than a lack of room.
fn is_denial(refusal: &Refusal) -> bool {
    match refusal.code {
        Code::NotAllowed
        | Code::RuleBound
        | Code::RuleOmission
        | Code::NotOwner
        | Code::ForeignThread
        | Code::BadToken
        | Code::NotRoot
        | Code::NotFrontEnd => true,
        // Every plugin that could have been asked is closed to this user.
        Code::NoPlugin => {
            !refusal.answers.is_empty()
                && refusal
                    .answers
                    .iter()
                    .all(|answer| matches!(answer.verdict, PluginVerdict::Denied { .. }))
        }
        _ => false,
    }
}

pub(super) fn connect() -> CallResult {
    Ok(registry::client()?.reconnect()?)
}

/// Requests a grant for a task, and stores the task's number in its structure.
///
/// # Safety
/// Both pointers are NULL or denote the caller's structures.
pub(super) unsafe fn create(task: *mut RtfTask, params: *const RtfParams) -> CallResult {
    // SAFETY: the caller's promise.
    let (task, params) = unsafe { both(task, params) }?;
    let client = registry::client()?;
    let address = (&raw const *task) as usize;
    for (id, entry) in registry::former_tasks(address) {
        // Only what lost its thread: the structure may have been copied, and the copy be in use.
        if entry.grant.is_lost() || matches!(entry.grant.info(), Ok(Ok(info)) if info.tid.is_none())
        {
            drop(release(id));
        }
    }
    let grant = client.create(&params.spec()?)??;
    task.acc_runtime = accepted_us(&grant);
    task.task_id = registry::enter(grant, address);
    task.dmiss = 0;
    task.p = *params;
    Ok(())
}

/// Changes the parameters of a task.
///
/// # Safety
/// Both pointers are NULL or denote the caller's structures.
pub(super) unsafe fn change(task: *mut RtfTask, params: *const RtfParams) -> CallResult {
    // SAFETY: the caller's promise.
    let (task, params) = unsafe { both(task, params) }?;
    let entry = registry::find(task.task_id)?;
    entry.grant.change(&params.spec()?)??;
    task.acc_runtime = accepted_us(&entry.grant);
    task.p = *params;
    Ok(())
}

/// Attaches a thread to a task.
///
/// # Safety
/// `task` is NULL or the caller's structure.
pub(super) unsafe fn attach(task: *mut RtfTask, tid: pid_t) -> CallResult {
    // SAFETY: the caller's promise.
    let entry = unsafe { entry(task) }?;
    // No thread has a negative ID; the request names an ID that no thread has either.
    entry.grant.attach(u32::try_from(tid).unwrap_or(u32::MAX))??;
    entry.attached.store(true, Ordering::Relaxed);
    Ok(())
}

/// Detaches the thread of a task.
///
/// # Safety
/// `task` is NULL or the caller's structure.
pub(super) unsafe fn detach(task: *mut RtfTask) -> CallResult {
    // SAFETY: the caller's promise.
    let entry = unsafe { entry(task) }?;
    entry.grant.detach()??;
    entry.attached.store(false, Ordering::Relaxed);
    Ok(())
}

/// Releases a task.
///
/// # Safety
/// `task` is NULL or the caller's structure.
pub(super) unsafe fn release_task(task: *mut RtfTask) -> CallResult {
    // SAFETY: the caller's promise.
    let task = unsafe { task.as_mut() }.ok_or(NULL)?;
    release(task.task_id)?;
    task.task_id = 0;
    task.acc_runtime = 0;
    Ok(())
}

fn release(id: u32) -> CallResult {
    let entry = registry::remove(id)?;
    match Arc::try_unwrap(entry) {
        Ok(entry) => Ok(entry.grant.release()??),
        // Another thread is using it at this moment. Its end will find nothing more to release.
        Err(entry) => Ok(registry::client()?.release(entry.grant.spec())??),
    }
}

/// Initializes the structure of a task.
///
/// # Safety
/// `task` is NULL or the caller's structure.
pub(super) unsafe fn init(task: *mut RtfTask) {
    const NEVER: Timespec = Timespec { sec: 0, nsec: 0 };
    // SAFETY: the caller's promise.
    if let Some(task) = unsafe { task.as_mut() } {
        *task = RtfTask {
            task_id: 0,
            dmiss: 0,
            acc_runtime: 0,
            c: std::ptr::null_mut(),
            p: RtfParams::NONE,
            at: NEVER,
            dl: NEVER,
        };
    }
}

/// Returns the accepted runtime in microseconds, rounded down. Programs request whole microseconds,
/// so the result is never below the requested runtime.
///
/// # Safety
/// `task` is NULL or the caller's structure.
pub(super) unsafe fn accepted(task: *const RtfTask) -> CallResult<u64> {
    // SAFETY: the caller's promise.
    Ok(accepted_us(&unsafe { entry(task) }?.grant))
}

fn accepted_us(grant: &talea_client::Grant) -> u64 {
    grant
        .granted()
        .and_then(|granted| granted.runtime)
        .map_or(0, |runtime: Work| runtime.as_ns() / 1_000)
}

pub(super) const NULL: CallError = CallError::Caller(libc::EINVAL, "a pointer is NULL");

/// Returns the registry's entry of a task.
///
/// # Safety
/// `task` is NULL or the caller's structure.
unsafe fn entry(task: *const RtfTask) -> CallResult<Arc<Entry>> {
    // SAFETY: the caller's promise.
    registry::find(unsafe { task.as_ref() }.ok_or(NULL)?.task_id)
}

/// Borrows both structures.
///
/// # Safety
/// Both pointers are NULL or denote the caller's structures.
unsafe fn both<'a>(
    task: *mut RtfTask,
    params: *const RtfParams,
) -> CallResult<(&'a mut RtfTask, &'a RtfParams)> {
    // SAFETY: the caller's promise.
    match unsafe { (task.as_mut(), params.as_ref()) } {
        (Some(task), Some(params)) => Ok((task, params)),
        _ => Err(NULL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_client::{Field, Name, PluginAnswer};
    use talea_proto::refusal::PluginText;

    fn refusal(code: Code) -> Refusal {
        Refusal {
            code,
            field: Field::Request,
            asked: 0,
            limit: 0,
            errno: 0,
            index: 0,
            rule: None,
            answers: vec![],
        }
    }

    fn value(style: ErrorStyle, code: Code) -> c_int {
        result(style, || Err(refusal(code).into()))
    }

    #[test]
    fn r4_refusals_differ_in_one_spelling_and_are_one_value_in_the_other() {
        for (code, distinct) in [
            (Code::NotAllowed, ACL_FAIL),
            (Code::RuleBound, ACL_FAIL),
            (Code::ForeignThread, ACL_FAIL),
            (Code::NoPlugin, FAIL),
            (Code::Quota, FAIL),
            (Code::Malformed, FAIL),
        ] {
            assert_eq!(
                (value(ErrorStyle::Distinct, code), value(ErrorStyle::Plain, code)),
                (distinct, FAIL),
                "{code:?}"
            );
        }
        assert_eq!(result(ErrorStyle::Distinct, || Err(NULL)), ERROR);
        assert_eq!(result(ErrorStyle::Plain, || panic!("on purpose")), ERROR);
    }

    #[test]
    fn r4_a_request_that_rules_keep_from_every_plugin_is_a_denial() {
        let denied =
            |code| PluginVerdict::Denied { code, field: Field::Request, asked: 0, limit: 0 };
        let answer = |verdict| PluginAnswer {
            plugin: 0,
            name: Name::new("rm").expect("a name"),
            verdict,
            text: PluginText::NONE,
        };
        let mut all = refusal(Code::NoPlugin);
        all.answers = vec![answer(denied(Code::NotAllowed)), answer(denied(Code::RuleBound))];
        assert!(is_denial(&all));
        let room = talea_client::Rejection {
            reason: talea_proto::refusal::RejectionReason::NoRoom,
            field: Field::Runtime,
            cpu: None,
            asked: 1,
            limit: 0,
            fits: 0,
            witness: None,
        };
        all.answers.push(answer(PluginVerdict::No(room)));
        assert!(!is_denial(&all), "one plugin could have been had, with other parameters");
    }
}
