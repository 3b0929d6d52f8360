//! Writer of a system as a system file.
//!
//! Model: the written text reads back as the same system, except for the line numbers of
//! expectations. Items that another file combines (`count`, `include`) are written one by one. A
//! node that inherits values from its graph roots (`inherits`) has no keys for these values.
//!
//! A value that only a program has (a selection function, observed arrivals) has no text and is an
//! error. The reader, not the writer, checks names and trees. A caller can read the result to check
//! it.

mod task;
mod values;

pub use values::Unwritable;

use crate::keys::{PROTOCOLS, SELECTIONS};
use crate::system::{Root, System};
use std::fmt::Write;
use talea_config::write::text;
use talea_core::Span;
use talea_core::engine::{
    Affinity, ChannelId, Condition, Migration, NodeId, NodeSpec, Protocol, SchedulerSpec,
    Selection, TaskSpec, Tree,
};
use talea_core::mutate;
use talea_core::sched::{PolicySpec, TableEntry};
use talea_core::workload::{Cost, Overheads, StepAction};
use values::{bits, cpus, list, pair, span, time, unless, unwritable, work};

/// Returns the file that describes `system`.
///
/// # Errors
/// If the system has a part that no file can express.
pub fn write(system: &System) -> Result<String, Unwritable> {
    let mut out = String::new();
    pair(&mut out, "duration", &span(system.duration));
    pair(&mut out, "seed", &system.seed.to_string());
    for root in &system.roots {
        self::root(&mut out, root)?;
    }
    surroundings(&mut out, system);
    for chain in &system.chains {
        let names: Vec<String> = chain.task_names(&system.roots).map(text).collect();
        out.push_str("\n[[chain]]\n");
        if chain.name != crate::build::default_chain_name(chain.task_names(&system.roots)) {
            pair(&mut out, "name", &text(&chain.name));
        }
        pair(&mut out, "tasks", &format!("[{}]", names.join(", ")));
        for (key, required) in [("reaction", chain.reaction), ("age", chain.age)] {
            if let Some(required) = required {
                pair(&mut out, key, &span(required));
            }
        }
    }
    for expectation in &system.expectations {
        out.push_str("\n[[expect]]\n");
        if let Some(task) = &expectation.task {
            pair(&mut out, "task", &text(task));
        }
        if let Some(misses) = expectation.misses {
            pair(&mut out, "misses", &misses.to_string());
        }
        if let Some(response) = expectation.response {
            pair(&mut out, "response", &span(response));
        }
    }
    Ok(out)
}

/// Writes a root with all its parts.
fn root(out: &mut String, root: &Root) -> Result<(), Unwritable> {
    let tree = &root.tree;
    for (id, node) in tree.nodes() {
        if let NodeSpec::Scheduler(spec) = &node.spec {
            scheduler(out, tree, id, node.parent, spec)?;
        }
    }
    let shared = |out: &mut String, header: &str, name: &str| {
        let _ = writeln!(out, "\n[[{header}]]");
        pair(out, "name", &text(name));
        pair(out, "in", &text(&root.name));
    };
    for accelerator in &tree.accelerators {
        shared(out, "accelerator", accelerator);
    }
    for resource in &tree.resources {
        shared(out, "resource", &resource.name);
        let [none, inheritance, ceiling] = PROTOCOLS;
        let protocol = match resource.protocol {
            Protocol::None => none,
            Protocol::Inheritance => inheritance,
            Protocol::Ceiling => ceiling,
        };
        pair(out, "protocol", &text(protocol));
    }
    let tasks = tree.nodes().filter(|(_, node)| matches!(node.spec, NodeSpec::Task(_)));
    for (at, (id, node)) in tasks.enumerate() {
        let (NodeSpec::Task(spec), Some(parent)) = (&node.spec, node.parent) else { continue };
        let place = task::Place {
            tree,
            id,
            parent: name_of(tree, parent),
            phases_known: root.phases_known,
            is_logical: root.logical[at],
        };
        let program = root.programs[at].as_deref().map(|words| task::Program {
            words,
            user: root.users[at].as_deref(),
            health: &root.health[at],
        });
        task::write(out, &place, spec, &root.sources[at], program.as_ref())?;
    }
    channels(out, root);
    Ok(())
}

