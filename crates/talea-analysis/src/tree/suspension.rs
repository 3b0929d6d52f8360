//! Jobs that suspend themselves: flat roots by [`crate::uni::suspension`], trees with suspensions
//! as work.
//!
//! # Flat roots
//!
//! Assumptions:
//! 1. One CPU and a preemptive root that orders by fixed keys or by deadlines, without a server.
//! 2. All other nodes are tasks directly below the root, periodic or sporadic, without graphs,
//!    accelerators, resources, sections and enforced separation.
//! 3. Some task suspends itself.
//!
//! Under fixed keys the bounds of tasks above all suspending tasks are not affected.
//!
//! # Trees
//!
//! Elsewhere suspensions count as work of the task ([`models`]). Let the supply of a level be the
//! time that it may use. While a job of the level is pending, each instant of the supply belongs
//! to the work of a job that is served before all others, or no such job is ready. Then a pending
//! job is suspended, and the instant belongs to its suspension. So the jobs of a busy window
//! account for its whole supply by at most C + S each, as if they never suspended themselves. This
//! needs a supply that the suspensions do not reduce:
//!
//! 1. Slots of a partition depend on time alone, without lending.
//! 2. A deferrable server keeps its budget while its clients are suspended. In each period the
//!    clients consume the budget, or each instant that more urgent siblings leave belongs to a
//!    client. A polling server discards its budget when its clients suspend themselves, and the
//!    periods of sporadic servers and CBS follow their wake-ups: no test is known.
//!
//! Assumptions:
//! 1. One CPU, preemptive schedulers by fixed keys, EDF or partitions without lending, and
//!    deferrable servers in schedulers by fixed keys, none within another.
//! 2. No graphs, accelerators, resources, sections, overheads, stalls and losses.
//! 3. The suspending task is periodic or sporadic, without enforced separation.

use super::flat::FlatBounds;
use super::model::Model;
use super::priority_keys::KeyOrder;
use super::root_model::RootModel;
use super::task_bound::{NoBound, Reason};
use super::task_model::{Phasing, TaskModel};
use crate::Sporadic;
use crate::test_info::TestKind;
use crate::uni::suspension::{Suspending, edf_bounds, fp_bounds};
use crate::uni::{MAX_PARAMETER_NS, Scratch};
use alloc::vec::Vec;
use talea_core::engine::{Node, NodeId, NodeSpec, Preemption, TaskSpec, Tree};
use talea_core::mutate;
use talea_core::sched::PolicySpec;
use talea_core::server::ServerKind;
use talea_core::workload::{Arrivals, Cost, Overheads, Source, StepAction};
use talea_core::{Span, Work};

/// Returns the bounds of the tasks that suspensions delay; `None` for a root that is not covered.
pub(super) fn bounds(model: &Model<'_>) -> Option<FlatBounds> {
    let NodeSpec::Scheduler(root) = model.node_spec(Tree::ROOT) else { return None };
    let order = KeyOrder::of(&root.policy);
    let nodes = model.tasks();
    if model.tree.cpus > 1
        || !root.preemptive
        || root.reservation.is_some()
        || !(order.is_some() || matches!(root.policy, PolicySpec::Edf))
        || !model.tree.channels.is_empty()
        || model.tree.nodes().count() != nodes.len() + 1
    {
        return None;
    }
    let mut tasks: Vec<(NodeId, Suspending)> = Vec::new();
    for (&node, source) in nodes.iter().zip(model.sources) {
        let NodeSpec::Task(spec) = model.node_spec(node) else { return None };
        let mut task = read(spec, source)?;
        if let Some(order) = order {
            let key = model.key_range(order, node).ok()??.0;
            // Numbers order equal keys, except in a FIFO level.
            let number = if order.is_fifo() { 0 } else { u64::from(node.0) };
            task.level = key.checked_mul(1 << 20)?.checked_add(number)?;
        }
        tasks.push((node, task));
    }
    let first = tasks.iter().filter(|(_, task)| !task.suspension.is_zero());
    let first = first.map(|(_, task)| task.level).min()?;
    tasks.sort_by_key(|(_, task)| task.level);
    let set: Vec<Suspending> = tasks.iter().map(|&(_, task)| task).collect();
    let scratch = &mut Scratch::with_limit(model.step_limit);
    let found = if order.is_some() { fp_bounds(&set, scratch) } else { edf_bounds(&set, scratch) };
    let of = |(at, (node, task)): (usize, (NodeId, Suspending))| {
        let no = |reason| Err(NoBound { node, reason });
        let bound = match &found {
            // A suspension is no demand, so that the overload of the test proves nothing.
            Ok(bounds) => bounds[at].map_or_else(|| no(Reason::Insufficient), Ok),
            Err(_) => no(Reason::Limit),
        };
        (task.level >= first).then_some((node, (bound, TestKind::Sufficient)))
    };
    Some(tasks.into_iter().enumerate().filter_map(of).collect())
}

