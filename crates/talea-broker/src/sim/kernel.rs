//! A kernel that is just real enough: processes, threads with attributes, handles that outlive what
//! they name, and an admission test of its own for the deadline class.
//!
//! From facts/kernel.md: a deadline thread must be free to run on its whole admission domain
//! (EPERM), the domain's sum must stay within its share (EBUSY), and what leaves the class lingers
//! in that sum for up to one period, unless it is shrunk first.

use crate::input::{Errno, Machine, ProcessId, ThreadFacts, ThreadId};
use std::collections::BTreeMap;
use talea_core::{Attr, CpuSet, Policy, Span, Time, Work};

const EPERM: Errno = Errno(1);
const ESRCH: Errno = Errno(3);
const EBUSY: Errno = Errno(16);
const EINVAL: Errno = Errno(22);

/// The kernel counts bandwidth in units of 2^-20, rounded down (`to_ratio`).
const UNITS: u32 = 20;

fn ratio(runtime: Work, period: Span) -> u64 {
    ((u128::from(runtime.as_ns()) << UNITS) / u128::from(period.as_ns())) as u64
}

/// One thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// With its id, this names it for ever.
    pub start: u64,
    /// Its process.
    pub tgid: u32,
    /// Its effective user.
    pub euid: u32,
    /// What it is now.
    pub attr: Attr,
    /// What it is when nobody grants it anything.
    pub own: Attr,
    /// The CPU on which it sleeps, and in whose domain it stays until it wakes, whatever its
    /// attributes say.
    pub asleep_on: Option<u32>,
    /// Until when it has to pay for its last deadline budget.
    pub owes_until: Time,
}

/// How the kernel took an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    /// As it was given.
    Done,
    /// The CPUs only: it sleeps in another domain.
    Asleep,
    /// Not at all: the thread is in debt until then.
    NotBefore(Time),
}

/// Processes, threads, handles.
#[derive(Debug)]
pub struct Kernel {
    cpus: CpuSet,
    /// Where deadline bandwidth is admitted, each with its own sum.
    domains: Vec<CpuSet>,
    /// Of one CPU, in the kernel's units.
    share: u64,
    /// Living processes with their start time and user.
    pub processes: BTreeMap<u32, (u64, u32)>,
    /// Living threads by id.
    pub threads: BTreeMap<u32, Thread>,
    handles: BTreeMap<ThreadId, (u32, u64)>,
    lingering: Vec<(Time, usize, u64)>,
    /// Start times and handles given out.
    ticks: u64,
}

impl Kernel {
    /// A kernel for this machine; `pinned` makes a domain of each CPU, as cpuset partitions do.
    pub fn new(machine: &Machine, pinned: bool) -> Kernel {
        let single = || machine.cpus.iter().map(CpuSet::single).collect();
        Kernel {
            cpus: machine.cpus,
            domains: if pinned { single() } else { machine.root_domains.clone() },
            share: (machine.deadline_share.bits() >> (64 - UNITS)) as u64,
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            handles: BTreeMap::new(),
            lingering: Vec::new(),
            ticks: 0,
        }
    }

    /// An ordinary thread's attributes.
    pub fn ordinary(&self) -> Attr {
        Attr { policy: Policy::Other { nice: 0 }, reset_on_fork: false, cpus: self.cpus }
    }

    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    /// The lowest free id from `from` on.
    pub fn free_id(&self, from: u32) -> u32 {
        let taken = |id: &u32| self.threads.contains_key(id) || self.processes.contains_key(id);
        (from..=u32::MAX).find(|id| !taken(id)).expect("ids do not run out in a test")
    }

    /// A process with its main thread.
    pub fn spawn(&mut self, pid: u32, uid: u32) -> ProcessId {
        let start = self.tick();
        self.processes.insert(pid, (start, uid));
        let (attr, own) = (self.ordinary(), self.ordinary());
        self.threads.insert(
            pid,
            Thread {
                asleep_on: None,
                owes_until: Time::ZERO,
                start,
                tgid: pid,
                euid: uid,
                attr,
                own,
            },
        );
        ProcessId { pid, start }
    }