fn channels(out: &mut String, root: &Root) {
    let tree = &root.tree;
    for (id, channel) in (0..).map(ChannelId).zip(&tree.channels) {
        let (from, to) = (name_of(tree, channel.from), name_of(tree, channel.to));
        out.push_str("\n[[channel]]\n");
        pair(out, "from", &text(from));
        pair(out, "to", &text(to));
        unless(0, channel.size, |size| pair(out, "size", &size.to_string()));
        mutate!(
            "system-write-tokens",
            unless(1, channel.tokens, |tokens| pair(out, "tokens", &tokens.to_string()))
        );

        let pushes = |act: &StepAction| match act {
            StepAction::Push(of, counts) if *of == id => Some(counts.clone()),
            _ => None,
        };
        let pops = |act: &StepAction| match act {
            StepAction::Pop(of, counts) if *of == id => Some(counts.clone()),
            _ => None,
        };
        if let Some(counts) = moved(root, channel.from, pushes) {
            pair(out, "push", &list(&counts));
        }
        if let Some(counts) = moved(root, channel.to, pops) {
            pair(out, "pop", &list(&counts));
        }
    }
}

/// Returns the token counts of the jobs of a task.
fn moved(
    root: &Root,
    node: NodeId,
    of: impl Fn(&StepAction) -> Option<Vec<u32>>,
) -> Option<Vec<u32>> {
    let tasks = root.tree.nodes().filter(|(_, node)| matches!(node.spec, NodeSpec::Task(_)));
    let at = tasks.into_iter().position(|(id, _)| id == node)?;
    root.sources[at].cost.by_version().into_iter().find_map(|cost| match cost {
        Cost::WithSteps { steps: marks, .. } => marks.iter().find_map(|mark| of(&mark.action)),
        _ => None,
    })
}

