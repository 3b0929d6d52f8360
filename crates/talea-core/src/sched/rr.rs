//! Round robin: whoever has run for a quantum goes to the end of the queue.
//!
//! As POSIX SCHED_RR: a child that is preempted keeps its place and what is left of its quantum;
//! one that comes back after sleeping starts at the end with a whole one. Who is alone uses none of
//! it up: there is nobody to give way to, and what others find must not depend on when a driver
//! last reported.

use super::{Child, Entry, Resched, Scheduler};
use crate::heap::Heap;
use crate::mutate;
use crate::{Time, Work};
use alloc::vec;
use alloc::vec::Vec;

#[derive(Debug)]
pub(crate) struct RoundRobin {
    quantum: Work,
    /// Ordered by turn.
    ready: Heap,
    turn: u64,
    /// Of each child: what is left of its quantum, and its turn.
    left: Vec<Work>,
    turns: Vec<u64>,
}

impl RoundRobin {
    pub(crate) fn new(children: usize, quantum: Work) -> RoundRobin {
        let (left, turns) = (vec![quantum; children], vec![0; children]);
        RoundRobin { quantum, ready: Heap::new(children), turn: 0, left, turns }
    }

    fn put_last(&mut self, who: Child) {
        self.turn += 1;
        mutate!(
            "core-policy-rr-rest",
            {
                self.left[who as usize] = self.quantum;
            },
            {
                if self.left[who as usize].is_zero() {
                    self.left[who as usize] = self.quantum;
                }
            }
        );

        self.turns[who as usize] = self.turn;
        self.ready.set(who, self.turn);
    }
}

impl Scheduler for RoundRobin {
    fn ready(&mut self, _now: Time, who: &Entry) -> Resched {
        self.put_last(who.child);
        // The second one ends the solitude of the first, whose quantum counts from now on.
        Resched::when(self.ready.len() <= mutate!("core-policy-rr-second", 2, 1))
    }

    fn finished(&mut self, _now: Time, who: Child) -> Resched {
        self.ready.remove(who);
        Resched::Pick
    }

    fn update(&mut self, now: Time, who: &Entry) -> Resched {
        Resched::when(self.head(now) == Some(who.child))
    }

    fn head(&self, _now: Time) -> Option<Child> {
        self.ready.first().map(|(_, who)| who)
    }

    fn before(&self, _now: Time, a: &Entry, b: &Entry) -> bool {
        self.turns[a.child as usize] < self.turns[b.child as usize]
    }

    fn charge(&mut self, _now: Time, who: Child, used: Work) -> Resched {
        mutate!(
            "core-policy-rr-alone",
            {
                if self.ready.len() <= 1 {
                    return Resched::Keep;
                }
            },
            {}
        );

        let left = &mut self.left[who as usize];
        *left = left.checked_sub(used).unwrap_or(Work::ZERO);
        if left.is_zero() && self.ready.contains(who) {
            mutate!(
                "core-policy-rr-turn",
                self.put_last(who),
                self.left[who as usize] = self.quantum
            );
            return Resched::Pick;
        }
        Resched::Keep
    }

    fn metered(&self) -> bool {
        true
    }

    fn allowance(&self, _now: Time, who: Child) -> Option<Work> {
        (self.ready.len() > 1).then(|| self.left[who as usize])
    }
}
