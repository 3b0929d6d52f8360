//! Groups of tasks by key.
//!
//! Most keys have one task, which fits into one word. The ordered map contains these words; larger
//! groups are in a second map.

use crate::chunked_map::ChunkedMap;
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
pub(super) struct Groups {
    packed: ChunkedMap<PackedGroup>,
    /// Groups that do not fit into a word.
    multi: BTreeMap<u64, Group>,
}

/// Packed group of one task (work, unproved flag, attached flag), or a mark for a group in the
/// second map.
#[derive(Clone, Copy, Debug)]
struct PackedGroup(u64);

const MULTI: u64 = 1 << 63;
/// Mark for an empty group.
const NEW: u64 = MULTI | 1;
const UNPROVED: u64 = 1 << 62;
const ATTACHED: u64 = 1 << 61;
const WORK: u64 = ATTACHED - 1;

impl Default for PackedGroup {
    fn default() -> PackedGroup {
        PackedGroup(NEW)
    }
}

impl PackedGroup {
    fn of(group: &Group) -> PackedGroup {
        let Group { tasks, work, unproved, attached } = *group;
        let flag = |count: u32, bit| if count > 0 { bit } else { 0 };
        match u64::try_from(work) {
            // A single task counts at most once as unproved and as attached.
            Ok(work) if tasks == 1 && work <= WORK => {
                PackedGroup(work | flag(unproved, UNPROVED) | flag(attached, ATTACHED))
            }
            _ => PackedGroup(MULTI),
        }
    }

    fn group(self, key: u64, multi: &BTreeMap<u64, Group>) -> Group {
        let flag = |bit| u32::from(self.0 & bit != 0);
        match self.0 {
            NEW => Group::default(),
            MULTI => multi[&key],
            _ => Group {
                tasks: 1,
                work: (self.0 & WORK).into(),
                unproved: flag(UNPROVED),
                attached: flag(ATTACHED),
            },
        }
    }
}

impl Groups {
    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.packed.len()
    }

    /// Returns the group of `key`, if there is one.
    pub(super) fn get(&self, key: u64) -> Option<Group> {
        Some(self.packed.get(key)?.group(key, &self.multi))
    }

    /// Changes the group of `key`, creating it if necessary, and returns it.
    pub(super) fn update(&mut self, key: u64, change: impl FnOnce(&mut Group)) -> Group {
        let Groups { packed, multi } = self;
        packed.update(key, |packed| {
            let was = packed.0;
            let mut group = packed.group(key, multi);
            change(&mut group);
            *packed = PackedGroup::of(&group);
            if packed.0 == MULTI {
                multi.insert(key, group);
            } else if was == MULTI {
                multi.remove(&key);
            }
            group
        })
    }

    /// Removes the group of `key`.
    pub(super) fn remove(&mut self, key: u64) {
        let packed = self.packed.remove(key).expect("the key was already removed");
        if packed.0 == MULTI {
            self.multi.remove(&key);
        }
    }

    /// Iterates over the groups with keys in `keys`, in order.
    pub(super) fn range(&self, keys: Range<u64>) -> impl DoubleEndedIterator<Item = (u64, Group)> {
        self.packed.range(keys).map(|(key, packed)| (key, packed.group(key, &self.multi)))
    }

    /// Returns the least key greater than `key`, if there is one.
    pub(super) fn next_after(&self, key: u64) -> Option<u64> {
        self.packed.next_after(key)
    }

    /// Checks the invariants; O(n).
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.packed.check();
        let multi = self.packed.range(0..u64::MAX).filter(|(_, packed)| packed.0 == MULTI);
        assert!(multi.map(|(key, _)| key).eq(self.multi.keys().copied()));
        assert!(self.range(0..u64::MAX).all(|(_, group)| group.tasks > 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_group_is_read_back_unchanged() {
        let one = Group { tasks: 1, work: WORK.into(), unproved: 1, attached: 1 };
        let kinds = [
            Group { tasks: 1, work: 0, unproved: 0, attached: 0 },
            Group { work: u128::from(WORK) + 1, ..one },
            one,
            Group { tasks: 2, ..one },
            Group {
                tasks: 40_000,
                work: u128::from(u64::MAX) * 40_000,
                unproved: 40_000,
                attached: 7,
            },
        ];
        let mut groups = Groups::default();
        for before in kinds {
            for after in kinds {
                assert_eq!(groups.update(9, |group| *group = before), before);
                assert_eq!(groups.update(9, |group| *group = after), after);
                groups.check();
                assert_eq!((groups.get(9), groups.len()), (Some(after), 1));
                assert!(groups.range(0..10).eq([(9, after)]));
                groups.remove(9);
                assert_eq!((groups.get(9), groups.len(), groups.multi.len()), (None, 0, 0));
            }
        }
    }
}
