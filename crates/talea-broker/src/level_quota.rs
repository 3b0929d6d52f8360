//! Quota of priority levels: how many levels of a plugin one subject may occupy.
//!
//! A plugin with `refuse_sharing` gives each distinct key (the priority of `fp` and `rr`, the
//! shorter of period and deadline of `rm`) a level of its own, and refuses a key without a free
//! level. A subject with many keys could therefore refuse the plugin to all others. Without
//! `refuse_sharing`, a request shares a level and is not refused, so nothing is counted. The quota
//! does not bind root.
//!
//! The levels of `levels = "common"` are counted over all CPUs, others for each CPU.

use crate::broker::Broker;
use crate::plugin::Offer;
use crate::rules::Denial;
use crate::subjects::Subject;
use std::collections::BTreeMap;
use talea_core::mutate;
use talea_core::setup::{FpLevels, PluginKind};
use talea_proto::{Code, Field, Task};

/// Levels on which keys are distinct: plugin, and CPU or `u32::MAX` for all CPUs.
type Place = (u32, u32);

/// Number of specs of each subject with each key.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldLevels {
    specs: BTreeMap<(Subject, Place, u64), u32>,
}

impl HeldLevels {
    fn insert(&mut self, subject: Subject, (place, key): (Place, u64)) {
        *self.specs.entry((subject, place, key)).or_default() += 1;
    }

    fn remove(&mut self, subject: Subject, (place, key): (Place, u64)) {
        let entry = (subject, place, key);
        let count = self.specs.get_mut(&entry).expect("the key was counted");
        *count -= 1;
        if *count == 0 {
            self.specs.remove(&entry);
        }
    }

    /// Returns the number of distinct keys after a spec with `key` is added and one with `leaving`
    /// is removed, if the added key is new; `None` if it is not.
    fn distinct_with(
        &self,
        subject: Subject,
        (place, key): (Place, u64),
        leaving: Option<(Place, u64)>,
    ) -> Option<u32> {
        let is_last = |key| self.specs.get(&(subject, place, key)).is_none_or(|&count| count <= 1);
        let leaving = leaving.filter(|&(from, key)| from == place && is_last(key));
        let is_held = self.specs.contains_key(&(subject, place, key));
        if is_held && leaving.is_none_or(|(_, left)| left != key) {
            return None;
        }
        let held = self.specs.range((subject, place, 0)..=(subject, place, u64::MAX)).count();
        Some(held as u32 + 1 - u32::from(leaving.is_some()))
    }

    /// Returns the number of counted keys.
    pub(crate) fn len(&self) -> usize {
        self.specs.len()
    }
}

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
