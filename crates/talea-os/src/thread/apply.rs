//! Giving a thread its attributes, and giving back what it had.
//!
//! Invariant: a thread is never left half configured. Either policy and affinity are both as asked,
//! or both are as they were, or the error says that putting back failed too.
//!
//! Order of the calls, and why. The kernel refuses a deadline policy to a thread that may not use
//! its whole root domain (`EPERM`) and refuses to narrow a deadline thread (`EBUSY`): so affinity
//! comes before a real-time policy and after leaving one. Leaving the deadline class has traps of
//! its own: see the module `leave`.
//!
//! The window between a look and a call is some ten microseconds (at an attach the broker decides
//! and the state file is written in it) and a number comes round again only after all others were
//! given out; should it still happen, the stranger is found and made ordinary again.

use super::errors::{ApplyError, Failed, Step};
use super::leave::Entered;
use super::snapshot::{Snapshot, every_cpu, read, read_in_force, shown_nice};
use super::{Thread, debts, leave};
use crate::Tid;
use crate::proc;
use crate::sched::{self, Attr, Policy};
use crate::sys::{errno, is};
use std::io;
use std::sync::{MutexGuard, PoisonError};
use talea_core::CpuSet;
use talea_core::mutate;

/// How completely [`Thread::restore`] gave back what a thread had.
#[derive(Debug)]
pub enum Restored {
    /// Policy, priority, nice and affinity are as they were.
    Exactly,
    /// None of its CPUs is usable any more; it may use all.
    Wider,
    /// The kernel no longer grants the policy it had: it is an ordinary thread with its old nice
    /// value.
    Demoted(io::Error),
}

/// Whether something that was read after the last call shows that the number is still the thread's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lives {
    Seen,
    Unknown,
}

impl Thread {
    /// What it has now.
    pub fn snapshot(&self) -> Result<Snapshot, ApplyError> {
        self.read_alive(read)
    }

    /// As [`Thread::snapshot`] for [`Thread::apply_over`] at once, which sees whether the thread
    /// has lived all the while.
    pub fn glimpse(&self) -> Result<Snapshot, ApplyError> {
        read(self.tid()).map_err(|error| match error {
            error if is(&error, libc::ESRCH) => ApplyError::Gone,
            error => Failed::at(Step::Read)(error).into(),
        })
    }

    /// What was read is about the thread if it still lives afterwards.
    fn read_alive(
        &self,
        read: impl FnOnce(Tid) -> io::Result<Snapshot>,
    ) -> Result<Snapshot, ApplyError> {
        let snapshot = read(self.tid()).map_err(Failed::at(Step::Read));
        if self.is_alive() { Ok(snapshot?) } else { Err(ApplyError::Gone) }
    }

    /// Gives it `attr` and, where told, `affinity`: both or neither.
    ///
    /// A deadline policy needs an affinity that covers the thread's root domain; pass it when the
    /// thread may be pinned. A deadline thread can't go from one root domain to another (`EBUSY`):
    /// restore it first.
    pub fn apply(&self, attr: &Attr, affinity: Option<&CpuSet>) -> Result<(), ApplyError> {
        let before = self.read_alive(read_in_force)?;
        self.apply_over(&before, attr, affinity)
    }

    /// As [`Thread::apply`], for who has just taken this [`Thread::snapshot`].
    pub fn apply_over(
        &self,
        before: &Snapshot,
        attr: &Attr,
        affinity: Option<&CpuSet>,
    ) -> Result<(), ApplyError> {
        const TRIES: u32 = 4;
        let may_have_moved = |answer: &Result<(), ApplyError>| match answer {
            Err(ApplyError::Refused { step: Step::Policy, error }) => {
                attr.policy.is_deadline() && affinity.is_some() && is(error, libc::EPERM)
            }
            _ => false,
        };
        let mut answer = self.apply_watched(before, attr, affinity, || ());
        for _ in 1..TRIES {
            if !may_have_moved(&answer) {
                break;
            }
            // It slept in another root domain when the kernel looked and was awake when we did:
            // once more.
            let before = self.read_alive(read_in_force)?;
            answer = self.apply_watched(&before, attr, affinity, || ());
        }
        answer
    }

