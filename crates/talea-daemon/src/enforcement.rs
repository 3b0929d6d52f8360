//! Enforcement of the budgets of FIFO and RR threads.
//!
//! Model: an *enforcer* per CPU, a thread of the daemon that is pinned to the CPU and has the
//! highest FIFO priority. It sleeps until the task clock of a [`LimitedThread`] on its CPU fires,
//! which means that the budget may be exhausted, or until a throttled thread gets its next refill.
//! A thread that stays below its budget wakes its enforcer once per consumed budget, so at most
//! once per period.
//!
//! *Fresh budgets.* A thread does not get a second budget by detaching and attaching again: what
//! the user's threads have consumed of their last budgets is charged to the user's next limit until
//! it would have been refilled.
//!
//! Absent on purpose: enforcement in an embedded daemon, which ends before the thread does. Such a
//! grant, for example by `talea run`, is not limited, and its notes say so.

mod enforcer;
mod limited_thread;

use crate::event_queue::EventQueue;
use enforcer::Enforcer;
pub(crate) use limited_thread::LimitedThread;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use talea_broker::ThreadId;
use talea_broker::input::Limit;
use talea_core::{CpuSet, Monotonic, Span, Work};
use talea_os::{Thread, clock, sched, task_clock};

/// CPU time that a thread consumes beyond its budget before it is throttled, at p99. Measured on
/// Linux 6.18 on a virtual computer: median 36 to 60 µs, p99 46 to 155 µs.
pub(crate) const GRANULARITY: Span = Span::from_ns(150_000);

/// Enforcers of all CPUs.
#[derive(Debug)]
pub(crate) struct Enforcement {
    enforcers: BTreeMap<u32, Enforcer>,
    /// Threads that an enforcer has demoted.
    demoted: Arc<EventQueue<ThreadId>>,
    /// `spent[uid]`: consumed parts of the user's ended limits, with the times at which they would
    /// have been refilled.
    spent: BTreeMap<u32, Vec<(Monotonic, Work)>>,
}

impl Enforcement {
    /// Starts the enforcer of each CPU that is `present`. A CPU that is off-line has one, too: a
    /// thread that the event loop starts later would not run on a starved CPU.
    pub(crate) fn start(present: &CpuSet, online: &CpuSet) -> io::Result<Enforcement> {
        task_clock::check_permission()?;
        let demoted = Arc::new(EventQueue::new()?);
        let enforcers = present.iter().map(|cpu| Ok((cpu, Enforcer::start(cpu, demoted.clone())?)));
        let enforcement = Enforcement {
            enforcers: enforcers.collect::<io::Result<_>>()?,
            demoted,
            spent: BTreeMap::new(),
        };
        enforcement.pin(online)?;
        Ok(enforcement)
    }

    /// Pins the enforcers of these CPUs to them. The kernel moves the thread of an enforcer away
    /// from a CPU that goes off-line. An enforcer on another CPU enforces, but less precisely.
    pub(crate) fn pin(&self, cpus: &CpuSet) -> io::Result<()> {
        let here = cpus.iter().filter_map(|cpu| self.enforcers.get(&cpu));
        // A CPU that is off-line again does not keep the others from their enforcers.
        here.map(Enforcer::pin).fold(Ok(()), io::Result::and)
    }

    /// Creates the limit of a thread, and charges what the user's ended limits have consumed.
    /// [`Enforcement::place`] then starts the enforcement.
    pub(crate) fn limit(
        &mut self,
        id: ThreadId,
        thread: Arc<Thread>,
        nice: i32,
        limit: Limit,
    ) -> io::Result<Arc<LimitedThread>> {
        let (now, uid) = (clock::now(), limit.uid);
        let limited = LimitedThread::new(id, thread, nice, limit, now)?;
        let spent = self.take_spent(uid, now, limited.budget());
        limited.charge_spent(now, spent);
        Ok(Arc::new(limited))
    }

    /// Assigns the limit to the enforcer of `cpu`.
    pub(crate) fn place(&self, limited: &Arc<LimitedThread>, cpu: u32) -> io::Result<()> {
        if let Some(before) = limited.cpu().filter(|&before| before != cpu)
            && let Some(enforcer) = self.enforcers.get(&before)
        {
            enforcer.remove(limited);
        }
        match self.enforcers.get(&cpu) {
            Some(enforcer) => enforcer.add(limited, cpu),
            None => Err(io::Error::other(format!("CPU {cpu} has no enforcer"))),
        }
    }

    /// Arms the enforcer of the thread's CPU for the refill at `at`.
    pub(crate) fn refill_at(&self, limited: &LimitedThread, at: Monotonic) {
        if let Some(enforcer) = limited.cpu().and_then(|cpu| self.enforcers.get(&cpu)) {
            enforcer.refill_at(limited.id(), at);
        }
    }

    /// Ends a limit. With `restore`, a throttled thread gets its granted policy back. Without it,
    /// the function changes no policy, and returns the ordinary attributes of a throttled or
    /// demoted thread.
    pub(crate) fn end(&mut self, limited: &LimitedThread, restore: bool) -> Option<sched::Attr> {
        if let Some(enforcer) = limited.cpu().and_then(|cpu| self.enforcers.get(&cpu)) {
            enforcer.remove(limited);
        }
        let ended = limited.end(clock::now(), restore);
        if !ended.outstanding.is_empty() {
            self.spent.entry(ended.uid).or_default().extend(ended.outstanding);
        }
        ended.ordinary
    }

    /// Returns the work that the user's ended limits have consumed and that is not refilled yet, at
    /// most `most`. The caller must charge this work; the rest stays for the next limit.
    fn take_spent(&mut self, uid: u32, now: Monotonic, most: Work) -> Work {
        self.spent.retain(|_, entries| {
            entries.retain(|(until, spent)| *until > now && !spent.is_zero());
            !entries.is_empty()
        });
        let mut sum = Work::ZERO;
        for (_, spent) in self.spent.get_mut(&uid).into_iter().flatten() {
            let left = most.checked_sub(sum).unwrap_or(Work::ZERO);
            let part = left.min(*spent);
            *spent = spent.checked_sub(part).unwrap_or(Work::ZERO);
            sum += part;
        }
        sum
    }

    /// Returns the descriptor that is readable while [`Enforcement::take_demoted`] has threads.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.demoted.as_fd()
    }

    /// Returns the threads that were demoted since the last call.
    pub(crate) fn take_demoted(&self) -> Vec<ThreadId> {
        self.demoted.take()
    }
}
