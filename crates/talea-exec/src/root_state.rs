//! State of a root behind its lock, and the threads that may step it.
//!
//! A *step* delivers all pending events of one instant to the engine and applies its orders.
//!
//! | thread | function | when | lock |
//! | --- | --- | --- | --- |
//! | dispatcher of a CPU | `dispatcher::run` | a timer or a notification woke it | waits for it |
//! | worker whose segment ended | `step_on_completion` | at the end of the segment | tries it (S3) |
//! | worker with an expired timer | `step_on_release` | at the release of its job | waits for it |
//!
//! A wake-up of the dispatcher costs several times as much as a step. A worker whose segment ended
//! therefore makes the step itself, and the dispatcher sleeps on. The worker notifies a dispatcher
//! only where that has to wake earlier than it planned. A job then costs one wake-up of the
//! dispatcher, the one for its release, or none where its worker has a [release
//! timer](crate::executor).
//!
//! | outcome of `step_on_completion` | what the worker does next |
//! | --- | --- |
//! | lock free, no accounting, run not over | it has stepped, and sleeps until its timer or a wake-up |
//! | otherwise | it posts its completion to the mailbox of its CPU, and the dispatcher steps |
//!
//! Invariants:
//!
//! - S1. Only the lock holder uses the engine, the mechanism and the logs. The lock inherits
//!   priority: a dispatcher that waits for it lends its priority to the worker that holds it.
//! - S2. No thread is stopped while it holds the lock ([`defer_stop`]). A thread stopped behind its
//!   gate with the lock would never be resumed.
//! - S3. A worker never waits for the lock at the end of a segment. The dispatcher of another CPU
//!   may hold it in order to stop this very worker, which would then have the lock and no CPU.
//! - S4. A worker steps only where the root needs no CPU accounting
//!   ([`Executor::needs_accounting`]), because the thread that enforces a budget must know when to
//!   check it.
//! - S5. System calls that could let another worker preempt the stepping one are
//!   [`Deferred`](crate::mechanism::Deferred) until the lock is released; then late dispatchers are
//!   notified.
//! - S6. Workers step only where the run has real-time priorities, because S1 relies on priority
//!   inheritance. `RootThreads::new` has the exact conditions.
//!
//! *Panics.* The engine calls policies and version selectors of the application. If one of them
//! panics, the state of the engine is unknown: that step closes the root, cancels the run, and
//! keeps the message. The run then fails with it. The panic hook of the program runs before that,
//! with the lock held: a hook that waits for a stopped worker waits forever.

use crate::executor::{Executor, StepContext};
use crate::mailbox::Batch;
use crate::mechanism::Mechanism;
use crate::panics;
use crate::record::{Log, RecordEntry};
use crate::root_shared::RootShared;
use crate::run_clock::RunClock;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use talea_core::engine::TaskId;
use talea_core::mutate;
use talea_core::{Monotonic, Time};
use talea_os::pi_mutex::{PiMutex, PiMutexGuard};
use talea_os::signal_stop::defer_stop;

/// Executor of a root with what its steps need. One lock protects everything.
#[derive(Debug)]
pub(crate) struct RootState<M: Mechanism> {
    pub(crate) executor: Executor<M>,
    /// `logs[c]`: log of the dispatcher of CPU `c`.
    logs: Vec<Log>,
    /// Events that a step has read. Empty between steps.
    batch: Batch,
    /// Kernel error in a step by a worker.
    kernel_error: Option<M::Error>,
    /// Message of a panic in a step.
    panic_message: Option<String>,
    /// `steps[c]`: numbers of steps that workers made in place of the dispatcher of CPU `c`.
    pub(crate) steps: Vec<WorkerSteps>,
}

/// Numbers of steps that workers have made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkerSteps {
    /// Number of steps at the end of a segment.
    pub(crate) completions: u64,
    /// Number of steps at the expiry of a release timer.
    pub(crate) releases: u64,
}

impl<M: Mechanism> RootState<M> {
    /// Creates the state with `room` log entries for each CPU.
    pub(crate) fn new(
        executor: Executor<M>,
        cpus: usize,
        tasks: usize,
        room: usize,
    ) -> RootState<M> {
        let logs = (0..cpus).map(|_| Log::new(room)).collect();
        let (kernel_error, panic_message) = (None, None);
        RootState {
            executor,
            logs,
            batch: Batch::new(tasks),
            kernel_error,
            panic_message,
            steps: vec![WorkerSteps::default(); cpus],
        }
    }

    /// Makes a step of the engine with the contents of the mailbox of `context.cpu`. If `ended` is
    /// a task, the step also delivers the completion of its segment. Returns `false` if this step
    /// or an earlier one panicked.
    ///
    /// # Errors
    /// Those of the mechanism.
    pub(crate) fn step(
        &mut self,
        context: StepContext,
        ended: Option<TaskId>,
        now: Time,
        shared: &RootShared,
    ) -> Result<bool, M::Error> {
        shared.cpus[context.cpu].mailbox.drain(&shared.slots, &mut self.batch);
        self.batch.completed.extend(ended);
        let (executor, batch, log) = (&mut self.executor, &self.batch, &mut self.logs[context.cpu]);
        let mut step = || executor.step(context, now, batch, log);
        let mut step = || mutate!("rows-cost-step", step(), talea_os::clock::slowed(3, &mut step));
        let step = || {
            mutate!(
                "rows-cost-tasks",
                step(),
                talea_os::clock::slowed(shared.slots.len() as u64, step)
            )
        };
        let outcome = catch_unwind(AssertUnwindSafe(step));
        self.batch.clear();
        let outcome = match outcome {
            Ok(outcome) => outcome.map(|()| self.panic_message.is_none()),
            Err(panic) => {
                mutate!(
                    "exec-root-state-falls",
                    self.panic_message.get_or_insert(panics::message(panic)),
                    std::panic::resume_unwind(panic)
                );
                self.executor.close();
                mutate!("exec-root-state-alone", shared.cancel_all());

                return Ok(false);
            }
        };
        shared.tree_in_force.store(self.executor.tree_in_force().number, Ordering::Release);
        if self.executor.is_done() {
            shared.cancel();
        }
        outcome
    }

