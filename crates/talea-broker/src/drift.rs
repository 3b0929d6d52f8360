//! Threads that change while they are attached: credentials, CPUs, policy.
//!
//! The owner of a grant decides only about threads whose real, effective and saved user ids are all
//! those of the owner. The kernel's own check in `sched_setattr` is weaker: it compares only the
//! effective or the real user id. Each [`Effect::Apply`] carries the check as a condition, so the
//! driver evaluates it immediately before the kernel's call.
//!
//! | found | by | result |
//! | --- | --- | --- |
//! | other user ids | event, inspection, an order's condition | *detached*, cause credentials |
//! | other CPUs, first time in `RETURN_WINDOW` | inspection | ordered again |
//! | other CPUs, second time | inspection | *detached*, cause affinity |
//! | another policy or priority | inspection, an order's condition | *detached*, cause policy |
//!
//! *Detached*: the broker restores the thread by [`restored`]; the spec stays without a thread. A
//! spec that its thread owns ends.
//!
//! Invariants.
//!
//! 1. The broker never changes a thread with foreign user ids, with two exceptions. It replaces a
//!    policy that a grant has given by an ordinary one, and the CPUs of the grant by the previous
//!    ones.
//! 2. A restore changes only attributes that are still as the grant gave them. What the thread or
//!    an administrator has set meanwhile stays.
//! 3. No thread keeps a real-time policy that a grant has given, not even one that it has lowered.
//!
//! Invariant 3 limits invariant 2. A thread without rights of its own can lower its priority. It
//! can neither clear reset-on-fork, nor raise its priority, nor enter another real-time class. So a
//! real-time policy comes from the grant if it has reset-on-fork, the class of the grant, and no
//! higher priority ([`is_given`]). An administrator who sets a lasting policy clears reset-on-fork,
//! as `chrt(1)` does.
//!
//! The nice value is never part of a grant: the driver always leaves the current one.

use crate::broker::{Broker, Timer};
use crate::input::{Effect, Errno, Found, LogEvent, ThreadId, Ticket, Uids};
use crate::refuse::{ESRCH, kernel_refusal, refusal};
use crate::spec::{PendingOp, RestoreReason};
use crate::trail::{AuditEvent, DemotionCause, EndCause, Seen};
use talea_core::mutate;
use talea_core::{Attr, Monotonic, Policy, Span};
use talea_proto::message::DetachCause;
use talea_proto::{Code, Field, Owner};

/// Period of the inspections while a thread is attached.
const INSPECTION_PERIOD: Span = Span::from_ns(200_000_000);
/// Maximum number of threads per inspection, which bounds its length to about a millisecond.
const INSPECTED_THREADS: u32 = 512;
/// Time after a return to the CPUs of the grant in which another departure detaches the thread.
const RETURN_WINDOW: Span = Span::from_ns(10_000_000_000);

/// Error number of an apply that the driver did not execute, because the policy has changed.
const EPERM: Errno = Errno(1);

/// Whether the policy of a thread with `now` comes from one of the attributes `given` by grants.
pub fn is_given(now: &Attr, given: &[Attr]) -> bool {
    given.iter().any(|given| {
        let lowered = match (now.policy, given.policy) {
            (Policy::Fifo(now), Policy::Fifo(given)) | (Policy::Rr(now), Policy::Rr(given)) => {
                now.0 <= given.0
            }
            // The driver itself changes the parameters of a thread that leaves the class.
            (Policy::Deadline { .. }, Policy::Deadline { .. }) => true,
            _ => false,
        };
        now.policy == given.policy && now.reset_on_fork == given.reset_on_fork
            || mutate!("drift-lowered", lowered, false) && now.reset_on_fork
    })
}

