//! Scheduling policies: one node of the tree each, a file each.
//!
//! A policy knows its children by number, their criteria and the time it is told. It owns no thread
//! and no clock, and never sees the tree (L3C section 4.2: a plug-in asks the frame, it never
//! touches the core). What it must say is who comes first ([`Scheduler::head`]) and, so that a root
//! with several CPUs can compare who waits with who runs, whether one comes before another
//! ([`Scheduler::before`]).
//!
//! [`Policy`] is the list: a variant, and the compiler names every place that must learn about it.
//!
//! # A new policy
//!
//! 1. Its file, head comment first: the reference, what it promises, what it does not. Where a
//!    number per child is all there is to it, implement `Key`, as `edf` does; else [`Scheduler`],
//!    as `rr` does.
//! 2. A variant of [`Policy`], and what the compiler then asks for.
//! 3. A line in `tests.rs` here: the [`contract`] that every policy must keep. A line in the plain
//!    twin, and a family of its own in `talea-sim/tests/it/agrees.rs`. A chart.
//!
//! # A policy from outside
//!
//! It is [`Policy::Custom`] (S19, Y21), and implements what the built-in ones do: L3C's four
//! families of callbacks (section 4.2). It is handed numbers and answers with numbers; what its
//! answers mean for the tree is the frame's business.
//!
//! | family | is called | answers, that is: asks of the frame |
//! | --- | --- | --- |
//! | admission | [`admit`](Scheduler::admit), for each child, before anything runs | whether it may be one, or why not |
//! | per thread | [`ready`](Scheduler::ready), [`finished`](Scheduler::finished), [`update`](Scheduler::update) | whether to decide anew |
//! | scheduling | [`head`](Scheduler::head), [`before`](Scheduler::before), [`charge`](Scheduler::charge) | who comes first |
//! | timers | [`allowance`](Scheduler::allowance), [`next_wakeup`](Scheduler::next_wakeup), [`wake`](Scheduler::wake) | when to be asked again, after so much work or at such a time |
//!
//! Held to the [`contract`] it is by a line in its own tests. `examples/policy-llf` is one that
//! needs all but the last two, in a program that knows it by name in system files; `talea new
//! policy` writes another such program. Who came last comes first, whole:
//!
//! ```
//! use talea_core::machine::{SchedulerSpec, Tree};
//! use talea_core::sched::{Child, Entry, Policy, Resched, Scheduler};
//! use talea_core::Time;
//!
//! #[derive(Debug)]
//! struct LastComeFirstServed {
//!     ready: Vec<(u64, Child)>,
//! }
//!
//! impl Scheduler for LastComeFirstServed {
//!     fn ready(&mut self, _: Time, who: &Entry) -> Resched {
//!         self.ready.push((who.since, who.child));
//!         Resched::Pick
//!     }
//!
//!     fn finished(&mut self, _: Time, who: Child) -> Resched {
//!         self.ready.retain(|&(_, child)| child != who);
//!         Resched::Pick
//!     }
//!
//!     fn update(&mut self, now: Time, who: &Entry) -> Resched {
//!         // A new job of the same child comes with a new `since`.
//!         let _ = self.finished(now, who.child);
//!         self.ready(now, who)
//!     }
//!
//!     fn head(&self, _: Time) -> Option<Child> {
//!         self.ready.iter().max().map(|&(_, child)| child)
//!     }
//!
//!     fn before(&self, _: Time, a: &Entry, b: &Entry) -> bool {
//!         (a.since, a.child) > (b.since, b.child)
//!     }
//! }
//!
//! let make = |children| Box::new(LastComeFirstServed { ready: Vec::with_capacity(children) }) as _;
//! let tree = Tree::new(1, SchedulerSpec::new("root", Policy::Custom { name: "lcfs", make }));
//! assert!(tree.build().is_ok());
//! ```

pub mod contract;
mod criticality;
mod dm;
mod edf;
mod fifo;
mod fp;
mod keyed;
mod partitions;
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
use keyed::Keyed;

/// A child of one node, numbered in the order of declaration from 0. Ties go to the lowest.
pub type Child = u32;

/// What a policy is told about a child that has become ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Who.
    pub child: Child,
    /// Which job of it, from 0, modulo 2^32: it comes back from waiting with the same one, whatever
    /// was lent to it and whenever the next one is due. Of a server, another number with each other
    /// deadline of it; of other schedulers always 0.
    pub job: u32,
    /// When it became ready, as a number that only grows: the order of a FIFO queue. Whoever is
    /// preempted keeps it.
    pub since: u64,
    /// What it may be ordered by.
    pub criteria: Criteria,
}

