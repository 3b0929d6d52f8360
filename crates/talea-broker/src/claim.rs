//! Claim: a client that has lost its connection, or its daemon, takes its spec over (design,
//! section 9).

use crate::broker::{Broker, Holder};
use crate::input::Effect;
use crate::refuse::plain;
use crate::spec::Asker;
use crate::whose::Wish;
use talea_core::mutate;
use talea_proto::message::{SpecId, Token};
use talea_proto::{Code, Field, Owner, Refusal, Reply};

impl Broker {
    pub(crate) fn claim(&mut self, asker: Asker, id: SpecId, token: Token) {
        let claimed = self.may_claim(asker, id, token).map(|slot| {
            self.take_over(asker, slot);
            Reply::Granted(self.granted(slot))
        });
        self.conclude(asker, claimed);
    }

    fn may_claim(&self, asker: Asker, id: SpecId, token: Token) -> Result<u32, Box<Refusal>> {
        let slot = self.find_idle(asker.session, id, Wish::See)?;
        let spec = self.specs.at(slot);
        if mutate!("message-claim", spec.token != token, false) {
            return Err(plain(Code::BadToken, Field::Request));
        }
        let session = &self.sessions[&asker.session];
        if spec.task.owner == Owner::Process && session.process.pid == 0 {
            return Err(plain(Code::Malformed, Field::Owner));
        }
        Ok(slot)
    }

    fn take_over(&mut self, asker: Asker, slot: u32) {
        self.command(asker.session, slot);
        let session = &self.sessions[&asker.session];
        let (uid, process, client) = (session.uid, session.process, session.client);
        let spec = self.specs.at_mut(slot);
        spec.awaiting = false;
        let before = std::mem::replace(&mut spec.process, process);
        let (was_watched, owner) = (std::mem::take(&mut spec.watched), spec.task.owner);
        if was_watched {
            self.unwatch_process(before, Holder::Spec(slot));
        }
        let spec = self.specs.at_mut(slot);
        spec.process_gone = false;
        spec.watched = owner == Owner::Process;
        // An adopted spec knows its user but not its groups; from here on it is booked under what
        // the kernel says of the claimer. Root claims for the user that created it.
        if uid == spec.uid {
            let old = std::mem::replace(&mut spec.client, client);
            let (plugin, charge) = (spec.plugin, spec.offer.charge);
            self.rules.discharge(self.clients.snapshot(old), plugin, charge);
            self.rules.charge(self.clients.snapshot(client), plugin, charge);
            self.clients.hold(client);
            self.clients.let_go(old);
        }
        if owner == Owner::Process {
            self.watch_process(process, Holder::Spec(slot));
        }
        self.emit(Effect::Remember { slot });
    }
}
