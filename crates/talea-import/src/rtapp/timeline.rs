//! Conversion of a thread with timers: the events between two timers are a job.
//!
//! Model: the thread meets every timer in time, so that each job arrives when the timer before it
//! expires. Boundaries of phases and loops have no meaning of their own. The walk ends when the
//! rounds repeat, at the end of the run, or with the thread.

use super::job::Job;
use super::shape::{
    Arrivals, DURATION, STEPS_MAX, Task, WRITTEN_FOR, WRITTEN_MAX, ends_later, fail,
};
use super::workload::{Event, Loops, Thread, Timer, What, note};
use std::collections::BTreeMap;
use talea_config::source::{Findings, words};
use talea_core::{Span, mutate};

/// Converts a thread with timers.
pub(super) fn task<'w>(
    thread: &'w Thread,
    duration: Option<Span>,
    notes: &mut Vec<String>,
    findings: &mut Findings<'_>,
) -> Option<Task<'w>> {
    let mut walk = Walk {
        thread,
        duration,
        timers: BTreeMap::new(),
        now: Span::ZERO,
        job: Job::default(),
        jobs: Vec::new(),
        rounds: Vec::new(),
        steps: 0,
    };
    let end = walk.all(findings)?;
    let (mut jobs, now) = (walk.jobs, walk.now);
    let mut has_last_sleep = false;
    for (_, job) in &mut jobs {
        let before = job.marks.suspensions.len();
        job.marks.suspensions.retain(|(at, _)| *at < job.cost);
        has_last_sleep |= job.marks.suspensions.len() < before;
    }
    if has_last_sleep {
        note(notes, "a sleep in front of a timer is left out: nothing runs behind it");
    }
    let Some((first, job)) = jobs.first().cloned() else {
        let remedy = "give the workload a longer `duration`";
        let what = "this thread does not run before the end of the workload";
        findings.error(&thread.at, words(what, "a job without work is no job", remedy));
        return None;
    };
    let is_one_kind = jobs.iter().all(|(_, other)| *other == job);
    if !is_one_kind && jobs.iter().any(|(_, job)| job.count() > 0) {
        let why = "jobs that differ may differ in their cost only";
        let remedy = "make the loops equal, or leave locks and sleeps out";
        findings.error(&thread.at, words("its jobs lock or sleep, and differ", why, remedy));
        return None;
    }
    let at = |time: Span| thread.delay.checked_add(time);
    let (period, arrivals, cycle) = match end {
        End::Cycle { jobs: cycle, spacing, rounds } => {
            let (count, end) = match rounds {
                None => (None, None),
                Some((rounds, length)) => {
                    let more = (cycle as u64).checked_mul(rounds);
                    let count = more.and_then(|more| more.checked_add(jobs.len() as u64));
                    let rest = length.as_ns().checked_mul(rounds).map(Span::from_ns);
                    (count, rest.and_then(|rest| now.checked_add(rest)))
                }
            };
            // Jobs beyond the end of the run do not count.
            let needed = duration.map(|duration| duration.as_ns() / spacing.as_ns() + 2);
            let listed = match count.filter(|n| needed.is_none_or(|needed| *n < needed)) {
                Some(count) if count > WRITTEN_MAX => return too_many(thread, findings),
                Some(count) => {
                    if duration.is_none() {
                        ends_later(end.and_then(at), notes);
                    }
                    let time = |job: u64| {
                        at(Span::from_ns(
                            spacing.as_ns().checked_mul(job)?.checked_add(first.as_ns())?,
                        ))
                    };
                    Arrivals::At((0..count).map(time).collect::<Option<_>>()?)
                }
                None => Arrivals::From(at(first)?),
            };
            (spacing, listed, cycle)
        }
        End::Listed { is_over } => {
            if duration.is_none() && is_over {
                ends_later(at(now), notes);
            } else if duration.is_none() {
                note(notes, WRITTEN_FOR);
            }
            let times = jobs.iter().map(|(time, _)| at(*time)).collect::<Option<Vec<_>>>()?;
            let gaps: Vec<Span> = gaps(&jobs).collect();
            let least = gaps.iter().min().copied().unwrap_or_else(|| period_of(thread));
            let is_even = gaps.iter().all(|gap| *gap == least);
            if !is_even {
                note(
                    notes,
                    "the jobs of a thread are not equally far apart: their arrivals are listed, and the shortest distance is \
                     the deadline",
                );
            }
            let arrivals =
                if is_even && !is_over { Arrivals::From(at(first)?) } else { Arrivals::At(times) };
            (least, arrivals, jobs.len())
        }
    };
    let costs = if is_one_kind {
        vec![job.cost]
    } else {
        jobs.iter().take(cycle).map(|(_, job)| job.cost).collect()
    };
    Some(Task { thread, part: None, period, arrivals, costs, marks: job.marks })
}

