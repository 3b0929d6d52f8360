//! Simulated kernel: processes, threads with attributes, handles that outlive their threads, and an
//! admission test of its own for the deadline class.
//!
//! A deadline thread must be allowed to run on its whole admission domain (EPERM). The domain's sum
//! must be within its share (EBUSY). The bandwidth of a thread that leaves the class stays in that
//! sum for up to one period, unless the runtime is shrunk first.

use crate::drift;
use crate::input::{Errno, Platform, ProcessId, ThreadFacts, ThreadId, Uids};
use crate::ungranted::RealTimeThread;
use std::collections::BTreeMap;
use talea_core::{Attr, CpuSet, Monotonic, Policy, Span, Work};

const EPERM: Errno = Errno(1);
const ESRCH: Errno = Errno(3);
const EBUSY: Errno = Errno(16);
const EINVAL: Errno = Errno(22);

/// Fraction bits of the kernel's bandwidth, which is rounded down (`to_ratio`).
const UNITS: u32 = 20;

fn ratio(runtime: Work, period: Span) -> u64 {
    ((u128::from(runtime.as_ns()) << UNITS) / u128::from(period.as_ns())) as u64
}

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Start time, unique together with the id.
    pub start: u64,
    /// Process of the thread.
    pub tgid: u32,
    /// User ids.
    pub uids: Uids,
    /// Current attributes.
    pub attr: Attr,
    /// Attributes without a grant.
    pub own: Attr,
    /// Time at which the thread itself or an administrator last set its attributes.
    pub set_outside_at: Option<Monotonic>,
    /// Time at which its credentials last changed.
    pub credentials_at: Option<Monotonic>,
    /// CPU on which the thread sleeps; it stays in that CPU's domain until it wakes, whatever its
    /// attributes are.
    pub asleep_on: Option<u32>,
    /// End of the overrun of its last deadline budget.
    pub overrun_until: Monotonic,
    /// Whether its control group permits FIFO and RR.
    pub fifo: bool,
    /// RLIMIT_RTTIME.
    pub rt_time: Option<Work>,
}

/// Result of an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// The kernel has applied all attributes.
    Done,
    /// Only the CPUs were set: the thread sleeps in another domain.
    Asleep,
    /// The kernel applies nothing before this end of the thread's overrun.
    NotBefore(Monotonic),
}

/// Processes, threads and handles.
#[derive(Debug)]
pub struct Kernel {
    cpus: CpuSet,
    /// Admission domains of deadline bandwidth, each with its own sum.
    domains: Vec<CpuSet>,
    /// Share of one CPU, in the kernel's units.
    share: u64,
    /// Existing processes with their start time and user.
    pub processes: BTreeMap<u32, (u64, u32)>,
    /// Existing threads by id.
    pub threads: BTreeMap<u32, Thread>,
    handles: BTreeMap<ThreadId, (u32, u64)>,
    zero_lag_holds: Vec<(Monotonic, usize, u64)>,
    /// Counter for start times and handles.
    ticks: u64,
}

impl Kernel {
    /// Creates a kernel for this platform; `pinned` makes a domain of each CPU, as cpuset
    /// partitions do.
    pub fn new(platform: &Platform, pinned: bool) -> Kernel {
        let single = || platform.cpus.iter().map(CpuSet::single).collect();
        Kernel {
            cpus: platform.cpus,
            domains: if pinned { single() } else { platform.root_domains.clone() },
            share: (platform.deadline_share.bits() >> (64 - UNITS)) as u64,
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            handles: BTreeMap::new(),
            zero_lag_holds: Vec::new(),
            ticks: 0,
        }
    }

    /// Returns the attributes of an ordinary thread.
    pub fn ordinary(&self) -> Attr {
        Attr { policy: Policy::Other { nice: 0 }, reset_on_fork: false, cpus: self.cpus }
    }

    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    /// Returns the lowest free id, starting at `from`.
    pub fn free_id(&self, from: u32) -> u32 {
        let taken = |id: &u32| self.threads.contains_key(id) || self.processes.contains_key(id);
        (from..=u32::MAX).find(|id| !taken(id)).expect("ids do not run out in a test")
    }

    /// Creates a process with its main thread.
    pub fn spawn(&mut self, pid: u32, uid: u32) -> ProcessId {
        let start = self.tick();
        self.processes.insert(pid, (start, uid));
        let (attr, own) = (self.ordinary(), self.ordinary());
        self.threads.insert(
            pid,
            Thread {
                asleep_on: None,
                overrun_until: Monotonic::ZERO,
                fifo: true,
                rt_time: None,
                start,
                tgid: pid,
                uids: Uids::all(uid),
                attr,
                own,
                set_outside_at: None,
                credentials_at: None,
            },
        );
        ProcessId { pid, start }
    }

    /// Creates another thread of a process, with the attributes `own`.
    pub fn spawn_thread(&mut self, tid: u32, tgid: u32, own: Attr) {
        let (_, uid) = self.processes[&tgid];
        let start = self.tick();
        self.threads.insert(
            tid,
            Thread {
                asleep_on: None,
                overrun_until: Monotonic::ZERO,
                fifo: true,
                rt_time: None,
                start,
                tgid,
                uids: Uids::all(uid),
                attr: own,
                own,
                set_outside_at: None,
                credentials_at: None,
            },
        );
    }