/// A child that asks a policy for admission, before anything runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newcomer<'a> {
    /// Its number from then on.
    pub child: Child,
    /// For people.
    pub name: &'a str,
    /// What it may be ordered by, as far as that never changes. Of a server, period and relative
    /// deadline are those of its reservation; of another scheduler that has no values of its own,
    /// those of [`Criteria::LEAST`].
    pub criteria: Criteria,
    /// What a job consumes at most, or a server in each period. `None`: nobody has said.
    pub cost: Option<Work>,
}

/// Whether the last call may have changed the answer to [`Scheduler::head`] or to
/// [`Scheduler::allowance`].
#[must_use = "a forgotten Resched is a missed preemption"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resched {
    /// It is the same child with the same criteria, and the same allowance but for what it was just
    /// charged.
    Keep,
    /// Ask again.
    Pick,
}

impl Resched {
    /// Ask again if `changed`.
    pub fn when(changed: bool) -> Resched {
        if changed { Resched::Pick } else { Resched::Keep }
    }
}

/// One scheduling policy. SF3P section V-B: a list of ready children, ordered by their criteria.
///
/// Invariant: [`head`](Scheduler::head) names a ready child whenever one is eligible, and depends
/// only on the calls made so far and on `now`. Ties go to the lowest [`Child`], so equal runs are
/// equal. After construction nothing allocates, and nothing panics: a run on threads would be ended
/// with it.
pub trait Scheduler: fmt::Debug {
    /// `who` has become eligible (SF3P Table I: *ready*).
    fn ready(&mut self, now: Time, who: &Entry) -> Resched;
    /// `who` is no longer eligible (*finished*).
    fn finished(&mut self, now: Time, who: Child) -> Resched;
    /// The criteria of `who`, which is ready, have changed (*update*).
    fn update(&mut self, now: Time, who: &Entry) -> Resched;
    /// Who comes first.
    fn head(&self, now: Time) -> Option<Child>;
    /// Whether `a` comes before `b`; a strict order at each `now`, of which
    /// [`head`](Scheduler::head) is the first.
    ///
    /// It must be a function of the two entries and of what [`admit`](Scheduler::admit) was told,
    /// alone: a root with several CPUs has several instances, tells each only of those who wait in
    /// it, and asks any of them about children that this one never heard of or was told were
    /// [`finished`](Scheduler::finished). Whoever is [`metered`](Scheduler::metered) or has wakeups
    /// of its own can't be there, and may look at what it was charged or woken for besides. But the
    /// criteria are always those of the entries: who lends criteria to a holder asks with such as
    /// nobody has, of one child or of two.
    fn before(&self, now: Time, a: &Entry, b: &Entry) -> bool;

    /// Whether `who` may be a child of this node, or why not, with what would be right. Asked about
    /// every child, in order, before anything runs; what is said no to is not built.
    fn admit(&mut self, _who: &Newcomer<'_>) -> Result<(), String> {
        Ok(())
    }
    /// `who` has consumed `used` of the CPU that this node was given. Told only when
    /// [`metered`](Scheduler::metered).
    fn charge(&mut self, _now: Time, _who: Child, _used: Work) -> Resched {
        Resched::Keep
    }
    /// Whether [`charge`](Scheduler::charge) is wanted. A policy that wants it, or that has wakeups
    /// of its own, can't be that of a root with several CPUs.
    fn metered(&self) -> bool {
        false
    }
    /// How much `who` may consume before the head may change by itself: what is left of a quantum.
    fn allowance(&self, _now: Time, _who: Child) -> Option<Work> {
        None
    }
    /// When the head may next change by itself, and in which part of that instant.
    fn next_wakeup(&self) -> Option<(Time, Part)> {
        None
    }
    /// The wakeup asked for is due.
    fn wake(&mut self, _now: Time, _part: Part) -> Resched {
        Resched::Keep
    }
}

/// The parts of one instant, in their order (docs/model.md, section 2): what ends comes before what
/// arrives, and what arrives before what begins, so that a job which arrives with a refill finds
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Slots end, exhausted budgets end.
    Ends,
    /// Jobs arrive.
    Arrivals,
    /// Budgets are refilled, slots begin.
    Starts,
}

/// A slot of a partition table: `[start, end)` of each frame belongs to `owner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Offset in the frame at which the slot begins.
    pub start: Span,
    /// Offset at which it has ended.
    pub end: Span,
    /// Which child may run in it.
    pub owner: Child,
}

