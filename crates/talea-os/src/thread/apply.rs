//! Sets the attributes of a thread, and restores earlier ones.
//!
//! Invariant: a thread is never left half configured. Policy and affinity are both as requested, or
//! both as they were, or the error reports that restoring failed too.
//!
//! Order of the calls. The kernel refuses a deadline policy to a thread that may not use its whole
//! root domain (`EPERM`), and refuses to narrow the affinity of a deadline thread (`EBUSY`). So the
//! affinity is set before a real-time policy and after leaving one. Leaving the deadline class has
//! its own protocol: see the module `deadline_exit`.
//!
//! The window between a check and a call is some ten microseconds (at an attach it includes the
//! broker's decision and the write of the state file), and a number is reused only after all others
//! were used. If it happens nevertheless, the other thread is detected and becomes an ordinary
//! thread.

use super::errors::{ApplyError, ApplyStep, FailedStep};
use super::run_count::ExecAtEntry;
use super::snapshot::{Snapshot, every_cpu, online, read, read_in_force, shown_nice};
use super::{Thread, deadline_exit, dl_overruns};
use crate::Tid;
use crate::proc;
use crate::sched::{self, Attr, Policy};
use crate::sys::{errno, is};
use std::io;
use std::sync::{MutexGuard, PoisonError};
use talea_core::CpuSet;
use talea_core::mutate;

/// Completeness of [`Thread::restore`].
#[derive(Debug)]
pub enum Restored {
    /// Policy, priority, nice value and affinity are as they were.
    Exactly,
    /// None of the thread's CPUs is usable any more, so the thread may use all CPUs.
    AffinityWidened,
    /// The kernel no longer grants the old policy. The thread is an ordinary thread with its old
    /// nice value.
    PolicyLost(io::Error),
}

/// Whether a value read after the last call proves that the number still belongs to the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Liveness {
    Confirmed,
    Unknown,
}

impl Thread {
    /// Reads the thread's attributes.
    pub fn snapshot(&self) -> Result<Snapshot, ApplyError> {
        self.read_alive(read)
    }

    /// Variant of [`Thread::snapshot`] without a check that the thread lives. The caller must call
    /// [`Thread::apply_over`] next, which checks that.
    pub fn snapshot_unchecked(&self) -> Result<Snapshot, ApplyError> {
        read(self.tid()).map_err(|error| match error {
            error if is(&error, libc::ESRCH) => ApplyError::Gone,
            error => FailedStep::at(ApplyStep::Read)(error).into(),
        })
    }

    /// Reads attributes, then checks that the thread still lives, so that the attributes belong to
    /// the thread.
    fn read_alive(
        &self,
        read: impl FnOnce(Tid) -> io::Result<Snapshot>,
    ) -> Result<Snapshot, ApplyError> {
        let snapshot = read(self.tid()).map_err(FailedStep::at(ApplyStep::Read));
        if self.is_alive() { Ok(snapshot?) } else { Err(ApplyError::Gone) }
    }

    /// Sets `attr` and, if given, `affinity`: both or neither.
    ///
    /// A deadline policy needs an affinity that covers the thread's root domain. A caller that may
    /// have pinned the thread must pass one. A deadline thread cannot move from one root domain to
    /// another (`EBUSY`), so the caller must restore it first.
    pub fn apply(&self, attr: &Attr, affinity: Option<&CpuSet>) -> Result<(), ApplyError> {
        let before = self.read_alive(read_in_force)?;
        self.apply_over(&before, attr, affinity)
    }

    /// Variant of [`Thread::apply`] with a [`Thread::snapshot`] taken just before the call.
    pub fn apply_over(
        &self,
        before: &Snapshot,
        attr: &Attr,
        affinity: Option<&CpuSet>,
    ) -> Result<(), ApplyError> {
        const TRIES: u32 = 4;
        let may_have_moved = |result: &Result<(), ApplyError>| match result {
            Err(ApplyError::Refused { step: ApplyStep::Policy, error }) => {
                attr.policy.is_deadline() && affinity.is_some() && is(error, libc::EPERM)
            }
            _ => false,
        };
        let mut result = self.apply_once(before, attr, affinity, || ());
        for _ in 1..TRIES {
            if !may_have_moved(&result) {
                break;
            }
            // It slept in another root domain when the kernel checked, and was awake when this
            // process did: try again.
            let before = self.read_alive(read_in_force)?;
            result = self.apply_once(&before, attr, affinity, || ());
        }
        result
    }

