//! `--synthesize partitions`: slots that do as much work below higher-priority bands as they do
//! without them (L3C, RTNS 2017, 4.1 G).

use super::args::AnalyzeArgs;
use super::model::model_of;
use super::names::name_of;
use super::progress::Progress;
use super::witness;
use crate::exit::{Exit, usage};
use crate::output::{Table, count};
use crate::run_summary::short;
use serde::Serialize;
use std::fmt::Write;
use talea_analysis::tree::TaskBound as Bounded;
use talea_analysis::tree::slot_interference::AbsorbedTable;
use talea_core::Span;
use talea_core::engine::{NodeId, NodeSpec, Tree};
use talea_core::sched::{PolicySpec, Slot};
use talea_system::{Root, System};

#[derive(Serialize)]
struct PartitionsReport {
    file: String,
    what_if: Vec<String>,
    found: bool,
    tables: Vec<TableProposal>,
}

#[derive(Serialize)]
struct TableProposal {
    name: String,
    frame_ns: u64,
    slots: Vec<SlotProposal>,
    /// Length of the shortest frame with room for all slots, if the current frame is too short.
    frame_needed_ns: Option<u64>,
    why_not: Option<String>,
    verified: Option<Verification>,
}

#[derive(Serialize)]
struct SlotProposal {
    owner: String,
    start_ns: u64,
    length_ns: u64,
    before_ns: u64,
}

/// Result of the verification with the new table.
#[derive(Serialize, Clone, Copy)]
struct Verification {
    tasks: usize,
    proved: usize,
    proved_before: usize,
    /// Number of tasks with a late job in a simulation with worst-case costs.
    late: usize,
    late_before: usize,
}

/// Partition table and its node.
struct PartitionTable<'r> {
    root: &'r Root,
    number: usize,
    node: NodeId,
    frame: Span,
    slots: &'r [Slot],
}

pub(super) fn partitions(args: &AnalyzeArgs, system: &System) -> anyhow::Result<Exit> {
    let mut tables = Vec::new();
    for (number, root) in system.roots.iter().enumerate() {
        for (node, described) in root.tree.nodes() {
            let NodeSpec::Scheduler(spec) = &described.spec else { continue };
            let PolicySpec::Partitions { frame, slots, .. } = &spec.policy else { continue };
            tables.push(PartitionTable { root, number, node, frame: *frame, slots });
        }
    }
    if tables.is_empty() {
        return Err(usage(
            "--synthesize partitions: there is no scheduler with policy \"partitions\" in this system",
        ));
    }
    let mut progress = Progress::new();
    let mut answers = Vec::new();
    for table in &tables {
        answers.push(propose_table(system, table, &mut progress)?);
    }
    let found = answers.iter().all(|table| table.why_not.is_none());
    let answer = PartitionsReport {
        file: args.file.display().to_string(),
        what_if: args.what_if.iter().map(ToString::to_string).collect(),
        found,
        tables: answers,
    };
    args.output.print(&answer, || text(&answer))?;
    Ok(if found { Exit::Ok } else { Exit::Failure })
}

fn children(tree: &Tree, node: NodeId) -> Vec<NodeId> {
    tree.nodes().filter(|(_, child)| child.parent == Some(node)).map(|(child, _)| child).collect()
}

fn length(slot: &Slot) -> Span {
    slot.end.checked_sub(slot.start).unwrap_or(Span::ZERO)
}

