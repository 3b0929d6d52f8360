//! Ordered map from spec id to slot.
//!
//! Each new id is greater than all earlier ones, so a sorted array with vacant entries is an
//! ordered map without a tree. Insertion is a push, lookup a binary search, and removal marks the
//! entry as vacant. The map removes the vacant entries when they are the majority, which costs O(1)
//! amortised per removal. The map allocates nothing once the array has its size. Only adoption
//! inserts in the middle.

use std::collections::VecDeque;
use talea_proto::SpecId;

const VACANT: u32 = u32::MAX;

/// Ordered map from [`SpecId`] to slot.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    /// Entries sorted by id; slot [`VACANT`] marks a removed id.
    entries: VecDeque<(SpecId, u32)>,
    vacant: usize,
}

impl Ids {
    /// Returns the number of ids.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.vacant
    }

    /// Returns the slot of `id`, if the map contains it.
    pub(crate) fn get(&self, id: SpecId) -> Option<u32> {
        let (_, slot) = self.entries[self.position(id).ok()?];
        (slot != VACANT).then_some(slot)
    }

    /// Returns the first id that is `id` or greater, with its slot, if there is one.
    pub(crate) fn at_least(&self, id: SpecId) -> Option<(SpecId, u32)> {
        let start = self.position(id).unwrap_or_else(|at| at);
        self.entries.range(start..).find(|(_, slot)| *slot != VACANT).copied()
    }

    /// Adds `id`, which must be new.
    pub(crate) fn insert(&mut self, id: SpecId, slot: u32) {
        assert_ne!(slot, VACANT, "slot numbers are below the mark for vacant entries");
        if self.entries.back().is_none_or(|&(last, _)| last < id) {
            return self.entries.push_back((id, slot));
        }
        match self.position(id) {
            Err(at) => self.entries.insert(at, (id, slot)),
            Ok(at) => {
                assert_eq!(self.entries[at].1, VACANT, "{id:?} is inserted twice");
                self.entries[at].1 = slot;
                self.vacant -= 1;
            }
        }
    }

    /// Removes `id`, if it is there.
    pub(crate) fn remove(&mut self, id: SpecId) {
        let Ok(at) = self.position(id) else { return };
        if self.entries[at].1 == VACANT {
            return;
        }
        self.entries[at].1 = VACANT;
        self.vacant += 1;
        while self.entries.back().is_some_and(|(_, slot)| *slot == VACANT) {
            self.entries.pop_back();
            self.vacant -= 1;
        }
        if self.vacant > 16 && self.vacant > self.entries.len() / 2 {
            self.entries.retain(|(_, slot)| *slot != VACANT);
            self.vacant = 0;
        }
    }

    fn position(&self, id: SpecId) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&id, |(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use talea_core::rng::Rng;

    #[test]
    fn the_sorted_array_equals_a_tree_under_ten_thousand_random_steps() {
        let mut rng = Rng::new(7);
        let mut random = move |below: u64| rng.below(below);
        let (mut ids, mut plain, mut next) = (Ids::default(), BTreeMap::new(), 1_u64);
        for step in 0..10_000 {
            match random(5) {
                0 | 1 => {
                    next += 1 + random(3);
                    ids.insert(SpecId(next), step);
                    plain.insert(next, step);
                }
                2 => {
                    // Adoption may insert a lower id.
                    let id = 1 + random(next);
                    if let std::collections::btree_map::Entry::Vacant(free) = plain.entry(id) {
                        free.insert(step);
                        ids.insert(SpecId(id), step);
                    }
                }
                _ => {
                    let id = random(next + 2);
                    plain.remove(&id);
                    ids.remove(SpecId(id));
                }
            }
            let probe = random(next + 2);
            assert_eq!(ids.get(SpecId(probe)), plain.get(&probe).copied());
            let first = plain.range(probe..).next().map(|(&id, &slot)| (SpecId(id), slot));
            assert_eq!(ids.at_least(SpecId(probe)), first);
            assert_eq!(ids.len(), plain.len());
        }
    }
}
