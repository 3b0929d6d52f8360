//! Threads that the daemon holds by pidfd.
//!
//! Invariant: a thread is held from the request that named it until the broker forgets it. Its
//! number ([`ThreadId`]) is never reused, so a late effect finds no thread instead of a different
//! one.

use crate::convert;
use crate::enforcement::{Enforcement, LimitedThread};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use talea_broker::drift;
use talea_broker::input::{Errno, Found, Limit, ThreadError, ThreadFacts, ThreadId, Uids};
use talea_core::mutate;
use talea_core::{Attr, CpuSet, Monotonic, Policy, Span, Work};
use talea_os::epoll::{Epoll, Interest};
use talea_os::sysinfo::{self, SystemInfo};
use talea_os::thread::{Identity, Restored, is_same_or_nudged};
use talea_os::{ApplyError, OpenError, Snapshot, Thread, Tid, clock, proc, sched};
use talea_proto::message::Overruns;
use talea_proto::record::RecordThread;

use super::changes::ChangeEvents;
use super::token::Token;

/// Maximum number of attributes in [`HeldThread::also_given`].
const MAX_ALSO_GIVEN: usize = 8;

/// A held thread.
#[derive(Debug)]
struct HeldThread {
    thread: Arc<Thread>,
    /// Complete attributes when the thread was named; the broker keeps the part that it needs.
    snapshot: Snapshot,
    watched: bool,
    /// Period of the thread while it is in the deadline class under a grant.
    period: Option<Span>,
    /// Last known user ids.
    uids: Uids,
    /// User that all user ids of the thread must name; `None` under a grant of the superuser.
    owner: Option<u32>,
    /// Attributes applied by this daemon or an earlier one.
    applied: Option<Attr>,
    /// Attributes that the thread may have from its grant besides: those that the kernel has
    /// refused since, perhaps after it has accepted a part, and those of a throttled thread whose
    /// limit has ended.
    also_given: Vec<Attr>,
    /// Attributes before the grant.
    previous: Attr,
    /// Timer slack in nanoseconds before the grant, if the thread was ordinary.
    slack: Option<u64>,
    limit: ThreadLimit,
    /// Number of overruns that the broker knows.
    reported_overruns: u64,
}

impl HeldThread {
    /// Returns the attributes in force, and for a throttled thread its ordinary attributes.
    fn in_force(&self) -> io::Result<(Snapshot, Option<Attr>)> {
        match &self.limit {
            ThreadLimit::Enforced(limited) => limited.with_throttled(|ordinary| {
                let found = self.thread.snapshot_in_force_unchecked()?;
                Ok((found, ordinary.map(|ordinary| throttled_attr(ordinary, &found))))
            }),
            _ => Ok((self.thread.snapshot_in_force_unchecked()?, None)),
        }
    }

    fn note_given(&mut self, attr: Attr) {
        if self.also_given.contains(&attr) {
            return;
        }
        if self.also_given.len() >= MAX_ALSO_GIVEN {
            self.also_given.remove(0);
        }
        self.also_given.push(attr);
    }

    /// Sets the CPUs of a thread that sleeps in another root domain. A thread with a policy of its
    /// old terms gets the policy before its grant: nothing covers the old policy on the new CPUs.
    fn await_wakeup(&mut self, attr: &Attr, owner: Option<u32>) -> Result<(), Errno> {
        if let Some(applied) = mutate!("daemon-change-asleep", self.applied, None) {
            let given: Vec<Attr> = self.also_given.iter().chain([&applied]).copied().collect();
            let before = Attr { cpus: attr.cpus, ..self.previous };
            restore(&self.thread, &before, Some(&self.snapshot), &given, owner)?;
            self.applied = None;
        }
        self.thread.pin(&attr.cpus).map_err(|error| convert::errno(&error))
    }
}

/// Limit of a held thread.
#[derive(Debug)]
enum ThreadLimit {
    None,
    Enforced(Arc<LimitedThread>),
    /// The limit cannot be enforced: no policy is applied.
    Failed(Errno),
}

