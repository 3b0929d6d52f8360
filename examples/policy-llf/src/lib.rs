//! Least laxity first (LLF), an external policy: the job with the least laxity runs.
//!
//! Mok and Dertouzos, 1978. The laxity of a job is the time to its deadline minus its remaining
//! work. The order by laxity is the order by latest start time, which is the deadline minus the
//! remaining work. The latest start time changes for the running job only.
//!
//! Jobs with equal laxity would preempt each other continuously, so the policy compares latest
//! start times in multiples of `RESOLUTION`. LLF is optimal on one CPU, up to this resolution. The
//! policy needs the cost of every task.

use talea_core::heap::Heap;
use talea_core::sched::{Child, ChildInfo, Policy, ReadyChild, Resched};
use talea_core::{Time, Work};

/// Resolution of latest start times, in nanoseconds.
const RESOLUTION: u64 = 1_000_000;

#[derive(Debug)]
struct Llf {
    /// `jobs[child]`: cost of a job, remaining work of the current job, most recent entry of the
    /// child.
    jobs: Vec<(Work, Work, ReadyChild)>,
    ready: Heap,
}

/// Creates the policy; constructor for a [`Registry`](talea_system::Registry).
pub fn make(children: usize) -> Box<dyn Policy + Send> {
    Box::new(Llf { jobs: Vec::with_capacity(children), ready: Heap::new(children) })
}

impl Llf {
    /// Returns the latest start time of a job, in nanoseconds.
    fn latest_start(&self, entry: &ReadyChild) -> u64 {
        entry.criteria.deadline.as_ns().saturating_sub(self.jobs[entry.child as usize].1.as_ns())
    }
}

impl Policy for Llf {
    fn admit(&mut self, info: &ChildInfo) -> Result<(), String> {
        let cost = info.cost.ok_or("no cost is declared; give a task one, a scheduler a server")?;
        let entry = ReadyChild { child: info.child, job: 0, ready_seq: 0, criteria: info.criteria };
        self.jobs.push((cost, cost, entry));
        Ok(())
    }
    fn ready(&mut self, _: Time, entry: &ReadyChild) -> Resched {
        let (cost, ref mut remaining, ref mut last) = self.jobs[entry.child as usize];
        // The same job keeps its remaining work when it resumes or inherits another deadline.
        (*remaining, *last) = (if last.job == entry.job { *remaining } else { cost }, *entry);
        self.ready.set(entry.child, self.latest_start(entry) / RESOLUTION);
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
        (self.latest_start(a) / RESOLUTION, a.child) < (self.latest_start(b) / RESOLUTION, b.child)
    }
    fn charge(&mut self, _: Time, child: Child, used: Work) -> Resched {
        let (_, ref mut remaining, entry) = self.jobs[child as usize];
        *remaining = remaining.checked_sub(used).unwrap_or(Work::ZERO);
        if self.ready.contains(child) {
            self.ready.set(child, self.latest_start(&entry) / RESOLUTION);
        }
        Resched::Pick
    }
    fn needs_accounting(&self) -> bool {
        true
    }
    fn allowance(&self, _: Time, child: Child) -> Option<Work> {
        let start = self.latest_start(&self.jobs[child as usize].2);
        (self.ready.len() > 1).then(|| Work::from_ns(RESOLUTION - start % RESOLUTION))
    }
}
