//! Timers that several threads share, and the copies of threads that others can tell apart.
//!
//! A timer without the prefix `unique` belongs to all threads that name it. Each use adds the
//! period to its next expiry, so that each of N threads wakes at every Nth expiry. The order of the
//! first uses is that of urgency, then that of the file.

use super::workload::{Class, Event, Thread, What, note};
use std::collections::BTreeMap;
use talea_config::diagnostic::quoted;
use talea_config::source::{Findings, words};
use talea_core::Span;

/// Maximum number of events of copies.
const COPIES_MAX: usize = 20_000;

/// Writes out the instances of threads that share a timer or wait for each other, and distributes
/// the expiries of shared timers.
pub(super) fn expand(
    threads: Vec<Thread>,
    notes: &mut Vec<String>,
    findings: &mut Findings<'_>,
) -> Option<Vec<Thread>> {
    let mut all = Vec::new();
    let mut copied = 0_usize;
    for thread in threads {
        if thread.instances == 1 || !thread.events().any(is_common) {
            all.push(thread);
            continue;
        }
        copied += thread.events().count().saturating_mul(thread.instances as usize);
        if copied > COPIES_MAX {
            let what = format!(
                "the copies of threads that share timers or wait for others have more than {COPIES_MAX} events"
            );
            let why = "each of them is written out";
            findings.error(&thread.at, words(what, why, "use fewer instances"));
            return None;
        }
        for copy in 0..thread.instances {
            all.push(Thread {
                name: format!("{}{copy}", thread.name),
                instances: 1,
                ..thread.clone()
            });
        }
    }
    let mut users: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (number, thread) in all.iter().enumerate() {
        for event in thread.events() {
            if let What::Timer(timer) = &event.what
                && timer.is_shared
            {
                let users = users.entry(timer.name.clone()).or_default();
                if users.last() != Some(&number) {
                    users.push(number);
                }
            }
        }
    }
    for (name, mut users) in users {
        if users.len() < 2 {
            continue;
        }
        // The sort is stable.
        users.sort_by_key(|user| std::cmp::Reverse(urgency(all[*user].class)));
        distribute(&name, &users, &mut all, findings)?;
        note(
            notes,
            &format!(
                "the timer {} is shared: each of its {} threads takes one of {} expiries, the most urgent first",
                quoted(&name),
                users.len(),
                users.len()
            ),
        );
    }
    Some(all)
}

/// Whether copies of a thread with this event are not independent.
fn is_common(event: &Event) -> bool {
    match &event.what {
        What::Timer(timer) => timer.is_shared,
        what => what.joins(),
    }
}

/// Returns the rank of a class above others, and of a priority in it.
fn urgency(class: Class) -> (u8, u8) {
    match class {
        Class::Deadline { .. } => (2, 0),
        Class::Fifo(priority) | Class::RoundRobin(priority) => (1, priority),
        Class::Fair => (0, 0),
    }
}

/// Gives each user of a timer its own expiries.
fn distribute(
    name: &str,
    users: &[usize],
    threads: &mut [Thread],
    findings: &mut Findings<'_>,
) -> Option<()> {
    let mut common: Option<Span> = None;
    let delay = threads[users[0]].delay;
    for (place, user) in users.iter().enumerate() {
        let thread = &mut threads[*user];
        let why = if thread.delay != delay {
            Some("its threads start at different times")
        } else if !thread.is_endless() {
            Some("this thread ends, and the others then have its expiries")
        } else {
            None
        };
        if let Some(why) = why {
            let what = format!("the timer {} can't be shared here", quoted(name));
            let remedy = "give each thread its own timer: \"ref\": \"unique\"";
            findings.error(&thread.at, words(what, why, remedy));
            return None;
        }
        for event in thread.phases.iter_mut().flat_map(|phase| &mut phase.events) {
            let What::Timer(timer) = &mut event.what else { continue };
            if !timer.is_shared || timer.name != name {
                continue;
            }
            let period = *common.get_or_insert(timer.period);
            let times = |n: usize| period.as_ns().checked_mul(n as u64).map(Span::from_ns);
            let (Some(first), Some(all), true) =
                (times(place + 1), times(users.len()), timer.period == period)
            else {
                let what = format!(
                    "the shared timer {} has a period of {period} elsewhere, and of {} here",
                    quoted(name),
                    timer.period
                );
                let why = "each use adds its period to the expiry of all";
                let remedy =
                    "use one period, or give each thread its own timer: \"ref\": \"unique\"";
                findings.error(&event.at, words(what, why, remedy));
                return None;
            };
            (timer.first, timer.period) = (first, all);
        }
    }
    Some(())
}
