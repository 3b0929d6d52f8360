//! Groups of tasks by key.

use std::collections::BTreeMap;
use std::ops::Range;

/// All tasks of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) tasks: u32,
    pub(super) work: u128,
    pub(super) unproved: u32,
    pub(super) attached: u32,
}

/// Groups in order of keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups(BTreeMap<u64, Group>);

impl Groups {
    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the group of `key`, if there is one.
    pub(super) fn get(&self, key: u64) -> Option<Group> {
        self.0.get(&key).copied()
    }

    /// Changes the group of `key`, creating it if necessary, and returns it.
    pub(super) fn update(&mut self, key: u64, change: impl FnOnce(&mut Group)) -> Group {
        let group = self.0.entry(key).or_default();
        change(group);
        *group
    }

    /// Removes the group of `key`.
    pub(super) fn remove(&mut self, key: u64) {
        self.0.remove(&key).expect("the key was already removed");
    }

    /// Iterates over the groups with keys in `keys`, in order.
    pub(super) fn range(&self, keys: Range<u64>) -> impl DoubleEndedIterator<Item = (u64, Group)> {
        self.0.range(keys.start..keys.end.max(keys.start)).map(|(&key, &group)| (key, group))
    }

    /// Returns the least key greater than `key`, if there is one.
    pub(super) fn next_after(&self, key: u64) -> Option<u64> {
        self.0.range(key.checked_add(1)?..).next().map(|(&key, _)| key)
    }

    /// Checks the invariants; O(n).
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert!(self.0.values().all(|group| group.tasks > 0));
    }
}
