//! Count of the jobs that are due within a simulated run.

use crate::units::MS;
use talea_core::Time;
use talea_sim::{Completion, Sink};

/// End of a run.
pub(super) const RUN: Time = Time::from_ns(10_000 * MS);

/// Number of jobs whose deadline is within the run, and number of those that ended in time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DueJobs {
    pub(super) jobs: u64,
    pub(super) in_time: u64,
}

impl Sink for DueJobs {
    fn on_completion(&mut self, job: &Completion) {
        self.in_time += u64::from(!job.is_late() && job.deadline <= RUN);
    }
}

impl DueJobs {
    /// Returns the share of late jobs.
    pub(super) fn late_percent(self) -> f64 {
        100.0 * (self.jobs - self.in_time) as f64 / self.jobs.max(1) as f64
    }
}
