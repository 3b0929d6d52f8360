//! Policies that are nothing but a number per child: the least comes first, ties go to the lowest child.

use super::{Child, Entry, Resched, Scheduler};
use crate::Time;
use crate::criteria::Criteria;
use crate::heap::Heap;
use core::fmt;
use core::marker::PhantomData;

/// The number that a policy orders by.
pub(crate) trait Key: fmt::Debug {
    /// The lower, the more urgent.
    fn of(criteria: &Criteria) -> u64;
}

/// The number of a child.
pub(crate) fn rank<K: Key>(who: &Entry) -> u64 {
    K::of(&who.criteria)
}

/// The children of a node, ordered by `K`. O(log n) a call.
#[derive(Debug)]
pub(crate) struct Keyed<K: Key> {
    ready: Heap,
    key: PhantomData<K>,
}

impl<K: Key> Keyed<K> {
    pub(crate) fn new(children: usize) -> Keyed<K> {
        Keyed { ready: Heap::new(children), key: PhantomData }
    }

    #[cfg(test)]
    pub(crate) fn compared(&self) -> u64 {
        self.ready.compared
    }
}

impl<K: Key> Scheduler for Keyed<K> {
    #[inline]
    fn ready(&mut self, _now: Time, who: &Entry) -> Resched {
        self.ready.set(who.child, K::of(&who.criteria));
        Resched::when(self.ready.first().is_some_and(|(_, first)| first == who.child))
    }

    #[inline]
    fn finished(&mut self, _now: Time, who: Child) -> Resched {
        let first = self.ready.first();
        self.ready.remove(who);
        Resched::when(first.is_some_and(|(_, first)| first == who))
    }

    #[inline]
    fn update(&mut self, _now: Time, who: &Entry) -> Resched {
        let first = self.ready.first();
        self.ready.set(who.child, K::of(&who.criteria));
        // Also when it stays the head: what its parent orders by may be another part of the criteria.
        let is = |first: Option<(u64, Child)>| first.is_some_and(|(_, first)| first == who.child);
        Resched::when(is(first) || is(self.ready.first()))
    }

    #[inline]
    fn head(&self, _now: Time) -> Option<Child> {
        self.ready.first().map(|(_, first)| first)
    }

    #[inline]
    fn before(&self, _now: Time, a: &Entry, b: &Entry) -> bool {
        (K::of(&a.criteria), a.child) < (K::of(&b.criteria), b.child)
    }
}