fn propose_table(
    system: &System,
    table: &PartitionTable<'_>,
    progress: &mut Progress,
) -> anyhow::Result<TableProposal> {
    let PartitionTable { root, node, frame, slots, .. } = *table;
    let mut answer = TableProposal {
        name: name_of(&root.tree, node).to_owned(),
        frame_ns: frame.as_ns(),
        slots: Vec::new(),
        frame_needed_ns: None,
        why_not: None,
        verified: None,
    };
    let partitions = children(&root.tree, node);
    let roots = model_of(root);
    let stretched = match roots.absorbing_slots(node) {
        Ok(AbsorbedTable::Slots(stretched)) => stretched,
        Ok(AbsorbedTable::FrameTooShort(Some(needed))) => {
            answer.frame_needed_ns = Some(needed.as_ns());
            answer.why_not = Some(format!(
                "the slots would need a frame of {needed} at least, and this one has {frame}"
            ));
            return Ok(answer);
        }
        Ok(AbsorbedTable::FrameTooShort(None)) => {
            answer.why_not = Some(
                "the higher-priority load leaves too little CPU time in the long run".to_owned(),
            );
            return Ok(answer);
        }
        Err(no) => {
            answer.why_not =
                Some(format!("{}: {}", name_of(&root.tree, no.node), no.reason.text()));
            return Ok(answer);
        }
    };
    answer.slots = stretched
        .iter()
        .zip(slots)
        .map(|(after, before)| SlotProposal {
            owner: name_of(&root.tree, partitions[after.owner as usize]).to_owned(),
            start_ns: after.start.as_ns(),
            length_ns: length(after).as_ns(),
            before_ns: length(before).as_ns(),
        })
        .collect();
    let mut changed = root.clone();
    if let Some(NodeSpec::Scheduler(spec)) = changed.tree.get_mut(node).map(|node| &mut node.spec)
        && let PolicySpec::Partitions { slots, .. } = &mut spec.policy
    {
        *slots = stretched;
    }
    changed.tree.check().map_err(|error| anyhow::anyhow!("{}: {}", root.name, error.kind))?;
    answer.verified = Some(verify(system, table, &changed, progress)?);
    Ok(answer)
}

fn verify(
    system: &System,
    table: &PartitionTable<'_>,
    changed: &Root,
    progress: &mut Progress,
) -> anyhow::Result<Verification> {
    let mut proved = |root: &Root| {
        let roots = model_of(root);
        let answers =
            roots.bounds_with_progress(|done, all| progress.tasks_analysed(&root.name, done, all));
        answers.iter().filter(|answer: &&Bounded| answer.is_proved()).count()
    };
    let (before, after) = (proved(table.root), proved(changed));
    progress.finish_line();
    let seed = talea_sim::rng::root_seed(system.seed, table.number);
    let mut late = |root: &Root| {
        let misses = witness::misses(root, system.duration, seed, progress)?;
        anyhow::Ok(misses.iter().flatten().count())
    };
    let (late_before, late) = (late(table.root)?, late(changed)?);
    progress.finish_line();
    let tasks = changed.tasks.len();
    Ok(Verification { tasks, proved: after, proved_before: before, late, late_before })
}

fn text(answer: &PartitionsReport) -> String {
    let mut out = String::new();
    // Writing to a String can't fail.
    for change in &answer.what_if {
        let _ = writeln!(out, "what if {change}");
    }
    for table in &answer.tables {
        if let Some(why) = &table.why_not {
            let _ = writeln!(out, "{}: no table: {why}", table.name);
            if let Some(needed) = table.frame_needed_ns {
                let _ = writeln!(
                    out,
                    "  shorten slots, or set frame = \"{}\" and repeat",
                    Span::from_ns(needed)
                );
            }
            continue;
        }
        let mut shown = Table::new("partition | >start | >slot before | >slot | >more");
        for slot in &table.slots {
            shown.row(vec![
                slot.owner.clone(),
                short(slot.start_ns),
                short(slot.before_ns),
                short(slot.length_ns),
                short(slot.length_ns - slot.before_ns),
            ]);
        }
        let _ = writeln!(
            out,
            "{}, a frame of {}: each slot does as much work as without the band",
            table.name,
            short(table.frame_ns)
        );
        out.push_str(&shown.render());
        let _ = writeln!(out, "\nin place of the slots of {}:", table.name);
        let mut end = 0;
        for slot in &table.slots {
            let owner = toml_edit::Value::from(slot.owner.as_str());
            let _ = write!(out, "\n[[scheduler.slot]]\nowner = {owner}\n");
            if slot.start_ns != end {
                let _ = writeln!(out, "start = \"{}\"", Span::from_ns(slot.start_ns));
            }
            let _ = writeln!(out, "length = \"{}\"", Span::from_ns(slot.length_ns));
            end = slot.start_ns + slot.length_ns;
        }
        if let Some(Verification { tasks, proved, proved_before, late, late_before }) =
            table.verified
        {
            let _ = writeln!(
                out,
                "\nverified: {proved} of {} proved (before: {proved_before}); simulated with worst-case costs, {} late \
                 (before: {late_before})",
                count(tasks, "task"),
                count(late, "task")
            );
        }
    }
    let _ = writeln!(out, "L3C (RTNS 2017), section 4.1, constraint G");
    out
}
