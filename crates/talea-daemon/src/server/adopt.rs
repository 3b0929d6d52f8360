//! Taking over what an earlier daemon has left.

use super::Server;
use super::threads::is_alive;
use talea_broker::Input;
use talea_broker::input::ProcessId;
use talea_core::Time;
use talea_os::statefile::Found;
use talea_proto::record::Record;

/// What was found at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adoption {
    /// Grants in the state file.
    pub found: usize,
    /// Those that live on.
    pub kept: usize,
    /// Slots that could not be read and were cleared.
    pub unreadable: usize,
    /// Whether the file was of another boot, so that nothing in it could live on.
    pub other_boot: bool,
}

impl Server {
    /// Gives every record of the state file to the broker, lowest slot first.
    pub(super) fn adopt(&mut self, now: Time) -> Adoption {
        let mut adoption =
            Adoption { other_boot: self.state.found() == Found::OtherBoot, ..Adoption::default() };
        for slot in 0..self.state.capacity() {
            let Some(bytes) = self.state.get(slot) else { continue };
            adoption.found += 1;
            let Some(record) = Record::decode(bytes) else {
                adoption.unreadable += 1;
                self.state.clear(slot);
                continue;
            };
            let thread =
                record.thread.and_then(|thread| self.threads.reopen(thread.tid, thread.inode, thread.start));
            let process_alive = is_alive(ProcessId { pid: record.pid, start: record.pid_start });
            let input = Input::Adopt { slot: slot as u32, record: Box::new(record), thread, process_alive };
            self.tell(now, input);
        }
        // Any input that is no record says that all of them are in.
        self.tell(now, Input::Timer);
        let slots = 0..self.state.capacity();
        adoption.kept = slots.filter(|&slot| self.state.get(slot).is_some()).count();
        adoption
    }
}
