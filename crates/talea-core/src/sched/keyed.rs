//! Policies that are nothing but a number per child: the least comes first, ties go to the lowest
//! child.
//!
//! Whoever comes first runs, and is the one who finishes; if his next job is there by then, he is
//! ready again before anybody asks who comes first. So he stays in the queue until somebody asks,
//! and goes from his old place to his new one in one go.

use super::{Child, Entry, Resched, Scheduler};
use crate::Time;
use crate::criteria::Criteria;
use crate::heap::Heap;
use crate::mutate;
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
    /// Who came first and has finished, and is to be taken out; or [`NOBODY`].
    left: Child,
    key: PhantomData<K>,
}

const NOBODY: Child = Child::MAX;

impl<K: Key> Keyed<K> {
    pub(crate) fn new(children: usize) -> Keyed<K> {
        Keyed { ready: Heap::new(children), left: NOBODY, key: PhantomData }
    }

    /// Whether nobody is ready.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.len() == mutate!("core-keyed-idle", usize::from(self.left != NOBODY), 0)
    }

    /// As [`Scheduler::head`], and as fast the next time.
    #[inline]
    pub(crate) fn settled_head(&mut self) -> Option<Child> {
        if self.left != NOBODY {
            self.ready.remove(core::mem::replace(&mut self.left, NOBODY));
        }
        self.ready.first().map(|(_, first)| first)
    }

    /// Takes out who has left, where that is seldom to be done.
    #[inline]
    fn settle(&mut self) {
        if self.left != NOBODY {
            self.settle_now();
        }
    }

    #[inline(never)]
    fn settle_now(&mut self) {
        let _ = self.settled_head();
    }

    #[cfg(test)]
    pub(crate) fn compared(&self) -> u64 {
        self.ready.compared
    }
}

impl<K: Key> Scheduler for Keyed<K> {
    #[inline]
    fn ready(&mut self, _now: Time, who: &Entry) -> Resched {
        if self.left == who.child {
            self.left = NOBODY;
        }
        mutate!(
            "core-keyed-settled",
            {
                self.settle();
            },
            {}
        );

        self.ready.set(who.child, K::of(&who.criteria));
        Resched::when(self.ready.first().is_some_and(|(_, first)| first == who.child))
    }

    #[inline]
    fn finished(&mut self, _now: Time, who: Child) -> Resched {
        self.settle();
        let is_first = self.ready.first().is_some_and(|(_, first)| first == who);
        if is_first {
            self.left = who;
        } else {
            self.ready.remove(who);
        }
        Resched::when(is_first)
    }

    #[inline]
    fn update(&mut self, _now: Time, who: &Entry) -> Resched {
        self.settle();
        let first = self.ready.first();
        self.ready.set(who.child, K::of(&who.criteria));
        // Also when it stays the head: what its parent orders by may be another part of the
        // criteria.
        let is = |first: Option<(u64, Child)>| first.is_some_and(|(_, first)| first == who.child);
        Resched::when(is(first) || is(self.ready.first()))
    }

    #[inline]
    fn head(&self, _now: Time) -> Option<Child> {
        let first = mutate!(
            "core-keyed-left",
            if self.left == NOBODY { self.ready.first() } else { self.ready.second() },
            self.ready.first()
        );
        first.map(|(_, first)| first)
    }

    #[inline]
    fn before(&self, _now: Time, a: &Entry, b: &Entry) -> bool {
        (K::of(&a.criteria), a.child) < (K::of(&b.criteria), b.child)
    }
}
