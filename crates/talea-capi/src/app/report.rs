//! Reports of a run as C structures.

use super::convert::RIGHTS;
use super::state::{App, wrong};
use crate::ffi::{CallError, CallResult, given, write};
use crate::layout::{TaleaAppReport, TaleaTaskReport};
use crate::message::call;
use libc::c_int;
use std::time::Duration;
use talea_runtime::{Policy, Report, ShieldReport, TaskReport};

fn ns(long: Duration) -> u64 {
    u64::try_from(long.as_nanos()).unwrap_or(u64::MAX)
}

/// Copies a text into a field. The text is truncated if necessary, and terminated by a zero.
fn field<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    let end = text.floor_char_boundary(N - 1);
    field[..end].copy_from_slice(&text.as_bytes()[..end]);
    field
}

pub(crate) fn whole(report: &Report) -> TaleaAppReport {
    let shield = report.shield.as_ref();
    let count = |of: fn(&ShieldReport) -> usize| shield.map_or(0, of) as u32;
    TaleaAppReport {
        size: 0,
        real_time: report.is_real_time.into(),
        length_ns: ns(report.length),
        refused: report.refused,
        full: report.rejected_pushes,
        empty: report.failed_pops,
        tasks: report.tasks.len() as u32,
        rights: RIGHTS.iter().position(|&rights| rights == report.rights).unwrap_or_default()
            as u32,
        rights_error: field(report.rights_error.as_deref().unwrap_or_default()),
        shielded: shield.is_some().into(),
        moved_threads: count(|shield| shield.threads as usize),
        moved_interrupts: count(|shield| shield.interrupts as usize),
        not_moved: count(|shield| shield.not_moved.len()),
        foreign_threads: count(|shield| shield.foreign_threads.len()),
        not_restored: count(|shield| shield.changed as usize),
        shield_error: field(report.shield_error.as_deref().unwrap_or_default()),
    }
}

fn of_task(task: &TaskReport) -> TaleaTaskReport {
    let mut version_jobs = [0; 64];
    version_jobs.iter_mut().zip(&task.versions).for_each(|(to, &jobs)| *to = jobs);
    TaleaTaskReport {
        size: 0,
        versions: task.versions.len() as u32,
        jobs: task.jobs,
        late: task.deadline_misses,
        longest_ns: ns(task.max_response),
        mean_ns: ns(task.mean_response),
        version_jobs,
        name: field(&task.name),
        policy: task.policy.map_or(-1, Policy::number),
        priority: task.policy.map_or(0, Policy::priority).into(),
    }
}

impl App {
    /// Calls `look` with the report of the last run that ended.
    fn last<T>(&self, look: impl FnOnce(&Report) -> CallResult<T>) -> CallResult<T> {
        self.with(|declared| match &declared.report {
            Some(report) => look(report),
            None => Err(CallError::Caller(libc::ENOENT, "the application has not run")),
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_app_report_get(app: *mut App, report: *mut TaleaAppReport) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let known = unsafe { given(app, "app is NULL") }?.last(|report| Ok(whole(report)))?;
        // SAFETY: as the header says.
        unsafe { write(report, &known) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_task_report_get(
    app: *mut App,
    task: u32,
    report: *mut TaleaTaskReport,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let app = unsafe { given(app, "app is NULL") }?;
        let known = app.last(|report| {
            let known = report.tasks.get(task as usize).map(of_task);
            known.ok_or_else(|| wrong(format!("the run had no task {task}")))
        })?;
        // SAFETY: as the header says.
        unsafe { write(report, &known) }
    })
}
