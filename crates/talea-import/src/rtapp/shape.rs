//! Tasks that threads become, and the conversion of a thread without timers: it is one job.
//!
//! The import writes the repetitions of a loop out where this is necessary, for the duration of the
//! file.

use super::job::{Job, Marks};
use super::workload::{Event, Loops, Phase, Thread, What, note};
use std::collections::BTreeSet;
use talea_config::source::{Findings, words};
use talea_core::Span;

/// Limit of the listed costs, arrivals, or critical sections and suspensions of one task.
pub(super) const WRITTEN_MAX: u64 = 10_000;
/// Duration of a run if the workload states none.
pub(super) const DURATION: Span = Span::from_ns(10_000_000_000);
/// Note about such a run.
pub(super) const WRITTEN_FOR: &str =
    "without a `duration` in the file, endless threads are written for 10 s";
/// Maximum number of events that the import processes to write a thread out.
pub(super) const STEPS_MAX: u64 = 200_000;
/// Period and deadline of a task that has neither: eleven days.
pub(super) const NEVER: Span = Span::from_ns(1_000_000 * 1_000_000_000);

/// Task that a thread becomes, or one of several.
pub(super) struct Task<'w> {
    pub(super) thread: &'w Thread,
    /// Number of the part of the thread, from 1; `None` if the task is the whole thread.
    pub(super) part: Option<usize>,
    pub(super) period: Span,
    pub(super) arrivals: Arrivals,
    /// Costs of the jobs: one for all, or one for each in order.
    pub(super) costs: Vec<Span>,
    pub(super) marks: Marks,
}

impl Task<'_> {
    /// Number of listed costs and arrivals.
    pub(super) fn listed(&self) -> usize {
        let arrivals = match &self.arrivals {
            Arrivals::At(times) => times.len(),
            _ => 0,
        };
        self.costs.len() + arrivals
    }
}

/// Arrivals of a task.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrivals {
    /// A period apart, from this instant on.
    From(Span),
    /// At these instants.
    At(Vec<Span>),
    /// When the tasks before it in its graph have completed.
    Activated,
}

/// Reports a thread that never runs or has a phase that it never reaches.
pub(super) fn check(
    thread: &Thread,
    notes: &mut Vec<String>,
    findings: &mut Findings<'_>,
) -> Option<()> {
    if !thread.events().any(|event| matches!(event.what, What::Run(_))) {
        let remedy = "add a `run`, or leave the thread out";
        findings.error(
            &thread.at,
            words("this thread never runs", "a job without work is no job", remedy),
        );
        return None;
    }
    check_reachable(thread, findings)?;
    if holds_nothing(thread) {
        note(notes, "a lock that is given back at once is left out: sections are counted in work");
    }
    Some(())
}

/// Reports a phase behind one that repeats forever.
fn check_reachable(thread: &Thread, findings: &mut Findings<'_>) -> Option<()> {
    let endless = thread.phases.iter().position(|phase| phase.loops == Loops::Forever);
    let Some(never) = endless.and_then(|at| thread.phases.get(at + 1)) else { return Some(()) };
    let remedy = "leave it out, or give the phase before it an end";
    findings.error(
        &never.at,
        words("this phase is never reached", "the phase before it loops forever", remedy),
    );
    None
}

/// Reports what [`Job::add`] has refused.
pub(super) fn fail(event: &Event, wrong: (String, &str, &str), findings: &mut Findings<'_>) {
    findings.error(&event.at, words(wrong.0, wrong.1, wrong.2));
}

/// Whether the thread locks a resource, and unlocks it without work between.
fn holds_nothing(thread: &Thread) -> bool {
    thread.phases.iter().any(|phase| {
        // What has been locked since the last work.
        let mut fresh = BTreeSet::new();
        phase.events.iter().any(|event| match &event.what {
            What::Run(_) => {
                fresh.clear();
                false
            }
            What::Lock(name) => {
                fresh.insert(name);
                false
            }
            What::Unlock(name) => fresh.remove(name),
            _ => false,
        })
    })
}

/// Notes that a workload without a duration runs for [`DURATION`], if a thread ends later.
pub(super) fn ends_later(end: Option<Span>, notes: &mut Vec<String>) {
    if end.is_none_or(|end| end > DURATION) {
        note(
            notes,
            "the file says no duration, and a thread ends after more than 10 s: rt-app waits for it, here the run ends \
             after 10 s",
        );
    }
}

/// Converts a thread without timers.
pub(super) fn one_job<'w>(
    thread: &'w Thread,
    duration: Option<Span>,
    notes: &mut Vec<String>,
    findings: &mut Findings<'_>,
) -> Option<Task<'w>> {
    let endless = thread.is_endless();
    note(
        notes,
        "a thread without a `timer` has neither period nor deadline: it is one job that suspends itself",
    );
    if endless && duration.is_none() {
        note(notes, WRITTEN_FOR);
    }
    let until = duration.unwrap_or(DURATION);
    let mut job = Job::default();
    // What the thread has lived through at least: alone on its CPU it is exactly that.
    let mut lived = Span::ZERO;
    let events = |phase: &'w Phase| {
        let times = phase.loops.times().unwrap_or(u64::MAX);
        (0..times).flat_map(|_| &phase.events)
    };
    let times = thread.loops.times().unwrap_or(u64::MAX);
    let all = (0..times).flat_map(|_| thread.phases.iter().flat_map(events));
    for (step, event) in (0..).zip(all) {
        // Not in the middle of a section: what is held would never be given back.
        if lived > until && job.held.is_empty() {
            break;
        }
        if let Err(wrong) = job.add(&event.what) {
            fail(event, wrong, findings);
            return None;
        }
        if let What::Run(span) | What::Sleep(span) = event.what {
            let Some(sum) = lived.checked_add(span) else {
                let wrong = (
                    "the thread lives for more than 584 years".to_owned(),
                    "that is too long",
                    "write less",
                );
                fail(event, wrong, findings);
                return None;
            };
            lived = sum;
        }
        if step > STEPS_MAX {
            let what = format!("the thread does more than {STEPS_MAX} things one after the other");
            let remedy = "write longer runs in fewer loops, give the workload a shorter `duration`, or the thread a `timer`";
            findings.error(&thread.at, words(what, "they are added up one by one", remedy));
            return None;
        }
        if job.count() > WRITTEN_MAX {
            let what = format!("the thread locks and sleeps more than {WRITTEN_MAX} times");
            let remedy = "give the workload a shorter `duration`, or the thread a `timer`";
            findings.error(&thread.at, words(what, "what is written out is bounded", remedy));
            return None;
        }
    }
    if let Some((name, _)) = job.held.first() {
        let what = format!("`{name}` is still locked when the thread ends");
        findings.error(&thread.at, words(what, "no other task could ever lock it", "unlock it"));
        return None;
    }
    if !endless && duration.is_none() {
        ends_later(thread.delay.checked_add(lived), notes);
    }
    job.marks.suspensions.retain(|(at, _)| *at < job.cost);
    Some(Task {
        thread,
        part: None,
        period: NEVER,
        arrivals: Arrivals::At(vec![thread.delay]),
        costs: vec![job.cost],
        marks: job.marks,
    })
}
