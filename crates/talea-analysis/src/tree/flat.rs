//! Flat roots with arrival curves or limited preemption: each task by a test of [`crate::uni`].
//!
//! Assumptions:
//! 1. One CPU. The root orders by fixed keys or by deadlines, and has no server.
//! 2. All other nodes are tasks directly below the root, without graphs, accelerators and
//!    resources.
//! 3. Some task has an arrival curve, preemption points or floating sections.
//!
//! | root | arrivals | test |
//! | --- | --- | --- |
//! | fixed keys, all distinct | periods | [`limited_fp`] |
//! | fixed keys | curves, or equal keys | [`curve_response`] |
//! | EDF | periods | [`limited_edf`] |
//! | EDF | curves, no jitter of periods | [`curve_response`] |
//!
//! *Exact* under fixed keys, if all tasks at and above the priority of the task can arrive together
//! and then as densely as they may, if each is preemptive or non-preemptive, and if no section
//! blocks the task; otherwise *sufficient*.

use super::model::Model;
use super::priority_keys::KeyOrder;
use super::task_bound::{NoBound, Reason};
use super::task_model::{Phasing, TaskModel, read_task};
use crate::Sporadic;
use crate::test_info::{TestInfo, TestKind};
use crate::uni::curve_response::{self, CurveTask};
use crate::uni::{self, Bound, Scratch, Sections, limited_edf, limited_fp};
use crate::verdict::Inconclusive;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use talea_core::engine::{NodeId, NodeSpec, Preemption, TaskSpec, Tree};
use talea_core::mutate;
use talea_core::sched::PolicySpec;
use talea_core::workload::distances::DistanceFunction;
use talea_core::workload::{Arrivals, Cost, JobStep, Source, StepAction};
use talea_core::{Span, Work};

/// Bound of each task, with its kind.
pub(super) type FlatBounds = BTreeMap<NodeId, (Result<Span, NoBound>, TestKind)>;

/// Task of a flat root.
struct FlatTask<'a> {
    node: NodeId,
    model: TaskModel,
    curve: Option<&'a DistanceFunction>,
    sections: Sections,
    /// Key with the number of the task, if numbers order equal keys; the smallest is most urgent.
    key: (u64, u32),
}

impl FlatTask<'_> {
    /// Whether the sections are those of a preemptive or a non-preemptive job.
    fn is_plain(&self) -> bool {
        let sections = self.sections;
        sections == Sections::PREEMPTIVE || sections == Sections::whole(&self.model.task)
    }

    fn arrivals(&self) -> uni::Arrivals<'_> {
        let task = &self.model.task;
        match self.curve {
            Some(distances) => uni::Arrivals::Distances(distances),
            None => uni::Arrivals::Periodic { period: task.period, jitter: task.jitter },
        }
    }
}

/// Returns the bounds of a flat root; `None` for other roots, and if no task has a curve or
/// sections.
pub(super) fn bounds(model: &Model<'_>) -> Option<(FlatBounds, &'static TestInfo)> {
    let NodeSpec::Scheduler(root) = model.node_spec(Tree::ROOT) else { return None };
    let keys = KeyOrder::of(&root.policy);
    let is_edf = matches!(root.policy, PolicySpec::Edf);
    let has_extras = |(node, source): (NodeId, &Source)| {
        let NodeSpec::Task(spec) = model.node_spec(node) else { return false };
        spec.preemption != Preemption::Anywhere || matches!(source.arrivals, Arrivals::Curve { .. })
    };
    let nodes = model.tasks();
    if model.tree.cpus > 1
        || root.reservation.is_some()
        || (keys.is_none() && !is_edf)
        || nodes.iter().any(|&node| model.parent(node) != Some(Tree::ROOT))
        || model.tree.nodes().count() != nodes.len() + 1
        || !nodes.iter().copied().zip(model.sources).any(has_extras)
    {
        return None;
    }
    let read = |(&node, source)| read(model, node, source, root.preemptive);
    let mut tasks = nodes.iter().zip(model.sources).map(read).collect::<Option<Vec<_>>>()?;
    let curves = tasks.iter().any(|task| task.curve.is_some());
    let Some(order) = keys else {
        let is_late = |task: &FlatTask<'_>| !task.model.task.jitter.is_zero();
        if curves && mutate!("tree-flat-jitter", tasks.iter().any(is_late), false) {
            return None;
        }
        return Some(by_deadline(model, &tasks, curves));
    };
    for task in &mut tasks {
        let key = model.key_range(order, task.node).ok()??.0;
        task.key = (key, if order.is_fifo() { 0 } else { task.node.0 });
    }
    tasks.sort_by_key(|task| task.key);
    let has_ties = tasks.windows(2).any(|two| two[0].key == two[1].key);
    Some(by_keys(model, &tasks, curves || has_ties))
}

