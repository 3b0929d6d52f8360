//! Claim: a client takes a spec over, for example after it lost its connection or after a restart
//! of the daemon. The token of the spec authorises the claim.

use crate::broker::{Broker, Timer, WatchOwner};
use crate::input::Effect;
use crate::ownership::AccessKind;
use crate::refuse::refusal_without_numbers;
use crate::spec::ReplyTo;
use crate::trail::AuditEvent;
use talea_core::mutate;
use talea_proto::message::{SpecId, Token};
use talea_proto::{Code, Field, Owner, Refusal, Reply};

impl Broker {
    pub(crate) fn claim(&mut self, reply_to: ReplyTo, id: SpecId, token: Token) {
        let claimed = self.check_claim(reply_to, id, token).map(|slot| {
            self.take_over(reply_to, slot);
            Reply::Granted(self.granted(slot))
        });
        self.reply_or_refuse(reply_to, claimed);
    }

    fn check_claim(
        &self,
        reply_to: ReplyTo,
        id: SpecId,
        token: Token,
    ) -> Result<u32, Box<Refusal>> {
        let id = if id == SpecId(0) { self.id_of(reply_to.session, token) } else { id };
        let slot = self.find_idle(reply_to.session, id, AccessKind::Read)?;
        let spec = self.specs.at(slot);
        if mutate!("message-claim", spec.token != token, false) {
            return Err(refusal_without_numbers(Code::BadToken, Field::Request));
        }
        let session = &self.sessions[&reply_to.session];
        if spec.task.owner == Owner::Process && session.process.pid == 0 {
            return Err(refusal_without_numbers(Code::Malformed, Field::Owner));
        }
        Ok(slot)
    }

    fn take_over(&mut self, reply_to: ReplyTo, slot: u32) {
        self.bind_to_session(reply_to.session, slot);
        let session = &self.sessions[&reply_to.session];
        let (uid, process, client) = (session.uid, session.process, session.client);
        self.forget_unclaimed(slot);
        let spec = self.specs.at_mut(slot);
        spec.lifetime.unclaimed = false;
        if let Some(at) = spec.lifetime.claim_until.take() {
            self.timers.remove(&(at, Timer::ClaimEnd(slot)));
        }
        let spec = self.specs.at_mut(slot);
        let before = std::mem::replace(&mut spec.lifetime.process, process);
        let (was_watched, owner) =
            (std::mem::take(&mut spec.lifetime.process_watched), spec.task.owner);
        if was_watched {
            self.unwatch_process(before, WatchOwner::Spec(slot));
        }
        let spec = self.specs.at_mut(slot);
        spec.lifetime.process_exited = false;
        spec.lifetime.process_watched = owner == Owner::Process;
        // An adopted spec has its user but not its groups; from now on the rules for the claimer
        // count it. Root claims for the user that created it.
        if uid == spec.uid {
            self.stop_sharing(slot);
            let spec = self.specs.at_mut(slot);
            let old = std::mem::replace(&mut spec.client, client);
            let (plugin, charge) = (spec.plugin, spec.offer.charge);
            self.rules.discharge(self.clients.snapshot(old), plugin, charge);
            self.rules.charge(self.clients.snapshot(client), plugin, charge);
            self.clients.acquire(client);
            self.clients.release(old);
            self.start_sharing(slot);
            self.sync_limit(slot);
        }
        if owner == Owner::Process {
            self.watch_process(process, WatchOwner::Spec(slot));
        }
        self.record_spec(slot, Some(uid), AuditEvent::Claim);
        self.emit(Effect::WriteRecord { slot });
    }
}
