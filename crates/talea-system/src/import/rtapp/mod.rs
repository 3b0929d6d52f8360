//! rt-app's JSON in; a system file out.
//!
//! rt-app 1.0 (its tutorial is the reference): `tasks` holds threads by name, a thread has
//! `phases`, a phase has events in the order in which they are written, and both have loops. Keys
//! may repeat and carry suffixes (`run0`, `run1`). Times are whole microseconds.
//!
//! Model: what a file says is read ([`read`]); threads become tasks ([`shape`]): between two timers
//! lies a job; a thread without timers is one job that suspends itself. Who schedules them is
//! [`place`]'s: one fixed-priority root a CPU, with deadline reservations on top and the fair class
//! at the bottom.
//!
//! Held differently, each with a note in the result: relative timers start anew after an overrun
//! while jobs here queue; the fair class is round robin; `runtime` is work.

mod place;
mod read;
mod shape;

use super::{File, json, system_file};
use crate::diagnostic::Diagnostic;
use std::ops::Range;
use talea_core::Span;

/// Turns an rt-app workload into a system file, for a machine with so many CPUs; without a number,
/// with as many as the file names.
///
/// # Errors
/// Every problem that was found, with its place.
pub fn rtapp(file: File<'_>, cpus: Option<u32>) -> Result<String, Vec<Diagnostic>> {
    system_file(file, "rt-app", |text, lines, notes, findings| {
        let root = match json::parse(text) {
            Ok(root) => root,
            Err((at, words)) => return findings.error(&at, words),
        };
        let Some(workload) = read::workload(&root, notes, findings) else { return };
        let duration = workload.duration.as_ref().map(|(duration, _)| *duration);
        let tasks: Vec<Option<shape::Task<'_>>> = workload
            .threads
            .iter()
            .map(|thread| shape::task(thread, duration, notes, findings))
            .collect();
        let Some(tasks) = tasks.into_iter().collect::<Option<Vec<_>>>() else { return };
        place::write(&workload, &tasks, cpus, lines, notes, findings);
    })
}

/// The contents of a workload file.
struct Workload {
    duration: Option<(Span, Range<usize>)>,
    /// Whether locks inherit.
    inheritance: bool,
    threads: Vec<Thread>,
}

/// A thread, or several of one kind.
struct Thread {
    name: String,
    at: Range<usize>,
    instances: u32,
    delay: Span,
    loops: Loops,
    class: Class,
    /// Those that it may use; any, if empty.
    cpus: Vec<u32>,
    cpus_at: Range<usize>,
    phases: Vec<Phase>,
}

/// How often something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loops {
    Times(u64),
    Forever,
}

impl Loops {
    /// If it comes to an end.
    fn times(self) -> Option<u64> {
        match self {
            Loops::Times(times) => Some(times),
            Loops::Forever => None,
        }
    }
}

/// The scheduling class of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Fair,
    Fifo(u8),
    RoundRobin(u8),
    Deadline { runtime: Span, period: Span, deadline: Span },
}

/// Events in a loop.
struct Phase {
    at: Range<usize>,
    loops: Loops,
    events: Vec<Event>,
}

struct Event {
    at: Range<usize>,
    what: What,
}

/// Events that a task can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Run(Span),
    Sleep(Span),
    Timer(Span),
    Lock(String),
    Unlock(String),
}

/// Says it once.
fn note(notes: &mut Vec<String>, text: &str) {
    if notes.iter().all(|note| note != text) {
        notes.push(text.to_owned());
    }
}
