//! Policies that order by one number per child: the smallest first, ties to the lowest child.
//!
//! The running child is normally the head, and also the child that finishes. If its next job has
//! already arrived, the child is ready again before the next query of the head. The policy
//! therefore defers its removal until that query. A re-queued child then moves from its old to its
//! new position in one step.

use super::{Child, Policy, ReadyChild, Resched};
use crate::Time;
use crate::criteria::Criteria;
use crate::heap::Heap;
use crate::mutate;
use core::fmt;
use core::marker::PhantomData;

/// Number by which a policy orders.
pub(crate) trait Key: fmt::Debug {
    /// Returns the number of a child. The lowest number is the most urgent.
    fn of(criteria: &Criteria) -> u64;
}

/// Returns the number of a child.
#[inline]
pub(crate) fn rank<K: Key>(entry: &ReadyChild) -> u64 {
    let key = K::of(&entry.criteria);
    mutate!("rows-order", key, Heap::LAST - key.min(Heap::LAST))
}

/// The children of a node, ordered by `K`. O(log n) per call.
#[derive(Debug)]
pub(crate) struct Keyed<K: Key> {
    ready: Heap,
    /// Finished head whose removal is pending, or [`NO_CHILD`].
    pending_removal: Child,
    key: PhantomData<K>,
}

const NO_CHILD: Child = Child::MAX;

impl<K: Key> Keyed<K> {
    pub(crate) fn new(children: usize) -> Keyed<K> {
        Keyed { ready: Heap::new(children), pending_removal: NO_CHILD, key: PhantomData }
    }

    /// Whether no child is ready.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.len()
            == mutate!("core-keyed-idle", usize::from(self.pending_removal != NO_CHILD), 0)
    }

    /// Performs the pending removal and returns [`Policy::head`]. A repeated call costs no more
    /// than [`Policy::head`].
    #[inline]
    pub(crate) fn settled_head(&mut self) -> Option<Child> {
        if self.pending_removal != NO_CHILD {
            self.ready.remove(core::mem::replace(&mut self.pending_removal, NO_CHILD));
        }
        self.ready.first().map(|(_, first)| first)
    }

    /// Performs the pending removal on paths where it is rare.
    #[inline]
    fn apply_removal(&mut self) {
        if self.pending_removal != NO_CHILD {
            self.apply_removal_cold();
        }
    }

    #[inline(never)]
    fn apply_removal_cold(&mut self) {
        let _ = self.settled_head();
    }

    #[cfg(test)]
    pub(crate) fn compared(&self) -> u64 {
        self.ready.compared
    }
}

impl<K: Key> Policy for Keyed<K> {
    #[inline]
    fn ready(&mut self, _now: Time, entry: &ReadyChild) -> Resched {
        if self.pending_removal == entry.child {
            self.pending_removal = NO_CHILD;
        }
        mutate!("core-keyed-settled", self.apply_removal());

        self.ready.set(entry.child, rank::<K>(entry));
        Resched::when(self.ready.first().is_some_and(|(_, first)| first == entry.child))
    }

    #[inline]
    fn finished(&mut self, _now: Time, child: Child) -> Resched {
        self.apply_removal();
        let is_first = self.ready.first().is_some_and(|(_, first)| first == child);
        if is_first {
            self.pending_removal = child;
        } else {
            self.ready.remove(child);
        }
        Resched::when(is_first)
    }

    #[inline]
    fn update(&mut self, _now: Time, entry: &ReadyChild) -> Resched {
        self.apply_removal();
        let first = self.ready.first();
        self.ready.set(entry.child, rank::<K>(entry));
        // Also if it remains the head: its parent may order by another part of the criteria.
        let is = |first: Option<(u64, Child)>| first.is_some_and(|(_, first)| first == entry.child);
        Resched::when(is(first) || is(self.ready.first()))
    }

    #[inline]
    fn head(&self, _now: Time) -> Option<Child> {
        let first = mutate!(
            "core-keyed-left",
            if self.pending_removal == NO_CHILD { self.ready.first() } else { self.ready.second() },
            self.ready.first()
        );
        first.map(|(_, first)| first)
    }

    #[inline]
    fn before(&self, _now: Time, a: &ReadyChild, b: &ReadyChild) -> bool {
        (K::of(&a.criteria), a.child) < (K::of(&b.criteria), b.child)
    }
}
