//! Conversion of threads that wait for each other to a graph of tasks.
//!
//! Model: one loop of each thread is cut at its timers, waits and barriers, and behind its
//! wake-ups. Each part is a task. A part behind a timer is periodic. Any other part is activated by
//! the part before it and by the parts that wake it or meet it at a barrier. The loop itself is no
//! edge: the next round starts with its timer or its wake-up. Threads that are joined to no timer
//! start at once, and their rounds are written out for the duration of the run.
//!
//! Invariants:
//! 1. Each part that is not periodic has a part before it.
//! 2. The graph has no cycle, and the periodic parts of a connected graph have one period.

use super::job::Job;
use super::shape::{Arrivals, DURATION, NEVER, STEPS_MAX, Task, WRITTEN_FOR, fail};
use super::workload::{Event, Line, Loops, Thread, What, note};
use std::collections::{BTreeMap, BTreeSet};
use talea_config::diagnostic::quoted;
use talea_config::source::{Findings, words};
use talea_core::{Span, mutate};

/// Maximum number of parts and of edges.
const GRAPH_MAX: usize = 20_000;
/// Cost of a part that only wakes others.
const WAKE_COST: Span = Span::from_ns(1);

/// Edge: (from, to), by the number of the task.
pub(super) type Edge = (usize, usize);

/// Whether the thread waits for others, or wakes them.
pub(super) fn joins(thread: &Thread) -> bool {
    thread.events().any(|event| event.what.joins())
}

/// Converts the threads that wait for others or wake them.
pub(super) fn tasks<'w>(
    threads: &'w [Thread],
    duration: Option<Span>,
    notes: &mut Vec<String>,
    findings: &mut Findings<'_>,
) -> Option<(Vec<Task<'w>>, Vec<Edge>)> {
    let mut parts = Vec::new();
    let joined: Vec<&Thread> = threads.iter().filter(|thread| joins(thread)).collect();
    let rounds = unrolled(&joined, duration, notes, findings)?;
    for (thread, rounds) in joined.into_iter().zip(rounds) {
        match rounds {
            None => cut(thread, duration, &mut parts, notes, findings)?,
            Some(rounds) => unroll(thread, rounds, &mut parts, notes, findings)?,
        }
        if parts.len() > GRAPH_MAX {
            return too_large(thread, findings);
        }
    }
    if parts.is_empty() {
        return Some((Vec::new(), Vec::new()));
    }
    note(
        notes,
        "a thread that waits for others or wakes them is a task for each part between these events; its rounds may overlap \
         where it is late",
    );
    let mut edges: BTreeSet<Edge> = BTreeSet::new();
    for (number, part) in parts.iter().enumerate() {
        if part.continues {
            edges.insert((number - 1, number));
        }
    }
    wake_ups(&parts, &mut edges, notes, findings)?;
    barriers(&parts, &mut edges, findings)?;
    check(&parts, &edges, findings)?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for part in &parts {
        *counts.entry(&part.thread.name).or_default() += 1;
    }
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut tasks = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let number = numbers.entry(&part.thread.name).or_default();
        *number += 1;
        let mut job = part.job.clone();
        // A sleep at the end delays what follows; a suspension is in front of work.
        let is_followed = parts.get(at + 1).is_some_and(|next| next.continues);
        let has_last_sleep = job.marks.suspensions.last().is_some_and(|(at, _)| *at == job.cost);
        let sleeps = has_last_sleep && (is_followed || !part.wakes.is_empty());
        if job.cost.is_zero() || sleeps {
            job.cost = job.cost.checked_add(WAKE_COST)?;
            note(
                notes,
                "a part of a thread that only wakes others, or ends with a sleep, costs 1 ns more: no task is without work",
            );
        }
        job.marks.suspensions.retain(|(at, _)| *at < job.cost);
        let (period, arrivals) = match &part.timer {
            Some(timer) => (timer.period, timer.arrivals()),
            None => (NEVER, Arrivals::Activated),
        };
        tasks.push(Task {
            thread: part.thread,
            part: (counts[&*part.thread.name] > 1).then_some(*number),
            period,
            arrivals,
            costs: vec![job.cost],
            marks: job.marks,
        });
    }
    Some((tasks, edges.into_iter().collect()))
}

