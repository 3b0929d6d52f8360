//! Scheduling policies: one for each scheduler of the tree, one file each.
//!
//! A policy knows its children by number, their criteria and the current time. It owns no thread
//! and no clock, and does not know the tree (L3C section 4.2: a plug-in calls the frame, never the
//! core). It answers two queries: the first child ([`Policy::head`]), and whether one child
//! precedes another ([`Policy::before`]). The second query lets a root with several CPUs compare
//! waiting and running children.
//!
//! [`PolicySpec`] lists the policies. The compiler reports every place that must handle a new
//! variant.
//!
//! # A new policy
//!
//! 1. Write its file, head comment first: the reference, the guarantees, the limits. If one number
//!    per child defines the order, implement `Key`, as `edf` does; otherwise [`Policy`], as `rr`
//!    does.
//! 2. Add a variant of [`PolicySpec`], and handle the variant in every place that the compiler
//!    reports.
//! 3. Add a line in `tests.rs` of this folder: the [`contract`] of every policy. Add the policy to
//!    the reference model and a family in `talea-sim/tests/it/agrees.rs`, and a chart.
//!
//! # An external policy
//!
//! An external policy is a [`PolicySpec::Custom`] (S19, Y21), and implements the same trait as the
//! built-in policies: L3C's four families of callbacks (section 4.2). The arguments and results of
//! the callbacks are numbers; the engine applies the results to the tree.
//!
//! | family | callbacks | result |
//! | --- | --- | --- |
//! | admission | [`admit`], per child, before the run | accept, or a reason |
//! | per thread | [`ready`], [`finished`], [`update`] | [`Resched`] |
//! | scheduling | [`head`], [`before`], [`charge`] | the order |
//! | timers | [`allowance`], [`next_wakeup`], [`wake`] | the next query, by CPU time or time |
//!
//! One line in the tests of the policy checks the [`contract`]. `examples/policy-llf` uses all
//! callbacks but the last two. The program of this example registers the policy by name for system
//! files. `talea new policy` generates such a program. A complete example, last come first served:
//!
//! ```
//! use talea_core::engine::{SchedulerSpec, Tree};
//! use talea_core::sched::{Child, Policy, PolicySpec, ReadyChild, Resched};
//! use talea_core::Time;
//!
//! #[derive(Debug)]
//! struct LastComeFirstServed {
//!     ready: Vec<(u64, Child)>,
//! }
//!
//! impl Policy for LastComeFirstServed {
//!     fn ready(&mut self, _: Time, entry: &ReadyChild) -> Resched {
//!         self.ready.push((entry.ready_seq, entry.child));
//!         Resched::Pick
//!     }
//!
//!     fn finished(&mut self, _: Time, child: Child) -> Resched {
//!         self.ready.retain(|&(_, other)| other != child);
//!         Resched::Pick
//!     }
//!
//!     fn update(&mut self, now: Time, entry: &ReadyChild) -> Resched {
//!         // A new job of the same child has a new `ready_seq`.
//!         let _ = self.finished(now, entry.child);
//!         self.ready(now, entry)
//!     }
//!
//!     fn head(&self, _: Time) -> Option<Child> {
//!         self.ready.iter().max().map(|&(_, child)| child)
//!     }
//!
//!     fn before(&self, _: Time, a: &ReadyChild, b: &ReadyChild) -> bool {
//!         (a.ready_seq, a.child) > (b.ready_seq, b.child)
//!     }
//! }
//!
//! let make = |children| {
//!     let ready = Vec::with_capacity(children);
//!     Box::new(LastComeFirstServed { ready }) as _
//! };
//! let tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Custom { name: "lcfs", make }));
//! assert!(tree.build().is_ok());
//! ```
//!
//! [`admit`]: Policy::admit
//! [`ready`]: Policy::ready
//! [`finished`]: Policy::finished
//! [`update`]: Policy::update
//! [`head`]: Policy::head
//! [`before`]: Policy::before
//! [`charge`]: Policy::charge
//! [`allowance`]: Policy::allowance
//! [`next_wakeup`]: Policy::next_wakeup
//! [`wake`]: Policy::wake

pub mod contract;
mod criticality;
mod dm;
mod edf;
mod fifo;
mod fp;
mod keyed;
mod partitions;
mod policy_impl;
mod rm;
mod rr;
#[cfg(test)]
mod tests;

use crate::criteria::Criteria;
use crate::{Span, Time, Work};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
pub(crate) use policy_impl::PolicyImpl;

/// Number of a child of one node, in the order of declaration from 0. Ties go to the lowest.
pub type Child = u32;