/// Returns the distances between the arrivals.
fn gaps(jobs: &[(Span, Job)]) -> impl Iterator<Item = Span> {
    jobs.windows(2).map(|pair| Span::from_ns(pair[1].0.as_ns() - pair[0].0.as_ns()))
}

/// Returns the period of the first timer.
fn period_of(thread: &Thread) -> Span {
    let timer = thread.events().find_map(|event| match &event.what {
        What::Timer(timer) => Some(timer.period),
        _ => None,
    });
    timer.expect("a thread with timers")
}

fn too_many<T>(thread: &Thread, findings: &mut Findings<'_>) -> Option<T> {
    let what = format!("more than {WRITTEN_MAX} jobs of this thread differ, or it ends after them");
    let why = "they are written out one by one";
    let remedy = "give the workload a shorter `duration`, or the thread equal or fewer loops";
    findings.error(&thread.at, words(what, why, remedy));
    None
}

/// How the arrivals of a thread continue behind the listed jobs.
enum End {
    /// The last `jobs` jobs repeat, `spacing` apart: for this number of rounds and their length,
    /// or forever.
    Cycle { jobs: usize, spacing: Span, rounds: Option<(u64, Span)> },
    /// All jobs are listed: those of the thread, or those of the run.
    Listed { is_over: bool },
}

struct Walk<'w> {
    thread: &'w Thread,
    duration: Option<Span>,
    /// Next expiry of each timer that has been used.
    timers: BTreeMap<&'w str, Span>,
    /// Arrival of the job that is being built.
    now: Span,
    job: Job,
    /// Arrivals and jobs.
    jobs: Vec<(Span, Job)>,
    /// Number of jobs and time at the end of each round.
    rounds: Vec<(usize, Span)>,
    steps: u64,
}

impl<'w> Walk<'w> {
    fn all(&mut self, findings: &mut Findings<'_>) -> Option<End> {
        let phases = &self.thread.phases;
        // The loops of an only phase are those of its thread.
        let (loops, only) = match &phases[..] {
            [only] => (product(self.thread.loops, only.loops), true),
            _ => (self.thread.loops, false),
        };
        for round in 1..=loops.times().unwrap_or(u64::MAX) {
            for phase in phases {
                let times = if only { Some(1) } else { phase.loops.times() };
                for _ in 0..times.unwrap_or(u64::MAX) {
                    for event in &phase.events {
                        if !self.step(event, findings)? {
                            return Some(End::Listed { is_over: false });
                        }
                    }
                    if times.is_none()
                        && let Some((jobs, spacing, _)) = self.cycle()
                    {
                        return Some(End::Cycle { jobs, spacing, rounds: None });
                    }
                }
            }
            if let Some((jobs, spacing, length)) = self.cycle() {
                let rounds = loops.times().map(|times| (times - round, length));
                if rounds.is_none_or(|(rounds, _)| rounds > 0) {
                    // The last job has no timer behind it, and is one of the cycle.
                    if rounds.is_some() && !self.job.cost.is_zero() {
                        self.jobs.push((self.now, self.job.clone()));
                    }
                    return Some(End::Cycle { jobs, spacing, rounds });
                }
            }
        }
        if let (Some(event), Some((name, _))) = (self.thread.events().last(), self.job.held.first())
        {
            fail(event, still_locked(name), findings);
            return None;
        }
        if !self.job.cost.is_zero() {
            self.jobs.push((self.now, std::mem::take(&mut self.job)));
        }
        Some(End::Listed { is_over: true })
    }