    /// Ends a thread.
    pub fn end_thread(&mut self, tid: u32, now: Monotonic) {
        if let Some(thread) = self.threads.remove(&tid) {
            self.hold_until_zero_lag(&thread.attr, now);
        }
    }

    /// Ends a process with all its threads.
    pub fn end_process(&mut self, pid: u32, now: Monotonic) {
        self.processes.remove(&pid);
        let threads: Vec<u32> =
            self.threads.iter().filter(|(_, t)| t.tgid == pid).map(|(&tid, _)| tid).collect();
        for tid in threads {
            self.end_thread(tid, now);
        }
    }

    /// Opens a handle for a thread and returns its facts; `None` if there is no such thread.
    pub fn open(&mut self, tid: u32) -> Option<ThreadFacts> {
        let handle = ThreadId(self.tick());
        let thread = self.threads.get(&tid)?;
        self.handles.insert(handle, (tid, thread.start));
        let (tgid, uids, start, attr) = (thread.tgid, thread.uids, thread.start, thread.attr);
        let (fifo, rt_time) = (thread.fifo, thread.rt_time);
        let inode = start;
        Some(ThreadFacts { thread: handle, tid, tgid, uids, start, inode, attr, fifo, rt_time })
    }

    /// Returns all real-time threads.
    pub fn real_time_threads(&self) -> Vec<RealTimeThread> {
        let of = |(&tid, thread): (&u32, &Thread)| {
            let Attr { policy, cpus, .. } = thread.attr;
            policy.is_real_time().then_some(RealTimeThread { tid, cpus, policy })
        };
        self.threads.iter().filter_map(of).collect()
    }

    /// Changes the credentials of a thread.
    pub fn change_credentials(&mut self, tid: u32, uids: Uids, now: Monotonic) {
        let thread = self.threads.get_mut(&tid).expect("the thread exists");
        (thread.uids, thread.credentials_at) = (uids, Some(now));
    }

    /// Changes the attributes of a thread from outside of Talea. A deadline thread cannot be moved.
    pub fn set_outside(&mut self, tid: u32, attr: Attr, now: Monotonic) {
        let thread = self.threads.get_mut(&tid).expect("the thread exists");
        if !matches!(thread.attr.policy, Policy::Deadline { .. }) {
            (thread.attr, thread.set_outside_at) = (attr, Some(now));
        }
    }

    /// Puts a thread to sleep on this CPU. live counterpart: a client that waits for the reply to
    /// its attach.
    pub fn put_to_sleep(&mut self, tid: u32, cpu: u32) {
        let thread = self.threads.get_mut(&tid).expect("the thread exists");
        // A deadline thread is always inside its domain.
        if thread.attr.cpus.contains(cpu) && !matches!(thread.attr.policy, Policy::Deadline { .. })
        {
            thread.asleep_on = Some(cpu);
        }
    }

    /// Wakes a thread, which moves to its CPUs.
    pub fn wake(&mut self, tid: u32) {
        self.threads.get_mut(&tid).expect("the thread exists").asleep_on = None;
    }

    /// Sets an overrun of a thread's last deadline budget. live counterpart: a thread that is
    /// detached while it is throttled.
    pub fn set_overrun(&mut self, tid: u32, until: Monotonic) {
        self.threads.get_mut(&tid).expect("the thread exists").overrun_until = until;
    }

    /// Returns the user ids of a handle's thread; `None` if the thread has exited.
    pub fn uids_of(&self, handle: ThreadId) -> Option<Uids> {
        self.thread_of(handle).map(|(_, thread)| thread.uids)
    }

    /// Closes a handle.
    pub fn close(&mut self, handle: ThreadId) {
        assert!(
            self.handles.remove(&handle).is_some(),
            "{handle:?} is closed twice or was never opened"
        );
    }

    /// Returns the number of open handles.
    pub fn open_handles(&self) -> usize {
        self.handles.len()
    }

    /// Closes every handle, as the end of the daemon does.
    pub fn close_all(&mut self) {
        self.handles.clear();
    }

    /// Returns the thread of a handle, if it exists.
    pub fn thread_of(&self, handle: ThreadId) -> Option<(u32, &Thread)> {
        let (tid, start) = self.handles.get(&handle)?;
        self.threads.get(tid).filter(|thread| thread.start == *start).map(|thread| (*tid, thread))
    }

    /// Whether a process exists.
    pub fn is_alive(&self, process: ProcessId) -> bool {
        self.processes.get(&process.pid).is_some_and(|(start, _)| *start == process.start)
    }

