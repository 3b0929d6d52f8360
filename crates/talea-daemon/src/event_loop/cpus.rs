//! CPUs that go off-line and come back.
//!
//! A device event of the kernel reports the change within milliseconds. Every inspection of the
//! threads looks, too, because no event arrives in another network namespace.

use super::token::Token;
use talea_core::{CpuSet, mutate};
use talea_os::cpu_events::CpuEvents;
use talea_os::epoll::{Epoll, Interest};
use talea_os::sysinfo;

/// CPUs of the machine, and the source of their changes.
#[derive(Debug)]
pub(super) struct Cpus {
    present: CpuSet,
    online: CpuSet,
    /// Whether they are those of this machine.
    is_real: bool,
    /// Whether an enforcer could not be pinned to its CPU; every inspection tries again.
    pub(super) is_unpinned: bool,
    events: Option<CpuEvents>,
}

impl Cpus {
    /// Watches the CPUs. Without events, inspections detect the changes. Declared CPUs that are not
    /// those of this machine do not change.
    pub(super) fn watch(present: CpuSet, online: CpuSet, epoll: &Epoll) -> Cpus {
        let is_real = sysinfo::online_now() == Some(online);
        let events = CpuEvents::open()
            .ok()
            .filter(|_| is_real)
            .filter(|events| epoll.add(events, Interest::READ, Token::CpuEvents.pack()).is_ok());
        Cpus { present, online, is_real, is_unpinned: false, events }
    }

    /// Reads the pending device events. Returns whether CPUs may have gone off-line or come back.
    pub(super) fn take_events(&mut self) -> bool {
        let taken = self.events.as_ref().map_or(Ok(false), CpuEvents::take);
        taken.unwrap_or_else(|_| {
            // Closing the only descriptor also ends the watch.
            self.events = None;
            false
        })
    }

    /// Returns the CPUs that are on-line now; `None` if the CPUs are not those of this machine.
    pub(super) fn online_now(&self) -> Option<CpuSet> {
        sysinfo::online_now().filter(|_| self.is_real)
    }

    /// Records the CPUs that are on-line. Returns those that are off-line, if there is a change.
    pub(super) fn set_online(&mut self, online: CpuSet) -> Option<CpuSet> {
        if mutate!("daemon-cpus", online == self.online, true) {
            return None;
        }
        self.online = online;
        Some(self.present.difference(&online))
    }
}
