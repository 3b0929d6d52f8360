//! Worker: a thread that runs the jobs of one task, segment by segment.

use crate::mechanism::{Mechanism, WorkerThread};
use crate::root_shared::{self, PriorityMap, RootShared};
use crate::root_state::StepHandle;
use crate::suspension;
use crate::work::{DeviceWait, Job, JobBody};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use talea_core::engine::TaskId;
use talea_core::{CpuSet, Monotonic, Span, mutate};
use talea_os::Tid;
use talea_os::event_count::Woken;
use talea_os::thread_cpu_clock::ThreadCpuClock;
use talea_os::{clock, sched};

/// Maximum time that a worker sleeps in a wait for a device before it checks whether the run is
/// over.
const MAX_DEVICE_SLEEP: Span = Span::from_ns(50_000_000);

/// Worker between its shared state and its job body.
#[derive(Debug)]
pub(crate) struct Worker<'a, M: Mechanism> {
    task: TaskId,
    shared: &'a RootShared,
    /// Handle for steps by this worker, if the worker may step.
    step_handle: &'a OnceLock<StepHandle<M>>,
    is_busy: bool,
}

impl<'a, M: Mechanism> Worker<'a, M> {
    pub(crate) fn new(
        task: TaskId,
        shared: &'a RootShared,
        step_handle: &'a OnceLock<StepHandle<M>>,
    ) -> Worker<'a, M> {
        Worker { task, shared, step_handle, is_busy: false }
    }

    /// Reports the end of the current segment, if there is one. Then waits for the next segment of
    /// this job or of another job.
    ///
    /// Returns `None` when the run is over.
    pub(crate) fn wait_for_job(&mut self) -> Option<Job> {
        let slot = &self.shared.slots[self.task.0 as usize];
        let step_handle = self.step_handle.get();
        let mut sleep_until = Monotonic::NEVER;
        // In another state the run has ended, and the mailbox still has a report of this worker.
        if std::mem::take(&mut self.is_busy) && slot.suspension.is_none() {
            let timeout = step_handle
                .and_then(|step_handle| step_handle.step_on_completion(self.task, self.shared));
            if timeout.is_none() {
                let cpu = slot.cpu.load(Ordering::Acquire) as usize;
                // The dispatcher of the same CPU runs before this returns.
                self.shared.cpus[cpu].mailbox.post_completion(self.task, &self.shared.slots);
            }
            sleep_until = timeout.unwrap_or(Monotonic::NEVER);
        }
        // A worker with a timer has a step handle. If its own step assigns its job, its event count
        // is incremented there.
        let key = slot.taken.load(Ordering::Relaxed);
        while let (Woken::TimedOut, Some(step_handle)) =
            (slot.wait_until(key, sleep_until), step_handle)
        {
            sleep_until = step_handle.step_on_release(self.task, self.shared);
        }
        slot.taken.store(key.wrapping_add(1), Ordering::Relaxed);
        if self.shared.is_over.load(Ordering::Acquire) {
            return None;
        }
        self.is_busy = true;
        Some(slot.job())
    }
}

/// Guard that cancels the run if its worker panics, because the other threads would wait for the
/// worker.
struct PanicGuard<'a>(&'a RootShared);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel_all();
        }
    }
}

/// Waits for a device, and keeps the CPU meanwhile. The end of the run ends the wait within
/// [`MAX_DEVICE_SLEEP`].
fn wait_for_device(wait: DeviceWait, shared: &RootShared) {
    let clock = shared.clock.get().expect("a job runs after the start");
    let until = clock.to_monotonic(wait.until);
    while clock::now() < until && !shared.is_over.load(Ordering::Relaxed) {
        if mutate!("exec-occupation-spins", wait.is_spinning, !wait.is_spinning) {
            std::hint::spin_loop();
        } else {
            clock::sleep_until(until.min(clock::now() + MAX_DEVICE_SLEEP));
        }
    }
}

/// Runs a worker. Calls `report` once with the worker's identity, when the worker has its priority
/// and is about to wait.
pub(crate) fn run<M: Mechanism>(
    task: TaskId,
    shared: &Arc<RootShared>,
    step_handle: &OnceLock<StepHandle<M>>,
    priorities: PriorityMap,
    mut body: JobBody<'_>,
    report: impl FnOnce(io::Result<WorkerThread>),
) {
    let _guard = PanicGuard(shared);
    let enter = || {
        let tid = Tid::current();
        sched::set_affinity(tid, &CpuSet::single(shared.cpus[0].number))?;
        priorities.set_runnable(tid, 0)?;
        root_shared::prepare_thread();
        Ok(WorkerThread { tid, clock: ThreadCpuClock::current()? })
    };
    let identity = enter();
    let is_in = identity.is_ok();
    let slot = &shared.slots[task.0 as usize];
    let mut worker = Worker::new(task, shared, step_handle);
    let work = || {
        report(identity);
        while is_in && let Some(job) = worker.wait_for_job() {
            match job.wait {
                Some(wait) => wait_for_device(wait, shared),
                None => body(&job, &shared.is_over),
            }
        }
    };
    // Fails only if the signal mask cannot be changed.
    let work = || suspension::run_as(shared, task, work);
    slot.stop_gate.run_stoppable(work).expect("SIGURG can be unblocked");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_clock::RunClock;
    use talea_core::Time;

    #[test]
    fn y15_a_wait_for_a_device_ends_on_time_and_only_polling_consumes_cpu_time() {
        let shared = RootShared::new(&[0], 1, false, &CpuSet::single(0));
        let zero = clock::now();
        shared.clock.set(RunClock { zero, until: Time::NEVER }).expect("set once");
        let wait = |is_spinning| {
            let length = Span::from_ns(60_000_000);
            let until = clock::now() + length;
            let before = clock::thread_cpu_time();
            let wait = DeviceWait { until: until.run_time(zero), is_spinning };
            wait_for_device(wait, &shared);
            assert!(clock::now() >= until);
            clock::thread_cpu_time().checked_sub(before).expect("a monotonic clock").as_ns()
        };
        let (asleep, polling) = (wait(false), wait(true));
        assert!(polling > 4 * asleep, "{polling} ns polling, {asleep} ns asleep");
    }
}
