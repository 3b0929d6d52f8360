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
#[derive(Clone)]
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

impl Thread {
    /// Returns the events of one loop, each phase once.
    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.phases.iter().flat_map(|phase| &phase.events)
    }

    /// Whether the thread never ends: its loop or its last phase repeats forever.
    pub(super) fn is_endless(&self) -> bool {
        self.loops == Loops::Forever
            || self.phases.iter().any(|phase| phase.loops == Loops::Forever)
    }
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
#[derive(Clone)]
pub(super) struct Phase {
    pub(super) at: Range<usize>,
    pub(super) loops: Loops,
    pub(super) events: Vec<Event>,
}

#[derive(Clone)]
pub(super) struct Event {
    pub(super) at: Range<usize>,
    pub(super) what: What,
}

/// Event of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Run(Span),
    Sleep(Span),
    Timer(Timer),
    Lock(String),
    Unlock(String),
    /// Wakes one thread that waits for the line, or all.
    Wake {
        line: Line,
        all: bool,
    },
    /// Waits for the line, without the mutex.
    Wait {
        line: Line,
        mutex: Option<String>,
    },
    /// Waits until all users of the name have reached it.
    Barrier(String),
}

impl What {
    /// Whether the event joins the thread with others.
    pub(super) fn joins(&self) -> bool {
        matches!(self, What::Wake { .. } | What::Wait { .. } | What::Barrier(_))
    }
}

/// Use of a timer. The first use in the thread ends at `first`, each further one `period` later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timer {
    pub(super) name: String,
    /// Whether other threads and copies with a timer of this name use the same timer.
    pub(super) is_shared: bool,
    pub(super) first: Span,
    pub(super) period: Span,
}

/// Condition variable or semaphore. `resume`, `suspend`, `signal` and `wait` use condition
/// variables.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Line {
    Condition(String),
    Semaphore(String),
}

impl Line {
    pub(super) fn name(&self) -> &str {
        let (Line::Condition(name) | Line::Semaphore(name)) = self;
        name
    }
}

/// Appends a note, unless the list has it.
pub(super) fn note(notes: &mut Vec<String>, text: &str) {
    if notes.iter().all(|note| note != text) {
        notes.push(text.to_owned());
    }
}
