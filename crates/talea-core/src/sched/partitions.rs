//! Time partitions: a frame that repeats forever, whose slots belong to children.
//!
//! TDMA of SF3P (section III), the partition schedule of PikeOS and ARINC 653 (L3C section 2.2).
//! Slots are half-open `[start, end)`, sorted, disjoint, inside the frame. In a strict table, a
//! slot of an owner without work stays idle. With lending, the other children use this slot in
//! their order, which voids the isolation argument in docs/model.md, section 5.
//!
//! Absent on purpose: clock drift. The frame starts at `Time::ZERO` and the driver owns any
//! correction, so two simulated engines never disagree.

use super::{Child, Phase, Policy, ReadyChild, Resched, Slot};
use crate::heap::Heap;
use crate::mutate;
use crate::{Span, Time};
use alloc::vec::Vec;

#[derive(Debug)]
pub(crate) struct Partitions {
    frame: Span,
    slots: Vec<Slot>,
    lending: bool,
    /// Ready children by number. A slot is lent to the lowest.
    ready: Heap,
    owner: Option<Child>,
    /// Index of the current slot or, between slots, of the next.
    next_slot: usize,
    /// Start of the current frame.
    frame_start: Time,
}

impl Partitions {
    pub(crate) fn new(children: usize, frame: Span, slots: Vec<Slot>, lending: bool) -> Partitions {
        Partitions {
            frame,
            slots,
            lending,
            ready: Heap::new(children),
            owner: None,
            next_slot: 0,
            frame_start: Time::ZERO,
        }
    }
}

impl Policy for Partitions {
    fn ready(&mut self, _now: Time, entry: &ReadyChild) -> Resched {
        self.ready.set(entry.child, u64::from(entry.child));
        Resched::when(self.lending || self.owner == Some(entry.child))
    }

    fn finished(&mut self, _now: Time, child: Child) -> Resched {
        self.ready.remove(child);
        Resched::when(self.lending || self.owner == Some(child))
    }

    fn update(&mut self, _now: Time, entry: &ReadyChild) -> Resched {
        Resched::when(self.lending || self.owner == Some(entry.child))
    }

    fn head(&self, _now: Time) -> Option<Child> {
        let lends = mutate!(
            "core-policy-partitions-lending",
            self.lending,
            self.lending && self.owner.is_some()
        );
        match self.owner {
            Some(owner) if self.ready.contains(owner) => Some(owner),
            _ if mutate!("core-policy-partitions-strict", lends, lends || self.owner.is_some()) => {
                self.ready.first().map(|(_, who)| who)
            }
            _ => None,
        }
    }

    fn before(&self, _now: Time, a: &ReadyChild, b: &ReadyChild) -> bool {
        let rank = |entry: &ReadyChild| (self.owner != Some(entry.child), entry.child);
        rank(a) < rank(b)
    }

    fn next_wakeup(&self) -> Option<(Time, Phase)> {
        let slot = self.slots.get(self.next_slot)?;
        Some(match self.owner {
            Some(_) => (self.frame_start + slot.end, Phase::Ends),
            None => (self.frame_start + slot.start, Phase::Starts),
        })
    }

    fn wake(&mut self, _now: Time, phase: Phase) -> Resched {
        match phase {
            Phase::Ends => {
                self.owner = None;
                self.next_slot += 1;
                if self.next_slot == self.slots.len() {
                    self.next_slot = 0;
                    self.frame_start += mutate!(
                        "core-policy-partitions-frame",
                        self.frame,
                        self.slots[self.slots.len() - 1].end
                    );
                }
            }
            _ => self.owner = Some(self.slots[self.next_slot].owner),
        }
        Resched::Pick
    }
}
