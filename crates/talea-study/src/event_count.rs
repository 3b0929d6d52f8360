//! Number of events of a simulation, estimated before it begins.

use talea_core::engine::{Node, NodeSpec};
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, Source};
use talea_system::Root;

/// Estimates the number of events until `until`: jobs, slots, refills and quanta. Building the
/// engine costs about one event per node.
pub fn estimated_events(root: &Root, until: u64) -> u64 {
    let of = |source: &Source| separation(source).map_or(1, |distance| until / distance.max(1) + 1);
    let jobs =
        root.sources.iter().map(of).fold(root.tree.nodes().count() as u64, u64::saturating_add);
    let of = |node: &Node| match &node.spec {
        NodeSpec::Task(_) => 0,
        NodeSpec::Scheduler(spec) => {
            let every =
                |every: u64, count: usize| (until / every.max(1)).saturating_mul(count as u64);
            let turns = match &spec.policy {
                PolicySpec::RoundRobin { quantum } => every(quantum.as_ns(), 1),
                PolicySpec::Partitions { frame, slots, .. } => every(frame.as_ns(), slots.len()),
                PolicySpec::Table { hyperperiod, entries } => {
                    every(hyperperiod.as_ns(), entries.len())
                }
                _ => 0,
            };
            turns.saturating_add(spec.reservation.map_or(0, |of| every(of.period.as_ns(), 1)))
        }
    };
    root.tree.nodes().map(|(_, node)| of(node)).fold(jobs, u64::saturating_add)
}

/// Returns the distance of two arrivals in nanoseconds, the least or that of a curve in the long
/// run; `None` if they are listed.
pub fn separation(source: &Source) -> Option<u64> {
    match &source.arrivals {
        Arrivals::Periodic { period, .. } => Some(period.as_ns()),
        Arrivals::Sporadic { separation, .. } => Some(separation.as_ns()),
        Arrivals::Curve { distances, .. } => Some(distances.mean_distance().as_ns()),
        Arrivals::List(_) | Arrivals::Observed(_) => None,
    }
}