/// Returns the model of a task; `None` for a task that the tests do not cover.
fn read<'a>(
    model: &Model<'a>,
    node: NodeId,
    source: &'a Source,
    preemptive: bool,
) -> Option<FlatTask<'a>> {
    let NodeSpec::Task(spec) = model.node_spec(node) else { return None };
    if !spec.uses.is_empty() {
        return None;
    }
    let (arrivals, curve, is_densest) = match &source.arrivals {
        Arrivals::Curve { offset, distances, extra_delay } => {
            let period = distances.mean_distance();
            let dense = Arrivals::Periodic { offset: *offset, period, jitter: Span::ZERO };
            let is_densest = extra_delay.is_zero() && distances.is_exact();
            (dense, Some(&**distances), is_densest && !spec.enforced)
        }
        arrivals => (arrivals.clone(), None, true),
    };
    let plain = Source { arrivals, cost: without_sections(&source.cost) };
    let mut read = read_task(model.tree, node, spec, &plain).ok()?;
    if !is_densest {
        read.phasing = Phasing::Unknown;
    }
    let sections = if preemptive {
        sections(spec, &source.cost, read.task.cost)?
    } else {
        Sections::whole(&read.task)
    };
    Some(FlatTask { node, model: read, curve, sections, key: (0, 0) })
}

/// Returns a cost without its preemption points and floating sections.
fn without_sections(cost: &Cost) -> Cost {
    match cost {
        Cost::Versions(costs) => Cost::Versions(costs.iter().map(without_sections).collect()),
        Cost::WithSteps { base, steps } => {
            let is_other = |step: &&JobStep| {
                !matches!(
                    step.action,
                    StepAction::PreemptionPoint | StepAction::FloatingSections { .. }
                )
            };
            let steps: Vec<JobStep> = steps.iter().filter(is_other).cloned().collect();
            if steps.is_empty() {
                (**base).clone()
            } else {
                Cost::WithSteps { base: base.clone(), steps }
            }
        }
        cost => cost.clone(),
    }
}

/// Returns the longest section of the jobs, and the shortest last section of the longest job of
/// each version. A shorter job begins its last section earlier by at least as much as it is
/// shorter.
fn sections(spec: &TaskSpec, cost: &Cost, most: Work) -> Option<Sections> {
    let (mut longest, mut last) = (1, u64::MAX);
    for version in cost.by_version() {
        let own = version.max().as_ns().max(1);
        let steps: &[JobStep] = match version {
            Cost::WithSteps { steps, .. } => steps,
            _ => &[],
        };
        let (own_longest, own_last) = match spec.preemption {
            Preemption::Anywhere => (1, 1),
            Preemption::AtPoints => {
                let is_point = |step: &&JobStep| matches!(step.action, StepAction::PreemptionPoint);
                let points = steps.iter().filter(is_point).map(|step| step.at.as_ns());
                let (mut begin, mut longest) = (0, 0);
                for point in points.filter(|&point| 0 < point && point < own) {
                    longest = longest.max(point - begin);
                    begin = point;
                }
                (longest.max(own - begin), own - begin)
            }
            Preemption::Floating => steps.iter().find_map(|step| match step.action {
                StepAction::FloatingSections { longest, last } => {
                    let last = last.as_ns().clamp(1, own);
                    Some((longest.as_ns().clamp(last, own), last))
                }
                _ => None,
            })?,
        };
        longest = longest.max(own_longest);
        last = last.min(own_last);
    }
    let longest = longest.min(most.as_ns());
    Some(Sections { longest: Work::from_ns(longest), last: Work::from_ns(last.min(longest)) })
}

