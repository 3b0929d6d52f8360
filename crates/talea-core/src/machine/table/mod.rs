//! Off-line tables: who runs where from when to when, computed beforehand.
//!
//! YASMIN section 3.4, with docs/model.md, section 9. Per CPU a sequence of half-open entries
//! `[start, end)` in a hyperperiod that repeats from time zero; each belongs to a child of the
//! root, which has the CPU while it is eligible. What lies between entries is a delay slot: the CPU
//! is idle. A table decides by the clock alone, so that it needs neither keys nor locks nor a
//! decision about versions.
//!
//! Invariants: entries of a CPU are sorted, disjoint and inside the hyperperiod; no child has two
//! CPUs at once.

mod check;
#[cfg(test)]
mod tests;

use super::{Cpu, Machine, Note, TaskId, Watch, What};
use crate::mutate;
use crate::sched::{Child, Part, TableEntry};
use crate::{Span, Time};
use alloc::vec::Vec;

/// One CPU's share of the table.
#[derive(Debug)]
struct Row {
    entries: Vec<TableEntry>,
    /// The entry that is or comes next.
    next: usize,
    is_open: bool,
    /// When this hyperperiod began.
    began: Time,
}

impl Row {
    /// When it opens or closes next.
    fn edge(&self) -> Option<(Time, Part)> {
        let entry = self.entries.get(self.next)?;
        Some(if self.is_open {
            (self.began + entry.end, Part::Ends)
        } else {
            (self.began + entry.start, Part::Starts)
        })
    }

    fn open(&self) -> Option<&TableEntry> {
        mutate!(
            "core-table-start",
            if self.is_open { self.entries.get(self.next) } else { None },
            self.entries.get(self.next)
        )
    }
}

#[derive(Debug)]
pub(super) struct Table {
    hyperperiod: Span,
    rows: Vec<Row>,
}

impl Table {
    pub(super) fn new(cpus: u32, hyperperiod: Span, entries: &[TableEntry]) -> Table {
        let row = |cpu: u32| {
            let mut entries: Vec<TableEntry> =
                entries.iter().filter(|entry| entry.cpu == cpu).copied().collect();
            entries.sort_by_key(|entry| entry.start);
            Row { entries, next: 0, is_open: false, began: Time::ZERO }
        };
        Table { hyperperiod, rows: (0..cpus).map(row).collect() }
    }

    /// Who owns `cpu` now.
    #[inline]
    pub(super) fn owner(&self, cpu: usize) -> Option<Child> {
        self.rows[cpu].open().map(|entry| entry.owner)
    }

    /// The first CPU on which `who` has an entry.
    pub(super) fn first_cpu(&self, who: Child) -> Option<u32> {
        let has_one = |row: &Row| row.entries.iter().any(|entry| entry.owner == who);
        self.rows.iter().position(has_one).map(|cpu| cpu as u32)
    }

    /// The version that was selected beforehand for `who`, who has just been given `cpu`.
    pub(super) fn version(&self, cpu: usize, who: Child) -> Option<u32> {
        self.rows[cpu]
            .open()
            .filter(|entry| mutate!("core-table-version", entry.owner == who, entry.owner != who))?
            .version
    }

    /// When an entry next begins or ends.
    pub(super) fn edge(&self) -> Option<(Time, Part)> {
        self.rows.iter().filter_map(Row::edge).min()
    }

    /// Passes the edge of a CPU that is due, and says which entry has ended or begun.
    fn pass(&mut self, due: (Time, Part)) -> Option<(usize, TableEntry)> {
        let cpu = self.rows.iter().position(|row| row.edge() == Some(due))?;
        let row = &mut self.rows[cpu];
        let entry = row.entries[row.next];
        row.is_open = !row.is_open;
        if !row.is_open {
            row.next += 1;
            if row.next == row.entries.len() {
                row.next = 0;
                row.began += mutate!("core-table-repeats", self.hyperperiod, entry.end);
            }
        }
        Some((cpu, entry))
    }
}

impl<W: Watch> Machine<W> {
    /// Entries end or begin.
    pub(super) fn turn_table(&mut self, now: Time, due: (Time, Part)) {
        while let Some((cpu, entry)) = self.table.as_mut().and_then(|table| table.pass(due)) {
            self.dirty = true;
            let What::Task(task) = self.kids[entry.owner as usize].what() else { continue };
            if due.1 == Part::Ends {
                let state = &self.tasks[task as usize];
                mutate!(
                    "core-table-goes-on",
                    mutate!(
                        "core-table-overrun",
                        if let (true, false, Some(job)) =
                            (state.released, entry.goes_on, state.ring.first())
                        {
                            self.notes.push(Note::Overrun {
                                cpu: Cpu(cpu as u32),
                                task: TaskId(task),
                                job: job.number,
                            });
                        },
                        if let (false, true, Some(job)) =
                            (state.released, entry.goes_on, state.ring.first())
                        {
                            self.notes.push(Note::Overrun {
                                cpu: Cpu(cpu as u32),
                                task: TaskId(task),
                                job: job.number,
                            });
                        }
                    ),
                    if let (true, _, Some(job)) =
                        (state.released, entry.goes_on, state.ring.first())
                    {
                        self.notes.push(Note::Overrun {
                            cpu: Cpu(cpu as u32),
                            task: TaskId(task),
                            job: job.number,
                        });
                    }
                )
            } else if entry.activates
                && mutate!("core-table-activates", !self.stopped, self.stopped)
            {
                let deadline = due.0.saturating_add(self.tasks[task as usize].deadline);
                self.activated(now, task, due.0, deadline);
            }
        }
    }
}
