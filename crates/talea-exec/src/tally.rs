//! What became of the jobs of a task, in a few numbers: also of a run that is too long to be
//! recorded.

use talea_core::machine::Job;
use talea_core::{Span, Time};

/// Of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Jobs that have ended.
    pub jobs: u64,
    /// Of these, later than their deadlines.
    pub late: u64,
    /// The longest from release to end.
    pub longest: Span,
    /// All of these together.
    pub total: Span,
}

impl Tally {
    /// One more has ended.
    pub(crate) fn count(&mut self, job: Job, now: Time) {
        let response = now.since(job.release.min(now));
        self.jobs += 1;
        self.late += u64::from(now > job.deadline);
        self.longest = self.longest.max(response);
        self.total += response;
    }
}
