//! Specifications of schedulers and tasks.

use super::ids::ResourceId;
use super::versions::Version;
use crate::criteria::Overrides;
use crate::sched::PolicySpec;
use crate::server::Reservation;
use crate::{Span, Work};
use alloc::string::String;
use alloc::vec::Vec;

/// A scheduler: an inner node.
#[derive(Clone, Debug)]
pub struct SchedulerSpec {
    /// Name for display.
    pub name: String,
    /// Order of the children.
    pub policy: PolicySpec,
    /// Whether a sibling may preempt a child.
    ///
    /// The parent may preempt the node in any case. The current child then resumes when the node is
    /// dispatched again.
    pub preemptive: bool,
    /// Values that the scheduler presents to its parent instead of its head's criteria.
    pub overrides: Overrides,
    /// Reservation of the scheduler's server; `None` for a scheduler without a server.
    pub reservation: Option<Reservation>,
    /// CPUs that the scheduler may use; only for a child of a root with several CPUs.
    pub affinity: Affinity,
}

impl SchedulerSpec {
    /// Creates a preemptive scheduler without overrides and reservation.
    pub fn new(name: &str, policy: PolicySpec) -> SchedulerSpec {
        SchedulerSpec {
            name: name.into(),
            policy,
            preemptive: true,
            overrides: Overrides::default(),
            reservation: None,
            affinity: Affinity::ANY,
        }
    }
}

/// CPUs of a root that a child may use: bit k is CPU k.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Affinity(pub u64);

impl Affinity {
    /// All CPUs.
    pub const ANY: Affinity = Affinity(u64::MAX);

    /// Returns the set of exactly one CPU.
    pub const fn only(cpu: u32) -> Affinity {
        Affinity(1 << cpu)
    }
}

/// Instants at which siblings may preempt a job of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preemption {
    /// At any instant.
    #[default]
    Anywhere,
    /// At preemption points, which the driver reports ([`Event::PreemptionPoint`]). A job begins in
    /// a nonpreemptive section.
    ///
    /// [`Event::PreemptionPoint`]: super::Event::PreemptionPoint
    AtPoints,
    /// Outside of nonpreemptive sections, whose begin and end the driver reports.
    Floating,
}

/// Limit of pending jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Number of jobs that may wait behind the current job.
    pub capacity: u32,
}

impl Default for Backlog {
    /// Returns a capacity of 64 jobs.
    fn default() -> Backlog {
        Backlog { capacity: 64 }
    }
}

/// A task: a leaf.
#[derive(Clone, Debug)]
pub struct TaskSpec {
    /// Name for display.
    pub name: String,
    /// T: period, or minimum separation. The key of `rm`.
    pub period: Span,
    /// D: relative deadline, shorter or longer than the period. The deadline counts from the
    /// arrival, or from a release that enforced separation delays.
    pub deadline: Span,
    /// Priority, 0..=255; larger is more urgent.
    pub priority: u8,
    /// Criticality level; larger is more critical.
    pub criticality: u8,
    /// C: largest cost of a job, if known. External policies receive it, and the engine does not
    /// enforce it.
    pub cost: Option<Work>,
    /// Whether the engine enforces the minimum separation: an early job is released late (Y13).
    pub enforced: bool,
    /// Limit of pending jobs. The engine refuses further jobs, and the driver counts them.
    pub backlog: Backlog,
    /// Instants at which siblings may preempt a job; only [`Preemption::Anywhere`] on several CPUs
    /// and below `partitions` and `table`.
    pub preemption: Preemption,
    /// CPUs that the task may use; only for a child of a root with several CPUs.
    pub affinity: Affinity,
    /// Versions in the order of preference. Empty: a single version without a name.
    pub versions: Vec<Version>,
    /// Shared resources that the task's jobs lock. The ceilings follow from them.
    pub uses: Vec<ResourceId>,
    /// Whether the task inherits period, deadline, priority and criticality from its graph roots.
    ///
    /// This is valid only for a task with predecessors. Of several graph roots, the most urgent
    /// values apply. The values in this specification are ignored.
    pub inherits: bool,
}

impl TaskSpec {
    /// Creates a task with an implicit deadline.
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
            preemption: Preemption::Anywhere,
            affinity: Affinity::ANY,
            versions: Vec::new(),
            uses: Vec::new(),
            inherits: false,
        }
    }

    /// Creates a task that a graph activates, and that inherits all criteria from the graph roots.
    pub fn node(name: &str) -> TaskSpec {
        TaskSpec { inherits: true, ..TaskSpec::new(name, Span::ZERO) }
    }

    /// Creates a task that is activated explicitly, without a regular pattern (YASMIN section 2).
    ///
    /// The period equals the deadline, and matters only to policies that order by the period.
    pub fn activated(name: &str, deadline: Span) -> TaskSpec {
        TaskSpec::new(name, deadline)
    }
}

/// Specification of a node.
#[derive(Clone, Debug)]
pub enum NodeSpec {
    /// An inner node.
    Scheduler(SchedulerSpec),
    /// A leaf.
    Task(TaskSpec),
}