/// Returns the attributes that a thread with `now` gets at the end of its grant.
///
/// `given` contains the attributes that grants have given to the thread, `previous` those before
/// the grant. An empty set of CPUs in `previous` leaves the CPUs as they are. A thread with foreign
/// user ids loses only a given real-time policy and given CPUs. If the result has a nice value, the
/// driver uses the current one.
pub fn restored(now: &Attr, given: &[Attr], previous: &Attr, is_foreign: bool) -> Attr {
    let (policy, reset_on_fork) = match (is_given(now, given), is_foreign) {
        (true, false) => (previous.policy, previous.reset_on_fork),
        (true, true) if now.policy.is_real_time() => {
            (Policy::Other { nice: 0 }, previous.reset_on_fork)
        }
        (_, true) => (now.policy, now.reset_on_fork),
        // The mark of a grant without its policy.
        (false, false) => {
            (now.policy, now.reset_on_fork && (previous.reset_on_fork || now.policy.is_real_time()))
        }
    };
    let has_given_cpus = given.iter().any(|given| given.cpus == now.cpus);
    let restores_cpus = mutate!("drift-cpus", has_given_cpus, true) && !previous.cpus.is_empty();
    let cpus = if restores_cpus { previous.cpus } else { now.cpus };
    Attr { policy, reset_on_fork, cpus }
}

/// Returns the attributes that count as applied to an adopted thread, whose attributes are `now`.
///
/// The daemon writes the record before it applies the attributes. So the thread may have those of
/// an earlier order, or the `previous` ones if nothing was applied. Any other policy was set by the
/// thread or an administrator while no daemon ran.
pub fn adopted(now: &Attr, recorded: &Attr, previous: &Attr) -> Attr {
    let is_of_grant = now.policy.is_real_time() && now.reset_on_fork;
    let is_previous = (now.policy, now.reset_on_fork) == (previous.policy, previous.reset_on_fork);
    if is_of_grant || is_previous { *now } else { *recorded }
}

/// Result of comparing a thread with its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The thread has the applied attributes.
    Held,
    /// The broker returns the thread to the CPUs of its grant.
    Return,
    /// The broker detaches the thread.
    Detach(DetachCause),
}

/// Compares the attributes of a thread with the applied ones.
fn compare(
    applied: &Attr,
    found: &Attr,
    returned_at: Option<Monotonic>,
    now: Monotonic,
) -> Verdict {
    if (found.policy, found.reset_on_fork) != (applied.policy, applied.reset_on_fork) {
        return Verdict::Detach(DetachCause::Policy);
    }
    if applied.cpus.is_empty() || found.cpus == applied.cpus {
        return Verdict::Held;
    }
    match returned_at {
        Some(at) if now <= at.saturating_add(RETURN_WINDOW) => {
            Verdict::Detach(DetachCause::Affinity)
        }
        _ => Verdict::Return,
    }
}

impl Broker {
    /// Returns the user that a thread of this spec must run as; `None` if the superuser owns the
    /// spec.
    pub(crate) fn owner(&self, slot: u32) -> Option<u32> {
        Some(self.specs.at(slot).uid).filter(|&uid| uid != 0)
    }

    /// Arms the next inspection, unless one is armed.
    pub(crate) fn start_inspections(&mut self) {
        if self.inspection_at.is_none() {
            let at = self.now.saturating_add(INSPECTION_PERIOD);
            self.inspection_at = Some(at);
            self.timers.insert((at, Timer::Inspect));
        }
    }

    /// Disarms the inspection if no thread is attached any more.
    pub(crate) fn stop_inspections(&mut self) {
        if self.threads.is_empty()
            && let Some(at) = self.inspection_at.take()
        {
            self.timers.remove(&(at, Timer::Inspect));
        }
    }

    /// Inspects threads, and arms the next inspection.
    pub(crate) fn inspect(&mut self) {
        self.inspection_at = None;
        self.start_inspections();
        mutate!("drift-inspection", self.emit(Effect::Inspect { threads: INSPECTED_THREADS }));
        self.check_canaries();
    }

    pub(crate) fn credentials_changed(&mut self, thread: ThreadId, uids: Uids) {
        let Some(slot) = self.threads.slot_of(thread) else { return };
        let attached = self.specs.at_mut(slot).thread.as_mut();
        attached.expect("the index of threads is consistent").uids = uids;
        self.detach_if_foreign(slot);
    }

    /// Detaches the thread of a spec if its user ids are not those of the owner. There is no effect
    /// while an operation is in progress; its end repeats the check.
    pub(crate) fn detach_if_foreign(&mut self, slot: u32) {
        let Some(spec) = self.specs.get(slot).filter(|spec| spec.is_idle()) else { return };
        let Some(thread) = spec.thread.as_ref().filter(|thread| !thread.exited) else { return };
        let is_foreign =
            self.owner(slot).is_some_and(|owner| thread.uids.other_than(owner).is_some());
        if mutate!("drift-credentials", is_foreign, false) {
            let seen = Seen::Uids(thread.uids);
            self.record_drift(slot, seen);
            self.force_detach(slot, DetachCause::Credentials);
        }
    }