/// Returns the models of the suspending tasks of a tree with their suspensions as work; empty for a
/// tree that is not covered.
pub(super) fn models(of: &RootModel<'_>) -> Vec<(NodeId, TaskModel)> {
    let tree = of.tree;
    let is_covered = |(id, node): (NodeId, &Node)| match &node.spec {
        NodeSpec::Task(spec) => spec.uses.is_empty() && is_plain(spec),
        NodeSpec::Scheduler(spec) => {
            let is_ordered = match &spec.policy {
                PolicySpec::Partitions { lending, .. } => !lending,
                policy => KeyOrder::of(policy).is_some() || matches!(policy, PolicySpec::Edf),
            };
            let is_server_covered = spec.reservation.as_ref().is_none_or(|server| {
                let above: Vec<_> = tree.ancestors(id).map(|(_, above)| above).collect();
                let by_key = above.first().is_some_and(|of| KeyOrder::of(&of.policy).is_some());
                let is_kept = server.kind == ServerKind::Deferrable;
                mutate!("tree-suspension-server", is_kept, true)
                    && by_key
                    && above.iter().all(|above| above.reservation.is_none())
            });
            spec.preemptive && is_ordered && is_server_covered
        }
    };
    if tree.cpus > 1
        || !tree.channels.is_empty()
        || !tree.resources.is_empty()
        || !of.stalls.is_empty()
        || !of.lost.is_zero()
        || of.overheads != Overheads::default()
        || of.sources.iter().any(|source| source.cost.sleeps_with_cpu())
        || !tree.nodes().all(is_covered)
    {
        return Vec::new();
    }
    let tasks = tree.nodes().filter_map(|(id, node)| match &node.spec {
        NodeSpec::Task(spec) => Some((id, spec)),
        NodeSpec::Scheduler(_) => None,
    });
    let model = |((id, spec), source): ((NodeId, &TaskSpec), &Source)| {
        let read = read(spec, source).filter(|read| !read.suspension.is_zero())?;
        let cost = read.task.cost.as_ns().checked_add(mutate!(
            "tree-suspension-work",
            read.suspension.as_ns(),
            0
        ))?;
        let task = Sporadic { cost: Work::from_ns(cost), ..read.task };
        (cost < MAX_PARAMETER_NS).then_some((id, TaskModel { task, phasing: Phasing::Unknown }))
    };
    tasks.zip(of.sources).filter_map(model).collect()
}

/// Whether jobs need nothing but the CPU.
fn is_plain(spec: &TaskSpec) -> bool {
    !spec.inherits
        && spec.preemption == Preemption::Anywhere
        && spec.versions.iter().all(|version| version.accelerators.is_empty())
}

/// Returns the model of a task; `None` if the test does not cover it.
fn read(spec: &TaskSpec, source: &Source) -> Option<Suspending> {
    let is_plain = spec.uses.is_empty() && !spec.enforced && is_plain(spec) && !source.is_endless();
    let (period, jitter) = match source.arrivals {
        Arrivals::Periodic { period, jitter, .. } => (period, jitter),
        Arrivals::Sporadic { separation, .. } => (separation, Span::ZERO),
        _ => return None,
    };
    let cost = source.cost.max().max(Work::from_ns(1));
    let suspension = longest_suspension(&source.cost)?;
    let numbers = [period, jitter, spec.deadline, suspension, Span::from_ns(cost.as_ns())];
    if !is_plain || period.is_zero() || numbers.iter().any(|of| of.as_ns() >= MAX_PARAMETER_NS) {
        return None;
    }
    let task = Sporadic { jitter, ..Sporadic::new(cost, period, spec.deadline) };
    Some(Suspending { task, suspension, level: 0 })
}

/// Returns the longest suspension of a job in total; `None` if jobs have other steps.
fn longest_suspension(cost: &Cost) -> Option<Span> {
    let of_version = |cost: &Cost| {
        let Cost::WithSteps { steps, .. } = cost else { return Some(Span::ZERO) };
        steps.iter().try_fold(Span::ZERO, |sum, step| match step.action {
            StepAction::Suspend(length) => {
                mutate!("tree-suspension-sum", sum.checked_add(length), Some(sum.max(length)))
            }
            _ => None,
        })
    };
    cost.by_version()
        .into_iter()
        .map(of_version)
        .try_fold(Span::ZERO, |most, of| Some(most.max(of?)))
}