    /// As [`Thread::apply_over`], once; `between` runs after the first check, where a test lets the
    /// thread end.
    pub(super) fn apply_watched(
        &self,
        before: &Snapshot,
        attr: &Attr,
        affinity: Option<&CpuSet>,
        between: impl FnOnce(),
    ) -> Result<(), ApplyError> {
        between();
        let affinity = affinity.filter(|&wanted| *wanted != before.affinity);
        // Also one that was told where to go and has not woken since.
        let cpus = affinity.unwrap_or(&before.affinity);
        let done = self.perform(before, attr, affinity).map(|_| ());
        if !self.is_alive() {
            self.spare_stranger(attr, affinity);
            return Err(ApplyError::Gone);
        }
        let Err(failed) = done else { return Ok(()) };
        let undone = mutate!(
            "kernel-attach-undone",
            read_in_force(self.tid())
                .map_err(Failed::at(Step::Read))
                .and_then(|now| self.perform(&now, &before.attr, before.changed_affinity(&now)))
                .map(|_| ()),
            read_in_force(self.tid()).map_err(Failed::at(Step::Read)).map(drop)
        );
        match undone {
            Ok(()) => {
                Err(self.sleeps_outside(attr, cpus, &failed).unwrap_or_else(|| failed.into()))
            }
            Err(_) if !self.is_alive() => Err(ApplyError::Gone),
            Err(undo) => Err(ApplyError::Unsettled {
                step: failed.step,
                error: failed.error,
                undo: undo.error,
            }),
        }
    }

    /// Changes only where it may run; it moves there at once when it runs, otherwise when it wakes.
    pub fn pin(&self, affinity: &CpuSet) -> Result<(), ApplyError> {
        let now = self.read_alive(read_in_force)?;
        self.apply_over(&now, &now.attr, Some(affinity))
    }

    /// Finishes what a process began that was killed while it took the thread out of the deadline
    /// class: whoever is left there with next to no budget would not run for hours. `own` is what
    /// it had in the class, at which it pays what it owes, and `old` what it had before. Says
    /// whether there was anything to be finished.
    pub fn finish_leaving(&self, own: &Attr, old: &Attr) -> Result<bool, ApplyError> {
        let has = self.read_alive(read)?;
        if !leave::is_begun(&has.attr, own, old) {
            return Ok(false);
        }
        leave::take_over((self.tgid(), self.tid()), self.debtor(), self.main_mark());
        if own.policy.is_deadline() {
            // Not an error where that is refused: then it pays at the rate that it has.
            drop(sched::set(self.tid(), own));
        }
        let now = self.read_alive(read)?;
        let old = if old.policy.is_deadline() { Attr::plain(Policy::NORMAL) } else { *old };
        self.apply_over(&now, &old, None)?;
        Ok(true)
    }

    fn sleeps_outside(&self, attr: &Attr, cpus: &CpuSet, failed: &Failed) -> Option<ApplyError> {
        let refused = attr.policy.is_deadline() && is(&failed.error, libc::EPERM);
        let stat = refused.then(|| proc::stat(self.tid()).ok()).flatten()?;
        let outside = !cpus.contains(stat.cpu) && stat.state != b'R';
        outside.then_some(ApplyError::Elsewhere { cpu: stat.cpu })
    }

    /// Gives back what `snapshot` says, as far as the kernel lets.
    ///
    /// A thread never keeps a real-time policy that the snapshot does not have: where the old
    /// policy is refused it becomes an ordinary thread.
    pub fn restore(&self, snapshot: &Snapshot) -> Result<Restored, ApplyError> {
        let before = match self.read_to_leave(snapshot) {
            Some(before) => before,
            None => self.read_to_restore(snapshot)?,
        };
        let mut lives = Lives::Unknown;
        let done = self.give_back(&before, snapshot, &mut lives);
        if lives == Lives::Seen || self.is_alive() {
            return Ok(done?);
        }
        self.spare_stranger(
            &snapshot.attr,
            before.changed_affinity(snapshot).and(Some(&snapshot.affinity)),
        );
        Err(ApplyError::Gone)
    }

    /// What it has before [`Thread::restore`].
    fn read_to_restore(&self, old: &Snapshot) -> Result<Snapshot, ApplyError> {
        // A policy that shows its nice value sets it, whatever was hidden before.
        let shows = shown_nice(old.attr.policy).is_some();
        self.read_alive(if shows { read_in_force } else { read })
    }

    /// The same of a thread that is in the deadline class by us and leaves it: whether it lives is
    /// seen on the way out.
    fn read_to_leave(&self, old: &Snapshot) -> Option<Snapshot> {
        // Any other policy hides a nice value that has to be looked at.
        shown_nice(old.attr.policy)?;
        self.lock_entered().as_ref().filter(|entered| entered.is_metered())?;
        read_in_force(self.tid()).ok().filter(|now| now.attr.policy.is_deadline())
    }