/// An entry of an off-line table (docs/model.md, section 9): `[start, end)` of each hyperperiod on
/// one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Where.
    pub cpu: u32,
    /// Offset in the hyperperiod at which it begins.
    pub start: Span,
    /// Offset at which it has ended.
    pub end: Span,
    /// Which child has the CPU.
    pub owner: Child,
    /// The version that a job has which is first dispatched here.
    pub version: Option<u32>,
    /// Whether it makes the job that it runs; otherwise jobs arrive as they do.
    pub activates: bool,
    /// Whether the job is meant to go on in a later entry: then it is no overrun when it has not
    /// ended.
    pub goes_on: bool,
}

impl TableEntry {
    /// An entry in which one job of a task with one version runs to its end.
    pub fn new(cpu: u32, start: Span, end: Span, owner: Child) -> TableEntry {
        TableEntry { cpu, start, end, owner, version: None, activates: false, goes_on: false }
    }
}

/// See [`Policy::rank`].
pub(crate) type Rank = fn(&Entry) -> u64;

/// Makes a policy from outside for a node with so many children (S19, Y21, L19).
pub type Maker = fn(children: usize) -> Box<dyn Scheduler + Send>;

/// Which policy a node follows.
#[derive(Clone, Debug)]
pub enum Policy {
    /// Earliest deadline first.
    Edf,
    /// Fixed priorities, 256 levels, FIFO inside a level.
    FixedPriority,
    /// Rate monotonic: the shorter the period.
    RateMonotonic,
    /// Deadline monotonic: the shorter the relative deadline.
    DeadlineMonotonic,
    /// The more critical first.
    CriticalityMonotonic,
    /// The earlier arrival.
    Fifo,
    /// Round robin.
    RoundRobin {
        /// How long a child runs before the next one's turn.
        quantum: Work,
    },
    /// Time partitions: TDMA, ARINC 653.
    Partitions {
        /// Length of the table, which repeats for ever.
        frame: Span,
        /// Sorted, disjoint, inside the frame.
        slots: Vec<Slot>,
        /// Whether a slot whose owner has nothing to run, and the time between slots, may be used
        /// by others, in their order.
        lending: bool,
    },
    /// An off-line table for all CPUs of a root.
    Table {
        /// Its length; it repeats for ever.
        hyperperiod: Span,
        /// In any order.
        entries: Vec<TableEntry>,
    },
    /// From outside this crate.
    Custom {
        /// What a system file calls it.
        name: &'static str,
        /// How it is made.
        make: Maker,
    },
}

impl Policy {
    /// What a system file calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Policy::Edf => "edf",
            Policy::FixedPriority => "fp",
            Policy::RateMonotonic => "rm",
            Policy::DeadlineMonotonic => "dm",
            Policy::CriticalityMonotonic => "criticality",
            Policy::Fifo => "fifo",
            Policy::RoundRobin { .. } => "rr",
            Policy::Partitions { .. } => "partitions",
            Policy::Table { .. } => "table",
            Policy::Custom { name, .. } => name,
        }
    }

    /// Whether it shares time out by itself instead of ordering its children (SF3P section IV: such
    /// a scheduler may stand only below another one).
    pub fn is_time_sharing(&self) -> bool {
        matches!(self, Policy::Partitions { .. } | Policy::Table { .. })
    }

    /// The number that it orders by, the least first, ties to the lowest child; `None` if there is
    /// more to it.
    pub(crate) fn rank(&self) -> Option<Rank> {
        match self {
            Policy::Edf => Some(keyed::rank::<edf::Edf>),
            Policy::FixedPriority => Some(fp::rank),
            Policy::RateMonotonic => Some(keyed::rank::<rm::RateMonotonic>),
            Policy::DeadlineMonotonic => Some(keyed::rank::<dm::DeadlineMonotonic>),
            Policy::CriticalityMonotonic => Some(keyed::rank::<criticality::CriticalityMonotonic>),
            Policy::Fifo => Some(keyed::rank::<fifo::Fifo>),
            Policy::RoundRobin { .. }
            | Policy::Partitions { .. }
            | Policy::Table { .. }
            | Policy::Custom { .. } => None,
        }
    }

    pub(crate) fn build(&self, children: usize) -> Built {
        match self {
            Policy::Edf => Built::Edf(Keyed::new(children)),
            Policy::FixedPriority => {
                Built::FixedPriority(Box::new(fp::FixedPriority::new(children)))
            }
            Policy::RateMonotonic => Built::RateMonotonic(Keyed::new(children)),
            Policy::DeadlineMonotonic => Built::DeadlineMonotonic(Keyed::new(children)),
            Policy::CriticalityMonotonic => Built::CriticalityMonotonic(Keyed::new(children)),
            // Only a root has a table, and the machine itself turns it: here stands who is
            // eligible.
            Policy::Fifo | Policy::Table { .. } => Built::Fifo(Keyed::new(children)),
            Policy::RoundRobin { quantum } => {
                Built::RoundRobin(rr::RoundRobin::new(children, *quantum))
            }
            Policy::Partitions { frame, slots, lending } => Built::Partitions(
                partitions::Partitions::new(children, *frame, slots.clone(), *lending),
            ),
            Policy::Custom { make, .. } => Built::Custom(make(children)),
        }
    }
}

