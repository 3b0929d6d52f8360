//! Workload of rt-app: its threads, with their phases and events.

use std::ops::Range;
use talea_core::Span;

/// Contents of a workload file.
pub(super) struct Workload {
    pub(super) duration: Option<(Span, Range<usize>)>,
    /// Whether locks have priority inheritance.
    pub(super) inheritance: bool,
    pub(super) threads: Vec<Thread>,
}

/// Thread, or several equal threads.
pub(super) struct Thread {
    pub(super) name: String,
    pub(super) at: Range<usize>,
    pub(super) instances: u32,
    pub(super) delay: Span,
    pub(super) loops: Loops,
    pub(super) class: Class,
    /// CPUs that the thread may use; any CPU if empty.
    pub(super) cpus: Vec<u32>,
    pub(super) cpus_at: Range<usize>,
    pub(super) phases: Vec<Phase>,
}

/// Number of repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loops {
    Times(u64),
    Forever,
}

impl Loops {
    /// Returns the number of repetitions; `None` if they never end.
    pub(super) fn times(self) -> Option<u64> {
        match self {
            Loops::Times(times) => Some(times),
            Loops::Forever => None,
        }
    }
}

/// Scheduling class of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Fair,
    Fifo(u8),
    RoundRobin(u8),
    Deadline { runtime: Span, period: Span, deadline: Span },
}

/// Sequence of events with a loop.
pub(super) struct Phase {
    pub(super) at: Range<usize>,
    pub(super) loops: Loops,
    pub(super) events: Vec<Event>,
}

pub(super) struct Event {
    pub(super) at: Range<usize>,
    pub(super) what: What,
}

/// Events that a task of a system file can express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Run(Span),
    Sleep(Span),
    Timer(Span),
    Lock(String),
    Unlock(String),
}

/// Appends a note, unless the list has it.
pub(super) fn note(notes: &mut Vec<String>, text: &str) {
    if notes.iter().all(|note| note != text) {
        notes.push(text.to_owned());
    }
}
