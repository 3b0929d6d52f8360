//! Ends a run that does not end.
//!
//! Model: a thread above everything that a run may order, asleep until the run is overdue. First it
//! calls the run off and makes ordinary threads of all that belong to it, so that the machine can
//! be used; whoever then leaves does so in order. Who still has not ended, in a loop of a job's
//! own, can't be ended but with the whole program.

use crate::programs::Programs;
use crate::stage::{Ranks, Stage};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use talea_core::{Span, Time};
use talea_os::Tid;
use talea_os::bell::{Bell, Woken};
use talea_os::pilock::PiLock;

/// What a run may take beyond its end. Holes are shorter; but whoever leaves is an ordinary thread,
/// and where other programs' real-time threads have the CPUs such a one was seen to wait for 0.95
/// seconds, for the 50 ms that the kernel leaves it.
const GRACE: Span = Span::from_ns(2_000_000_000);

#[derive(Debug)]
pub(crate) struct Watchdog {
    bell: Bell,
    off: AtomicBool,
    bitten: AtomicBool,
    /// When the run was over, if that was sooner than planned.
    over: AtomicU64,
    /// The run's dispatchers, until they have been waited for.
    pub(crate) dispatchers: PiLock<Vec<Tid>>,
    /// The watchdog's own thread, once it is in.
    pub(crate) own: PiLock<Vec<Tid>>,
}

impl Watchdog {
    pub(crate) fn new() -> Watchdog {
        let dispatchers = PiLock::new(Vec::new());
        Watchdog {
            bell: Bell::new(),
            off: AtomicBool::new(false),
            bitten: AtomicBool::new(false),
            over: AtomicU64::new(u64::MAX),
            dispatchers,
            own: PiLock::new(Vec::new()),
        }
    }

    /// Everything has ended.
    pub(crate) fn call_off(&self) {
        self.off.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// The run is over, whether planned or not: all that is left of it has a grace from then on.
    pub(crate) fn is_over(&self, now: Time) {
        self.over.store(now.as_ns(), Ordering::Release);
        self.bell.ring();
    }

    /// Sleeps until so long after the end, if it is not called off before; whether it was.
    fn sleep(&self, planned: Time, grace: Span) -> bool {
        loop {
            let heard = self.bell.heard();
            if self.off.load(Ordering::Acquire) {
                return true;
            }
            let end = planned.min(Time::from_ns(self.over.load(Ordering::Acquire)));
            if self.bell.wait(heard, end.saturating_add(grace)) == Woken::Due {
                return false;
            }
        }
    }

    /// Whether the run had to be ended.
    pub(crate) fn has_bitten(&self) -> bool {
        self.bitten.load(Ordering::Acquire)
    }

    /// Puts the calling thread where the watchdog stands.
    pub(crate) fn enter(&self, ranks: Ranks) -> io::Result<()> {
        let own = Tid::current();
        self.own.lock().push(own);
        ranks.watchdog(own)
    }

    /// Watches until it is called off. From `begun` comes when the run should be over, on the
    /// machine's clock; nothing, if there is no run.
    pub(crate) fn watch(&self, begun: &Receiver<Time>, stages: &[Arc<Stage>], programs: &Programs) {
        let Ok(end) = begun.recv() else { return };
        if self.sleep(end, GRACE) {
            return;
        }
        self.bitten.store(true, Ordering::Release);
        programs.end();
        for &tid in self.dispatchers.lock().iter() {
            if let Some(stage) = stages.first() {
                stage.dismiss(tid);
            }
        }
        for stage in stages {
            stage.call_off();
            // Whoever has not left by itself by now is at work.
            stage.demote();
            stage.let_go();
        }
        if !self.sleep(end, GRACE + GRACE) {
            eprintln!("a job of this run never ends; ending the program");
            std::process::abort();
        }
    }
}
