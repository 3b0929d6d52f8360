//! Run-time state of nodes, tasks and CPUs.

use super::ids::NodeId;
use super::jobs;
use crate::criteria::Overrides;
use crate::sched::{self, Child, ReadyChild};
use crate::{Span, Time, server};
use alloc::vec::Vec;

pub(super) const NONE: u32 = u32::MAX;
/// The driver has reported that the job waits for an event other than a CPU.
pub(super) const SELF_SUSPENDED: u8 = 1;
/// The job waits for a resource or an accelerator that another job holds.
pub(super) const AWAITS_RESOURCE: u8 = 2;

/// The current job is in a nonpreemptive section, or begins one at its next dispatch.
pub(super) const IN_SECTION: u8 = 1;
/// Each job begins with a nonpreemptive section.
pub(super) const BEGINS_IN_SECTION: u8 = 2;

/// State of a node as its parent needs it. The state fills exactly one cache line, like
/// [`TaskState`].
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Runnable {
    /// Entry in the policy of the parent.
    pub(super) entry: ReadyChild,
    /// The parent scheduler; [`NONE`] for the root.
    pub(super) parent: u32,
    pub(super) eligible: bool,
    /// Whether the node has inherited criteria.
    pub(super) boosted: bool,
    /// Whether a scheduler above this task accounts its consumption.
    pub(super) accounted: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum NodeKind {
    Task(u32),
    Scheduler(u32),
}

/// A child of a scheduler: its node, and the index of its task or scheduler.
///
/// The reference is compact: a decision accesses one among up to ten thousand children before any
/// other data.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChildRef {
    pub(super) node: u32,
    /// Index of the task, or with [`ChildRef::SCHEDULER`] of the scheduler.
    number: u32,
}

impl ChildRef {
    const SCHEDULER: u32 = 1 << 31;
    /// The root, which has no parent.
    pub(super) const ROOT: ChildRef = ChildRef { node: 0, number: ChildRef::SCHEDULER };

    pub(super) fn new(node: u32, kind: NodeKind) -> ChildRef {
        let number = match kind {
            NodeKind::Task(task) => task,
            NodeKind::Scheduler(scheduler) => scheduler | ChildRef::SCHEDULER,
        };
        ChildRef { node, number }
    }

    #[inline]
    pub(super) fn kind(self) -> NodeKind {
        if self.number & ChildRef::SCHEDULER == 0 {
            NodeKind::Task(self.number)
        } else {
            NodeKind::Scheduler(self.number & !ChildRef::SCHEDULER)
        }
    }
}

/// Parts of the tree that do not change after the build.
///
/// Invariants:
/// 1. `node_kinds` and `ids` have one entry for each node.
/// 2. The children of a scheduler are consecutive, and those of the root come first.
#[derive(Debug)]
pub(super) struct TreeShape {
    /// `node_kinds[n]`: whether node `n` is a task or a scheduler, with its index.
    pub(super) node_kinds: Vec<NodeKind>,
    /// `ids[n]`: the node of the tree from which node `n` was built.
    pub(super) ids: Vec<NodeId>,
    pub(super) children: Vec<ChildRef>,
    pub(super) nonpreemptive: NonpreemptiveParts,
    /// Whether some scheduler accounts the consumption of its children.
    pub(super) any_accounting: bool,
}

/// Next decision, and orders of the last decision that were not polled.
///
/// Invariants:
/// 1. A CPU has an order exactly if its linked assignment is not its scheduled one: in `stops` to
///    idle, in `starts` to run a job.
/// 2. A decision is made only if no order is left.
#[derive(Debug)]
pub(super) struct DecisionState {
    /// Whether a decision is due.
    pub(super) need_resched: bool,
    /// Bit mask of CPUs whose task may change although the root's choice is unchanged.
    pub(super) cpus_to_recheck: u64,
    /// Bit mask of CPUs with a pending order to idle.
    pub(super) stops: u64,
    /// Bit mask of CPUs with a pending order to run a job.
    pub(super) starts: u64,
    /// Whether orders of the last decision were polled and their end is not yet reported to the
    /// observer.
    pub(super) orders_polled: bool,
}

/// Run-time state of a scheduler.
#[derive(Debug)]
pub(super) struct SchedulerNode {
    pub(super) policy: sched::PolicyImpl,
    pub(super) server: Option<server::ServerImpl>,
    /// Deadline of the server at the last propagation. Another deadline means another job of the
    /// server.
    pub(super) last_deadline: Time,
    pub(super) overrides: Overrides,
    pub(super) node: u32,
    /// Index of the first child in [`TreeShape::children`].
    pub(super) first_child: u32,
    /// Whether a child is ready, as last reported to the server.
    pub(super) pending: bool,
    pub(super) preemptive: bool,
    /// Current child of a nonpreemptive scheduler, or child task in a nonpreemptive section.
    pub(super) current: Option<Child>,
    /// Whether the policy or the server needs the consumption of the children.
    pub(super) needs_accounting: bool,
    /// Whether the scheduler is in [`Engine::exhausted`](super::Engine).
    pub(super) is_exhausted: bool,
}

/// Run-time state of a task. The state fills exactly one cache line, because a decision accesses
/// two tasks out of up to ten thousand.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct TaskState {
    pub(super) jobs: jobs::JobQueue,
    pub(super) deadline: Span,
    pub(super) node: u32,
    /// Whether the current job is released.
    pub(super) released: bool,
    /// Whether the current job has had a CPU. The flag is maintained only if jobs are bound to
    /// CPUs.
    pub(super) started: bool,
    /// Reasons why the released job may not run: [`SELF_SUSPENDED`], [`AWAITS_RESOURCE`].
    pub(super) blocked_on: u8,
    /// [`IN_SECTION`] and [`BEGINS_IN_SECTION`].
    pub(super) section: u8,
}

/// Nonpreemptive parts of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NonpreemptiveParts {
    None,
    /// Some scheduler is nonpreemptive.
    Schedulers,
    /// Some task has nonpreemptive sections, and perhaps some scheduler is nonpreemptive.
    Sections,
}

impl NonpreemptiveParts {
    /// Whether a scheduler may have a current child.
    #[inline]
    pub(super) fn any(self) -> bool {
        self != NonpreemptiveParts::None
    }

    /// Whether a task may be in a nonpreemptive section.
    #[inline]
    pub(super) fn has_sections(self) -> bool {
        self == NonpreemptiveParts::Sections
    }
}

/// Task that a decision has selected for a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) task: u32,
    pub(super) accounted: bool,
}

/// Job that is assigned to a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    /// Task of the job, or [`NONE`] for an idle CPU.
    pub(super) task: u32,
    pub(super) job: u64,
}

impl Assignment {
    pub(super) const IDLE: Assignment = Assignment { task: NONE, job: 0 };

    #[inline]
    pub(super) fn task(self) -> Option<u32> {
        (self.task != NONE).then_some(self.task)
    }
}

#[derive(Debug)]
pub(super) struct CpuState {
    /// Assignment of the last order.
    pub(super) scheduled: Assignment,
    /// Assignment of the last decision.
    pub(super) linked: Assignment,
    /// Predicted end of a budget or quantum on the running path, at full speed.
    pub(super) budget_end: Time,
    pub(super) accounted: bool,
}

const _: () =
    assert!(size_of::<TaskState>() == 64 && size_of::<Runnable>() == 64, "a cache line each");
