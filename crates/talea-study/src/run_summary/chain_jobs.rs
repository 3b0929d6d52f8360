//! Recorder of the jobs of tasks in chains: first dispatch and completion, 16 bytes each.
//!
//! The recording ends after [`MAX_JOBS`] jobs of a root, so that the memory of a run is bounded.
//! The latencies are those of the outputs before that instant.

use talea_core::Time;
use talea_core::chain::ReadWrite;
use talea_core::engine::TaskId;
use talea_sim::Completion;

/// Maximum number of recorded jobs of a root.
const MAX_JOBS: usize = 1 << 24;

/// Recorded jobs of the tasks in chains.
pub(crate) struct ChainJobs {
    /// `tasks[t]`: jobs of task `t`; `None` if no chain contains it.
    pub(super) tasks: Vec<Option<TaskJobs>>,
    recorded: usize,
    /// End of the recording, if there were too many jobs.
    pub(super) end: Time,
}

/// Recorded jobs of one task.
#[derive(Clone, Default)]
pub(super) struct TaskJobs {
    /// First dispatch of the current job.
    read: Option<Time>,
    pub(super) jobs: Vec<ReadWrite>,
    /// Whether a job without a first dispatch completed, or a number is missing.
    pub(super) has_gap: bool,
}

impl ChainJobs {
    /// Creates an empty recording; `in_chain[t]` says whether to record task `t`.
    pub(super) fn new(in_chain: &[bool]) -> ChainJobs {
        let of = |&is_recorded: &bool| is_recorded.then(TaskJobs::default);
        ChainJobs { tasks: in_chain.iter().map(of).collect(), recorded: 0, end: Time::NEVER }
    }

    fn task(&mut self, task: TaskId) -> Option<&mut TaskJobs> {
        self.tasks.get_mut(task.0 as usize)?.as_mut()
    }

    pub(super) fn started(&mut self, now: Time, task: TaskId, job: u64) {
        if let Some(of) = self.task(task) {
            of.has_gap |= job != of.jobs.len() as u64;
            of.read = Some(now);
        }
    }

    pub(super) fn completed(&mut self, job: &Completion) {
        if self.end < Time::NEVER {
            return;
        }
        let Some(of) = self.task(job.task) else { return };
        match of.read.take() {
            Some(read) => of.jobs.push(ReadWrite { read, write: job.end }),
            None => of.has_gap = true,
        }
        self.recorded += 1;
        if self.recorded == MAX_JOBS {
            self.end = job.end;
        }
    }
}