/// Part of a thread, which becomes a task.
struct Part<'w> {
    thread: &'w Thread,
    at: &'w Event,
    job: Job,
    /// Arrivals of a periodic part.
    timer: Option<Periodic>,
    /// Whether the part before it in the list activates it.
    continues: bool,
    waits: Vec<&'w Line>,
    barriers: Vec<&'w str>,
    /// Lines that its completion wakes; whether for all threads.
    wakes: Vec<(&'w Line, bool, &'w Event)>,
}

struct Periodic {
    period: Span,
    offset: Span,
    /// Number of jobs; `None` if they never end.
    jobs: Option<u64>,
}

impl Periodic {
    fn arrivals(&self) -> Arrivals {
        match self.jobs {
            None => Arrivals::From(self.offset),
            Some(jobs) => Arrivals::At(
                (0..jobs)
                    .map(|job| Span::from_ns(self.offset.as_ns() + job * self.period.as_ns()))
                    .collect(),
            ),
        }
    }
}

fn too_large<T>(thread: &Thread, findings: &mut Findings<'_>) -> Option<T> {
    let what = format!("threads that wait for each other become more than {GRAPH_MAX} tasks");
    let why = "the parts of their loops are written out";
    findings.error(&thread.at, words(what, why, "use fewer threads, instances or loops"));
    None
}

/// Returns the events of one loop of the thread, with the loops of its phases written out.
fn written<'w>(thread: &'w Thread, findings: &mut Findings<'_>) -> Option<Vec<&'w Event>> {
    let mut events = Vec::new();
    for phase in &thread.phases {
        // The loops of an only phase are those of its thread.
        let times = match (&thread.phases[..], phase.loops) {
            ([_], _) => 1,
            (_, Loops::Times(times)) => times,
            (_, Loops::Forever) => {
                let what = "a phase that loops forever follows another phase";
                let why = "a task of a graph has the same part in all its jobs";
                let remedy = "leave the phases before it out, or make two threads of them";
                findings.error(&phase.at, words(what, why, remedy));
                return None;
            }
        };
        if times.saturating_mul(phase.events.len() as u64) + events.len() as u64 > STEPS_MAX {
            return too_large(thread, findings);
        }
        for _ in 0..times {
            events.extend(&phase.events);
        }
    }
    Some(events)
}

/// Cuts one loop of a thread into parts.
fn cut<'w>(
    thread: &'w Thread,
    duration: Option<Span>,
    parts: &mut Vec<Part<'w>>,
    notes: &mut Vec<String>,
    findings: &mut Findings<'_>,
) -> Option<()> {
    let mut events = written(thread, findings)?;
    let blocks =
        |event: &Event| matches!(event.what, What::Timer(_) | What::Wait { .. } | What::Barrier(_));
    let is_timer = |event: &Event| matches!(event.what, What::Timer(_));
    let first = events.iter().position(|event| is_timer(event));
    let first = first.or_else(|| events.iter().position(|event| blocks(event)));
    let timers: Vec<_> = events
        .iter()
        .filter_map(|event| if let What::Timer(timer) = &event.what { Some(timer) } else { None })
        .collect();
    let Some(first) = first else {
        let what = format!("thread {} wakes others, and nothing paces it", quoted(&thread.name));
        let why = "a task of a graph has a period, or a task that activates it";
        let remedy = "add a `timer`, or a `suspend` and a thread that resumes it";
        findings.error(&thread.at, words(what, why, remedy));
        return None;
    };
    let rounds = round(thread, &timers, duration, findings)?;
    // The loop starts with what it waits for. The part behind a timer at the end of the loop is the
    // start of the next round, and the first round starts at once.
    let is_last = events.last().is_some_and(|event| is_timer(event));
    if first > 0 && !is_last {
        note(
            notes,
            "the events of a thread in front of its first wait are done behind its last wait only, not at the start",
        );
    }
    // Locks in front of the first wait; that of its mutex is free meanwhile.
    let mut before: Vec<&String> = Vec::new();
    for event in &events[..first] {
        match &event.what {
            What::Lock(name) => before.push(name),
            What::Unlock(name) => before.retain(|held| *held != name),
            _ => {}
        }
    }
    let mutex = match &events[first].what {
        What::Wait { mutex, .. } => mutex.as_ref(),
        _ => None,
    };
    if let Some(other) = before.iter().find(|held| Some(**held) != mutex) {
        return held_in_wait(other, events[first], findings);
    }
    let held = mutex.filter(|mutex| before.contains(mutex));
    events.rotate_left(first);
    let start = parts.len();
    let timers = Timers { count: timers.len() as u64, is_last, jobs: rounds.times() };
    cut_events(thread, events, &timers, held, parts, start, notes, findings)
}

