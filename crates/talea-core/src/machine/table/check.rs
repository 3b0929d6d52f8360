//! What is wrong with a table.

use super::super::{Body, LONGEST, NodeId, Tree, Wrong};
use crate::Span;
use crate::mutate;
use crate::sched::TableEntry;

impl Tree {
    pub(in super::super) fn check_table(
        &self,
        id: NodeId,
        hyperperiod: Span,
        entries: &[TableEntry],
        children: &[NodeId],
    ) -> Result<(), Wrong> {
        if id != Tree::ROOT {
            return Err(Wrong::TableBelow);
        }
        if hyperperiod.is_zero() || hyperperiod > LONGEST || entries.is_empty() {
            return Err(Wrong::Empty("a hyperperiod and its entries"));
        }
        for (index, entry) in entries.iter().enumerate() {
            if entry.cpu >= self.cpus {
                return Err(Wrong::Entry { index, what: "is on a CPU that the root does not own" });
            }
            if entry.start >= entry.end || entry.end > hyperperiod {
                return Err(Wrong::Entry {
                    index,
                    what: "is empty or reaches beyond the hyperperiod",
                });
            }
            let Some(owner) = children.get(entry.owner as usize).and_then(|&owner| self.get(owner))
            else {
                return Err(Wrong::SlotOwner { index, children: children.len() });
            };
            match &owner.body {
                Body::Task(task) => {
                    if entry.version.is_some_and(|version| version as usize >= task.versions.len())
                    {
                        return Err(Wrong::Entry {
                            index,
                            what: "names a version that its task does not have",
                        });
                    }
                }
                Body::Scheduler(_) if entry.version.is_some() || entry.activates => {
                    return Err(Wrong::Entry {
                        index,
                        what: "belongs to a scheduler: versions and activations are of tasks",
                    });
                }
                Body::Scheduler(_) => {}
            }
            let overlaps = |other: &&TableEntry| other.start < entry.end && entry.start < other.end;
            for other in entries[..index].iter().filter(overlaps) {
                mutate!(
                    "core-table-overlap",
                    if other.cpu == entry.cpu {
                        return Err(Wrong::Entry {
                            index,
                            what: "overlaps another one of its CPU",
                        });
                    },
                    if other.cpu == entry.cpu && other.owner == entry.owner {
                        return Err(Wrong::Entry {
                            index,
                            what: "overlaps another one of its CPU",
                        });
                    }
                );
                mutate!(
                    "core-table-two-cpus",
                    if other.owner == entry.owner {
                        return Err(Wrong::Entry {
                            index,
                            what: "gives its owner a second CPU at the same time",
                        });
                    },
                    if other.owner == entry.owner && other.start == entry.start {
                        return Err(Wrong::Entry {
                            index,
                            what: "gives its owner a second CPU at the same time",
                        });
                    }
                )
            }
        }
        Ok(())
    }
}
