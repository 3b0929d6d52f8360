//! Checks of off-line tables.

use super::super::{MAX_RUN, NodeId, NodeSpec, Tree, TreeErrorKind};
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
    ) -> Result<(), TreeErrorKind> {
        if id != Tree::ROOT {
            return Err(TreeErrorKind::TableNotAtRoot);
        }
        if hyperperiod.is_zero() || hyperperiod > MAX_RUN || entries.is_empty() {
            return Err(TreeErrorKind::ZeroLength("a hyperperiod and its entries"));
        }
        for (index, entry) in entries.iter().enumerate() {
            if entry.cpu >= self.cpus {
                return Err(TreeErrorKind::TableEntry {
                    index,
                    what: "is on a CPU that the root does not own",
                });
            }
            if entry.start >= entry.end || entry.end > hyperperiod {
                return Err(TreeErrorKind::TableEntry {
                    index,
                    what: "is empty or exceeds the hyperperiod",
                });
            }
            let Some(owner) = children.get(entry.owner as usize).and_then(|&owner| self.get(owner))
            else {
                return Err(TreeErrorKind::SlotOwner { index, children: children.len() });
            };
            match &owner.spec {
                NodeSpec::Task(task) => {
                    if entry.version.is_some_and(|version| version as usize >= task.versions.len())
                    {
                        return Err(TreeErrorKind::TableEntry {
                            index,
                            what: "names an unknown version of its task",
                        });
                    }
                }
                NodeSpec::Scheduler(_) if entry.version.is_some() || entry.activates => {
                    return Err(TreeErrorKind::TableEntry {
                        index,
                        what: "belongs to a scheduler; only tasks have versions and activations",
                    });
                }
                NodeSpec::Scheduler(_) => {}
            }
            let overlaps = |other: &&TableEntry| other.start < entry.end && entry.start < other.end;
            for other in entries[..index].iter().filter(overlaps) {
                let is_owner = other.owner == entry.owner;
                let is_cpu = other.cpu == entry.cpu;
                if mutate!("core-table-overlap", is_cpu, is_cpu && is_owner) {
                    let what = "overlaps another entry of its CPU";
                    return Err(TreeErrorKind::TableEntry { index, what });
                }
                if mutate!("core-table-two-cpus", is_owner, is_owner && other.start == entry.start)
                {
                    let what = "assigns its owner a second CPU at the same time";
                    return Err(TreeErrorKind::TableEntry { index, what });
                }
            }
        }
        Ok(())
    }
}
