//! Fixed priorities: 256 levels with a FIFO queue each, and a bit for each non-empty queue.
//!
//! L3C (RTNS 2017) section 2.2, PikeOS' ready queues. Each level has two queues: first the children
//! of the level, then the children that *yield*. A time partition beside the system partition TP_0
//! yields, so TP_0 wins ties.
//!
//! Invariants: a queue is ordered by `ready_seq`; a bit is set exactly when its queue has a child.
//! Every call is O(1), except the insertion of a child with an old `ready_seq`, which searches its
//! position.

use super::{Child, Policy, ReadyChild, Resched};
use crate::Time;
use crate::mutate;
use alloc::vec::Vec;

/// Number of queues: two for each level.
const QUEUES: usize = 512;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    since: u64,
    next: u32,
    previous: u32,
    /// Queue of the child, or [`NONE`].
    queue: u32,
}

#[derive(Debug)]
pub(crate) struct FixedPriority {
    links: Vec<Link>,
    heads: [u32; QUEUES],
    tails: [u32; QUEUES],
    /// Bit mask of non-empty queues: bit b of word w is set if queue 64·w + b has a child.
    busy: [u64; QUEUES / 64],
    /// Bit mask of non-zero words: bit w is set if word w of `busy` is not zero.
    words: u8,
}

/// Returns the queue of an entry. The lowest queue is the most urgent.
#[inline]
fn queue_of(entry: &ReadyChild) -> u32 {
    mutate!(
        "core-band-yields-queue",
        u32::from(mutate!(
            "core-policy-fp-levels",
            u8::MAX - entry.criteria.priority,
            entry.criteria.priority
        )) * 2
            + u32::from(entry.criteria.yields),
        u32::from(u8::MAX - entry.criteria.priority) * 2
    )
}

/// Returns queue and position in one number.
///
/// The position has enough bits for one job per nanosecond for a year.
pub(crate) fn rank(entry: &ReadyChild) -> u64 {
    mutate!(
        "core-policy-fp-global",
        u64::from(queue_of(entry)) << 55 | entry.ready_seq,
        u64::from(queue_of(entry)) << 55
    )
}

impl FixedPriority {
    pub(crate) fn new(children: usize) -> FixedPriority {
        let mut links = Vec::with_capacity(children);
        links.resize(children, Link { since: 0, next: NONE, previous: NONE, queue: NONE });
        FixedPriority {
            links,
            heads: [NONE; QUEUES],
            tails: [NONE; QUEUES],
            busy: [0; QUEUES / 64],
            words: 0,
        }
    }

    /// Returns the first non-empty queue.
    #[inline]
    fn first(&self) -> Option<u32> {
        if self.words == 0 {
            return None;
        }
        let word = self.words.trailing_zeros();
        Some(word * 64 + self.busy[word as usize].trailing_zeros())
    }

    fn insert(&mut self, entry: &ReadyChild) {
        let queue = queue_of(entry);
        let mut after = self.tails[queue as usize];
        while after != NONE
            && mutate!(
                "core-policy-fp-queue",
                self.links[after as usize].since > entry.ready_seq,
                self.links[after as usize].since < entry.ready_seq
            )
        {
            after = self.links[after as usize].previous;
        }
        let next = match after {
            NONE => core::mem::replace(&mut self.heads[queue as usize], entry.child),
            _ => core::mem::replace(&mut self.links[after as usize].next, entry.child),
        };
        match next {
            NONE => self.tails[queue as usize] = entry.child,
            _ => self.links[next as usize].previous = entry.child,
        }
        self.links[entry.child as usize] =
            Link { since: entry.ready_seq, next, previous: after, queue };
        self.busy[queue as usize / 64] |= 1 << (queue % 64);
        self.words |= 1 << (queue / 64);
    }

    fn remove(&mut self, child: Child) -> bool {
        let link = self.links[child as usize];
        if link.queue == NONE {
            return false;
        }
        self.links[child as usize].queue = NONE;
        let queue = link.queue as usize;
        match link.previous {
            NONE => self.heads[queue] = link.next,
            previous => self.links[previous as usize].next = link.next,
        }
        match link.next {
            NONE => self.tails[queue] = link.previous,
            next => self.links[next as usize].previous = link.previous,
        }
        if self.heads[queue] == NONE {
            self.busy[queue / 64] &= !(1 << (queue % 64));
            if self.busy[queue / 64] == 0 {
                self.words &= !(1 << (queue / 64));
            }
        }
        true
    }

    #[inline]
    fn first_child(&self) -> u32 {
        self.first().map_or(NONE, |queue| self.heads[queue as usize])
    }
}

impl Policy for FixedPriority {
    #[inline]
    fn ready(&mut self, _now: Time, entry: &ReadyChild) -> Resched {
        self.insert(entry);
        Resched::when(self.first_child() == entry.child)
    }

    #[inline]
    fn finished(&mut self, _now: Time, child: Child) -> Resched {
        let first_child = self.first_child();
        self.remove(child);
        Resched::when(first_child == child)
    }

    #[inline]
    fn update(&mut self, _now: Time, entry: &ReadyChild) -> Resched {
        let first_child = self.first_child();
        let link = self.links[entry.child as usize];
        if link.queue != queue_of(entry) || link.since != entry.ready_seq {
            self.remove(entry.child);
            self.insert(entry);
        }
        Resched::when(first_child == entry.child || self.first_child() == entry.child)
    }

    #[inline]
    fn head(&self, _now: Time) -> Option<Child> {
        self.first().map(|queue| self.heads[queue as usize])
    }

    #[inline]
    fn before(&self, _now: Time, a: &ReadyChild, b: &ReadyChild) -> bool {
        (queue_of(a), a.ready_seq, a.child) < (queue_of(b), b.ready_seq, b.child)
    }
}
