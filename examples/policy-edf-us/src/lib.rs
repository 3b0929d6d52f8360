//! EDF-US, a policy from outside for two CPUs: heavy tasks first, the others by deadline.
//!
//! Srinivasan and Baruah, Information Processing Letters 84(2), 2002, with their threshold of m /
//! (2m - 1) for m CPUs, here two: a set of implicit deadlines that needs no more than 4/3 of them
//! misses nothing where jobs may migrate. Plain EDF promises no more than one CPU's worth, however
//! many there are: light tasks keep a heavy one waiting (Dhall and Liu, 1978). Needs to know what
//! jobs cost. Promises nothing of who is lent a deadline: heavy is who is, and not who is waited
//! for.

use talea_core::Time;
use talea_core::heap::Heap;
use talea_core::sched::{Child, ChildInfo, Policy, ReadyChild, Resched};

#[derive(Debug)]
struct EdfUs {
    /// By child.
    heavy: Vec<bool>,
    ready: Heap,
}

/// What a configuration or a registry is given.
pub fn make(children: usize) -> Box<dyn Policy + Send> {
    Box::new(EdfUs { heavy: Vec::with_capacity(children), ready: Heap::new(children) })
}

impl EdfUs {
    /// The least goes first.
    fn place(&self, who: &ReadyChild) -> u64 {
        let light = u64::from(!self.heavy[who.child as usize]) << 63;
        light | who.criteria.deadline.as_ns().min(u64::MAX >> 1)
    }
}

impl Policy for EdfUs {
    fn admit(&mut self, who: &ChildInfo) -> Result<(), String> {
        let cost = who
            .cost
            .ok_or("no cost is declared; give each version one, or a scheduler a server")?;
        // Of a deadline shorter than the period, density instead of utilisation.
        let time = who.criteria.period.min(who.criteria.relative_deadline);
        self.heavy.push(u128::from(cost.as_ns()) * 3 > u128::from(time.as_ns()) * 2);
        Ok(())
    }
    fn ready(&mut self, _: Time, who: &ReadyChild) -> Resched {
        self.ready.set(who.child, self.place(who));
        Resched::Pick
    }
    fn update(&mut self, now: Time, who: &ReadyChild) -> Resched {
        self.ready(now, who)
    }
    fn finished(&mut self, _: Time, who: Child) -> Resched {
        self.ready.remove(who);
        Resched::Pick
    }
    fn head(&self, _: Time) -> Option<Child> {
        self.ready.first().map(|(_, who)| who)
    }
    fn before(&self, _: Time, a: &ReadyChild, b: &ReadyChild) -> bool {
        (self.place(a), a.child) < (self.place(b), b.child)
    }
}
