//! CPUs that go off-line and come back.
//!
//! The kernel moves the threads of a CPU that goes off-line to other CPUs, with their policies. So
//! a thread with a grant on such a CPU would consume time for which no admission test has asked.
//! The broker detaches it ([`DetachCause::Offline`]); the spec stays. The next attach evaluates the
//! task again and places it on a CPU that is on-line, or is refused with that reason.
//!
//! The same holds for a spec on all CPUs of a foreign plugin as soon as one of them is off-line. So
//! a grant never shrinks unseen, and the plugin decides again about the CPUs that are left.
//!
//! A thread under global EDF has no CPU of its own: the kernel takes no CPU off-line that its
//! deadline threads need (EBUSY), and moves them otherwise. New tasks are refused while a CPU of
//! their domain is off-line.

use crate::broker::Broker;
use talea_core::{CpuSet, mutate};
use talea_proto::message::DetachCause;

impl Broker {
    /// Handles a change of the CPUs that are off-line.
    pub(crate) fn cpus_changed(&mut self, offline: CpuSet) {
        if self.offline == offline {
            return;
        }
        self.offline = offline;
        self.plugin_set.cpus_changed();
        self.leave_offline_cpus();
    }

    /// Detaches the threads of all specs on CPUs that are off-line.
    pub(crate) fn leave_offline_cpus(&mut self) {
        let attached: Vec<u32> = self.threads.slots().collect();
        for slot in attached {
            self.leave_offline_cpu(slot);
        }
    }

    /// Detaches the thread of a spec whose CPU is off-line. There is no effect while an operation
    /// is in progress; its end repeats the check.
    pub(crate) fn leave_offline_cpu(&mut self, slot: u32) {
        let Some(spec) = self.specs.get(slot).filter(|spec| spec.is_idle()) else { return };
        let lives = spec.thread.as_ref().is_some_and(|thread| !thread.exited);
        if lives && mutate!("offline-detach", self.is_offline(slot), false) {
            self.force_detach(slot, DetachCause::Offline);
        }
    }

    /// Whether the CPU of a spec, or one of its set, is off-line.
    pub(crate) fn is_offline(&self, slot: u32) -> bool {
        !self.cpus_of(slot).intersection(&self.offline).is_empty()
    }
}
