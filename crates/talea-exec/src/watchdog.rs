//! Ends a run that does not end.
//!
//! Model: a thread above everything that a run may order, asleep until the run is overdue. First it calls the run off
//! and makes ordinary threads of all that belong to it, so that the machine can be used; whoever then leaves does so
//! in order. Who still has not ended, in a loop of a job's own, can't be ended but with the whole program.

use crate::stage::{Band, Stage};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use talea_core::{Span, Time};
use talea_os::Tid;
use talea_os::bell::{Bell, Woken};
use talea_os::sched::{self, Attr, Policy};

/// What a run may take beyond its end; holes of a busy machine are shorter.
const GRACE: Span = Span::from_ns(1_000_000_000);

#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    bell: Bell,
    off: AtomicBool,
    bitten: AtomicBool,
}

impl Watchdog {
    /// Everything has ended.
    pub(crate) fn call_off(&self) {
        self.off.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Whether the run had to be ended.
    pub(crate) fn has_bitten(&self) -> bool {
        self.bitten.load(Ordering::Acquire)
    }

    /// Watches until it is called off; `end`, on the machine's clock, is when the run should be over.
    pub(crate) fn watch(
        &self,
        band: Band,
        end: Time,
        stages: &[Arc<Stage>],
        dispatchers: &[Tid],
    ) -> io::Result<()> {
        sched::set(Tid::current(), &Attr::grant(Policy::Fifo(band.watchdog())))?;
        let heard = self.bell.heard();
        if self.off.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.bell.wait(heard, end + GRACE) == Woken::Rung {
            return Ok(());
        }
        self.bitten.store(true, Ordering::Release);
        for &tid in dispatchers {
            // It may have ended.
            let _: io::Result<()> = sched::set(tid, &Attr::plain(Policy::NORMAL));
        }
        for stage in stages {
            stage.call_off();
            stage.let_go();
        }
        if self.bell.wait(heard, end + GRACE + GRACE + GRACE) == Woken::Due {
            eprintln!("a job of this run never ends; ending the program");
            std::process::abort();
        }
        Ok(())
    }
}