/// Returns the bounds under EDF.
fn by_deadline(
    model: &Model<'_>,
    tasks: &[FlatTask<'_>],
    curves: bool,
) -> (FlatBounds, &'static TestInfo) {
    let info = if curves { &curve_response::INFO } else { &limited_edf::INFO };
    let found = if curves {
        curve_response::edf_bounds(&curve_tasks(tasks), model.step_limit)
    } else {
        let plain: Vec<Sporadic> = tasks.iter().map(|task| task.model.task).collect();
        let mut out = vec![None; tasks.len()];
        let scratch = &mut Scratch::with_limit(model.step_limit);
        limited_edf::bounds(&plain, |at| tasks[at].sections, scratch, &mut out)
            .map(|_| arrivals_of(&out))
    };
    (collect(tasks, &found, |_| TestKind::Sufficient), info)
}

/// Returns the bounds of `tasks` under fixed keys, most urgent first.
fn by_keys(
    model: &Model<'_>,
    tasks: &[FlatTask<'_>],
    curves: bool,
) -> (FlatBounds, &'static TestInfo) {
    let info = if curves { &curve_response::INFO } else { &limited_fp::INFO };
    let found = if curves {
        let late = |(bound, task): (Option<Span>, &FlatTask<'_>)| {
            let jitter = if task.curve.is_some() { Span::ZERO } else { task.model.task.jitter };
            bound.and_then(|bound| bound.checked_add(jitter))
        };
        curve_response::fp_bounds(&curve_tasks(tasks), model.step_limit)
            .map(|bounds| bounds.into_iter().zip(tasks).map(late).collect())
    } else {
        let plain: Vec<Sporadic> = tasks.iter().map(|task| task.model.task).collect();
        let mut out = vec![None; tasks.len()];
        let scratch = &mut Scratch::with_limit(model.step_limit);
        limited_fp::bounds(&plain, |at| tasks[at].sections, scratch, &mut out)
            .map(|_| arrivals_of(&out))
    };
    let kind = |at: usize| {
        let (served_before, below) = tasks.split_at(at + 1);
        let mut together = None;
        let is_together = served_before.iter().all(|task| match task.model.phasing {
            Phasing::Free => true,
            // The jitter of a period counts in another way than a curve.
            Phasing::Fixed { jitter, .. } if curves && !jitter.is_zero() => false,
            fixed @ Phasing::Fixed { .. } => *together.get_or_insert(fixed) == fixed,
            Phasing::Unknown => false,
        });
        let is_blocked = below
            .iter()
            .any(|task| task.sections.longest > Work::from_ns(1) || task.key == tasks[at].key);
        let has_tie = at > 0 && tasks[at - 1].key == tasks[at].key;
        let is_plain = served_before.iter().all(FlatTask::is_plain);
        if mutate!("tree-flat-exact", is_together && !is_blocked && !has_tie, is_together)
            && is_plain
        {
            TestKind::Exact
        } else {
            TestKind::Sufficient
        }
    };
    (collect(tasks, &found, kind), info)
}

fn curve_tasks<'t>(tasks: &'t [FlatTask<'_>]) -> Vec<CurveTask<'t>> {
    let mut level = 0;
    let mut before = tasks.first().map(|task| task.key);
    let one = |task: &'t FlatTask<'_>| {
        if before.replace(task.key) != Some(task.key) {
            level += 1;
        }
        CurveTask {
            cost: task.model.task.cost,
            deadline: task.model.task.deadline,
            arrivals: task.arrivals(),
            sections: task.sections,
            level,
        }
    };
    tasks.iter().map(one).collect()
}

fn arrivals_of(out: &[Option<Bound>]) -> Vec<Option<Span>> {
    out.iter().map(|bound| bound.map(|bound| bound.arrival)).collect()
}

/// Returns the results by node.
fn collect(
    tasks: &[FlatTask<'_>],
    found: &Result<Vec<Option<Span>>, Inconclusive>,
    kind: impl Fn(usize) -> TestKind,
) -> FlatBounds {
    let of = |(at, task): (usize, &FlatTask<'_>)| {
        let no = |reason| Err(NoBound { node: task.node, reason });
        let bound = match found {
            Ok(bounds) => bounds[at].map_or_else(|| no(Reason::Overload), Ok),
            Err(_) => no(Reason::Limit),
        };
        (task.node, (bound, kind(at)))
    };
    tasks.iter().enumerate().map(of).collect()
}
