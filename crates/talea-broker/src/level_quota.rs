//! Quota of priority levels: how many levels of a plugin one subject may occupy.
//!
//! A plugin with `refuse_sharing` gives each distinct key (the priority of `fp` and `rr`, the
//! shorter of period and deadline of `rm`) a level of its own, and refuses a key without a free
//! level. A subject with many keys could therefore refuse the plugin to all others. Without
//! `refuse_sharing`, a request shares a level and is not refused, so nothing is counted. The quota
//! does not bind root.
//!
//! The levels of `levels = "common"` are counted over all CPUs, others for each CPU.

mod count;

use crate::subjects::Subject;
use std::collections::BTreeMap;

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
