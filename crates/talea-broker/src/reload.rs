//! Reload: new rules and quotas for existing connections; grants stay.

use crate::broker::Broker;
use crate::input::LogEvent;
use crate::rules::Rules;
use talea_core::mutate;
use talea_core::setup::Setup;

impl Broker {
    pub(crate) fn reloaded(&mut self, setup: Setup) {
        if let Some(why) = self.plugin_difference(&setup) {
            return self.log(LogEvent::ReloadRefused { why });
        }
        self.setup = setup;
        self.rules = Rules::compile(&self.setup);
        mutate!(
            "rule-reload",
            {
                self.clients.rebuild(&self.rules);
            },
            {}
        );

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
