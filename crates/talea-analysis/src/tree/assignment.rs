//! Priorities for the children of the `fp` schedulers of a root.
//!
//! On one CPU, and for tasks pinned to one CPU each: Audsley's algorithm
//! ([`crate::uni::assignment`]) with the bounds of [`super`] as test. So blocking, jitter,
//! overheads, servers and known phases count as in `talea analyze`. A child scheduler passes at a
//! level if every task below it is proved; an `fp` scheduler below it gets priorities first, by the
//! same search.
//!
//! On several CPUs with migration the bounds of Guan et al. are not compatible with the algorithm
//! (R. I. Davis and A. Burns, Real-Time Systems 47(1), 2011). There the candidates are: the order
//! of the file, by deadline, by D − C, and that of [`crate::multi::da_lc::assign`].
//!
//! Assumptions:
//! 1. Each child of an `fp` scheduler has a priority of its own: a scheduler that presents the
//!    priorities of its children, and a task that inherits from a graph root, have none.
//! 2. An `fp` scheduler has at most 255 children.
//!
//! Every order that is found is analysed as a whole again, so that an incompatible test costs
//! orders and never soundness. *No order exists* ([`PriorityAssignment::Stuck`], `refuted`)
//! requires exact bounds and a compatible test.
//!
//! Cost: for n children at most n(n + 1)/2 bounds; with schedulers below, that number for each of
//! these bounds.

use super::passes::Passes;
use super::root_model::RootModel;
use super::task_bound::{Reason, TaskBound};
use crate::Sporadic;
use crate::multi::{self, da_lc};
use crate::test_info::TestKind;
use crate::uni::assignment::{Assignment, audsley};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use talea_core::engine::{NodeId, NodeSpec, Tree};
use talea_core::mutate;
use talea_core::sched::PolicySpec;

/// Result of a search for priorities.
#[derive(Clone, Debug)]
pub enum PriorityAssignment {
    /// Tree with priorities with which every deadline is proved.
    Found(Tree),
    /// No order is proved.
    Stuck {
        /// Siblings of which none is proved below the others of them.
        nodes: Vec<NodeId>,
        /// Those of `nodes` that are not proved even above all siblings.
        hopeless: Vec<NodeId>,
        /// Whether exact tests refute each of them, so that no order meets every deadline.
        refuted: bool,
    },
    /// None of the candidates for several CPUs is proved. Other orders may be.
    NotFound,
    /// No `fp` scheduler.
    NoPriorities,
    /// The node has no priority of its own (assumption 1), or too many children (2).
    Uncovered(NodeId),
}

/// Searches for priorities with which every deadline of `root` is proved.
pub fn assign_priorities(root: &RootModel<'_>) -> PriorityAssignment {
    let is_fp = |node: NodeId| children_by_priority(root.tree, node).is_some();
    let schedulers: Vec<NodeId> =
        root.tree.nodes().map(|(id, _)| id).filter(|&id| is_fp(id)).collect();
    if schedulers.is_empty() {
        return PriorityAssignment::NoPriorities;
    }
    for &scheduler in &schedulers {
        let children = children_by_priority(root.tree, scheduler).unwrap_or_default();
        if children.len() > usize::from(u8::MAX) {
            return PriorityAssignment::Uncovered(scheduler);
        }
        if let Some(&child) = children.iter().find(|&&child| priority(root.tree, child).is_none()) {
            return PriorityAssignment::Uncovered(child);
        }
    }
    let mut search = Search { root: *root, tree: root.tree.clone() };
    if root.tree.cpus > 1 && !is_pinned(root.tree) {
        return search.among_candidates();
    }
    match search.serve(Tree::ROOT) {
        Ok(()) if search.is_proved() => PriorityAssignment::Found(search.tree),
        Ok(()) => PriorityAssignment::NotFound,
        Err(Stuck { nodes, hopeless, refuted }) => {
            // With known phases, the order of less urgent non-preemptive jobs counts.
            let counts_below = |&node: &NodeId| match root.tree.get(node).map(|node| &node.spec) {
                Some(NodeSpec::Scheduler(spec)) => !spec.preemptive && root.phases_known,
                _ => false,
            };
            let is_compatible =
                root.tree.resources.is_empty() && !schedulers.iter().any(counts_below);
            PriorityAssignment::Stuck { nodes, hopeless, refuted: refuted && is_compatible }
        }
    }
}