    /// Makes one attempt of [`Thread::apply_over`]. `between` runs after the first check, where a
    /// test ends the thread.
    pub(super) fn apply_once(
        &self,
        before: &Snapshot,
        attr: &Attr,
        affinity: Option<&CpuSet>,
        between: impl FnOnce(),
    ) -> Result<(), ApplyError> {
        between();
        let affinity = affinity.filter(|&wanted| *wanted != before.affinity);
        // An affinity may have been set before without effect yet, because the thread has not woken
        // since.
        let cpus = affinity.unwrap_or(&before.affinity);
        let done = self.set_in_order(before, attr, affinity).map(|_| ());
        if !self.is_alive() {
            self.undo_on_reused_tid(attr, affinity);
            return Err(ApplyError::Gone);
        }
        let Err(failed) = done else { return Ok(()) };
        let undone = mutate!(
            "kernel-attach-undone",
            read_in_force(self.tid())
                .map_err(FailedStep::at(ApplyStep::Read))
                .and_then(|now| self.set_in_order(
                    &now,
                    &before.attr,
                    before.changed_affinity(&now)
                ))
                .map(|_| ()),
            read_in_force(self.tid()).map_err(FailedStep::at(ApplyStep::Read)).map(drop)
        );
        match undone {
            Ok(()) => {
                Err(self.sleeps_outside(attr, cpus, &failed).unwrap_or_else(|| failed.into()))
            }
            Err(_) if !self.is_alive() => Err(ApplyError::Gone),
            Err(undo) => Err(ApplyError::RestoreFailed {
                step: failed.step,
                error: failed.error,
                undo: undo.error,
            }),
        }
    }

    /// Changes the affinity only. A running thread moves at once, a sleeping thread when it wakes.
    pub fn pin(&self, affinity: &CpuSet) -> Result<(), ApplyError> {
        let now = self.read_alive(read_in_force)?;
        self.apply_over(&now, &now.attr, Some(affinity))
    }

    /// Finishes the exit from the deadline class that a killed process has begun, because a thread
    /// with the smallest share would not run for hours. `own` is the granted policy, with which the
    /// thread pays off its overrun. `old` is the policy before the grant. Returns whether an exit
    /// had been begun.
    pub fn finish_deadline_exit(&self, own: &Attr, old: &Attr) -> Result<bool, ApplyError> {
        let has = self.read_alive(read)?;
        if !deadline_exit::is_exit_begun(&has.attr, own, old) {
            return Ok(false);
        }
        deadline_exit::resume_exit((self.tgid(), self.tid()), self.key(), self.main_incarnation());
        if own.policy.is_deadline() {
            // A refusal is not an error: the thread then pays off at the rate that it has.
            drop(sched::set(self.tid(), own));
        }
        let now = self.read_alive(read)?;
        let old = if old.policy.is_deadline() { Attr::plain(Policy::NORMAL) } else { *old };
        self.apply_over(&now, &old, None)?;
        Ok(true)
    }

    fn sleeps_outside(
        &self,
        attr: &Attr,
        cpus: &CpuSet,
        failed: &FailedStep,
    ) -> Option<ApplyError> {
        let refused = attr.policy.is_deadline() && is(&failed.error, libc::EPERM);
        let stat = refused.then(|| proc::stat(self.tid()).ok()).flatten()?;
        let outside = !cpus.contains(stat.cpu) && stat.state != b'R';
        outside.then_some(ApplyError::OtherRootDomain { cpu: stat.cpu })
    }

    /// Reads the attributes without a hidden nice value, and without a check that the thread lives.
    pub fn snapshot_in_force_unchecked(&self) -> io::Result<Snapshot> {
        read_in_force(self.tid())
    }

    /// Sets the affinity only, or all CPUs if the kernel refuses it. The policy stays.
    pub fn restore_affinity(&self, affinity: &CpuSet) -> Result<Restored, ApplyError> {
        let every = every_cpu();
        let is_whole = online().is_subset(affinity);
        let wanted = if is_whole { &every } else { affinity };
        let done = match sched::set_affinity(self.tid(), wanted) {
            Ok(()) => Ok(Restored::Exactly),
            Err(_) if self.is_alive() => {
                sched::set_affinity(self.tid(), &every).map(|()| Restored::AffinityWidened)
            }
            Err(error) => Err(error),
        };
        if self.is_alive() {
            return Ok(done.map_err(FailedStep::at(ApplyStep::Affinity))?);
        }
        Err(ApplyError::Gone)
    }

