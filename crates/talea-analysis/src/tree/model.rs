//! First pass: the tree, the sporadic model of each task, and what no test covers.

use super::root_model::RootModel;
use super::task_bound::{NoBound, Reason};
use super::task_model::{Phasing, TaskModel, find_scheduler, read_task};
use crate::supply::InterferenceCurve;
use crate::test_info::TestKind;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use talea_core::Span;
use talea_core::engine::{NodeId, NodeSpec, Preemption, Tree};
use talea_core::mutate;
use talea_core::sched::PolicySpec;
use talea_core::workload::{Overheads, Source};

/// Model of a tree: the input of all later passes.
#[derive(Clone, Debug)]
pub(super) struct Model<'a> {
    pub(super) tree: &'a Tree,
    /// Sources, in the order of the tree's tasks.
    pub(super) sources: &'a [Source],
    pub(super) task_models: BTreeMap<NodeId, Result<TaskModel, NoBound>>,
    children: Vec<Vec<NodeId>>,
    /// `graph_deadlines[n]`: deadline of task `n`, which a graph activates.
    graph_deadlines: BTreeMap<NodeId, Span>,
    pub(super) step_limit: u64,
    /// Reason why no task of the tree has a bound.
    pub(super) uncovered: Option<NoBound>,
    /// Whether the offsets of the sources hold.
    pub(super) phases_known: bool,
    /// Whether CPUs stall.
    pub(super) has_stalls: bool,
    /// Whether suspensions count as work, so that an overload proves nothing.
    pub(super) suspends: bool,
    /// Whether overheads are modelled.
    pub(super) has_overheads: bool,
    /// Cost of one dispatch order, in nanoseconds.
    pub(super) dispatch_cost: u64,
    /// Upper limit of the CPU time that is lost while work is pending.
    pub(super) lost: Span,
    /// Interference by release overheads. Every release is charged at the highest priority.
    pub(super) release_interference: Vec<InterferenceCurve>,
}