    /// Another thread of a process, as its creator leaves it: reset-on-fork makes it ordinary, its
    /// CPUs are inherited.
    pub fn spawn_thread(&mut self, tid: u32, tgid: u32, own: Attr) {
        let (_, euid) = self.processes[&tgid];
        let start = self.tick();
        self.threads.insert(
            tid,
            Thread { asleep_on: None, owes_until: Time::ZERO, start, tgid, euid, attr: own, own },
        );
    }

    /// Ends a thread.
    pub fn end_thread(&mut self, tid: u32, now: Time) {
        if let Some(thread) = self.threads.remove(&tid) {
            self.linger(&thread.attr, now);
        }
    }

    /// Ends a process with all its threads.
    pub fn end_process(&mut self, pid: u32, now: Time) {
        self.processes.remove(&pid);
        let threads: Vec<u32> =
            self.threads.iter().filter(|(_, t)| t.tgid == pid).map(|(&tid, _)| tid).collect();
        for tid in threads {
            self.end_thread(tid, now);
        }
    }

    /// Opens a handle for a thread and reads what it is.
    pub fn open(&mut self, tid: u32) -> Option<ThreadFacts> {
        let handle = ThreadId(self.tick());
        let thread = self.threads.get(&tid)?;
        self.handles.insert(handle, (tid, thread.start));
        let (tgid, euid, start, attr) = (thread.tgid, thread.euid, thread.start, thread.attr);
        Some(ThreadFacts { thread: handle, tid, tgid, euid, start, inode: start, attr })
    }

    /// A thread takes another user's credentials.
    pub fn becomes(&mut self, tid: u32, euid: u32) {
        self.threads.get_mut(&tid).expect("a living thread").euid = euid;
    }

    /// A thread falls asleep on this CPU.
    /// live twin: a client that waits for the answer to its attach.
    pub fn falls_asleep(&mut self, tid: u32, cpu: u32) {
        let thread = self.threads.get_mut(&tid).expect("a living thread");
        // A deadline thread is never outside of its domain.
        if thread.attr.cpus.contains(cpu) && !matches!(thread.attr.policy, Policy::Deadline { .. })
        {
            thread.asleep_on = Some(cpu);
        }
    }

    /// A thread wakes, and moves to where it may run.
    pub fn wakes(&mut self, tid: u32) {
        self.threads.get_mut(&tid).expect("a living thread").asleep_on = None;
    }

    /// A thread has overdrawn its last deadline budget.
    /// live twin: a thread that is detached while it is throttled.
    pub fn owes(&mut self, tid: u32, until: Time) {
        self.threads.get_mut(&tid).expect("a living thread").owes_until = until;
    }

    /// Whose the thread of a handle is; `None` when it has ended.
    pub fn euid_of(&self, handle: ThreadId) -> Option<u32> {
        let &(tid, start) = self.handles.get(&handle)?;
        self.threads.get(&tid).filter(|thread| thread.start == start).map(|thread| thread.euid)
    }

    /// Gives a handle back.
    pub fn close(&mut self, handle: ThreadId) {
        assert!(
            self.handles.remove(&handle).is_some(),
            "{handle:?} is closed twice or was never opened"
        );
    }

    /// How many handles are open.
    pub fn open_handles(&self) -> usize {
        self.handles.len()
    }

    /// Closes every handle, as the end of the daemon does.
    pub fn close_all(&mut self) {
        self.handles.clear();
    }

    /// The thread that a handle names, if it still lives.
    pub fn behind(&self, handle: ThreadId) -> Option<(u32, &Thread)> {
        let (tid, start) = self.handles.get(&handle)?;
        self.threads.get(tid).filter(|thread| thread.start == *start).map(|thread| (*tid, thread))
    }

    /// Whether a process still lives.
    pub fn lives(&self, process: ProcessId) -> bool {
        self.processes.get(&process.pid).is_some_and(|(start, _)| *start == process.start)
    }

