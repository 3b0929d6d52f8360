//! Subjects of users and clients.

use super::Subject;
use crate::broker::Broker;
use talea_core::mutate;
use talea_core::setup::Domain;

impl Broker {
    /// Returns the subject that the specs of a user are charged to.
    pub fn subject_of_specs(&self, uid: u32) -> Subject {
        let owner = || mutate!("quota-subordinates", self.subordinates.owner(uid), uid);
        if uid == 0 { Subject::ROOT } else { Subject(owner()) }
    }

    /// Returns the subject that a connection of this client is charged to.
    pub(crate) fn subject_of_client(&self, client: u32) -> Subject {
        let uid = self.clients.peer(client).uid;
        let own = self.subject_of_specs(uid);
        let is_named = |rule: &talea_core::setup::Rule| rule.domain == Domain::User(own.0);
        let is_served = own == Subject::ROOT
            || self.rules.allows_anything(self.clients.snapshot(client))
            || self.has_specs(own)
            || self.setup.front_ends.contains(&uid)
            || (own.0 != uid && self.setup.rules.iter().any(is_named));
        if mutate!("quota-unserved", is_served, true) { own } else { Subject::UNSERVED }
    }

    /// Whether any spec is charged to the subject.
    pub fn has_specs(&self, subject: Subject) -> bool {
        self.users.usage(subject).1 > 0
    }
}
