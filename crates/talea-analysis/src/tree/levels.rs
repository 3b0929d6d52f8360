//! Levels of a tree: which nodes compete directly, and where servers and tables must not be.

use super::model::Model;
use super::node_supply::can_delay_clients;
use super::task_bound::{NoBound, Reason};
use alloc::vec::Vec;
use talea_core::engine::{NodeId, NodeSpec};
use talea_core::mutate;
use talea_core::sched::PolicySpec;

impl Model<'_> {
    /// Whether `node` is a server that determines the supply of its clients.
    pub(super) fn is_supply_boundary(&self, node: NodeId) -> bool {
        let NodeSpec::Scheduler(spec) = self.node_spec(node) else { return false };
        spec.reservation.as_ref().is_some_and(can_delay_clients)
    }

    /// Whether all schedulers between `at` and `subject` form a single EDF level.
    pub(super) fn is_in_edf_level(&self, at: NodeId, next: NodeId, subject: NodeId) -> bool {
        let mut node = subject;
        while node != next {
            let Some(above) = self.parent(node) else { return false };
            if !self.is_plain_edf(above) {
                return false;
            }
            node = above;
        }
        self.level_members(at).is_some()
    }

    /// Whether all children of `at` are tasks and `subject` is one of them.
    pub(super) fn is_flat_queue(&self, at: NodeId, next: NodeId, subject: NodeId) -> bool {
        next == subject
            && self
                .children(at)
                .iter()
                .all(|&child| matches!(self.node_spec(child), NodeSpec::Task(_)))
    }

    /// Returns the tasks and servers that compete by deadline in the level of `at`; `None` if the
    /// level contains any other node.
    pub(super) fn level_members(&self, at: NodeId) -> Option<Vec<NodeId>> {
        let mut found = Vec::new();
        for &child in self.children(at) {
            match self.node_spec(child) {
                NodeSpec::Task(_) => found.push(child),
                NodeSpec::Scheduler(spec) if spec.reservation.is_some() => found.push(child),
                NodeSpec::Scheduler(_) if self.is_plain_edf(child) => {
                    found.extend(self.level_members(child)?);
                }
                NodeSpec::Scheduler(_) => return None,
            }
        }
        Some(found)
    }

    pub(super) fn is_plain_edf(&self, node: NodeId) -> bool {
        matches!(self.node_spec(node), NodeSpec::Scheduler(spec)
            if matches!(spec.policy, PolicySpec::Edf)
                && spec.reservation.is_none()
                && spec.preemptive)
    }

    pub(super) fn forbid_servers(&self, at: NodeId) -> Result<(), NoBound> {
        let mut next = Vec::from(self.children(at));
        while let Some(node) = next.pop() {
            if let NodeSpec::Scheduler(spec) = self.node_spec(node)
                && spec.reservation.is_some()
            {
                return Err(NoBound { node, reason: Reason::ServerNotPreemptive });
            }
            next.extend_from_slice(self.children(node));
        }
        Ok(())
    }

    /// Checks that the slots of `table` begin and end on time. Below a non-preemptive scheduler a
    /// job of another child can start just before a slot, because waiting for the slot does not
    /// prevent this start. In a non-preemptive table a job that starts inside a slot continues
    /// beyond the slot.
    pub(super) fn check_slot_boundaries(&self, table: NodeId) -> Result<(), NoBound> {
        let does_not =
            matches!(self.node_spec(table), NodeSpec::Scheduler(spec) if !spec.preemptive);
        mutate!(
            "tree-non-preemptive-slots",
            if does_not || self.has_non_preemptive_ancestor(table) {
                return Err(NoBound { node: table, reason: Reason::NonPreemptiveTable });
            },
            if does_not {
                return Err(NoBound { node: table, reason: Reason::NonPreemptiveTable });
            }
        );
        Ok(())
    }

    /// Whether a scheduler above `node` is non-preemptive.
    pub(super) fn has_non_preemptive_ancestor(&self, node: NodeId) -> bool {
        self.tree.ancestors(node).any(|(_, spec)| !spec.preemptive)
    }

    /// Returns the longest time, in nanoseconds, for which a started job of `nodes` keeps the CPU
    /// from a later release. The job starts at least 1 ns before the release. A scheduler among
    /// `nodes` counts with one job of each task below it. These jobs may preempt each other, and
    /// the scheduler above decides again only at a completion.
    pub(super) fn longest_non_preemptive(&self, nodes: &[NodeId]) -> Result<u64, NoBound> {
        let mut longest = 0u64;
        for &node in nodes {
            let (mut sum, mut next) = (0u64, Vec::from([node]));
            while let Some(node) = next.pop() {
                if let NodeSpec::Task(_) = self.node_spec(node) {
                    sum = sum.saturating_add(self.task_model(node)?.task.cost.as_ns());
                }
                next.extend_from_slice(self.children(node));
            }
            longest = longest.max(sum.saturating_sub(1));
        }
        Ok(longest)
    }
}
