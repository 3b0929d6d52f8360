//! Counts and checks of the levels of specs.

use super::{HeldLevels, Place};
use crate::broker::Broker;
use crate::plugin::Offer;
use crate::rules::Denial;
use crate::subjects::Subject;
use talea_core::mutate;
use talea_core::setup::{FpLevels, PluginKind};
use talea_proto::{Code, Field, Task};

impl Broker {
    /// Returns the place and the key of a task whose level counts.
    fn level_of(&self, plugin: u32, task: &Task, cpu: Option<u32>) -> Option<(Place, u64)> {
        let params = &task.params;
        match &self.setup.plugins.get(plugin as usize)?.kind {
            PluginKind::Fp(options) | PluginKind::Rr(options) if options.refuse_sharing => {
                let cpu = if options.levels == FpLevels::Common { u32::MAX } else { cpu? };
                Some(((plugin, cpu), params.priority?.0.into()))
            }
            PluginKind::Rm(options) if options.refuse_sharing => {
                let key = params.period?.min(params.deadline.unwrap_or(params.period?));
                Some(((plugin, cpu?), key.as_ns()))
            }
            _ => None,
        }
    }

    /// Returns the place and the key of a spec whose level counts.
    pub(crate) fn level_of_slot(&self, slot: u32) -> Option<(Place, u64)> {
        let spec = self.specs.get(slot).filter(|spec| spec.in_ledger)?;
        self.level_of(spec.plugin, &spec.task, spec.offer.cpu)
    }

    /// Counts the level of a spec that is in the ledger now.
    pub(crate) fn note_level(&mut self, slot: u32) {
        if let Some(level) = self.level_of_slot(slot) {
            self.held_levels.insert(self.specs.at(slot).subject, level);
        }
    }

    /// Ends the count of a spec that leaves the ledger or changes.
    pub(crate) fn forget_level(&mut self, slot: u32) {
        if let Some(level) = self.level_of_slot(slot) {
            self.held_levels.remove(self.specs.at(slot).subject, level);
        }
    }

    /// Checks whether the client may occupy the level of an offer. `leaving` is the slot of the
    /// spec to be replaced.
    pub(crate) fn check_levels(
        &self,
        client: u32,
        plugin: u32,
        task: &Task,
        offer: &Offer,
        leaving: Option<u32>,
    ) -> Result<(), Denial> {
        let subject = self.subject_of_specs(self.clients.peer(client).uid);
        let Some(level) = self.level_of(plugin, task, offer.cpu) else { return Ok(()) };
        let left = leaving.and_then(|slot| self.level_of_slot(slot));
        let limit = self.setup.quota.levels_per_user;
        match self.held_levels.distinct_with(subject, level, left) {
            Some(held)
                if mutate!("quota-levels", subject != Subject::ROOT && held > limit, false) =>
            {
                Err(Denial {
                    code: Code::Quota,
                    field: Field::Levels,
                    asked: held.into(),
                    limit: limit.into(),
                    rule: None,
                })
            }
            _ => Ok(()),
        }
    }

    /// Returns the counts as they follow from the specs, for the audit.
    pub(crate) fn counted_levels(&self) -> HeldLevels {
        let mut counted = HeldLevels::default();
        for (slot, spec) in self.specs.iter() {
            if let Some(level) = self.level_of_slot(slot) {
                counted.insert(spec.subject, level);
            }
        }
        counted
    }
}
