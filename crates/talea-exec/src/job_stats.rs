//! Statistics of the jobs of a task, available even for runs that are too long to be recorded.

use talea_core::engine::Job;
use talea_core::{Span, Time};

/// Statistics of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobStats {
    /// Number of completed jobs.
    pub jobs: u64,
    /// Number of completed jobs that missed their deadline.
    pub late: u64,
    /// Maximum response time, from release to completion.
    pub max_response: Span,
    /// Sum of the response times.
    pub total_response: Span,
}

impl JobStats {
    /// Records a completed job.
    pub(crate) fn record(&mut self, job: Job, now: Time) {
        let response = now.since(job.release.min(now));
        self.jobs += 1;
        self.late += u64::from(now > job.deadline);
        self.max_response = self.max_response.max(response);
        self.total_response += response;
    }
}
