//! Channels: their ends, and the tasks that they activate.

use super::plan::{Copy, Joined, Plan, unknown};
use crate::draft::{Draft, Named, ProgramDraft};
use crate::keys::Section;
use std::collections::{BTreeMap, BTreeSet};
use talea_config::diagnostic::quoted;
use talea_config::key::FileSection;
use talea_config::source::{Findings, words};
use talea_core::engine::{NodeId, NodeSpec, TaskSpec, Tree};
use talea_core::mutate;
use talea_core::workload::Cost;

/// Finds the ends of all channels.
pub(super) fn joined(
    draft: &Draft,
    homes: &[usize],
    owners: &[usize],
    findings: &mut [Findings<'_>],
) -> Option<Vec<Joined>> {
    if draft.channels.is_empty() {
        return Some(Vec::new());
    }
    let mut by_name: BTreeMap<String, Copy> = BTreeMap::new();
    for (at, task) in draft.tasks.iter().enumerate() {
        by_name.extend(task.names().zip(0..).map(|(name, copy)| (name, (at, copy))));
    }
    let mut all = Vec::new();
    for channel in &draft.channels {
        let mut end = |named: &Named| {
            let found = by_name.get(&named.name).copied();
            if found.is_none() && draft.broken.iter().all(|broken| broken.name != named.name) {
                unknown(named, "task", by_name.keys().map(String::as_str), findings);
            }
            found
        };
        let (from, to) = (end(&channel.from), end(&channel.to));
        let (Some(from), Some(to)) = (from, to) else {
            all.push(None);
            continue;
        };
        let (root, other) = (homes[owners[from.0]], homes[owners[to.0]]);
        if root != other {
            let name = |root: usize| quoted(&draft.schedulers[root].name.name);
            let what = format!("the channel leads from {} to {}", name(root), name(other));
            let why = "roots know nothing of each other";
            let remedy =
                "put both tasks into one root with several `cpus`, each with its `affinity`";
            findings[channel.place.file].error(&channel.to.at, words(what, why, remedy));
        }
        all.push((root == other).then_some(Joined { from, to, root }));
    }
    all.into_iter().collect()
}

/// Checks that each task has exactly one source of arrivals: itself, channels, or a table.
pub(super) fn check_arrivals(plan: &Plan<'_>, findings: &mut [Findings<'_>]) -> Option<()> {
    let ends: BTreeSet<Copy> = plan.channels.iter().map(|channel| channel.to).collect();
    let mut fine = true;
    for channel in &plan.channels {
        for (number, _) in [channel.from, channel.to] {
            let task = &plan.draft.tasks[number];
            if let Some(ProgramDraft { at, .. }) = &task.program {
                let what =
                    format!("{} is a program and stands at a channel", quoted(&task.name.name));
                let why = "Talea does not observe what a program passes on";
                findings[task.name.file]
                    .error(at, words(what, why, "leave the channel out, or the line"));
                fine = false;
            }
        }
    }
    for (at, task) in plan.draft.tasks.iter().enumerate() {
        let copies = task.count.unwrap_or(1);
        let activated = ends.range((at, 0)..(at, copies)).count();
        let findings = &mut findings[task.name.file];
        if task.parameters.period.is_none() && activated < copies as usize {
            fine = false;
            if plan.draft.lost_channels {
                continue;
            }
            let key = Section::Task.key("period").expect("a listed key");
            let remedy = format!("add a line such as `period = {}`", key.example);
            findings.error(&task.at, words("[[task]] has no `period`", key.reason(), remedy));
        }
        let by = if activated > 0 {
            "a channel"
        } else if plan.table_activates(at) {
            "a table"
        } else {
            continue;
        };
        if let (Some(ProgramDraft { at, .. }), 0) = (&task.program, activated) {
            let what =
                format!("{} is a program, and a table activates it", quoted(&task.name.name));
            let why = "a program begins what it does by itself";
            findings.error(at, words(what, why, "leave `activates` out, or the line"));
            fine = false;
        }
        for (key, at) in &task.about_arrivals {
            let what = format!("`{key}` means nothing to {}", quoted(&task.name.name));
            let why = format!("{by} activates it");
            findings.error(at, words(what, why, "leave the line out"));
            fine = false;
        }
    }
    fine.then_some(())
}

/// Adds the channels of `root`. Tasks inherit the values that they do not state from graph roots.
pub(super) fn join(
    plan: &Plan<'_>,
    root: usize,
    tree: &mut Tree,
    nodes: &BTreeMap<Copy, NodeId>,
    costs: &mut BTreeMap<Copy, Cost>,
) {
    for &at in &plan.joined[root] {
        let (channel, joined) = (&plan.draft.channels[at], &plan.channels[at]);
        let id = tree.channel(nodes[&joined.from], nodes[&joined.to], channel.size);
        let spec = &mut tree.channels[id.0 as usize];
        spec.name = format!("{}-{}", channel.from.name, channel.to.name);
        mutate!("system-channel", spec.tokens = channel.tokens);

        for (of, counts, does) in [
            (joined.from, &channel.push, Cost::pushing as fn(Cost, _, &[u32]) -> Cost),
            (joined.to, &channel.pop, Cost::popping),
        ] {
            if let (Some(counts), Some(cost)) = (counts, costs.get_mut(&of)) {
                let old = std::mem::replace(cost, Cost::List(Vec::new()));
                *cost = marked(old, |cost| does(cost, id, counts));
            }
        }
    }
    let ends: BTreeSet<Copy> = plan.joined[root].iter().map(|&at| plan.channels[at].to).collect();
    for end in &ends {
        if let Some(spec) = task_of(tree, nodes[end]) {
            spec.inherits = true;
        }
    }
    let inherited = tree.inherited_criteria();
    for end in &ends {
        let (task, node) = (&plan.draft.tasks[end.0], nodes[end]);
        if let (Some(roots), Some(spec)) = (inherited.get(&node), task_of(tree, node)) {
            spec.inherits = false;
            spec.period = task.parameters.period.unwrap_or(roots.period);
            spec.deadline = task.parameters.deadline.or(task.parameters.period).unwrap_or(mutate!(
                "system-graph-deadline",
                roots.relative_deadline,
                roots.period
            ));
            spec.priority = task.parameters.priority.unwrap_or(roots.priority);
            spec.criticality = task.parameters.criticality.unwrap_or(roots.criticality);
        }
    }
}

/// Applies `mark` to each version of a cost.
pub(super) fn marked(cost: Cost, mark: impl Fn(Cost) -> Cost) -> Cost {
    match cost {
        Cost::Versions(costs) => Cost::Versions(costs.into_iter().map(mark).collect()),
        cost => mark(cost),
    }
}

/// Returns a task of the tree for changes.
pub(super) fn task_of(tree: &mut Tree, node: NodeId) -> Option<&mut TaskSpec> {
    match tree.get_mut(node).map(|node| &mut node.spec) {
        Some(NodeSpec::Task(spec)) => Some(spec),
        _ => None,
    }
}
