//! What a scheduler and a task are said to be, before anything runs.

use super::sharing::ResourceId;
use super::versions::Version;
use crate::criteria::Own;
use crate::sched::Policy;
use crate::server::Reservation;
use crate::{Span, Work};
use alloc::string::String;
use alloc::vec::Vec;

/// A scheduler: an inner node.
#[derive(Clone, Debug)]
pub struct SchedulerSpec {
    /// For people.
    pub name: String,
    /// How its children are ordered.
    pub policy: Policy,
    /// Whether a child may be interrupted in favour of a sibling. The parent may interrupt the node
    /// in any case, and a child that was under way goes on when the node comes back.
    pub preemptive: bool,
    /// What it shows its parent instead of its head's criteria.
    pub own: Own,
    /// The reservation that gates it, if it is a server.
    pub reservation: Option<Reservation>,
    /// For a child of a root with several CPUs: those it may use.
    pub affinity: Affinity,
}

impl SchedulerSpec {
    /// A preemptive scheduler that shows its head's criteria.
    pub fn new(name: &str, policy: Policy) -> SchedulerSpec {
        SchedulerSpec {
            name: name.into(),
            policy,
            preemptive: true,
            own: Own::default(),
            reservation: None,
            affinity: Affinity::ANY,
        }
    }
}

/// CPUs of a root that a child of it may use: bit k is CPU k.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Affinity(pub u64);

impl Affinity {
    /// All of them.
    pub const ANY: Affinity = Affinity(u64::MAX);

    /// One.
    pub const fn only(cpu: u32) -> Affinity {
        Affinity(1 << cpu)
    }
}

/// What becomes of a job that arrives while so many are waiting already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Jobs that may wait behind the one under way.
    pub capacity: u32,
}

impl Default for Backlog {
    /// 64 jobs.
    fn default() -> Backlog {
        Backlog { capacity: 64 }
    }
}

/// A task: a leaf.
#[derive(Clone, Debug)]
pub struct TaskSpec {
    /// For people.
    pub name: String,
    /// T: period, or least separation. Orders under `rm`.
    pub period: Span,
    /// D: relative deadline, counted from the release. Shorter than, equal to or longer than the
    /// period.
    pub deadline: Span,
    /// 0..=255, larger is more urgent.
    pub priority: u8,
    /// Larger is more critical.
    pub criticality: u8,
    /// C: what a job consumes at most, where that is known. Told to policies from outside; the
    /// machine enforces nothing.
    pub cost: Option<Work>,
    /// Whether the machine keeps jobs at least a period apart: a job that comes early is released
    /// late (Y13).
    pub enforced: bool,
    /// Jobs beyond are refused, and counted by the driver.
    pub backlog: Backlog,
    /// For a child of a root with several CPUs: those it may use.
    pub affinity: Affinity,
    /// In the order of preference; none: there is one, without a name.
    pub versions: Vec<Version>,
    /// The shared resources that its jobs lock: ceilings are computed from it.
    pub uses: Vec<ResourceId>,
    /// For a node of a graph with predecessors: period, deadline, priority and criticality are
    /// those of the graph's roots (the most urgent of them), whatever is written here.
    pub inherits: bool,
}

impl TaskSpec {
    /// A task with an implicit deadline.
    pub fn new(name: &str, period: Span) -> TaskSpec {
        TaskSpec {
            name: name.into(),
            period,
            deadline: period,
            priority: 0,
            criticality: 0,
            cost: None,
            enforced: false,
            backlog: Backlog::default(),
            affinity: Affinity::ANY,
            versions: Vec::new(),
            uses: Vec::new(),
            inherits: false,
        }
    }

    /// A task that a graph activates, with everything else from the graph's roots.
    pub fn node(name: &str) -> TaskSpec {
        TaskSpec { inherits: true, ..TaskSpec::new(name, Span::ZERO) }
    }

    /// A task that somebody activates now and then (YASMIN section 2: no regular pattern). Its
    /// period is of use only to policies that order by it.
    pub fn activated(name: &str, deadline: Span) -> TaskSpec {
        TaskSpec::new(name, deadline)
    }
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum Body {
    /// An inner node.
    Scheduler(SchedulerSpec),
    /// A leaf.
    Task(TaskSpec),
}
