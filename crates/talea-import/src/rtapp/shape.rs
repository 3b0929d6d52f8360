//! Conversion of a thread to a task: arrivals, costs, critical sections and suspensions.
//!
//! In a thread with timers, the events between two timers are a job, and the arrivals are a period
//! apart. All timers of the thread must have the same period. A thread without timers is one job.
//! The import writes the repetitions of a loop out where this is necessary, for the duration of the
//! file.

use super::workload::{Event, Loops, Phase, Thread, What, note};
use std::collections::BTreeSet;
use talea_config::source::{Findings, words};
use talea_core::Span;
use talea_core::mutate;

/// Limit of the listed costs, arrivals, or critical sections and suspensions of one task.
const WRITTEN_MAX: u64 = 10_000;
/// Duration of a run if the workload states none.
const DURATION: Span = Span::from_ns(10_000_000_000);
/// Maximum number of events that the import processes to write a thread out.
const STEPS_MAX: u64 = 200_000;
/// Period and deadline of a task that has neither: eleven days.
pub(super) const NEVER: Span = Span::from_ns(1_000_000 * 1_000_000_000);

/// Task that a thread becomes.
pub(super) struct Task<'w> {
    pub(super) thread: &'w Thread,
    pub(super) period: Span,
    /// Arrival of the first job.
    pub(super) offset: Span,
    /// Number of jobs; `None` if they never end.
    pub(super) jobs: Option<u64>,
    /// Costs of the jobs: one for all, or one for each in order.
    pub(super) costs: Vec<Span>,
    pub(super) marks: Marks,
}

/// Critical sections and suspensions of jobs, at offsets of their work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// Critical sections: (resource, from, to).
    pub(super) sections: Vec<(String, Span, Span)>,
    /// Suspensions: (offset, length).
    pub(super) suspensions: Vec<(Span, Span)>,
}

/// Job that is being built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Job {
    cost: Span,
    marks: Marks,
    held: Vec<(String, Span)>,
}

impl Job {
    fn count(&self) -> u64 {
        (self.marks.sections.len() + self.marks.suspensions.len()) as u64
    }

    /// Adds an event to the job. An error has the fault, its reason, and a remedy.
    fn add(&mut self, what: &What) -> Result<(), (String, &'static str, &'static str)> {
        match what {
            What::Run(span) => {
                let sum = self.cost.checked_add(*span);
                self.cost = sum.ok_or_else(|| {
                    (
                        "the thread works for more than 584 years".to_owned(),
                        "that is too long",
                        "write less",
                    )
                })?;
            }
            What::Sleep(span) => match self.marks.suspensions.last_mut() {
                Some((at, length)) if *at == self.cost => {
                    *length = length.checked_add(*span).unwrap_or(*length);
                }
                _ => self.marks.suspensions.push((self.cost, *span)),
            },
            What::Lock(name) => {
                if self.held.iter().any(|(held, _)| held == name) {
                    let what = format!("`{name}` is locked by the thread already");
                    return Err((what, "it would wait for itself", "unlock it before"));
                }
                self.held.push((name.clone(), self.cost));
            }
            What::Unlock(name) => {
                let Some(at) = self.held.iter().position(|(held, _)| held == name) else {
                    let what = format!("`{name}` is not locked by the thread here");
                    return Err((
                        what,
                        "a job locks and unlocks, each loop for itself",
                        "lock it before, in the same loop",
                    ));
                };
                let (name, from) = self.held.remove(at);
                // Around nothing but sleep it would be held without work: sections are counted in
                // work.
                if from < self.cost {
                    self.marks.sections.push((name, from, self.cost));
                } else if self.marks.suspensions.last().is_some_and(|(at, _)| *at == from) {
                    let what = format!("`{name}` is held for a sleep only");
                    return Err((
                        what,
                        "sections are counted in work",
                        "let the thread run a little in it",
                    ));
                }
            }
            What::Timer(_) => {}
        }
        Ok(())
    }
}

/// Converts a thread to a task.
pub(super) fn task<'w>(
    thread: &'w Thread,
    duration: Option<Span>,
    notes: &mut Vec<String>,
    findings: &mut Findings<'_>,
) -> Option<Task<'w>> {
    let events = || thread.phases.iter().flat_map(|phase| &phase.events);
    if !events().any(|event| matches!(event.what, What::Run(_))) {
        let remedy = "add a `run`, or leave the thread out";
        findings.error(
            &thread.at,
            words("this thread never runs", "a job without work is no job", remedy),
        );
        return None;
    }
    let periods: Vec<(&Event, Span)> = events()
        .filter_map(
            |event| if let What::Timer(period) = event.what { Some((event, period)) } else { None },
        )
        .collect();
    if holds_nothing(thread) {
        note(notes, "a lock that is given back at once is left out: sections are counted in work");
    }
    let shape = Shape { thread, duration };
    match periods.first() {
        None => shape.one_job(notes, findings),
        Some(&(_, period)) => {
            if let Some((event, other)) = periods.iter().find(|(_, other)| *other != period) {
                let what = format!("a timer rings every {period}, and this one every {other}");
                let remedy = "make two threads of it, or the periods equal";
                findings.error(&event.at, words(what, "a task has one period", remedy));
                return None;
            }
            shape.periodic(period, notes, findings)
        }
    }
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
            What::Sleep(_) | What::Timer(_) => false,
        })
    })
}

