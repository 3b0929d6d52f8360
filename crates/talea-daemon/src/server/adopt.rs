//! Taking over what an earlier daemon has left.

use super::Server;
use super::threads::is_alive;
use talea_broker::Input;
use talea_broker::input::{Groups, ProcessId};
use talea_core::Time;
use talea_core::mutate;
use talea_os::statefile::Found;
use talea_os::{Tid, proc};
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
        let mut ended = Vec::new();
        let mut seen: Option<(ProcessId, bool, Option<Groups>)> = None;
        for slot in 0..self.state.capacity() {
            let Some(bytes) = self.state.get(slot) else { continue };
            adoption.found += 1;
            let Some(record) = Record::decode(bytes) else {
                adoption.unreadable += 1;
                self.state.clear(slot);
                continue;
            };
            let thread = record.thread.as_ref().and_then(|thread| self.threads.reopen(thread));
            if thread.is_none() {
                ended.extend(record.thread);
            }
            let process = ProcessId { pid: record.pid, start: record.pid_start };
            // Many grants in a row are one client's.
            if seen.as_ref().is_none_or(|(last, ..)| *last != process) {
                // Read first: whoever lives afterwards is the one that was read.
                let groups = groups_of(record.pid, record.uid);
                seen = Some((process, is_alive(process), groups));
            }
            let (_, process_alive, groups) = seen.clone().expect("it was just looked at");
            let witness =
                || groups_of(thread.filter(|facts| facts.euid == record.uid)?.tid, record.uid);
            let groups = if process_alive { groups } else { witness() };
            let slot = slot as u32;
            let input =
                Input::Adopt { slot, record: Box::new(record), thread, process_alive, groups };
            self.tell(now, input);
        }
        // Any input that is no record says that all of them are in.
        self.tell(now, Input::Timer);
        // Now that it is known who has what by a grant.
        for thread in ended
            .into_iter()
            .filter(|thread| mutate!("recovery-left", thread.tid != thread.tgid, thread.tid == 0))
        {
            let main = i32::try_from(thread.tgid).ok().and_then(Tid::new);
            let left = main
                .and_then(|main| self.threads.disinherit(main, &thread.given, &thread.previous));
            self.report_left(left.as_ref());
        }
        let slots = 0..self.state.capacity();
        adoption.kept = slots.filter(|&slot| self.state.get(slot).is_some()).count();
        adoption
    }
}

/// The groups of a thread of this user.
fn groups_of(tid: u32, uid: u32) -> Option<Groups> {
    let status = proc::status(Tid::new(i32::try_from(tid).ok()?)?).ok()?;
    let groups = Groups { effective: status.effective_group, supplementary: status.groups };
    (status.uids.effective == uid).then_some(groups)
}