/// Result of an apply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ApplyOutcome {
    /// The kernel accepted or refused the attributes.
    Done(Result<(), Errno>),
    /// The thread sleeps in another root domain. Its CPUs are set, so it is in the right domain
    /// when it wakes, and it has no policy of a grant.
    PendingWakeup,
    /// The thread is not as the broker assumes, and was not changed.
    Unexpected(Found),
    /// The thread has overrun a deadline budget: apply must be repeated at this time.
    NotBefore(Monotonic),
}

/// All held threads.
#[derive(Debug, Default)]
pub(super) struct Threads {
    enforcement: Option<Enforcement>,
    // Boxed: each entry has half a kilobyte, which the map would move.
    held: BTreeMap<ThreadId, Box<HeldThread>>,
    last: u64,
    /// Thread whose attributes were read for the current request: they need not be read again.
    fresh: Option<ThreadId>,
    /// Time at which the kernel has released the bandwidth of every deadline thread that has left.
    dl_free_at: Option<Monotonic>,
    /// Whether the control group of a thread may refuse real-time policies to it.
    has_rt_groups: bool,
    pub(super) changes: ChangeEvents,
}

/// Returns the period of a deadline policy; `None` for any other policy.
fn period_of(policy: sched::Policy) -> Option<Span> {
    match policy {
        sched::Policy::Deadline { period, .. } => Some(period),
        _ => None,
    }
}

impl Threads {
    /// Creates an empty list for this machine.
    pub(super) fn new(machine: &SystemInfo, enforcement: Option<Enforcement>) -> Threads {
        Threads {
            has_rt_groups: machine.cgroups.rt_group.is_some(),
            enforcement,
            ..Threads::default()
        }
    }

    /// Whether a held thread is in the deadline class.
    pub(super) fn has_deadline(&self) -> bool {
        self.held.values().any(|held| held.period.is_some())
    }

    /// Returns the time at which the last departed deadline thread leaves the kernel's bandwidth
    /// accounting; `None` if there was none.
    pub(super) fn dl_free_at(&self) -> Option<Monotonic> {
        self.dl_free_at
    }

    /// Records that a thread with this period has left the deadline class.
    fn note_deadline_exit(&mut self, period: Option<Span>) {
        if let Some(period) = period {
            self.dl_free_at = self.dl_free_at.max(Some(clock::now().saturating_add(period)));
        }
    }

    /// Holds `thread`, named by a request, and returns its attributes. Its identity is checked when
    /// attributes are applied to it.
    pub(super) fn hold_for_request(&mut self, thread: Thread) -> Result<ThreadFacts, ThreadError> {
        let before = thread.snapshot_unchecked();
        self.hold(thread, before)
    }

    /// Holds `thread` and returns its attributes.
    fn hold(
        &mut self,
        thread: Thread,
        before: Result<Snapshot, ApplyError>,
    ) -> Result<ThreadFacts, ThreadError> {
        // With an inode, the start time is not needed; it would cost three system calls and a page
        // of text.
        let start = match thread.inode() {
            0 => thread.start_ticks().map_err(|error| convert::thread_error(&error))?,
            _ => 0,
        };
        let before = before.map_err(|error| match error {
            ApplyError::Gone => ThreadError::Gone,
            ref other => ThreadError::Kernel(convert::errno(other)),
        })?;
        self.last += 1;
        let id = ThreadId(self.last);
        let facts = ThreadFacts {
            thread: id,
            tid: thread.tid().as_raw() as u32,
            tgid: thread.tgid().as_raw() as u32,
            uids: convert::uids_of(thread.uids()),
            start,
            inode: thread.inode(),
            attr: convert::attr_of(&before),
            fifo: !self.has_rt_groups || sysinfo::group_permits_realtime(thread.tid()),
            rt_time: sysinfo::rt_time_of(thread.tid()),
        };
        // A grant of an earlier daemon may already be in the deadline class.
        let period = period_of(before.attr.policy);
        let (uids, previous) = (facts.uids, facts.attr);
        let is_ordinary = !before.attr.policy.is_realtime();
        let slack = is_ordinary.then(|| thread.timer_slack().ok()).flatten();
        let held = HeldThread {
            thread: Arc::new(thread),
            snapshot: before,
            watched: false,
            period,
            uids,
            owner: None,
            applied: None,
            also_given: Vec::new(),
            previous,
            slack,
            limit: ThreadLimit::None,
            reported_overruns: 0,
        };
        self.held.insert(id, Box::new(held));
        self.fresh = Some(id);
        Ok(facts)
    }

