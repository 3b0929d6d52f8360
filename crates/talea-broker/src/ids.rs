//! Ordered map from spec id to slot.

use std::collections::BTreeMap;
use talea_proto::SpecId;

/// Ordered map from [`SpecId`] to slot.
#[derive(Debug, Default)]
pub(crate) struct Ids(BTreeMap<SpecId, u32>);

impl Ids {
    /// Returns the number of ids.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the slot of `id`, if the map contains it.
    pub(crate) fn get(&self, id: SpecId) -> Option<u32> {
        self.0.get(&id).copied()
    }

    /// Returns the first id that is `id` or greater, with its slot, if there is one.
    pub(crate) fn at_least(&self, id: SpecId) -> Option<(SpecId, u32)> {
        self.0.range(id..).next().map(|(&id, &slot)| (id, slot))
    }

    /// Adds `id`, which must be new.
    pub(crate) fn insert(&mut self, id: SpecId, slot: u32) {
        assert!(self.0.insert(id, slot).is_none(), "{id:?} is inserted twice");
    }

    /// Removes `id`, if it is there.
    pub(crate) fn remove(&mut self, id: SpecId) {
        self.0.remove(&id);
    }
}
