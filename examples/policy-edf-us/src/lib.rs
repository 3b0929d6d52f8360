//! EDF-US, an external policy for two CPUs: heavy tasks precede the others, which are ordered by
//! deadline.
//!
//! Srinivasan and Baruah, Information Processing Letters 84(2), 2002. A task is heavy if its
//! density exceeds the threshold m / (2m - 1) for m CPUs, here 2/3.
//!
//! Guarantee: a set with implicit deadlines and a utilization of at most m² / (2m - 1), here 4/3,
//! misses no deadline if jobs may migrate. Plain EDF guarantees no more than a utilization of 1 on
//! any number of CPUs, because light tasks delay a heavy task (Dhall and Liu, 1978).
//!
//! Limits: the policy needs the cost of every task. The policy guarantees nothing under
//! inheritance: a light job that holds a resource inherits a deadline, but does not become heavy.

use talea_core::Time;
use talea_core::heap::Heap;
use talea_core::sched::{Child, ChildInfo, Policy, ReadyChild, Resched};

#[derive(Debug)]
struct EdfUs {
    /// `heavy[child]`: whether the child is a heavy task.
    heavy: Vec<bool>,
    ready: Heap,
}

/// Creates the policy; constructor for a configuration or a registry.
pub fn make(children: usize) -> Box<dyn Policy + Send> {
    Box::new(EdfUs { heavy: Vec::with_capacity(children), ready: Heap::new(children) })
}

impl EdfUs {
    /// Returns the ordering key; the child with the least key is first.
    fn key(&self, entry: &ReadyChild) -> u64 {
        let light = u64::from(!self.heavy[entry.child as usize]) << 63;
        light | entry.criteria.deadline.as_ns().min(u64::MAX >> 1)
    }
}

impl Policy for EdfUs {
    fn admit(&mut self, info: &ChildInfo) -> Result<(), String> {
        let cost = info
            .cost
            .ok_or("no cost is declared; give each version one, or a scheduler a server")?;
        // A deadline shorter than the period counts by its density.
        let time = info.criteria.period.min(info.criteria.relative_deadline);
        self.heavy.push(u128::from(cost.as_ns()) * 3 > u128::from(time.as_ns()) * 2);
        Ok(())
    }
    fn ready(&mut self, _: Time, entry: &ReadyChild) -> Resched {
        self.ready.set(entry.child, self.key(entry));
        Resched::Pick
    }
    fn update(&mut self, now: Time, entry: &ReadyChild) -> Resched {
        self.ready(now, entry)
    }
    fn finished(&mut self, _: Time, child: Child) -> Resched {
        self.ready.remove(child);
        Resched::Pick
    }
    fn head(&self, _: Time) -> Option<Child> {
        self.ready.first().map(|(_, child)| child)
    }
    fn before(&self, _: Time, a: &ReadyChild, b: &ReadyChild) -> bool {
        (self.key(a), a.child) < (self.key(b), b.child)
    }
}