    /// Marks the end of a request: attributes that were read for it may be outdated.
    pub(super) fn clear_fresh(&mut self) {
        self.fresh = None;
    }

    /// Holds the thread of an earlier daemon's record of this user, if it still exists.
    pub(super) fn reopen(&mut self, record: &RecordThread, uid: u32) -> Option<ThreadFacts> {
        let RecordThread { inode, start: start_ticks, applied, previous, .. } = *record;
        let tid = Tid::new(i32::try_from(record.tid).ok()?)?;
        let thread = Thread::reopen(&Identity { tid, inode, start_ticks }).ok()?;
        let (own, old) = (convert::kernel_attr(&applied), convert::kernel_attr(&previous));
        // If this fails, the thread is restored or updated with the others.
        if let Ok(true) = thread.finish_deadline_exit(&own, &old) {
            self.note_deadline_exit(period_of(own.policy));
        }
        let before = thread.snapshot();
        let facts = self.hold(thread, before).ok()?;
        self.clear_fresh();
        let held = self.held.get_mut(&facts.thread).expect("it was just held");
        held.applied = Some(drift::adopted(&facts.attr, &applied, &previous));
        (held.previous, held.owner) = (previous, Some(uid).filter(|&uid| uid != 0));
        Some(facts)
    }

    /// Returns the user whose grant the thread has; root for a thread without a grant.
    pub(super) fn owner(&self, id: ThreadId) -> u32 {
        self.held.get(&id).and_then(|held| held.owner).unwrap_or(0)
    }

    /// Returns the thread's user ids if they have changed since the last check.
    pub(super) fn changed_uids(&mut self, id: ThreadId) -> Option<Uids> {
        let held = self.held.get_mut(&id)?;
        // The exit of a thread is reported separately.
        let uids = convert::uids_of(held.thread.uids_now().ok()?);
        (std::mem::replace(&mut held.uids, uids) != uids).then_some(uids)
    }

    /// Pins the enforcers of the CPUs that are on-line.
    pub(super) fn pin_enforcers(&self, online: &CpuSet) -> io::Result<()> {
        self.enforcement.as_ref().map_or(Ok(()), |enforcement| enforcement.pin(online))
    }

    /// Returns the FIFO and RR threads that may use `cpus`.
    pub(super) fn fifo_on(&self, cpus: &CpuSet) -> VecDeque<ThreadId> {
        let is_here = |attr: &Attr| {
            matches!(attr.policy, Policy::Fifo(_) | Policy::Rr(_))
                && (attr.cpus.is_empty() || !attr.cpus.intersection(cpus).is_empty())
        };
        if cpus.is_empty() {
            return VecDeque::new();
        }
        let here = self.held.iter().filter(|(_, held)| held.applied.as_ref().is_some_and(is_here));
        here.map(|(&id, _)| id).collect()
    }

    /// Returns the CPU time of a thread that has not exited.
    pub(super) fn cpu_time(&self, id: ThreadId) -> Option<Work> {
        proc::cpu_time(self.held.get(&id)?.thread.tid()).ok()
    }

    /// Whether the thread has attributes of its grant.
    pub(super) fn is_applied(&self, id: ThreadId) -> bool {
        self.held.get(&id).is_some_and(|held| held.applied.is_some())
    }