    /// Returns the message of a panic in a step: of the engine, a policy, or a version selector.
    pub(crate) fn panic_message(&self) -> Option<&str> {
        self.panic_message.as_deref()
    }

    /// Closes the root at `end`: later steps change nothing. Returns the time of the last step.
    pub(crate) fn close(&mut self, end: Time) -> Result<Time, M::Error> {
        self.executor.finish_run(end, &mut self.logs[0]);
        self.executor.close();
        self.kernel_error.take().map_or(Ok(self.executor.now()), Err)
    }

    /// Exchanges the entries of the log of each CPU `c` with the empty list `lists[c]`.
    pub(crate) fn exchange_logs(&mut self, lists: &mut [Vec<RecordEntry>]) {
        for (log, list) in self.logs.iter_mut().zip(lists) {
            *list = log.exchange(std::mem::take(list));
        }
    }

    /// Returns the logs. Called when the run is over.
    pub(crate) fn take_logs(&mut self) -> Vec<Log> {
        std::mem::take(&mut self.logs)
    }
}

/// Handle with which a worker steps its root.
#[derive(Debug)]
pub(crate) struct StepHandle<M: Mechanism> {
    state: Arc<PiMutex<RootState<M>>>,
    clock: RunClock,
}

impl<M: Mechanism> StepHandle<M> {
    pub(crate) fn new(state: Arc<PiMutex<RootState<M>>>, clock: RunClock) -> StepHandle<M> {
        StepHandle { state, clock }
    }

    /// Steps the root at the end of a segment of the calling worker. Returns the time until which
    /// the worker sleeps. Returns `None` if the dispatcher has to step.
    pub(crate) fn step_on_completion(
        &self,
        task: TaskId,
        shared: &RootShared,
    ) -> Option<Monotonic> {
        defer_stop(|| {
            let state = self.state.try_lock()?;
            let now = self.clock.now();
            // A completion after the end does not belong to the run.
            let is_over = shared.is_over.load(Ordering::Acquire) || now >= self.clock.until;
            (!is_over
                && mutate!(
                    "exec-root-state-letter",
                    !state.executor.needs_accounting(),
                    state.executor.needs_accounting()
                ))
            .then(|| self.step(state, now, shared, task, Some(task)))
        })
    }

    /// Steps the root at the expiry of the release timer of the calling worker. Returns the time
    /// until which the worker sleeps.
    pub(crate) fn step_on_release(&self, task: TaskId, shared: &RootShared) -> Monotonic {
        defer_stop(|| {
            let woken = self.clock.now();
            let mut state = self.state.lock();
            let now = self.clock.now();
            let is_over = shared.is_over.load(Ordering::Acquire) || now >= self.clock.until;
            if is_over || !state.executor.on_timer_expired(task, woken) {
                return Monotonic::NEVER;
            }
            self.step(state, now, shared, task, None)
        })
    }

    /// Makes a step by the worker of `task`, and returns the time until which that worker sleeps.
    fn step(
        &self,
        mut state: PiMutexGuard<'_, RootState<M>>,
        now: Time,
        shared: &RootShared,
        task: TaskId,
        ended: Option<TaskId>,
    ) -> Monotonic {
        // It cannot be moved to another CPU before it has stepped.
        let cpu = shared.slots[task.0 as usize].cpu.load(Ordering::Acquire) as usize;
        let steps = &mut state.steps[cpu];
        *(if ended.is_some() { &mut steps.completions } else { &mut steps.releases }) += 1;
        let context = StepContext { cpu, worker: Some(task) };
        let timeout = match state.step(context, ended, now, shared) {
            Ok(true) => state.executor.arm_release_timer(task),
            Ok(false) => return Monotonic::NEVER,
            Err(error) => Err(error),
        };
        let timeout = match timeout {
            Ok(timeout) => timeout,
            Err(error) => {
                state.kernel_error = Some(error);
                shared.cancel_all();
                return Monotonic::NEVER;
            }
        };
        let mut late_dispatchers = 0_u64;
        state.executor.notify_late_dispatchers(cpu, |other| late_dispatchers |= 1 << other);
        let deferred = state.executor.take_deferred();
        drop(state);
        deferred.run(shared);
        for (_, other) in shared.cpus.iter().enumerate().filter(|&(other, _)| {
            late_dispatchers >> other & 1 == mutate!("exec-root-state-ring", 1, 2)
        }) {
            other.mailbox.event_count.notify();
        }
        timeout.map_or(Monotonic::NEVER, |at| self.clock.to_monotonic(at))
    }
}

#[cfg(test)]
mod tests;
