//! State file of the simulation.

use super::simulation::Simulation;
use crate::input::{Errno, Input, ThreadId};
use talea_proto::record::Record;

impl Simulation {
    /// Allocates the slots of the state file that the broker asks for, unless the disk is full.
    pub(super) fn allocate_slots(&mut self) {
        let Some(wanted) = self.broker.wanted_slots() else { return };
        let is_full = self.faults.full_disk > 0 && self.rng.chance(self.faults.full_disk);
        let errno = if is_full { Errno(28) } else { Errno(0) };
        self.slots = if is_full { self.slots } else { self.slots.max(wanted) };
        self.handle_input(Input::RecordSlots { slots: self.slots, errno });
    }

    /// Writes the record of a slot, which must be allocated.
    pub(super) fn write_record(&mut self, slot: u32) {
        assert!(slot < self.slots, "slot {slot} of the state file is not allocated");
        match self.broker.record(slot) {
            Some(record) => self.file.insert(slot, record),
            None => self.file.remove(&slot),
        };
    }

    /// Returns the user of the spec of a thread, by its record, if there is one.
    pub(super) fn user_of(&self, thread: ThreadId) -> Option<u32> {
        let (tid, found) = self.kernel.thread_of(thread)?;
        let of_thread = |record: &&Record| {
            record.thread.is_some_and(|known| (known.tid, known.start) == (tid, found.start))
        };
        self.file.values().find(of_thread).map(|record| record.uid)
    }
}
