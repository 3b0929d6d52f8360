//! Policies at run time: the construction of each variant of [`PolicySpec`], and static dispatch.

use super::keyed::{self, Keyed};
use super::{Child, ChildInfo, Phase, Policy, PolicySpec, Rank, ReadyChild, Resched};
use super::{criticality, dm, edf, fifo, fp, partitions, rm, rr};
use crate::{Time, Work};
use alloc::boxed::Box;
use alloc::string::String;

impl PolicySpec {
    /// Returns the number by which the policy orders, smallest first, ties to the lowest child.
    /// `None` if no number defines the order.
    pub(crate) fn rank(&self) -> Option<Rank> {
        match self {
            PolicySpec::Edf => Some(keyed::rank::<edf::Edf>),
            PolicySpec::FixedPriority => Some(fp::rank),
            PolicySpec::RateMonotonic => Some(keyed::rank::<rm::RateMonotonic>),
            PolicySpec::DeadlineMonotonic => Some(keyed::rank::<dm::DeadlineMonotonic>),
            PolicySpec::CriticalityMonotonic => {
                Some(keyed::rank::<criticality::CriticalityMonotonic>)
            }
            PolicySpec::Fifo => Some(keyed::rank::<fifo::Fifo>),
            PolicySpec::RoundRobin { .. }
            | PolicySpec::Partitions { .. }
            | PolicySpec::Table { .. }
            | PolicySpec::Custom { .. } => None,
        }
    }

    pub(crate) fn build(&self, children: usize) -> PolicyImpl {
        match self {
            PolicySpec::Edf => PolicyImpl::Edf(Keyed::new(children)),
            PolicySpec::FixedPriority => {
                PolicyImpl::FixedPriority(Box::new(fp::FixedPriority::new(children)))
            }
            PolicySpec::RateMonotonic => PolicyImpl::RateMonotonic(Keyed::new(children)),
            PolicySpec::DeadlineMonotonic => PolicyImpl::DeadlineMonotonic(Keyed::new(children)),
            PolicySpec::CriticalityMonotonic => {
                PolicyImpl::CriticalityMonotonic(Keyed::new(children))
            }
            // Only a root has a table, and the engine itself advances it. This queue holds the
            // eligible children.
            PolicySpec::Fifo | PolicySpec::Table { .. } => PolicyImpl::Fifo(Keyed::new(children)),
            PolicySpec::RoundRobin { quantum } => {
                PolicyImpl::RoundRobin(rr::RoundRobin::new(children, *quantum))
            }
            PolicySpec::Partitions { frame, slots, lending } => PolicyImpl::Partitions(
                partitions::Partitions::new(children, *frame, slots.clone(), *lending),
            ),
            PolicySpec::Custom { make, .. } => PolicyImpl::Custom(make(children)),
        }
    }
}

/// A policy at run time.
#[derive(Debug)]
pub(crate) enum PolicyImpl {
    Edf(Keyed<edf::Edf>),
    FixedPriority(Box<fp::FixedPriority>),
    RateMonotonic(Keyed<rm::RateMonotonic>),
    DeadlineMonotonic(Keyed<dm::DeadlineMonotonic>),
    CriticalityMonotonic(Keyed<criticality::CriticalityMonotonic>),
    Fifo(Keyed<fifo::Fifo>),
    RoundRobin(rr::RoundRobin),
    Partitions(partitions::Partitions),
    Custom(Box<dyn Policy + Send>),
}

macro_rules! forward {
    ($self:ident, $policy:ident => $call:expr) => {
        match $self {
            PolicyImpl::Edf($policy) => $call,
            PolicyImpl::FixedPriority($policy) => $call,
            PolicyImpl::RateMonotonic($policy) => $call,
            PolicyImpl::DeadlineMonotonic($policy) => $call,
            PolicyImpl::CriticalityMonotonic($policy) => $call,
            PolicyImpl::Fifo($policy) => $call,
            PolicyImpl::RoundRobin($policy) => $call,
            PolicyImpl::Partitions($policy) => $call,
            PolicyImpl::Custom($policy) => $call,
        }
    };
}

impl PolicyImpl {
    /// Whether no child is eligible.
    #[inline]
    pub(crate) fn is_idle(&self, now: Time) -> bool {
        match self {
            PolicyImpl::Edf(policy) => policy.is_empty(),
            PolicyImpl::RateMonotonic(policy) => policy.is_empty(),
            PolicyImpl::DeadlineMonotonic(policy) => policy.is_empty(),
            PolicyImpl::CriticalityMonotonic(policy) => policy.is_empty(),
            PolicyImpl::Fifo(policy) => policy.is_empty(),
            other => other.head(now).is_none(),
        }
    }

    /// Returns [`Policy::head`]. A repeated call does no further work.
    #[inline]
    pub(crate) fn settled_head(&mut self, now: Time) -> Option<Child> {
        match self {
            PolicyImpl::Edf(policy) => policy.settled_head(),
            PolicyImpl::RateMonotonic(policy) => policy.settled_head(),
            PolicyImpl::DeadlineMonotonic(policy) => policy.settled_head(),
            PolicyImpl::CriticalityMonotonic(policy) => policy.settled_head(),
            PolicyImpl::Fifo(policy) => policy.settled_head(),
            other => other.head(now),
        }
    }
}

#[cfg(test)]
impl PolicyImpl {
    /// Returns the number of comparisons so far.
    ///
    /// # Panics
    /// If the policy is not EDF.
    pub(crate) fn compared(&self) -> u64 {
        match self {
            PolicyImpl::Edf(policy) => policy.compared(),
            other => panic!("{other:?} does not count"),
        }
    }
}

impl Policy for PolicyImpl {
    #[inline]
    fn ready(&mut self, now: Time, entry: &ReadyChild) -> Resched {
        forward!(self, policy => policy.ready(now, entry))
    }

    #[inline]
    fn finished(&mut self, now: Time, child: Child) -> Resched {
        forward!(self, policy => policy.finished(now, child))
    }

    #[inline]
    fn update(&mut self, now: Time, entry: &ReadyChild) -> Resched {
        forward!(self, policy => policy.update(now, entry))
    }

    #[inline]
    fn head(&self, now: Time) -> Option<Child> {
        forward!(self, policy => policy.head(now))
    }

    #[inline]
    fn before(&self, now: Time, a: &ReadyChild, b: &ReadyChild) -> bool {
        forward!(self, policy => policy.before(now, a, b))
    }

    fn admit(&mut self, info: &ChildInfo<'_>) -> Result<(), String> {
        forward!(self, policy => policy.admit(info))
    }

    fn charge(&mut self, now: Time, child: Child, used: Work) -> Resched {
        forward!(self, policy => policy.charge(now, child, used))
    }

    fn needs_accounting(&self) -> bool {
        forward!(self, policy => policy.needs_accounting())
    }

    fn allowance(&self, now: Time, child: Child) -> Option<Work> {
        forward!(self, policy => policy.allowance(now, child))
    }

    fn next_wakeup(&self) -> Option<(Time, Phase)> {
        forward!(self, policy => policy.next_wakeup())
    }

    fn wake(&mut self, now: Time, phase: Phase) -> Resched {
        forward!(self, policy => policy.wake(now, phase))
    }
}
