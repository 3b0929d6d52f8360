//! Rules of composition that [`Tree::build`] enforces (docs/model.md, sections 1 and 7 to 10).

use super::error::{TreeError, TreeErrorKind};
use super::ids::NodeId;
use super::spec::{Affinity, NodeSpec, Preemption, SchedulerSpec, TaskSpec};
use super::tree::{MAX_RUN, Node, Tree};
use super::versions::Selection;
use crate::Span;
use crate::mutate;
use crate::sched::PolicySpec;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Maximum depth of schedulers: every wake-up and every charge visits all levels.
const LEVELS: usize = 64;

impl Tree {
    /// Checks the tree, node by node. O(nodes · depth), and quadratic in the entries of a table.
    pub fn check(&self) -> Result<(), TreeError> {
        let wrong = |node, why| Err(TreeError { node, kind: why });
        if !(1..=64).contains(&self.cpus) {
            return wrong(Tree::ROOT, TreeErrorKind::CpuCount(self.cpus));
        }
        if self.accelerators.len() > 64 {
            return wrong(Tree::ROOT, TreeErrorKind::TooMany { what: "accelerators", most: 64 });
        }
        if let Selection::TradeOff { weight: weight @ 1_001.. } = self.selection {
            return wrong(Tree::ROOT, TreeErrorKind::Weight(weight));
        }
        let families = self.child_index();
        let activated: BTreeSet<NodeId> = self.channels.iter().map(|channel| channel.to).collect();
        let mut levels: BTreeMap<NodeId, usize> = BTreeMap::new();
        for (id, node) in self.nodes() {
            let parent = match node.parent.map(|parent| self.get(parent).filter(|_| parent < id)) {
                None if id == Tree::ROOT => None,
                None => return wrong(id, TreeErrorKind::SecondRoot),
                Some(Some(Node { spec: NodeSpec::Scheduler(spec), .. })) => Some(spec),
                Some(_) => return wrong(id, TreeErrorKind::Parent),
            };
            let checked = match &node.spec {
                NodeSpec::Scheduler(spec) => {
                    let level = node.parent.map_or(0, |parent| levels[&parent]) + 1;
                    if level > mutate!("core-check-levels", LEVELS, LEVELS * 1_000) {
                        let (what, most) = ("levels of schedulers", LEVELS);
                        return wrong(id, TreeErrorKind::TooMany { what, most });
                    }
                    levels.insert(id, level);
                    self.check_scheduler(id, spec, parent, families.of(id))
                }
                NodeSpec::Task(spec) => {
                    let is_divided = parent.is_some_and(|parent| parent.policy.is_time_sharing());
                    if spec.preemption != Preemption::Anywhere && (self.cpus > 1 || is_divided) {
                        return wrong(id, TreeErrorKind::Sections);
                    }
                    self.check_task(spec, activated.contains(&id))
                }
            };
            checked.and_then(|()| self.check_affinity(node)).or_else(|why| wrong(id, why))?;
        }
        let mut sets: Vec<Affinity> =
            self.children(Tree::ROOT).map(|(_, node)| node.affinity()).collect();
        sets.sort_unstable();
        sets.dedup();
        if sets.len() > 64 {
            return wrong(Tree::ROOT, TreeErrorKind::TooManyCpuSets(sets.len()));
        }
        self.check_graph()?;
        for (id, node) in self.nodes() {
            if let NodeSpec::Scheduler(
                spec @ SchedulerSpec { policy: PolicySpec::Custom { .. }, .. },
            ) = &node.spec
            {
                self.policy(id, spec, families.of(id))?;
            }
        }
        Ok(())
    }

    fn check_affinity(&self, node: &Node) -> Result<(), TreeErrorKind> {
        let affinity = node.affinity();
        let all = u64::MAX >> (64 - self.cpus);
        let is_free = affinity.0 & all == all;
        let is_placed = mutate!(
            "core-check-affinity",
            node.parent == Some(Tree::ROOT) && self.cpus > 1,
            self.cpus > 1
        ) && affinity.0 & all != 0;
        if is_free || is_placed { Ok(()) } else { Err(TreeErrorKind::Affinity) }
    }

