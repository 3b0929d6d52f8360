//! Claims after a restart: known tokens, and the time for a claim.
//!
//! Model: the broker cannot know whether a process still wants the grants that an earlier daemon
//! gave it, until the process connects again. Then the process has [`CLAIM_TIME`] to claim. What it
//! does not claim ends as if its connection had ended. A process that does not connect keeps its
//! grants: it may have nothing to ask while its threads run.
//!
//! A process may contain several copies of a client library, which know nothing of each other: one
//! connects again while the other has nothing to ask. So the time concerns the grants of one
//! library ([`Token::library`]). It starts with the seed of a connection, or with the hello for
//! grants to clients without a seed.

use crate::broker::{Broker, Timer, WatchOwner};
use crate::input::{ProcessId, SessionId};
use crate::spec::ReplyTo;
use talea_core::{Span, mutate};
use talea_proto::message::{SpecId, Token};
use talea_proto::{Owner, Reply};

/// Time for the claims of a process after its first connection.
pub(crate) const CLAIM_TIME: Span = Span::from_ns(5_000_000_000);

impl Broker {
    /// Sets the seed of a connection's tokens.
    pub(crate) fn seed(&mut self, reply_to: ReplyTo, seed: Token) {
        if let Some(session) = self.sessions.get_mut(&reply_to.session) {
            session.seed = Some(seed);
            let process = session.process;
            self.expect_claims(process, seed.library());
        }
        self.reply(reply_to, Reply::Done);
    }

    /// Returns the token for the grants of this request.
    pub(crate) fn token_for(&self, reply_to: ReplyTo, entropy: u128) -> Token {
        match self.sessions[&reply_to.session].seed {
            Some(seed) => mutate!(
                "message-seed",
                Token::derived(seed, reply_to.seq),
                Token::new(0, entropy as u64)
            ),
            None => Token::new(0, entropy as u64),
        }
    }

    /// Returns the spec of the connection's user with this token, or an id that names none.
    pub(crate) fn id_of(&self, session: SessionId, token: Token) -> SpecId {
        let uid = self.sessions[&session].uid;
        self.users.spec_with_token(uid, token).unwrap_or(SpecId(0))
    }

    /// Starts the time for claims of a library in a process whose connection was accepted.
    pub(crate) fn expect_claims(&mut self, process: ProcessId, library: u64) {
        let all = mutate!("recovery-claim-library", library..=library, 0..=u64::MAX);
        let range = (process, *all.start(), 0)..=(process, *all.end(), u32::MAX);
        let slots: Vec<u32> = self.adopted.unclaimed.range(range).map(|&(.., slot)| slot).collect();
        let at = self.now.saturating_add(CLAIM_TIME);
        for slot in slots {
            self.forget_unclaimed(slot);
            self.specs.at_mut(slot).lifetime.claim_until = Some(at);
            self.timers.insert((at, Timer::ClaimEnd(slot)));
        }
    }

    /// Notes an adopted spec that has to be claimed once its library connects again.
    pub(crate) fn note_unclaimed(&mut self, slot: u32) {
        let spec = self.specs.at(slot);
        if spec.lifetime.unclaimed
            && spec.lifetime.process_watched
            && spec.task.owner != Owner::Process
        {
            self.adopted.unclaimed.insert((spec.lifetime.process, spec.token.library(), slot));
        }
    }

    /// Reverses [`Broker::note_unclaimed`].
    pub(crate) fn forget_unclaimed(&mut self, slot: u32) {
        let spec = self.specs.at(slot);
        self.adopted.unclaimed.remove(&(spec.lifetime.process, spec.token.library(), slot));
    }

    /// Ends the time for the claim of a spec.
    pub(crate) fn claim_time_ended(&mut self, slot: u32) {
        let spec = self.specs.at_mut(slot);
        (spec.lifetime.claim_until, spec.lifetime.unclaimed) =
            (None, mutate!("recovery-claim-time", false, true));
        let process = spec.lifetime.process;
        if std::mem::take(&mut spec.lifetime.process_watched) {
            self.unwatch_process(process, WatchOwner::Spec(slot));
        }
        self.release_if_unowned(slot);
    }
}