    pub(crate) fn attr_changed(&mut self, thread: ThreadId, attr: &Attr) {
        let Some(slot) = self.threads.slot_of(thread) else { return };
        let spec = self.specs.at(slot);
        let attached = spec.thread.as_ref().expect("the index of threads is consistent");
        // A thread with an order that is pending, or that the kernel has refused, differs anyway.
        let is_settled = attached.ticket.is_none() && !attached.attempts.are_open();
        if !spec.is_idle() || !is_settled {
            return;
        }
        match compare(&attached.applied, attr, attached.returned_at, self.now) {
            Verdict::Held => {}
            Verdict::Return => {
                self.record_drift(slot, Seen::Attr(*attr));
                self.return_to_cpus(slot);
            }
            Verdict::Detach(cause) => {
                self.record_drift(slot, Seen::Attr(*attr));
                self.force_detach(slot, cause);
            }
        }
    }

    fn record_drift(&mut self, slot: u32, seen: Seen) {
        let event = AuditEvent::Drift(Box::new(seen));
        mutate!("trail-drift", self.record_spec(slot, None, event));
    }

    fn return_to_cpus(&mut self, slot: u32) {
        let (now, spec) = (self.now, self.specs.at_mut(slot));
        let (uid, subject) = (spec.uid, spec.subject);
        let attached = spec.thread.as_mut().expect("it was just compared");
        attached.returned_at = Some(now);
        let (tid, applied) = (attached.tid, attached.applied);
        self.order_apply(slot, applied);
        self.log_about(subject, LogEvent::ReturnedToCpus { tid, uid });
    }

    /// Detaches a thread from its spec and restores it. A spec that its thread owns ends; any other
    /// spec stays.
    pub(crate) fn force_detach(&mut self, slot: u32, cause: DetachCause) {
        let spec = self.specs.at_mut(slot);
        spec.detached = Some(cause);
        let reason = match spec.task.owner {
            Owner::Thread => {
                spec.lifetime.disowned = true;
                RestoreReason::OwnerGone
            }
            Owner::Session | Owner::Process => RestoreReason::Forced,
        };
        let (uid, subject) = (spec.uid, spec.subject);
        let tid = spec.thread.as_ref().expect("only an attached thread is detached").tid;
        self.log_about(subject, LogEvent::Detached { tid, uid, cause });
        let end = EndCause::Demotion(DemotionCause::Detached(cause));
        self.note_thread_end(slot, end, None);
        self.start_restore(slot, None, None, reason);
    }

