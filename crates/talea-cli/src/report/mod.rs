//! Pictures of a run: one self-contained page with a schedule that can be zoomed, and an SVG for papers.
//!
//! The page holds its data as columns of whole nanoseconds; what a screen shows of them is drawn on a canvas, so that
//! 100,000 jobs open as quickly as ten. It loads nothing from anywhere.

mod svg;

pub(crate) use svg::svg;

use crate::output::to_json;
use serde::Serialize;
use talea_sim::Schedule;

/// What a picture shows.
#[derive(Debug)]
pub(crate) struct Picture<'a> {
    /// A line for its head.
    pub(crate) title: String,
    /// One for each root, in order.
    pub(crate) roots: Vec<Drawn<'a>>,
    pub(crate) duration_ns: u64,
}

/// One root.
#[derive(Debug)]
pub(crate) struct Drawn<'a> {
    pub(crate) name: &'a str,
    pub(crate) cpus: u32,
    /// Name, period and relative deadline of each task.
    pub(crate) tasks: Vec<(&'a str, u64, u64)>,
    pub(crate) schedule: Schedule,
}

#[derive(Serialize)]
struct Data<'a> {
    title: &'a str,
    duration: u64,
    roots: Vec<RootData<'a>>,
}

/// Columns: `segments` holds cpu, task, job, start and length of one after the other.
#[derive(Serialize)]
struct RootData<'a> {
    name: &'a str,
    cpus: u32,
    tasks: Vec<TaskData<'a>>,
    segments: [Vec<u64>; 5],
    /// Time and task.
    arrivals: [Vec<u64>; 2],
    /// Task, job, release, deadline, end.
    jobs: [Vec<u64>; 5],
    cut: Option<u64>,
}

#[derive(Serialize)]
struct TaskData<'a> {
    name: &'a str,
    period: u64,
    deadline: u64,
}

/// The page.
pub(crate) fn html(picture: &Picture<'_>) -> anyhow::Result<String> {
    let data = Data {
        title: &picture.title,
        duration: picture.duration_ns,
        roots: picture.roots.iter().map(columns).collect(),
    };
    // Inside a script element only `</` could end it.
    let json = to_json(&data)?.replace("</", "<\\/");
    let page = include_str!("page.html");
    let (before, rest) = page.split_once("/*STYLE*/").expect("the page has a place for its style");
    let (middle, rest) = rest.split_once("/*DATA*/").expect("the page has a place for its data");
    let (end, after) = rest.split_once("/*SCRIPT*/").expect("the page has a place for its script");
    let parts = [before, include_str!("page.css"), middle, &json, end, include_str!("page.js"), after];
    Ok(parts.concat())
}

fn columns<'a>(root: &'a Drawn<'_>) -> RootData<'a> {
    let schedule = &root.schedule;
    let of = |value: fn(&talea_sim::Segment) -> u64| schedule.segments.iter().map(value).collect();
    let job = |value: fn(&talea_sim::Completion) -> u64| schedule.ended.iter().map(value).collect();
    RootData {
        name: root.name,
        cpus: root.cpus,
        tasks: root
            .tasks
            .iter()
            .map(|&(name, period, deadline)| TaskData { name, period, deadline })
            .collect(),
        segments: [
            of(|s| u64::from(s.cpu.0)),
            of(|s| u64::from(s.task.0)),
            of(|s| s.job),
            of(|s| s.start.as_ns()),
            of(|s| s.end.as_ns() - s.start.as_ns()),
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
        cut: schedule.cut.map(talea_core::Time::as_ns),
    }
}
