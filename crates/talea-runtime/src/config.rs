//! By which rules the tasks run; nothing of it is in the tasks.

use talea_core::machine::{Migration, SchedulerSpec, Selection};
use talea_core::sched::Policy;

/// Where tasks may run (YASMIN section 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mapping {
    /// On every CPU of the application, each job where there is room.
    #[default]
    Global,
    /// Each task on its core ([`Task::core`](crate::Task::core)) alone.
    Partitioned,
}

/// Who goes first (YASMIN section 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priorities {
    /// The earliest absolute deadline.
    #[default]
    Edf,
    /// The shortest period.
    RateMonotonic,
    /// The shortest relative deadline.
    DeadlineMonotonic,
    /// The largest [`Task::priority`](crate::Task::priority).
    User,
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where.
    pub mapping: Mapping,
    /// Who first.
    pub priorities: Priorities,
    /// Whether a job may be interrupted by one that goes first.
    pub preemptive: bool,
    /// Which version a job is done in.
    pub selection: Selection,
    /// Whether a job that waits for an accelerator lends its urgency to whoever holds it (YASMIN section 3.2).
    pub inheritance: bool,
    /// The machine's CPUs, as the kernel counts them; empty: the first that this process may use.
    pub cpus: Vec<u32>,
    /// Whether to insist on real-time priorities; otherwise a process without the right to them runs as well as it can, and its
    /// [`Report`](crate::Report) says so.
    pub insist: bool,
}

impl Default for Config {
    /// Global preemptive EDF on one CPU, the first version that can be had.
    fn default() -> Config {
        Config {
            mapping: Mapping::default(),
            priorities: Priorities::default(),
            preemptive: true,
            selection: Selection::default(),
            inheritance: true,
            cpus: Vec::new(),
            insist: false,
        }
    }
}

/// What a system file calls the root.
pub(crate) const ROOT: &str = "application";

impl Config {
    /// The root that it says, and when jobs may move to another CPU: never while they run, as in YASMIN.
    pub(crate) fn root(&self) -> (SchedulerSpec, Migration) {
        let policy = match self.priorities {
            Priorities::Edf => Policy::Edf,
            Priorities::RateMonotonic => Policy::RateMonotonic,
            Priorities::DeadlineMonotonic => Policy::DeadlineMonotonic,
            Priorities::User => Policy::FixedPriority,
        };
        let mut root = SchedulerSpec::new(ROOT, policy);
        root.preemptive = self.preemptive;
        (root, Migration::JobBoundaries)
    }
}
