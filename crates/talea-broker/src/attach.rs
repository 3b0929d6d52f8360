//! Attach and detach of threads.
//!
//! The steps of an attach are record, watch, apply; the reply waits for the kernel. The driver
//! reads the thread's owner from the kernel together with the request (R25). A thread serves one
//! spec and a spec has one thread, so one admission never makes two threads real-time.

use crate::broker::Broker;
use crate::input::{Effect, Errno, ForeignCall, ThreadError, ThreadFacts};
use crate::ownership::AccessKind;
use crate::plugin_set::SpecSlot;
use crate::refuse::{EBUSY, EINVAL, ESRCH, kernel_refusal, refusal, refusal_without_numbers};
use crate::spec::{Attached, PendingOp, ReplyTo, RestoreReason};
use talea_core::mutate;
use talea_proto::message::{Caveat, SpecId};
use talea_proto::{Code, Field, Refusal, Reply, ThreadRef};

impl Broker {
    pub(crate) fn attach(
        &mut self,
        reply_to: ReplyTo,
        id: SpecId,
        named: ThreadRef,
        thread: Option<Result<ThreadFacts, ThreadError>>,
    ) {
        match self.check_attach(reply_to, id, named, thread.as_ref()) {
            Ok((slot, facts)) if !self.is_placed_for(slot, &facts) => {
                self.replace_for(reply_to, slot, named, facts);
            }
            Ok((slot, facts)) => self.attach_checked(reply_to, slot, &facts),
            Err(refusal) => {
                self.forget_unused(thread);
                self.refuse_attach(reply_to, named, refusal);
            }
        }
    }

    /// Attaches a thread that [`Broker::check_attach`] has accepted.
    pub(crate) fn attach_checked(&mut self, reply_to: ReplyTo, slot: u32, facts: &ThreadFacts) {
        let (previous, applied) = (self.original_attr(facts), self.plugin_set.attr(SpecSlot(slot)));
        let delayed = self.starvation_delay(slot, &applied);
        if let Some(until) = delayed.filter(|&until| !self.may_wait(reply_to.session, until)) {
            self.forget_unused(Some(Ok(*facts)));
            return self.refuse(reply_to, self.starvation_refusal(until));
        }
        self.add_thread(slot, Attached::new(facts, previous, applied));
        // First the threads whose share shrinks.
        self.sync_shares(Some(slot));
        self.sync_limit(slot);
        self.specs.at_mut(slot).step = PendingOp::Attaching(reply_to);
        if let Some(until) = delayed {
            self.wait_external(reply_to.session);
            return self.arm_retry(slot, until);
        }
        let ticket = self.ticket(slot);
        let attached = self.specs.at_mut(slot).thread.as_mut().expect("the thread was just added");
        attached.ticket = Some(ticket);
        let owner = self.owner(slot);
        self.emit(Effect::Apply { ticket, thread: facts.thread, attr: applied, owner });
    }

    pub(crate) fn refuse_attach(
        &mut self,
        reply_to: ReplyTo,
        named: ThreadRef,
        refusal: Box<Refusal>,
    ) {
        match (named, refusal.code) {
            // Clients try this first and fall back to a pidfd, so it is not logged.
            (ThreadRef::OwnTid(_), Code::TidNotAccepted) => {
                self.reply(reply_to, Reply::Refused(refusal));
            }
            _ => self.refuse(reply_to, refusal),
        }
    }

    pub(crate) fn check_attach(
        &self,
        reply_to: ReplyTo,
        id: SpecId,
        named: ThreadRef,
        thread: Option<&Result<ThreadFacts, ThreadError>>,
    ) -> Result<(u32, ThreadFacts), Box<Refusal>> {
        let slot = self.find_idle(reply_to.session, id, AccessKind::Modify)?;
        let facts = self.named_thread(reply_to, named, thread)?;
        // As the kernel in `sched_setattr`, but for every id: a set-user-id program and a service
        // with the user's rights for a moment are not the user's.
        if let Some(uid) = mutate!("message-attach-owner", self.owner(slot), None)
            && let Some(other) = mutate!(
                "message-attach-all-ids",
                facts.uids.other_than(uid),
                Some(facts.uids.effective).filter(|&euid| euid != uid)
            )
        {
            return Err(refusal(Code::ForeignThread, Field::Thread, other.into(), uid.into()));
        }
        let held = |code, tid: u32| Err(refusal(code, Field::Thread, facts.tid.into(), tid.into()));
        let attached = self.specs.at(slot).thread.as_ref();
        if let Some(thread) = mutate!("message-attach-spec-taken", attached, None) {
            return held(Code::SpecTaken, thread.tid);
        }
        let is_taken = self.threads.has(&facts);
        if mutate!("message-attach-taken", is_taken, false) {
            return held(Code::ThreadTaken, facts.tid);
        }
        self.check_share(slot)?;
        Ok((slot, facts))
    }