/// A policy at work.
#[derive(Debug)]
pub(crate) enum Built {
    Edf(Keyed<edf::Edf>),
    FixedPriority(Box<fp::FixedPriority>),
    RateMonotonic(Keyed<rm::RateMonotonic>),
    DeadlineMonotonic(Keyed<dm::DeadlineMonotonic>),
    CriticalityMonotonic(Keyed<criticality::CriticalityMonotonic>),
    Fifo(Keyed<fifo::Fifo>),
    RoundRobin(rr::RoundRobin),
    Partitions(partitions::Partitions),
    Custom(Box<dyn Scheduler + Send>),
}

macro_rules! forward {
    ($self:ident, $policy:ident => $call:expr) => {
        match $self {
            Built::Edf($policy) => $call,
            Built::FixedPriority($policy) => $call,
            Built::RateMonotonic($policy) => $call,
            Built::DeadlineMonotonic($policy) => $call,
            Built::CriticalityMonotonic($policy) => $call,
            Built::Fifo($policy) => $call,
            Built::RoundRobin($policy) => $call,
            Built::Partitions($policy) => $call,
            Built::Custom($policy) => $call,
        }
    };
}

impl Built {
    /// Whether nobody is ready or eligible.
    #[inline]
    pub(crate) fn is_idle(&self, now: Time) -> bool {
        match self {
            Built::Edf(policy) => policy.is_empty(),
            Built::RateMonotonic(policy) => policy.is_empty(),
            Built::DeadlineMonotonic(policy) => policy.is_empty(),
            Built::CriticalityMonotonic(policy) => policy.is_empty(),
            Built::Fifo(policy) => policy.is_empty(),
            other => other.head(now).is_none(),
        }
    }

    /// As [`Scheduler::head`]; it costs nothing to ask again.
    #[inline]
    pub(crate) fn settled_head(&mut self, now: Time) -> Option<Child> {
        match self {
            Built::Edf(policy) => policy.settled_head(),
            Built::RateMonotonic(policy) => policy.settled_head(),
            Built::DeadlineMonotonic(policy) => policy.settled_head(),
            Built::CriticalityMonotonic(policy) => policy.settled_head(),
            Built::Fifo(policy) => policy.settled_head(),
            other => other.head(now),
        }
    }
}

#[cfg(test)]
impl Built {
    /// Entries that were compared, by a policy that orders by a number.
    pub(crate) fn compared(&self) -> u64 {
        match self {
            Built::Edf(policy) => policy.compared(),
            other => panic!("{other:?} does not count"),
        }
    }
}

impl Scheduler for Built {
    #[inline]
    fn ready(&mut self, now: Time, who: &Entry) -> Resched {
        forward!(self, policy => policy.ready(now, who))
    }

    #[inline]
    fn finished(&mut self, now: Time, who: Child) -> Resched {
        forward!(self, policy => policy.finished(now, who))
    }

    #[inline]
    fn update(&mut self, now: Time, who: &Entry) -> Resched {
        forward!(self, policy => policy.update(now, who))
    }

    #[inline]
    fn head(&self, now: Time) -> Option<Child> {
        forward!(self, policy => policy.head(now))
    }

    #[inline]
    fn before(&self, now: Time, a: &Entry, b: &Entry) -> bool {
        forward!(self, policy => policy.before(now, a, b))
    }

    fn admit(&mut self, who: &Newcomer<'_>) -> Result<(), String> {
        forward!(self, policy => policy.admit(who))
    }

    fn charge(&mut self, now: Time, who: Child, used: Work) -> Resched {
        forward!(self, policy => policy.charge(now, who, used))
    }

    fn metered(&self) -> bool {
        forward!(self, policy => policy.metered())
    }

    fn allowance(&self, now: Time, who: Child) -> Option<Work> {
        forward!(self, policy => policy.allowance(now, who))
    }

    fn next_wakeup(&self) -> Option<(Time, Part)> {
        forward!(self, policy => policy.next_wakeup())
    }

    fn wake(&mut self, now: Time, part: Part) -> Resched {
        forward!(self, policy => policy.wake(now, part))
    }
}
