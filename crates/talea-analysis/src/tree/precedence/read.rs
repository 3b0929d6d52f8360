//! Items of a flat root: tasks and nodes of graphs, with the relations of their graph.

use super::super::model::Model;
use super::super::priority_keys::KeyOrder;
use crate::uni::MAX_PARAMETER_NS;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use talea_core::criteria::Criteria;
use talea_core::engine::{Migration, NodeId, NodeSpec, Preemption, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, Cost, Source, StepAction};

/// Order among the children of the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Fixed keys; equal keys delay each other.
    Keys,
    /// Absolute deadlines.
    Deadlines,
    /// Any order that leaves no CPU idle.
    Any,
}

/// Task, or node of a graph.
pub(super) struct Item {
    pub(super) node: NodeId,
    /// Whether the assumptions on the task and its graph hold. Otherwise the item has no bound.
    pub(super) is_known: bool,
    pub(super) key: u64,
    pub(super) deadline: u64,
    pub(super) cost: u64,
    pub(super) period: u64,
    /// Jitter of the graph root.
    pub(super) jitter: u64,
    /// CPUs.
    pub(super) mask: u64,
    /// Accelerators of any version, as bits.
    pub(super) uses: u64,
    pub(super) predecessors: Vec<usize>,
    /// Transitive predecessors and the item itself.
    pub(super) before: BTreeSet<usize>,
    /// Transitive successors.
    pub(super) after: BTreeSet<usize>,
    /// All items of the graph.
    pub(super) graph: Vec<usize>,
    /// Work of the longest chain that ends here.
    pub(super) chain: u64,
    /// Number of items in the chain with most items that ends here.
    pub(super) hops: u64,
}

impl Item {
    /// Whether the item may use one CPU only.
    pub(super) fn is_pinned(&self) -> bool {
        self.mask.is_power_of_two()
    }
}

/// Items of a root.
pub(super) struct System {
    pub(super) order: Order,
    pub(super) cpus: u32,
    pub(super) preemptive: bool,
    /// Whether the CPU serves equal keys in the order of release.
    pub(super) keeps_order: bool,
    /// Whether a preempted job may continue on another CPU.
    pub(super) migrates: bool,
    pub(super) items: Vec<Item>,
}

impl System {
    /// Returns the items of a root; `None` if assumption 1 of the module does not hold.
    pub(super) fn read(model: &Model<'_>) -> Option<System> {
        let tree = model.tree;
        let NodeSpec::Scheduler(root) = model.node_spec(Tree::ROOT) else { return None };
        let key_order = KeyOrder::of(&root.policy);
        let order = match root.policy {
            PolicySpec::Edf => Order::Deadlines,
            PolicySpec::Fifo => Order::Any,
            _ if key_order.is_some() => Order::Keys,
            _ => return None,
        };
        let nodes = model.tasks();
        let holds = tree.cpus <= 64
            && root.reservation.is_none()
            && tree.resources.is_empty()
            && tree.nodes().count() == nodes.len() + 1
            && !model.has_stalls
            && !model.has_overheads
            && model.lost.is_zero();
        if !holds {
            return None;
        }
        let all = u64::MAX >> (64 - tree.cpus.clamp(1, 64));
        let criteria = tree.root_criteria();
        let mut items = Vec::new();
        for (&node, source) in nodes.iter().zip(model.sources) {
            let NodeSpec::Task(spec) = model.node_spec(node) else { return None };
            let inherited = criteria.get(&node).filter(|_| spec.inherits);
            let arrivals = arrivals(spec, source);
            items.push(Item {
                node,
                is_known: is_plain(spec, source),
                key: key_order.map_or(0, |order| key(order, spec, inherited)),
                deadline: model.deadline(node).as_ns(),
                cost: source.cost.max().as_ns().max(1),
                period: arrivals.map_or(0, |of| of.period),
                jitter: arrivals.map_or(0, |of| of.jitter),
                mask: spec.affinity.0 & all,
                uses: spec
                    .versions
                    .iter()
                    .flat_map(|version| &version.accelerators)
                    .fold(0, |bits, which| bits | 1u64.checked_shl(which.0).unwrap_or(u64::MAX)),
                predecessors: Vec::new(),
                before: BTreeSet::new(),
                after: BTreeSet::new(),
                graph: Vec::new(),
                chain: 0,
                hops: 0,
            });
        }
        if items.iter().any(|item| item.uses != 0) && !tree.inheritance {
            return None;
        }
        let numbers: BTreeMap<NodeId, usize> = nodes.into_iter().zip(0..).collect();
        for channel in &tree.channels {
            let (from, to) = (numbers[&channel.from], numbers[&channel.to]);
            items[to].predecessors.push(from);
            if channel.tokens != 1 {
                items[to].is_known = false;
            }
        }
        relate(&mut items)?;
        join_roots(&mut items, model.sources);
        let in_range = |item: &Item| {
            [item.period, item.jitter, item.deadline, item.cost, item.chain]
                .iter()
                .all(|&number| number < MAX_PARAMETER_NS)
        };
        for item in &mut items {
            item.is_known = item.is_known && in_range(item) && item.period > 0;
        }
        Some(System {
            order,
            cpus: tree.cpus,
            preemptive: root.preemptive,
            keeps_order: tree.cpus == 1 && key_order.is_some_and(KeyOrder::is_fifo),
            migrates: tree.migration == Migration::Anytime,
            items,
        })
    }
}

