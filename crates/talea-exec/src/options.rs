//! Options of a run.

use crate::mechanism::RequestedMechanism;
use crate::root_shared::Band;
use talea_core::engine::MAX_RUN;
use talea_core::{Monotonic, Span};

/// Options of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Length of the run, at most [`MAX_RUN`](talea_core::engine::MAX_RUN).
    pub duration: Span,
    /// Start of the run on CLOCK_MONOTONIC. If it is `None`, or if the threads are not ready by
    /// then, the run begins a moment after the threads are ready.
    pub begin: Option<Monotonic>,
    /// Range of priorities of the run.
    pub band: Band,
    /// Capacity of a dispatcher's record in entries, at most [`MAX_RECORD_CAPACITY`]. The memory is
    /// allocated before the run.
    pub record_capacity: usize,
    /// Whether the clock of each worker is read at each dispatch and preemption
    /// ([`Consumed`](crate::mechanism::audit::Consumed)).
    pub audit: bool,
    /// Whether a monitor detects stalls on each CPU.
    pub monitor: bool,
    /// Whether the run sets real-time priorities. If not, and if no rights provider grants them,
    /// the run applies orders by stopping threads. The kernel may then run other threads before the
    /// ordered ones.
    pub priorities: bool,
    /// Requested mechanism of the roots.
    pub mechanism: RequestedMechanism,
    /// Whether the kernel reports wake-ups of programs. If not, or if the kernel refuses, the
    /// listeners poll the programs' clocks each millisecond.
    pub wakeup_events: bool,
    /// Whether the run locks the memory of the process when all threads are ready, as far as the
    /// process may lock memory. The memory stays locked.
    pub locks_memory: bool,
    /// Maximum time for which a dispatcher spins before a timed event, at most [`MAX_SPIN`]. A
    /// dispatcher never spins for more than half of its sleep.
    pub spin: Span,
    /// Maximum number of context switches that the kernel records on each CPU; 0 disables the
    /// switch trace.
    pub max_switches: usize,
}

/// Maximum capacity of a dispatcher's record in entries: nearly a gigabyte.
pub const MAX_RECORD_CAPACITY: usize = 1 << 24;

/// Maximum time of spinning, because a spinning dispatcher keeps all other threads from the CPU.
pub const MAX_SPIN: Span = Span::from_ns(1_000_000);

impl Options {
    /// Returns the options of a run of this length with all measurements.
    pub fn new(duration: Span) -> Options {
        let band = Band::default();
        Options {
            duration,
            begin: None,
            band,
            record_capacity: 1 << 16,
            audit: true,
            monitor: true,
            priorities: true,
            mechanism: RequestedMechanism::Engine,
            wakeup_events: true,
            locks_memory: false,
            spin: Span::ZERO,
            max_switches: 0,
        }
    }

    /// Returns the options of a run that ends when it is cancelled: [`MAX_RUN`] is 73 years.
    ///
    /// Nothing in such a run grows. There is no record, no audit and no stall monitor, the list of
    /// late wake-ups has a fixed size, and counters have 64 bits. The epochs of idle detectors have
    /// 32 bits and wrap around; they are compared for equality only. The watchdog acts after the
    /// planned end, so it does not act; the process that started the run ends one that does not
    /// end. A program that another process starts has no limit of real-time CPU time: it may
    /// legitimately use its CPU for years without a pause.
    pub fn endless() -> Options {
        Options {
            record_capacity: 0,
            audit: false,
            monitor: false,
            locks_memory: true,
            ..Options::new(MAX_RUN)
        }
    }
}