    /// Restores `snapshot` as far as the kernel allows.
    ///
    /// A thread never keeps a real-time policy that the snapshot does not have. If the kernel
    /// refuses the old policy, the thread becomes an ordinary thread.
    pub fn restore(&self, snapshot: &Snapshot) -> Result<Restored, ApplyError> {
        let before = match self.read_for_exit(snapshot) {
            Some(before) => before,
            None => self.read_to_restore(snapshot)?,
        };
        self.restore_over(&before, snapshot)
    }

    /// Variant of [`Thread::restore`] with a [`Thread::snapshot`] taken just before.
    pub fn restore_over(
        &self,
        before: &Snapshot,
        snapshot: &Snapshot,
    ) -> Result<Restored, ApplyError> {
        let mut liveness = Liveness::Unknown;
        let done = self.restore_in_order(before, snapshot, &mut liveness);
        if liveness == Liveness::Confirmed || self.is_alive() {
            return Ok(done?);
        }
        self.undo_on_reused_tid(
            &snapshot.attr,
            before.changed_affinity(snapshot).and(Some(&snapshot.affinity)),
        );
        Err(ApplyError::Gone)
    }

    /// Reads the attributes before a call of [`Thread::restore`].
    fn read_to_restore(&self, old: &Snapshot) -> Result<Snapshot, ApplyError> {
        // A policy that contains a nice value sets it, regardless of the hidden one.
        let shows = shown_nice(old.attr.policy).is_some();
        self.read_alive(if shows { read_in_force } else { read })
    }

    /// Reads the attributes of a thread that leaves a deadline policy of this process. The exit
    /// itself checks whether the thread lives.
    fn read_for_exit(&self, old: &Snapshot) -> Option<Snapshot> {
        // Any other policy hides a nice value that must be read.
        shown_nice(old.attr.policy)?;
        self.lock_exec_at_entry().as_ref().filter(|entered| entered.has_open_reader())?;
        read_in_force(self.tid()).ok().filter(|now| now.attr.policy.is_deadline())
    }

    /// Takes the thread out of the deadline class, as the module `deadline_exit` describes.
    fn leave_deadline_class(&self, has: &Attr, attr: &Attr) -> Result<Liveness, FailedStep> {
        let entered = self.lock_exec_at_entry().take();
        let (entered, reader) = ExecAtEntry::into_parts(entered, self.tid());
        let key = self.key();
        dl_overruns::reserve_slot();
        let named = (self.tgid(), self.tid());
        let exit = deadline_exit::prepare_exit(named, has, entered, &reader, || self.is_alive())
            .ok_or_else(|| FailedStep::at(ApplyStep::Read)(errno(libc::ESRCH)))?;
        let pending = exit.record_pending(key);
        sched::set(self.tid(), attr)
            .map_err(FailedStep::at(ApplyStep::Policy))
            .inspect_err(|_| deadline_exit::abort_exit(&pending))?;
        let is_alive = mutate!(
            "os-debts-main",
            deadline_exit::finish_exit(&pending, exit, &reader, || self.main_incarnation()),
            deadline_exit::finish_exit(
                &pending,
                exit,
                &reader,
                super::key::ThreadIncarnation::default
            )
        );
        Ok(if is_alive { Liveness::Confirmed } else { Liveness::Unknown })
    }

