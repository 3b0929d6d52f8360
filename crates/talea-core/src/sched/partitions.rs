//! Time partitions: a frame repeats for ever, its slots belong to children.
//!
//! TDMA of SF3P (section III), the partition schedule of PikeOS and ARINC 653 (L3C section 2.2).
//! Slots are half-open `[start, end)`, sorted, disjoint, inside the frame. In a strict table a slot
//! whose owner has nothing to run stays idle; lending gives it to the others in their order, and
//! voids the isolation argument in docs/model.md, section 5.
//!
//! Absent on purpose: clock drift. The frame is anchored at `Time::ZERO` and the driver owns any
//! correction, so that two simulated machines never disagree.

use super::{Child, Entry, Part, Resched, Scheduler, Slot};
use crate::heap::Heap;
use crate::mutate;
use crate::{Span, Time};
use alloc::vec::Vec;

#[derive(Debug)]
pub(crate) struct Partitions {
    frame: Span,
    slots: Vec<Slot>,
    lending: bool,
    /// By number: who lends, lends to the lowest.
    ready: Heap,
    owner: Option<Child>,
    /// The slot that is or comes next.
    next: usize,
    /// When this frame began.
    began: Time,
}

impl Partitions {
    pub(crate) fn new(children: usize, frame: Span, slots: Vec<Slot>, lending: bool) -> Partitions {
        Partitions {
            frame,
            slots,
            lending,
            ready: Heap::new(children),
            owner: None,
            next: 0,
            began: Time::ZERO,
        }
    }
}

impl Scheduler for Partitions {
    fn ready(&mut self, _now: Time, who: &Entry) -> Resched {
        self.ready.set(who.child, u64::from(who.child));
        Resched::when(self.lending || self.owner == Some(who.child))
    }

    fn finished(&mut self, _now: Time, who: Child) -> Resched {
        self.ready.remove(who);
        Resched::when(self.lending || self.owner == Some(who))
    }

    fn update(&mut self, _now: Time, who: &Entry) -> Resched {
        Resched::when(self.lending || self.owner == Some(who.child))
    }

    fn head(&self, _now: Time) -> Option<Child> {
        mutate!(
            "core-policy-partitions-lending",
            mutate!(
                "core-policy-partitions-strict",
                match self.owner {
                    Some(owner) if self.ready.contains(owner) => Some(owner),
                    _ if self.lending => self.ready.first().map(|(_, who)| who),
                    _ => None,
                },
                match self.owner {
                    Some(owner) if self.ready.contains(owner) => Some(owner),
                    _ if self.lending || self.owner.is_some() =>
                        self.ready.first().map(|(_, who)| who),
                    _ => None,
                }
            ),
            match self.owner {
                Some(owner) if self.ready.contains(owner) => Some(owner),
                _ if self.lending && self.owner.is_some() => self.ready.first().map(|(_, who)| who),
                _ => None,
            }
        )
    }

    fn before(&self, _now: Time, a: &Entry, b: &Entry) -> bool {
        let rank = |entry: &Entry| (self.owner != Some(entry.child), entry.child);
        rank(a) < rank(b)
    }

    fn next_wakeup(&self) -> Option<(Time, Part)> {
        let slot = self.slots.get(self.next)?;
        Some(match self.owner {
            Some(_) => (self.began + slot.end, Part::Ends),
            None => (self.began + slot.start, Part::Starts),
        })
    }

    fn wake(&mut self, _now: Time, part: Part) -> Resched {
        match part {
            Part::Ends => {
                self.owner = None;
                self.next += 1;
                if self.next == self.slots.len() {
                    self.next = 0;
                    self.began += mutate!(
                        "core-policy-partitions-frame",
                        self.frame,
                        self.slots[self.slots.len() - 1].end
                    );
                }
            }
            _ => self.owner = Some(self.slots[self.next].owner),
        }
        Resched::Pick
    }
}
