//! What is wrong with a graph.

use super::super::{Body, NodeId, TaskSpec, Tree, TreeError, Wrong};
use crate::Span;
use crate::criteria::Criteria;
use crate::mutate;
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
        let (order, outputs) = self.graph_order()?;
        // What the first task in topological order says reaches everybody behind it: of the roots
        // of a graph the first that was found is enough, for those before were like it.
        let mut first: BTreeMap<NodeId, NodeId> = BTreeMap::new();
        for node in order {
            let root = *first.entry(node).or_insert(node);
            for &to in outputs.get(&node).into_iter().flatten() {
                let other = *first.entry(to).or_insert(root);
                let step = |of: NodeId| {
                    self.task_spec(of).map_or((Span::ZERO, Span::ZERO), |s| (s.period, s.deadline))
                };
                if mutate!(
                    "core-graph-roots",
                    step(root) != step(other),
                    step(root).0 != step(other).0 && step(root).0 == step(other).1
                ) {
                    let (one, other) = (root.min(other), root.max(other));
                    return Err(TreeError { node: to, why: Wrong::GraphRoots { one, other } });
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

    /// The tasks that channels join, sources before sinks (Kahn 1962), and where the channels of
    /// each lead; an error names a task of a circle. O(channels · log channels).
    fn graph_order(&self) -> Result<(Vec<NodeId>, Outputs), TreeError> {
        let mut missing: BTreeMap<NodeId, u32> = BTreeMap::new();
        let mut outputs = Outputs::new();
        for channel in &self.channels {
            missing.entry(channel.from).or_default();
            *missing.entry(channel.to).or_default() += 1;
            outputs.entry(channel.from).or_default().push(channel.to);
        }
        let mut order: Vec<NodeId> =
            missing.iter().filter(|&(_, &n)| n == 0).map(|(&node, _)| node).collect();
        let mut at = 0;
        while let Some(node) = order.get(at) {
            for to in outputs.get(node).into_iter().flatten() {
                let left = missing.get_mut(to).expect("counted");
                *left -= 1;
                if *left == 0 {
                    order.push(*to);
                }
            }
            at += 1;
        }
        mutate!(
            "core-graph-circle",
            match missing.iter().find(|&(_, &n)| n > 0) {
                Some((&node, _)) => Err(TreeError { node, why: Wrong::Circle }),
                None => Ok((order, outputs)),
            },
            match missing.iter().find(|&(_, &n)| n > 0) {
                Some(_) => Ok((order, outputs)),
                None => Ok((order, outputs)),
            }
        )
    }

    /// Of every task that takes its criteria from the roots of its graph ([`TaskSpec::inherits`]):
    /// these. Nothing if the graph has a circle.
    pub fn inherited(&self) -> BTreeMap<NodeId, Criteria> {
        let mut above = self.of_roots();
        above.retain(|&node, _| self.task_spec(node).is_some_and(|spec| spec.inherits));
        above
    }

    /// Of every task that a graph activates the criteria of the graph's roots, the most urgent of
    /// them. Their relative deadline is the one that its tokens carry, whatever criteria of its own
    /// it has. Nothing if the graph has a circle.
    pub fn of_roots(&self) -> BTreeMap<NodeId, Criteria> {
        let Ok((order, outputs)) = self.graph_order() else { return BTreeMap::new() };
        let static_of = |root: NodeId| {
            let spec = self.task_spec(root).expect("checked");
            Criteria {
                period: spec.period,
                relative_deadline: spec.deadline,
                priority: spec.priority,
                criticality: spec.criticality,
                ..Criteria::LEAST
            }
        };
        // Of every task with predecessors: the most urgent of the roots above it, folded on the way
        // down.
        let mut above: BTreeMap<NodeId, Criteria> = BTreeMap::new();
        for node in order {
            let own = above.get(&node).copied().unwrap_or_else(|| static_of(node));
            for &to in outputs.get(&node).into_iter().flatten() {
                let of = above.entry(to).or_insert(Criteria::LEAST);
                *of = of.most_urgent(&own);
            }
        }
        above
    }
}

/// By source: the sinks of its channels.
type Outputs = BTreeMap<NodeId, Vec<NodeId>>;