    /// Handles an [`Effect::Apply`] that the driver did not execute, because the thread is not as
    /// the broker assumes.
    pub(crate) fn not_applied(&mut self, ticket: Ticket, found: &Found) {
        let Some((slot, step, exited)) = self.take_answered(ticket) else { return };
        self.mark_awake(slot);
        if exited {
            return self.finish_order(slot, step, Err(ESRCH));
        }
        let owner = self.owner(slot).unwrap_or(0);
        let thread = self.specs.at_mut(slot).thread.as_mut().expect("its order was just answered");
        let (cause, refusal) = match *found {
            Found::Credentials(uids) => {
                thread.uids = uids;
                let other = uids.other_than(owner).unwrap_or(owner);
                let refusal =
                    refusal(Code::ForeignThread, Field::Thread, other.into(), owner.into());
                (DetachCause::Credentials, refusal)
            }
            Found::Attr(_) => (DetachCause::Policy, kernel_refusal(EPERM)),
        };
        let seen = match *found {
            Found::Credentials(uids) => Seen::Uids(uids),
            Found::Attr(attr) => Seen::Attr(attr),
        };
        if !matches!(step, PendingOp::Attaching(_)) {
            self.record_drift(slot, seen);
        }
        match step {
            PendingOp::Idle => self.force_detach(slot, cause),
            // Nothing was applied, so there is nothing to restore.
            PendingOp::Attaching(reply_to) => {
                self.remove_thread(slot);
                self.emit(Effect::WriteRecord { slot });
                self.refuse(reply_to, refusal);
                self.release_if_unowned(slot);
            }
            // As at the end of the thread: the new terms stay in force, without it.
            PendingOp::Changing(rollback) => {
                self.changes.end();
                self.changed(slot, rollback.reply_to, rollback.plugin, None);
                self.force_detach(slot, cause);
            }
            PendingOp::Restoring(_) => unreachable!("a restore has no condition"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::{CpuSet, Priority, Work};

    fn attr(policy: Policy, reset_on_fork: bool, cpu: u32) -> Attr {
        Attr { policy, reset_on_fork, cpus: CpuSet::single(cpu) }
    }

    fn fifo(priority: u8) -> Policy {
        Policy::Fifo(Priority(priority))
    }

    const OTHER: Policy = Policy::Other { nice: 3 };

    #[test]
    fn only_what_is_as_given_is_restored() {
        let (given, before) = ([attr(fifo(39), true, 1)], attr(OTHER, false, 0));
        for (now, own, foreign) in [
            // As given.
            (attr(fifo(39), true, 1), before, attr(Policy::Other { nice: 0 }, false, 0)),
            // Moved: the new CPUs stay.
            (
                attr(fifo(39), true, 5),
                attr(OTHER, false, 5),
                attr(Policy::Other { nice: 0 }, false, 5),
            ),
            // Lowered by the thread itself: it keeps no real-time policy.
            (attr(fifo(1), true, 1), before, attr(Policy::Other { nice: 0 }, false, 0)),
            // Given up: the mark is removed, unless the thread is foreign.
            (
                attr(Policy::Batch { nice: 9 }, true, 1),
                attr(Policy::Batch { nice: 9 }, false, 0),
                attr(Policy::Batch { nice: 9 }, true, 0),
            ),
            // Set with rights that the thread does not have from its grant.
            (attr(fifo(39), false, 1), attr(fifo(39), false, 0), attr(fifo(39), false, 0)),
            (attr(fifo(40), true, 1), attr(fifo(40), true, 0), attr(fifo(40), true, 0)),
            (
                attr(Policy::Rr(Priority(5)), true, 7),
                attr(Policy::Rr(Priority(5)), true, 7),
                attr(Policy::Rr(Priority(5)), true, 7),
            ),
        ] {
            assert_eq!(restored(&now, &given, &before, false), own, "{now:?}");
            assert_eq!(restored(&now, &given, &before, true), foreign, "{now:?}");
        }
        let without = Attr { cpus: CpuSet::EMPTY, ..before };
        let now = attr(fifo(39), true, 1);
        assert_eq!(restored(&now, &given, &without, false), attr(OTHER, false, 1));
    }

    #[test]
    fn a_deadline_thread_about_to_leave_still_has_what_was_given() {
        let deadline = |runtime, period| Policy::Deadline {
            runtime: Work::from_ns(runtime),
            deadline: Span::from_ns(period),
            period: Span::from_ns(period),
        };
        let given = [attr(deadline(1_000_000, 10_000_000), true, 0)];
        let shrunk = attr(deadline(1_024, 4_000_000_000), true, 0);
        assert!(is_given(&shrunk, &given));
        assert!(!is_given(&Attr { reset_on_fork: false, ..shrunk }, &given));
        assert!(!is_given(&attr(fifo(1), true, 0), &given));
    }

    #[test]
    fn a_second_departure_within_ten_seconds_ends_the_grant() {
        let (applied, moved) = (attr(fifo(39), true, 1), attr(fifo(39), true, 0));
        let at = |seconds: u64| Monotonic::from_ns(seconds * 1_000_000_000);
        assert_eq!(compare(&applied, &applied, Some(at(1)), at(2)), Verdict::Held);
        assert_eq!(compare(&applied, &moved, None, at(2)), Verdict::Return);
        let detach = |cause| Verdict::Detach(cause);
        assert_eq!(compare(&applied, &moved, Some(at(1)), at(11)), detach(DetachCause::Affinity));
        assert_eq!(compare(&applied, &moved, Some(at(1)), at(12)), Verdict::Return);
        let lower = attr(fifo(38), true, 1);
        assert_eq!(compare(&applied, &lower, None, at(1)), detach(DetachCause::Policy));
        let unpinned = Attr { cpus: CpuSet::EMPTY, ..applied };
        assert_eq!(compare(&unpinned, &moved, None, at(1)), Verdict::Held);
    }
}