    /// Out of the deadline class, with its traps.
    fn leave(&self, has: &Attr, attr: &Attr) -> Result<Lives, Failed> {
        let entered = self.lock_entered().take();
        let (entered, meter) = Entered::since(entered, self.tid());
        let debtor = self.debtor();
        debts::make_room();
        let named = (self.tgid(), self.tid());
        let leaving = leave::prepare(named, has, entered, &meter, || self.is_alive())
            .ok_or_else(|| Failed::at(Step::Read)(errno(libc::ESRCH)))?;
        let announced = leaving.announce(debtor);
        sched::set(self.tid(), attr)
            .map_err(Failed::at(Step::Policy))
            .inspect_err(|_| leave::stay(&announced))?;
        let lives = mutate!(
            "os-debts-main",
            leave::settle(&announced, leaving, &meter, || self.main_mark()),
            leave::settle(&announced, leaving, &meter, debts::Mark::default)
        );
        Ok(if lives { Lives::Seen } else { Lives::Unknown })
    }

    /// The calls in the order that the kernel accepts. Stops at the first refusal and undoes
    /// nothing.
    fn perform(
        &self,
        has: &Snapshot,
        attr: &Attr,
        affinity: Option<&CpuSet>,
    ) -> Result<Lives, Failed> {
        let policy = |attr: &Attr| sched::set(self.tid(), attr).map_err(Failed::at(Step::Policy));
        let pin = |cpus: &CpuSet| {
            sched::set_affinity(self.tid(), cpus).map_err(Failed::at(Step::Affinity))
        };
        match (has.attr.policy.is_deadline(), attr.policy.is_deadline()) {
            (true, false) => {
                let lives = self.leave(&has.attr, attr)?;
                return match affinity {
                    // Seen before that.
                    Some(cpus) => pin(cpus).map(|()| Lives::Unknown),
                    None => Ok(lives),
                };
            }
            // Within its root domain. To another there is no direct way (EBUSY), and the detours
            // through another class all break somebody's books or stop the thread: it has to be
            // released first.
            (true, true) => {
                affinity.map_or(Ok(()), pin)?;
                policy(attr)
            }
            (false, true) => {
                if let Some(until) = debts::owing_until(&self.debtor()) {
                    return Err(Failed::too_soon(until));
                }
                affinity.map_or(Ok(()), pin)?;
                let entered = Entered::of(self.tid());
                policy(attr)?;
                *self.lock_entered() = Some(entered);
                Ok(())
            }
            // If it had been in the deadline class, it has left by itself.
            (false, false) if attr.policy.is_realtime() => {
                self.forget_entered();
                affinity.map_or(Ok(()), pin)?;
                policy(attr)
            }
            (false, false) => {
                self.forget_entered();
                policy(attr)?;
                affinity.map_or(Ok(()), pin)
            }
        }
        .map(|()| Lives::Unknown)
    }

    fn lock_entered(&self) -> MutexGuard<'_, Option<Entered>> {
        self.entered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_entered(&self) {
        drop(self.lock_entered().take());
    }

    fn give_back(
        &self,
        has: &Snapshot,
        old: &Snapshot,
        lives: &mut Lives,
    ) -> Result<Restored, Failed> {
        let affinity = old.changed_affinity(has);
        let mut restored = Restored::Exactly;
        let refused = self.perform(has, &old.attr, affinity).map(|seen| *lives = seen).err();
        if let Some(refused) = refused {
            // Its number may be a stranger's by now.
            if !self.is_alive() {
                return Err(refused);
            }
            // Step by step from what is there now, each part as far as it goes.
            let now = read(self.tid()).map_err(Failed::at(Step::Read))?;
            if now.attr.policy != old.attr.policy {
                let policy = Policy::Other { nice: old.nice };
                let ordinary =
                    Attr { reset_on_fork: old.attr.reset_on_fork, ..Attr::plain(policy) };
                self.perform(&now, &ordinary, None)?;
                restored = Restored::Demoted(refused.error);
            }
            if let Some(cpus) = affinity
                && sched::set_affinity(self.tid(), cpus).is_err()
            {
                sched::set_affinity(self.tid(), &every_cpu())
                    .map_err(Failed::at(Step::Affinity))?;
                if !matches!(restored, Restored::Demoted(_)) {
                    restored = Restored::Wider;
                }
            }
        }
        // A hidden nice value is not part of a real-time or idle attribute.
        if shown_nice(old.attr.policy).is_none()
            && has.nice != old.nice
            && sched::get_nice(self.tid()).is_ok_and(|nice| nice != old.nice)
        {
            *lives = Lives::Unknown;
            mutate!(
                "kernel-restore-nice",
                {
                    sched::set_nice(self.tid(), old.nice).map_err(Failed::at(Step::Nice))?;
                },
                {}
            );
        }
        Ok(restored)
    }

    /// The thread has ended around the calls: if its number already belongs to another one that now
    /// has exactly what was meant for this one, that other becomes an ordinary thread.
    fn spare_stranger(&self, attr: &Attr, affinity: Option<&CpuSet>) {
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