/// Returns the children of an `fp` scheduler, the most urgent first; `None` for another node.
fn children_by_priority(tree: &Tree, node: NodeId) -> Option<Vec<NodeId>> {
    let NodeSpec::Scheduler(spec) = &tree.get(node)?.spec else { return None };
    if !matches!(spec.policy, PolicySpec::FixedPriority) {
        return None;
    }
    let mut children: Vec<NodeId> = tree.children(node).map(|(id, _)| id).collect();
    children.sort_by_key(|&child| (Reverse(priority(tree, child)), deadline(tree, child)));
    Some(children)
}

/// Returns the own priority of a node.
fn priority(tree: &Tree, node: NodeId) -> Option<u8> {
    match &tree.get(node)?.spec {
        NodeSpec::Task(spec) => Some(spec.priority).filter(|_| !spec.inherits),
        // A scheduler that yields to its level has a place that its number alone does not say.
        NodeSpec::Scheduler(spec) => spec.overrides.priority.filter(|_| !spec.overrides.yields),
    }
}

fn deadline(tree: &Tree, node: NodeId) -> u64 {
    match tree.get(node).map(|node| &node.spec) {
        Some(NodeSpec::Task(spec)) => spec.deadline.as_ns(),
        Some(NodeSpec::Scheduler(spec)) => {
            spec.reservation.as_ref().map_or(u64::MAX, |of| of.relative_deadline().as_ns())
        }
        None => u64::MAX,
    }
}

/// Whether each child of the root may use one CPU only.
fn is_pinned(tree: &Tree) -> bool {
    let all = u64::MAX >> (64 - tree.cpus.clamp(1, 64));
    tree.children(Tree::ROOT).all(|(_, node)| (node.affinity().0 & all).is_power_of_two())
}

/// Siblings of which none can be the least urgent.
struct Stuck {
    nodes: Vec<NodeId>,
    hopeless: Vec<NodeId>,
    refuted: bool,
}

struct Search<'a> {
    root: RootModel<'a>,
    /// Tree with the priorities so far.
    tree: Tree,
}

