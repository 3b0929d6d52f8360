//! Statistics in JSON.

use crate::plan::Plan;
use serde::Serialize;
use std::io;
use std::path::Path;
use talea_core::engine::SwitchCause;
use talea_core::{Time, Work};
use talea_exec::RunControl;

/// Statistics of the root; those of tasks since the governor began. Times are in nanoseconds.
#[derive(Debug, Serialize)]
struct Statistics<'p> {
    root: &'p str,
    /// Label of the file in force.
    governs: Option<&'p str>,
    /// Start of the tree in force on CLOCK_MONOTONIC: the start of its first frame.
    zero_ns: u64,
    /// Number of requested switches up to the tree in force.
    switches: u64,
    /// Cause of the last switch.
    switched_at: Option<&'static str>,
    /// Time of the last step, since the start of the tree in force.
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

/// Returns the cause of a switch in words.
pub(crate) fn cause(cause: SwitchCause) -> &'static str {
    match cause {
        SwitchCause::FrameEnd => "the end of the frame",
        SwitchCause::Idle => "an idle instant",
        SwitchCause::Limit => "the limit, with pending jobs",
    }
}

/// Writes the statistics to `path`, whole or not at all.
pub(crate) fn write(
    path: &Path,
    (plan, label): (&Plan, Option<&str>),
    control: &RunControl,
) -> io::Result<()> {
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
        governs: label,
        zero_ns: zero.saturating_add(root.tree.began.since(Time::ZERO)).as_ns(),
        switches: root.tree.number,
        switched_at: root.tree.cause.map(cause),
        now_ns: root.now.max(root.tree.began).since(root.tree.began).as_ns(),
        refused: root.refused,
        tasks: tasks.collect(),
    };
    let text = serde_json::to_string_pretty(&statistics).map_err(io::Error::other)?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    std::fs::write(&temporary, text + "\n")?;
    std::fs::rename(&temporary, path)
}
