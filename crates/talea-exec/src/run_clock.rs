//! Clock of a run.

use talea_core::{Monotonic, Time};
use talea_os::clock;

/// Clock of a run: converts between CLOCK_MONOTONIC and run time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunClock {
    /// Time at which the run begins.
    pub(crate) zero: Monotonic,
    /// Run time at which the run ends.
    pub(crate) until: Time,
}

impl RunClock {
    /// Returns the current run time, or zero before the run begins.
    pub(crate) fn now(&self) -> Time {
        clock::now().run_time(self.zero)
    }

    /// Converts run time `at` to CLOCK_MONOTONIC.
    pub(crate) fn to_monotonic(self, at: Time) -> Monotonic {
        Monotonic::of_run_time(self.zero, at)
    }
}
