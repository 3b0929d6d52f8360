//! Analysis of a tree: from its root to each task.

use super::context::{Context, NonPreemptive};
use super::priority_keys::KeyOrder;
use super::root_model::RootModel;
use super::servers::NodeSupply;
use super::task_bound::{INFO, NoBound, Reason, TaskBound};
use super::task_model::{Phasing, TaskModel, find_scheduler, read_task};
use crate::supply::{InterferenceCurve, Supply, Table, fp};
use crate::test_info::{TestInfo, TestKind};
use crate::verdict::Inconclusive;
use crate::{Sporadic, multi, uni};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use talea_core::engine::{NodeId, NodeSpec, Tree};
use talea_core::mutate;
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};
use talea_core::workload::Overheads;
use talea_core::{Span, Work};

/// Level of a scheduler with fixed keys, which a child that propagates keys inherits (rule 5 of
/// [`super`]).
#[derive(Clone, Copy, Debug)]
struct KeyLevel {
    order: KeyOrder,
    /// K: a node interferes if its most urgent key is at most K.
    key: u64,
    /// Least urgent key of the interfering nodes; `None` if no node interferes.
    least_urgent: Option<u64>,
}

/// Model of a tree with the results so far.
pub(super) struct TreeAnalysis<'a> {
    pub(super) tree: &'a Tree,
    pub(super) task_models: BTreeMap<NodeId, Result<TaskModel, NoBound>>,
    children: Vec<Vec<NodeId>>,
    step_limit: u64,
    /// Reason why no task of the tree has a bound.
    pub(super) uncovered: Option<NoBound>,
    blocking_terms: BTreeMap<NodeId, Work>,
    /// Cost of one dispatch order, in nanoseconds.
    pub(super) dispatch_cost: u64,
    /// Upper limit of the CPU time that is lost while work is pending.
    pub(super) lost: Span,
    /// Interference by release overheads. Every release is charged at the highest priority.
    pub(super) release_interference: Vec<InterferenceCurve>,
    pub(super) server_supplies: BTreeMap<NodeId, Result<NodeSupply, NoBound>>,
    pub(super) level_verdicts: BTreeMap<NodeId, Result<bool, NoBound>>,
    bounds: BTreeMap<NodeId, Option<Result<Span, NoBound>>>,
    /// `provenances[n]`: whether the bound of node `n` is exact, and its test.
    provenances: BTreeMap<NodeId, (TestKind, &'static TestInfo)>,
    /// `graph_deadlines[n]`: deadline of task `n`, which a graph activates.
    graph_deadlines: BTreeMap<NodeId, Span>,
    /// `special_bounds[n]`: bound of task `n` of an off-line table or of a single graph.
    special_bounds: BTreeMap<NodeId, Result<Span, NoBound>>,
    special_test: &'static TestInfo,
}