/// Entry of a ready child in the policy of its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyChild {
    /// Number of the child.
    pub child: Child,
    /// Number of the child's current job, from 0, modulo 2^32.
    ///
    /// A child that has waited returns with the same number, regardless of inheritance and of the
    /// next release. A server has another number for each deadline. The number of any other
    /// scheduler is always 0.
    pub job: u32,
    /// Sequence number of the readiness of the child, the order of a FIFO queue. Preemption does
    /// not change it.
    pub ready_seq: u64,
    /// Criteria by which the policy may order.
    pub criteria: Criteria,
}

/// Data of a child for the admission by a policy, before the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildInfo<'a> {
    /// Number of the child.
    pub child: Child,
    /// Name for display.
    pub name: &'a str,
    /// Constant criteria of the child.
    ///
    /// A server has the period and relative deadline of its reservation. A scheduler without server
    /// and overrides has those of [`Criteria::LEAST`].
    pub criteria: Criteria,
    /// Largest cost of a job, or budget of a server in each period. `None` if it is unknown.
    pub cost: Option<Work>,
}

/// Whether the last call may have changed [`Policy::head`] or [`Policy::allowance`].
#[must_use = "a forgotten Resched is a missed preemption"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resched {
    /// The head and its criteria are unchanged. The allowance of the head is unchanged too, except
    /// for the amount just charged.
    Keep,
    /// The engine must query the head again.
    Pick,
}

impl Resched {
    /// Returns [`Resched::Pick`] if `changed`.
    pub fn when(changed: bool) -> Resched {
        if changed { Resched::Pick } else { Resched::Keep }
    }
}

/// A scheduling policy: a list of ready children, ordered by their criteria (SF3P section V-B).
///
/// Invariants:
/// 1. [`head`](Policy::head) names a ready child whenever a child is eligible. The head depends
///    only on the calls so far and on `now`.
/// 2. Ties go to the lowest [`Child`], so equal runs are equal.
/// 3. After construction a policy allocates nothing and never panics. A panic would end a run on
///    threads.
pub trait Policy: fmt::Debug {
    /// Inserts a child that has become eligible (SF3P Table I: *ready*).
    fn ready(&mut self, now: Time, entry: &ReadyChild) -> Resched;
    /// Removes a child that is no longer eligible (SF3P Table I: *finished*).
    fn finished(&mut self, now: Time, child: Child) -> Resched;
    /// Applies changed criteria of a ready child (SF3P Table I: *update*).
    fn update(&mut self, now: Time, entry: &ReadyChild) -> Resched;
    /// Returns the first child; `None` if no child is eligible.
    fn head(&self, now: Time) -> Option<Child>;
    /// Whether `a` comes before `b`: a strict order at each `now`, with [`head`](Policy::head) as
    /// its minimum.
    ///
    /// The result must depend only on the two entries and on the calls of [`admit`](Policy::admit).
    /// A root with several CPUs has several instances. Each instance knows only the children that
    /// wait in its own queue, and is queried about other children, too. These may be
    /// [`finished`](Policy::finished).
    ///
    /// A policy with [accounting](Policy::needs_accounting) or wakeups cannot serve such a root.
    /// The result of such a policy may also depend on charges and wakeups. The criteria must always
    /// come from the entries: priority inheritance queries with criteria that no child has, for one
    /// child or for two.
    fn before(&self, now: Time, a: &ReadyChild, b: &ReadyChild) -> bool;

    /// Admits a child, or returns the reason and a valid alternative.
    ///
    /// The engine calls this function for every child in order, before the run. The engine does not
    /// build a tree with a refused child.
    fn admit(&mut self, _info: &ChildInfo<'_>) -> Result<(), String> {
        Ok(())
    }
    /// Charges `used`, the CPU time that `child` has consumed. The engine calls this function only
    /// if the policy [needs accounting](Policy::needs_accounting).
    fn charge(&mut self, _now: Time, _child: Child, _used: Work) -> Resched {
        Resched::Keep
    }
    /// Whether the policy needs [`charge`](Policy::charge).
    ///
    /// A policy with accounting or wakeups cannot serve a root with several CPUs.
    fn needs_accounting(&self) -> bool {
        false
    }
    /// Returns the CPU time that `child` may consume before the head may change: the rest of a
    /// quantum. `None` if the CPU time is unlimited.
    fn allowance(&self, _now: Time, _child: Child) -> Option<Work> {
        None
    }
    /// Returns the next time, and phase, at which the head may change without a call.
    fn next_wakeup(&self) -> Option<(Time, Phase)> {
        None
    }
    /// Applies the change that [`next_wakeup`](Policy::next_wakeup) announced for this time and
    /// phase, such as the end of a slot.
    fn wake(&mut self, _now: Time, _phase: Phase) -> Resched {
        Resched::Keep
    }
}

