//! Children of a time table without a slot or entry.
//!
//! A table assigns all CPU time. A child without a slot or entry never runs, and its jobs wait
//! until the backlog is full. This may be intended while a table is being written, so the reader
//! only warns.

use super::plan::Plan;
use crate::draft::{Named, PolicyDraft};
use std::collections::BTreeSet;
use talea_config::diagnostic::quoted;
use talea_config::source::{Findings, words};
use talea_core::mutate;

/// Warns about the children of a scheduler without a slot or entry in its table.
pub(super) fn left_out(plan: &Plan<'_>, at: usize, findings: &mut [Findings<'_>]) {
    let spec = &plan.draft.schedulers[at];
    let (part, owners): (_, BTreeSet<&str>) = match &spec.policy {
        // A lending table lends idle time to every child.
        PolicyDraft::Partitions { slots, lending: false, .. } => {
            ("slot", slots.iter().map(|slot| slot.owner.name.as_str()).collect())
        }
        PolicyDraft::Table { entries, .. } => {
            ("entry", entries.iter().map(|entry| entry.owner.name.as_str()).collect())
        }
        _ => return,
    };
    let mut warn = |named: &Named, name: &str| {
        let found = &mut findings[named.file];
        let what = format!("{} has no {part} in {}", quoted(name), quoted(&spec.name.name));
        let why = format!("it never runs: all time belongs to who has {} there", article(part));
        let remedy =
            format!("write `[[scheduler.{part}]]` there with `owner = \"{name}\"`, or take it out");
        found.warning(&named.at, words(what, why, remedy));
    };
    for &child in &plan.below[at] {
        let named = &plan.draft.schedulers[child].name;
        if !owners.contains(named.name.as_str())
            && mutate!("system-left-out", has_tasks(plan, child), !has_tasks(plan, child))
        {
            warn(named, &named.name);
        }
    }
    for &task in &plan.members[at] {
        let task = &plan.draft.tasks[task];
        // One of several copies says it for all.
        if let Some(name) = mutate!(
            "system-left-out-copy",
            task.names().find(|name| !owners.contains(name.as_str())),
            task.names().take(1).find(|name| !owners.contains(name.as_str()))
        ) {
            warn(&task.name, &name);
        }
    }
}

fn article(part: &str) -> String {
    format!("{} {part}", if part.starts_with('e') { "an" } else { "a" })
}

/// Whether the subtree has a task.
fn has_tasks(plan: &Plan<'_>, scheduler: usize) -> bool {
    let mut open = vec![scheduler];
    while let Some(at) = open.pop() {
        if !plan.members[at].is_empty() {
            return true;
        }
        open.extend(&plan.below[at]);
    }
    false
}
