//! Flat roots with jobs that suspend themselves: each task by [`crate::uni::suspension`].
//!
//! Assumptions:
//! 1. One CPU and a preemptive root that orders by fixed keys or by deadlines, without a server.
//! 2. All other nodes are tasks directly below the root, periodic or sporadic, without graphs,
//!    accelerators, resources, sections and enforced separation.
//! 3. Some task suspends itself.
//!
//! Under fixed keys the bounds of tasks above all suspending tasks are not affected.

use super::flat::FlatBounds;
use super::model::Model;
use super::priority_keys::KeyOrder;
use super::task_bound::{NoBound, Reason};
use crate::Sporadic;
use crate::test_info::TestKind;
use crate::uni::suspension::{Suspending, edf_bounds, fp_bounds};
use crate::uni::{MAX_PARAMETER_NS, Scratch};
use alloc::vec::Vec;
use talea_core::engine::{NodeId, NodeSpec, Preemption, TaskSpec, Tree};
use talea_core::mutate;
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, Cost, Source, StepAction};
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

/// Returns the model of a task; `None` if the test does not cover it.
fn read(spec: &TaskSpec, source: &Source) -> Option<Suspending> {
    let is_plain = spec.uses.is_empty()
        && !spec.enforced
        && !spec.inherits
        && spec.preemption == Preemption::Anywhere
        && spec.versions.iter().all(|version| version.accelerators.is_empty())
        && !source.is_endless();
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
