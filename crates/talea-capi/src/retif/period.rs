//! Periodic tasks: `start` and `wait_period`, and the unit of a period.
//!
//! The structure contains the next activation, so the periodic loop needs no lookup and no lock.
//! Activations are nominal: start + k·T. Late jobs follow one right after the other until the task
//! has caught up.

use super::layout::{RtfTask, Timespec};
use std::sync::LazyLock;
use std::time::Duration;
use talea_client::Periodic;
use talea_core::Monotonic;

/// Nanoseconds in a unit of the period, in this module only. The unit of the ReTiF paper and of
/// ReTiF's own `retif.h` is the microsecond, but its `rtf_task_start` and `rtf_task_wait_period`
/// take milliseconds. With `RETIF_PERIOD_MS` set to 1, a program that relies on milliseconds does
/// not run a thousand times too fast.
static UNIT_NS: LazyLock<u64> = LazyLock::new(|| {
    let milliseconds = std::env::var_os("RETIF_PERIOD_MS").is_some_and(|value| value == "1");
    if milliseconds { 1_000_000 } else { 1_000 }
});

/// Starts the periods of a task.
///
/// # Safety
/// `task` is NULL or the caller's structure.
pub(super) unsafe fn start(task: *mut RtfTask) {
    // SAFETY: the caller's promise.
    let Some(task) = (unsafe { task.as_mut() }) else { return };
    let Some(period) = length(task.p.period) else { return };
    let start = Periodic::start(period).started();
    task.at = later(start, period);
    task.dl = later(start, deadline(task).unwrap_or(period));
}

/// Waits for the next period of a task, and counts a deadline miss.
///
/// # Safety
/// `task` is NULL or the caller's structure.
pub(super) unsafe fn wait(task: *mut RtfTask) {
    // SAFETY: the caller's promise.
    let Some(task) = (unsafe { task.as_mut() }) else { return };
    let Some(period) = length(task.p.period) else { return };
    if task.at.sec == 0 && task.at.nsec == 0 {
        // Never started: the first period begins here.
        // SAFETY: the same structure.
        unsafe { start(task) };
    }
    let release = time(task.at);
    let before = Monotonic::from_ns(release.as_ns().saturating_sub(ns(period)));
    let activation = Periodic::start_at(before, period).wait_period();
    if activation.began > time(task.dl) {
        task.dmiss = task.dmiss.saturating_add(1);
    }
    task.at = later(release, period);
    task.dl = later(release, deadline(task).unwrap_or(period));
}

fn deadline(task: &RtfTask) -> Option<Duration> {
    length(task.p.deadline)
}

/// Converts a declared time, limited to what the clock can count. Returns `None` if the time is not
/// declared.
fn length(value: u64) -> Option<Duration> {
    (value != 0).then(|| Duration::from_nanos(value.saturating_mul(*UNIT_NS).min(i64::MAX as u64)))
}

fn ns(length: Duration) -> u64 {
    length.as_nanos() as u64
}

fn time(at: Timespec) -> Monotonic {
    // What a program may have written there itself must not stop it with a panic.
    let (sec, nsec) = (at.sec.max(0) as u64, at.nsec.max(0) as u64);
    Monotonic::from_ns(sec.saturating_mul(1_000_000_000).saturating_add(nsec))
}

fn later(from: Monotonic, by: Duration) -> Timespec {
    let ns = from.as_ns().saturating_add(ns(by));
    Timespec { sec: (ns / 1_000_000_000) as i64, nsec: (ns % 1_000_000_000) as i64 }
}
