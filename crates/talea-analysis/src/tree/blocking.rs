//! Second pass: blocking by shared resources, where a test covers it.

use super::model::Model;
use super::priority_keys::KeyOrder;
use super::task_bound::{NoBound, Reason};
use crate::uni::protocols::{self, Section};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use talea_core::Work;
use talea_core::engine::{NodeId, NodeSpec, Protocol, Tree};
use talea_core::mutate;
use talea_core::sched::PolicySpec;
use talea_core::workload::{Cost, JobStep, Source, StepAction};

/// Effect of the resources on the tasks. Empty without resources.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocking {
    /// Blocking term B of every task that can be blocked.
    terms: BTreeMap<NodeId, Work>,
    /// Tasks that may find a resource held only after they have started. The ceiling of the
    /// resource equals the key of its most urgent user, or a raised ceiling equals the key of a job
    /// that arrives at that moment. If jobs with equal keys are ordered by number, the arriving job
    /// may run first, up to its lock, and then block. This occurs once per job, because the holder
    /// then runs until it unlocks.
    blocked_late: Vec<NodeId>,
    /// Resource use that no test covers: no task has a bound, except for those in `unaffected`.
    pub(super) uncovered: Option<NoBound>,
    /// Tasks that no holder and no waiter of a resource can delay.
    unaffected: Vec<NodeId>,
}

impl Blocking {
    /// Returns the blocking of the tasks of a model.
    pub(super) fn of(model: &Model<'_>) -> Blocking {
        read(model).unwrap_or_else(|no| Blocking {
            uncovered: Some(no),
            unaffected: unaffected(model),
            ..Blocking::default()
        })
    }

    /// Checks that the use of resources by other tasks leaves a bound of `node` possible.
    pub(super) fn check(&self, node: NodeId) -> Result<(), NoBound> {
        match &self.uncovered {
            Some(no) if !self.unaffected.contains(&node) => Err(no.clone()),
            _ => Ok(()),
        }
    }

    /// Whether resources block any task. The blocking term differs from task to task.
    pub(super) fn has_terms(&self) -> bool {
        !self.terms.is_empty()
    }

    /// Returns the blocking term of `task` in nanoseconds.
    pub(super) fn term(&self, task: NodeId) -> u64 {
        self.terms.get(&task).map_or(0, |term| term.as_ns())
    }
}

impl Model<'_> {
    /// Adds the dispatch orders to the holder and back to the costs of the tasks that may find a
    /// resource held only after they have started.
    pub(super) fn charge_late_blocking(&mut self, blocking: &Blocking) {
        for node in &blocking.blocked_late {
            if let Some(Ok(model)) = self.task_models.get_mut(node) {
                let orders = 2 * self.dispatch_cost;
                model.task.cost = Work::from_ns(model.task.cost.as_ns().saturating_add(orders));
            }
        }
    }
}

/// Returns the tasks of a flat root by fixed keys that are more urgent than every user of a
/// resource. Under each protocol a holder has at most the urgency of the most urgent user, so that
/// these tasks are served as if there were no resources.
fn unaffected(model: &Model<'_>) -> Vec<NodeId> {
    let tasks = model.tasks();
    let NodeSpec::Scheduler(root) = model.node_spec(Tree::ROOT) else { return Vec::new() };
    let is_child = |&task: &NodeId| model.parent(task) == Some(Tree::ROOT);
    let (Some(order), true) = (KeyOrder::of(&root.policy), tasks.iter().all(is_child)) else {
        return Vec::new();
    };
    // Orders of waiting jobs cost time of every task.
    let pays = model.has_overheads;
    if pays || !root.preemptive || root.reservation.is_some() || model.tree.cpus > 1 {
        return Vec::new();
    }
    let key = |task: NodeId| model.key_range(order, task).ok().flatten().map(|range| range.0);
    let users = tasks.iter().zip(model.sources).filter(|(_, source)| locks(&source.cost));
    let most_urgent = users.map(|(&task, _)| key(task).unwrap_or(0)).min();
    let is_above = |&task: &NodeId| {
        mutate!("tree-unaffected", key(task) < most_urgent, true) && key(task).is_some()
    };
    tasks.into_iter().filter(is_above).collect()
}