    /// Returns the next thread to inspect, in turn; `None` if no thread is held.
    pub(super) fn next_to_inspect(&mut self) -> Option<ThreadId> {
        let after = (Bound::Excluded(self.changes.inspected), Bound::Unbounded);
        let next = self.held.range(after).chain(&self.held).next();
        let (&id, _) = next?;
        self.changes.inspected = id;
        Some(id)
    }

    /// Returns the thread's attributes if they differ from those applied last; otherwise `None`.
    pub(super) fn changed_attr(&self, id: ThreadId) -> Option<Attr> {
        let held = self.held.get(&id)?;
        let applied = held.applied.as_ref()?;
        let (found, throttled) = held.in_force().ok()?;
        let wanted = convert::kernel_attr(applied);
        let is_throttled =
            throttled.is_some_and(|attr| drift::is_given(&convert::attr_of(&found), &[attr]));
        let has_policy = mutate!("daemon-inspect-throttled", is_throttled, false)
            || found.attr.reset_on_fork == wanted.reset_on_fork
                && is_same_or_nudged(&found.attr.policy, &wanted.policy);
        let has_cpus = applied.cpus.is_empty() || found.affinity == applied.cpus;
        if has_policy && (has_cpus || !has_left(&found.affinity, &applied.cpus)) {
            return None;
        }
        let mut attr = convert::attr_of(&found);
        if has_policy {
            // Without the driver's own changes.
            (attr.policy, attr.reset_on_fork) = (applied.policy, applied.reset_on_fork);
        }
        // The number may be another thread's by now.
        (held.thread.is_alive() && !self.has_ended_sibling(held)).then_some(attr)
    }

    /// Whether an attached thread of the same process has ended, and its end is not handled yet. A
    /// main thread may have inherited its attributes: see [`Threads::revoke_inherited`].
    fn has_ended_sibling(&self, held: &HeldThread) -> bool {
        let siblings = self.changes.of_process(held.thread.tgid());
        siblings.filter_map(|id| self.held.get(&id)).any(|other| !other.thread.is_alive())
    }

    /// Watches for the thread's exit.
    pub(super) fn watch(&mut self, id: ThreadId, epoll: &Epoll) -> io::Result<()> {
        let Some(held) = self.held.get_mut(&id).filter(|held| !held.watched) else { return Ok(()) };
        self.changes.add(held.thread.tgid(), id);
        epoll.add(&held.thread, Interest::READ, Token::Thread(id.0).pack())?;
        held.watched = true;
        Ok(())
    }

    /// Stops watching a thread whose exit has been reported.
    pub(super) fn ended(&mut self, id: ThreadId, epoll: &Epoll) {
        if let Some(held) = self.held.get_mut(&id).filter(|held| held.watched) {
            held.watched = false;
            // The descriptor is open, so this cannot fail.
            let _ = epoll.remove(&held.thread);
        }
    }

    /// Closes the handle of the thread and stops watching it.
    ///
    /// Closing alone does not remove a client's descriptor from the epoll set: the client may hold
    /// the same open file. Then the entry would be reported forever after the thread's exit. (The
    /// same holds after a fork without exec, which this process does not do.)
    ///
    /// An exited thread may have passed its attributes on: returns the result of
    /// [`Threads::revoke_inherited`].
    pub(super) fn forget(
        &mut self,
        id: ThreadId,
        epoll: &Epoll,
    ) -> Option<Result<Restored, Errno>> {
        if self.held.get(&id)?.thread.is_shared() {
            self.ended(id, epoll);
        }
        let held = self.held.remove(&id)?;
        self.end_limit(&held.limit, false);
        self.changes.remove(held.thread.tgid(), id);
        self.note_deadline_exit(held.period);
        let applied = held
            .applied
            .filter(|_| held.thread.tid() != held.thread.tgid() && !held.thread.is_alive())?;
        self.revoke_inherited(held.thread.tgid(), &applied, &held.previous, held.owner)
    }

