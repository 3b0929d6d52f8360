//! Waits of operations that the kernel refuses for now.

use super::{DeferredChange, FIRST_RETRY_NS, MAX_DEFER, MAX_RETRY_NS, RETRY_SPACING_NS};
use crate::broker::{Broker, Timer};
use crate::input::{Errno, LogEvent, SessionId, Ticket};
use crate::refuse::{ESRCH, refusal_without_numbers};
use crate::spec::{PendingOp, ReplyTo, Restoring, Rollback};
use talea_core::mutate;
use talea_core::{Monotonic, Span};
use talea_proto::message::Caveat;
use talea_proto::{Code, Field};

/// Error number of an operation that would have to wait longer than [`MAX_DEFER`].
const EAGAIN: Errno = Errno(11);

impl Broker {
    /// Handles an effect that the driver executed with a restriction.
    pub(crate) fn done_with_caveat(&mut self, ticket: Ticket, caveat: Caveat) {
        let Some((slot, step, exited)) = self.take_answered(ticket) else { return };
        match (step, caveat) {
            (step, _) if exited => {
                self.mark_awake(slot);
                self.finish_order(slot, step, Err(ESRCH));
            }
            (PendingOp::Restoring(restoring), caveat) => {
                self.mark_awake(slot);
                self.restored_with_caveat(slot, restoring, caveat);
            }
            (step, _) => {
                self.mark_asleep(slot);
                match step {
                    PendingOp::Attaching(reply_to) => self.attached_pending_wakeup(slot, reply_to),
                    PendingOp::Changing(rollback) => self.change_done(slot, &rollback, Ok(())),
                    PendingOp::Idle | PendingOp::Restoring(_) => {}
                }
                mutate!("broker-change-asleep", self.schedule_retry(slot));
            }
        }
    }

    /// Handles an apply that the driver cannot execute before `at`.
    pub(crate) fn not_before(&mut self, ticket: Ticket, at: Monotonic) {
        let Some((slot, step, exited)) = self.take_answered(ticket) else { return };
        self.mark_awake(slot);
        match step {
            step if exited => self.finish_order(slot, step, Err(ESRCH)),
            PendingOp::Attaching(reply_to) if self.may_wait(reply_to.session, at) => {
                self.wait_external(reply_to.session);
                self.specs.at_mut(slot).step = PendingOp::Attaching(reply_to);
                self.arm_retry(slot, at);
            }
            PendingOp::Changing(rollback) if self.may_wait(rollback.reply_to.session, at) => {
                self.defer_change(slot, &rollback, at);
            }
            // No request waits: an earlier daemon was killed while it changed the thread's class.
            PendingOp::Idle
                if at
                    <= mutate!(
                        "broker-later-taken-over",
                        self.now.saturating_add(MAX_DEFER),
                        self.now
                    ) =>
            {
                self.arm_retry(slot, at);
            }
            step => self.finish_order(slot, step, Err(EAGAIN)),
        }
    }

    /// Whether the request of this connection may wait until `at`; false if the connection is
    /// closed. The first call for a request fixes the latest time for the request.
    pub(crate) fn may_wait(&mut self, session: SessionId, at: Monotonic) -> bool {
        let latest = self.now.saturating_add(MAX_DEFER);
        self.sessions
            .get_mut(&session)
            .is_some_and(|session| at <= *session.wait_until.get_or_insert(latest))
    }

    /// Rolls a change back, and defers it until `at`.
    fn defer_change(&mut self, slot: u32, rollback: &Rollback, at: Monotonic) {
        let (reply_to, id, task) =
            (rollback.reply_to, self.specs.at(slot).id, self.specs.at(slot).task);
        self.changes.end();
        self.roll_back(slot, rollback);
        self.wait_external(reply_to.session);
        self.deferred.insert(reply_to.session, DeferredChange { at, reply_to, spec: id, task });
        self.timers.insert((at, Timer::ResumeDeferred(reply_to.session)));
        self.release_if_unowned(slot);
    }

    /// Evaluates a deferred change again.
    pub(crate) fn resume_deferred(&mut self, session: SessionId) {
        if let Some(DeferredChange { reply_to, spec, task, .. }) = self.deferred.remove(&session) {
            self.change(reply_to, spec, task);
        }
    }

    /// Cancels the deferred change of a connection and returns its request, if there is one.
    pub(crate) fn cancel_deferred(&mut self, session: SessionId) -> Option<ReplyTo> {
        let deferred = self.deferred.remove(&session)?;
        self.timers.remove(&(deferred.at, Timer::ResumeDeferred(session)));
        Some(deferred.reply_to)
    }

    /// Refuses all deferred changes when the daemon stops.
    pub(crate) fn refuse_deferred(&mut self) {
        while let Some(&session) = self.deferred.keys().next() {
            if let Some(reply_to) = self.cancel_deferred(session) {
                self.refuse(reply_to, refusal_without_numbers(Code::Stopping, Field::Request));
            }
        }
    }

    /// Records that the thread sleeps in another root domain.
    fn mark_asleep(&mut self, slot: u32) {
        let spec = self.specs.at_mut(slot);
        let subject = spec.subject;
        let thread = spec.thread.as_mut().expect("its order was just answered");
        let first = thread.attempts.asleep == 0;
        thread.attempts.asleep = thread.attempts.asleep.saturating_add(1);
        if first {
            self.users.account(subject).asleep += 1;
        }
    }

    /// Records that the thread no longer sleeps in another root domain, or that its sleep no longer
    /// matters.
    pub(crate) fn mark_awake(&mut self, slot: u32) {
        let spec = self.specs.at_mut(slot);
        let subject = spec.subject;
        let Some(thread) = spec.thread.as_mut() else { return };
        if std::mem::take(&mut thread.attempts.asleep) > 0 {
            self.users.account(subject).asleep -= 1;
        }
    }

    /// Arms the retry for a thread that sleeps in another root domain, unless an operation is in
    /// progress.
    fn schedule_retry(&mut self, slot: u32) {
        let Some(spec) = self.specs.get(slot).filter(|spec| spec.is_idle()) else { return };
        let Some(thread) = &spec.thread else { return };
        if thread.ticket.is_some()
            || thread.attempts.retry_at.is_some()
            || thread.attempts.asleep == 0
        {
            return;
        }
        let delay = (FIRST_RETRY_NS << (thread.attempts.asleep - 1).min(20)).min(MAX_RETRY_NS);
        let others = u64::from(self.users.account(spec.subject).asleep - 1);
        let at = self.now.saturating_add(Span::from_ns(delay.max(others * RETRY_SPACING_NS)));
        self.arm_retry(slot, at);
    }

    pub(crate) fn arm_retry(&mut self, slot: u32, at: Monotonic) {
        let thread =
            self.specs.at_mut(slot).thread.as_mut().expect("only threads are ordered about");
        thread.attempts.retry_at = Some(at);
        self.timers.insert((at, Timer::Retry(slot)));
    }

    /// Completes a restore with a restriction. The reply informs the requester. The broker always
    /// logs the event, because the requester may not be the owner of a thread that lost its policy.
    pub(crate) fn restored_with_caveat(
        &mut self,
        slot: u32,
        mut restoring: Restoring,
        caveat: Caveat,
    ) {
        let spec = self.specs.at(slot);
        if let Some(thread) = &spec.thread {
            let (tid, uid, subject) = (thread.tid, spec.uid, spec.subject);
            self.log_about(subject, LogEvent::RestoredWithCaveat { tid, uid, caveat });
        }
        restoring.caveat = Some(caveat);
        self.restored(slot, restoring);
    }
}
