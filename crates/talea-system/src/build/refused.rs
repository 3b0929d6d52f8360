//! Errors of the core about a tree, reported at the lines that cause them.

use crate::draft::{Draft, Named, Place};
use std::collections::BTreeMap;
use talea_config::diagnostic::quoted;
use talea_config::source::{Findings, words};
use talea_core::engine::{NodeId, TreeError, TreeErrorKind};
use talea_core::mutate;

/// Positions of the parts of one tree.
#[derive(Default)]
pub(super) struct Places<'d> {
    pub(super) nodes: BTreeMap<NodeId, &'d Named>,
    /// `schedulers[node]`: number of the scheduler in the draft.
    pub(super) schedulers: BTreeMap<NodeId, usize>,
    /// `channels[n]`: position of channel `n`.
    pub(super) channels: Vec<&'d Place>,
}

/// Reports an error of the core about a tree.
pub(super) fn refused(
    draft: &Draft,
    places: &Places<'_>,
    error: &TreeError,
    findings: &mut [Findings<'_>],
) {
    let named = places.nodes[&error.node];
    let part = |index: usize| {
        let scheduler = &draft.schedulers[*places.schedulers.get(&error.node)?];
        let slots = scheduler.policy.slots().iter().map(|slot| &slot.place);
        mutate!(
            "system-place",
            slots.chain(scheduler.policy.entries().iter().map(|entry| &entry.place)).nth(index),
            slots
                .chain(scheduler.policy.entries().iter().map(|entry| &entry.place))
                .nth(index)
                .filter(|place| place.file > 1_000)
        )
    };
    let part = match error.kind {
        TreeErrorKind::Slot { index }
        | TreeErrorKind::SlotOwner { index, .. }
        | TreeErrorKind::TableEntry { index, .. } => part(index),
        TreeErrorKind::Channel { index, .. } => places.channels.get(index).copied(),
        _ => None,
    };
    let place = part.cloned().unwrap_or_else(|| named.place());
    let why = match &error.kind {
        TreeErrorKind::GraphRoots { one, other } => {
            let name = |node: &NodeId| quoted(&places.nodes[node].name);
            format!("{} and {} start one graph and do not keep step", name(one), name(other))
        }
        why => why.to_string(),
    };
    let what = format!("{} can't be scheduled like this", quoted(&named.name));
    findings[place.file].error(&place.at, words(what, why, remedy(&error.kind)));
}

/// Returns the remedy for an error.
fn remedy(wrong: &TreeErrorKind) -> &'static str {
    match wrong {
        TreeErrorKind::CpuCount(_) => "write `cpus = 1`, or as many as the root owns",
        TreeErrorKind::TimeSharing { .. } => {
            "let it stand at the root, or directly under an `fp` root"
        }
        TreeErrorKind::ManyCpus { .. } => "give each CPU a root of its own",
        TreeErrorKind::Sections => {
            "leave out `preemption_points` and `nonpreemptive_max`, or add a scheduler above"
        }
        TreeErrorKind::Slot { .. } => {
            "let each slot begin where the one before ends, and the last end with the frame"
        }
        TreeErrorKind::SlotOwner { .. } => "name a child of the table",
        TreeErrorKind::ZeroLength(_) => "write a duration above zero",
        TreeErrorKind::Budget { .. } => "lower the budget, or lengthen deadline and period",
        TreeErrorKind::ServerDeadline => {
            "write a deadline between budget and period, or leave it out"
        }
        TreeErrorKind::Offset => "write an offset below the period",
        TreeErrorKind::ServerInPartition => {
            "put the server beside the table, and give it a priority"
        }
        TreeErrorKind::OutOfRange(_) => {
            "write it in `ns`, `us`, `ms` or `s`, above zero and below 73 years"
        }
        TreeErrorKind::Affinity => {
            "leave `affinity` out, or write it where something stands in a root with several `cpus`"
        }
        TreeErrorKind::TooManyCpuSets(_) => "let more children use the same CPUs",
        TreeErrorKind::TooMany { .. } => "leave some out",
        TreeErrorKind::Channel { .. } => {
            "let it lead from one task to another, with at least as much room as an activation takes"
        }
        TreeErrorKind::Cycle => "leave out the channel that leads back",
        TreeErrorKind::GraphRoots { .. } => {
            "give the roots of the graph the same `period` and `deadline`"
        }
        TreeErrorKind::TableNotAtRoot => "let it stand in none: it is the root",
        TreeErrorKind::TableEntry { .. } => "move it, shorten it, or correct what it names",
        TreeErrorKind::NotAdmitted { .. } => {
            "give it what the policy asks for, or let it stand elsewhere"
        }
        TreeErrorKind::Overbooked { .. } => {
            "lower budgets or lengthen periods until the sum of budget / period fits"
        }
        _ => "see the chapter on system files",
    }
}