impl<'a> TreeAnalysis<'a> {
    pub(super) fn new(of: &RootModel<'a>) -> TreeAnalysis<'a> {
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
            let is_held = no.reason == Reason::Arrivals && is_below_hard_server(tree, no.node);
            let is_everywhere = pays
                || (waits && mutate!("tree-everywhere", !is_held, is_held))
                || no.reason == Reason::Accelerators;
            is_everywhere.then(|| no.clone())
        };
        if let Some(no) = task_models.values().find_map(unknown) {
            uncovered = Some(no);
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
        let mut analysis = TreeAnalysis {
            tree,
            task_models,
            children,
            step_limit: of.steps,
            uncovered,
            blocking_terms: BTreeMap::new(),
            dispatch_cost: 0,
            lost: of.lost,
            release_interference: Vec::new(),
            server_supplies: BTreeMap::new(),
            level_verdicts: BTreeMap::new(),
            bounds: BTreeMap::new(),
            provenances: BTreeMap::new(),
            graph_deadlines: tree
                .root_criteria()
                .into_iter()
                .map(|(node, of)| (node, of.relative_deadline))
                .collect(),
            special_bounds: BTreeMap::new(),
            special_test: &super::table::INFO,
        };
        if of.stalls.is_empty() && !pays {
            let table = super::table::bounds(&analysis, of.sources)
                .map(|bounds| (bounds, &super::table::INFO));
            let graph = || {
                super::graph::bounds(&analysis, of.sources)
                    .map(|bounds| (bounds, &multi::graham::INFO))
            };
            match table.or_else(graph) {
                Some(_) if loses => {
                    analysis.uncovered =
                        Some(NoBound { node: Tree::ROOT, reason: Reason::CpuStalls });
                }
                Some(found) => (analysis.special_bounds, analysis.special_test) = found,
                None => {}
            }
        }
        analysis.inflate_costs(&of.overheads, of.sources);
        match super::resources::blocking(&analysis, of.sources) {
            Ok(blocking) => {
                analysis.blocking_terms = blocking.terms;
                // Two more dispatch orders: to the holder and back.
                for node in blocking.blocked_late {
                    if let Some(Ok(model)) = analysis.task_models.get_mut(&node) {
                        model.task.cost = Work::from_ns(
                            model.task.cost.as_ns().saturating_add(2 * analysis.dispatch_cost),
                        );
                    }
                }
            }
            Err(no) => analysis.uncovered = analysis.uncovered.take().or(Some(no)),
        }
        analysis
    }

    /// Returns the limit of fixed-point iterations, if an iteration evaluates `each` curves.
    pub(super) fn iteration_limit(&self, each: usize) -> u64 {
        mutate!("tree-limit", (self.step_limit / (each as u64 + 1)).max(64), 1)
    }

    /// Whether resources block any task. The blocking term differs from task to task.
    pub(super) fn has_blocking(&self) -> bool {
        !self.blocking_terms.is_empty()
    }

    /// Returns the bound of the task at `node`, with its deadline and provenance.
    pub(super) fn task_bound(&mut self, node: NodeId) -> TaskBound {
        let own = match self.node_spec(node) {
            NodeSpec::Task(spec) => spec.deadline,
            NodeSpec::Scheduler(_) => Span::ZERO,
        };
        let deadline = self.graph_deadlines.get(&node).copied().unwrap_or(own);
        if let Some(bound) = self.special_bounds.remove(&node) {
            return TaskBound {
                node,
                deadline,
                bound,
                kind: TestKind::Sufficient,
                test: self.special_test,
            };
        }
        let bound = self.bound(node);
        let (kind, test) = self.provenance(node);
        TaskBound { node, deadline, bound, kind, test }
    }

    /// Checks that no property of the tree excludes every bound. An error is the reason why no task
    /// of the tree has a bound.
    pub(super) fn check_covered(&self) -> Result<(), NoBound> {
        self.uncovered.clone().map_or(Ok(()), Err)
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

    fn provenance(&self, node: NodeId) -> (TestKind, &'static TestInfo) {
        let other =
            if self.tree.cpus > 1 { super::global::test_for_root(self.tree) } else { &INFO };
        self.provenances.get(&node).copied().unwrap_or((TestKind::Sufficient, other))
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

    /// Returns the longest response of the task at `node`, counted from its arrival.
    pub(super) fn bound(&mut self, node: NodeId) -> Result<Span, NoBound> {
        if let Some(no) = &self.uncovered {
            return Err(no.clone());
        }
        match self.bounds.get(&node) {
            Some(Some(found)) => return found.clone(),
            // The search for this bound is in progress: the responses depend on each other.
            Some(None) => return Err(NoBound { node, reason: Reason::Circular }),
            None => {}
        }
        self.bounds.insert(node, None);
        let found = if self.tree.cpus > 1 {
            self.bound_on_several_cpus(node)
        } else {
            self.bound_on_one_cpu(node)
        };
        self.bounds.insert(node, Some(found.clone()));
        found
    }

    fn bound_on_one_cpu(&mut self, node: NodeId) -> Result<Span, NoBound> {
        let context = self.context(node)?;
        if context.level.is_some() {
            let (bound, provenance) = self.bound_by_deadline(node, &context)?;
            if context.flat.is_some() {
                self.provenances.insert(node, provenance);
            }
            return Ok(bound);
        }
        if let Some(non_preemptive) = &context.non_preemptive
            && let Some((found, kind)) = self.non_preemptive_response(node, non_preemptive)?
        {
            self.provenances.insert(node, (kind, &uni::np_fp::INFO));
            return found;
        }
        let task =
            Sporadic { blocking: Work::from_ns(context.blocking), ..self.task_model(node)?.task };
        if let Some(above) = &context.flat {
            self.provenances.insert(
                node,
                (self.exactness(&[above.as_slice(), &[node]].concat()), &uni::fp_response::INFO),
            );
        }
        self.response(node, &task, &context)
    }

    /// Records whether the bound of `node` is exact, and its test.
    pub(super) fn set_provenance(&mut self, node: NodeId, of: (TestKind, &'static TestInfo)) {
        self.provenances.insert(node, of);
    }

    /// Records a bound of `node` and its provenance.
    pub(super) fn set_bound(
        &mut self,
        node: NodeId,
        bound: Result<Span, NoBound>,
        of: (TestKind, &'static TestInfo),
    ) {
        self.bounds.insert(node, Some(bound));
        self.provenances.insert(node, of);
    }

    /// Returns the longest response of a task below a non-preemptive root; `None` beyond the step
    /// limit. The response is exact if all interfering tasks can arrive just after a job of the
    /// longest other task has started.
    #[allow(clippy::type_complexity, reason = "a bound with its kind, or none")]
    fn non_preemptive_response(
        &self,
        node: NodeId,
        non_preemptive: &NonPreemptive,
    ) -> Result<Option<(Result<Span, NoBound>, TestKind)>, NoBound> {
        let nodes = [non_preemptive.above.as_slice(), &[node]].concat();
        let tasks = nodes
            .iter()
            .map(|&node| Ok(self.task_model(node)?.task))
            .collect::<Result<Vec<_>, NoBound>>()?;
        let below = non_preemptive
            .below
            .iter()
            .map(|&node| self.task_model(node))
            .collect::<Result<Vec<_>, NoBound>>()?;
        let longest = mutate!(
            "tree-begun",
            below.iter().map(|model| model.task.cost).max(),
            below.iter().map(|model| model.task.cost).min()
        )
        .unwrap_or(Work::ZERO);
        let kind = if !self.lost.is_zero() {
            TestKind::Sufficient
        } else if longest <= Work::from_ns(1) {
            self.exactness(&nodes)
        } else {
            let is_any = |node: &NodeId| {
                self.task_model(*node).is_ok_and(|model| model.phasing == Phasing::Free)
            };
            let blocks =
                |model: &TaskModel| model.task.cost == longest && model.phasing == Phasing::Free;
            let is_exact = nodes.iter().all(is_any) && below.iter().any(blocks);
            if is_exact { TestKind::Exact } else { TestKind::Sufficient }
        };
        // Time lost before the job starts delays the start like the longest job of the others,
        // once. Time lost after the start adds no more than that.
        let longest = Work::from_ns(mutate!(
            "tree-lost-begins",
            longest.as_ns().max(1).saturating_add(self.lost.as_ns()),
            longest.as_ns().max(1)
        ));
        let found = uni::np_fp::lowest_priority_response(
            &tasks,
            longest,
            &mut uni::Scratch::with_limit(self.step_limit),
        );
        Ok(match found {
            Ok(Some(bound)) => Some((Ok(bound.arrival), kind)),
            Ok(None) => Some((Err(NoBound { node, reason: Reason::Overload }), kind)),
            Err(_) => None,
        })
    }

    /// Returns the longest response of `task` in `context`, by fixed-priority response-time
    /// analysis.
    pub(super) fn response(
        &self,
        node: NodeId,
        task: &Sporadic,
        context: &Context,
    ) -> Result<Span, NoBound> {
        let mut all = context.above.clone();
        all.push(fp::curve(task));
        if is_overload(&all, &context.supply) {
            return Err(NoBound { node, reason: Reason::Overload });
        }
        // On a dedicated CPU this test also recognises an endless busy window that yields nothing
        // new.
        let loss = context.supply.cpu_loss();
        if let Some(lost) = mutate!("tree-full", loss, loss.filter(|_| node == Tree::ROOT)) {
            let blocking = Work::from_ns(task.blocking.as_ns().saturating_add(lost.as_ns()));
            let task = &Sporadic { blocking, ..*task };
            let above = context.above.iter().map(|one| Sporadic {
                jitter: one.jitter,
                ..Sporadic::new(one.cost, one.period, Span::ZERO)
            });
            let tasks: Vec<Sporadic> = above.chain([*task]).collect();
            match uni::fp_response::lowest_priority_response(
                &tasks,
                &mut uni::Scratch::with_limit(self.step_limit),
            ) {
                Ok(Some(bound)) => return Ok(bound.arrival),
                Ok(None) => return Err(NoBound { node, reason: Reason::Overload }),
                Err(_) => {}
            }
        }
        let mut longest = Span::ZERO;
        let mut left = self.iteration_limit(context.above.len());
        let walked =
            fp::for_each_job(task, &context.above, &context.supply, &mut left, |_, bound| {
                longest = longest.max(bound.arrival);
                false
            });
        match walked {
            Ok(()) => Ok(longest),
            Err(Inconclusive::Limit) => Err(NoBound { node, reason: Reason::Limit }),
            Err(why @ (Inconclusive::Assumption { .. } | Inconclusive::Insufficient { .. })) => {
                unreachable!("task models satisfy the assumptions of the test: {why:?}")
            }
        }
    }

    /// Returns the context of `subject`, a task or a server, below the nearest server or the root.
    pub(super) fn context(&mut self, subject: NodeId) -> Result<Context, NoBound> {
        let mut context = self.build_context(subject)?;
        context.blocking =
            context.blocking.saturating_add(self.pending_dispatch_blocking(&context));
        mutate!(
            "tree-lost-server",
            if !self.lost.is_zero() {
                context.supply =
                    context.supply.with_loss(mutate!("tree-lost-supply", self.lost, Span::ZERO));
                context.flat = None;
                // Under EDF the blocking term already counts every started job.
                mutate!(
                    "tree-lost-level",
                    {
                        context.non_preemptive =
                            context.non_preemptive.filter(|_| context.level.is_none());
                    },
                    {}
                );
            },
            if !self.lost.is_zero() && matches!(self.node_spec(subject), NodeSpec::Task(_)) {
                context.supply = context.supply.with_loss(self.lost);
                context.flat = None;
                // Under EDF the blocking term already counts every started job.
                context.non_preemptive = context.non_preemptive.filter(|_| context.level.is_none());
            }
        );
        Ok(context)
    }

    /// Builds the context of `subject` by the rules of [`super`] (*Effective keys*), from the top
    /// of its path downwards.
    fn build_context(&mut self, subject: NodeId) -> Result<Context, NoBound> {
        let mut path = Vec::from([subject]);
        let mut top = subject;
        while let Some(above) = self.parent(top) {
            path.push(above);
            top = above;
            if self.is_supply_boundary(above) {
                break;
            }
        }
        path.reverse();
        let supply = if self.is_supply_boundary(top) && top != subject {
            self.server_supply(top)?
        } else {
            NodeSupply::Dedicated
        };
        let is_flat = matches!(supply, NodeSupply::Dedicated)
            && self.dispatch_cost == 0
            && self.release_interference.is_empty()
            && !self.has_blocking();
        let mut context = Context {
            supply,
            above: self.release_interference.clone(),
            blocking: self.blocking_terms.get(&subject).map_or(0, |term| term.as_ns()),
            level: None,
            flat: is_flat.then(Vec::new),
            non_preemptive: None,
        };
        // Every sibling interferes, whatever its key (rule 5): no subset of the siblings is served
        // before all other nodes.
        let mut all_interfere = false;
        let mut inherited: Option<KeyLevel> = None;
        for step in path.windows(2) {
            let (at, next) = (step[0], step[1]);
            let NodeSpec::Scheduler(spec) = self.node_spec(at) else { continue };
            let others: Vec<NodeId> =
                self.children(at).iter().copied().filter(|&child| child != next).collect();
            if let Some(order) = KeyOrder::of(&spec.policy).filter(|_| !all_interfere) {
                let above = inherited.filter(|level| level.order == order);
                let level =
                    self.collect_key_level((order, above), (next, subject), &others, &mut context)?;
                // Rule 5, inherited level.
                inherited = self.propagates_keys(order, next).then_some(level);
                if inherited.is_none() && self.can_be_overtaken(&level, next)? {
                    all_interfere = next != subject;
                }
                if !spec.preemptive {
                    self.add_non_preemptive_blocking((at, next, subject), &others, &mut context)?;
                }
                continue;
            }
            match &spec.policy {
                PolicySpec::Partitions { frame, slots, lending } => {
                    context.flat = None;
                    self.check_slot_boundaries(at)?;
                    if !matches!(context.supply, NodeSupply::Dedicated) {
                        return Err(NoBound { node: at, reason: Reason::NestedTable });
                    }
                    let owner =
                        self.children(at).iter().position(|&child| child == next).unwrap_or(0);
                    context.supply = NodeSupply::Table(Table::new(*frame, slots, owner as u32));
                    // Rule 5 again: the table passed the level on, the partition may not.
                    if let Some(level) = inherited
                        && !self.propagates_keys(level.order, next)
                    {
                        inherited = None;
                        all_interfere |= next != subject && self.can_be_overtaken(&level, next)?;
                    }
                    if *lending && !context.above.is_empty() {
                        // Time that an interfering node lets the table lend to other partitions is
                        // missing later.
                        for other in others {
                            let curves = self.curves_from_responses(other);
                            let curves =
                                curves.ok_or(NoBound { node: at, reason: Reason::Lending })?;
                            context.above.extend(curves);
                        }
                    }
                }
                PolicySpec::Edf if !all_interfere && self.is_in_edf_level(at, next, subject) => {
                    if !spec.preemptive {
                        let is_flat =
                            context.flat.take().is_some() && self.is_flat_queue(at, next, subject);
                        context.non_preemptive =
                            is_flat.then(|| NonPreemptive { above: Vec::new(), below: others });
                        self.forbid_servers(at)?;
                        // One term for the whole level.
                        let children = self.children(at).to_vec();
                        context.blocking += self.longest_non_preemptive(&children)?;
                    }
                    context.level = Some((at, false));
                    return Ok(context);
                }
                PolicySpec::Fifo if !all_interfere && self.is_flat_queue(at, next, subject) => {
                    if !spec.preemptive {
                        // A job may be released after a job that arrived later and has started.
                        context.flat = None;
                        let children = self.children(at).to_vec();
                        context.blocking += self.longest_non_preemptive(&children)?;
                    }
                    context.level = Some((at, true));
                    return Ok(context);
                }
                _ => {
                    context.flat = None;
                    if !spec.preemptive {
                        self.forbid_servers(at)?;
                    }
                    for &other in &others {
                        self.collect_all_interference(other, &mut context.above)?;
                    }
                    mutate!(
                        "tree-closure",
                        {
                            all_interfere = true;
                        },
                        {}
                    );
                }
            }
        }
        Ok(context)
    }

    /// Adds the interference of `others`, the siblings of `next`, below a scheduler with fixed keys
    /// (rules 1 to 4 of [`super`]). Returns the level at the fixed point.
    fn collect_key_level(
        &mut self,
        (order, inherited): (KeyOrder, Option<KeyLevel>),
        (next, subject): (NodeId, NodeId),
        others: &[NodeId],
        context: &mut Context,
    ) -> Result<KeyLevel, NoBound> {
        // Rules 1 and 2: the effective key, or the inherited level if that is less urgent.
        let effective = self.effective_key(order, next, subject)?;
        let mut key = inherited.map_or(effective, |level| effective.max(level.key));
        let mut least_urgent = inherited.and_then(|level| level.least_urgent);
        // Rule 4, ties: a sibling with a larger number loses against `next`, but perhaps not
        // against an interfering node that can present the same key.
        let mut wins_ties = !order.is_fifo() && least_urgent < Some(effective);
        for &other in others.iter().filter(|&&other| other > next) {
            let range = self.key_range(order, other)?;
            wins_ties &= range.is_none_or(|(most, least)| most >= effective || least < effective);
        }
        // Rule 3, closure: an interfering node must be served before every node that does not
        // interfere, also before those further down the path.
        let siblings = [others, &self.siblings_on_path(order, next, subject)].concat();
        while let Some(least) = self.least_urgent_interfering_key(order, &siblings, key)? {
            least_urgent = least_urgent.max(Some(least));
            if least <= key {
                break;
            }
            key = least;
        }
        for &other in others {
            let strictly = wins_ties && other > next && key == effective;
            // In a FIFO level the order of equals depends on their arrivals.
            let is_tie = order.is_fifo()
                && self
                    .key_range(order, other)?
                    .is_some_and(|(most, least)| most <= key && key <= least);
            let before = context.above.len();
            self.collect_interference(order, other, (key, strictly), &mut context.above)?;
            if !matches!(self.node_spec(other), NodeSpec::Task(_)) || is_tie {
                context.flat = None;
            } else if let Some(flat) = &mut context.flat
                && context.above.len() > before
            {
                flat.push(other);
            }
        }
        if next != subject {
            context.flat = None;
        }
        Ok(KeyLevel { order, key, least_urgent })
    }

    /// Whether other children of `next` can run before an interfering node of `level` (rule 5).
    fn can_be_overtaken(&self, level: &KeyLevel, next: NodeId) -> Result<bool, NoBound> {
        Ok(level.least_urgent >= self.key_range(level.order, next)?.map(|(most, _)| most))
    }

    /// Adds the blocking of a non-preemptive scheduler with fixed keys (rule 6 of [`super`]).
    fn add_non_preemptive_blocking(
        &self,
        (at, next, subject): (NodeId, NodeId, NodeId),
        others: &[NodeId],
        context: &mut Context,
    ) -> Result<(), NoBound> {
        context.non_preemptive = context.flat.take().map(|above| {
            let below = others.iter().copied().filter(|other| !above.contains(other)).collect();
            NonPreemptive { above, below }
        });
        self.forbid_servers(at)?;
        // Jobs of other children of `next` can start while an interfering node waits.
        let started = match &context.non_preemptive {
            Some(non_preemptive) => &non_preemptive.below,
            None if next == subject => others,
            None => self.children(at),
        };
        context.blocking += self.longest_non_preemptive(started)?;
        Ok(())
    }

    /// Whether `node` is a server that determines the supply of its clients.
    fn is_supply_boundary(&self, node: NodeId) -> bool {
        let NodeSpec::Scheduler(spec) = self.node_spec(node) else { return false };
        spec.reservation.as_ref().is_some_and(can_delay_clients)
    }

    /// Whether all schedulers between `at` and `subject` form a single EDF level.
    fn is_in_edf_level(&self, at: NodeId, next: NodeId, subject: NodeId) -> bool {
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
    fn is_flat_queue(&self, at: NodeId, next: NodeId, subject: NodeId) -> bool {
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

    fn is_plain_edf(&self, node: NodeId) -> bool {
        matches!(self.node_spec(node), NodeSpec::Scheduler(spec)
            if matches!(spec.policy, PolicySpec::Edf)
                && spec.reservation.is_none()
                && spec.preemptive)
    }

    fn forbid_servers(&self, at: NodeId) -> Result<(), NoBound> {
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
    fn longest_non_preemptive(&self, nodes: &[NodeId]) -> Result<u64, NoBound> {
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

/// Whether `task` is below a server with a hard budget. Nodes outside the server lose at most the
/// budget, whatever the arrivals of the task are.
fn is_below_hard_server(tree: &Tree, task: NodeId) -> bool {
    tree.ancestors(task).any(|(_, spec)| {
        spec.reservation.as_ref().is_some_and(|of| InterferenceCurve::of_server(of).is_some())
    })
}

/// Whether a server can delay its clients. A soft CBS delays them before its first period, and
/// after a wake-up between D and T.
pub(super) fn can_delay_clients(of: &Reservation) -> bool {
    of.kind != ServerKind::SoftCbs || !of.offset.is_zero() || of.relative_deadline() < of.period
}

/// Whether the long-run demand of `curves` exceeds the rate of `supply`.
pub(super) fn is_overload(curves: &[InterferenceCurve], supply: &impl Supply) -> bool {
    let Some(rate) = supply.rate() else { return false };
    let down =
        |work: Work, every: Span| (u128::from(work.as_ns()) << 63) / u128::from(every.as_ns());
    let asked: u128 = curves.iter().map(|curve| down(curve.cost, curve.period)).sum();
    asked > down(rate.work, rate.every) + 1
}
