//! Ownership of specs and access to them (R25).
//!
//! The connection that created or claimed a spec may modify the spec, and so may the superuser.
//! Other connections of the same user may read it, and may release it if a process or a thread owns
//! it (`talea release`). For all other users the spec does not exist.

use crate::broker::Broker;
use crate::input::SessionId;
use crate::refuse::refusal_without_numbers;
use talea_core::mutate;
use talea_proto::message::SpecId;
use talea_proto::{Code, Field, Owner, Refusal};

/// Kind of access to a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessKind {
    /// Read the spec.
    Read,
    /// Release the spec.
    Release,
    /// Any other operation.
    Modify,
}

impl Broker {
    /// Returns the slot of `id` if this connection may access it.
    pub(crate) fn find(
        &self,
        requester: SessionId,
        id: SpecId,
        access: AccessKind,
    ) -> Result<u32, Box<Refusal>> {
        let unknown = || refusal_without_numbers(Code::NoSuchSpec, Field::Request);
        let slot = self.ids.get(id).ok_or_else(unknown)?;
        let (spec, uid) = (self.specs.at(slot), self.sessions[&requester].uid);
        let owns = uid == 0 || spec.session.is_some_and(|(session, _)| session == requester);
        let allowed = match access {
            AccessKind::Read => true,
            AccessKind::Release => owns || spec.task.owner != Owner::Session,
            AccessKind::Modify => owns,
        };
        match mutate!(
            "message-owner",
            (owns || spec.uid == uid, allowed),
            (true, allowed || uid == 0)
        ) {
            (false, _) => Err(unknown()),
            (true, false) => Err(refusal_without_numbers(Code::NotOwner, Field::Request)),
            (true, true) => Ok(slot),
        }
    }

    /// Returns the slot of `id` if this connection may access it and no operation is in progress.
    pub(crate) fn find_idle(
        &self,
        requester: SessionId,
        id: SpecId,
        access: AccessKind,
    ) -> Result<u32, Box<Refusal>> {
        let slot = self.find(requester, id, access)?;
        if self.specs.at(slot).is_idle() {
            Ok(slot)
        } else {
            Err(refusal_without_numbers(Code::Busy, Field::Request))
        }
    }

    /// Binds the spec to this connection.
    pub(crate) fn bind_to_session(&mut self, session: SessionId, slot: u32) {
        self.unbind_from_session(slot);
        let specs = &mut self
            .sessions
            .get_mut(&session)
            .expect("specs are bound to open connections only")
            .specs;
        let position = specs.len() as u32;
        specs.push(slot);
        self.specs.at_mut(slot).session = Some((session, position));
    }

    /// Unbinds the spec from its connection.
    pub(crate) fn unbind_from_session(&mut self, slot: u32) {
        let Some((session, position)) = self.specs.at_mut(slot).session.take() else { return };
        let specs = &mut self
            .sessions
            .get_mut(&session)
            .expect("specs are bound to open connections only")
            .specs;
        let removed = specs.swap_remove(position as usize);
        assert_eq!(removed, slot, "a connection's list of specs is wrong");
        if let Some(&moved) = specs.get(position as usize) {
            self.specs.at_mut(moved).session = Some((session, position));
        }
    }
}