    /// Revokes attributes that an exited thread has passed to its process's main thread.
    ///
    /// A thread that executes a program (`execve`) replaces its process's main thread and takes
    /// over its id. The kernel reports an exit, but the main thread keeps the attributes, without a
    /// grant for it. Returns `None` if there was nothing to revoke, else the result of restoring
    /// the main thread (or the thread that now has its id).
    pub(super) fn revoke_inherited(
        &mut self,
        main: Tid,
        applied: &Attr,
        previous: &Attr,
        owner: Option<u32>,
    ) -> Option<Result<Restored, Errno>> {
        let main = Thread::open(main).ok()?;
        let found = main.snapshot().ok()?;
        let has = found.attr;
        if mutate!(
            "life-taken-along",
            !has.policy.is_realtime()
                || mutate!(
                    "life-taken-along-nudged",
                    !drift::is_given(&convert::attr_of(&found), &[*applied]),
                    has.policy != convert::kernel_attr(applied).policy
                ),
            previous.reset_on_fork || !has.policy.is_deadline()
        ) || !has.reset_on_fork
        {
            return None;
        }
        let held =
            self.held.values().find_map(|held| held.applied.filter(|_| held.thread.is_same(&main)));
        // A set-user-id program is only demoted, and its own grant ends for its credentials.
        let is_foreign = owner.is_some_and(|owner| {
            main.uids_now().is_ok_and(|uids| convert::uids_of(uids).other_than(owner).is_some())
        });
        match held.filter(|_| !is_foreign) {
            // The main thread has a grant of its own with exactly these attributes.
            Some(own) if convert::kernel_attr(&own).policy == has.policy => None,
            Some(own) => Some(
                main.apply(&convert::kernel_attr(&own), convert::affinity(&own))
                    .map(|()| Restored::Exactly)
                    .map_err(|error| convert::errno(&error)),
            ),
            None => Some(restore(&main, previous, None, &[*applied], owner)),
        }
    }

    /// Applies attributes to the thread.
    pub(super) fn apply(&mut self, id: ThreadId, attr: &Attr, owner: Option<u32>) -> ApplyOutcome {
        let Some(held) = self.held.get(&id) else { return ApplyOutcome::Done(Err(ESRCH)) };
        let (cpus, kernel_attr) = (convert::affinity(attr), convert::kernel_attr(attr));
        // Only once: after this call the attributes are different.
        let is_fresh = self.fresh.take_if(|fresh| *fresh == id).is_some();
        let (before, throttled) = if is_fresh {
            (held.snapshot, None)
        } else {
            match held.in_force() {
                Ok(found) => found,
                Err(_) if !held.thread.is_alive() => return ApplyOutcome::Done(Err(ESRCH)),
                Err(error) => return ApplyOutcome::Done(Err(io_errno(&error))),
            }
        };
        if let Some(applied) = &held.applied {
            let found = convert::attr_of(&before);
            let given: Vec<Attr> = [*applied, *attr].into_iter().chain(throttled).collect();
            if !drift::is_given(&found, &given)
                && held.thread.is_alive()
                && !self.has_ended_sibling(held)
            {
                return ApplyOutcome::Unexpected(Found::Attr(found));
            }
        }
        let Some(held) = self.held.get_mut(&id) else { return ApplyOutcome::Done(Err(ESRCH)) };
        held.owner = owner;
        // Immediately before the call: the thread may change its credentials at any time.
        if let Some(owner) = mutate!("daemon-apply-owner", owner, None) {
            match held.thread.uids_now().map(convert::uids_of) {
                Ok(uids) if uids.other_than(owner).is_none() => {}
                Ok(uids) => {
                    held.uids = uids;
                    return ApplyOutcome::Unexpected(Found::Credentials(uids));
                }
                Err(_) => return ApplyOutcome::Done(Err(ESRCH)),
            }
        } else if !held.thread.is_alive() {
            return ApplyOutcome::Done(Err(ESRCH));
        }
        let apply = || held.thread.apply_over(&before, &kernel_attr, cpus);
        let applied = match (&held.limit, &self.enforcement) {
            (ThreadLimit::Enforced(limited), Some(enforcement)) => {
                if let Err(error) = place(enforcement, limited, attr) {
                    return ApplyOutcome::Done(Err(error));
                }
                if limited.has_ended() {
                    // Its demotion is on its way to the broker.
                    return ApplyOutcome::Done(Err(EPERM));
                }
                let throttle = |ordinary: &sched::Attr| held.thread.apply(ordinary, cpus);
                let apply = || {
                    if is_fresh {
                        apply()
                    } else {
                        // The enforcer may have changed the policy since.
                        held.thread.apply(&kernel_attr, cpus)
                    }
                };
                let (applied, refill) = limited.apply(&kernel_attr, throttle, apply);
                if let Some(at) = refill {
                    enforcement.refill_at(limited, at);
                }
                applied
            }
            (&ThreadLimit::Failed(errno), _) => return ApplyOutcome::Done(Err(errno)),
            _ => apply(),
        };
        if applied.is_err() {
            held.note_given(*attr);
        }
        match applied {
            Ok(()) => {
                held.applied = Some(*attr);
                held.also_given.clear();
                let left = std::mem::replace(&mut held.period, period_of(kernel_attr.policy));
                self.note_deadline_exit(left);
                ApplyOutcome::Done(Ok(()))
            }
            // An infinite wait is a refusal.
            Err(ApplyError::OverrunDebt { until }) if until < Monotonic::NEVER => {
                ApplyOutcome::NotBefore(until)
            }
            Err(ApplyError::OtherRootDomain { .. }) if cpus.is_some() => {
                match held.await_wakeup(attr, owner) {
                    Ok(()) => ApplyOutcome::PendingWakeup,
                    Err(errno) => ApplyOutcome::Done(Err(errno)),
                }
            }
            Err(error) => ApplyOutcome::Done(Err(convert::errno(&error))),
        }
    }