fn held_in_wait<T>(lock: &str, event: &Event, findings: &mut Findings<'_>) -> Option<T> {
    let what = format!("{} is held while the thread waits", quoted(lock));
    fail(event, (what, "a job gives back what it holds", "unlock it before"), findings);
    None
}

/// Timers of one loop of a thread.
struct Timers {
    count: u64,
    /// Whether the loop ends with one.
    is_last: bool,
    /// Number of jobs of the part behind each; `None` if they never end.
    jobs: Option<u64>,
}

/// Returns the number of rounds of each thread that is joined to no timer; `None` for others.
fn unrolled(
    threads: &[&Thread],
    duration: Option<Span>,
    notes: &mut Vec<String>,
    findings: &mut Findings<'_>,
) -> Option<Vec<Option<u64>>> {
    // Threads that share a name are in one group.
    let mut group: Vec<usize> = (0..threads.len()).collect();
    let mut first: BTreeMap<(bool, &str), usize> = BTreeMap::new();
    for (number, thread) in threads.iter().enumerate() {
        for event in thread.events() {
            let name = match &event.what {
                What::Wake { line, .. } | What::Wait { line, .. } => (true, line.name()),
                What::Barrier(name) => (false, &**name),
                _ => continue,
            };
            let (one, other) = (group[*first.entry(name).or_insert(number)], group[number]);
            if one != other {
                group.iter_mut().filter(|group| **group == other).for_each(|group| *group = one);
            }
        }
    }
    let mut has_timer = BTreeSet::new();
    // Least time of a round of the slowest endless thread of the group.
    let mut slowest: BTreeMap<usize, Span> = BTreeMap::new();
    for (thread, group) in threads.iter().zip(&group) {
        let mut lived = Span::ZERO;
        for event in thread.events() {
            match event.what {
                What::Timer(_) => _ = has_timer.insert(*group),
                What::Run(span) | What::Sleep(span) => lived = lived.checked_add(span)?,
                _ => {}
            }
        }
        let slowest = slowest.entry(*group).or_default();
        *slowest = (*slowest).max(lived);
    }
    let mut rounds = Vec::new();
    for (thread, group) in threads.iter().zip(&group) {
        if has_timer.contains(group) {
            rounds.push(None);
            continue;
        }
        let count = match thread.loops.times() {
            Some(count) if !thread.is_endless() => count,
            _ => {
                if duration.is_none() {
                    note(notes, WRITTEN_FOR);
                }
                duration.unwrap_or(DURATION).as_ns() / slowest[group].as_ns().max(1) + 1
            }
        };
        let is_conditional =
            |event: &&Event| matches!(&event.what, What::Wait { line: Line::Condition(_), .. });
        if count > 1
            && let Some(wait) = thread.events().find(is_conditional)
        {
            let what = "no thread of these has a timer, and this waits more than once".to_owned();
            let why = "which wake-up finds no waiting thread and is lost depends on the run";
            let remedy = "start each round with a `timer` of one thread, or use a barrier";
            fail(wait, (what, why, remedy), findings);
            return None;
        }
        rounds.push(Some(count));
    }
    Some(rounds)
}