/// Notes that a workload without a duration runs for [`DURATION`], if a thread ends later.
fn ends_later(end: Option<Span>, notes: &mut Vec<String>) {
    if end.is_none_or(|end| end > DURATION) {
        note(
            notes,
            "the file says no duration, and a thread ends after more than 10 s: rt-app waits for it, here the run ends \
             after 10 s",
        );
    }
}

struct Shape<'w> {
    thread: &'w Thread,
    duration: Option<Span>,
}

impl<'w> Shape<'w> {
    /// Whether the thread never ends: its last phase or its own loop repeats forever. `None` after
    /// an error: an endless phase precedes another phase.
    fn endless(&self, findings: &mut Findings<'_>) -> Option<bool> {
        let phases = &self.thread.phases;
        let endless = phases.iter().position(|phase| phase.loops == Loops::Forever);
        if let Some(never) = endless.and_then(|at| phases.get(at + 1)) {
            let remedy = "leave it out, or give the phase before it an end";
            findings.error(
                &never.at,
                words("this phase is never reached", "the phase before it loops forever", remedy),
            );
            return None;
        }
        Some(endless.is_some() || self.thread.loops == Loops::Forever)
    }

    fn fail(event: &Event, wrong: (String, &str, &str), findings: &mut Findings<'_>) {
        findings.error(&event.at, words(wrong.0, wrong.1, wrong.2));
    }

    /// Returns the jobs of one loop of a phase.
    fn jobs(phase: &Phase, is_first: bool, findings: &mut Findings<'_>) -> Option<Vec<Job>> {
        let mut jobs = Vec::new();
        let mut job = Job::default();
        for (at, event) in phase.events.iter().enumerate() {
            if let Err(wrong) = job.add(&event.what) {
                Self::fail(event, wrong, findings);
                return None;
            }
            let ends = matches!(event.what, What::Timer(_)) && !(is_first && at == 0);
            if ends || (is_first && at + 1 == phase.events.len()) {
                if let Some((name, _)) = job.held.first() {
                    let what = format!("`{name}` is still locked when the job ends");
                    let wrong =
                        (what, "a job gives back what it holds", "unlock it before the timer");
                    Self::fail(event, wrong, findings);
                    return None;
                }
                if job.cost.is_zero() {
                    let wrong = (
                        "nothing runs before this timer".to_owned(),
                        "a job without work is no job",
                        "add a `run`",
                    );
                    Self::fail(event, wrong, findings);
                    return None;
                }
                jobs.push(std::mem::take(&mut job));
            }
        }
        if job != Job::default() {
            let at = phase.events.last().map_or(phase.at.clone(), |event| event.at.clone());
            let why = "what is a job lies between two timers";
            let text = words(
                "the loop goes on after its last timer",
                why,
                "put the timer at the end of the loop",
            );
            findings.error(&at, text);
            return None;
        }
        Some(jobs)
    }

