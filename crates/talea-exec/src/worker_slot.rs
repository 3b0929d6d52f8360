//! Job assignment of a worker, without a lock.

use crate::suspension_state::SuspensionState;
use crate::work::{DeviceWait, Job};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use talea_core::{Monotonic, Time, Work};
use talea_os::event_count::{EventCount, Woken};
use talea_os::signal_stop::StopGate;

/// Job assignment of a worker. Each assignment has a cache line of its own, because the
/// neighbouring assignments belong to other CPUs.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct WorkerSlot {
    /// Event count of the worker, notified once for each job and at the end of the run.
    job_ready: EventCount,
    /// Number of these notifications that the worker has taken. Only the worker uses it.
    pub(crate) taken: AtomicU32,
    number: AtomicU64,
    version: AtomicU32,
    cost: AtomicU64,
    /// End of a wait for a device; [`Time::NEVER`] if the job computes.
    wait_until: AtomicU64,
    is_spinning: AtomicBool,
    /// CPU on which the worker was last dispatched. The worker reports to the dispatcher of that
    /// CPU.
    pub(crate) cpu: AtomicU32,
    /// Next element in the mailbox that contains this assignment.
    pub(crate) next: AtomicU32,
    /// Number of activations of the task from outside that no step has read.
    pub(crate) activations: AtomicU32,
    pub(crate) stop_gate: StopGate,
    pub(crate) suspension: SuspensionState,
    /// Whether the program was idle and got the CPU.
    pub(crate) has_woken: AtomicBool,
}

impl WorkerSlot {
    /// Assigns a job to a worker that has none.
    ///
    /// An awake worker takes the job. The caller has to [wake](WorkerSlot::wake) a sleeping worker.
    pub(crate) fn assign(&self, job: Job) {
        self.number.store(job.number, Ordering::Relaxed);
        self.version.store(job.version, Ordering::Relaxed);
        self.cost.store(job.cost.as_ns(), Ordering::Relaxed);
        let until = job.wait.map_or(Time::NEVER, |wait| wait.until);
        self.wait_until.store(until.as_ns(), Ordering::Relaxed);
        self.is_spinning.store(job.wait.is_some_and(|wait| wait.is_spinning), Ordering::Relaxed);
        // Publishes the stores above.
        self.job_ready.increment();
    }

    /// Wakes a worker to which a job was assigned.
    pub(crate) fn wake(&self) {
        self.job_ready.wake();
    }

    /// Notifies the worker without a job: at the end of the run, or if the worker takes no orders.
    pub(crate) fn notify(&self) {
        self.job_ready.notify();
    }

    /// Waits until the event count differs from `key` or `until` has passed.
    pub(crate) fn wait_until(&self, key: u32, until: Monotonic) -> Woken {
        self.job_ready.wait(key, until)
    }

    /// Returns the last assigned job.
    pub(crate) fn job(&self) -> Job {
        let until = Time::from_ns(self.wait_until.load(Ordering::Relaxed));
        let is_spinning = self.is_spinning.load(Ordering::Relaxed);
        Job {
            number: self.number.load(Ordering::Relaxed),
            version: self.version.load(Ordering::Relaxed),
            cost: Work::from_ns(self.cost.load(Ordering::Relaxed)),
            wait: (until != Time::NEVER).then_some(DeviceWait { until, is_spinning }),
        }
    }
}
