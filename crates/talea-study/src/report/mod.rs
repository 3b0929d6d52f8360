//! Pages, plots and traces of a run: one self-contained page with a zoomable schedule, an SVG for
//! papers, and a trace for Perfetto.
//!
//! The page holds its data as columns of whole nanoseconds and draws the visible part on a canvas,
//! so that 100,000 jobs open as quickly as ten. It loads nothing from the network. Its table is
//! that of the text output; the distributions cover the jobs that the page holds.

mod bounds;
mod budget;
mod outline;
mod perfetto;
mod svg;
#[cfg(test)]
mod tests;

pub use bounds::{Plot, RootBounds, SupplyKind, bounds_html};
pub use budget::{Budgets, Corner};
pub use outline::{Outline, TaskLine};
pub use perfetto::{Trace, Tracks};
pub use svg::svg;
use talea_core::mutate;

use outline::{ServerLine, SlotTable};
use serde::Serialize;
use talea_core::engine::{Job, TaskId};
use talea_sim::Schedule;

/// Content of a page.
#[derive(Debug)]
pub struct RunPage<'a> {
    /// Heading of the page.
    pub title: String,
    /// Seed of the run.
    pub seed: u64,
    /// Schedules of the roots.
    pub roots: Vec<DrawnRoot<'a>>,
    /// Longest latencies of the chains.
    pub chains: Vec<DrawnChain>,
    /// Length of the run in nanoseconds.
    pub duration_ns: u64,
    /// Table below the heading, if there is one: titles, then rows.
    pub head: Vec<Vec<String>>,
}

/// Longest latency of a chain in a run, with the jobs that carry its data.
#[derive(Debug, Serialize)]
pub struct DrawnChain {
    /// Name of the chain.
    pub name: String,
    /// `reaction` or `age`.
    pub kind: &'static str,
    /// Begin of the latency: the sample, or the event just after the sample before.
    #[serde(rename = "start")]
    pub start_ns: u64,
    /// Columns of the jobs, in the order of the chain: root, task, job, read, write.
    pub jobs: [Vec<u64>; 5],
}

/// Schedule of one root.
#[derive(Debug)]
pub struct DrawnRoot<'a> {
    /// Static data of the root.
    pub outline: &'a Outline,
    /// Intervals of execution.
    pub schedule: Schedule,
    /// `budgets[server]`: budget of the server over time.
    pub budgets: Vec<BudgetCurve>,
    /// Unfinished jobs.
    pub unfinished: Vec<(TaskId, Job)>,
    /// `sums[task]`: totals of the task.
    pub sums: Vec<TaskTotals>,
}

/// Corners of a budget: times, and remaining budgets.
pub type BudgetCurve = [Vec<u64>; 2];

/// Totals of a task over the whole run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TaskTotals {
    #[serde(rename = "jobs")]
    pub(crate) completed: u64,
    pub(crate) late: u64,
    pub(crate) refused: u64,
    #[serde(rename = "mean")]
    pub(crate) mean_ns: Option<u64>,
    #[serde(rename = "p99")]
    pub(crate) p99_ns: Option<u64>,
    #[serde(rename = "max")]
    pub(crate) max_ns: Option<u64>,
}

#[derive(Serialize)]
struct Data<'a> {
    title: &'a str,
    seed: u64,
    duration: u64,
    head: &'a [Vec<String>],
    roots: Vec<RootData<'a>>,
    chains: &'a [DrawnChain],
}

/// Data of one root as columns. `segments` has CPU, task, job, start and length.
#[derive(Serialize)]
struct RootData<'a> {
    name: &'a str,
    cpus: u32,
    tasks: &'a [TaskLine],
    servers: &'a [ServerLine],
    tables: &'a [SlotTable],
    sums: &'a [TaskTotals],
    segments: [Vec<u64>; 5],
    /// Columns of the arrivals: time and task.
    arrivals: [Vec<u64>; 2],
    /// Columns of the completed jobs: task, job, release, deadline, end.
    jobs: [Vec<u64>; 5],
    /// Columns of the unfinished jobs: task, job, release, deadline.
    unfinished: [Vec<u64>; 4],
    budgets: &'a [BudgetCurve],
    cut: Option<u64>,
}

/// Scripts of the page, in order: one program in several files.
const SCRIPTS: [&str; 5] = [
    include_str!("page/base.js"),
    include_str!("page/model.js"),
    include_str!("page/draw.js"),
    include_str!("page/steer.js"),
    include_str!("page/tables.js"),
];

/// Returns the page.
pub fn html(picture: &RunPage<'_>) -> anyhow::Result<String> {
    let data = Data {
        title: &picture.title,
        seed: picture.seed,
        duration: picture.duration_ns,
        head: &picture.head,
        roots: picture.roots.iter().map(columns).collect(),
        chains: &picture.chains,
    };
    assemble(
        include_str!("page/page.html"),
        include_str!("page/page.css"),
        &data,
        &SCRIPTS.concat(),
    )
}

/// Inserts style, data and script into a page.
fn assemble(
    page: &str,
    style: &str,
    data: &impl Serialize,
    script: &str,
) -> anyhow::Result<String> {
    // Inside of a script element, `</script` ends it and `<!--` changes its end. Without `<`
    // neither occurs.
    let json = mutate!(
        "sim-report-escape",
        serde_json::to_string(data)?.replace('<', "\\u003c"),
        serde_json::to_string(data)?.clone()
    );
    let (before, rest) = page.split_once("/*STYLE*/").expect("the page has a place for its style");
    let (middle, rest) = rest.split_once("/*DATA*/").expect("the page has a place for its data");
    let (end, after) = rest.split_once("/*SCRIPT*/").expect("the page has a place for its script");
    Ok([before, style, middle, &json, end, script, after].concat())
}

fn columns<'a>(root: &'a DrawnRoot<'_>) -> RootData<'a> {
    let schedule = &root.schedule;
    let of = |value: fn(&talea_sim::Segment) -> u64| schedule.segments.iter().map(value).collect();
    let job = |value: fn(&talea_sim::Completion) -> u64| schedule.ended.iter().map(value).collect();
    let rest = |value: fn(&(TaskId, Job)) -> u64| root.unfinished.iter().map(value).collect();
    RootData {
        name: &root.outline.name,
        cpus: root.outline.cpus,
        tasks: &root.outline.tasks,
        servers: &root.outline.servers,
        tables: &root.outline.tables,
        sums: &root.sums,
        segments: [
            of(|s| u64::from(s.cpu.0)),
            of(|s| u64::from(s.task.0)),
            of(|s| s.job),
            of(|s| s.start.as_ns()),
            of(|s| mutate!("sim-report-numbers", s.end.as_ns() - s.start.as_ns(), s.end.as_ns())),
        ],
        arrivals: [
            schedule.arrivals.iter().map(|(at, _)| at.as_ns()).collect(),
            schedule.arrivals.iter().map(|(_, task)| u64::from(task.0)).collect(),
        ],
        jobs: [
            job(|j| u64::from(j.task.0)),
            job(|j| j.job),
            job(|j| j.release.as_ns()),
            job(|j| j.deadline.as_ns()),
            job(|j| j.end.as_ns()),
        ],
        unfinished: [
            rest(|(task, _)| u64::from(task.0)),
            rest(|(_, j)| j.number),
            rest(|(_, j)| j.release.as_ns()),
            rest(|(_, j)| j.deadline.as_ns()),
        ],
        budgets: &root.budgets,
        cut: schedule.cut.map(talea_core::Time::as_ns),
    }
}