    /// Makes a thread without a grant an ordinary thread with this nice value.
    pub(super) fn set_nice(
        &mut self,
        id: ThreadId,
        nice: i8,
        owner: Option<u32>,
    ) -> Result<(), Errno> {
        let held = self.held.get(&id).ok_or(ESRCH)?;
        let uids = held.thread.uids_now().map(convert::uids_of).map_err(|_| ESRCH)?;
        if owner.is_some_and(|owner| uids.other_than(owner).is_some()) {
            return Err(EPERM);
        }
        let attr = sched::Attr::grant(sched::Policy::Other { nice: nice.into() });
        held.thread.apply(&attr, None).map_err(|error| convert::errno(&error))
    }

    /// Replaces the limit of the thread.
    pub(super) fn limit(&mut self, id: ThreadId, limit: Option<Limit>) -> io::Result<()> {
        let Some(held) = self.held.get_mut(&id) else { return Ok(()) };
        let before = std::mem::replace(&mut held.limit, ThreadLimit::None);
        self.end_limit(&before, limit.is_none());
        let (Some(held), Some(enforcement)) = (self.held.get_mut(&id), &mut self.enforcement)
        else {
            return Ok(());
        };
        let Some(limit) = limit else { return Ok(()) };
        let limited = enforcement.limit(id, held.thread.clone(), held.snapshot.nice, limit);
        let limited = limited.inspect_err(|error| {
            let errno = error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
            held.limit = ThreadLimit::Failed(Errno(errno));
            if held.applied.is_some() {
                // Without a limit the thread keeps no policy; the broker is notified.
                let ordinary = sched::Policy::Other { nice: held.snapshot.nice };
                drop(held.thread.apply(&sched::Attr::grant(ordinary), None));
            }
        })?;
        if let ThreadLimit::Enforced(before) = &before {
            limited.continue_count(before.overruns());
        }
        if let Some(applied) = held.applied
            && place(enforcement, &limited, &applied).is_ok()
            && let Some(at) = limited.adopt(&convert::kernel_attr(&applied))
        {
            enforcement.refill_at(&limited, at);
        }
        held.limit = ThreadLimit::Enforced(limited);
        Ok(())
    }

