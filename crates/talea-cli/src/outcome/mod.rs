//! What became of a run, simulated or real: per task how many, how late, how long; the expectations
//! that it was held against; the files that were asked for.
//!
//! Model: a run tells a sink what happens ([`Seen`]); nothing here knows whether time was
//! simulated. So both kinds of runs have the same tables, the same JSON, the same pictures and
//! traces.

mod files;
mod noted;
mod pieces;
mod seen;

pub(crate) use files::{FileArgs, Files};
pub(crate) use seen::Seen;

use crate::output::{Table, Tone, count, paint};
use crate::report::{Drawn, Outline, Sum};
use serde::Serialize;
use std::fmt::Write;
use talea_core::machine::{Job, LONGEST, TaskId};
use talea_core::{Span, Time};
use talea_system::system::{Expectation, Root};

/// One root.
#[derive(Serialize)]
pub(crate) struct RootAnswer {
    pub(crate) name: String,
    pub(crate) cpus: u32,
    pub(crate) tasks: Vec<TaskAnswer>,
    pub(crate) noted: noted::Noted,
    /// The same in words, if there is something to say.
    #[serde(skip)]
    remark: String,
}

/// One task of it.
#[derive(Serialize)]
pub(crate) struct TaskAnswer {
    pub(crate) name: String,
    pub(crate) period_ns: u64,
    pub(crate) deadline_ns: u64,
    pub(crate) arrived: u64,
    pub(crate) refused: u64,
    pub(crate) completed: u64,
    /// After their deadline, the unfinished whose deadline has passed among them.
    pub(crate) late: u64,
    pub(crate) response_min_ns: Option<u64>,
    pub(crate) response_mean_ns: Option<u64>,
    pub(crate) response_p99_ns: Option<u64>,
    pub(crate) response_max_ns: Option<u64>,
}

/// What the file expects of a run.
#[derive(Serialize)]
pub(crate) struct ExpectationAnswer {
    line: u32,
    task: Option<String>,
    pub(crate) holds: bool,
    what: String,
}

/// What pictures and traces need to know of a root beforehand.
pub(crate) fn outline(root: &Root) -> anyhow::Result<Outline> {
    let machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.why))?;
    Ok(Outline::of(root, &machine))
}

/// What was seen of a root until `end`, as an answer, and as a picture if there is to be one.
pub(crate) fn answer<'a>(
    outline: &'a Outline,
    seen: Seen<'_>,
    unfinished: Vec<(TaskId, Job)>,
    end: Time,
) -> (RootAnswer, Option<Drawn<'a>>) {
    // A job that never ended misses its deadline as surely as one that ended late.
    let mut overdue = vec![0; outline.tasks.len()];
    for (task, _) in unfinished.iter().filter(|(_, job)| job.deadline <= end) {
        overdue[task.0 as usize] += 1;
    }
    let mut answers = Vec::new();
    for (number, task) in outline.tasks.iter().enumerate() {
        let (counted, responses) = (seen.counters.tasks[number], &seen.responses[number]);
        let ns = |span: Option<Span>| span.map(Span::as_ns);
        answers.push(TaskAnswer {
            name: task.name.clone(),
            period_ns: task.period_ns,
            deadline_ns: task.deadline_ns,
            arrived: counted.arrived,
            refused: counted.refused,
            completed: counted.completed,
            late: counted.late + overdue[number],
            response_min_ns: ns(responses.least()),
            response_mean_ns: ns(responses.mean()),
            response_p99_ns: ns(responses.quantile(990)),
            response_max_ns: ns(responses.largest()),
        });
    }
    let sums = answers.iter().map(sum).collect();
    let budgets = seen.curves;
    let drawn =
        seen.schedule.map(|schedule| Drawn { outline, schedule, budgets, unfinished, sums });
    let noted = seen.noted;
    let remark = noted.line(noted.who(outline));
    (
        RootAnswer {
            name: outline.name.clone(),
            cpus: outline.cpus,
            tasks: answers,
            noted,
            remark,
        },
        drawn,
    )
}

fn sum(task: &TaskAnswer) -> Sum {
    Sum {
        completed: task.completed,
        late: task.late,
        refused: task.refused,
        mean_ns: task.response_mean_ns,
        p99_ns: task.response_p99_ns,
        max_ns: task.response_max_ns,
    }
}

/// Holds a run against what the file expects of it.
pub(crate) fn judge(expectations: &[Expectation], roots: &[RootAnswer]) -> Vec<ExpectationAnswer> {
    expectations.iter().map(|expectation| judge_one(expectation, roots)).collect()
}

fn judge_one(expectation: &Expectation, roots: &[RootAnswer]) -> ExpectationAnswer {
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
    ExpectationAnswer { line: expectation.line, task: expectation.task.clone(), holds, what }
}

/// The tasks of a root as a table, and what else there is to say.
pub(crate) fn table(root: &RootAnswer) -> String {
    let span = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), short);
    let mut table =
        Table::new(&["task", ">jobs", ">late", ">refused", ">deadline", ">mean", ">p99", ">max"]);
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

/// A line for each expectation.
pub(crate) fn verdicts(expectations: &[ExpectationAnswer], color: bool) -> String {
    let mut out = String::new();
    for expectation in expectations {
        let (word, tone) =
            if expectation.holds { ("holds", Tone::Good) } else { ("fails", Tone::Bad) };
        let task = expectation.task.as_deref().unwrap_or("all tasks");
        let _ = writeln!(out, "{}: {task}: {}", paint(word, tone, color), expectation.what);
    }
    out
}

/// A deadline for people; who has a job without end has none.
pub(crate) fn deadline(ns: u64) -> String {
    if ns < LONGEST.as_ns() { short(ns) } else { "-".to_owned() }
}

/// Three digits after the point at most: a table is for comparing.
pub(crate) fn short(ns: u64) -> String {
    let (unit, name) = match ns {
        0..1_000 => return format!("{ns}ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let text = format!("{}.{:03}", ns / unit, ns % unit * 1_000 / unit);
    format!("{}{name}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Millionths as hundredths, with all digits.
pub(crate) fn percent(ppm: u64) -> String {
    format!("{}.{:04} %", ppm / 10_000, ppm % 10_000)
}
