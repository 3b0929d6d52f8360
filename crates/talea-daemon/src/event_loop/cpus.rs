//! CPUs that go off-line and come back.
//!
//! A device event of the kernel reports the change within milliseconds. Every inspection of the
//! threads looks, too, because no event arrives in another network namespace.

use super::Daemon;
use super::token::Token;
use talea_broker::Input;
use talea_core::{CpuSet, Monotonic, mutate};
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
    is_unpinned: bool,
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
}

impl Daemon {
    /// Handles device events.
    pub(super) fn on_cpu_events(&mut self, now: Monotonic) {
        let Some(events) = &self.cpus.events else { return };
        match events.take() {
            Ok(false) => {}
            Ok(true) => {
                if self.check_cpus(now) {
                    self.run_effects(now);
                }
            }
            // Closing the only descriptor also ends the watch.
            Err(_) => self.cpus.events = None,
        }
    }

    /// Informs the enforcers and the broker if CPUs went off-line or came back. Returns whether
    /// they did; then the caller must execute the broker's effects.
    pub(super) fn check_cpus(&mut self, now: Monotonic) -> bool {
        let Some(online) = sysinfo::online_now().filter(|_| self.cpus.is_real) else {
            return false;
        };
        if mutate!("daemon-cpus", online == self.cpus.online, true) {
            if mutate!("daemon-enforcer-retry", self.cpus.is_unpinned, false) {
                self.cpus.is_unpinned = self.threads.pin_enforcers(&online).is_err();
            }
            return false;
        }
        self.cpus.online = online;
        let offline = self.cpus.present.difference(&online);
        self.log.warning(format_args!(
            "CPUs that are on-line now: {online}{}",
            if offline.is_empty() { String::new() } else { format!("; off-line: {offline}") }
        ));
        let pinned = self.threads.pin_enforcers(&online);
        let was_unpinned = std::mem::replace(&mut self.cpus.is_unpinned, pinned.is_err());
        if let Err(error) = pinned
            && !was_unpinned
        {
            self.log.error(format_args!(
                "the thread that enforces the budgets of a CPU is on another CPU, which is less \
                 precise: {error}; the daemon tries again while threads have grants"
            ));
        }
        self.broker.handle(now, Input::CpusChanged { offline });
        true
    }
}
