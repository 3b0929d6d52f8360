//! Blocking from shared resources, where a test knows it.

use super::answer::{NoTest, Reason};
use super::keys::Order;
use super::walk::Walk;
use crate::uni::protocols::{self, Section};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use talea_core::Work;
use talea_core::machine::{Body, NodeId, Protocol, Tree};
use talea_core::mutate;
use talea_core::sched::Policy;
use talea_core::workload::{Act, Cost, Mark, Source};

/// What resources do to tasks. Nothing without them.
#[derive(Default)]
pub(super) struct Blocking {
    /// The B of every task that can be blocked.
    pub(super) terms: BTreeMap<NodeId, Work>,
    /// Those that may find out only when they run that somebody holds what they want. A ceiling
    /// equals the key of the most urgent user, and a floor that of one who arrives as it is fixed:
    /// where equals are ordered by number, he may come first, runs up to where he locks, and waits.
    /// Once for each job, for then the holder goes on until he gives it back.
    pub(super) late: Vec<NodeId>,
}

/// What the resources of a tree do.
pub(super) fn blocking(walk: &Walk<'_>, sources: &[Source]) -> Result<Blocking, NoTest> {
    let tree = walk.tree;
    let tasks = walk.tasks();
    let users: Vec<(NodeId, &Source)> =
        (tasks.iter().copied().zip(sources)).filter(|(_, source)| locks(&source.cost)).collect();
    let Some(&(first, _)) = users.first() else { return Ok(Blocking::default()) };
    let no = |node| NoTest { node, reason: Reason::Resources };
    let Some(Body::Scheduler(root)) = tree.get(Tree::ROOT).map(|node| &node.body) else {
        return Err(no(first));
    };
    let order = Order::of(&root.policy);
    let is_edf = matches!(root.policy, Policy::Edf);
    // Who suspends itself while it holds something, or comes whenever it likes, is in everybody's
    // way; under fixed priorities who holds nothing is in that of those below him only.
    let in_the_way = |task: &&NodeId| is_edf || users.iter().any(|(user, _)| user == *task);
    if let Some(no) = tasks.iter().filter(in_the_way).find_map(|&task| walk.leaf(task).err()) {
        return Err(no);
    }
    let flat = tasks.iter().all(|&task| walk.parent(task) == Some(Tree::ROOT));
    if !flat
        || !root.preemptive
        || root.reservation.is_some()
        || tree.cpus > 1
        || (order.is_none() && !is_edf)
    {
        return Err(no(first));
    }
    // A job that is released late has less than D to go, and the levels of D say nothing of it.
    let is_late = |task: &NodeId| walk.leaf(*task).is_ok_and(|leaf| !leaf.task.jitter.is_zero());
    if is_edf && tasks.iter().any(is_late) {
        return Err(no(first));
    }
    // Ranks: the most urgent first; equals can't be told apart by the terms.
    let mut ranked = Vec::new();
    for &task in &tasks {
        let key = match order {
            Some(order) => walk.range(order, task)?.map_or(u64::MAX, |range| range.0),
            None => walk.leaf(task)?.task.deadline.as_ns(),
        };
        ranked.push((key, task));
    }
    ranked.sort_unstable();
    let is_tied = ranked.windows(2).any(|two| two[0].0 == two[1].0);
    // A ceiling that equals a key puts its holder beside that task, on either side of it.
    if is_tied && order.is_some() {
        return Err(no(first));
    }
    let mut sections = Vec::new();
    let mut inherits = false;
    for &(node, source) in &users {
        let rank = ranked.iter().position(|&(_, task)| task == node).unwrap_or(0);
        // A job has one version: the sections of all of them are as many as it may have, and more.
        for cost in source.cost.by_version() {
            let Cost::Marked { marks, .. } = cost else { continue };
            inherits |= sections_of(walk, (node, rank), marks, is_edf, &mut sections)?;
        }
    }
    let touching =
        sections.iter().find(|section| section.touches).map(|section| ranked[section.task].1);
    // Somebody more urgent comes in as the floor is moved, and waits for the next section: that is
    // one wait more than these terms know.
    if let (true, Some(node)) =
        mutate!("tree-floor", (is_edf, touching), (is_edf && inherits, touching))
    {
        return Err(no(node));
    }
    let queues = order.is_some_and(Order::is_fifo);
    // Each wait for a holder is two orders more, and how often the more urgent wait for each other
    // no test here knows.
    if walk.pays_orders()
        && (mutate!("tree-inheritance-orders", inherits, inherits && is_edf)
            || (touching.is_some() && !queues))
    {
        return Err(NoTest { node: touching.unwrap_or(first), reason: Reason::Overheads });
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
        late,
    })
}

/// Whether its jobs lock anything, in some version.
fn locks(cost: &Cost) -> bool {
    mutate!("analysis-version-sections", cost.by_version().into_iter().any(|cost| {
        matches!(cost, Cost::Marked { marks, .. } if marks.iter().any(|mark| matches!(mark.act, Act::Lock(_))))
    }), core::iter::once(cost).any(|cost| {
        matches!(cost, Cost::Marked { marks, .. } if marks.iter().any(|mark| matches!(mark.act, Act::Lock(_))))
    }))
}

/// The sections of a job of `node`, and whether one is of a resource with inheritance.
fn sections_of(
    walk: &Walk<'_>,
    (node, rank): (NodeId, usize),
    marks: &[Mark],
    is_edf: bool,
    sections: &mut Vec<Section>,
) -> Result<bool, NoTest> {
    let no = NoTest { node, reason: Reason::Resources };
    let mut inherits = false;
    let (mut held, mut left) = (None, None);
    for mark in marks {
        match (&mark.act, held) {
            (Act::Lock(resource), None) => held = Some((*resource, mark.at)),
            (Act::Unlock(resource), Some((which, from))) if *resource == which => {
                let length = mark.at.checked_sub(from).unwrap_or(Work::ZERO);
                let touches = left == Some(from);
                sections.push(Section { task: rank, resource: which.0 as usize, length, touches });
                (held, left) = (None, Some(mark.at));
                match walk.tree.resources[which.0 as usize].protocol {
                    Protocol::Ceiling => {}
                    Protocol::Inheritance if !is_edf => inherits = true,
                    _ => return Err(no),
                }
            }
            (Act::Lock(_) | Act::Unlock(_), _) => return Err(no),
            _ => {}
        }
    }
    if held.is_some() { Err(no) } else { Ok(inherits) }
}
