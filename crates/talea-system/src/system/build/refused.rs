//! What the core says about a tree, said at the line that it is about.

use super::super::draft::{Draft, Named, Place};
use crate::diagnostic::quoted;
use crate::source::{Findings, words};
use std::collections::BTreeMap;
use talea_core::machine::{NodeId, TreeError, Wrong};
use talea_core::mutate;

/// Where everything of one tree stands.
#[derive(Default)]
pub(super) struct Places<'d> {
    pub(super) nodes: BTreeMap<NodeId, &'d Named>,
    /// Of schedulers: their number in the draft.
    pub(super) schedulers: BTreeMap<NodeId, usize>,
    /// Of its channels, in their order.
    pub(super) channels: Vec<&'d Place>,
}

/// Reports what is wrong with a tree.
pub(super) fn refused(
    draft: &Draft,
    places: &Places<'_>,
    error: &TreeError,
    findings: &mut [Findings<'_>],
) {
    let named = places.nodes[&error.node];
    let part = |index: usize| {
        let scheduler = &draft.schedulers[*places.schedulers.get(&error.node)?];
        let slots = scheduler.slots.iter().map(|slot| &slot.place);
        mutate!(
            "system-place",
            slots.chain(scheduler.entries.iter().map(|entry| &entry.place)).nth(index),
            slots
                .chain(scheduler.entries.iter().map(|entry| &entry.place))
                .nth(index)
                .filter(|place| place.file > 1_000)
        )
    };
    let part = match error.why {
        Wrong::Slot { index } | Wrong::SlotOwner { index, .. } | Wrong::Entry { index, .. } => {
            part(index)
        }
        Wrong::Channel { index, .. } => places.channels.get(index).copied(),
        _ => None,
    };
    let place = part.cloned().unwrap_or_else(|| named.place());
    let why = match &error.why {
        Wrong::GraphRoots { one, other } => {
            let name = |node: &NodeId| quoted(&places.nodes[node].name);
            format!("{} and {} start one graph and do not keep step", name(one), name(other))
        }
        why => why.to_string(),
    };
    let what = format!("{} can't be scheduled like this", quoted(&named.name));
    findings[place.file].error(&place.at, words(what, why, remedy(&error.why)));
}

/// What would be right.
fn remedy(wrong: &Wrong) -> &'static str {
    match wrong {
        Wrong::Cpus(_) => "write `cpus = 1`, or as many as the root owns",
        Wrong::TimeSharing { .. } => "let it stand at the root, or directly under an `fp` root",
        Wrong::ManyCpus { .. } => "give each CPU a root of its own",
        Wrong::Slot { .. } => {
            "let each slot begin where the one before ends, and the last end with the frame"
        }
        Wrong::SlotOwner { .. } => "name a child of the table",
        Wrong::Empty(_) => "write a duration above zero",
        Wrong::Budget { .. } => "lower the budget, or lengthen deadline and period",
        Wrong::ServerDeadline => "write a deadline between budget and period, or leave it out",
        Wrong::Offset => "write an offset below the period",
        Wrong::ServerInPartition => "put the server beside the table, and give it a priority",
        Wrong::Range(_) => "write it in `ns`, `us`, `ms` or `s`, above zero and below 73 years",
        Wrong::Affinity => {
            "leave `affinity` out, or write it where something stands in a root with several `cpus`"
        }
        Wrong::Affinities(_) => "let more children use the same CPUs",
        Wrong::TooMany { .. } => "leave some out",
        Wrong::Channel { .. } => {
            "let it lead from one task to another, with at least as much room as an activation takes"
        }
        Wrong::Circle => "leave out the channel that leads back",
        Wrong::GraphRoots { .. } => "give the roots of the graph the same `period` and `deadline`",
        Wrong::TableBelow => "let it stand in none: it is the root",
        Wrong::Entry { .. } => "move it, shorten it, or correct what it names",
        Wrong::NotAdmitted { .. } => "give it what the policy asks for, or let it stand elsewhere",
        Wrong::Overbooked { .. } => {
            "lower budgets or lengthen periods until the sum of budget / period fits"
        }
        _ => "see the chapter on system files",
    }
}
