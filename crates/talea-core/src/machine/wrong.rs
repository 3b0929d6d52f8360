//! What can be wrong with a description, in words.

use super::tree::NodeId;
use crate::{Span, Work};
use alloc::string::String;
use core::fmt;

/// Why a tree can't be built. `node` is where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeError {
    /// The node that is wrong.
    pub node: NodeId,
    /// What is wrong with it.
    pub why: Wrong,
}

/// What is wrong with a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wrong {
    /// A root needs at least one CPU, at most 64.
    Cpus(u32),
    /// Time sharing stands only under time sharing, with two exceptions (SF3P section IV): directly
    /// under an `fp` root (PikeOS), or as the root.
    TimeSharing {
        /// The policy above it.
        under: &'static str,
    },
    /// A root with several CPUs orders its children, it can't share out their time.
    ManyCpus {
        /// The policy that can't.
        policy: &'static str,
    },
    /// A slot begins before the one before it has ended, is empty or reaches beyond the frame.
    Slot {
        /// Which, from 0.
        index: usize,
    },
    /// A slot belongs to a child that is not there.
    SlotOwner {
        /// Which, from 0.
        index: usize,
        /// How many children there are.
        children: usize,
    },
    /// A frame or a quantum of nothing.
    Empty(&'static str),
    /// A budget of nothing, or one that does not fit before its deadline or period.
    Budget {
        /// Q.
        budget: Work,
        /// min(D, T).
        within: Span,
    },
    /// D of a server lies beyond its period.
    ServerDeadline,
    /// An offset of a server must be shorter than its period.
    Offset,
    /// Reservations stand in the system partition only (L3C section 4.1): not in a time partition.
    ServerInPartition,
    /// A CPU set belongs to a child of a root with several CPUs, and has one of them at least.
    Affinity,
    /// More sets of CPUs than a root keeps apart.
    Affinities(usize),
    /// At most 64 versions a task, 64 accelerators a root; they exist, and so do resources.
    Unknown {
        /// What is not there.
        what: &'static str,
        /// Its number.
        number: u32,
    },
    /// More of something than fits.
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        most: usize,
    },
    /// A trade-off's weight is beyond 1000 thousandths.
    Weight(u32),
    /// A channel is wrong.
    Channel {
        /// Which, from 0.
        index: usize,
        /// Why.
        what: &'static str,
    },
    /// The task comes before itself in its graph.
    Circle,
    /// The task is activated by two roots that don't keep step.
    GraphRoots {
        /// One root.
        one: NodeId,
        /// The other.
        other: NodeId,
    },
    /// It is said to take its period and deadline from the roots of a graph, and nobody comes
    /// before it.
    NoRoot,
    /// An off-line table is the business of a root.
    TableBelow,
    /// An entry of a table is wrong.
    Entry {
        /// Which, from 0.
        index: usize,
        /// Why.
        what: &'static str,
    },
    /// The policy above does not take it.
    NotAdmitted {
        /// What a system file calls the policy.
        policy: &'static str,
        /// What it says.
        why: String,
    },
    /// Servers are promised more than there is (L23): the sum of Q/T, of those that have no server
    /// between, is beyond what they share.
    Overbooked {
        /// The sum, in millionths of a CPU, rounded; at least one more than what is there.
        asked: u64,
        /// What is there, likewise.
        there: u64,
    },
    /// A task without a period, or a time beyond 2^61 ns.
    Range(&'static str),
    /// The parent does not exist or is a task.
    Parent,
    /// A second root.
    SecondRoot,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Cpus(n) => write!(f, "a root owns 1 to 64 CPUs, not {n}"),
            Wrong::TimeSharing { under } => {
                write!(f, "a partition table stands at the root, under another one, or directly under an `fp` root, not under `{under}`")
            }
            Wrong::ManyCpus { policy } => write!(f, "`{policy}` serves one CPU; a root with several needs an order such as edf, fp or rm"),
            Wrong::Slot { index } => {
                write!(f, "slot {index} is empty, overlaps the one before or reaches beyond the frame")
            }
            Wrong::SlotOwner { index, children } => {
                write!(f, "slot {index} belongs to a child that does not exist; there are {children}")
            }
            Wrong::Empty(what) => write!(f, "{what} must be longer than nothing"),
            Wrong::Budget { budget, within } => write!(f, "a budget of {budget} must be positive and fit within {within}"),
            Wrong::ServerDeadline => f.write_str("the deadline of a server lies within its period"),
            Wrong::Offset => f.write_str("the offset of a server is shorter than its period"),
            Wrong::ServerInPartition => {
                f.write_str("reservations belong to the system partition; a time partition has its slots")
            }
            Wrong::Affinity => f.write_str(
                "a set of CPUs belongs to a child of a root with several CPUs and names at least one of them",
            ),
            Wrong::Affinities(n) => write!(f, "{n} different sets of CPUs; a root keeps at most 64 apart"),
            Wrong::Unknown { what, number } => write!(f, "there is no {what} {number}"),
            Wrong::TooMany { what, most } => write!(f, "too many {what}: at most {most}"),
            Wrong::Weight(weight) => write!(f, "a weight of {weight}; it is given in thousandths, 0 to 1000"),
            Wrong::Channel { index, what } => write!(f, "channel {index}: {what}"),
            Wrong::Circle => f.write_str("it would have to end before it can begin: the graph has a circle"),
            Wrong::GraphRoots { one, other } => write!(
                f,
                "nodes {} and {} start one graph and must have the same period and deadline",
                one.0, other.0
            ),
            Wrong::NoRoot => f.write_str(
                "a node without predecessors has nobody to take its period and deadline from; give it its own",
            ),
            Wrong::TableBelow => f.write_str("an off-line table is for a root and all its CPUs"),
            Wrong::Entry { index, what } => write!(f, "entry {index} {what}"),
            Wrong::NotAdmitted { policy, why } => write!(f, "`{policy}` does not take it: {why}"),
            Wrong::Overbooked { asked, there } => write!(
                f,
                "the servers in it are promised {} per cent of a CPU together, and it has {}",
                Percent(*asked),
                Percent(*there)
            ),
            Wrong::Range(what) => write!(f, "{what} must be positive and at most 2^61 ns"),
            Wrong::Parent => f.write_str("its parent is not a scheduler of this tree"),
            Wrong::SecondRoot => f.write_str("a tree has one root"),
        }
    }
}

/// Millionths, for people.
struct Percent(u64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 10_000, self.0 % 10_000);
        if part == 0 { write!(f, "{whole}") } else { write!(f, "{whole}.{part:04}") }
    }
}
