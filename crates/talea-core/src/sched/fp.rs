//! Fixed priorities: 256 levels with a FIFO queue each, and a bit for each queue that is not empty.
//!
//! L3C (RTNS 2017) section 2.2, PikeOS' ready queues. Each level has two queues: behind the
//! children of the level stand those that *yield* (a time partition beside the system partition
//! TP_0, which wins ties).
//!
//! Invariant: a queue is ordered by `since`; a bit is set exactly when its queue has a child. Every
//! call is O(1), except that a child which returns with an old `since` is walked to its place.

use super::{Child, Entry, Resched, Scheduler};
use crate::Time;
use crate::mutate;
use alloc::vec::Vec;

/// Levels times two queues.
const QUEUES: usize = 512;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    since: u64,
    next: u32,
    previous: u32,
    /// The queue it stands in, or [`NONE`].
    queue: u32,
}

#[derive(Debug)]
pub(crate) struct FixedPriority {
    links: Vec<Link>,
    heads: [u32; QUEUES],
    tails: [u32; QUEUES],
    /// Bit q of word w: queue 64·w + q has a child.
    busy: [u64; QUEUES / 64],
    /// Bit w: word w is not zero.
    words: u8,
}

/// The lower, the more urgent.
#[inline]
fn queue_of(entry: &Entry) -> u32 {
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

/// Queue and place in it as one number. There is room for as many jobs as arrive in a year at one
/// each nanosecond.
pub(crate) fn rank(who: &Entry) -> u64 {
    mutate!(
        "core-policy-fp-global",
        u64::from(queue_of(who)) << 55 | who.since,
        u64::from(queue_of(who)) << 55
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

    /// The first queue with a child, by its bits.
    #[inline]
    fn first(&self) -> Option<u32> {
        if self.words == 0 {
            return None;
        }
        let word = self.words.trailing_zeros();
        Some(word * 64 + self.busy[word as usize].trailing_zeros())
    }

    fn insert(&mut self, who: &Entry) {
        let queue = queue_of(who);
        let mut after = self.tails[queue as usize];
        while after != NONE
            && mutate!(
                "core-policy-fp-queue",
                self.links[after as usize].since > who.since,
                self.links[after as usize].since < who.since
            )
        {
            after = self.links[after as usize].previous;
        }
        let next = match after {
            NONE => core::mem::replace(&mut self.heads[queue as usize], who.child),
            _ => core::mem::replace(&mut self.links[after as usize].next, who.child),
        };
        match next {
            NONE => self.tails[queue as usize] = who.child,
            _ => self.links[next as usize].previous = who.child,
        }
        self.links[who.child as usize] = Link { since: who.since, next, previous: after, queue };
        self.busy[queue as usize / 64] |= 1 << (queue % 64);
        self.words |= 1 << (queue / 64);
    }

    fn remove(&mut self, who: Child) -> bool {
        let link = self.links[who as usize];
        if link.queue == NONE {
            return false;
        }
        self.links[who as usize].queue = NONE;
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
    fn top(&self) -> u32 {
        self.first().map_or(NONE, |queue| self.heads[queue as usize])
    }
}

impl Scheduler for FixedPriority {
    #[inline]
    fn ready(&mut self, _now: Time, who: &Entry) -> Resched {
        self.insert(who);
        Resched::when(self.top() == who.child)
    }

    #[inline]
    fn finished(&mut self, _now: Time, who: Child) -> Resched {
        let top = self.top();
        self.remove(who);
        Resched::when(top == who)
    }

    #[inline]
    fn update(&mut self, _now: Time, who: &Entry) -> Resched {
        let top = self.top();
        let link = self.links[who.child as usize];
        if link.queue != queue_of(who) || link.since != who.since {
            self.remove(who.child);
            self.insert(who);
        }
        Resched::when(top == who.child || self.top() == who.child)
    }

    #[inline]
    fn head(&self, _now: Time) -> Option<Child> {
        self.first().map(|queue| self.heads[queue as usize])
    }

    #[inline]
    fn before(&self, _now: Time, a: &Entry, b: &Entry) -> bool {
        (queue_of(a), a.since, a.child) < (queue_of(b), b.since, b.child)
    }
}
