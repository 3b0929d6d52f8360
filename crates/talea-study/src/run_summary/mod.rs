//! Summary of a run, simulated or real: counters and response times per task, the file's
//! expectations, and the output files.
//!
//! Model: a run reports its events to a sink ([`RunRecorder`]), independent of whether time was
//! simulated. So both kinds of runs have the same tables, JSON, plots and traces.

mod chain_jobs;
mod chains;
mod csv;
mod events;
mod exec_intervals;
mod files;
mod recorder;

pub use chains::{ChainSummary, chain_lines, check_chains, drawn_chains};
pub use files::{FileArgs, Files};
pub use recorder::RunRecorder;

use crate::output::{Table, Tone, count, paint};
use crate::report::{DrawnRoot, Outline, TaskTotals};
use serde::Serialize;
use std::fmt::Write;
use talea_core::engine::{Job, MAX_RUN, TaskId};
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_system::{Expectation, Root, System};

/// Summary of one root.
#[derive(Serialize)]
pub struct RootSummary {
    /// Name of the root.
    pub name: String,
    /// Number of CPUs of the root.
    pub cpus: u32,
    /// `tasks[t]`: summary of task `t`.
    pub tasks: Vec<TaskSummary>,
    pub(crate) events: events::EventCounts,
    /// Part of the run that the summary is about; `None` for the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<RunPart>,
    /// Jobs of the tasks in chains.
    #[serde(skip)]
    chain_jobs: chain_jobs::ChainJobs,
    /// Text of the events. Empty if there were none.
    #[serde(skip)]
    remark: String,
}

/// Part of a run in which one mode is in force.
#[derive(Clone, Debug, Serialize)]
pub struct RunPart {
    /// Name of the mode.
    pub mode: String,
    /// Request of the switch to the mode; `None` for the first part.
    pub requested_ns: Option<u64>,
    /// Start of the part.
    pub from_ns: u64,
    /// End of the part.
    pub to_ns: u64,
    /// Cause of the switch instant at the end of the part; `None` at the end of the run.
    pub until: Option<&'static str>,
    /// Number of jobs that were pending at the end of the part. The new mode does not continue
    /// them.
    pub pending: u64,
}

/// Summary of one task.
#[derive(Serialize)]
pub struct TaskSummary {
    /// Name of the task.
    pub name: String,
    pub(crate) period_ns: u64,
    /// Relative deadline in nanoseconds.
    pub deadline_ns: u64,
    pub(crate) arrived: u64,
    pub(crate) refused: u64,
    pub(crate) completed: u64,
    /// Number of jobs that ended after their deadline, including unfinished jobs whose deadline has
    /// passed.
    pub late: u64,
    pub(crate) response_min_ns: Option<u64>,
    pub(crate) response_mean_ns: Option<u64>,
    pub(crate) response_p99_ns: Option<u64>,
    /// Longest response time in nanoseconds. `None` if no job completed.
    pub response_max_ns: Option<u64>,
}

/// Result of one expectation of the file.
#[derive(Serialize)]
pub struct ExpectationResult {
    line: u32,
    task: Option<String>,
    /// Whether the run meets the expectation.
    pub holds: bool,
    what: String,
}

/// Returns the static data of each root for plots and traces.
pub fn outlines(system: &System) -> anyhow::Result<Vec<Outline>> {
    let outline = |root: &Root| {
        let machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
        Ok(Outline::of(root, &machine))
    };
    let mut outlines = system.roots.iter().map(outline).collect::<anyhow::Result<Vec<_>>>()?;
    for of in system.chains.iter().flat_map(|chain| &chain.tasks) {
        outlines[of.root].in_chain[of.task] = true;
    }
    Ok(outlines)
}

/// Summarizes a root until `end`, and records its schedule if a file needs the schedule.
pub fn summarize<'a>(
    outline: &'a Outline,
    seen: RunRecorder<'_>,
    unfinished: Vec<(TaskId, Job)>,
    end: Time,
) -> (RootSummary, Option<DrawnRoot<'a>>) {
    // An unfinished job after its deadline is late as well.
    let mut overdue = vec![0; outline.tasks.len()];
    for (task, _) in unfinished.iter().filter(|(_, job)| job.deadline <= end) {
        overdue[task.0 as usize] += 1;
    }
    let mut answers = Vec::new();
    for (number, task) in outline.tasks.iter().enumerate() {
        let (counted, responses) = (seen.counters.tasks[number], &seen.responses[number]);
        let ns = |span: Option<Span>| span.map(Span::as_ns);
        answers.push(TaskSummary {
            name: task.name.clone(),
            period_ns: task.period_ns,
            deadline_ns: task.deadline_ns,
            arrived: counted.arrived,
            refused: counted.refused,
            completed: counted.completed,
            late: counted.late + overdue[number],
            response_min_ns: ns(responses.min()),
            response_mean_ns: ns(responses.mean()),
            response_p99_ns: ns(responses.quantile(990)),
            response_max_ns: ns(responses.max()),
        });
    }
    let sums = answers.iter().map(sum).collect();
    let budgets = seen.curves;
    let drawn =
        seen.schedule.map(|schedule| DrawnRoot { outline, schedule, budgets, unfinished, sums });
    let events = seen.events;
    let remark = events.line(events.deadlocked_task(outline));
    (
        RootSummary {
            name: outline.name.clone(),
            cpus: outline.cpus,
            tasks: answers,
            events,
            part: None,
            chain_jobs: seen.chain_jobs,
            remark,
        },
        drawn,
    )
}