/// Writes the rounds of a thread out that starts at once.
fn unroll<'w>(
    thread: &'w Thread,
    rounds: u64,
    parts: &mut Vec<Part<'w>>,
    notes: &mut Vec<String>,
    findings: &mut Findings<'_>,
) -> Option<()> {
    let one = written(thread, findings)?;
    let times = match &thread.phases[..] {
        [only] if !thread.is_endless() => only.loops.times()?.saturating_mul(rounds),
        _ => rounds,
    };
    if times.saturating_mul(one.len() as u64) > STEPS_MAX {
        return too_large(thread, findings);
    }
    let events: Vec<&Event> = (0..times).flat_map(|_| one.iter().copied()).collect();
    let Some(first) = events.first() else { return Some(()) };
    let start = parts.len();
    let timer = Periodic { period: NEVER, offset: thread.delay, jobs: Some(1) };
    parts.push(part(thread, first, Some(timer), false));
    let timers = Timers { count: 0, is_last: false, jobs: None };
    cut_events(thread, events, &timers, None, parts, start, notes, findings)
}

/// Cuts events into parts, which follow those before `start`. `held` is the mutex of the first
/// wait, if it is locked there.
#[expect(clippy::too_many_arguments, reason = "the state of one walk over a loop")]
fn cut_events<'w>(
    thread: &'w Thread,
    events: Vec<&'w Event>,
    timers: &Timers,
    held: Option<&String>,
    parts: &mut Vec<Part<'w>>,
    start: usize,
    notes: &mut Vec<String>,
    findings: &mut Findings<'_>,
) -> Option<()> {
    let mut number = 0;
    let mut pending = Vec::new();
    for event in events {
        match &event.what {
            What::Timer(timer) => {
                close(parts, start, &mut pending);
                number += 1;
                let uses = timers.count;
                let length = timer.period.as_ns().checked_mul(uses).map(Span::from_ns);
                let offset = if timers.is_last && number == uses {
                    Some(Span::ZERO)
                } else {
                    let rest = timer.period.as_ns().checked_mul(number - 1);
                    rest.and_then(|rest| timer.first.checked_add(Span::from_ns(rest)))
                };
                let offset = offset.and_then(|at| at.checked_add(thread.delay));
                let (Some(period), Some(offset)) = (length, offset) else {
                    return too_large(thread, findings);
                };
                let timer = Some(Periodic { period, offset, jobs: timers.jobs });
                parts.push(part(thread, event, timer, false));
            }
            What::Wait { .. } | What::Barrier(_) => {
                // The mutex of a wait is free meanwhile; it is locked again behind.
                let mutex = match &event.what {
                    What::Wait { mutex, .. } => mutex.as_ref(),
                    _ => None,
                };
                let mut is_locked = parts.len() == start && held.is_some();
                if let Some(last) = parts[start..].last_mut() {
                    if let Some(mutex) = mutex
                        && last.job.held.iter().any(|(held, _)| held == mutex)
                    {
                        is_locked = true;
                        add(last, event, &What::Unlock(mutex.clone()), findings)?;
                    }
                    if let Some((held, _)) = last.job.held.first() {
                        return held_in_wait(held, event, findings);
                    }
                }
                close(parts, start, &mut pending);
                // Several waits without work between are one.
                let extends = parts[start..]
                    .last()
                    .is_some_and(|last| last.is_empty() && last.timer.is_none());
                if !extends {
                    let continues = parts.len() > start;
                    parts.push(part(thread, event, None, continues));
                }
                let last = parts.last_mut()?;
                match &event.what {
                    What::Wait { line, .. } => last.waits.push(line),
                    What::Barrier(name) => last.barriers.push(name),
                    _ => {}
                }
                if is_locked && let Some(mutex) = mutex {
                    add(last, event, &What::Lock(mutex.clone()), findings)?;
                }
            }
            What::Wake { line, all } => {
                pending.push((line, *all, event));
                if parts.last().is_some_and(|last| last.job.held.is_empty()) {
                    close(parts, start, &mut pending);
                } else {
                    note(notes, "a wake-up under a lock takes effect when the lock is released");
                }
            }
            what => {
                if parts.last().is_some_and(|last| !last.wakes.is_empty()) {
                    parts.push(part(thread, event, None, true));
                }
                let last = parts.last_mut()?;
                add(last, event, what, findings)?;
                if last.job.held.is_empty() {
                    close(parts, start, &mut pending);
                }
            }
        }
    }
    if let (Some(mutex), Some(last)) = (held, parts.last_mut())
        && last.job.held.iter().any(|(name, _)| name == mutex)
    {
        add(last, last.at, &What::Unlock(mutex.clone()), findings)?;
    }
    close(parts, start, &mut pending);
    if let Some(last) = parts.last()
        && let Some((held, _)) = last.job.held.first()
    {
        let what = format!("{} is still locked at the end of the loop", quoted(held));
        fail(last.at, (what, "a job gives back what it holds", "unlock it before"), findings);
        return None;
    }
    // A part without work that wakes no other thread has no effect.
    let is_idle = |parts: &[Part<'_>], at: usize| {
        let is_before = parts.get(at + 1).is_some_and(|next| next.continues);
        parts[at].is_empty() && !is_before
    };
    let mut at = start;
    while at < parts.len() {
        if is_idle(parts, at) && parts[at].barriers.is_empty() {
            parts.remove(at);
        } else {
            at += 1;
        }
    }
    Some(())
}

