//! Loop of one dispatcher; the counterpart of the simulator's loop.
//!
//! 1. Read the key of the event count.
//! 2. Take the lock of the root.
//! 3. Read the clock.
//! 4. Step: drain the mailbox, handle the events, apply the orders.
//! 5. Compute the next wake-up time.
//! 6. Release the lock.
//! 7. Wait for a notification after the key, or for the wake-up time.
//!
//! A report that comes after step 4 has notified the event count after step 1, so the wait returns.
//! The same holds for a worker that stepped meanwhile and needs an earlier wake-up
//! ([`root_state`](crate::root_state)). The loop does not allocate.

use crate::executor::StepContext;
use crate::mailbox::Mailbox;
use crate::mechanism::Mechanism;
use crate::root_shared::{self, PriorityMap, RootShared};
use crate::root_state::{RootState, WorkerSteps};
use crate::run_clock::RunClock;
use std::io;
use std::sync::atomic::Ordering;
use talea_core::mutate;
use talea_core::{CpuSet, Monotonic, Span, Time, Work};
use talea_os::event_count::{EventCount, Woken};
use talea_os::pi_mutex::PiMutex;
use talea_os::{Tid, clock, sched};

/// Statistics of a dispatcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatcherStats {
    /// Number of steps of the dispatcher.
    pub steps: u64,
    /// Number of steps that workers made in place of the dispatcher at the end of a segment. The
    /// CPU time of these steps is the workers'.
    pub worker_completions: u64,
    /// Number of steps that workers made in place of the dispatcher at the expiry of a release
    /// timer.
    pub worker_releases: u64,
    /// Number of the dispatcher's steps that a timer caused.
    pub timer_wakeups: u64,
    /// Maximum lateness of a wake-up that a timer caused.
    pub max_lateness: Span,
    /// CPU time that the dispatcher has consumed.
    pub cpu_time: Work,
    /// Total time for which the dispatcher has waited for the lock of its root.
    pub lock_wait: Span,
    /// Maximum time for which the dispatcher has waited for the lock of its root.
    pub max_lock_wait: Span,
    /// Maximum duration of a wake-up, from the dispatcher's first read of the clock to its last.
    /// The kernel's work to wake the dispatcher and to put the dispatcher to sleep is not included.
    pub max_step: Span,
    /// Run time at which the dispatcher stopped.
    pub stopped_at: Time,
}

/// Sleeps until the run begins or is cancelled.
fn wait_for_start(clock: RunClock, mailbox: &Mailbox, shared: &RootShared) {
    loop {
        let key = mailbox.event_count.key();
        if shared.is_over.load(Ordering::Acquire) || talea_os::clock::now() >= clock.zero {
            return;
        }
        mailbox.event_count.wait(key, clock.zero);
    }
}

/// Gives the calling thread the CPU and the priority of a dispatcher.
pub(crate) fn enter(cpu: u32, priorities: PriorityMap) -> io::Result<()> {
    let tid = Tid::current();
    sched::set_affinity(tid, &CpuSet::single(cpu))?;
    root_shared::prepare_thread();
    priorities.set_dispatcher(tid)
}

/// Guard that cleans up when a dispatcher exits, by return or by panic.
///
/// Cancels the other dispatchers of the root, or all roots after a panic. Then closes the root, and
/// releases the root's workers as ordinary threads.
struct ExitGuard<'a, M: Mechanism>(&'a RootShared, &'a PiMutex<RootState<M>>);

impl<M: Mechanism> Drop for ExitGuard<'_, M> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel_all();
        }
        self.0.cancel();
        self.1.lock().executor.close();
        self.0.release_workers();
    }
}

/// Minimum wake-up latency of the calling thread: the smallest of some short sleeps.
fn min_wakeup_latency() -> Span {
    const SLEEPS: u32 = 8;
    const SLEEP: Span = Span::from_ns(100_000);
    let late = (0..SLEEPS).map(|_| {
        let due = clock::now() + SLEEP;
        clock::sleep_until(due);
        clock::now().since(due)
    });
    late.min().unwrap_or(Span::ZERO)
}

/// Sleeps until a notification or `due`; spins at the end for at most `spin`.
fn sleep(event_count: &EventCount, key: u32, due: Monotonic, spin: Span) -> Woken {
    if spin.is_zero() || mutate!("exec-spin", due == Monotonic::NEVER, due <= Monotonic::NEVER) {
        return event_count.wait(key, due);
    }
    let now = clock::now();
    // At least half of the time belongs to other threads.
    let half = due.saturating_since(now).as_ns() / 2;
    let early = Span::from_ns(half.min(spin.as_ns()));
    if event_count.wait(key, due.saturating_sub(early)) == Woken::Notified {
        return Woken::Notified;
    }
    while clock::now() < due {
        if event_count.key() != key {
            return Woken::Notified;
        }
        std::hint::spin_loop();
    }
    Woken::TimedOut
}

/// Runs the dispatcher of CPU `cpu` from the start of the run to its end.
pub(crate) fn run<M: Mechanism>(
    cpu: usize,
    shared: &RootShared,
    state: &PiMutex<RootState<M>>,
    clock: RunClock,
    spin: Span,
) -> Result<DispatcherStats, M::Error> {
    let _guard = ExitGuard(shared, state);
    let mailbox = &shared.cpus[cpu].mailbox;
    let mut stats = DispatcherStats::default();
    state.lock().executor.calibrate_latency(cpu, min_wakeup_latency());
    let before = clock::thread_cpu_time();
    wait_for_start(clock, mailbox, shared);
    let mut due = Time::ZERO;
    let mut woken = Woken::TimedOut;
    loop {
        let key = mailbox.event_count.key();
        let wakes = clock.now();
        if shared.is_over.load(Ordering::Acquire) || wakes >= clock.until {
            stats.stopped_at = wakes.min(clock.until);
            break;
        }
        stats.steps += 1;
        if woken == Woken::TimedOut {
            stats.timer_wakeups += 1;
            stats.max_lateness = stats.max_lateness.max(wakes.since(due));
        }
        {
            let mut state = state.lock();
            // Read under the lock, so that the time of the engine never goes backwards.
            let now = clock.now();
            let waited = now.since(wakes);
            stats.lock_wait += waited;
            stats.max_lock_wait = stats.max_lock_wait.max(waited);
            if woken == Woken::TimedOut {
                state.executor.record_wakeup(cpu, due, wakes);
            }
            let context = StepContext { cpu, worker: None };
            if !state.step(context, None, now, shared).inspect_err(|_| shared.cancel_all())? {
                stats.stopped_at = now.min(clock.until);
                break;
            }
            let notify = |other: usize| shared.cpus[other].mailbox.event_count.notify();
            let done = clock.now();
            stats.max_step = stats.max_step.max(done.since(wakes));
            due = state.executor.next_wakeup(cpu, done, notify).min(clock.until);
        }
        woken = sleep(&mailbox.event_count, key, clock.to_monotonic(due), spin);
    }
    stats.cpu_time = clock::thread_cpu_time().checked_sub(before).unwrap_or(Work::ZERO);
    let mut state = state.lock();
    // A worker may have stepped since.
    let end = clock.now().min(clock.until);
    stats.stopped_at = stats.stopped_at.max(state.close(end)?.min(clock.until));
    let WorkerSteps { completions, releases } = std::mem::take(&mut state.steps[cpu]);
    (stats.worker_completions, stats.worker_releases) = (completions, releases);
    Ok(stats)
}