    /// Returns the thread that a request names, or the refusal if the driver has not found it.
    pub(crate) fn named_thread(
        &self,
        reply_to: ReplyTo,
        named: ThreadRef,
        thread: Option<&Result<ThreadFacts, ThreadError>>,
    ) -> Result<ThreadFacts, Box<Refusal>> {
        let facts = match thread {
            // The request has neither a descriptor nor an id (0 never means the daemon), or the
            // descriptor is not a thread.
            None | Some(Err(ThreadError::NotAThread)) => {
                return Err(refusal_without_numbers(Code::Malformed, Field::Thread));
            }
            Some(Err(ThreadError::Gone)) => {
                return Err(refusal_without_numbers(Code::NoSuchThread, Field::Thread));
            }
            Some(Err(ThreadError::TidNotAccepted)) => {
                return Err(refusal(
                    Code::TidNotAccepted,
                    Field::Thread,
                    named.tid().unwrap_or(0).into(),
                    0,
                ));
            }
            Some(Err(ThreadError::Kernel(errno))) => return Err(kernel_refusal(*errno)),
            Some(Ok(facts)) => facts,
        };
        let session = &self.sessions[&reply_to.session];
        if let ThreadRef::OwnTid(tid) = named
            && mutate!("message-attach-own", facts.tgid != session.process.pid, false)
        {
            return Err(refusal(Code::TidNotAccepted, Field::Thread, tid.into(), 0));
        }
        Ok(*facts)
    }

    pub(crate) fn attach_done(&mut self, slot: u32, reply_to: ReplyTo, result: Result<(), Errno>) {
        match result {
            Ok(()) => self.reply_attached(slot, reply_to, Reply::Done),
            Err(ESRCH) => {
                self.remove_thread(slot);
                self.emit(Effect::WriteRecord { slot });
                self.refuse(reply_to, kernel_refusal(ESRCH));
                self.release_if_unowned(slot);
            }
            Err(EBUSY) if self.may_wait_for_kernel(slot, reply_to) => {
                self.wait_for_kernel(slot, reply_to);
            }
            Err(EINVAL) => {
                let refusal = self.invalid_argument(slot);
                self.start_restore(
                    slot,
                    Some(reply_to),
                    Some(refusal),
                    RestoreReason::AttachFailed,
                );
            }
            // The kernel may have applied a part, such as the CPUs without the policy.
            Err(errno) => self.start_restore(
                slot,
                Some(reply_to),
                Some(kernel_refusal(errno)),
                RestoreReason::AttachFailed,
            ),
        }
    }

    /// Answers the attach of a thread that sleeps in another root domain. The kernel applies the
    /// attributes only after the thread's wake-up.
    pub(crate) fn attached_pending_wakeup(&mut self, slot: u32, reply_to: ReplyTo) {
        self.reply_attached(slot, reply_to, Reply::DoneWithCaveat(Caveat::PendingWakeup));
    }

    fn reply_attached(&mut self, slot: u32, reply_to: ReplyTo, said: Reply) {
        self.plugin_set.set_attached(SpecSlot(slot), true);
        self.record_attach(slot, reply_to.session);
        let attached = self.specs.at(slot);
        let (spec, uid, plugin) = (attached.id, attached.uid, attached.plugin);
        self.notify_plugin(plugin, uid, ForeignCall::Attach { spec });
        self.reply(reply_to, said);
        self.apply_current(slot);
        self.release_if_unowned(slot);
    }

    pub(crate) fn detach(&mut self, reply_to: ReplyTo, id: SpecId) {
        match self.find_idle(reply_to.session, id, AccessKind::Modify) {
            Ok(slot) if self.specs.at(slot).thread.is_none() => {
                mutate!(
                    "message-detach",
                    self.refuse(
                        reply_to,
                        refusal_without_numbers(Code::NotAttached, Field::Thread)
                    ),
                    self.reply(reply_to, Reply::Done)
                );
            }
            Ok(slot) => {
                self.note_requested_end(slot, reply_to.session);
                self.start_restore(slot, Some(reply_to), None, RestoreReason::Detach);
            }
            Err(refusal) => self.refuse(reply_to, refusal),
        }
    }

    /// Notifies a foreign plugin that the thread of its spec is detached.
    pub(crate) fn notify_detached(&mut self, slot: u32) {
        let detached = self.specs.at(slot);
        let (spec, uid, plugin) = (detached.id, detached.uid, detached.plugin);
        self.notify_plugin(plugin, uid, ForeignCall::Detach { spec });
    }
}
