//! Ends a run that does not end.
//!
//! Model: a thread above everything that a run may order, asleep until the run is overdue. First it calls the run off
//! and makes ordinary threads of all that belong to it, so that the machine can be used; whoever then leaves does so
//! in order. Who still has not ended, in a loop of a job's own, can't be ended but with the whole program.

use crate::programs::Programs;
use crate::stage::{Ranks, Stage, demote};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use talea_core::{Span, Time};
use talea_os::Tid;
use talea_os::bell::{Bell, Woken};
use talea_os::pilock::PiLock;

/// What a run may take beyond its end; holes of a busy machine are shorter.
const GRACE: Span = Span::from_ns(1_000_000_000);

#[derive(Debug)]
pub(crate) struct Watchdog {
    bell: Bell,
    off: AtomicBool,
    bitten: AtomicBool,
    /// The run's dispatchers, until they have been waited for.
    pub(crate) dispatchers: PiLock<Vec<Tid>>,
}

impl Watchdog {
    pub(crate) fn new() -> Watchdog {
        let dispatchers = PiLock::new(Vec::new());
        Watchdog {
            bell: Bell::new(),
            off: AtomicBool::new(false),
            bitten: AtomicBool::new(false),
            dispatchers,
        }
    }

    /// Everything has ended.
    pub(crate) fn call_off(&self) {
        self.off.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Whether the run had to be ended.
    pub(crate) fn has_bitten(&self) -> bool {
        self.bitten.load(Ordering::Acquire)
    }

    /// Puts the calling thread where the watchdog stands.
    pub(crate) fn enter(ranks: Ranks) -> io::Result<()> {
        ranks.watchdog(Tid::current())
    }

    /// Watches until it is called off. From `begun` comes when the run should be over, on the machine's clock; nothing, if
    /// there is no run.
    pub(crate) fn watch(&self, begun: &Receiver<Time>, stages: &[Arc<Stage>], programs: &Programs) {
        let heard = self.bell.heard();
        let Ok(end) = begun.recv() else { return };
        if self.off.load(Ordering::Acquire) || self.bell.wait(heard, end + GRACE) == Woken::Rung {
            return;
        }
        self.bitten.store(true, Ordering::Release);
        programs.end();
        for &tid in self.dispatchers.lock().iter() {
            demote(tid);
        }
        for stage in stages {
            stage.call_off();
            stage.let_go();
        }
        if self.bell.wait(heard, end + GRACE + GRACE + GRACE) == Woken::Due {
            eprintln!("a job of this run never ends; ending the program");
            std::process::abort();
        }
    }
}
