//! State of a suspension within a segment, shared by a worker and the steps of its root.
//!
//! | state of a slot | meaning |
//! | --- | --- |
//! | `NONE` | the job is not suspended |
//! | `REPORTED` | the worker has reported the start, and no step has read that |
//! | `SUSPENDED` | a step has read the start |
//! | `RESUMED` | the wait is over, and no step has read that |
//!
//! | from | to | thread | then |
//! | --- | --- | --- | --- |
//! | `NONE` | `REPORTED` | worker | reports, and waits for the device |
//! | `REPORTED` | `SUSPENDED` | step | the engine suspends the job |
//! | `SUSPENDED` | `RESUMED` | worker | reports again, and waits for a dispatch |
//! | `REPORTED` | `RESUMED` | worker | waits for a dispatch |
//! | `RESUMED` | `NONE` | step | the engine resumes the job, if it has suspended the job |
//!
//! Invariants:
//!
//! - U1. The mailbox has a report of a suspension only in the states `REPORTED` and `RESUMED`, and
//!   one at most. So a worker is in the stack of reports at most once.
//! - U2. A worker reports the end of a segment only in state `NONE`. Another state means that the
//!   run has ended meanwhile, and no step reads the report.

use std::sync::atomic::{AtomicU8, Ordering};
use talea_core::mutate;

const NONE: u8 = 0;
const REPORTED: u8 = 1;
const SUSPENDED: u8 = 2;
const RESUMED: u8 = 3;

/// Report of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerReport {
    /// Its segment has ended.
    Ended,
    /// Its job waits for a device, without the CPU.
    Suspended,
    /// Its wait for a device is over.
    Resumed,
    /// The wait has ended before any step has read its start.
    Continued,
}

/// State of the suspension of one worker.
#[derive(Debug, Default)]
pub(crate) struct SuspensionState(AtomicU8);

impl SuspensionState {
    /// Whether the job is not suspended.
    pub(crate) fn is_none(&self) -> bool {
        self.0.load(Ordering::Acquire) == NONE
    }

    /// Begins a suspension. The worker must report it afterwards.
    pub(crate) fn begin(&self) {
        self.0.store(REPORTED, Ordering::Release);
    }

    /// Ends a suspension. Returns whether the worker must report the end.
    pub(crate) fn end(&self) -> bool {
        let read = Ordering::Acquire;
        if self.0.compare_exchange(REPORTED, RESUMED, Ordering::AcqRel, read).is_ok() {
            return false;
        }
        self.0.store(RESUMED, Ordering::Release);
        mutate!("exec-suspension-end", true, false)
    }

    /// Returns what a report of the worker means. `was_suspended` says whether a step has read the
    /// start of the suspension.
    pub(crate) fn read(&self, was_suspended: bool) -> WorkerReport {
        let read = Ordering::Acquire;
        if self.0.compare_exchange(REPORTED, SUSPENDED, Ordering::AcqRel, read).is_ok() {
            return WorkerReport::Suspended;
        }
        if self.0.compare_exchange(RESUMED, NONE, Ordering::AcqRel, read).is_err() {
            return WorkerReport::Ended;
        }
        if was_suspended { WorkerReport::Resumed } else { WorkerReport::Continued }
    }
}