impl<'a> Model<'a> {
    /// Reads a root, and adds its overheads to the costs.
    pub(super) fn read(of: &RootModel<'a>) -> Model<'a> {
        let tree = of.tree;
        let last = tree.nodes().map(|(id, _)| id.0 as usize).max().unwrap_or(0);
        let mut children = vec![Vec::new(); last + 1];
        let mut task_models = BTreeMap::new();
        let mut sources = of.sources.iter();
        let mut uncovered = None;
        for (id, node) in tree.nodes() {
            if let Some(parent) = node.parent {
                children[parent.0 as usize].push(id);
            }
            if let NodeSpec::Task(spec) = &node.spec {
                let none = NoBound { node: id, reason: Reason::Arrivals };
                let model =
                    sources.next().map_or(Err(none), |source| read_task(tree, id, spec, source));
                task_models.insert(id, model);
            }
        }
        // A task without a known model does not delay tasks of higher priority, unless it can block
        // non-preemptively, holds an accelerator, or overheads are modelled. (Resources:
        // `super::resources`.)
        let pays = of.overheads != Overheads::default();
        let waits = find_scheduler(tree, |spec| !spec.preemptive).is_some();
        let unknown = |model: &Result<TaskModel, NoBound>| {
            let no = model.as_ref().err()?;
            let is_held = matches!(no.reason, Reason::Arrivals | Reason::ArrivalCurve)
                && is_below_hard_server(tree, no.node);
            let is_everywhere = pays
                || (waits && mutate!("tree-everywhere", !is_held, is_held))
                || no.reason == Reason::Accelerators;
            is_everywhere.then(|| no.clone())
        };
        if let Some(no) = task_models.values().find_map(unknown) {
            uncovered = Some(no);
        }
        // A job that keeps an idle CPU consumes no budget, so no server limits its interference.
        let holds = of.sources.iter().any(|source| source.cost.sleeps_with_cpu());
        if mutate!("tree-hold", holds, false)
            && let Some(node) = find_scheduler(tree, |spec| spec.reservation.is_some())
        {
            uncovered = Some(NoBound { node, reason: Reason::Suspension });
        }
        // Sections of a task delay its siblings, whatever their priorities.
        let has_sections = |node: &NodeSpec| match node {
            NodeSpec::Task(spec) => spec.preemption != Preemption::Anywhere,
            NodeSpec::Scheduler(_) => false,
        };
        if let Some((node, _)) =
            tree.nodes().find(|(_, node)| mutate!("tree-sections", has_sections(&node.spec), false))
        {
            uncovered = Some(NoBound { node, reason: Reason::Sections });
        }
        if let Some(node) =
            find_scheduler(tree, |spec| matches!(spec.policy, PolicySpec::Table { .. }))
        {
            uncovered = Some(NoBound { node, reason: Reason::OfflineTable });
        }
        // Lost time of one CPU reduces its supply. No test is known for losses on several CPUs.
        let loses = !of.lost.is_zero();
        mutate!(
            "tree-lost-cpus",
            if mutate!("tree-stalls", !of.stalls.is_empty(), of.stalls.len() > 1)
                || (loses && tree.cpus > 1)
            {
                uncovered = Some(NoBound { node: Tree::ROOT, reason: Reason::CpuStalls });
            },
            if !of.stalls.is_empty() {
                uncovered = Some(NoBound { node: Tree::ROOT, reason: Reason::CpuStalls });
            }
        );
        let mut model = Model {
            tree,
            sources: of.sources,
            task_models,
            children,
            graph_deadlines: tree
                .root_criteria()
                .into_iter()
                .map(|(node, of)| (node, of.relative_deadline))
                .collect(),
            step_limit: of.steps,
            uncovered,
            phases_known: of.phases_known,
            has_stalls: !of.stalls.is_empty(),
            has_overheads: pays,
            suspends: false,
            dispatch_cost: 0,
            lost: of.lost,
            release_interference: Vec::new(),
        };
        model.inflate_costs(&of.overheads);
        model
    }

    /// Replaces the models of tasks that suspend themselves by models with suspensions as work.
    pub(super) fn count_suspensions(&mut self, models: Vec<(NodeId, TaskModel)>) {
        self.suspends = !models.is_empty();
        self.task_models.extend(models.into_iter().map(|(node, model)| (node, Ok(model))));
    }

    /// Returns the limit of fixed-point iterations, if an iteration evaluates `each` curves.
    pub(super) fn iteration_limit(&self, each: usize) -> u64 {
        mutate!("tree-limit", (self.step_limit / (each as u64 + 1)).max(64), 1)
    }

    /// Returns the deadline of the task at `node`: its own, or that of the graph that activates it.
    pub(super) fn deadline(&self, node: NodeId) -> Span {
        let of_graph = self.graph_deadlines.get(&node).copied();
        of_graph.unwrap_or_else(|| match self.node_spec(node) {
            NodeSpec::Task(spec) => spec.deadline,
            NodeSpec::Scheduler(_) => Span::ZERO,
        })
    }

    pub(super) fn tasks(&self) -> Vec<NodeId> {
        self.task_models.keys().copied().collect()
    }

    pub(super) fn task_model(&self, node: NodeId) -> Result<TaskModel, NoBound> {
        self.task_models[&node].clone()
    }

    pub(super) fn children(&self, node: NodeId) -> &[NodeId] {
        self.children.get(node.0 as usize).map_or(&[], Vec::as_slice)
    }

    pub(super) fn node_spec(&self, node: NodeId) -> &'a NodeSpec {
        &self.tree.get(node).expect("a node of this tree").spec
    }

    pub(super) fn parent(&self, node: NodeId) -> Option<NodeId> {
        self.tree.get(node).and_then(|node| node.parent)
    }

    /// Returns `Exact` if all of `tasks` can be released together at their worst, and otherwise
    /// `Sufficient`. A task with free phasing can in addition arrive at any distance from the
    /// others.
    pub(super) fn exactness(&self, tasks: &[NodeId]) -> TestKind {
        let mut together = None;
        for task in tasks {
            mutate!(
                "tree-exact-sources",
                match self.task_models[task].as_ref().map(|model| model.phasing) {
                    Ok(Phasing::Free) => {}
                    Ok(fixed @ Phasing::Fixed { .. })
                        if together.is_none_or(|first| first == fixed) =>
                    {
                        together = Some(fixed);
                    }
                    _ => return TestKind::Sufficient,
                },
                match self.task_models[task].as_ref().map(|model| model.phasing) {
                    Ok(Phasing::Free) => {}
                    Ok(fixed @ Phasing::Fixed { .. })
                        if together.is_none_or(|first| first == fixed) =>
                    {
                        together = Some(fixed);
                    }
                    _ => {}
                }
            )
        }
        TestKind::Exact
    }
}

/// Whether `task` is below a server with a hard budget. Nodes outside the server lose at most the
/// budget, whatever the arrivals of the task are.
fn is_below_hard_server(tree: &Tree, task: NodeId) -> bool {
    tree.ancestors(task).any(|(_, spec)| {
        spec.reservation.as_ref().is_some_and(|of| InterferenceCurve::of_server(of).is_some())
    })
}