    /// Puts attributes back, as the driver does: a deadline thread is shrunk first, so that nothing
    /// lingers.
    pub fn put_back(
        &mut self,
        handle: ThreadId,
        attr: &Attr,
        now: Time,
        fault: Option<Errno>,
    ) -> Result<(), Errno> {
        let before = self.lingering.len();
        let result = self.set(handle, attr, now, fault);
        self.lingering.truncate(before);
        match result {
            Ok(Took::Done) => Ok(()),
            // Somebody's own deadline policy, which nobody in a crowd has.
            Ok(_) => Err(EPERM),
            Err(errno) => Err(errno),
        }
    }

    /// Whether this domain's sum holds what has left.
    pub fn is_lingering(&self, cpus: &CpuSet, now: Time) -> bool {
        let domain = self.domain_of(cpus);
        self.lingering.iter().any(|(until, at, _)| *until > now && Some(*at) == domain)
    }

    /// `sched_setattr` and `sched_setaffinity` by handle. With `fault`, the kernel refuses with it
    /// after having moved the thread to its new CPUs: half of the work is done.
    pub fn set(
        &mut self,
        handle: ThreadId,
        attr: &Attr,
        now: Time,
        fault: Option<Errno>,
    ) -> Result<Took, Errno> {
        let (tid, before) =
            self.behind(handle).map(|(tid, thread)| (tid, thread.attr)).ok_or(ESRCH)?;
        let (asleep_on, owes_until) = (self.threads[&tid].asleep_on, self.threads[&tid].owes_until);
        let cpus = if attr.cpus.is_empty() { before.cpus } else { attr.cpus };
        if cpus.intersection(&self.cpus).is_empty() {
            return Err(EINVAL);
        }
        if let Some(errno) = fault {
            // A deadline thread is not moved.
            if !matches!(before.policy, Policy::Deadline { .. }) {
                self.threads.get_mut(&tid).expect("it lives").attr.cpus = cpus;
            }
            return Err(errno);
        }
        if let Policy::Deadline { runtime, deadline, period } = attr.policy {
            if runtime.as_ns() < 1024 || deadline > period || runtime.as_ns() > deadline.as_ns() {
                return Err(EINVAL);
            }
            let Some(domain) = self.domain_of(&cpus) else { return Err(EPERM) };
            if !matches!(before.policy, Policy::Deadline { .. }) {
                if owes_until > now {
                    return Ok(Took::NotBefore(owes_until));
                }
                if asleep_on.is_some_and(|cpu| !cpus.contains(cpu)) {
                    self.threads.get_mut(&tid).expect("it lives").attr.cpus = cpus;
                    return Ok(Took::Asleep);
                }
            } else if self.domain_of(&before.cpus) != Some(domain) {
                // A deadline thread does not leave its domain.
                return Err(EBUSY);
            }
            self.lingering.retain(|(until, ..)| *until > now);
            let here = self.bandwidth(domain) - self.share_of(&before, domain);
            let room = self.share * u64::from(self.domains[domain].len());
            if here + ratio(runtime, period) > room {
                return Err(EBUSY);
            }
        } else {
            self.linger(&before, now);
        }
        self.threads.get_mut(&tid).expect("it lives").attr = Attr { cpus, ..*attr };
        Ok(Took::Done)
    }

    fn domain_of(&self, cpus: &CpuSet) -> Option<usize> {
        self.domains.iter().position(|domain| domain.is_subset(cpus) && cpus.is_subset(domain))
    }

    fn share_of(&self, attr: &Attr, domain: usize) -> u64 {
        match attr.policy {
            Policy::Deadline { runtime, period, .. }
                if self.domain_of(&attr.cpus) == Some(domain) =>
            {
                ratio(runtime, period)
            }
            _ => 0,
        }
    }

    /// The sum that the kernel's admission test looks at.
    pub fn bandwidth(&self, domain: usize) -> u64 {
        let leaving =
            self.lingering.iter().filter(|(_, at, _)| *at == domain).map(|(_, _, share)| *share);
        let held = self.threads.values().map(|thread| self.share_of(&thread.attr, domain));
        leaving.chain(held).sum()
    }

    fn linger(&mut self, attr: &Attr, now: Time) {
        if let (Policy::Deadline { runtime, period, .. }, Some(domain)) =
            (attr.policy, self.domain_of(&attr.cpus))
        {
            self.lingering.push((now.saturating_add(period), domain, ratio(runtime, period)));
        }
    }
}