impl Part<'_> {
    fn is_empty(&self) -> bool {
        self.job.cost.is_zero() && self.job.marks.suspensions.is_empty() && self.wakes.is_empty()
    }
}

fn part<'w>(
    thread: &'w Thread,
    at: &'w Event,
    timer: Option<Periodic>,
    continues: bool,
) -> Part<'w> {
    Part {
        thread,
        at,
        job: Job::default(),
        timer,
        continues,
        waits: Vec::new(),
        barriers: Vec::new(),
        wakes: Vec::new(),
    }
}

fn add(part: &mut Part<'_>, event: &Event, what: &What, findings: &mut Findings<'_>) -> Option<()> {
    part.job.add(what).map_err(|wrong| fail(event, wrong, findings)).ok()
}

/// Moves the pending wake-ups to the end of the last part.
fn close<'w>(parts: &mut [Part<'w>], start: usize, pending: &mut Vec<(&'w Line, bool, &'w Event)>) {
    if let Some(last) = parts[start..].last_mut() {
        last.wakes.append(pending);
    }
}

/// Checks the timers of one loop. Returns the number of rounds of a thread that ends within the
/// run; for other threads it is endless.
fn round(
    thread: &Thread,
    timers: &[&super::workload::Timer],
    duration: Option<Span>,
    findings: &mut Findings<'_>,
) -> Option<Loops> {
    if let Some([one, other]) =
        timers.windows(2).find(|pair| pair[0] != pair[1]).and_then(|pair| pair.first_chunk::<2>())
    {
        let what = format!(
            "the timers of the thread differ: {} of {} and {} of {}",
            quoted(&one.name),
            one.period,
            quoted(&other.name),
            other.period
        );
        let why = "a task of a graph has one period";
        findings.error(&thread.at, words(what, why, "use one timer with one period"));
        return None;
    }
    let loops = match (&thread.phases[..], thread.loops) {
        ([only], Loops::Times(outer)) => {
            only.loops.times().map(|inner| outer.saturating_mul(inner))
        }
        ([only], Loops::Forever) if only.loops != Loops::Times(1) => None,
        (_, loops) => loops.times(),
    };
    let Some(loops) = loops else { return Some(Loops::Forever) };
    let length = timers.first().map(|timer| {
        timer.period.as_ns().saturating_mul(timers.len() as u64).saturating_mul(loops)
    });
    match length {
        Some(length) if duration.is_some_and(|duration| length > duration.as_ns()) => {
            Some(Loops::Forever)
        }
        Some(_) if loops <= super::shape::WRITTEN_MAX => Some(Loops::Times(loops)),
        _ => {
            let what = format!("thread {} ends after {loops} loops", quoted(&thread.name));
            let why = "a task without a timer of its own runs as often as it is activated";
            let remedy = "use an endless `loop`, or a timer and at most 10000 loops";
            findings.error(&thread.at, words(what, why, remedy));
            None
        }
    }
}

