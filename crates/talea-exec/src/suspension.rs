//! Suspensions of unknown length: the body of a job waits for a device without its CPU.
//!
//! Model: the worker itself waits, in a function of the caller. It reports the start and the end of
//! the wait by the mailbox of its CPU, as it reports the end of a segment. In between the job is
//! self-suspended for the engine, so another job gets the CPU. After the end the worker continues
//! when the engine dispatches its job again. A suspension of known length is an action of a job
//! program instead.
//!
//! The states and invariants are in `suspension_state.rs`.
//!
//! During the wait the worker has a priority above all workers. Otherwise a running worker of a
//! higher level would delay the end of the wait, although the job that waits may be more urgent.
//! Without priorities that the run controls, the kernel decides when the worker notices the end.

use crate::root_shared::RootShared;
use crate::worker_slot::WorkerSlot;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use talea_core::Monotonic;
use talea_core::engine::TaskId;

thread_local! {
    /// Root and task of a worker whose job may suspend itself.
    static WORKER: RefCell<Option<(Arc<RootShared>, TaskId)>> = const { RefCell::new(None) };
}

/// Runs the worker of `task`, whose jobs may suspend themselves in `work`.
pub(crate) fn run_as<T>(shared: &Arc<RootShared>, task: TaskId, work: impl FnOnce() -> T) -> T {
    struct Left;
    impl Drop for Left {
        fn drop(&mut self) {
            WORKER.take();
        }
    }
    WORKER.set(Some((Arc::clone(shared), task)));
    let _left = Left;
    work()
}

/// Suspends the job of the calling thread while `wait` runs. The worker of the job waits in `wait`,
/// and other jobs have the CPU. The job continues when the engine dispatches it again.
///
/// `wait` should only wait, in a system call: what it computes runs above all jobs, where the run
/// has real-time priorities. A signal may interrupt its system calls, as in every job: `wait`
/// repeats a call that fails with `EINTR`. `wait` also runs to its end if it panics or if the run
/// ends meanwhile; a run waits for it as for a job.
///
/// In a thread that runs no job of an engine, and within another suspension, the function only
/// calls `wait`.
pub fn suspend_job<T>(wait: impl FnOnce() -> T) -> T {
    let Some((shared, task)) = WORKER.try_with(RefCell::take).ok().flatten() else {
        return wait();
    };
    let suspended = Suspended { shared, task };
    if !suspended.slot().suspension.is_none() {
        // The run is over.
        return wait();
    }
    suspended.slot().suspension.begin();
    suspended.report();
    let _resumption = Resumption(&suspended);
    wait()
}

/// A worker within [`suspend_job`]. Dropping the value permits another suspension.
struct Suspended {
    shared: Arc<RootShared>,
    task: TaskId,
}

impl Suspended {
    fn slot(&self) -> &WorkerSlot {
        &self.shared.slots[self.task.0 as usize]
    }

    fn report(&self) {
        let cpu = self.slot().cpu.load(Ordering::Acquire) as usize;
        self.shared.cpus[cpu].mailbox.post_completion(self.task, &self.shared.slots);
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        WORKER.set(Some((Arc::clone(&self.shared), self.task)));
    }
}

/// Guard that ends a suspension, also if the wait panics.
struct Resumption<'a>(&'a Suspended);

impl Drop for Resumption<'_> {
    fn drop(&mut self) {
        let slot = self.0.slot();
        if slot.suspension.end() {
            self.0.report();
        }
        let key = slot.taken.load(Ordering::Relaxed);
        // No timer: the job is unfinished.
        slot.wait_until(key, Monotonic::NEVER);
        // The notification of the end is left to the wait for the next job.
        if !self.0.shared.is_over.load(Ordering::Acquire) {
            slot.taken.store(key.wrapping_add(1), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::Batch;
    use crate::suspension_state::WorkerReport;
    use talea_core::CpuSet;

    const TASK: TaskId = TaskId(0);

    fn shared() -> Arc<RootShared> {
        Arc::new(RootShared::new(&[0], 1, false, &CpuSet::single(0)))
    }

    /// Reads the mailbox as a step does: the number of reports, and the meaning of the last one.
    fn read(shared: &RootShared, was_suspended: bool) -> (usize, WorkerReport) {
        let mut batch = Batch::new(1);
        shared.cpus[0].mailbox.drain(&shared.slots, &mut batch);
        (batch.completed.len(), shared.slots[0].suspension.read(was_suspended))
    }

    fn dispatch(shared: &RootShared) {
        shared.slots[0].notify();
    }

    #[test]
    fn a_suspension_is_reported_at_its_start_and_at_its_end() {
        let shared = shared();
        let waited = run_as(&shared, TASK, || {
            suspend_job(|| {
                assert_eq!(read(&shared, false), (1, WorkerReport::Suspended));
                // Before the wait ends, so that the test needs no second thread.
                dispatch(&shared);
                7
            })
        });
        assert_eq!(waited, 7);
        assert_eq!(read(&shared, true), (1, WorkerReport::Resumed));
        assert_eq!(read(&shared, false), (0, WorkerReport::Ended));
        assert_eq!(shared.slots[0].taken.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_wait_that_ends_before_its_start_is_read_is_reported_once() {
        let shared = shared();
        run_as(&shared, TASK, || suspend_job(|| dispatch(&shared)));
        assert_eq!(read(&shared, false), (1, WorkerReport::Continued));
        assert!(shared.slots[0].suspension.is_none());
    }

    #[test]
    fn a_job_that_outlives_its_run_reports_nothing_more() {
        let shared = shared();
        run_as(&shared, TASK, || {
            suspend_job(|| {
                shared.is_over.store(true, Ordering::Release);
                shared.slots[0].notify();
            });
            // The mailbox has the first report, which no step has read.
            suspend_job(|| {});
        });
        assert_eq!(read(&shared, false).0, 1);
        assert_eq!(shared.slots[0].taken.load(Ordering::Relaxed), 0, "the end is yet to be taken");
    }

    #[test]
    fn a_panic_ends_the_wait_and_other_threads_only_wait() {
        let shared = shared();
        let wait = || -> () {
            assert_eq!(suspend_job(|| 3), 3, "a suspension within another one");
            dispatch(&shared);
            panic!("the device fails");
        };
        let run = || run_as(&shared, TASK, || suspend_job(wait));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
        assert_eq!(read(&shared, false), (1, WorkerReport::Continued));
        assert_eq!(suspend_job(|| 5), 5, "no worker");
        assert_eq!(read(&shared, false).0, 0);
    }
}
