//! Who may do what to a spec (checklist R25, facts S2, S3, W18).
//!
//! A spec is commanded by the connection that created or claimed it, and by root. Other connections
//! of the same user see it and may release what does not belong to a connection (`talea release`).
//! To everybody else it does not exist.

use crate::broker::Broker;
use crate::input::SessionId;
use crate::refuse::plain;
use talea_core::mutate;
use talea_proto::message::SpecId;
use talea_proto::{Code, Field, Owner, Refusal};

/// What somebody wants with a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Read about it.
    See,
    /// End it.
    Release,
    /// Everything else.
    Command,
}

impl Broker {
    /// The slot of `id`, if this connection may do that to it.
    pub(crate) fn find(
        &self,
        asker: SessionId,
        id: SpecId,
        wish: Wish,
    ) -> Result<u32, Box<Refusal>> {
        let unknown = || plain(Code::NoSuchSpec, Field::Request);
        let slot = self.ids.get(id).ok_or_else(unknown)?;
        let (spec, uid) = (self.specs.at(slot), self.sessions[&asker].uid);
        let commands = uid == 0 || spec.session.is_some_and(|(session, _)| session == asker);
        let may = match wish {
            Wish::See => true,
            Wish::Release => commands || spec.task.owner != Owner::Session,
            Wish::Command => commands,
        };
        match mutate!("message-owner", (commands || spec.uid == uid, may), (true, may || uid == 0))
        {
            (false, _) => Err(unknown()),
            (true, false) => Err(plain(Code::NotYours, Field::Request)),
            (true, true) => Ok(slot),
        }
    }

    /// The same, and nothing else may be under way there.
    pub(crate) fn find_idle(
        &self,
        asker: SessionId,
        id: SpecId,
        wish: Wish,
    ) -> Result<u32, Box<Refusal>> {
        let slot = self.find(asker, id, wish)?;
        if self.specs.at(slot).is_idle() {
            Ok(slot)
        } else {
            Err(plain(Code::Busy, Field::Request))
        }
    }

    /// From here on this connection commands the spec.
    pub(crate) fn command(&mut self, session: SessionId, slot: u32) {
        self.set_free(slot);
        let specs =
            &mut self.sessions.get_mut(&session).expect("only living connections command").specs;
        let position = specs.len() as u32;
        specs.push(slot);
        self.specs.at_mut(slot).session = Some((session, position));
    }

    /// No connection commands the spec any more.
    pub(crate) fn set_free(&mut self, slot: u32) {
        let Some((session, position)) = self.specs.at_mut(slot).session.take() else { return };
        let specs =
            &mut self.sessions.get_mut(&session).expect("only living connections command").specs;
        let removed = specs.swap_remove(position as usize);
        assert_eq!(removed, slot, "a connection's list of specs is wrong");
        if let Some(&moved) = specs.get(position as usize) {
            self.specs.at_mut(moved).session = Some((session, position));
        }
    }
}