fn scheduler(
    out: &mut String,
    tree: &Tree,
    id: NodeId,
    parent: Option<NodeId>,
    spec: &SchedulerSpec,
) -> Result<(), Unwritable> {
    out.push_str("\n[[scheduler]]\n");
    pair(out, "name", &text(&spec.name));
    pair(out, "policy", &text(spec.policy.name()));
    match parent {
        Some(parent) => pair(out, "in", &text(name_of(tree, parent))),
        None => of_root(out, tree, &spec.name)?,
    }
    if !spec.preemptive {
        pair(out, "preemptive", "false");
    }
    let own = &spec.overrides;
    if own.period.is_some() || own.relative_deadline.is_some() || own.yields {
        return unwritable(
            &spec.name,
            "a group has a priority and a criticality of its own, and nothing else",
        );
    }
    if let Some(priority) = own.priority {
        pair(out, "priority", &priority.to_string());
    }
    if let Some(criticality) = own.criticality {
        pair(out, "criticality", &criticality.to_string());
    }
    if spec.affinity != Affinity::ANY {
        pair(out, "affinity", &cpus(spec.affinity));
    }
    if let Some(server) = &spec.reservation {
        pair(out, "server", &text(server.kind.name()));
        pair(out, "budget", &work(server.budget));
        pair(out, "period", &span(server.period));
        if let Some(deadline) = server.deadline {
            pair(out, "deadline", &span(deadline));
        }
        unless(Span::ZERO, server.offset, |offset| pair(out, "offset", &span(offset)));
    }
    let children: Vec<&str> = tree.children(id).map(|(child, _)| name_of(tree, child)).collect();
    match &spec.policy {
        PolicySpec::RoundRobin { quantum } => pair(out, "quantum", &work(*quantum)),
        PolicySpec::Partitions { frame, slots, lending } => {
            pair(out, "frame", &span(*frame));
            pair(out, "lending", &lending.to_string());
            for slot in slots {
                out.push_str("\n[[scheduler.slot]]\n");
                pair(out, "owner", &text(child(&children, slot.owner, &spec.name)?));
                pair(out, "start", &span(slot.start));
                pair(out, "length", &span(length(slot.start, slot.end)));
            }
        }
        PolicySpec::Table { hyperperiod, entries } => {
            pair(out, "hyperperiod", &span(*hyperperiod));
            for one in entries {
                entry(out, tree, id, child(&children, one.owner, &spec.name)?, one)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Writes the keys that only a root has.
fn of_root(out: &mut String, tree: &Tree, name: &str) -> Result<(), Unwritable> {
    pair(out, "cpus", &tree.cpus.to_string());
    if tree.migration == Migration::JobBoundaries {
        pair(out, "migration", "\"job-boundaries\"");
    }
    let [declared, energy, trade_off, mode, mask] = SELECTIONS;
    let word = match tree.selection {
        Selection::Declared => declared,
        Selection::Energy => energy,
        Selection::TradeOff { weight } => {
            pair(out, "weight", &weight.to_string());
            trade_off
        }
        Selection::Mode => mode,
        Selection::Mask => mask,
        Selection::User(_) | Selection::UserWithContext(..) => {
            return unwritable(
                name,
                "a function chooses its versions, which only the program knows that has it; choose by declaration, \
                 energy, trade-off, mode or mask",
            );
        }
    };
    pair(out, "selection", &text(word));
    if !tree.inheritance {
        pair(out, "inheritance", "false");
    }
    Ok(())
}

fn entry(
    out: &mut String,
    tree: &Tree,
    table: NodeId,
    owner: &str,
    entry: &TableEntry,
) -> Result<(), Unwritable> {
    out.push_str("\n[[scheduler.entry]]\n");
    pair(out, "owner", &text(owner));
    pair(out, "cpu", &entry.cpu.to_string());
    pair(out, "start", &span(entry.start));
    pair(out, "length", &span(length(entry.start, entry.end)));
    if let Some(version) = entry.version {
        let child = tree.children(table).nth(entry.owner as usize);
        let versions = match child.map(|(_, node)| &node.spec) {
            Some(NodeSpec::Task(TaskSpec { versions, .. })) => &versions[..],
            _ => &[],
        };
        let Some(version) = versions.get(version as usize) else {
            return unwritable(
                owner,
                format!("an entry names its version {version}, which it has not"),
            );
        };
        pair(out, "version", &text(&version.name));
    }
    for (key, is_so) in [("activates", entry.activates), ("continues", entry.continues)] {
        if is_so {
            pair(out, key, "true");
        }
    }
    Ok(())
}

/// Writes overheads and changes, which apply to all roots, and stalls, which apply to one root
/// each.
fn surroundings(out: &mut String, system: &System) {
    let Some(first) = system.roots.first() else { return };
    let overheads = &first.surroundings.overheads;
    unless(Overheads::default(), *overheads, |_| out.push_str("\n[overheads]\n"));
    for (key, value) in [
        ("release", overheads.release),
        ("decision", overheads.decision),
        ("level", overheads.level),
        ("switch", overheads.switch),
        ("migration", overheads.migration),
    ] {
        unless(Span::ZERO, value, |value| pair(out, key, &span(value)));
    }
    for root in &system.roots {
        for stall in &root.surroundings.stalls {
            out.push_str("\n[[stall]]\n");
            pair(out, "in", &text(&root.name));
            pair(out, "cpu", &stall.cpu.0.to_string());
            pair(out, "start", &time(stall.from));
            pair(out, "length", &span(stall.to.since(stall.from)));
        }
    }
    for (at, condition) in &first.surroundings.changes {
        out.push_str("\n[[change]]\n");
        pair(out, "at", &time(*at));
        match condition {
            Condition::Battery(battery) => pair(out, "battery", &battery.to_string()),
            Condition::Mode(mode) => pair(out, "mode", &mode.to_string()),
            Condition::Permitted(permitted) => pair(out, "permitted", &bits(*permitted)),
        }
    }
}

fn name_of(tree: &Tree, node: NodeId) -> &str {
    match tree.get(node).map(|node| &node.spec) {
        Some(NodeSpec::Scheduler(spec)) => &spec.name,
        Some(NodeSpec::Task(spec)) => &spec.name,
        None => "",
    }
}

fn child<'t>(children: &[&'t str], number: u32, of: &str) -> Result<&'t str, Unwritable> {
    match children.get(number as usize) {
        Some(name) => Ok(name),
        None => unwritable(of, format!("it gives time to its child {number}, which it has not")),
    }
}

fn length(start: Span, end: Span) -> Span {
    end.checked_sub(start).unwrap_or(Span::ZERO)
}
