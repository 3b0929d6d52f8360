//! `--interference NAME`: how much a band takes of any window, and of each slot of the partitions
//! below it (L3C's question).

use super::AnalyzeArgs;
use super::names::{find, name_of};
use crate::commands::simulate::short;
use crate::exit::Exit;
use crate::output::{Table, note, print, print_json};
use serde::Serialize;
use std::fmt::Write;
use talea_analysis::supply::Curve;
use talea_analysis::tree::disturb::{absorb, interference};
use talea_analysis::tree::{NoTest, Roots};
use talea_core::machine::{Body, NodeId, Tree};
use talea_core::sched::Policy;
use talea_core::{Span, Work};
use talea_system::system::{Root, System};

/// Whose theorem it is.
const PAPER: &str = "L3C (RTNS 2017), sections 3 E and 4.1; Audsley et al., Software Engineering Journal 8(5), 1993";

#[derive(Serialize)]
struct Answer {
    file: String,
    what_if: Vec<String>,
    bands: Vec<BandAnswer>,
    paper: &'static str,
}

#[derive(Serialize)]
struct BandAnswer {
    name: String,
    root: String,
    curves: Vec<CurveAnswer>,
    windows: Vec<WindowAnswer>,
    slots: Vec<SlotAnswer>,
    why_not: Option<String>,
}

/// At most ⌈(t + jitter)/period⌉·cost of a window t.
#[derive(Serialize)]
#[allow(clippy::struct_field_names, reason = "names of JSON carry their unit")]
struct CurveAnswer {
    cost_ns: u64,
    period_ns: u64,
    jitter_ns: u64,
}

#[derive(Serialize)]
struct WindowAnswer {
    window_ns: u64,
    taken_ns: u64,
}

#[derive(Serialize)]
struct SlotAnswer {
    table: String,
    partition: String,
    start_ns: u64,
    length_ns: u64,
    /// Zero where the partition comes first.
    taken_ns: u64,
    /// The slot in which as much is done as in this one without the band; none where the band
    /// leaves too little.
    absorbed_by_ns: Option<u64>,
}

pub(super) fn show(args: &AnalyzeArgs, system: &System) -> anyhow::Result<Exit> {
    let mut bands = Vec::new();
    for name in &args.interference {
        match find(system, name, "scheduler or task", |_| true) {
            Ok((root, node)) => bands.push(band(args, root, node)),
            Err(why) => {
                note(&format!("--interference: {why}"));
                return Ok(Exit::Usage);
            }
        }
    }
    let known = bands.iter().all(|band| band.why_not.is_none());
    let answer = Answer {
        file: args.file.display().to_string(),
        what_if: args.what_if.iter().map(ToString::to_string).collect(),
        bands,
        paper: PAPER,
    };
    if args.output.json {
        print_json(&answer)?;
    } else {
        print(&text(&answer))?;
    }
    Ok(if known { Exit::Ok } else { Exit::Failure })
}

fn why(tree: &Tree, no: &NoTest) -> String {
    format!("{}: {}", name_of(tree, no.node), no.reason.text())
}

fn band(args: &AnalyzeArgs, root: &Root, node: NodeId) -> BandAnswer {
    let roots = Roots::within(&root.tree, &root.sources, &root.surroundings);
    let mut answer = BandAnswer {
        name: name_of(&root.tree, node).to_owned(),
        root: root.name.clone(),
        curves: Vec::new(),
        windows: Vec::new(),
        slots: Vec::new(),
        why_not: None,
    };
    match of_slots(&roots, node) {
        Ok((curves, slots)) => {
            let windows = if args.within.is_empty() {
                usual(root, &curves, &slots)
            } else {
                args.within.clone()
            };
            let taken = |window: Span| interference(&curves, window).as_ns();
            let all = windows.into_iter();
            answer.windows = all
                .map(|window| WindowAnswer { window_ns: window.as_ns(), taken_ns: taken(window) })
                .collect();
            answer.curves = curves
                .iter()
                .map(|curve| CurveAnswer {
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

/// What it takes, and what of each slot of tables that it is not inside of.
fn of_slots(roots: &Roots<'_>, node: NodeId) -> Result<(Vec<Curve>, Vec<SlotAnswer>), NoTest> {
    let tree = roots.tree;
    let curves = roots.taken_anywhere(node)?;
    let mut found = Vec::new();
    for (table, described) in tree.nodes() {
        let Body::Scheduler(spec) = &described.body else { continue };
        let Policy::Partitions { slots, .. } = &spec.policy else { continue };
        if node == table || tree.above(node).any(|(above, _)| above == table) {
            continue;
        }
        let partitions: Vec<NodeId> =
            tree.nodes().filter(|(_, kid)| kid.parent == Some(table)).map(|(kid, _)| kid).collect();
        for slot in slots {
            let Some(&partition) = partitions.get(slot.owner as usize) else { continue };
            let length = slot.end.checked_sub(slot.start).unwrap_or(Span::ZERO);
            let is_before = roots.disturbs(node, partition)?;
            let curves = if is_before { curves.as_slice() } else { &[] };
            found.push(SlotAnswer {
                table: spec.name.clone(),
                partition: name_of(tree, partition).to_owned(),
                start_ns: slot.start.as_ns(),
                length_ns: length.as_ns(),
                taken_ns: interference(curves, length).as_ns(),
                absorbed_by_ns: absorb(Work::from_ns(length.as_ns()), curves).map(Span::as_ns),
            });
        }
    }
    Ok((curves, found))
}

/// Windows that matter: of slots, and else of deadlines.
fn usual(root: &Root, curves: &[Curve], slots: &[SlotAnswer]) -> Vec<Span> {
    let mut windows: Vec<Span> = slots.iter().map(|slot| Span::from_ns(slot.length_ns)).collect();
    windows.extend(curves.iter().map(|curve| curve.period));
    windows.extend(root.tree.nodes().filter_map(|(_, node)| match &node.body {
        Body::Task(spec) => Some(spec.deadline),
        Body::Scheduler(_) => None,
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

fn text(answer: &Answer) -> String {
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
        let mut table = Table::new(&[">of any window of", ">interference", ">share", ">left"]);
        for WindowAnswer { window_ns, taken_ns } in &band.windows {
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
        let mut table = Table::new(&[
            "table",
            "partition",
            ">start",
            ">slot",
            ">interference",
            ">left",
            ">absorbed by",
        ]);
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

fn curve(curve: &CurveAnswer) -> String {
    let late = if curve.jitter_ns > 0 {
        format!(" (up to {} late)", short(curve.jitter_ns))
    } else {
        String::new()
    };
    format!("{} every {}{late}", short(curve.cost_ns), short(curve.period_ns))
}
