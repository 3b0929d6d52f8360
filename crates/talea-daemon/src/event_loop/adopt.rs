//! Adoption of the grants of an earlier daemon.

use super::processes::is_alive;
use super::{Adoption, Daemon};
use crate::convert;
use talea_broker::Input;
use talea_broker::input::{Errno, Groups, ProcessId};
use talea_core::Monotonic;
use talea_core::mutate;
use talea_os::statefile::OpenResult;
use talea_os::sysinfo;
use talea_os::{Tid, proc};
use talea_proto::record::Record;

impl Daemon {
    /// Passes every record of the state file to the broker, lowest slot first, and clears
    /// unreadable slots.
    pub(super) fn adopt(&mut self, now: Monotonic) -> Adoption {
        let mut adoption = Adoption {
            other_boot: self.state.file.open_result() == OpenResult::OtherBoot,
            ..Adoption::default()
        };
        let mut ended = Vec::new();
        let mut seen: Option<(ProcessId, bool, Option<Groups>)> = None;
        for slot in 0..mutate!("recovery-adoption", self.state.file.capacity(), 0) {
            let Some(bytes) = self.state.file.get(slot) else { continue };
            adoption.found += 1;
            let Some(record) = Record::decode(bytes) else {
                adoption.unreadable += 1;
                self.state.file.clear(slot);
                continue;
            };
            let thread =
                record.thread.as_ref().and_then(|thread| self.threads.reopen(thread, record.uid));
            if thread.is_none() {
                ended.extend(record.thread.map(|thread| (thread, record.uid)));
            }
            let process = ProcessId { pid: record.pid, start: record.pid_start };
            // Consecutive grants often belong to the same client.
            if seen.as_ref().is_none_or(|(last, ..)| *last != process) {
                // The groups are read before the liveness check: if the process is alive
                // afterwards, they are its groups.
                let groups = groups_of(record.pid, record.uid);
                seen = Some((process, is_alive(process), groups));
            }
            let (_, process_alive, groups) = seen.clone().expect("it was just set");
            let witness = || {
                groups_of(
                    thread.filter(|facts| facts.uids.effective == record.uid)?.tid,
                    record.uid,
                )
            };
            let groups = if process_alive { groups } else { witness() };
            let slot = slot as u32;
            let lingers = thread.is_none() && may_linger(&record);
            let record = Box::new(record);
            let input = Input::Adopt { slot, record, thread, lingers, process_alive, groups };
            self.handle_input(now, input);
        }
        // The first other input marks the end of the records.
        let slots = self.state.slots();
        self.handle_input(now, Input::RecordSlots { slots, errno: Errno(0) });
        // Only now the broker knows the attributes of every adopted thread.
        for (thread, uid) in ended.into_iter().filter(|(thread, _)| {
            mutate!("recovery-left", thread.tid != thread.tgid, thread.tid == 0)
        }) {
            let main = i32::try_from(thread.tgid).ok().and_then(Tid::new);
            let left = main.and_then(|main| {
                let owner = Some(uid).filter(|&uid| uid != 0);
                self.threads.revoke_inherited(main, &thread.applied, &thread.previous, owner)
            });
            self.log_revoked(left.as_ref());
        }
        let slots = 0..self.state.file.capacity();
        adoption.kept = slots.filter(|&slot| self.state.file.get(slot).is_some()).count();
        adoption
    }
}

/// Whether the kernel may still count the bandwidth of the record's deadline thread, which has
/// exited. The kernel counts this bandwidth for up to one period. Until then it admits the same
/// parameters only if there is room for both.
fn may_linger(record: &Record) -> bool {
    match record.thread.map(|thread| (convert::kernel_attr(&thread.applied).policy, thread.applied))
    {
        Some((policy, applied)) if policy.is_deadline() => {
            sysinfo::admits_deadline(policy, applied.cpus) != Some(true)
        }
        // The state file does not contain when and with which policy a last thread left the spec.
        None => true,
        Some(_) => false,
    }
}

/// Returns the groups of a thread, if it exists and runs as this user.
fn groups_of(tid: u32, uid: u32) -> Option<Groups> {
    let status = proc::status(Tid::new(i32::try_from(tid).ok()?)?).ok()?;
    let groups = Groups { effective: status.effective_group, supplementary: status.groups };
    (status.uids.effective == uid).then_some(groups)
}
