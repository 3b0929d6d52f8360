//! The tasks of one key, by key.
//!
//! Most keys have one task, of which a word says everything; so that is what is kept in order, and
//! the others have a place of their own.

use crate::leaves::Leaves;
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
    brief: Leaves<Brief>,
    /// Those that a word can't describe.
    crowds: BTreeMap<u64, Group>,
}

/// A group of one task: its work, whether it is unproved, and whether it is attached. Or one that
/// can't be told like this.
#[derive(Clone, Copy, Debug)]
struct Brief(u64);

const CROWD: u64 = 1 << 63;
/// Nobody has joined it yet.
const NEW: u64 = CROWD | 1;
const UNPROVED: u64 = 1 << 62;
const ATTACHED: u64 = 1 << 61;
const WORK: u64 = ATTACHED - 1;

impl Default for Brief {
    fn default() -> Brief {
        Brief(NEW)
    }
}

impl Brief {
    fn of(group: &Group) -> Brief {
        let Group { tasks, work, unproved, attached } = *group;
        let flag = |count: u32, bit| if count > 0 { bit } else { 0 };
        match u64::try_from(work) {
            // One task is unproved and attached once at most.
            Ok(work) if tasks == 1 && work <= WORK => {
                Brief(work | flag(unproved, UNPROVED) | flag(attached, ATTACHED))
            }
            _ => Brief(CROWD),
        }
    }

    fn group(self, key: u64, crowds: &BTreeMap<u64, Group>) -> Group {
        let flag = |bit| u32::from(self.0 & bit != 0);
        match self.0 {
            NEW => Group::default(),
            CROWD => crowds[&key],
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
    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.brief.len()
    }

    /// The tasks of `key`.
    pub(super) fn get(&self, key: u64) -> Option<Group> {
        Some(self.brief.get(key)?.group(key, &self.crowds))
    }

    /// Changes the group of `key`, which is there from now on, and gives it.
    pub(super) fn update(&mut self, key: u64, change: impl FnOnce(&mut Group)) -> Group {
        let Groups { brief, crowds } = self;
        brief.update(key, |brief| {
            let was = brief.0;
            let mut group = brief.group(key, crowds);
            change(&mut group);
            *brief = Brief::of(&group);
            if brief.0 == CROWD {
                crowds.insert(key, group);
            } else if was == CROWD {
                crowds.remove(&key);
            }
            group
        })
    }

    /// There is no task of this key any more.
    pub(super) fn remove(&mut self, key: u64) {
        let brief = self.brief.remove(key).expect("a key that has gone already");
        if brief.0 == CROWD {
            self.crowds.remove(&key);
        }
    }

    /// The groups whose keys lie in `keys`, in order.
    pub(super) fn range(&self, keys: Range<u64>) -> impl DoubleEndedIterator<Item = (u64, Group)> {
        self.brief.range(keys).map(|(key, brief)| (key, brief.group(key, &self.crowds)))
    }

    /// The least key that is greater than this one.
    pub(super) fn next_after(&self, key: u64) -> Option<u64> {
        self.brief.next_after(key)
    }

    /// The invariants; O(n).
    #[cfg(test)]
    pub(super) fn check(&self) {
        self.brief.check();
        let crowds = self.brief.range(0..u64::MAX).filter(|(_, brief)| brief.0 == CROWD);
        assert!(crowds.map(|(key, _)| key).eq(self.crowds.keys().copied()));
        assert!(self.range(0..u64::MAX).all(|(_, group)| group.tasks > 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_what_it_was_told_to_be() {
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
                assert_eq!((groups.get(9), groups.len(), groups.crowds.len()), (None, 0, 0));
            }
        }
    }
}
