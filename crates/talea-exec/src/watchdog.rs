//! Watchdog: the thread that ends an overdue run.
//!
//! Model: a thread above everything that a run orders sleeps until the run is overdue. It then
//! cancels the run and makes ordinary threads of all its threads, so that the system stays usable;
//! threads that exit then do so in order. A job that still does not return cannot be ended except
//! with the whole process.

use crate::programs::ProgramControl;
use crate::root_shared::{PriorityMap, RootShared};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use talea_core::{Monotonic, Span};
use talea_os::Tid;
use talea_os::event_count::{EventCount, Woken};
use talea_os::pi_mutex::PiMutex;

/// Grace period after the end of a run.
///
/// The period is longer than any stall. Exiting threads are ordinary threads. With real-time
/// threads of other programs on the CPUs, one was observed to wait for 0.95 seconds until the 50 ms
/// per second that the kernel leaves to ordinary threads.
const GRACE_PERIOD: Span = Span::from_ns(2_000_000_000);

#[derive(Debug)]
pub(crate) struct Watchdog {
    event_count: EventCount,
    cancelled: AtomicBool,
    fired: AtomicBool,
    /// Time at which the run ended, if the run ended before its planned end.
    ended_at_ns: AtomicU64,
    /// Dispatchers of the run, until they are joined.
    pub(crate) dispatchers: PiMutex<Vec<Tid>>,
    /// Thread of the watchdog, once it is ready.
    pub(crate) own_tid: PiMutex<Vec<Tid>>,
}

impl Watchdog {
    pub(crate) fn new() -> Watchdog {
        let dispatchers = PiMutex::new(Vec::new());
        Watchdog {
            event_count: EventCount::new(),
            cancelled: AtomicBool::new(false),
            fired: AtomicBool::new(false),
            ended_at_ns: AtomicU64::new(u64::MAX),
            dispatchers,
            own_tid: PiMutex::new(Vec::new()),
        }
    }

    /// Cancels the watchdog. Called when all threads have ended.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.event_count.notify();
    }

    /// Notes that the run has ended, planned or not. The grace period starts now.
    pub(crate) fn run_ended(&self, now: Monotonic) {
        self.ended_at_ns.store(now.as_ns(), Ordering::Release);
        self.event_count.notify();
    }

    /// Sleeps until `grace` after the end, unless the watchdog is cancelled. Returns whether it was
    /// cancelled.
    fn wait_until_overdue(&self, planned: Monotonic, grace: Span) -> bool {
        loop {
            let key = self.event_count.key();
            if self.cancelled.load(Ordering::Acquire) {
                return true;
            }
            let end = planned.min(Monotonic::from_ns(self.ended_at_ns.load(Ordering::Acquire)));
            if self.event_count.wait(key, end.saturating_add(grace)) == Woken::TimedOut {
                return false;
            }
        }
    }

    /// Whether the watchdog had to end the run.
    pub(crate) fn has_fired(&self) -> bool {
        self.fired.load(Ordering::Acquire)
    }

    /// Gives the calling thread the priority of the watchdog.
    pub(crate) fn enter(&self, priorities: PriorityMap) -> io::Result<()> {
        let own = Tid::current();
        self.own_tid.lock().push(own);
        priorities.set_watchdog(own)
    }

    /// Watches the run until the watchdog is cancelled. `begun` yields the planned end of the run,
    /// or nothing if there is no run.
    pub(crate) fn run(
        &self,
        begun: &Receiver<Monotonic>,
        roots: &[Arc<RootShared>],
        programs: &ProgramControl,
    ) {
        let Ok(end) = begun.recv() else { return };
        if self.wait_until_overdue(end, GRACE_PERIOD) {
            return;
        }
        self.fired.store(true, Ordering::Release);
        programs.kill_all();
        for &tid in self.dispatchers.lock().iter() {
            if let Some(root) = roots.first() {
                root.demote_thread(tid);
            }
        }
        for root in roots {
            root.cancel();
            // Workers that have not left by now are in a job.
            root.demote_workers();
            root.release_workers();
        }
        if !self.wait_until_overdue(end, GRACE_PERIOD + GRACE_PERIOD) {
            eprintln!("talea: a job of this run does not return; aborting the process");
            std::process::abort();
        }
    }
}