/// Returns the blocking terms of a tree, or the node whose resource use no test covers.
fn read(model: &Model<'_>) -> Result<Blocking, NoBound> {
    let tree = model.tree;
    let tasks = model.tasks();
    let users: Vec<(NodeId, &Source)> = (tasks.iter().copied().zip(model.sources))
        .filter(|(_, source)| locks(&source.cost))
        .collect();
    let Some(&(first, _)) = users.first() else { return Ok(Blocking::default()) };
    let no = |node| NoBound { node, reason: Reason::Resources };
    let Some(NodeSpec::Scheduler(root)) = tree.get(Tree::ROOT).map(|node| &node.spec) else {
        return Err(no(first));
    };
    let order = KeyOrder::of(&root.policy);
    let is_edf = matches!(root.policy, PolicySpec::Edf);
    // A task that suspends itself or has unknown arrivals delays every task if it holds resources.
    // Under fixed priorities a task without resources delays only tasks of lower priority.
    let in_the_way = |task: &&NodeId| is_edf || users.iter().any(|(user, _)| user == *task);
    if let Some(no) = tasks.iter().filter(in_the_way).find_map(|&task| model.task_model(task).err())
    {
        return Err(no);
    }
    let flat = tasks.iter().all(|&task| model.parent(task) == Some(Tree::ROOT));
    if !flat
        || !root.preemptive
        || root.reservation.is_some()
        || tree.cpus > 1
        || (order.is_none() && !is_edf)
    {
        return Err(no(first));
    }
    // A job that is released late has less than D left, and preemption levels by D do not account
    // for that.
    let is_late =
        |task: &NodeId| model.task_model(*task).is_ok_and(|leaf| !leaf.task.jitter.is_zero());
    if is_edf && tasks.iter().any(is_late) {
        return Err(no(first));
    }
    // Ranks, most urgent first. The terms cannot distinguish equals.
    let mut ranked = Vec::new();
    for &task in &tasks {
        let key = match order {
            Some(order) => model.key_range(order, task)?.map_or(u64::MAX, |range| range.0),
            None => model.task_model(task)?.task.deadline.as_ns(),
        };
        ranked.push((key, task));
    }
    ranked.sort_unstable();
    let is_tied = ranked.windows(2).any(|two| two[0].0 == two[1].0);
    // A ceiling that equals a key places its holder beside that task, on either side of it.
    if is_tied && order.is_some() {
        return Err(no(first));
    }
    let mut sections = Vec::new();
    let mut inherits = false;
    for &(node, source) in &users {
        let rank = ranked.iter().position(|&(_, task)| task == node).unwrap_or(0);
        // A job has one version. The sections of all versions are at least as many as those of the
        // chosen one.
        for cost in source.cost.by_version() {
            let Cost::WithSteps { steps, .. } = cost else { continue };
            inherits |= sections_of(model, (node, rank), steps, is_edf, &mut sections)?;
        }
    }
    let contiguous =
        sections.iter().find(|section| section.is_contiguous).map(|section| ranked[section.task].1);
    // Between contiguous sections a more urgent job can start and then wait for the next section:
    // one wait more than the terms count.
    if let (true, Some(node)) =
        mutate!("tree-floor", (is_edf, contiguous), (is_edf && inherits, contiguous))
    {
        return Err(no(node));
    }
    let queues = order.is_some_and(KeyOrder::is_fifo);
    // Each wait for a holder costs two more orders; no test bounds how often more urgent tasks wait
    // for each other.
    if model.has_dispatch_cost()
        && (mutate!("tree-inheritance-orders", inherits, inherits && is_edf)
            || (contiguous.is_some() && !queues))
    {
        return Err(NoBound { node: contiguous.unwrap_or(first), reason: Reason::Overheads });
    }
    let terms = if is_edf {
        protocols::non_preemptive(tasks.len(), &sections)
    } else if inherits {
        protocols::inheritance(tasks.len(), &sections).ok_or_else(|| no(first))?
    } else {
        protocols::ceiling(tasks.len(), &sections)
    };
    let with = ranked.iter().map(|&(_, task)| task).zip(terms);
    let late = users
        .iter()
        .filter(|_| mutate!("tree-late-orders", !queues, queues))
        .map(|&(task, _)| task)
        .collect();
    Ok(Blocking {
        terms: with
            .filter(|(_, term)| mutate!("tree-resources", !term.is_zero(), term.is_zero()))
            .collect(),
        blocked_late: late,
        ..Blocking::default()
    })
}

/// Whether jobs lock a resource, in some version.
fn locks(cost: &Cost) -> bool {
    mutate!(
        "analysis-version-sections",
        cost.by_version().into_iter().any(has_lock),
        core::iter::once(cost).any(has_lock)
    )
}

/// Whether a job of this version locks a resource.
fn has_lock(cost: &Cost) -> bool {
    let Cost::WithSteps { steps, .. } = cost else { return false };
    steps.iter().any(|step| matches!(step.action, StepAction::Lock(_)))
}

/// Appends the critical sections of a job of `node`. Returns whether a resource of these sections
/// has priority inheritance.
fn sections_of(
    model: &Model<'_>,
    (node, rank): (NodeId, usize),
    steps: &[JobStep],
    is_edf: bool,
    sections: &mut Vec<Section>,
) -> Result<bool, NoBound> {
    let no = NoBound { node, reason: Reason::Resources };
    let mut inherits = false;
    let (mut held, mut left) = (None, None);
    for step in steps {
        match (&step.action, held) {
            (StepAction::Lock(resource), None) => held = Some((*resource, step.at)),
            (StepAction::Unlock(resource), Some((which, from))) if *resource == which => {
                let length = step.at.checked_sub(from).unwrap_or(Work::ZERO);
                let is_contiguous = left == Some(mutate!("tree-touching", from, Work::ZERO));
                sections.push(Section {
                    task: rank,
                    resource: which.0 as usize,
                    length,
                    is_contiguous,
                });
                (held, left) = (None, Some(step.at));
                match model.tree.resources[which.0 as usize].protocol {
                    Protocol::Ceiling => {}
                    Protocol::Inheritance if !is_edf => inherits = true,
                    _ => return Err(no),
                }
            }
            (StepAction::Lock(_) | StepAction::Unlock(_), _) => return Err(no),
            _ => {}
        }
    }
    if held.is_some() { Err(no) } else { Ok(inherits) }
}