    /// Ends all limits. Throttled threads get their policies back: their grants stay.
    pub(super) fn end_limits(&mut self) {
        let limits: Vec<_> = self
            .held
            .values_mut()
            .map(|held| std::mem::replace(&mut held.limit, ThreadLimit::None))
            .collect();
        for limit in &limits {
            self.end_limit(limit, true);
        }
    }

    /// Ends a limit. Returns the attributes that the enforcer has set, if the thread has them.
    fn end_limit(&mut self, limit: &ThreadLimit, restore: bool) -> Option<sched::Attr> {
        match (limit, &mut self.enforcement) {
            (ThreadLimit::Enforced(limited), Some(enforcement)) => {
                enforcement.end(limited, restore)
            }
            _ => None,
        }
    }

    /// Returns the overruns of the thread.
    pub(super) fn overruns(&self, id: ThreadId) -> Overruns {
        match self.held.get(&id).map(|held| &held.limit) {
            Some(ThreadLimit::Enforced(limited)) => limited.overruns(),
            _ => Overruns::default(),
        }
    }

    /// Returns the overruns of the thread, with the CPU time that the thread had consumed of its
    /// budget at the last one; `None` without a new one since the last call.
    pub(super) fn new_overruns(&mut self, id: ThreadId) -> Option<(u64, Work)> {
        let held = self.held.get_mut(&id)?;
        let ThreadLimit::Enforced(limited) = &held.limit else { return None };
        let overruns = limited.overruns().count;
        let before = std::mem::replace(&mut held.reported_overruns, overruns);
        (overruns > before).then(|| (overruns, limited.last_consumed()))
    }

    /// Returns the threads that an enforcer has demoted since the last call.
    pub(super) fn take_demoted(&self) -> Vec<ThreadId> {
        self.enforcement.as_ref().map_or(Vec::new(), Enforcement::take_demoted)
    }

    /// Restores the thread to `attr`, as far as it still has what was `applied`. If its policy
    /// becomes the one with which the thread was named, the attributes that the broker does not
    /// know are restored, too.
    pub(super) fn restore(
        &mut self,
        id: ThreadId,
        attr: &Attr,
        applied: &Attr,
        owner: Option<u32>,
    ) -> Result<Restored, Errno> {
        let held = self.held.get_mut(&id).ok_or(ESRCH)?;
        let limit = std::mem::replace(&mut held.limit, ThreadLimit::None);
        let ordinary = self.end_limit(&limit, false);
        let held = self.held.get_mut(&id).ok_or(ESRCH)?;
        if let Some(ordinary) = ordinary
            && let Ok(found) = held.thread.snapshot_in_force_unchecked()
        {
            // Kept until the thread is restored: the limit has ended.
            held.note_given(throttled_attr(&ordinary, &found));
        }
        let given: Vec<Attr> =
            held.also_given.iter().chain(&held.applied).chain([applied]).copied().collect();
        let restored = restore(&held.thread, attr, Some(&held.snapshot), &given, owner)?;
        held.applied = None;
        held.also_given.clear();
        if let Some(slack) = held.slack {
            // A thread that has just exited needs none.
            let _ = mutate!("kernel-timer-slack", held.thread.restore_timer_slack(slack), Ok(()));
        }
        let left =
            std::mem::replace(&mut held.period, period_of(convert::kernel_attr(attr).policy));
        self.note_deadline_exit(left);
        Ok(restored)
    }
}

/// Assigns the limit to the enforcer of the first CPU of `attr`.
fn place(
    enforcement: &Enforcement,
    limited: &Arc<LimitedThread>,
    attr: &Attr,
) -> Result<(), Errno> {
    let cpu = attr.cpus.iter().next().or(limited.cpu()).unwrap_or(0);
    enforcement.place(limited, cpu).map_err(|error| io_errno(&error))
}

