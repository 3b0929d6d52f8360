//! CPUs that an executor has reserved.
//!
//! `talea execute` schedules its threads itself, above all grants, and uses a CPU as far as its
//! system demands. Therefore `talea execute` holds a spec with [`talea_proto::Task::exclusive`] on
//! each of its CPUs. The broker charges this spec like any other one, and places no other task
//! there until the spec ends.
//!
//! The broker does not touch existing grants: the executor decides about them before it starts.

use crate::broker::Broker;
use crate::plugin::ThreadScope;
use talea_core::{CpuSet, mutate};

impl Broker {
    /// Returns the CPUs that a spec occupies; empty for a root domain.
    pub(crate) fn cpus_of(&self, slot: u32) -> CpuSet {
        let spec = self.specs.at(slot);
        self.plugin_set.cpus_at(spec.plugin, spec.offer.cpu)
    }

    /// Records the CPUs of an exclusive spec as reserved; no effect for other specs.
    pub(crate) fn note_exclusive(&mut self, slot: u32) {
        let is_exclusive = self.specs.at(slot).task.exclusive;
        if mutate!("broker-exclusive", is_exclusive, false) {
            for cpu in &self.cpus_of(slot) {
                self.exclusive.insert(cpu, slot);
            }
        }
    }

    /// Removes the reservation of a spec, if it has one.
    pub(crate) fn forget_exclusive(&mut self, slot: u32) {
        self.exclusive.retain(|_, holder| *holder != slot);
    }

    /// Returns `scope` with the CPUs that are off-line, and those that exclusive specs have
    /// reserved. The current CPUs of the spec to be replaced do not count as reserved.
    pub(crate) fn beside_executors(
        &self,
        scope: &ThreadScope,
        leaving: Option<u32>,
    ) -> ThreadScope {
        let here = leaving.map_or(CpuSet::EMPTY, |slot| self.cpus_of(slot));
        let others = self.exclusive.iter().filter(|&(&cpu, _)| !here.contains(cpu));
        let mut reserved = CpuSet::EMPTY;
        let mut executor = 0;
        for (&cpu, &slot) in others {
            if reserved.is_empty() {
                executor = self.specs.at(slot).lifetime.process.pid;
            }
            reserved.insert(cpu);
        }
        ThreadScope { offline: self.offline, reserved, executor, ..*scope }
    }
}
