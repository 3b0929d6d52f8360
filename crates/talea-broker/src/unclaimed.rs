//! Claims after a restart: known tokens, and the time for a claim.
//!
//! Model: the broker cannot know whether a process still wants the grants that an earlier daemon
//! gave it, until the process connects again. Then the process has [`CLAIM_TIME`] to claim. What it
//! does not claim ends as if its connection had ended. A process that does not connect keeps its
//! grants: it may have nothing to ask while its threads run.

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
        }
        self.reply(reply_to, Reply::Done);
    }

    /// Returns the token for the grants of this request.
    pub(crate) fn token_for(&self, reply_to: ReplyTo, entropy: u128) -> Token {
        match self.sessions[&reply_to.session].seed {
            Some(seed) => mutate!(
                "message-seed",
                Token::derived(seed, reply_to.seq),
                Token(entropy.to_le_bytes())
            ),
            None => Token(entropy.to_le_bytes()),
        }
    }

    /// Returns the spec of the connection's user with this token, or an id that names none.
    pub(crate) fn id_of(&self, session: SessionId, token: Token) -> SpecId {
        let uid = self.sessions[&session].uid;
        self.users.spec_with_token(uid, token).unwrap_or(SpecId(0))
    }

    /// Starts the time for claims of a process whose connection was accepted.
    pub(crate) fn expect_claims(&mut self, process: ProcessId) {
        let first = (process, WatchOwner::Spec(0));
        let watched = self.processes.range(first..).take_while(|(found, _)| *found == process);
        let slots: Vec<u32> = watched
            .filter_map(|&(_, owner)| match owner {
                WatchOwner::Spec(slot) => Some(slot),
                WatchOwner::Session(_) => None,
            })
            .filter(|&slot| {
                let spec = self.specs.at(slot);
                spec.unclaimed && spec.claim_until.is_none() && spec.task.owner != Owner::Process
            })
            .collect();
        let at = self.now.saturating_add(CLAIM_TIME);
        for slot in slots {
            self.specs.at_mut(slot).claim_until = Some(at);
            self.timers.insert((at, Timer::ClaimEnd(slot)));
        }
    }

    /// Ends the time for the claim of a spec.
    pub(crate) fn claim_time_ended(&mut self, slot: u32) {
        let spec = self.specs.at_mut(slot);
        (spec.claim_until, spec.unclaimed) = (None, mutate!("recovery-claim-time", false, true));
        let process = spec.process;
        if std::mem::take(&mut spec.process_watched) {
            self.unwatch_process(process, WatchOwner::Spec(slot));
        }
        self.release_if_unowned(slot);
    }
}
