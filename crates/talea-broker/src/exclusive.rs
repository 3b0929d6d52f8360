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
    /// Records the CPU of an exclusive spec as reserved; no effect for other specs.
    pub(crate) fn note_exclusive(&mut self, slot: u32) {
        let spec = self.specs.at(slot);
        let cpu =
            spec.offer.cpu.filter(|_| mutate!("broker-exclusive", spec.task.exclusive, false));
        if let Some(cpu) = cpu {
            self.exclusive.insert(cpu, slot);
        }
    }

    /// Removes the reservation of a spec, if it has one.
    pub(crate) fn forget_exclusive(&mut self, slot: u32) {
        self.exclusive.retain(|_, holder| *holder != slot);
    }

    /// Returns `scope` with the CPUs that are off-line, and those that exclusive specs have
    /// reserved. The current CPU of the spec to be replaced does not count as reserved.
    pub(crate) fn beside_executors(
        &self,
        scope: &ThreadScope,
        leaving: Option<u32>,
    ) -> ThreadScope {
        let here = leaving.and_then(|slot| self.specs.at(slot).offer.cpu);
        let others = self.exclusive.iter().filter(|&(&cpu, _)| Some(cpu) != here);
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
