//! Reload: new rules and quotas for existing connections; grants stay.

use crate::broker::Broker;
use crate::input::{LogEvent, SessionId};
use crate::rules::Rules;
use crate::subjects::Subordinates;
use crate::trail::AuditEvent;
use talea_core::mutate;
use talea_core::setup::Setup;

impl Broker {
    pub(crate) fn reloaded(&mut self, setup: Setup) {
        if let Some(why) = self.plugin_difference(&setup) {
            return self.log(LogEvent::ReloadRefused { why });
        }
        self.setup = setup;
        self.rules = Rules::compile(&self.setup);
        self.subordinates = Subordinates::new(&self.setup.subordinate_users);
        mutate!("rule-reload", self.clients.rebuild(&self.rules));

        self.record_daemon_event(AuditEvent::Reload);
        self.charge_sessions_again();
        for (_, spec) in self.specs.iter().filter(|(_, spec)| spec.in_ledger) {
            self.rules.charge(self.clients.snapshot(spec.client), spec.plugin, spec.offer.charge);
        }
        let slots: Vec<u32> = self.specs.iter().map(|(slot, _)| slot).collect();
        for &slot in &slots {
            self.start_sharing(slot);
        }
        for slot in slots {
            self.sync_limit(slot);
        }
    }

    /// Charges each connection to the subject that it has by the new rules. Specs stay with their
    /// subject.
    fn charge_sessions_again(&mut self) {
        let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in ids {
            let subject = self.subject_of_client(self.sessions[&id].client);
            let session = self.sessions.get_mut(&id).expect("the id was just read");
            let before = std::mem::replace(&mut session.subject, subject);
            if !session.is_rejected() {
                self.users.account(before).sessions -= 1;
                self.users.account(subject).sessions += 1;
            }
        }
    }

    /// Returns the difference to the plugins of the start, if any: plugins hold grants, so they
    /// must not change.
    fn plugin_difference(&self, setup: &Setup) -> Option<String> {
        let (old, new) = (&self.setup.plugins, &setup.plugins);
        let differs = old.iter().zip(new).find(|(old, new)| old != new);
        let name = match differs {
            Some((old, _)) => &old.name,
            None if old.len() < new.len() => &new[old.len()].name,
            None if old.len() > new.len() => &old[new.len()].name,
            None => return None,
        };
        Some(format!(
            "plugin \"{name}\" differs from its configuration at start; restart the daemon to change plugins"
        ))
    }
}
