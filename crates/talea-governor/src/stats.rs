//! Statistics in JSON.

use crate::plan::Plan;
use serde::Serialize;
use std::io;
use std::path::Path;
use talea_core::Work;
use talea_exec::RunControl;

/// Statistics of the root since the governor began. Times are in nanoseconds.
#[derive(Debug, Serialize)]
struct Statistics<'p> {
    root: &'p str,
    /// Start of the run on CLOCK_MONOTONIC: the start of the first frame.
    zero_ns: u64,
    /// Time of the last step, since the start.
    now_ns: u64,
    refused: u64,
    tasks: Vec<Task<'p>>,
}

#[derive(Debug, Serialize)]
struct Task<'p> {
    name: &'p str,
    jobs: u64,
    late: u64,
    max_response_ns: u64,
    total_response_ns: u64,
    /// CPU time that the group has used since it exists.
    cpu_time_ns: Option<u64>,
    stopped_idle_ns: u64,
    stopped_busy_ns: u64,
    /// Longest part of `stopped_busy_ns` between two orders.
    max_stopped_busy_ns: u64,
    policy_changed: Option<String>,
}

/// Writes the statistics to `path`, whole or not at all.
pub(crate) fn write(path: &Path, plan: &Plan, control: &RunControl) -> io::Result<()> {
    let roots = control.statistics();
    let Some((zero, root)) = control.zero().zip(roots.first()) else {
        return Err(io::Error::other("the run has not begun"));
    };
    let of_tasks = plan.root.tasks.iter().zip(&plan.groups).zip(&root.tasks);
    let tasks = of_tasks.map(|((name, group), task)| {
        let stopped = task.stopped.unwrap_or_default();
        Task {
            name,
            jobs: task.jobs.jobs,
            late: task.jobs.late,
            max_response_ns: task.jobs.max_response.as_ns(),
            total_response_ns: task.jobs.total_response.as_ns(),
            cpu_time_ns: group.used().ok().map(Work::as_ns),
            stopped_idle_ns: stopped.idle.as_ns(),
            stopped_busy_ns: stopped.busy.as_ns(),
            max_stopped_busy_ns: stopped.max_busy.as_ns(),
            policy_changed: task.policy_changed.clone(),
        }
    });
    let statistics = Statistics {
        root: &plan.root.name,
        zero_ns: zero.as_ns(),
        now_ns: root.now.as_ns(),
        refused: root.refused,
        tasks: tasks.collect(),
    };
    let text = serde_json::to_string_pretty(&statistics).map_err(io::Error::other)?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    std::fs::write(&temporary, text + "\n")?;
    std::fs::rename(&temporary, path)
}
