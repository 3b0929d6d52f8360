//! `--interference NAME`: interference of a band in any window, and in each slot of the partitions
//! below it (the question of L3C).

use super::args::AnalyzeArgs;
use super::model::model_of;
use super::names::{find_node, name_of};
use crate::exit::{Exit, usage};
use crate::output::Table;
use crate::run_summary::short;
use serde::Serialize;
use std::fmt::Write;
use talea_analysis::supply::InterferenceCurve;
use talea_analysis::tree::slot_interference::{interference, min_slot};
use talea_analysis::tree::{NoBound, RootModel};
use talea_core::engine::{NodeId, NodeSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::{Span, Work};
use talea_system::{Root, System};

/// Source of the theorem.
const PAPER: &str = "L3C (RTNS 2017), sections 3 E and 4.1; Audsley et al., Software Engineering Journal 8(5), 1993";

#[derive(Serialize)]
struct InterferenceReport {
    file: String,
    what_if: Vec<String>,
    bands: Vec<BandInterference>,
    paper: &'static str,
}

#[derive(Serialize)]
struct BandInterference {
    name: String,
    root: String,
    curves: Vec<CurveJson>,
    windows: Vec<WindowInterference>,
    slots: Vec<SlotInterference>,
    why_not: Option<String>,
}

/// Arrival curve: at most ⌈(t + jitter)/period⌉·cost in a window t.
#[derive(Serialize)]
#[allow(clippy::struct_field_names, reason = "names of JSON carry their unit")]
struct CurveJson {
    cost_ns: u64,
    period_ns: u64,
    jitter_ns: u64,
}

#[derive(Serialize)]
struct WindowInterference {
    window_ns: u64,
    taken_ns: u64,
}

#[derive(Serialize)]
struct SlotInterference {
    table: String,
    partition: String,
    start_ns: u64,
    length_ns: u64,
    /// CPU time that the band takes from the slot. Zero if the partition has the higher priority.
    taken_ns: u64,
    /// Length of a slot with the band that does as much work as this slot without the band. `None`
    /// if the band leaves too little time.
    absorbed_by_ns: Option<u64>,
}

/// Prints how much of any window the nodes that `args` names take.
///
/// # Errors
/// If no node has one of the names, or no bound is known.
pub fn show(args: &AnalyzeArgs, system: &System) -> anyhow::Result<Exit> {
    let mut bands = Vec::new();
    for name in &args.interference {
        let (root, node) = find_node(system, name, "scheduler or task", |_| true)
            .map_err(|why| usage(format!("--interference: {why}")))?;
        bands.push(band(args, root, node));
    }
    let known = bands.iter().all(|band| band.why_not.is_none());
    let answer = InterferenceReport {
        file: args.file.display().to_string(),
        what_if: args.what_if.iter().map(ToString::to_string).collect(),
        bands,
        paper: PAPER,
    };
    args.output.print(&answer, || text(&answer))?;
    Ok(if known { Exit::Ok } else { Exit::Failure })
}

fn why(tree: &Tree, no: &NoBound) -> String {
    format!("{}: {}", name_of(tree, no.node), no.reason.text())
}

fn band(args: &AnalyzeArgs, root: &Root, node: NodeId) -> BandInterference {
    let roots = model_of(root);
    let mut answer = BandInterference {
        name: name_of(&root.tree, node).to_owned(),
        root: root.name.clone(),
        curves: Vec::new(),
        windows: Vec::new(),
        slots: Vec::new(),
        why_not: None,
    };
    match slot_interference(&roots, node) {
        Ok((curves, slots)) => {
            let windows = if args.within.is_empty() {
                default_windows(root, &curves, &slots)
            } else {
                args.within.clone()
            };
            let taken = |window: Span| interference(&curves, window).as_ns();
            let all = windows.into_iter();
            answer.windows = all
                .map(|window| WindowInterference {
                    window_ns: window.as_ns(),
                    taken_ns: taken(window),
                })
                .collect();
            answer.curves = curves
                .iter()
                .map(|curve| CurveJson {
                    cost_ns: curve.cost.as_ns(),
                    period_ns: curve.period.as_ns(),
                    jitter_ns: curve.jitter.as_ns(),
                })
                .collect();
            answer.slots = slots;
        }
        Err(no) => answer.why_not = Some(why(&root.tree, &no)),
    }
    answer
}

/// Returns the curves of the node, and its interference in each slot of the tables that do not
/// contain the node.
fn slot_interference(
    roots: &RootModel<'_>,
    node: NodeId,
) -> Result<(Vec<InterferenceCurve>, Vec<SlotInterference>), NoBound> {
    let tree = roots.tree;
    let curves = roots.interference_in_any_window(node)?;
    let mut found = Vec::new();
    for (table, described) in tree.nodes() {
        let NodeSpec::Scheduler(spec) = &described.spec else { continue };
        let PolicySpec::Partitions { slots, .. } = &spec.policy else { continue };
        if node == table || tree.ancestors(node).any(|(above, _)| above == table) {
            continue;
        }
        let partitions: Vec<NodeId> = tree
            .nodes()
            .filter(|(_, child)| child.parent == Some(table))
            .map(|(child, _)| child)
            .collect();
        for slot in slots {
            let Some(&partition) = partitions.get(slot.owner as usize) else { continue };
            let length = slot.end.checked_sub(slot.start).unwrap_or(Span::ZERO);
            let is_before = roots.can_interfere(node, partition)?;
            let curves = if is_before { curves.as_slice() } else { &[] };
            found.push(SlotInterference {
                table: spec.name.clone(),
                partition: name_of(tree, partition).to_owned(),
                start_ns: slot.start.as_ns(),
                length_ns: length.as_ns(),
                taken_ns: interference(curves, length).as_ns(),
                absorbed_by_ns: min_slot(Work::from_ns(length.as_ns()), curves).map(Span::as_ns),
            });
        }
    }
    Ok((curves, found))
}

/// Default windows: the lengths of slots, then periods and deadlines.
fn default_windows(
    root: &Root,
    curves: &[InterferenceCurve],
    slots: &[SlotInterference],
) -> Vec<Span> {
    let mut windows: Vec<Span> = slots.iter().map(|slot| Span::from_ns(slot.length_ns)).collect();
    windows.extend(curves.iter().map(|curve| curve.period));
    windows.extend(root.tree.nodes().filter_map(|(_, node)| match &node.spec {
        NodeSpec::Task(spec) => Some(spec.deadline),
        NodeSpec::Scheduler(_) => None,
    }));
    windows.sort_unstable();
    windows.dedup();
    windows.truncate(20);
    windows
}

fn share(part: u64, of: u64) -> String {
    let tenths = u128::from(part) * 1_000 / u128::from(of.max(1));
    format!("{}.{} %", tenths / 10, tenths % 10)
}

fn text(answer: &InterferenceReport) -> String {
    let mut out = String::new();
    // Writing to a String can't fail.
    for change in &answer.what_if {
        let _ = writeln!(out, "what if {change}");
    }
    for band in &answer.bands {
        if let Some(why) = &band.why_not {
            let _ = writeln!(out, "{} in {}: not known: {why}", band.name, band.root);
            continue;
        }
        let curves: Vec<String> = band.curves.iter().take(4).map(curve).collect();
        let more = band.curves.len().saturating_sub(4);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = writeln!(
            out,
            "{} in {} takes at most {}{more}",
            band.name,
            band.root,
            curves.join(", ")
        );
        let mut table = Table::new(">of any window of | >interference | >share | >left");
        for WindowInterference { window_ns, taken_ns } in &band.windows {
            let left = window_ns - taken_ns;
            table.row(vec![
                short(*window_ns),
                short(*taken_ns),
                share(*taken_ns, *window_ns),
                short(left),
            ]);
        }
        out.push_str(&table.render());
        if band.slots.is_empty() {
            continue;
        }
        let mut table =
            Table::new("table | partition | >start | >slot | >interference | >left | >absorbed by");
        for slot in &band.slots {
            table.row(vec![
                slot.table.clone(),
                slot.partition.clone(),
                short(slot.start_ns),
                short(slot.length_ns),
                short(slot.taken_ns),
                short(slot.length_ns - slot.taken_ns),
                slot.absorbed_by_ns.map_or_else(|| "no slot".to_owned(), short),
            ]);
        }
        out.push_str(&table.render());
    }
    let _ = writeln!(
        out,
        "interference: the sum of ceil((t + J)/T)*C, never more than t: {}",
        answer.paper
    );
    out
}

fn curve(curve: &CurveJson) -> String {
    let late = if curve.jitter_ns > 0 {
        format!(" (up to {} late)", short(curve.jitter_ns))
    } else {
        String::new()
    };
    format!("{} every {}{late}", short(curve.cost_ns), short(curve.period_ns))
}
