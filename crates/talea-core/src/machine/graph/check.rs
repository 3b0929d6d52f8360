//! What is wrong with a graph.

use super::super::{Body, NodeId, TaskSpec, Tree, TreeError, Wrong};
use crate::criteria::Criteria;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

impl Tree {
    /// Every channel joins two tasks, no circle, and the roots of one graph keep step.
    pub(in super::super) fn check_graph(&self) -> Result<(), TreeError> {
        for (at, channel) in self.channels.iter().enumerate() {
            let wrong = |node, why| Err(TreeError { node, why });
            for end in [channel.from, channel.to] {
                if self.task_spec(end).is_none() {
                    return wrong(
                        end,
                        Wrong::Channel { index: at, what: "both ends must be tasks of this tree" },
                    );
                }
            }
            if channel.tokens == 0 {
                return wrong(
                    channel.to,
                    Wrong::Channel { index: at, what: "an activation takes at least one token" },
                );
            }
            if channel.size > 0 && channel.tokens > channel.size {
                return wrong(
                    channel.to,
                    Wrong::Channel { index: at, what: "an activation takes more than it holds" },
                );
            }
        }
        let order = self.graph_order()?;
        // Roots of the same graph: what the first task in topological order says reaches everybody behind it.
        for (node, roots) in self.roots(&order) {
            let Some(first) = roots.first().and_then(|&root| self.task_spec(root)) else { continue };
            for &root in &roots[1..] {
                let other = self.task_spec(root).expect("roots are tasks");
                if (first.period, first.deadline) != (other.period, other.deadline) {
                    return Err(TreeError { node, why: Wrong::GraphRoots { one: roots[0], other: root } });
                }
            }
        }
        Ok(())
    }

    fn task_spec(&self, node: NodeId) -> Option<&TaskSpec> {
        match &self.get(node)?.body {
            Body::Task(spec) => Some(spec),
            Body::Scheduler(_) => None,
        }
    }

    /// The tasks that channels join, sources before sinks (Kahn 1962); an error names a task of a circle.
    fn graph_order(&self) -> Result<Vec<NodeId>, TreeError> {
        let mut missing: BTreeMap<NodeId, u32> = BTreeMap::new();
        for channel in &self.channels {
            missing.entry(channel.from).or_default();
            *missing.entry(channel.to).or_default() += 1;
        }
        let mut order: Vec<NodeId> =
            missing.iter().filter(|&(_, &n)| n == 0).map(|(&node, _)| node).collect();
        let mut at = 0;
        while let Some(&node) = order.get(at) {
            for channel in self.channels.iter().filter(|channel| channel.from == node) {
                let left = missing.get_mut(&channel.to).expect("counted");
                *left -= 1;
                if *left == 0 {
                    order.push(channel.to);
                }
            }
            at += 1;
        }
        match missing.iter().find(|&(_, &n)| n > 0) {
            Some((&node, _)) => Err(TreeError { node, why: Wrong::Circle }),
            None => Ok(order),
        }
    }

    /// Of every task with predecessors, the roots above it.
    fn roots(&self, order: &[NodeId]) -> BTreeMap<NodeId, Vec<NodeId>> {
        let mut roots: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
        for &node in order {
            for channel in self.channels.iter().filter(|channel| channel.from == node) {
                let above = roots.get(&node).cloned().unwrap_or_else(|| alloc::vec![node]);
                let below = roots.entry(channel.to).or_default();
                below.extend(above);
                below.sort_unstable();
                below.dedup();
            }
        }
        roots
    }

    /// Of every task that takes its criteria from the roots of its graph ([`TaskSpec::inherits`]): these. Nothing if the
    /// graph has a circle.
    pub fn inherited(&self) -> BTreeMap<NodeId, Criteria> {
        let Ok(order) = self.graph_order() else { return BTreeMap::new() };
        let static_of = |root: &NodeId| {
            let spec = self.task_spec(*root).expect("checked");
            Criteria {
                period: spec.period,
                relative_deadline: spec.deadline,
                priority: spec.priority,
                criticality: spec.criticality,
                ..Criteria::LEAST
            }
        };
        let roots = self.roots(&order).into_iter();
        let inherits = |node: &NodeId| self.task_spec(*node).is_some_and(|spec| spec.inherits);
        roots
            .filter(|(node, _)| inherits(node))
            .map(|(node, roots)| {
                (node, roots.iter().map(static_of).fold(Criteria::LEAST, |a, b| a.most_urgent(&b)))
            })
            .collect()
    }
}