fn sum(task: &TaskSummary) -> TaskTotals {
    TaskTotals {
        completed: task.completed,
        late: task.late,
        refused: task.refused,
        mean_ns: task.response_mean_ns,
        p99_ns: task.response_p99_ns,
        max_ns: task.response_max_ns,
    }
}

/// Checks the expectations of the file.
pub fn check_expectations(
    expectations: &[Expectation],
    roots: &[RootSummary],
) -> Vec<ExpectationResult> {
    expectations.iter().map(|expectation| check_expectation(expectation, roots)).collect()
}

fn check_expectation(expectation: &Expectation, roots: &[RootSummary]) -> ExpectationResult {
    let about =
        roots.iter().flat_map(|root| &root.tasks).filter(|task| expectation.is_about(&task.name));
    let late: u64 = about.clone().map(|task| task.late).sum();
    let worst = Span::from_ns(about.filter_map(|task| task.response_max_ns).max().unwrap_or(0));
    let mut holds = true;
    let mut what = String::new();
    if let Some(misses) = expectation.misses {
        holds &= late <= misses;
        let _ = write!(what, "{} late, at most {misses} expected", count(late as usize, "job"));
    }
    if let Some(response) = expectation.response {
        holds &= worst <= response;
        let separator = if what.is_empty() { "" } else { "; " };
        let _ = write!(what, "{separator}longest response {worst}, at most {response} expected");
    }
    ExpectationResult { line: expectation.line, task: expectation.task.clone(), holds, what }
}

/// Formats the tasks of a root as a table, followed by the events.
pub fn table(root: &RootSummary) -> String {
    let span = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), short);
    let mut table = Table::new("task | >jobs | >late | >refused | >deadline | >mean | >p99 | >max");
    for task in &root.tasks {
        table.row(vec![
            task.name.clone(),
            task.completed.to_string(),
            task.late.to_string(),
            task.refused.to_string(),
            deadline(task.deadline_ns),
            span(task.response_mean_ns),
            span(task.response_p99_ns),
            span(task.response_max_ns),
        ]);
    }
    table.render() + &root.remark
}

/// Formats each expectation in a line.
pub fn verdicts(expectations: &[ExpectationResult], color: bool) -> String {
    let mut out = String::new();
    for expectation in expectations {
        let (word, tone) =
            if expectation.holds { ("holds", Tone::Good) } else { ("fails", Tone::Bad) };
        let task = expectation.task.as_deref().unwrap_or("all tasks");
        let _ = writeln!(out, "{}: {task}: {}", paint(word, tone, color), expectation.what);
    }
    out
}

/// Formats a deadline. An endless job has none.
pub fn deadline(ns: u64) -> String {
    if ns < MAX_RUN.as_ns() { short(ns) } else { "-".to_owned() }
}

/// Formats nanoseconds with at most three decimals, rounded down.
pub fn short(ns: u64) -> String {
    let (unit, name) = unit(ns);
    let text = format!("{}.{:03}", ns / unit, ns % unit * 1_000 / unit);
    format!("{}{name}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Formats an upper bound: [`short`] of the value rounded up, so that the printed value is a bound
/// also.
pub fn short_bound(ns: u64) -> String {
    let step = (unit(ns).0 / 1_000).max(1);
    short(mutate!("cli-bound-rounded", ns.div_ceil(step).saturating_mul(step), ns))
}

/// Returns the unit of a length, in nanoseconds, with its name.
fn unit(ns: u64) -> (u64, &'static str) {
    match ns {
        0..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    }
}

/// Formats millionths as a percentage, with all digits.
pub fn percent(ppm: u64) -> String {
    format!("{}.{:04} %", ppm / 10_000, ppm % 10_000)
}

#[cfg(test)]
mod tests {
    use super::{short, short_bound};

    #[test]
    fn s22_a_printed_bound_is_a_bound() {
        for (ns, down, up) in [
            (999, "999ns", "999ns"),
            (6_999_999, "6.999ms", "7ms"),
            (1_000_001, "1ms", "1.001ms"),
            (7_000_000, "7ms", "7ms"),
            (999_999_999, "999.999ms", "1s"),
            (u64::MAX, "18446744073.709s", "18446744073.709s"),
        ] {
            assert_eq!((short(ns).as_str(), short_bound(ns).as_str()), (down, up));
        }
    }
}