/// Adds an edge from each part that wakes a line to the parts that wait for it.
fn wake_ups(
    parts: &[Part<'_>],
    edges: &mut BTreeSet<Edge>,
    notes: &mut Vec<String>,
    findings: &mut Findings<'_>,
) -> Option<()> {
    type Ends<'p> = BTreeMap<&'p str, Vec<usize>>;
    // Parts that wait and wake, by line and thread.
    let mut waits: BTreeMap<&Line, Ends<'_>> = BTreeMap::new();
    let mut wakes: BTreeMap<&Line, Ends<'_>> = BTreeMap::new();
    for (number, part) in parts.iter().enumerate() {
        for line in &part.waits {
            waits.entry(line).or_default().entry(&part.thread.name).or_default().push(number);
        }
        for (line, ..) in &part.wakes {
            wakes.entry(line).or_default().entry(&part.thread.name).or_default().push(number);
        }
    }
    for line in wakes.keys().filter(|line| !waits.contains_key(*line)) {
        note(
            notes,
            &format!("no thread waits for {}: its wake-ups are left out", quoted(line.name())),
        );
    }
    for (line, waiting) in &waits {
        if matches!(line, Line::Condition(_)) {
            note(
                notes,
                "a wake-up that finds no waiting thread is kept here; rt-app loses that of a condition variable",
            );
        }
        let called = quoted(line.name());
        for (thread, waits) in waiting {
            let at = parts[waits[0]].at;
            let others: Vec<(&&str, &Vec<usize>)> = wakes
                .get(line)
                .into_iter()
                .flatten()
                .filter(|(waker, _)| *waker != thread)
                .collect();
            let wrong = match &others[..] {
                [] => Some((format!("no other thread wakes {called}"), "the thread waits forever")),
                [(waker, from)] if from.len() != waits.len() => Some((
                    format!(
                        "{} wakes {called} {} times in a loop, and {} waits {} times",
                        quoted(waker),
                        from.len(),
                        quoted(thread),
                        waits.len()
                    ),
                    "which wake-up ends which wait depends on the run",
                )),
                [(_, from)] => {
                    let is_for_one = from.iter().any(|from| {
                        parts[*from].wakes.iter().any(|(other, all, _)| other == line && !all)
                    });
                    // A waker that waits for the line itself is not woken by its own wake-up.
                    let waiting_others =
                        waiting.keys().filter(|other| **other != *others[0].0).count();
                    (is_for_one && waiting_others > 1).then(|| {
                        (
                            format!("{called} wakes one of {waiting_others} threads"),
                            "which one depends on the run",
                        )
                    })
                }
                [..] => Some((
                    format!("{called} is woken by {} threads", others.len()),
                    "a task is activated when all tasks before it have completed, not by any of them",
                )),
            };
            if let Some((what, why)) = wrong {
                let remedy = "use a name for each pair of a wake-up and a wait";
                fail(at, (what, why, remedy), findings);
                return None;
            }
            edges.extend(others[0].1.iter().copied().zip(waits.iter().copied()));
        }
    }
    Some(())
}

/// Adds an edge from each part in front of a barrier to each part behind it.
fn barriers(
    parts: &[Part<'_>],
    edges: &mut BTreeSet<Edge>,
    findings: &mut Findings<'_>,
) -> Option<()> {
    // Parts behind each barrier, by thread.
    let mut users: BTreeMap<&str, BTreeMap<&str, Vec<usize>>> = BTreeMap::new();
    for (number, part) in parts.iter().enumerate() {
        for name in &part.barriers {
            users.entry(name).or_default().entry(&part.thread.name).or_default().push(number);
        }
    }
    for (name, users) in users {
        let uses: BTreeSet<usize> = users.values().map(Vec::len).collect();
        let first = *users.values().flatten().next()?;
        if users.len() < 2 || uses.len() > 1 {
            let what = if users.len() < 2 {
                format!("the barrier {} has one user", quoted(name))
            } else {
                format!("the users of the barrier {} reach it differently often", quoted(name))
            };
            let why = "all threads that name a barrier wait for each other";
            let remedy = "name it in several threads, as often in each, or leave it out";
            fail(parts[first].at, (what, why, remedy), findings);
            return None;
        }
        for meeting in 0..uses.first().copied().unwrap_or(0) {
            let behind: Vec<usize> = users.values().map(|users| users[meeting]).collect();
            for &to in &behind {
                for &other in &behind {
                    if parts[other].continues {
                        edges.insert(mutate!(
                            "import-rtapp-barrier",
                            (other - 1, to),
                            (other - 1, other)
                        ));
                    }
                }
                if edges.len() > GRAPH_MAX {
                    return too_large(parts[to].thread, findings);
                }
            }
        }
    }
    Some(())
}

/// Checks the invariants of the graph.
fn check(parts: &[Part<'_>], edges: &BTreeSet<Edge>, findings: &mut Findings<'_>) -> Option<()> {
    let mut before = vec![0_usize; parts.len()];
    for (_, to) in edges {
        before[*to] += 1;
    }
    for (part, before) in parts.iter().zip(&before) {
        if part.timer.is_none() && *before == 0 {
            let what = "no thread of these has a timer in front of this".to_owned();
            let why = "a graph of tasks starts with tasks that have a period";
            let remedy = "add a `timer` to one of the threads";
            fail(part.at, (what, why, remedy), findings);
            return None;
        }
        if part.timer.is_some() && *before > 0 {
            let what = "this part has a timer and is woken by others".to_owned();
            let why = "a task arrives by itself or is activated";
            fail(part.at, (what, why, "add a `run` between the two"), findings);
            return None;
        }
    }
    // Topological order; each graph passes the period of its start on.
    let mut ready: Vec<usize> = (0..parts.len()).filter(|at| before[*at] == 0).collect();
    let mut periods: Vec<Option<Span>> =
        parts.iter().map(|part| part.timer.as_ref().map(|timer| timer.period)).collect();
    let mut done = 0;
    while let Some(from) = ready.pop() {
        done += 1;
        for (_, to) in edges.range((from, 0)..=(from, usize::MAX)) {
            if let (Some(one), Some(other)) = (periods[from], periods[*to])
                && one != other
            {
                let what = format!("this waits for threads with periods of {one} and {other}");
                let why = "the tasks of a graph have one period";
                fail(parts[*to].at, (what, why, "use timers of one period"), findings);
                return None;
            }
            periods[*to] = periods[from];
            before[*to] -= 1;
            if before[*to] == 0 {
                ready.push(*to);
            }
        }
    }
    if done < parts.len()
        && let Some(at) = before.iter().position(|before| *before > 0)
    {
        let what = "threads wait for each other in a cycle".to_owned();
        let why = "a graph of tasks has no cycle: the first wake-up would be missing";
        let remedy = "start each round with the `timer` of one thread";
        fail(parts[at].at, (what, why, remedy), findings);
        return None;
    }
    Some(())
}
