//! Room for records: the broker grants no spec that the next daemon would not know.
//!
//! Model: the driver allocates slots of the state file before they are used, so that the write of a
//! record cannot fail. A spec without an allocated slot is refused before it is granted. Attach and
//! change rewrite the record in the slot of the spec, which is allocated.

use crate::input::Errno;
use crate::refuse::refusal;
use talea_core::mutate;
use talea_proto::{Code, Field, Refusal};

/// Room in the state file, as reported by the driver. There is none before the first report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordRoom {
    /// Number of allocated slots.
    pub(crate) slots: u32,
    /// Error that prevented a larger number.
    pub(crate) errno: Errno,
}

impl Default for RecordRoom {
    fn default() -> RecordRoom {
        RecordRoom { slots: 0, errno: Errno(0) }
    }
}

impl RecordRoom {
    /// Returns the refusal of a spec whose slot is not allocated.
    pub(crate) fn check(self, slot: u32) -> Result<(), Box<Refusal>> {
        let RecordRoom { slots, errno } = self;
        if mutate!("recovery-record-room", slot < slots, true) {
            return Ok(());
        }
        let (asked, limit) = (u64::from(slot) + 1, u64::from(slots));
        Err(Box::new(Refusal {
            errno: errno.0,
            ..*refusal(Code::NotRecorded, Field::Specs, asked, limit)
        }))
    }
}