/// Phases of one instant, in order (docs/model.md, section 2).
///
/// Ends precede arrivals, and arrivals precede starts. A job that arrives at a refill therefore
/// finds the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Ends of slots and of exhausted budgets.
    Ends,
    /// Arrivals of jobs.
    Arrivals,
    /// Refills of budgets and starts of slots.
    Starts,
}

/// A slot of a partition table: the owner of `[start, end)` in each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Offset of the start in the frame.
    pub start: Span,
    /// Offset of the end in the frame.
    pub end: Span,
    /// Child that may run in the slot.
    pub owner: Child,
}

/// An entry of an off-line table (docs/model.md, section 9): `[start, end)` of each hyperperiod on
/// one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Number of the CPU.
    pub cpu: u32,
    /// Offset of the start in the hyperperiod.
    pub start: Span,
    /// Offset of the end in the hyperperiod.
    pub end: Span,
    /// Child that owns the CPU.
    pub owner: Child,
    /// Version of a job that is first dispatched in this entry; `None` means version 0.
    pub version: Option<u32>,
    /// Whether the entry releases the job that it runs. Otherwise jobs arrive by their own arrival
    /// model.
    pub activates: bool,
    /// Whether the job may continue in a later entry. An incomplete job is then no overrun.
    pub continues: bool,
}

impl TableEntry {
    /// Creates an entry in which one job of a task with one version runs to completion.
    pub fn new(cpu: u32, start: Span, end: Span, owner: Child) -> TableEntry {
        TableEntry { cpu, start, end, owner, version: None, activates: false, continues: false }
    }
}

/// Function behind [`PolicySpec::rank`].
pub(crate) type Rank = fn(&ReadyChild) -> u64;

/// Constructor of an external policy for a node with a number of children (S19, Y21, L19).
pub type PolicyFactory = fn(children: usize) -> Box<dyn Policy + Send>;

/// Specification of a node's policy.
#[derive(Clone, Debug)]
pub enum PolicySpec {
    /// Earliest deadline first.
    Edf,
    /// Fixed priorities: 256 levels, FIFO inside a level.
    FixedPriority,
    /// Rate monotonic: the shorter the period, the more urgent.
    RateMonotonic,
    /// Deadline monotonic: the shorter the relative deadline, the more urgent.
    DeadlineMonotonic,
    /// Criticality monotonic: higher criticality first.
    CriticalityMonotonic,
    /// First in, first out: the earlier arrival first.
    Fifo,
    /// Round robin.
    RoundRobin {
        /// CPU time of a child until the next child's turn.
        quantum: Work,
    },
    /// Time partitions: TDMA, ARINC 653.
    Partitions {
        /// Length of the table, which repeats forever.
        frame: Span,
        /// Slots: sorted, disjoint, inside the frame.
        slots: Vec<Slot>,
        /// Whether the other children may use the time between slots, and a slot of an owner
        /// without work, in their order.
        lending: bool,
    },
    /// An off-line table for all CPUs of a root.
    Table {
        /// Length of the table, which repeats forever.
        hyperperiod: Span,
        /// Entries in any order.
        entries: Vec<TableEntry>,
    },
    /// An external policy.
    Custom {
        /// Name in system files.
        name: &'static str,
        /// Constructor.
        make: PolicyFactory,
    },
}

impl PolicySpec {
    /// Returns the name in system files.
    pub fn name(&self) -> &'static str {
        match self {
            PolicySpec::Edf => "edf",
            PolicySpec::FixedPriority => "fp",
            PolicySpec::RateMonotonic => "rm",
            PolicySpec::DeadlineMonotonic => "dm",
            PolicySpec::CriticalityMonotonic => "criticality",
            PolicySpec::Fifo => "fifo",
            PolicySpec::RoundRobin { .. } => "rr",
            PolicySpec::Partitions { .. } => "partitions",
            PolicySpec::Table { .. } => "table",
            PolicySpec::Custom { name, .. } => name,
        }
    }

    /// Whether the policy divides time instead of ordering its children.
    ///
    /// A time-sharing scheduler may only be a root, below another time-sharing scheduler (SF3P
    /// section IV), or directly below an `fp` root.
    pub fn is_time_sharing(&self) -> bool {
        matches!(self, PolicySpec::Partitions { .. } | PolicySpec::Table { .. })
    }
}
