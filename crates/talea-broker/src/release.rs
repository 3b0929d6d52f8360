//! End of a spec: on request, or because its owner has ended (R29).

use crate::broker::{Broker, Timer, WatchOwner};
use crate::input::{Effect, ForeignCall};
use crate::ownership::AccessKind;
use crate::plugin_set::SpecSlot;
use crate::spec::{PendingOp, ReplyTo, RestoreReason};
use crate::trail::{EndCause, ThreadEnd};
use talea_core::Monotonic;
use talea_core::mutate;
use talea_proto::Reply;
use talea_proto::message::SpecId;

impl Broker {
    pub(crate) fn release(&mut self, reply_to: ReplyTo, id: SpecId) {
        match self.find_idle(reply_to.session, id, AccessKind::Release) {
            Ok(slot) if self.specs.at(slot).thread.is_some() => {
                self.note_release(slot, reply_to);
                self.note_requested_end(slot, reply_to.session);
                self.start_restore(slot, Some(reply_to), None, RestoreReason::Release);
            }
            Ok(slot) => {
                self.note_release(slot, reply_to);
                self.drop_spec(slot, self.zero_lag(slot));
                self.reply(reply_to, Reply::Done);
            }
            Err(refusal) => self.refuse(reply_to, refusal),
        }
    }

    fn note_release(&mut self, slot: u32, reply_to: ReplyTo) {
        let by = self.sessions.get(&reply_to.session).map(|session| session.uid);
        self.specs.at_mut(slot).lifetime.released_by = by;
    }

    /// Whether the grant still has an owner. A daemon that stops without `release` leaves every
    /// grant to the next daemon.
    pub(crate) fn is_owned(&self, slot: u32) -> bool {
        mutate!(
            "message-stop-release",
            match self.stopping {
                Some(stopping) => !stopping.release,
                None => mutate!("life-session", self.specs.at(slot).has_owner(), true),
            },
            match self.stopping {
                Some(_) => true,
                None => self.specs.at(slot).has_owner(),
            }
        )
    }

    /// Releases the spec if it has no owner any more. Specs with an operation in progress are
    /// checked again at its end.
    pub(crate) fn release_if_unowned(&mut self, slot: u32) {
        if self.specs.get(slot).is_none_or(|spec| spec.id.0 == 0) || self.is_owned(slot) {
            return;
        }
        let spec = self.specs.at_mut(slot);
        match &mut spec.step {
            PendingOp::Idle if spec.thread.is_some() => {
                let is_stop = self.stopping.is_some_and(|stopping| stopping.release);
                let end = if is_stop { ThreadEnd::Stopped } else { ThreadEnd::OwnerEnded };
                self.note_thread_end(slot, EndCause::Detach(end), None);
                self.start_restore(slot, None, None, RestoreReason::OwnerGone);
            }
            PendingOp::Idle => self.drop_spec(slot, self.zero_lag(slot)),
            PendingOp::Restoring(restoring) if restoring.reason != RestoreReason::AttachFailed => {
                restoring.reason = RestoreReason::OwnerGone;
            }
            PendingOp::Restoring(_) | PendingOp::Attaching(_) | PendingOp::Changing(_) => {}
        }
    }

    /// Removes a spec from every list. `free_at` is the time at which its bandwidth becomes free,
    /// if not now.
    pub(crate) fn drop_spec(&mut self, slot: u32, free_at: Option<Monotonic>) {
        self.unbind_from_session(slot);
        self.forget_exclusive(slot);
        self.forget_level(slot);
        self.forget_unclaimed(slot);
        let spec = self.specs.remove(slot).expect("a spec ends once");
        assert!(
            spec.thread.is_none() && spec.is_idle(),
            "a spec with a thread or an operation in progress was removed"
        );
        if spec.in_ledger {
            self.plugin_set.release(SpecSlot(slot), free_at);
            self.rules.discharge(
                self.clients.snapshot(spec.client),
                spec.plugin,
                spec.offer.charge,
            );
        }
        self.record_release(&spec);
        if let Some(at) = spec.lifetime.claim_until {
            self.timers.remove(&(at, Timer::ClaimEnd(slot)));
        }
        self.users.account(spec.subject).specs -= 1;
        self.users.remove_id(spec.uid, spec.id, spec.token);
        self.clients.release(spec.client);
        if spec.lifetime.process_watched {
            self.unwatch_process(spec.lifetime.process, WatchOwner::Spec(slot));
        }
        self.ids.remove(spec.id);
        mutate!("message-release", self.emit(Effect::EraseRecord { slot }));

        if spec.in_ledger {
            self.notify_plugin(spec.plugin, spec.uid, ForeignCall::Release { spec: spec.id });
        }
        self.apply_moves(&[]);
    }
}
