//! What a machine knows of its nodes, its tasks and its CPUs.

use super::jobs;
use crate::criteria::Own;
use crate::sched::{self, Child, Entry};
use crate::{Span, Time, server};

pub(super) const NONE: u32 = u32::MAX;
/// It waits for something that is not a CPU, says the driver.
pub(super) const BLOCKED: u8 = 1;
/// It waits for something that another job holds.
pub(super) const STALLED: u8 = 2;

/// A node: what its parent knows of it. One cache line, as [`Task`].
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Runnable {
    /// As its parent's policy sees it.
    pub(super) entry: Entry,
    /// The scheduler above; [`NONE`] for the root.
    pub(super) parent: u32,
    pub(super) eligible: bool,
    /// Something has been lent to it.
    pub(super) boosted: bool,
    /// Of a task: whether a scheduler above counts what it consumes.
    pub(super) metered: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Task(u32),
    Group(u32),
}

/// A child of a group: its node, and what that is. In one place and small, for a decision looks one
/// up among perhaps ten thousand before it knows where to look next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kid {
    pub(super) node: u32,
    /// The number of its task, or with [`Kid::GROUP`] of its group.
    number: u32,
}

impl Kid {
    const GROUP: u32 = 1 << 31;
    /// The root, which is nobody's child.
    pub(super) const ROOT: Kid = Kid { node: 0, number: Kid::GROUP };

    pub(super) fn new(node: u32, what: What) -> Kid {
        let number = match what {
            What::Task(task) => task,
            What::Group(group) => group | Kid::GROUP,
        };
        Kid { node, number }
    }

    #[inline]
    pub(super) fn what(self) -> What {
        if self.number & Kid::GROUP == 0 {
            What::Task(self.number)
        } else {
            What::Group(self.number & !Kid::GROUP)
        }
    }
}

/// A scheduler at work.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) policy: sched::Built,
    pub(super) server: Option<server::Built>,
    /// The deadline of the server when somebody last looked: with another one it is another job of
    /// it.
    pub(super) due: Time,
    pub(super) own: Own,
    pub(super) node: u32,
    /// Where its children begin in [`Machine::kids`](super::Machine).
    pub(super) kids: u32,
    /// Whether a child is ready: what the server was told last.
    pub(super) pending: bool,
    pub(super) preemptive: bool,
    /// The child under way, of a scheduler that does not preempt.
    pub(super) current: Option<Child>,
    /// Whether consumption matters to the policy or the server.
    pub(super) metered: bool,
    /// Whether it is in [`Machine::spent`](super::Machine).
    pub(super) is_spent: bool,
}

/// A task at work: one cache line, for a decision looks at two tasks of perhaps ten thousand.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Task {
    pub(super) ring: jobs::Ring,
    pub(super) deadline: Span,
    pub(super) node: u32,
    /// A job is under way and released.
    pub(super) released: bool,
    /// It has had a CPU; counted only where that binds it.
    pub(super) started: bool,
    /// Why the job may not run although it is released: [`BLOCKED`], [`STALLED`].
    pub(super) held: u8,
}

/// A task that has a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Picked {
    pub(super) task: u32,
    pub(super) metered: bool,
}

/// What a CPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Doing {
    /// Whose job; [`NONE`]: nothing.
    pub(super) task: u32,
    pub(super) job: u64,
}

impl Doing {
    pub(super) const NOTHING: Doing = Doing { task: NONE, job: 0 };

    #[inline]
    pub(super) fn task(self) -> Option<u32> {
        (self.task != NONE).then_some(self.task)
    }
}

#[derive(Debug)]
pub(super) struct CpuState {
    /// As ordered.
    pub(super) actual: Doing,
    /// As decided.
    pub(super) target: Doing,
    /// When a budget or a quantum of the path that runs would be used up at full speed.
    pub(super) expiry: Time,
    pub(super) metered: bool,
}

const _: () = assert!(size_of::<Task>() == 64 && size_of::<Runnable>() == 64, "a cache line each");
