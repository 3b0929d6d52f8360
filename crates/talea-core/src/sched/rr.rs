//! Round robin: a child moves to the end of the queue when its quantum is exhausted.
//!
//! Semantics of POSIX SCHED_RR: a preempted child keeps its position and its remaining quantum. A
//! child that wakes up starts at the end with a full quantum. A child that is alone consumes none
//! of its quantum, because no other child is waiting. Otherwise the result would depend on the time
//! of the driver's last report.

use super::{Child, Policy, ReadyChild, Resched};
use crate::heap::Heap;
use crate::mutate;
use crate::{Time, Work};
use alloc::vec;
use alloc::vec::Vec;

#[derive(Debug)]
pub(crate) struct RoundRobin {
    quantum: Work,
    /// Ready children, ordered by `order`.
    ready: Heap,
    last_order: u64,
    /// `remaining[c]`: rest of the quantum of child `c`.
    remaining: Vec<Work>,
    /// `order[c]`: position of child `c` in the queue.
    order: Vec<u64>,
}

impl RoundRobin {
    pub(crate) fn new(children: usize, quantum: Work) -> RoundRobin {
        let (remaining, order) = (vec![quantum; children], vec![0; children]);
        RoundRobin { quantum, ready: Heap::new(children), last_order: 0, remaining, order }
    }

    fn enqueue_last(&mut self, child: Child) {
        self.last_order += 1;
        mutate!(
            "core-policy-rr-rest",
            {
                self.remaining[child as usize] = self.quantum;
            },
            {
                if self.remaining[child as usize].is_zero() {
                    self.remaining[child as usize] = self.quantum;
                }
            }
        );

        self.order[child as usize] = self.last_order;
        self.ready.set(child, self.last_order);
    }
}

impl Policy for RoundRobin {
    fn ready(&mut self, _now: Time, entry: &ReadyChild) -> Resched {
        self.enqueue_last(entry.child);
        // The second child ends the exemption of the first, whose quantum is charged from now on.
        Resched::when(self.ready.len() <= mutate!("core-policy-rr-second", 2, 1))
    }

    fn finished(&mut self, _now: Time, child: Child) -> Resched {
        self.ready.remove(child);
        Resched::Pick
    }

    fn update(&mut self, now: Time, entry: &ReadyChild) -> Resched {
        Resched::when(self.head(now) == Some(entry.child))
    }

    fn head(&self, _now: Time) -> Option<Child> {
        self.ready.first().map(|(_, who)| who)
    }

    fn before(&self, _now: Time, a: &ReadyChild, b: &ReadyChild) -> bool {
        self.order[a.child as usize] < self.order[b.child as usize]
    }

    fn charge(&mut self, _now: Time, child: Child, used: Work) -> Resched {
        mutate!(
            "core-policy-rr-alone",
            if self.ready.len() <= 1 {
                return Resched::Keep;
            }
        );

        let remaining = &mut self.remaining[child as usize];
        *remaining = remaining.checked_sub(used).unwrap_or(Work::ZERO);
        if remaining.is_zero() && self.ready.contains(child) {
            mutate!(
                "core-policy-rr-turn",
                self.enqueue_last(child),
                self.remaining[child as usize] = self.quantum
            );
            return Resched::Pick;
        }
        Resched::Keep
    }

    fn needs_accounting(&self) -> bool {
        true
    }

    fn allowance(&self, _now: Time, child: Child) -> Option<Work> {
        (self.ready.len() > 1).then(|| self.remaining[child as usize])
    }
}