    /// Ends a round. Returns the number of jobs in a round, their distance, and the length of a
    /// round, if the same jobs would come forever at this distance.
    fn cycle(&mut self) -> Option<(usize, Span, Span)> {
        // Rounds that are not alike by now never are.
        if self.rounds.len() > 5 {
            return None;
        }
        self.rounds.push((self.jobs.len(), self.now));
        let [.., (one, t1), (two, t2), (three, t3)] = self.rounds[..] else { return None };
        let count = two - one;
        let spacing = gaps(&self.jobs).next()?;
        let is_cycle = three - two == count
            && count > 0
            && t3.as_ns() - t2.as_ns() == t2.as_ns() - t1.as_ns()
            && gaps(&self.jobs).all(|gap| gap == spacing)
            && spacing.as_ns().checked_mul(count as u64) == Some(t3.as_ns() - t2.as_ns())
            && self.jobs.iter().zip(&self.jobs[count..]).all(|((_, a), (_, b))| a == b);
        is_cycle.then(|| (count, spacing, Span::from_ns(t3.as_ns() - t2.as_ns())))
    }

    /// Adds an event. Returns `Some(false)` at the end of the run.
    fn step(&mut self, event: &'w Event, findings: &mut Findings<'_>) -> Option<bool> {
        self.steps += 1;
        if self.steps > STEPS_MAX || self.jobs.len() as u64 > WRITTEN_MAX {
            return too_many(self.thread, findings);
        }
        if let Err(wrong) = self.job.add(&event.what) {
            fail(event, wrong, findings);
            return None;
        }
        let What::Timer(timer) = &event.what else { return Some(true) };
        if let Some((name, _)) = self.job.held.first() {
            fail(event, still_locked(name), findings);
            return None;
        }
        let job = std::mem::take(&mut self.job);
        if !job.cost.is_zero() {
            self.jobs.push((self.now, job));
        }
        self.now = match self.expiry(timer) {
            Some(next) if next > self.now => next,
            next => {
                let due =
                    next.map_or_else(|| "later than any clock".to_owned(), |at| at.to_string());
                let what = format!(
                    "this timer is due at {due}, and the thread uses it at {} or later",
                    self.now
                );
                let why = "when a timer that is late expires again depends on the run";
                let remedy = "use one timer in the thread, or longer periods";
                fail(event, (what, why, remedy), findings);
                return None;
            }
        };
        let end = self.duration.or(self.thread.is_endless().then_some(DURATION));
        Some(end.is_none_or(|end| self.now <= end))
    }

    /// Returns the next expiry of a timer.
    fn expiry(&mut self, timer: &'w Timer) -> Option<Span> {
        let next = match self.timers.get(&*timer.name) {
            None => Some(mutate!("import-rtapp-timer", timer.first, timer.period)),
            Some(last) => last.checked_add(timer.period),
        }?;
        self.timers.insert(&timer.name, next);
        Some(next)
    }
}

fn still_locked(name: &str) -> (String, &'static str, &'static str) {
    let what = format!("`{name}` is still locked when the job ends");
    (what, "a job gives back what it holds", "unlock it before the timer")
}

fn product(outer: Loops, inner: Loops) -> Loops {
    match (outer, inner) {
        (Loops::Times(a), Loops::Times(b)) => Loops::Times(a.saturating_mul(b)),
        _ => Loops::Forever,
    }
}