    fn check_scheduler(
        &self,
        id: NodeId,
        spec: &SchedulerSpec,
        parent: Option<&SchedulerSpec>,
        children: &[NodeId],
    ) -> Result<(), TreeErrorKind> {
        match &spec.policy {
            PolicySpec::RoundRobin { quantum } if quantum.is_zero() => {
                return Err(TreeErrorKind::ZeroLength("a quantum"));
            }
            PolicySpec::RoundRobin { .. } if parent.is_none() && self.cpus > 1 => {
                return Err(TreeErrorKind::ManyCpus { policy: "rr" });
            }
            PolicySpec::Table { hyperperiod, entries } => {
                self.check_table(id, *hyperperiod, entries, children)?;
            }
            PolicySpec::Partitions { frame, slots, .. } => {
                if let Some(parent) = parent {
                    let is_pikeos = matches!(parent.policy, PolicySpec::FixedPriority)
                        && self.get(id).and_then(|node| node.parent) == Some(Tree::ROOT);
                    if !parent.policy.is_time_sharing()
                        && mutate!("core-check-time-sharing", !is_pikeos, is_pikeos)
                    {
                        return Err(TreeErrorKind::TimeSharing { under: parent.policy.name() });
                    }
                } else if self.cpus > 1 {
                    return Err(TreeErrorKind::ManyCpus { policy: "partitions" });
                }
                if frame.is_zero() || slots.is_empty() || *frame > MAX_RUN {
                    return Err(TreeErrorKind::ZeroLength("a frame and its slots"));
                }
                let children = children.len();
                let mut free = Span::ZERO;
                for (index, slot) in slots.iter().enumerate() {
                    if mutate!(
                        "core-check-slots",
                        slot.start < free || slot.start >= slot.end,
                        slot.start >= slot.end
                    ) || slot.end > *frame
                    {
                        return Err(TreeErrorKind::Slot { index });
                    }
                    if slot.owner as usize >= children {
                        return Err(TreeErrorKind::SlotOwner { index, children });
                    }
                    free = slot.end;
                }
            }
            _ => {}
        }
        let Some(reservation) = &spec.reservation else { return Ok(()) };
        if parent.is_none() && self.cpus > 1 {
            return Err(TreeErrorKind::ManyCpus { policy: "a server" });
        }
        if reservation.period.is_zero() || reservation.period > MAX_RUN {
            return Err(TreeErrorKind::OutOfRange("the period of a server"));
        }
        let within = reservation.relative_deadline();
        if within > reservation.period || within.is_zero() {
            return Err(TreeErrorKind::ServerDeadline);
        }
        if reservation.budget.is_zero()
            || reservation.budget.as_ns()
                > mutate!("core-check-budget", within.as_ns(), reservation.period.as_ns())
        {
            return Err(TreeErrorKind::Budget { budget: reservation.budget, within });
        }
        if reservation.offset >= reservation.period {
            return Err(TreeErrorKind::Offset);
        }
        if mutate!(
            "core-check-in-partition",
            self.ancestors(id).any(|(_, above)| above.policy.is_time_sharing()),
            self.ancestors(id).all(|(_, above)| above.policy.is_time_sharing())
        ) {
            return Err(TreeErrorKind::ServerInPartition);
        }
        Ok(())
    }

    fn check_task(&self, spec: &TaskSpec, is_activated: bool) -> Result<(), TreeErrorKind> {
        if spec.versions.len() > 64 {
            return Err(TreeErrorKind::TooMany { what: "versions", most: 64 });
        }
        for accelerator in spec.versions.iter().flat_map(|version| &version.accelerators) {
            if accelerator.0 as usize >= self.accelerators.len() {
                return Err(TreeErrorKind::Unknown { what: "accelerator", number: accelerator.0 });
            }
        }
        for resource in &spec.uses {
            if resource.0 as usize >= self.resources.len() {
                return Err(TreeErrorKind::Unknown { what: "resource", number: resource.0 });
            }
        }
        if !spec.inherits {
            return check_times(spec);
        }
        if is_activated { Ok(()) } else { Err(TreeErrorKind::NoGraphRoot) }
    }
}

fn check_times(spec: &TaskSpec) -> Result<(), TreeErrorKind> {
    if spec.period.is_zero() || spec.period > MAX_RUN {
        return Err(TreeErrorKind::OutOfRange("a period"));
    }
    if spec.deadline.is_zero() || spec.deadline > MAX_RUN {
        return Err(TreeErrorKind::OutOfRange("a deadline"));
    }
    Ok(())
}
