//! Slots of the specs on each CPU, on each root domain, and on the set of each plugin.
//!
//! The exact tests need all tasks of one CPU, while the broker has thousands. Insertion and removal
//! are O(1): every spec stores its index, and a removal moves the last slot of the place into the
//! free index.

use crate::ledger::Place;

/// Slots by place.
#[derive(Clone, Debug)]
pub(crate) struct SlotsByPlace {
    places: Vec<Vec<u32>>,
    cpus: usize,
    domains: usize,
}

impl SlotsByPlace {
    /// Creates empty lists for CPUs below `cpus`, for `domains` domains and for `plugins` plugins.
    pub(crate) fn new(cpus: u32, domains: usize, plugins: usize) -> SlotsByPlace {
        let cpus = cpus as usize;
        SlotsByPlace { places: vec![Vec::new(); cpus + domains + plugins], cpus, domains }
    }

    fn index(&self, place: Place) -> usize {
        match place {
            Place::Cpu(cpu) => cpu as usize,
            Place::Domain(domain) => self.cpus + domain as usize,
            Place::Set(plugin) => self.cpus + self.domains + plugin as usize,
        }
    }

    /// Returns the slots at `place`.
    pub(crate) fn at(&self, place: Place) -> &[u32] {
        &self.places[self.index(place)]
    }

    /// Adds a spec and returns its index.
    pub(crate) fn insert(&mut self, place: Place, slot: u32) -> u32 {
        let at = self.index(place);
        self.places[at].push(slot);
        (self.places[at].len() - 1) as u32
    }

    /// Removes the spec at an index. Returns the slot that now has the index, if any.
    pub(crate) fn remove(&mut self, place: Place, place_index: u32) -> Option<u32> {
        let at = self.index(place);
        self.places[at].swap_remove(place_index as usize);
        self.places[at].get(place_index as usize).copied()
    }
}