    /// Makes the calls in the order that the kernel accepts. Stops at the first refusal and undoes
    /// nothing.
    fn set_in_order(
        &self,
        has: &Snapshot,
        attr: &Attr,
        affinity: Option<&CpuSet>,
    ) -> Result<Liveness, FailedStep> {
        let policy =
            |attr: &Attr| sched::set(self.tid(), attr).map_err(FailedStep::at(ApplyStep::Policy));
        let pin = |cpus: &CpuSet| {
            sched::set_affinity(self.tid(), cpus).map_err(FailedStep::at(ApplyStep::Affinity))
        };
        match (has.attr.policy.is_deadline(), attr.policy.is_deadline()) {
            (true, false) => {
                let liveness = self.leave_deadline_class(&has.attr, attr)?;
                return match affinity {
                    // Confirmed before that call only.
                    Some(cpus) => pin(cpus).map(|()| Liveness::Unknown),
                    None => Ok(liveness),
                };
            }
            // Within its root domain. To another one there is no direct way (EBUSY), and each
            // detour through another class corrupts the bandwidth accounting or stops the thread:
            // it must be released first.
            (true, true) => {
                affinity.map_or(Ok(()), pin)?;
                policy(attr)
            }
            (false, true) => {
                if let Some(until) = dl_overruns::blocked_until(&self.key()) {
                    return Err(FailedStep::overrun_debt(until));
                }
                affinity.map_or(Ok(()), pin)?;
                let entered = ExecAtEntry::read(self.tid());
                policy(attr)?;
                *self.lock_exec_at_entry() = Some(entered);
                Ok(())
            }
            // If it was in the deadline class, it has left that by itself.
            (false, false) if attr.policy.is_realtime() => {
                self.clear_exec_at_entry();
                affinity.map_or(Ok(()), pin)?;
                policy(attr)
            }
            (false, false) => {
                self.clear_exec_at_entry();
                policy(attr)?;
                affinity.map_or(Ok(()), pin)
            }
        }
        .map(|()| Liveness::Unknown)
    }

    fn lock_exec_at_entry(&self) -> MutexGuard<'_, Option<ExecAtEntry>> {
        self.exec_at_entry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clear_exec_at_entry(&self) {
        drop(self.lock_exec_at_entry().take());
    }

    fn restore_in_order(
        &self,
        has: &Snapshot,
        old: &Snapshot,
        liveness: &mut Liveness,
    ) -> Result<Restored, FailedStep> {
        let affinity = old.changed_affinity(has);
        let mut restored = Restored::Exactly;
        let refused =
            self.set_in_order(has, &old.attr, affinity).map(|found| *liveness = found).err();
        if let Some(refused) = refused {
            // Its number may be another thread's by now.
            if !self.is_alive() {
                return Err(refused);
            }
            // Step by step from the current attributes, each part as far as possible.
            let now = read(self.tid()).map_err(FailedStep::at(ApplyStep::Read))?;
            if now.attr.policy != old.attr.policy {
                let policy = Policy::Other { nice: old.nice };
                let ordinary =
                    Attr { reset_on_fork: old.attr.reset_on_fork, ..Attr::plain(policy) };
                self.set_in_order(&now, &ordinary, None)?;
                restored = Restored::PolicyLost(refused.error);
            }
            if let Some(cpus) = affinity
                && sched::set_affinity(self.tid(), cpus).is_err()
            {
                sched::set_affinity(self.tid(), &every_cpu())
                    .map_err(FailedStep::at(ApplyStep::Affinity))?;
                if !matches!(restored, Restored::PolicyLost(_)) {
                    restored = Restored::AffinityWidened;
                }
            }
        }
        // A hidden nice value is not part of a real-time or idle attribute.
        if shown_nice(old.attr.policy).is_none()
            && has.nice != old.nice
            && sched::get_nice(self.tid()).is_ok_and(|nice| nice != old.nice)
        {
            *liveness = Liveness::Unknown;
            mutate!(
                "kernel-restore-nice",
                sched::set_nice(self.tid(), old.nice).map_err(FailedStep::at(ApplyStep::Nice))?
            );
        }
        Ok(restored)
    }

    /// Repairs the effect of calls on a reused number. If another thread with this number now has
    /// exactly the attributes intended for this thread, the function makes it an ordinary thread.
    fn undo_on_reused_tid(&self, attr: &Attr, affinity: Option<&CpuSet>) {
        let Ok(other) = Thread::open(self.tid()) else { return };
        if other.is_same(self) {
            return;
        }
        if sched::get(other.tid()).is_ok_and(|has| has.policy == attr.policy) {
            // Its own attributes are unknown; almost every new thread is an ordinary one.
            drop(sched::set(other.tid(), &Attr::plain(Policy::NORMAL)));
        }
        if let Some(affinity) = affinity
            && sched::get_affinity(other.tid()).is_ok_and(|has| has == *affinity)
        {
            drop(sched::set_affinity(other.tid(), &every_cpu()));
        }
    }
}