/// Returns the attributes of a throttled thread that is found with `found`. The nice value is the
/// current one, because no grant changes it.
fn throttled_attr(ordinary: &sched::Attr, found: &Snapshot) -> Attr {
    let policy = match Policy::from(ordinary.policy) {
        Policy::Other { .. } => Policy::Other { nice: found.nice.clamp(-20, 19) as i8 },
        other => other,
    };
    // The CPUs are those applied.
    Attr { policy, reset_on_fork: ordinary.reset_on_fork, cpus: CpuSet::EMPTY }
}

/// Whether a thread that may use `now` has left the CPUs of its grant. A thread whose CPUs are all
/// off-line has not, and an off-line CPU is in no affinity that the kernel shows.
fn has_left(now: &CpuSet, granted: &CpuSet) -> bool {
    let Some(online) = sysinfo::online_now() else { return false };
    let usable = granted.intersection(&online);
    !usable.is_empty() && usable != *now
}

/// Returns the affinity of a thread of which the kernel shows `now`. The kernel hides CPUs that are
/// off-line, so `now` may be what it shows of an affinity that a grant has `given`.
fn whole_affinity(now: &CpuSet, given: &[Attr]) -> CpuSet {
    let shows_as_now = |cpus: &CpuSet| {
        let is_wider = cpus != now && now.is_subset(cpus);
        is_wider && sysinfo::online_now().is_some_and(|online| cpus.intersection(&online) == *now)
    };
    given.iter().map(|attr| attr.cpus).find(shows_as_now).unwrap_or(*now)
}

/// Restores a thread to `attr`, as far as its policy and its CPUs are as `given`.
///
/// `named` has the complete attributes when the thread was named: the broker's part of them may be
/// `attr`. The nice value stays, because no grant changes it.
fn restore(
    thread: &Thread,
    attr: &Attr,
    named: Option<&Snapshot>,
    given: &[Attr],
    owner: Option<u32>,
) -> Result<Restored, Errno> {
    let mut now = thread.snapshot().map_err(|error| convert::errno(&error))?;
    mutate!("daemon-restore-offline", now.affinity = whole_affinity(&now.affinity, given));
    // Immediately before the calls: the thread may change its credentials at any time.
    let is_foreign = match mutate!("daemon-restore-owner", owner, None) {
        Some(owner) => {
            let uids = thread.uids_now().map_err(|_| ESRCH)?;
            convert::uids_of(uids).other_than(owner).is_some()
        }
        None => false,
    };
    let has = convert::attr_of(&now);
    let wanted = drift::restored(&has, given, attr, is_foreign);
    if (wanted.policy, wanted.reset_on_fork) == (has.policy, has.reset_on_fork) {
        if wanted.cpus == has.cpus {
            return Ok(Restored::Exactly);
        }
        return thread.restore_affinity(&wanted.cpus).map_err(|error| convert::errno(&error));
    }
    let kernel_attr = match named {
        Some(named) if convert::attr_of(named).policy == wanted.policy => named.attr,
        _ => convert::kernel_attr(&wanted),
    };
    let policy = match kernel_attr.policy {
        sched::Policy::Other { .. } => sched::Policy::Other { nice: now.nice },
        sched::Policy::Batch { .. } => sched::Policy::Batch { nice: now.nice },
        sched::Policy::Ext { .. } => sched::Policy::Ext { nice: now.nice },
        other => other,
    };
    let kernel_attr = sched::Attr { policy, reset_on_fork: wanted.reset_on_fork, ..kernel_attr };
    let snapshot = Snapshot { attr: kernel_attr, nice: now.nice, affinity: wanted.cpus };
    thread.restore_over(&now, &snapshot).map_err(|error| convert::errno(&error))
}

fn io_errno(error: &io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()))
}

const ESRCH: Errno = Errno(3);
const EPERM: Errno = Errno(1);

/// Returns the error for the broker.
pub(super) fn not_found(error: &OpenError) -> ThreadError {
    convert::thread_error(error)
}