    fn periodic(
        &self,
        period: Span,
        notes: &mut Vec<String>,
        findings: &mut Findings<'_>,
    ) -> Option<Task<'w>> {
        let endless = self.endless(findings)?;
        // A timer in front: the first loop waits for a period, and everything is as with a timer at
        // the end.
        let phases = &self.thread.phases;
        let only = if let [only] = &phases[..] { Some(only) } else { None };
        let is_first = only.is_some_and(|phase| {
            let timers =
                phase.events.iter().filter(|event| matches!(event.what, What::Timer(_))).count();
            timers == 1
                && matches!(phase.events.first().map(|event| &event.what), Some(What::Timer(_)))
        });
        let mut loops = Vec::new();
        for phase in phases {
            loops.push((Self::jobs(phase, is_first, findings)?, phase.loops));
        }
        for job in loops.iter_mut().flat_map(|(jobs, _)| jobs) {
            let before = job.marks.suspensions.len();
            job.marks.suspensions.retain(|(at, _)| *at < job.cost);
            if job.marks.suspensions.len() < before {
                note(notes, "a sleep in front of a timer is left out: nothing runs behind it");
            }
        }
        let all = || loops.iter().flat_map(|(jobs, _)| jobs);
        let first = all().next()?.clone();
        let once: Option<u64> = loops.iter().try_fold(0_u64, |sum, (jobs, loops)| {
            Some(sum.saturating_add((jobs.len() as u64).saturating_mul(loops.times()?)))
        });
        let jobs = if endless {
            None
        } else {
            once.and_then(|once| once.checked_mul(self.thread.loops.times()?))
        };
        let needed = self.duration.map(|duration| duration.as_ns() / period.as_ns() + 2);
        // Jobs beyond the end of the run do not count.
        let jobs = jobs.filter(|jobs| needed.is_none_or(|needed| *jobs < needed));
        let costs = if all().all(|job| *job == first) {
            vec![first.cost]
        } else if all().any(|job| job.count() > 0) {
            let why = "jobs that differ may differ in their cost only";
            let remedy = "make the loops equal, or leave locks and sleeps out";
            findings
                .error(&self.thread.at, words("its jobs lock or sleep, and differ", why, remedy));
            return None;
        } else {
            self.written(&loops, once, needed, findings)?
        };
        let offset = self.thread.delay.checked_add(mutate!(
            "import-rtapp-timer",
            if is_first { period } else { Span::ZERO },
            Span::ZERO
        ))?;
        if jobs.is_some_and(|jobs| jobs > WRITTEN_MAX) {
            let what = format!("the thread comes to an end after more than {WRITTEN_MAX} jobs");
            let remedy = "give the workload a shorter `duration`, or the thread fewer loops";
            findings.error(&self.thread.at, words(what, "what is written out is bounded", remedy));
            return None;
        }
        if let (Some(jobs), None) = (jobs, self.duration) {
            let all = period.as_ns().checked_mul(jobs).map(Span::from_ns);
            ends_later(all.and_then(|all| offset.checked_add(all)), notes);
        }
        Some(Task { thread: self.thread, period, offset, jobs, costs, marks: first.marks })
    }

    /// Returns the costs of the jobs in order, with loops written out.
    fn written(
        &self,
        loops: &[(Vec<Job>, Loops)],
        once: Option<u64>,
        needed: Option<u64>,
        findings: &mut Findings<'_>,
    ) -> Option<Vec<Span>> {
        // A list repeats from its start, so one pass is enough unless the last phase repeats
        // forever.
        let length = match once {
            Some(once) if once <= WRITTEN_MAX => once,
            _ => needed.unwrap_or(u64::MAX),
        };
        let all = loops.iter().flat_map(|(jobs, loops)| {
            let times = loops.times().unwrap_or(u64::MAX).min(WRITTEN_MAX + 1) as usize;
            std::iter::repeat_n(jobs, times).flatten().map(|job| job.cost)
        });
        if length > WRITTEN_MAX {
            let what = format!("more than {WRITTEN_MAX} jobs differ");
            let remedy = "give the workload a shorter `duration`, or the phases fewer loops";
            findings.error(&self.thread.at, words(what, "what is written out is bounded", remedy));
            return None;
        }
        Some(all.take(length as usize).collect())
    }

    /// Converts a thread without timers.
    fn one_job(&self, notes: &mut Vec<String>, findings: &mut Findings<'_>) -> Option<Task<'w>> {
        let endless = self.endless(findings)?;
        note(
            notes,
            "a thread without a `timer` has neither period nor deadline: it is one job that suspends itself",
        );
        if endless && self.duration.is_none() {
            note(notes, "without a `duration` in the file, endless threads are written for 10 s");
        }
        let until = self.duration.unwrap_or(DURATION);
        let mut job = Job::default();
        // What the thread has lived through at least: alone on its CPU it is exactly that.
        let mut lived = Span::ZERO;
        let events = |phase: &'w Phase| {
            let times = phase.loops.times().unwrap_or(u64::MAX);
            (0..times).flat_map(|_| &phase.events)
        };
        let times = self.thread.loops.times().unwrap_or(u64::MAX);
        let all = (0..times).flat_map(|_| self.thread.phases.iter().flat_map(events));
        for (step, event) in (0..).zip(all) {
            // Not in the middle of a section: what is held would never be given back.
            if lived > until && job.held.is_empty() {
                break;
            }
            if let Err(wrong) = job.add(&event.what) {
                Self::fail(event, wrong, findings);
                return None;
            }
            if let What::Run(span) | What::Sleep(span) = event.what {
                let Some(sum) = lived.checked_add(span) else {
                    let wrong = (
                        "the thread lives for more than 584 years".to_owned(),
                        "that is too long",
                        "write less",
                    );
                    Self::fail(event, wrong, findings);
                    return None;
                };
                lived = sum;
            }
            if step > STEPS_MAX {
                let what =
                    format!("the thread does more than {STEPS_MAX} things one after the other");
                let remedy = "write longer runs in fewer loops, give the workload a shorter `duration`, or the thread a `timer`";
                findings
                    .error(&self.thread.at, words(what, "they are added up one by one", remedy));
                return None;
            }
            if job.count() > WRITTEN_MAX {
                let what = format!("the thread locks and sleeps more than {WRITTEN_MAX} times");
                let remedy = "give the workload a shorter `duration`, or the thread a `timer`";
                findings
                    .error(&self.thread.at, words(what, "what is written out is bounded", remedy));
                return None;
            }
        }
        if let Some((name, _)) = job.held.first() {
            let what = format!("`{name}` is still locked when the thread ends");
            findings.error(
                &self.thread.at,
                words(what, "no other task could ever lock it", "unlock it"),
            );
            return None;
        }
        if !endless && self.duration.is_none() {
            ends_later(self.thread.delay.checked_add(lived), notes);
        }
        job.marks.suspensions.retain(|(at, _)| *at < job.cost);
        Some(Task {
            thread: self.thread,
            period: NEVER,
            offset: self.thread.delay,
            jobs: Some(1),
            costs: vec![job.cost],
            marks: job.marks,
        })
    }
}