fn key(order: KeyOrder, spec: &TaskSpec, inherited: Option<&Criteria>) -> u64 {
    let (period, deadline, priority, criticality) = match inherited {
        Some(of) => (of.period, of.relative_deadline, of.priority, of.criticality),
        None => (spec.period, spec.deadline, spec.priority, spec.criticality),
    };
    match order {
        KeyOrder::Priority => u64::from(u8::MAX - priority),
        KeyOrder::Period => period.as_ns(),
        KeyOrder::Deadline => deadline.as_ns(),
        KeyOrder::Criticality => u64::from(u8::MAX - criticality),
    }
}

/// Arrivals of a graph root.
#[derive(Clone, Copy)]
struct RootArrivals {
    period: u64,
    jitter: u64,
}

fn arrivals(spec: &TaskSpec, source: &Source) -> Option<RootArrivals> {
    let (period, jitter) = match &source.arrivals {
        Arrivals::Periodic { period, jitter, .. } => (period.as_ns(), jitter.as_ns()),
        Arrivals::Sporadic { separation, .. } => (separation.as_ns(), 0),
        Arrivals::Curve { .. } | Arrivals::List(_) | Arrivals::Observed(_) => return None,
    };
    (!spec.enforced && !spec.inherits).then_some(RootArrivals { period, jitter })
}

/// Whether the jobs of a task only compute, and move at most one token through each channel.
fn is_plain(spec: &TaskSpec, source: &Source) -> bool {
    let is_one = |cost: &Cost| match cost {
        Cost::WithSteps { steps, .. } => {
            let mut pushed = BTreeSet::new();
            steps.iter().all(|step| match &step.action {
                StepAction::Push(channel, counts) => {
                    counts.iter().all(|&count| count <= 1) && pushed.insert(channel.0)
                }
                StepAction::Pop(..) => true,
                _ => false,
            })
        }
        _ => true,
    };
    spec.uses.is_empty()
        && !spec.enforced
        && spec.preemption == Preemption::Anywhere
        && !source.is_endless()
        && source.cost.by_version().into_iter().all(is_one)
}

/// Derives the relations of all items; `None` if a graph has a cycle.
fn relate(items: &mut [Item]) -> Option<()> {
    let count = items.len();
    let mut done = vec![false; count];
    let mut left = count;
    while left > 0 {
        let at = (0..count).find(|&at| {
            !done[at] && items[at].predecessors.iter().all(|&predecessor| done[predecessor])
        })?;
        let (mut before, mut chain, mut hops) = (BTreeSet::from([at]), 0, 0);
        for &predecessor in &items[at].predecessors {
            let of = &items[predecessor];
            before.extend(&of.before);
            (chain, hops) = (of.chain.max(chain), of.hops.max(hops));
        }
        for &one in before.iter().filter(|&&one| one != at) {
            items[one].after.insert(at);
        }
        let item = &mut items[at];
        (item.chain, item.hops) = (item.cost.saturating_add(chain), hops + 1);
        item.before = before;
        done[at] = true;
        left -= 1;
    }
    Some(())
}

/// Gives every item its graph, with the arrivals of the graph roots.
fn join_roots(items: &mut [Item], sources: &[Source]) {
    let mut graphs: Vec<usize> = (0..items.len()).collect();
    for at in 0..items.len() {
        for &predecessor in &items[at].predecessors {
            let (from, to) = (graphs[predecessor], graphs[at]);
            graphs.iter_mut().filter(|graph| **graph == from).for_each(|graph| *graph = to);
        }
    }
    for at in 0..items.len() {
        let graph: Vec<usize> =
            (0..items.len()).filter(|&other| graphs[other] == graphs[at]).collect();
        let roots = || graph.iter().filter(|&&one| items[one].predecessors.is_empty());
        let (mut period, mut jitter, mut is_known) = (u64::MAX, 0, true);
        for &root in roots() {
            is_known &=
                items[root].period > 0 && (period == u64::MAX || period == items[root].period);
            period = items[root].period;
            jitter = items[root].jitter.max(jitter);
        }
        if roots().count() > 1 {
            let first = graph.iter().find(|&&one| items[one].predecessors.is_empty());
            let offset = |root: usize| match &sources[root].arrivals {
                Arrivals::Periodic { offset, jitter, .. } if jitter.is_zero() => Some(*offset),
                _ => None,
            };
            let together = first.and_then(|&first| offset(first));
            is_known &= together.is_some() && roots().all(|&root| offset(root) == together);
        }
        is_known &= graph.iter().all(|&one| items[one].is_known);
        // The arrivals of roots stay as they are until all graphs are known.
        items[at].graph = graph;
        items[at].is_known = is_known;
        if !items[at].predecessors.is_empty() {
            (items[at].period, items[at].jitter) = (period, jitter);
        }
    }
    // One unknown node makes its whole graph unknown.
    let known: Vec<bool> =
        items.iter().map(|item| item.graph.iter().all(|&one| items[one].is_known)).collect();
    items.iter_mut().zip(known).for_each(|(item, known)| item.is_known = known);
}
