//! Errors of a description, with their messages.

use super::ids::NodeId;
use crate::{Span, Work};
use alloc::string::String;
use core::fmt;

/// Error that prevents building a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeError {
    /// Node with the error.
    pub node: NodeId,
    /// Kind of the error.
    pub kind: TreeErrorKind,
}

/// Kinds of errors of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TreeErrorKind {
    /// The number of CPUs of a root is outside 1 to 64.
    CpuCount(u32),
    /// A time-sharing scheduler is below a scheduler that does not share time (SF3P section IV).
    ///
    /// Two exceptions are valid: a time-sharing root, and one directly below an `fp` root (PikeOS).
    TimeSharing {
        /// Policy of the parent.
        under: &'static str,
    },
    /// A root with several CPUs has a server, or a policy that divides time instead of ordering the
    /// children.
    ManyCpus {
        /// Name of the policy without support for several CPUs, or `a server`.
        policy: &'static str,
    },
    /// A task with nonpreemptive sections is on several CPUs, or below a table of time.
    Sections,
    /// A slot overlaps the previous one, is empty or exceeds the frame.
    Slot {
        /// Index of the slot, from 0.
        index: usize,
    },
    /// A slot belongs to a child that does not exist.
    SlotOwner {
        /// Index of the slot, from 0.
        index: usize,
        /// Number of children.
        children: usize,
    },
    /// A quantum is zero, or a frame is zero, longer than 2^61 ns or without slots.
    ZeroLength(&'static str),
    /// A budget is zero, or does not fit before its deadline or period.
    Budget {
        /// Q: the budget.
        budget: Work,
        /// Upper limit: min(D, T).
        within: Span,
    },
    /// The deadline D of a server is zero or exceeds its period.
    ServerDeadline,
    /// The offset of a server is not shorter than its period.
    Offset,
    /// A reservation is inside a time partition, but is valid only in the system partition (L3C
    /// section 4.1).
    ServerInPartition,
    /// A node has an affinity but is no child of a root with several CPUs, or the affinity has none
    /// of the root's CPUs.
    Affinity,
    /// The children of a root have more than 64 distinct sets of CPUs.
    TooManyCpuSets(usize),
    /// A version uses an unknown accelerator, or a task an unknown resource.
    Unknown {
        /// Kind of the unknown item.
        what: &'static str,
        /// Number of the item.
        number: u32,
    },
    /// A collection exceeds its limit.
    TooMany {
        /// Kind of the items.
        what: &'static str,
        /// Maximum number of items.
        most: usize,
    },
    /// The weight of a trade-off exceeds 1000 thousandths.
    Weight(u32),
    /// A channel is invalid.
    Channel {
        /// Index of the channel, from 0.
        index: usize,
        /// Reason.
        what: &'static str,
    },
    /// The graph has a cycle, which contains the task or precedes it.
    Cycle,
    /// Two graph roots of one graph have different periods or deadlines.
    GraphRoots {
        /// First graph root.
        one: NodeId,
        /// Second graph root.
        other: NodeId,
    },
    /// The task inherits period and deadline from graph roots, and has no predecessor.
    NoGraphRoot,
    /// An off-line table is not at a root.
    TableNotAtRoot,
    /// An entry of an off-line table is invalid.
    TableEntry {
        /// Index of the entry, from 0.
        index: usize,
        /// Reason.
        what: &'static str,
    },
    /// The parent's policy does not admit the node.
    NotAdmitted {
        /// Name of the policy in system files.
        policy: &'static str,
        /// Reason of the policy.
        why: String,
    },
    /// The servers are overbooked (L23): the sum of Q/T of the topmost servers exceeds the capacity
    /// that they share.
    Overbooked {
        /// The sum in millionths of a CPU, rounded; at least one more than the capacity.
        requested: u64,
        /// The capacity in millionths of a CPU.
        available: u64,
    },
    /// A period or deadline is zero, or longer than 2^61 ns.
    OutOfRange(&'static str),
    /// The parent does not exist, is a task, or follows the node in the tree.
    Parent,
    /// The tree has a second root.
    SecondRoot,
}

impl fmt::Display for TreeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeErrorKind::CpuCount(n) => write!(f, "a root owns 1 to 64 CPUs, not {n}"),
            TreeErrorKind::TimeSharing { under } => {
                write!(f, "a partition table may be at the root, below another table or directly below an `fp` root, \
                 not below `{under}`")
            }
            TreeErrorKind::ManyCpus { policy } => write!(f, "`{policy}` serves one CPU; a root with several needs an order such as edf, fp or rm"),
            TreeErrorKind::Slot { index } => {
                write!(f, "slot {index} is empty, overlaps the previous slot or exceeds the frame")
            }
            TreeErrorKind::SlotOwner { index, children } => {
                write!(f, "slot {index} belongs to a child that does not exist; there are {children}")
            }
            TreeErrorKind::ZeroLength(what) => write!(f, "{what} must be longer than zero"),
            TreeErrorKind::Budget { budget, within } => write!(f, "a budget of {budget} must be positive and fit within {within}"),
            TreeErrorKind::ServerDeadline => f.write_str("the deadline of a server must lie within its period"),
            TreeErrorKind::Offset => f.write_str("the offset of a server must be shorter than its period"),
            TreeErrorKind::ServerInPartition => {
                f.write_str("a reservation must be in the system partition; a time partition has its slots")
            }
            TreeErrorKind::Sections => f.write_str(
                "sections that no sibling preempts need one CPU, and a scheduler without a table above the task",
            ),
            TreeErrorKind::Affinity => f.write_str(
                "a set of CPUs is for a child of a root with several CPUs and must name at least one of them",
            ),
            TreeErrorKind::TooManyCpuSets(n) => write!(f, "{n} different sets of CPUs; a root has at most 64"),
            TreeErrorKind::Unknown { what, number } => write!(f, "there is no {what} {number}"),
            TreeErrorKind::TooMany { what, most } => write!(f, "too many {what}: at most {most}"),
            TreeErrorKind::Weight(weight) => write!(f, "a weight of {weight}; it must be 0 to 1000 thousandths"),
            TreeErrorKind::Channel { index, what } => write!(f, "channel {index}: {what}"),
            TreeErrorKind::Cycle => f.write_str("it is its own predecessor: the graph has a cycle"),
            TreeErrorKind::GraphRoots { one, other } => write!(
                f,
                "nodes {} and {} are roots of one graph and must have the same period and deadline",
                one.0, other.0
            ),
            TreeErrorKind::NoGraphRoot => f.write_str(
                "a node without predecessors inherits no period and deadline; give it its own",
            ),
            TreeErrorKind::TableNotAtRoot => f.write_str("an off-line table is for a root and all its CPUs"),
            TreeErrorKind::TableEntry { index, what } => write!(f, "entry {index} {what}"),
            TreeErrorKind::NotAdmitted { policy, why } => write!(f, "`{policy}` does not admit it: {why}"),
            TreeErrorKind::Overbooked { requested, available } => write!(
                f,
                "its servers have reservations of {} per cent of a CPU in total, and it has {}",
                Percent(*requested),
                Percent(*available)
            ),
            TreeErrorKind::OutOfRange(what) => write!(f, "{what} must be positive and at most 2^61 ns"),
            TreeErrorKind::Parent => f.write_str("its parent is not a scheduler of this tree"),
            TreeErrorKind::SecondRoot => f.write_str("a tree has one root"),
        }
    }
}

/// Displays millionths as a percentage.
struct Percent(u64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 10_000, self.0 % 10_000);
        if part == 0 { write!(f, "{whole}") } else { write!(f, "{whole}.{part:04}") }
    }
}
