//! Off-line tables: a schedule that is computed before the run.
//!
//! The reference is YASMIN section 3.4, with docs/model.md, section 9. Each CPU has a sequence of
//! half-open entries `[start, end)` in a hyperperiod that repeats from time zero. Each entry
//! belongs to a child of the root, and this child has the CPU while it is eligible. Between entries
//! the CPU idles (a delay slot). A table decides by time alone, so it needs no criteria, no locks
//! and no selection of versions.
//!
//! Invariants:
//! 1. The entries of a CPU are sorted, disjoint and inside the hyperperiod.
//! 2. No child has two CPUs at once.

mod advance;
mod check;
#[cfg(test)]
mod tests;

use crate::mutate;
use crate::sched::{Child, Phase, TableEntry};
use crate::{Span, Time};
use alloc::vec::Vec;

/// The table of one CPU.
#[derive(Debug)]
struct CpuTable {
    entries: Vec<TableEntry>,
    /// Index of the current entry or, between entries, of the next.
    next: usize,
    in_entry: bool,
    /// Start of the current hyperperiod.
    cycle_start: Time,
}

impl CpuTable {
    /// Returns the next start or end of an entry; `None` if the CPU has no entry.
    fn next_edge(&self) -> Option<(Time, Phase)> {
        let entry = self.entries.get(self.next)?;
        Some(if self.in_entry {
            (self.cycle_start + entry.end, Phase::Ends)
        } else {
            (self.cycle_start + entry.start, Phase::Starts)
        })
    }

    fn current_entry(&self) -> Option<&TableEntry> {
        mutate!(
            "core-table-start",
            if self.in_entry { self.entries.get(self.next) } else { None },
            self.entries.get(self.next)
        )
    }
}

#[derive(Debug)]
pub(super) struct Table {
    hyperperiod: Span,
    cpus: Vec<CpuTable>,
}

impl Table {
    pub(super) fn new(cpus: u32, hyperperiod: Span, entries: &[TableEntry]) -> Table {
        let row = |cpu: u32| {
            let mut entries: Vec<TableEntry> =
                entries.iter().filter(|entry| entry.cpu == cpu).copied().collect();
            entries.sort_by_key(|entry| entry.start);
            CpuTable { entries, next: 0, in_entry: false, cycle_start: Time::ZERO }
        };
        Table { hyperperiod, cpus: (0..cpus).map(row).collect() }
    }

    /// Returns the owner of `cpu` now; `None` between entries.
    #[inline]
    pub(super) fn owner(&self, cpu: usize) -> Option<Child> {
        self.cpus[cpu].current_entry().map(|entry| entry.owner)
    }

    /// Returns the first CPU on which `child` has an entry.
    pub(super) fn first_cpu(&self, child: Child) -> Option<u32> {
        let has_one = |row: &CpuTable| row.entries.iter().any(|entry| entry.owner == child);
        self.cpus.iter().position(has_one).map(|cpu| cpu as u32)
    }

    /// Returns the preselected version of `child`, which was just assigned to `cpu`. `None` if the
    /// current entry has no version or another owner.
    pub(super) fn version(&self, cpu: usize, child: Child) -> Option<u32> {
        self.cpus[cpu]
            .current_entry()
            .filter(|entry| {
                mutate!("core-table-version", entry.owner == child, entry.owner != child)
            })?
            .version
    }

    /// Returns the next start or end of an entry on any CPU; `None` without entries.
    pub(super) fn next_edge(&self) -> Option<(Time, Phase)> {
        self.cpus.iter().filter_map(CpuTable::next_edge).min()
    }

    /// Processes one start or end of an entry at exactly `due`. Returns the CPU and the entry;
    /// `None` if no further entry starts or ends then.
    fn cross_edge(&mut self, due: (Time, Phase)) -> Option<(usize, TableEntry)> {
        let cpu = self.cpus.iter().position(|row| row.next_edge() == Some(due))?;
        let row = &mut self.cpus[cpu];
        let entry = row.entries[row.next];
        row.in_entry = !row.in_entry;
        if !row.in_entry {
            row.next += 1;
            if row.next == row.entries.len() {
                row.next = 0;
                row.cycle_start += mutate!("core-table-repeats", self.hyperperiod, entry.end);
            }
        }
        Some((cpu, entry))
    }
}
