//! Checks of task graphs.

use super::super::{NodeId, NodeSpec, TaskSpec, Tree, TreeError, TreeErrorKind};
use crate::Span;
use crate::criteria::Criteria;
use crate::mutate;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

impl Tree {
    /// Checks that every channel joins two tasks and can store the tokens of an activation, that no
    /// graph has a cycle, and that the graph roots of a graph agree.
    pub(in super::super) fn check_graph(&self) -> Result<(), TreeError> {
        for (at, channel) in self.channels.iter().enumerate() {
            let wrong = |node, why| Err(TreeError { node, kind: why });
            for end in [channel.from, channel.to] {
                if self.task_spec(end).is_none() {
                    return wrong(
                        end,
                        TreeErrorKind::Channel {
                            index: at,
                            what: "both ends must be tasks of this tree",
                        },
                    );
                }
            }
            if channel.tokens == 0 {
                return wrong(
                    channel.to,
                    TreeErrorKind::Channel {
                        index: at,
                        what: "an activation takes at least one token",
                    },
                );
            }
            if channel.size > 0 && channel.tokens > channel.size {
                return wrong(
                    channel.to,
                    TreeErrorKind::Channel {
                        index: at,
                        what: "an activation takes more tokens than it holds",
                    },
                );
            }
        }
        let (order, outputs) = self.graph_order()?;
        // All tasks behind a task see its root. One root per task suffices, because the earlier
        // ones agree with it.
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
                    return Err(TreeError {
                        node: to,
                        kind: TreeErrorKind::GraphRoots { one, other },
                    });
                }
            }
        }
        Ok(())
    }

    fn task_spec(&self, node: NodeId) -> Option<&TaskSpec> {
        match &self.get(node)?.spec {
            NodeSpec::Task(spec) => Some(spec),
            NodeSpec::Scheduler(_) => None,
        }
    }

    /// Returns the tasks joined by channels, sources before sinks (Kahn 1962), and the sinks of
    /// each task.
    ///
    /// O(channels · log channels).
    ///
    /// # Errors
    /// A task of a cycle.
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
            match self.task_of_cycle(&missing) {
                Some(node) => Err(TreeError { node, kind: TreeErrorKind::Cycle }),
                None => Ok((order, outputs)),
            },
            Ok((order, outputs))
        )
    }

    /// Returns a task of a cycle. `missing` contains the number of inputs of each task that do not
    /// come from an ordered task: above zero for each task in or behind a cycle.
    fn task_of_cycle(&self, missing: &BTreeMap<NodeId, u32>) -> Option<NodeId> {
        let is_left = |node: &NodeId| missing.get(node).is_some_and(|&n| n > 0);
        let mut input: BTreeMap<NodeId, NodeId> = BTreeMap::new();
        for channel in &self.channels {
            if is_left(&channel.from) && is_left(&channel.to) {
                input.entry(channel.to).or_insert(channel.from);
            }
        }
        // Each of these tasks has such an input, so the way against the channels ends in a cycle.
        let mut node = *input.keys().next()?;
        for _ in 0..input.len() {
            node = *input.get(&node)?;
        }
        Some(node)
    }

    /// Returns the criteria of each task that inherits from its graph roots
    /// ([`TaskSpec::inherits`]).
    ///
    /// The result is empty if a graph has a cycle.
    pub fn inherited_criteria(&self) -> BTreeMap<NodeId, Criteria> {
        let mut above = self.root_criteria();
        above.retain(|&node, _| self.task_spec(node).is_some_and(|spec| spec.inherits));
        above
    }

    /// Returns the most urgent criteria of the graph roots for each task that a graph activates.
    ///
    /// The tokens carry the relative deadline of the graph roots, even if the task has criteria of
    /// its own. The result is empty if a graph has a cycle.
    pub fn root_criteria(&self) -> BTreeMap<NodeId, Criteria> {
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
        // `above[n]`: most urgent criteria of the roots above `n`, folded from sources to sinks.
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

/// `Outputs[n]`: sinks of the channels out of node `n`.
type Outputs = BTreeMap<NodeId, Vec<NodeId>>;
