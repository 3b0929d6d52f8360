//! Statistics of the roots of a run that has not ended.

use super::context::LiveState;
use crate::job_stats::JobStats;
use crate::statistics::{RootStatistics, RunningRoot, TaskStatistics};
use crate::successor::Successor;
use talea_core::engine::TaskId;
use talea_os::pi_mutex::PiMutex;

impl RunningRoot for PiMutex<LiveState> {
    fn statistics(&self) -> RootStatistics {
        let state = self.lock();
        let executor = &state.executor;
        let mechanism = executor.mechanism().inner();
        let task = |(task, jobs): (TaskId, JobStats)| TaskStatistics {
            jobs,
            stopped: mechanism.stopped_time(task),
            policy_changed: mechanism
                .program(task)
                .and_then(|program| program.policy_changed())
                .map(str::to_owned),
        };
        let tasks = (0..).map(TaskId).zip(executor.job_stats()).map(task);
        RootStatistics {
            now: executor.now(),
            refused: executor.refused(),
            tree: executor.tree_in_force(),
            tasks: tasks.collect(),
        }
    }

    fn request_switch(&self, successor: Box<Successor>) -> bool {
        let requested = self.lock().executor.request_switch(successor);
        // What it returns is freed here, without the lock.
        requested.is_ok()
    }
}