impl Search<'_> {
    /// Returns the model with the priorities so far.
    fn model(&self) -> RootModel<'_> {
        RootModel { tree: &self.tree, ..self.root }
    }

    fn is_proved(&self) -> bool {
        mutate!("tree-assignment-verified", self.model().are_proved(), true)
    }

    /// Finds priorities for all `fp` schedulers below `node` with which every task below it is
    /// proved.
    fn serve(&mut self, node: NodeId) -> Result<(), Stuck> {
        let Some(of) = self.tree.get(node) else { return Ok(()) };
        if matches!(of.spec, NodeSpec::Task(_)) {
            return self.check(node);
        }
        if let Some(children) = children_by_priority(&self.tree, node) {
            return self.serve_by_priority(children);
        }
        let children: Vec<NodeId> = self.tree.children(node).map(|(id, _)| id).collect();
        children.into_iter().try_for_each(|child| self.serve(child))
    }

    /// Checks that the task at `node` is proved with the priorities so far.
    fn check(&self, node: NodeId) -> Result<(), Stuck> {
        let Some(of) = self.model().bounds_of(&[node]).pop() else { return Ok(()) };
        if of.is_proved() || !of.has_deadline() {
            return Ok(());
        }
        Err(Stuck { nodes: vec![node], hopeless: vec![node], refuted: is_refuted(&of) })
    }

    fn serve_by_priority(&mut self, children: Vec<NodeId>) -> Result<(), Stuck> {
        let mut refuted: BTreeMap<NodeId, bool> = BTreeMap::new();
        let found = audsley(children.len(), |candidate, above, below| {
            // The most urgent of `below` is its last.
            let order = above.iter().chain([&candidate]).chain(below.iter().rev());
            let order: Vec<NodeId> = order.map(|&at| children[at]).collect();
            self.set(&order);
            let node = children[candidate];
            Ok(match self.serve(node) {
                Ok(()) => true,
                Err(stuck) => {
                    refuted.insert(node, stuck.refuted);
                    false
                }
            })
        });
        match found {
            Ok(Assignment::Found(order)) => {
                let order: Vec<NodeId> = order.into_iter().map(|at| children[at]).collect();
                self.set(&order);
                Ok(())
            }
            Ok(Assignment::Stuck(open)) => {
                let nodes: Vec<NodeId> = open.into_iter().map(|at| children[at]).collect();
                let refuted = nodes.iter().all(|node| refuted.get(node) == Some(&true));
                let hopeless = nodes.iter().copied().filter(|&node| {
                    let others = children.iter().copied().filter(|&other| other != node);
                    self.set(&core::iter::once(node).chain(others).collect::<Vec<_>>());
                    self.serve(node).is_err()
                });
                let hopeless = hopeless.collect();
                Err(Stuck { nodes, hopeless, refuted })
            }
            Err(_) => Err(Stuck { nodes: children, hopeless: Vec::new(), refuted: false }),
        }
    }

    /// Gives `order`, the most urgent first, the priorities from its length down to 1.
    fn set(&mut self, order: &[NodeId]) {
        for (&node, level) in order.iter().rev().zip(1..=u8::MAX) {
            match self.tree.get_mut(node).map(|node| &mut node.spec) {
                Some(NodeSpec::Task(spec)) => spec.priority = level,
                Some(NodeSpec::Scheduler(spec)) => spec.overrides.priority = Some(level),
                None => {}
            }
        }
    }

    /// Tries the candidates for several CPUs.
    fn among_candidates(mut self) -> PriorityAssignment {
        let Some(children) = children_by_priority(&self.tree, Tree::ROOT) else {
            return PriorityAssignment::NotFound;
        };
        if self.is_proved() {
            return PriorityAssignment::Found(self.tree);
        }
        let costs: BTreeMap<NodeId, u64> = (self.tree.nodes())
            .filter(|(_, node)| matches!(node.spec, NodeSpec::Task(_)))
            .zip(self.root.sources)
            .map(|((id, _), source)| (id, source.cost.max().as_ns()))
            .collect();
        let cost = |node: NodeId| costs.get(&node).copied().unwrap_or(0);
        let mut by_deadline = children;
        by_deadline.sort_by_key(|&node| deadline(&self.tree, node));
        let mut by_slack = by_deadline.clone();
        by_slack.sort_by_key(|&node| deadline(&self.tree, node).saturating_sub(cost(node)));
        let limited = self.limited_carry_in(&by_deadline);
        for order in [Some(by_deadline), Some(by_slack), limited].into_iter().flatten() {
            self.set(&order);
            if self.is_proved() {
                return PriorityAssignment::Found(self.tree);
            }
        }
        PriorityAssignment::NotFound
    }

    /// Returns the order of `DA-LC`, for tasks with D ≤ T and without jitter.
    fn limited_carry_in(&self, children: &[NodeId]) -> Option<Vec<NodeId>> {
        let passes = Passes::of(&self.root);
        let tasks = children
            .iter()
            .map(|&node| passes.model.task_models.get(&node)?.as_ref().ok().map(|model| model.task))
            .collect::<Option<Vec<Sporadic>>>()?;
        let order = da_lc::assign(&tasks, self.tree.cpus, &mut multi::Scratch::new()).ok()??;
        Some(order.into_iter().map(|at| children[at]).collect())
    }
}

/// Whether an exact test shows that the task can miss its deadline.
fn is_refuted(of: &TaskBound) -> bool {
    let is_overload = of.bound.as_ref().is_err_and(|no| no.reason == Reason::Overload);
    of.is_refuted() || (is_overload && of.kind == TestKind::Exact)
}
