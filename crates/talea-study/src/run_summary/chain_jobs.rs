//! Recorder of the jobs of tasks in chains: first dispatch and completion, 16 bytes each. Jobs with
//! logical execution time read at their release and write at their deadline instead.
//!
//! The recording ends after [`MAX_JOBS`] jobs of a root, so that the memory of a run is bounded.
//! The latencies are those of the outputs before that instant.

use talea_core::Time;
use talea_core::chain::ReadWrite;
use talea_core::engine::TaskId;
use talea_core::mutate;
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
    /// Whether the task has logical execution time.
    is_logical: bool,
    /// Whether a job with logical execution time was late.
    pub(super) is_late: bool,
}

impl ChainJobs {
    /// Creates an empty recording; `in_chain[t]` says whether to record task `t`, and `logical[t]`
    /// whether it has logical execution time.
    pub(super) fn new(in_chain: &[bool], logical: &[bool]) -> ChainJobs {
        let of = |(&is_recorded, &is_logical): (&bool, &bool)| {
            is_recorded.then(|| TaskJobs { is_logical, ..TaskJobs::default() })
        };
        let tasks = in_chain.iter().zip(logical).map(of).collect();
        ChainJobs { tasks, recorded: 0, end: Time::NEVER }
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
            Some(_) if of.is_logical => {
                of.is_late |= job.is_late();
                of.jobs.push(mutate!(
                    "study-chain-logical",
                    ReadWrite { read: job.release, write: job.deadline },
                    ReadWrite { read: job.release, write: job.end }
                ));
            }
            Some(read) => of.jobs.push(ReadWrite { read, write: job.end }),
            None => of.has_gap = true,
        }
        self.recorded += 1;
        if self.recorded == MAX_JOBS {
            self.end = job.end;
        }
    }
}
