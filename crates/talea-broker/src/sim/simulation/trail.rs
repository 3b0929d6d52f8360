//! Audit trail of the simulated daemon.

use super::Simulation;
use crate::trail::AuditRecord;

impl Simulation {
    /// Returns the records since the last call.
    pub fn take_trail(&mut self) -> Vec<AuditRecord> {
        self.collect_trail();
        self.trail.iter().for_each(|record| self.trail_sums.add(record));
        std::mem::take(&mut self.trail)
    }

    pub(super) fn collect_trail(&mut self) {
        while let Some(record) = self.broker.poll_audit() {
            self.trail.push(record);
        }
    }

    /// Checks that the audit trail has every event, including the ones that are still counted.
    pub(super) fn check_trail(&mut self) {
        self.broker.flush_audit();
        drop(self.take_trail());
        let sums = self.broker.audit_balance();
        assert_eq!(self.trail_sums, sums, "the audit trail has lost events");
    }
}
