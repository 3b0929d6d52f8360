//! Least laxity first, a policy from outside: whoever has the least time to spare runs.
//!
//! Mok and Dertouzos, 1978. Laxity is the time to the deadline less the work that is left; so the
//! order is that of the latest moments at which jobs must begin, and only that of the job that runs
//! moves. Equals would change places all the time: a place is kept for a whole `GRAIN` of work.
//! Optimal on one CPU, up to the grain; needs to know what jobs cost.

use talea_core::heap::Heap;
use talea_core::sched::{Child, ChildInfo, Policy, ReadyChild, Resched};
use talea_core::{Time, Work};

const GRAIN: u64 = 1_000_000;

#[derive(Debug)]
struct Llf {
    /// By child: what a job costs, what is left of the one under way, and what was told last.
    jobs: Vec<(Work, Work, ReadyChild)>,
    ready: Heap,
}

/// What a [`Registry`](talea_system::system::Registry) is given.
pub fn make(children: usize) -> Box<dyn Policy + Send> {
    Box::new(Llf { jobs: Vec::with_capacity(children), ready: Heap::new(children) })
}

impl Llf {
    fn must_begin(&self, who: &ReadyChild) -> u64 {
        who.criteria.deadline.as_ns().saturating_sub(self.jobs[who.child as usize].1.as_ns())
    }
}

impl Policy for Llf {
    fn admit(&mut self, who: &ChildInfo) -> Result<(), String> {
        let cost = who.cost.ok_or("no cost is declared; give a task one, a scheduler a server")?;
        let entry = ReadyChild { child: who.child, job: 0, ready_seq: 0, criteria: who.criteria };
        self.jobs.push((cost, cost, entry));
        Ok(())
    }
    fn ready(&mut self, _: Time, who: &ReadyChild) -> Resched {
        let (cost, left, told) = self.jobs[who.child as usize];
        // The same job comes back from waiting, or has another deadline because it was lent one.
        self.jobs[who.child as usize] = (cost, if told.job == who.job { left } else { cost }, *who);
        self.ready.set(who.child, self.must_begin(who) / GRAIN);
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
        (self.must_begin(a) / GRAIN, a.child) < (self.must_begin(b) / GRAIN, b.child)
    }
    fn charge(&mut self, _: Time, who: Child, used: Work) -> Resched {
        let (_, ref mut left, told) = self.jobs[who as usize];
        *left = left.checked_sub(used).unwrap_or(Work::ZERO);
        if self.ready.contains(who) {
            self.ready.set(who, self.must_begin(&told) / GRAIN);
        }
        Resched::Pick
    }
    fn needs_accounting(&self) -> bool {
        true
    }
    fn allowance(&self, _: Time, who: Child) -> Option<Work> {
        let told = &self.jobs[who as usize].2;
        (self.ready.len() > 1).then(|| Work::from_ns(GRAIN - self.must_begin(told) % GRAIN))
    }
}