    /// Restores attributes, as the driver does: only those that are as `given`, and the runtime of
    /// a deadline thread is shrunk first, so that no zero-lag hold remains.
    pub fn restore(
        &mut self,
        handle: ThreadId,
        attr: &Attr,
        (given, owner): (&[Attr], Option<u32>),
        now: Monotonic,
        fault: Option<Errno>,
    ) -> Result<(), Errno> {
        let before = self.zero_lag_holds.len();
        let (_, thread) = self.thread_of(handle).ok_or(ESRCH)?;
        let (has, uids) = (thread.attr, thread.uids);
        let is_foreign = owner.is_some_and(|owner| uids.other_than(owner).is_some());
        let attr = drift::restored(&has, given, attr, is_foreign);
        if attr == has {
            return Ok(());
        }
        let result = self.set(handle, &attr, now, fault);
        self.zero_lag_holds.truncate(before);
        match result {
            Ok(ApplyOutcome::Done) => Ok(()),
            // Deadline policies outside of grants do not occur in the simulation.
            Ok(_) => Err(EPERM),
            Err(errno) => Err(errno),
        }
    }

    /// Restores the policy of a thread, which keeps the CPUs where it will wake: nothing covers the
    /// policy of its old terms there.
    pub fn await_wakeup(
        &mut self,
        handle: ThreadId,
        given: Option<[Attr; 2]>,
        owner: Option<u32>,
        now: Monotonic,
    ) {
        let Some(given) = given else { return };
        let (_, thread) = self.thread_of(handle).expect("it sleeps");
        let own = Attr { cpus: thread.attr.cpus, ..thread.own };
        let done = self.restore(handle, &own, (&given, owner), now, None);
        assert_eq!(done, Ok(()), "the kernel restores its own attributes");
    }

    /// Whether the domain of these CPUs has a zero-lag hold at `now`.
    pub fn has_zero_lag_hold(&self, cpus: &CpuSet, now: Monotonic) -> bool {
        let domain = self.domain_of(cpus);
        self.zero_lag_holds.iter().any(|(until, at, _)| *until > now && Some(*at) == domain)
    }

    /// Emulates `sched_setattr` and `sched_setaffinity` by handle. With `fault`, the kernel sets
    /// only the CPUs and then returns this error.
    pub fn set(
        &mut self,
        handle: ThreadId,
        attr: &Attr,
        now: Monotonic,
        fault: Option<Errno>,
    ) -> Result<ApplyOutcome, Errno> {
        let (tid, before) =
            self.thread_of(handle).map(|(tid, thread)| (tid, thread.attr)).ok_or(ESRCH)?;
        let (asleep_on, overrun_until) =
            (self.threads[&tid].asleep_on, self.threads[&tid].overrun_until);
        let cpus = if attr.cpus.is_empty() { before.cpus } else { attr.cpus };
        if cpus.intersection(&self.cpus).is_empty() {
            return Err(EINVAL);
        }
        if let Some(errno) = fault {
            // A deadline thread is not moved.
            if !matches!(before.policy, Policy::Deadline { .. }) {
                self.threads.get_mut(&tid).expect("the thread exists").attr.cpus = cpus;
            }
            return Err(errno);
        }
        if let Policy::Deadline { runtime, deadline, period } = attr.policy {
            if runtime.as_ns() < 1024 || deadline > period || runtime.as_ns() > deadline.as_ns() {
                return Err(EINVAL);
            }
            let Some(domain) = self.domain_of(&cpus) else { return Err(EPERM) };
            if !matches!(before.policy, Policy::Deadline { .. }) {
                if overrun_until > now {
                    return Ok(ApplyOutcome::NotBefore(overrun_until));
                }
                if asleep_on.is_some_and(|cpu| !cpus.contains(cpu)) {
                    self.threads.get_mut(&tid).expect("the thread exists").attr.cpus = cpus;
                    return Ok(ApplyOutcome::Asleep);
                }
            } else if self.domain_of(&before.cpus) != Some(domain) {
                // A deadline thread does not leave its domain.
                return Err(EBUSY);
            }
            self.zero_lag_holds.retain(|(until, ..)| *until > now);
            let here = self.bandwidth(domain) - self.share_of(&before, domain);
            let room = self.share * u64::from(self.domains[domain].len());
            if here + ratio(runtime, period) > room {
                return Err(EBUSY);
            }
        } else {
            self.hold_until_zero_lag(&before, now);
        }
        self.threads.get_mut(&tid).expect("the thread exists").attr = Attr { cpus, ..*attr };
        Ok(ApplyOutcome::Done)
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

    /// Returns the bandwidth that the kernel's admission test counts in a domain, in the kernel's
    /// units.
    pub fn bandwidth(&self, domain: usize) -> u64 {
        let leaving = self
            .zero_lag_holds
            .iter()
            .filter(|(_, at, _)| *at == domain)
            .map(|(_, _, share)| *share);
        let held = self.threads.values().map(|thread| self.share_of(&thread.attr, domain));
        leaving.chain(held).sum()
    }

    fn hold_until_zero_lag(&mut self, attr: &Attr, now: Monotonic) {
        if let (Policy::Deadline { runtime, period, .. }, Some(domain)) =
            (attr.policy, self.domain_of(&attr.cpus))
        {
            self.zero_lag_holds.push((now.saturating_add(period), domain, ratio(runtime, period)));
        }
    }
}
