//! Connections without a hello.

use super::Simulation;
use crate::input::{Input, SessionId};

impl Simulation {
    /// Closes a connection without an unread message. live counterpart: `close_if_silent` of the
    /// daemon.
    pub(super) fn close_if_silent(&mut self, session: SessionId) {
        if self.connections.get(&session).is_some_and(|open| open.socket.is_empty()) {
            self.connections.remove(&session);
            self.inbox.push_back(Input::Disconnected { session });
        }
    }
}
